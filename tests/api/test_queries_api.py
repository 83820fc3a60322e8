"""Queries over REST: register one and many, wait, validate, list, retire, plans, idempotency."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from braid.operators.report import draw_sample
from tests.api.rest import ALL, STREAM, SUMS, Rest, open_rest
from tests.kit.waiting import wait_until
from tests.router.batches import SECOND


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A service with the test stream."""
    with open_rest(tmp_path) as running:
        running.stream()
        yield running


def test_a_query_is_accepted_runs_and_retires(rest: Rest) -> None:
    response = rest.client.post("/queries", json={"sql": ALL, "name": "all", "labels": {"team": "a"}})
    query = rest.read(response, 201)
    assert response.headers["location"] == f"/queries/{query['id']}"
    assert (query["state"], query["name"], query["sql"], query["labels"]) == (
        "PENDING",
        "all",
        ALL,
        {"team": "a"},
    )
    assert query["active_from"] == query["active_to"] == {"purchases": None}
    stream = rest.service.session.streams.definition("purchases").id
    wait_until(lambda: rest.get(f"/queries/{query['id']}")["epoch"], 10, "the query has an epoch")
    rest.commit(clocks_at_start={stream: 5 * SECOND})
    running = rest.get(f"/queries/{query['id']}")
    assert (running["state"], running["slot"]) == ("RUNNING", 0)
    assert running["active_from"] == {"purchases": "1970-01-01T00:00:05.000000Z"}
    assert running["deployment_latency_seconds"] is not None
    for _ in range(2):  # repeating it is harmless
        response = rest.client.delete(f"/queries/{query['id']}")
        assert rest.read(response, 202)["state"] == "DRAINING"
    rest.retire(query["id"])
    assert rest.read(rest.client.delete(f"/queries/{query['id']}"), 202)["state"] == "RETIRED"


def test_many_queries_are_accepted_together_or_not_at_all(rest: Rest) -> None:
    queries = rest.post("/queries", [{"sql": ALL}, {"sql": SUMS, "name": "sums"}])
    assert [query["name"] for query in queries] == [None, "sums"]
    assert [query["id"] for query in rest.get("/queries")["queries"]] == [query["id"] for query in queries]
    before = rest.get("/queries")
    problem = rest.post("/queries", [{"sql": ALL}, {"sql": "SELECT nothing FROM purchases"}], 422)
    assert "Query 2 of 2" in problem["detail"]
    assert "user_id" in problem["detail"], "the detail names the columns there are"
    assert problem["position"]["line"] == 1
    assert [q["id"] for q in rest.get("/queries")["queries"]] == [q["id"] for q in before["queries"]]


def test_waiting_for_a_query_answers_when_it_runs(rest: Rest) -> None:
    answers: list[httpx.Response] = []
    waiting = threading.Thread(
        target=lambda: answers.append(rest.client.post("/queries?wait=20", json=[{"sql": ALL}, {"sql": SUMS}]))
    )
    waiting.start()
    session = rest.service.session
    wait_until(lambda: session.epoch >= 2 and len(session.lookup.page()["queries"]) == 2, 10, "queries came")
    wait_until(lambda: all(q["epoch"] for q in session.lookup.page()["queries"]), 10, "they have epochs")
    assert waiting.is_alive(), "it must not answer before they run"
    rest.commit()
    waiting.join(10)
    assert not waiting.is_alive()
    assert [query["state"] for query in rest.read(answers[0], 201)] == ["RUNNING", "RUNNING"]


def test_waiting_ends_when_the_time_is_up(rest: Rest) -> None:
    response = rest.client.post("/queries?wait=0.2", json={"sql": ALL})
    assert rest.read(response, 201)["state"] == "PENDING"
    assert response.elapsed.total_seconds() >= 0.2


