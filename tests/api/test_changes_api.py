"""Queries that are replaced, paused and resumed over REST, from Python and from the command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from braid.api.cli.main import cli
from braid.client import Client, Refused
from tests.api.rest import ALL, STREAM, SUMS, Rest, open_rest, tuple_at
from tests.kit.waiting import wait_until
from tests.router.batches import SECOND

CHEAP = "SELECT user_id FROM purchases WHERE price < 5"


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A service with the test stream."""
    with open_rest(tmp_path) as running:
        running.stream()
        yield running


def changelog(rest: Rest) -> None:
    """Wait until all that was asked for is in a changelog."""
    state = rest.service.session._state
    wait_until(lambda: not state.pending.has_changes, 10, "a changelog is cut")


def step(rest: Rest, clock: float | None = None) -> None:
    """Commit a batch that takes in all that was asked for, at a clock (seconds since 1970)."""
    changelog(rest)
    stream = rest.service.session.streams.definition("purchases").id
    rest.commit(clocks_at_start={stream: None if clock is None else round(clock * SECOND)})


def settle(rest: Rest, query_id: str) -> None:
    """Commit the batches after which a query that was paused holds no slot."""
    step(rest)
    step(rest)
    assert rest.get(f"/queries/{query_id}")["slot"] is None


def test_put_replaces_a_query_with_one_changelog(rest: Rest) -> None:
    fields: dict[str, Any] = {"name": "all", "labels": {"team": "a"}, "ttl_seconds": 600.0, "sink": "log"}
    old = rest.query(**fields)
    response = rest.client.put("/queries/all", json={"sql": CHEAP})
    replacement = rest.read(response, 201)
    assert response.headers["location"] == f"/queries/{replacement['id']}"
    assert (replacement["state"], replacement["replaces"], replacement["sql"]) == ("PENDING", old["id"], CHEAP)
    assert {name: replacement[name] for name in fields} == fields
    before = rest.get(f"/queries/{old['id']}")
    assert (before["state"], before["replaced_by"], before["sql"]) == ("DRAINING", replacement["id"], ALL)
    step(rest, clock=7)
    (changelog,) = [entry for entry in rest.get("/changelogs")["changelogs"] if entry["created"] and entry["deleted"]]
    assert [entry["id"] for entry in changelog["created"]] == [replacement["id"]]
    assert [entry["id"] for entry in changelog["deleted"]] == [old["id"]]
    running = rest.get(f"/queries/{replacement['id']}")
    assert running["state"] == "RUNNING"
    assert running["active_from"] == rest.get(f"/queries/{old['id']}")["active_to"]
    assert running["active_from"] == {"purchases": "1970-01-01T00:00:07.000000Z"}


def test_put_says_otherwise_and_null_says_none(rest: Rest) -> None:
    old = rest.query(name="all", labels={"team": "a"}, ttl_seconds=600)
    body = {"sql": CHEAP, "name": "cheap", "labels": None, "ttl_seconds": None, "sink": "log"}
    renamed = rest.read(rest.client.put(f"/queries/{old['id']}", json=body), 201)
    assert (renamed["name"], renamed["labels"], renamed["ttl_seconds"], renamed["sink"]) == ("cheap", {}, None, "log")
    unnamed = rest.read(rest.client.put("/queries/cheap", json={"sql": CHEAP, "name": None, "sink": None}), 201)
    assert (unnamed["name"], unnamed["sink"], unnamed["replaces"]) == (None, None, renamed["id"])
    stated = {"sql": f"CREATE QUERY stated AS {CHEAP}"}
    assert rest.read(rest.client.put(f"/queries/{unnamed['id']}", json=stated), 201)["name"] == "stated"


def test_put_without_drain_frees_the_old_one_with_the_same_changelog(rest: Rest) -> None:
    old = rest.query()
    replacement = rest.read(rest.client.put(f"/queries/{old['id']}?drain=false", json={"sql": CHEAP}), 201)
    step(rest)
    assert rest.get(f"/queries/{old['id']}")["state"] == "RETIRED"
    assert rest.get(f"/queries/{replacement['id']}")["slot"] == old["slot"], "the slot is used again at once"


def test_put_waits_until_the_new_query_runs(rest: Rest) -> None:
    old = rest.query()
    answers: list[Any] = []
    path = f"/queries/{old['id']}?wait=20"
    waiting = threading.Thread(target=lambda: answers.append(rest.client.put(path, json={"sql": CHEAP})))
    waiting.start()
    wait_until(lambda: rest.get(f"/queries/{old['id']}")["replaced_by"], 10, "it is replaced")
    step(rest)
    waiting.join(20)
    assert rest.read(answers[0], 201)["state"] == "RUNNING"


