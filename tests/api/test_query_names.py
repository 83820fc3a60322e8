"""Queries by name, wherever REST takes an id."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.api.rest import ALL, SUMS, Rest, open_rest, tuple_at
from tests.api.test_access import ADMIN_KEY, team
from tests.kit.waiting import wait_until

NAME = "whales & krill, 100 %"
READS = ("", "/plan", "/results", "/dead-letters")


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A service with the test stream."""
    with open_rest(tmp_path) as running:
        running.stream()
        yield running


def at(name: str, end: str = "") -> str:
    return f"/queries/{quote(name, safe='')}{end}"


def test_every_call_takes_a_name_as_it_takes_an_id(rest: Rest) -> None:
    query = rest.query(name=NAME)
    rest.select([tuple_at(1, user_id=7)], [query["slot"]])
    for end in READS:
        assert rest.get(at(NAME, end)) == rest.get(at(query["id"], end))
    assert rest.get(at(NAME, "/results"))["rows"][0]["user_id"] == 7
    with rest.client.stream("GET", at(NAME, "/results/stream")) as events:
        assert any("user_id" in line for line in events.iter_lines())
    for change, state in (("/pause", "PAUSED"), ("/resume", "PENDING")):
        changed = rest.read(rest.client.post(at(NAME, change)), 202)
        assert (changed["id"], changed["state"]) == (query["id"], state)
    replacement = rest.read(rest.client.put(at(NAME), json={"sql": SUMS}), 201)
    assert (replacement["replaces"], replacement["name"]) == (query["id"], NAME)
    assert rest.read(rest.client.delete(at(NAME)), 202)["id"] == replacement["id"]


def test_a_name_is_that_of_the_newest_query_also_when_it_is_over(rest: Rest) -> None:
    ids = []
    for _ in range(2):
        query = rest.query(name=NAME)
        rest.retire(query["id"])
        ids.append(query["id"])
    assert rest.get(at(NAME))["id"] == ids[-1]
    rest.service.session.write_snapshot()  # it is in the archive now
    for end in READS:
        assert rest.get(at(NAME, end)) == rest.get(at(ids[-1], end))
    assert rest.read(rest.client.delete(at(NAME)), 202)["id"] == ids[-1]
    assert rest.query(name=NAME)["id"] == rest.get(at(NAME))["id"] != ids[-1]


def test_what_no_query_is_called_is_unknown(rest: Rest) -> None:
    rest.query(name=NAME)
    for path in (at(end, suffix) for end in ("Whales", "q-99") for suffix in (*READS, "/results/stream")):
        assert "id or name" in rest.get(path, 404)["detail"]
    assert rest.client.post(at("Whales", "/pause")).status_code == 404
    assert rest.client.delete(at("Whales")).status_code == 404


@pytest.mark.parametrize("name", ["q-1", "q-99", "q-0012345678901234567890"])
def test_a_name_that_looks_like_an_id_is_refused(rest: Rest, name: str) -> None:
    assert "not look like an id" in rest.post("/queries", {"sql": ALL, "name": name}, 422)["detail"]
    assert rest.post("/sql", {"sql": f'CREATE QUERY "{name}" AS {ALL}'}, 422)["status"] == 422
    query = rest.query()
    refused = rest.client.put(at(query["id"]), json={"sql": ALL, "name": name})
    assert "not look like an id" in rest.read(refused, 422)["detail"]


def test_a_reader_that_waits_stays_with_its_query_when_another_gets_the_name(rest: Rest) -> None:
    query = rest.query(name=NAME)
    rest.select([tuple_at(1, user_id=1)], [query["slot"]])
    cursor = rest.get(at(NAME, "/results"))["cursor"]
    calls_made: list[object] = []
    lookup = rest.service.session.lookup
    deployed = lookup.deployed
    lookup.deployed = lambda *arguments: calls_made.append(arguments) or deployed(*arguments)  # type: ignore[method-assign, func-returns-value]
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(rest.get, at(NAME, "/results"), params={"after": cursor, "wait": 20})
        wait_until(lambda: len(calls_made) >= 2, 10, "the read waits")
        rest.read(rest.client.put(at(NAME), json={"sql": ALL}, params={"drain": "false"}), 201)
        rest.wait_freed(query["id"])
        rest.commit()
        page = waiting.result(30)
    assert (page["rows"], page["end"]) == ([], True)
    refused = rest.get(at(NAME, "/results"), 400, params={"after": cursor})
    assert "A cursor must be taken unchanged" in refused["detail"], "it is a place among the rows of another query"


def test_names_are_of_a_tenant(tmp_path: Path) -> None:
    with open_rest(tmp_path, access="on", admin_key=ADMIN_KEY) as rest:
        rest.client.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
        rest.stream()
        shop, games = team(rest, "shop"), team(rest, "games")
        own = {asking: asking.query(name=NAME)["id"] for asking in (shop, games)}
        shop.query(name="till")
        wait_until(lambda: all(q["epoch"] for q in rest.get("/queries")["queries"]), 10, "they have epochs")
        rest.commit()
        for asking, query_id in own.items():
            for end in READS:
                assert asking.get(at(NAME, end)) == asking.get(at(query_id, end))
        for end in READS:
            assert games.send("GET", at("till", end)).status_code == 404
            assert rest.client.get(at("till", end)).status_code == 404, "an administrator names what is nobody's"
        assert rest.read(games.send("POST", at(NAME, "/pause")), 202)["id"] == own[games]
        assert shop.get(at(NAME))["state"] == "RUNNING"