def test_a_plan_tells_in_sql_what_divides_rows_and_what_their_columns_are(rest: Rest) -> None:
    kind = "CASE WHEN pack > 3 THEN 'dear' ELSE 'cheap' END"
    sql = (
        f"SELECT {kind} AS kind, UPPER(note) AS shout, SUM(user_id) AS total, COUNT(*) + 1 AS more, AVG(price) AS mean"
        f" FROM purchases [RANGE 8 SECONDS] GROUP BY {kind}, note"
    )
    plan = rest.get(f"/queries/{rest.query(sql)['id']}/plan")
    assert plan["partitioned_by"] == [kind, "note"]
    assert f"partitioned by {kind}, note share" in plan["why"]
    assert {column["name"]: column["role"] for column in plan["columns"]} == {
        "window_start": "window_start",
        "window_end": "window_end",
        "kind": "group",
        "shout": "group",
        "total": "sum",
        "more": "aggregate",
        "mean": "aggregate",
        "_partial": None,
    }
    assert rest.post("/queries/validate", {"sql": sql}, 200)["columns"] == plan["columns"]
    rows = rest.get(f"/queries/{rest.query(ALL)['id']}/plan")["columns"]
    assert {column["role"] for column in rows} == {None}


def test_validate_changes_nothing_and_tells_with_whom_a_query_shares(rest: Rest) -> None:
    query = rest.query(SUMS, name="sums")
    before = rest.everything()
    answer = rest.post("/queries/validate", {"sql": SUMS}, 200)
    assert answer["shares_with"] == {"count": 1, "ids": [query["id"]]}
    assert [column["name"] for column in answer["columns"]][-1] == "_partial"
    assert rest.post("/queries/validate", {"sql": SUMS, "name": "sums"}, 409)["status"] == 409
    assert rest.post("/queries/validate", [{"sql": SUMS}, {"sql": ALL}], 200)[0] == answer
    for array in ([{"sql": SUMS}, {"sql": "SELECT 1 +"}], [{"sql": SUMS, "name": "new"}] * 2, []):
        status = rest.client.post("/queries", json=array).status_code
        refused = rest.post("/queries", array, status)
        assert rest.post("/queries/validate", array, status) == refused
    assert rest.post("/queries/validate", {"sql": "SELECT 1 +"}, 400)["position"]["column"] >= 8
    assert rest.everything() == before


