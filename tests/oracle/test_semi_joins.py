"""Subqueries in WHERE through the service: rows equal DuckDB's, with NULLs and windows that lack values."""

from __future__ import annotations

import random

import pytest

from tests.kit.client import Api
from tests.kit.duck import connected
from tests.oracle.answers import end, finished_rows, push, unique
from tests.oracle.relation_trees import SECOND, timestamp
from tests.oracle.test_relations import microseconds

pytestmark = pytest.mark.service

# conditions over a row `a` of stream s; {u} is the other stream, in DuckDB the rows of it in the same window
CONDITIONS = (
    "k IN (SELECT k FROM {u})",
    "k NOT IN (SELECT k FROM {u} WHERE v > 3)",
    "v NOT IN (SELECT v FROM {u} WHERE v < 0)",
    "v > (SELECT AVG(v) FROM {u})",
    "v = (SELECT MAX(v) FROM {u} WHERE k < 3) AND k < 4",
    "v IN (SELECT MAX(v) FROM {u} GROUP BY k)",
    "v > (SELECT COUNT(*) FROM {u} WHERE v > 17)",
    "k - 1 <> (SELECT COALESCE(MAX(v), 0) FROM {u} WHERE k = 3)",
    "k = (SELECT COUNT(DISTINCT v) FROM {u} WHERE v > 16)",
    "0 = (SELECT COUNT(*) FROM {u} WHERE v > 17)",
    "19 = (SELECT MAX(v) FROM {u})",
    "3 IN (SELECT v FROM {u})",
    "3 NOT IN (SELECT v FROM {u} WHERE k < 4)",
    "EXISTS (SELECT 1 FROM {u} b WHERE b.k = a.k AND b.v > 10)",
    "NOT EXISTS (SELECT 1 FROM {u} b WHERE b.k = a.k AND b.v = a.v)",
    "EXISTS (SELECT 1 FROM {u} WHERE v > 17)",
    "NOT EXISTS (SELECT 1 FROM {u} WHERE v > 17)",
    "k IN (SELECT k FROM {u}) AND v NOT IN (SELECT v FROM {u} WHERE k = 1)",
    "k IN (SELECT k FROM {u} WHERE v IN (SELECT MAX(v) FROM {u}))",
)


def test_subqueries_in_where_give_the_rows_that_duckdb_gives(api: Api) -> None:
    draw = random.Random(5)
    name = unique("semi")
    streams = {f"{name}_s": 300, f"{name}_u": 120}
    tuples: dict[str, list[tuple[int | None, int | None, int]]] = {}
    for stream, count in streams.items():
        api.create_stream(
            f"CREATE STREAM {stream} (k BIGINT, v BIGINT, ts TIMESTAMP LATENESS INTERVAL '2' SECOND)"
            " WITH (connector = 'push', max_future = 'none')"
        )
        now = 1_767_225_600 * SECOND
        tuples[stream] = []
        for _ in range(count):
            now += draw.randrange(60 * SECOND // count)
            key, value = (None if draw.random() < 0.05 else draw.randrange(20) for _ in range(2))
            tuples[stream].append((None if key is None else key % 6, value, now))
    first, second = streams
    window = "[RANGE 5 SECONDS]"
    texts = [f"SELECT k, v FROM {first} {window} AS a WHERE {c.format(u=second)}" for c in CONDITIONS]
    texts += [
        f"SELECT k, COUNT(*) AS v FROM {first} {window} AS a WHERE {c.format(u=second)} GROUP BY k" for c in CONDITIONS
    ]
    queries = [query["id"] for query in api.create_queries([{"sql": text} for text in texts])]
    for stream, rows in tuples.items():
        for at in range(0, len(rows), 100):
            push(api, stream, ({"k": k, "v": v, "ts": timestamp(t)} for k, v, t in rows[at : at + 100]))
    end(api, *streams)
    step = 5 * SECOND
    with connected() as duck:
        for table, stream in (("s", first), ("u", second)):
            duck.execute(f"CREATE TEMP TABLE {table} (k BIGINT, v BIGINT, e BIGINT)")
            values = [(k, v, t // step * step + step) for k, v, t in tuples[stream]]
            duck.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", values)
        expected = []
        for select, group in (("k, v", ""), ("k, COUNT(*)", "GROUP BY k, e")):
            for condition in CONDITIONS:
                # NULLs apart, DuckDB decides each window by itself
                where = condition.format(u="(SELECT k, v FROM u WHERE u.e = $1)")
                rows = []
                for (e,) in duck.execute("SELECT DISTINCT e FROM s").fetchall():
                    found = duck.execute(f"SELECT {select} FROM s a WHERE e = $1 AND {where} {group}", [e]).fetchall()
                    rows += [(k, v, e) for k, v in found]
                expected.append(rows)
    for query, text, rows in zip(queries, texts, expected, strict=True):
        came = [(row["k"], row["v"], microseconds(row["window_end"])) for row in finished_rows(api, query)]
        assert sorted(came, key=repr) == sorted(rows, key=repr), text
    assert sum(map(bool, expected)) >= len(expected) - 4, "most of them have rows"