def test_put_with_a_key_replaces_once_also_after_a_restart(tmp_path: Path) -> None:
    key = {"Idempotency-Key": "put-1"}
    with open_rest(tmp_path) as rest:
        rest.stream()
        rest.query(name="all")
        first = rest.client.put("/queries/all", json={"sql": CHEAP}, headers=key)
        assert rest.client.put("/queries/all", json={"sql": CHEAP}, headers=key).content == first.content
        assert rest.read(rest.client.put("/queries/all", json={"sql": ALL}, headers=key), 422)
    with open_rest(tmp_path) as rest:
        assert rest.client.put("/queries/all", json={"sql": CHEAP}, headers=key).content == first.content
        assert [query["id"] for query in rest.get("/queries")["queries"]] == ["q-1", "q-2"]


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ([{"sql": CHEAP}], 400, "A query must be an object"),
        ({"name": "x"}, 400, 'must have its text in "sql"'),
        ({"sql": CHEAP, "drain": False}, 400, "got 'drain' too"),
        ({"sql": "SELECT nothing FROM purchases"}, 422, "user_id"),
        ({"sql": CHEAP, "name": "other"}, 409, "Cannot name a query 'other': query "),
        ({"sql": CHEAP, "ttl_seconds": -1}, 422, "ttl_seconds must be"),
        ({"sql": CHEAP, "sink": {"connector": "nothing"}}, 422, "connector of a sink"),
        ({"sql": "SHOW QUERIES"}, 422, "A query must be SELECT"),
    ],
)
def test_a_put_that_is_refused_changes_nothing(rest: Rest, body: object, status: int, detail: str) -> None:
    rest.query(name="all")
    rest.query(name="other")
    before = rest.everything()
    assert detail in rest.read(rest.client.put("/queries/all", json=body), status)["detail"]
    assert rest.everything() == before


def test_what_is_on_its_way_out_is_neither_replaced_paused_nor_resumed(rest: Rest) -> None:
    old = rest.query(name="all")
    replacement = rest.read(rest.client.put("/queries/all", json={"sql": CHEAP}), 201)
    path = f"/queries/{old['id']}"
    for state in ("DRAINING", "RETIRED"):
        refused = rest.read(rest.client.put(path, json={"sql": CHEAP}), 409)["detail"]
        assert f"query {old['id']}: it is {state}. Replace {replacement['id']}, which replaced it." in refused
        for verb in ("pause", "resume"):
            assert f"is {state}. Create a new one" in rest.post(f"{path}/{verb}", None, 409)["detail"]
        step(rest)
        step(rest)
    for verb in ("pause", "resume"):
        assert "'q-99'" in rest.post(f"/queries/q-99/{verb}", None, 404)["detail"]
    assert "'q-99'" in rest.read(rest.client.put("/queries/q-99", json={"sql": CHEAP}), 404)["detail"]


def test_a_query_pauses_and_goes_on_with_its_rows_cursor_and_name(rest: Rest) -> None:
    query = rest.query(name="all")
    path = f"/queries/{query['id']}"
    rest.select([tuple_at(1, user_id=1), tuple_at(2, user_id=2)], [query["slot"]])
    first = rest.get(f"{path}/results?limit=1")
    for _ in range(2):  # repeating it is harmless
        paused = rest.post("/queries/all/pause", None, 202)
        assert (paused["state"], paused["slot"]) == ("PAUSED", query["slot"])
    assert [listed["id"] for listed in rest.get("/queries?state=PAUSED")["queries"]] == [query["id"]]
    assert 'braid_queries{state="PAUSED"} 1.0' in rest.client.get("/metrics").text
    settle(rest, query["id"])
    assert rest.post("/queries", {"sql": ALL, "name": "all"}, 409)["status"] == 409, "it keeps its name"
    assert (
        f"'purchases': query {query['id']} uses it. Drop it first, without draining (braid drop {query['id']}"
        " --no-drain, ?drain=false), or both together (braid drop --stream purchases --cascade, ?cascade=true, DROP"
        " STREAM … CASCADE)."
    ) in rest.read(rest.client.delete("/streams/purchases"), 409)["detail"]
    other_query = rest.query()
    assert other_query["slot"] == query["slot"], "it holds no slot"
    rest.select([tuple_at(3, user_id=3)], [other_query["slot"]])
    for _ in range(2):
        assert rest.post(f"{path}/resume", None, 202)["state"] == "PENDING"
    step(rest, clock=3)
    resumed = rest.get(path)
    assert (resumed["state"], resumed["slot"], resumed["active_from"]) == (
        "RUNNING",
        1,
        {"purchases": "1970-01-01T00:00:03.000000Z"},
    )
    assert resumed["deployments"] == [
        {name: query[name] for name in ("slot", "epoch", "active_from")} | {"active_to": paused["active_to"]}
    ]
    assert resumed["epoch"] > query["epoch"]
    assert resumed["deployment_latency_seconds"] < 10
    rest.select([tuple_at(4, user_id=4)], [resumed["slot"]])
    rows = rest.get(f"{path}/results", params={"after": first["cursor"]})["rows"]
    assert [row["user_id"] for row in [*first["rows"], *rows]] == [1, 2, 4]
    assert [row["user_id"] for row in rest.get(f"{path}/results")["rows"]] == [1, 2, 4]
    assert [row["user_id"] for row in rest.get(f"/queries/{other_query['id']}/results")["rows"]] == [3]
    assert rest.get(path)["rows_out"] == 3