def test_queries_are_listed_in_pages_and_filtered(rest: Rest) -> None:
    bodies = [{"sql": ALL, "name": f"Number {i}", "labels": {"n": str(i % 2), "all": "x"}} for i in range(5)]
    ids = [query["id"] for query in rest.post("/queries", bodies)]
    listed, cursor = [], None
    while True:
        page = rest.get("/queries", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))
        assert len(page["queries"]) <= 2
        listed += [query["id"] for query in page["queries"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert listed == ids
    assert [q["id"] for q in rest.get("/queries?label=n=1")["queries"]] == ids[1::2]
    assert [q["id"] for q in rest.get("/queries?label=all")["queries"]] == ids
    assert [q["id"] for q in rest.get("/queries?name=number 3")["queries"]] == ids[3:4]
    assert rest.get("/queries?state=RUNNING")["queries"] == []
    assert len(rest.get("/queries?state=PENDING")["queries"]) == 5


def test_a_repeated_post_answers_its_first_outcome_also_after_a_restart(tmp_path: Path) -> None:
    body = [{"sql": ALL}, {"sql": SUMS}]
    key = {"Idempotency-Key": "create-1"}
    with open_rest(tmp_path) as rest:
        stream = {"Idempotency-Key": "stream-1"}
        declared = rest.client.post("/streams", json={"sql": STREAM}, headers=stream)
        repeated = rest.client.post("/streams", json={"sql": STREAM}, headers=stream)
        assert (repeated.status_code, repeated.content) == (201, declared.content)
        assert repeated.headers["location"] == declared.headers["location"]
        first = rest.client.post("/queries", json=body, headers=key)
        assert rest.client.post("/queries", json=body, headers=key).content == first.content
        refused = {"Idempotency-Key": "bad"}
        problem = rest.client.post("/queries", json={"sql": "SELECT x FROM purchases"}, headers=refused)
        assert rest.read(problem, 422)["position"] == {"line": 1, "column": 8}
        repeated = rest.client.post("/queries", json={"sql": "SELECT x FROM purchases"}, headers=refused)
        assert (repeated.status_code, repeated.content) == (422, problem.content)
        assert rest.read(rest.client.post("/queries", json={"sql": ALL}, headers=key), 422)["status"] == 422
        sql = {"Idempotency-Key": "sql-1"}
        third = rest.client.post("/sql", json={"sql": ALL}, headers=sql)
        assert rest.client.post("/sql", json={"sql": ALL}, headers=sql).content == third.content
    with open_rest(tmp_path) as rest:
        assert rest.client.post("/queries", json=body, headers=key).content == first.content
        assert len(rest.get("/queries")["queries"]) == 3
        waited = rest.client.post("/queries?wait=0.1", json=body, headers=key)
        assert [q["id"] for q in rest.read(waited, 201)] == [q["id"] for q in rest.read(first, 201)]


def test_plans_are_graphs_in_json_and_dot(rest: Rest) -> None:
    query = rest.query(SUMS)
    plan = rest.get("/plan")
    kinds = {node["kind"] for node in plan["nodes"]}
    assert "stream" in kinds
    names = {node["id"] for node in plan["nodes"]}
    assert all(edge["source"] in names and edge["target"] in names for edge in plan["edges"])
    query_plan = rest.get(f"/queries/{query['id']}/plan")
    assert query_plan["operator"] == query["operator"]
    for path in ("/plan", f"/queries/{query['id']}/plan"):
        response = rest.client.get(f"{path}?format=dot")
        assert response.status_code == 200
        assert response.text.startswith("digraph")


def test_the_plan_of_a_join_tells_its_order_and_costs(rest: Rest) -> None:
    rest.stream(STREAM.replace("purchases", "ads"))
    join = "SELECT p.price FROM ads [RANGE 4 SECONDS] AS a JOIN purchases [RANGE 4 SECONDS] AS p USING (user_id)"
    query = rest.query(join)
    path = f"/queries/{query['id']}/plan"
    unmeasured = rest.get(path)["join_order"]
    assert unmeasured["order"] == ["a", "p"]
    assert unmeasured["cost"] is unmeasured["max_shared"]["cost"] is None
    assert [join_input["tuples"] for join_input in unmeasured["inputs"]] == [None, None]
    assert "Costs are not known" in unmeasured["why"]
    other_query = rest.query(join.replace("p.price", "a.price"))
    streams = {
        rest.service.session.streams.definition(name).id: rows for name, rows in (("ads", 600), ("purchases", 50))
    }
    samples = {
        stream: [draw_sample(pa.RecordBatch.from_pydict({"user_id": range(rows)}), ["user_id"], 1)]
        for stream, rows in streams.items()
    }
    work = {"busy_us": {query["operator"]: 20_000}, "keys": {}}
    now_us = time.time_ns() // 1000
    for second in range(1, 4):
        rest.commit(
            streams={s: {"tuples": rows, "late": 0, "malformed": 0, "bytes": 0} for s, rows in streams.items()},
            report={"sources": work, "partitions": work, "samples": samples},
            committed_us=now_us + second * SECOND,
        )
    measured = rest.get(path)["join_order"]
    assert measured["order"] == ["p", "a"], "fewer purchases than ads come, whatever the order of FROM"
    assert measured["combinations"] == "counted"
    assert measured["partition_cores"] > 0
    (step,) = measured["steps"]
    assert step["shared_by"] == 2
    assert step["shared_cost"] == pytest.approx(step["cost"] / 2, rel=0.01)
    assert measured["cost"] == step["cost"] > sum(join_input["tuples"] for join_input in measured["inputs"]) > 1000
    assert measured["max_shared"] == {"order": ["p", "a"], "cost": step["shared_cost"]}
    validated = rest.post("/queries/validate", {"sql": join}, 200)["join_order"]
    assert validated["steps"][0]["shared_by"] == 3
    assert rest.post("/sql", {"sql": f"EXPLAIN {join}"}, 200)["join_order"] == validated
    assert rest.get(f"/queries/{other_query['id']}/plan")["join_order"] == measured
    assert rest.get(f"/queries/{rest.query(SUMS)['id']}/plan")["join_order"] is None


def test_changelogs_tell_what_happened(rest: Rest) -> None:
    query = rest.query()
    changelogs = rest.get("/changelogs")["changelogs"]
    assert [changelog["epoch"] for changelog in changelogs] == list(range(1, len(changelogs) + 1))
    assert changelogs[-1]["created"][0]["id"] == query["id"]
    assert changelogs[-1]["changelog_set"] == "0"
    assert rest.get(f"/changelogs?after={changelogs[-1]['epoch']}") == {"changelogs": []}


def test_sql_takes_every_statement(rest: Rest) -> None:
    assert [s["name"] for s in rest.post("/sql", {"sql": "SHOW STREAMS"}, 200)["streams"]] == ["purchases"]
    query = rest.post("/sql", {"sql": f"CREATE QUERY everything AS {ALL}"}, 200)
    assert query["name"] == "everything"
    assert "nodes" in rest.post("/sql", {"sql": f"EXPLAIN {SUMS}"}, 200)
    rest.post("/sql", {"sql": "DROP QUERY everything"}, 200)
    assert rest.get(f"/queries/{query['id']}")["state"] in ("DRAINING", "RETIRED")
    assert rest.post("/sql", {"sql": "DROP STREAM nothing"}, 404)["status"] == 404


def test_tables_come_and_go(rest: Rest, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("tables") / "packs.csv"
    sql = f"CREATE TABLE packs (pack INT, name VARCHAR) WITH (connector = 'file', path = '{path}', format = 'csv')"
    refused = rest.post("/tables", {"sql": sql}, 422)
    assert "must exist where the service runs" in refused["detail"]
    assert rest.get("/tables") == {"tables": []}
    path.write_text("pack,name\n1,small\n")
    created = rest.post("/tables", {"sql": sql}, 201)
    assert created["columns"] == [{"name": "pack", "type": "INT"}, {"name": "name", "type": "VARCHAR"}]
    assert created["source"] == {"connector": "file", "format": "csv", "options": {"path": str(path)}}
    assert rest.get("/tables") == {"tables": [created]}
    assert rest.get("/tables/PACKS") == created
    assert rest.post("/tables", {"sql": sql}, 409)["detail"].endswith("Drop it first, or choose another name.")
    key = {"Idempotency-Key": "once"}
    refreshed = rest.read(rest.client.post("/tables/packs/refresh", headers=key), 202)
    assert refreshed == {**created, "refreshing": True}
    path.write_text("pack,name\none,small\n")
    assert rest.read(rest.client.post("/tables/packs/refresh", headers=key), 202) == refreshed
    assert "must be an INT, got 'one'" in rest.post("/tables/packs/refresh", None, 422)["detail"]
    path.unlink()
    assert "must exist" in rest.post("/sql", {"sql": "REFRESH TABLE packs"}, 422)["detail"]
    assert rest.client.delete("/tables/packs").status_code == 204
    assert rest.client.delete("/tables/packs").status_code == 404
    assert rest.post("/tables/packs/refresh", None, 404)["status"] == 404
    assert rest.client.get("/tables/packs").status_code == 404


def test_many_queries_retire_together_or_not_at_all(rest: Rest) -> None:
    ids = [query["id"] for query in rest.post("/queries", [{"sql": ALL}, {"sql": SUMS, "name": "sums"}, {"sql": ALL}])]
    rest.run(ids[-1])
    problem = rest.post("/queries/retire", {"ids": [ids[0], "q-99", "sums"]}, 404)
    assert "'q-99'" in problem["detail"]
    assert {query["state"] for query in rest.get("/queries")["queries"]} == {"RUNNING"}
    retired = rest.post("/queries/retire", {"ids": [ids[0], "sums", ids[0]], "drain": False}, 202)
    assert [query["id"] for query in retired] == [ids[0], ids[1], ids[0]]
    assert {query["state"] for query in retired} == {"RETIRED"}
    rest.wait_freed(ids[1])
    rest.commit()
    assert [query["state"] for query in rest.get("/queries")["queries"]] == ["RETIRED", "RETIRED", "RUNNING"]
    repeated = rest.post("/queries/retire", {"ids": ids}, 202)
    assert [query["state"] for query in repeated] == ["RETIRED", "RETIRED", "DRAINING"]


def test_retiring_many_with_a_key_answers_the_first_outcome_again(rest: Rest) -> None:
    query = rest.query()
    headers = {"Idempotency-Key": "k"}
    first = rest.post("/queries/retire", {"ids": [query["id"]], "drain": False}, 202, headers=headers)
    rest.wait_freed(query["id"])
    rest.commit()
    assert rest.get(f"/queries/{query['id']}")["state"] == "RETIRED"
    assert rest.post("/queries/retire", {"ids": [query["id"]], "drain": False}, 202, headers=headers) == first


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ([], 400, "The body must be an object"),
        ({"ids": ["q-1"], "now": True}, 400, "The body must be an object"),
        ({}, 400, '"ids" must be a list'),
        ({"ids": []}, 400, '"ids" must be a list'),
        ({"ids": ["q-1", 7]}, 400, '"ids" must be a list'),
        ({"ids": ["q-1"], "drain": "yes"}, 400, '"drain" must be true or false'),
        ({"ids": ["q-1"] * 30_000}, 413, "at most 20000 queries; got 30000"),
        ({"ids": ["nothing"]}, 404, "'nothing'"),
    ],
)
def test_what_cannot_be_retired_is_refused(rest: Rest, body: object, status: int, detail: str) -> None:
    assert detail in rest.post("/queries/retire", body, status)["detail"]


def test_clients_at_once_get_their_own_answers(rest: Rest) -> None:
    url = str(rest.client.base_url)

    def client(number: int) -> list[str]:
        names = []
        with httpx.Client(base_url=url, timeout=30) as http:
            for turn in range(5):
                query = http.post("/queries", json={"sql": ALL, "name": f"n-{number}-{turn}"}).json()
                assert http.get(f"/queries/{query['id']}").json()["name"] == query["name"]
                deletion = http.delete(f"/queries/{query['name']}")
                assert (deletion.status_code, deletion.json()["id"]) == (202, query["id"])
                names.append(query["name"])
        return names

    with ThreadPoolExecutor(8) as pool:
        all_names = [name for names in pool.map(client, range(8)) for name in names]
    listed = rest.get("/queries")["queries"]
    assert sorted(query["name"] for query in listed) == sorted(all_names)
    assert {query["state"] for query in listed} <= {"RETIRED", "DRAINING"}


def test_what_cannot_reach_the_disk_is_refused_and_changes_nothing(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    query = rest.query()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("braid.session.log.journal._sync", full)
        for response in (
            rest.client.post("/queries", json={"sql": ALL}),
            rest.client.delete(f"/queries/{query['id']}"),
            rest.client.post("/queries/retire", json={"ids": [query["id"]]}),
        ):
            assert "No space left on device" in rest.read(response, 503)["detail"]
    assert [(q["id"], q["state"]) for q in rest.get("/queries")["queries"]] == [(query["id"], "RUNNING")]
    assert rest.read(rest.client.delete(f"/queries/{query['id']}"), 202)["state"] == "DRAINING"


def test_a_query_that_is_on_disk_only_is_answered_too(rest: Rest) -> None:
    query = rest.query()
    rest.retire(query["id"])
    before = rest.get(f"/queries/{query['id']}")
    rest.service.session.write_snapshot()
    assert rest.service.session.lookup.describe_in_memory(query["id"]) is None
    assert rest.get(f"/queries/{query['id']}") == before
    assert rest.read(rest.client.delete(f"/queries/{query['id']}"), 202) == before
    assert rest.get("/queries?state=RETIRED")["queries"] == [before]
    assert rest.get(f"/queries/{query['id']}/results")["end"]
