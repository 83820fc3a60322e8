"""Queries over queries: rows of chains, joins and unions of queries equal DuckDB's, also across crashes."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from tests.kit.client import Api, Json
from tests.kit.duck import connected
from tests.kit.fixtures import FreshService
from tests.oracle.answers import SECONDS, all_rows, end, push, unique
from tests.oracle.crashes import run_with_crashes
from tests.oracle.relation_trees import Relation, Trees, timestamp, tuples_of

pytestmark = pytest.mark.service

LATENESS = "INTERVAL '2' SECOND"


def run(api: Api, seed: int, relations: int, between: Any = None) -> None:
    """Create queries over queries, push tuples in several batches, end the stream, and compare all rows."""
    draw = random.Random(seed)
    stream = unique("rel")
    columns = f"id BIGINT, k BIGINT, v BIGINT, ts TIMESTAMP LATENESS {LATENESS}"
    api.create_stream(f"CREATE STREAM {stream} ({columns}) WITH (connector = 'push', max_future = 'none')")
    tuples = list(tuples_of(draw, 600))
    with connected() as duck:
        duck.execute("CREATE TEMP TABLE s (id BIGINT, k BIGINT, v BIGINT, t BIGINT)")
        duck.executemany("INSERT INTO s VALUES (?, ?, ?, ?)", [(number, *each) for number, each in enumerate(tuples)])
        trees = Trees(duck, stream, draw, 4)
        trees.grow(relations)
        bodies: list[dict[str, Json]] = [{"sql": each.sql, "name": each.query} for each in trees.created]
        queries = {
            each.query: api.create_queries([body])[0]["id"] for each, body in zip(trees.created, bodies, strict=True)
        }
        for first in range(0, len(tuples), 100):
            lines = (
                {"id": number, "k": k, "v": v, "ts": timestamp(t)}
                for number, (k, v, t) in enumerate(tuples[first : first + 100], first)
            )
            push(api, stream, lines)
            if between is not None:
                between()
            if first == 200:
                later = [(r, create_over(api, r, draw)) for r in draw.sample(trees.created, min(3, len(trees.created)))]
        end(api, stream)
        api.wait_state(queries[trees.created[0].query], "FINISHED", deadline_seconds=SECONDS)
        late = [letter["tuple"]["id"] for page in api.dead_letters(stream) for letter in page]
        trees.without(late)
        for relation in trees.created:
            check(api, queries[relation.query], relation, trees)
        for relation, query in later:
            check_later(api, query, relation, trees)


def check(api: Api, query: str, relation: Relation, trees: Trees) -> None:
    description = api.wait_state(query, "FINISHED", deadline_seconds=SECONDS)
    expected, rows = trees.rows(relation), all_rows(api, query)
    came = Counter[tuple[int, int, int | None]]()
    for row in rows:
        end = None if relation.period is None else microseconds(row["window_end"])
        came[row["k"], row["v"], end] += weight(row, relation)
    assert came == Counter(expected), f"{relation.sql}\n{description}"


def weight(row: dict[str, Json], relation: Relation) -> int:
    """Return 1 for a row that comes, -1 for one that is taken back."""
    assert ("_op" in row) == relation.changes
    return -1 if row.get("_op") == "retract" else 1


def create_over(api: Api, relation: Relation, draw: random.Random) -> str:
    """Create a query over one that runs: it sees the rows that are later than its `active_from` says, or all."""
    if draw.random() < 0.5:
        api.create_queries([{"sql": f"SELECT COUNT(*) AS n FROM {relation.query} [RANGE 1 MINUTE]"}])  # read before
    start = draw.choice(["now", "earliest", "earliest"])
    return str(api.create_queries([{"sql": f"SELECT k, v FROM {relation.query}", "start": start}])[0]["id"])


def check_later(api: Api, query: str, relation: Relation, trees: Trees) -> None:
    description = api.wait_state(query, "FINISHED", deadline_seconds=SECONDS)
    since = description["active_from"][relation.query]
    condition = "" if since is None else f"WHERE t > {microseconds(since)}"
    expected = trees.duck.execute(f"SELECT k, v FROM {relation.duck} {condition}").fetchall()
    came = Counter[tuple[int, int]]()
    for row in all_rows(api, query):
        came[row["k"], row["v"]] += weight(row, relation)
    assert came == Counter(expected), (relation.sql, description)


def microseconds(text: str) -> int:
    since = datetime.fromisoformat(text) - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_queries_over_queries_are_those_of_duckdb(api: Api, seed: int) -> None:
    run(api, seed, 12)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 14))
def test_rows_of_queries_over_queries_outlive_crashes(fresh_service: FreshService, seed: int) -> None:
    run_with_crashes(fresh_service, seed, lambda api, crash: run(api, seed, 12, crash))


def test_a_query_that_others_read_is_kept_until_they_go(api: Api) -> None:
    stream = unique("rel")
    api.create_stream(f"CREATE STREAM {stream} (k BIGINT, ts TIMESTAMP LATENESS {LATENESS}) WITH (connector = 'push')")
    inner, outer = f"{stream}_in", f"{stream}_out"
    first = f"SELECT k, COUNT(*) AS n FROM {stream} [RANGE 1 SECOND] GROUP BY k"
    api.create_queries([{"sql": first, "name": inner}])
    api.create_queries([{"sql": f"SELECT MAX(n) AS most FROM {inner} [RANGE 1 MINUTE]", "name": outer}])
    other = first.replace("AS n", "AS m")
    for method, path, body in (
        ("DELETE", f"/queries/{inner}", None),
        ("PUT", f"/queries/{inner}", {"sql": other}),
    ):
        refused = api.call(method, path, 409, json=body)
        assert outer in refused["detail"], refused
    assert api.query(inner)["state"] == "RUNNING"
    api.call("DELETE", f"/queries/{inner}", 202, params={"cascade": "true", "drain": "false"})
    api.wait_state(inner, "RETIRED")
    api.wait_state(outer, "RETIRED")


def test_equal_subqueries_run_once_and_go_with_the_last_that_reads_them(api: Api) -> None:
    stream = unique("rel")
    api.create_stream(f"CREATE STREAM {stream} (k BIGINT, ts TIMESTAMP LATENESS {LATENESS}) WITH (connector = 'push')")
    inner = f"(SELECT k, COUNT(*) AS n FROM {stream} [RANGE 1 SECOND] GROUP BY k)"
    same = f"(SELECT  K, count(*)  n FROM {stream.upper()} [RANGE 1000 MILLISECONDS] GROUP BY k)"
    one, other = api.create_queries(
        [{"sql": f"SELECT MAX(n) AS m FROM {inner} [RANGE 1 MINUTE]"}, {"sql": f"SELECT n FROM {same} WHERE n > 2"}]
    )
    third = api.create_queries([{"sql": f"SELECT k FROM {inner} WHERE n = 1"}])[0]
    subqueries = [query for query in api.queries() if query["subquery"] and stream in query["sql"].lower()]
    assert len(subqueries) == 1, subqueries
    for query in (one, other, third):
        assert api.query(subqueries[0]["id"])["state"] == "RUNNING"
        api.call("DELETE", f"/queries/{query['id']}", 202, params={"drain": "false"})
        api.wait_state(query["id"], "RETIRED")
    api.wait_state(subqueries[0]["id"], "RETIRED")