def test_a_stream_of_rows_goes_on_over_a_pause(rest: Rest) -> None:
    query = rest.query()
    path = f"/queries/{query['id']}"
    stream_lines: list[str] = []

    def follow() -> None:
        with rest.client.stream("GET", f"{path}/results/stream") as response:
            stream_lines.extend(line for line in response.iter_lines() if line.startswith(("data", "event")))

    following = threading.Thread(target=follow)
    rest.select([tuple_at(1, user_id=1)], [query["slot"]])
    following.start()
    rest.post(f"{path}/pause", None, 202)
    settle(rest, query["id"])
    rest.post(f"{path}/resume", None, 202)
    step(rest)
    rest.select([tuple_at(2, user_id=2)], [rest.get(path)["slot"]])
    rest.retire(query["id"])
    following.join(20)
    assert not following.is_alive()
    assert [json.loads(line[5:]).get("user_id") if line.startswith("data") else line for line in stream_lines] == [
        1,
        2,
        "event: end",
        None,
    ]


def test_a_paused_query_survives_a_restart_and_is_deleted(tmp_path: Path) -> None:
    with open_rest(tmp_path) as rest:
        rest.stream()
        query = rest.query(SUMS, name="sums")
        path = f"/queries/{query['id']}"
        rest.post(f"{path}/pause", None, 202)
        settle(rest, query["id"])
        before = rest.get(path)
    with open_rest(tmp_path) as rest:
        assert rest.get(path) == before
        assert rest.post(f"{path}/resume?wait=0.2", None, 202)["state"] == "PENDING"
        step(rest)
        assert rest.get(path)["state"] == "RUNNING"
        rest.post(f"{path}/pause", None, 202)
        settle(rest, query["id"])
        assert rest.read(rest.client.delete(path), 202)["state"] == "RETIRED"
        assert len(rest.get(path)["deployments"]) == 1
        assert rest.get(f"{path}/results") == {**rest.get(f"{path}/results"), "rows": [], "end": True}
        rest.service.session.write_snapshot()
        assert rest.get(path)["state"] == "RETIRED"


def test_a_pause_with_a_key_has_its_effect_once(rest: Rest) -> None:
    query = rest.query()
    path, key = f"/queries/{query['id']}", {"Idempotency-Key": "pause-1"}
    first = rest.post(f"{path}/pause", None, 202, headers=key)
    settle(rest, query["id"])
    rest.post(f"{path}/resume", None, 202)
    step(rest)
    assert rest.post(f"{path}/pause", None, 202, headers=key) == first
    assert rest.get(path)["state"] == "RUNNING"


def test_sql_creates_or_replaces_by_name(rest: Rest) -> None:
    sql = "CREATE OR REPLACE QUERY revenue AS {}"
    first = rest.post("/sql", {"sql": sql.format(SUMS)}, 200)
    assert (first["name"], first["replaces"]) == ("revenue", None)
    second = rest.post("/sql", {"sql": sql.format(CHEAP)}, 200)
    assert (second["name"], second["replaces"]) == ("revenue", first["id"])
    step(rest)
    rest.retire(second["id"])
    assert rest.post("/sql", {"sql": sql.format(CHEAP)}, 200)["replaces"] is None, "that one is gone"
    assert "POST /sql" in rest.post("/queries", {"sql": sql.format(CHEAP)}, 422)["detail"]
    assert "for queries" in rest.post("/sql", {"sql": f"CREATE OR REPLACE {STREAM[7:]}"}, 422)["detail"]


def test_the_client_replaces_pauses_and_resumes(rest: Rest) -> None:
    query = rest.query(name="all", labels={"team": "a"})
    with Client(str(rest.client.base_url)) as braid:
        assert braid.pause_query("all", key="k")["state"] == "PAUSED"
        settle(rest, query["id"])
        assert braid.resume_query(query["id"], wait=0)["state"] == "PENDING"
        replacement = braid.replace_query("all", CHEAP, drain=False, wait=0, key="l", labels=None)
        assert (replacement["replaces"], replacement["name"], replacement["labels"]) == (query["id"], "all", {})
        with pytest.raises(Refused, match="which replaced it"):
            braid.replace_query(query["id"], CHEAP)


def test_the_command_line_replaces_pauses_and_resumes(rest: Rest) -> None:
    def braid(*arguments: str) -> str:
        result = CliRunner().invoke(cli, ["--url", str(rest.client.base_url), *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    query = rest.query(name="all")
    assert braid("pause", "all") == f"query {query['id']} is PAUSED\n"
    assert query["id"] in braid("queries", "--state", "PAUSED")
    settle(rest, query["id"])
    assert braid("resume", query["id"], "--wait", "0") == f"query {query['id']} is PENDING\n"
    replaced = f"it replaces {query['id']}, whose rows are there: braid results {query['id']}"
    assert braid("replace", "all", CHEAP, "--wait", "0") == f"query q-2 is PENDING; {replaced}\n"
    assert '"replaces":' in braid("replace", "q-2", CHEAP, "--no-drain", "--wait", "0", "--json")
