"""Inputs as people have them, through the service: names of any characters, paths, computed columns, epoch times."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.kit.client import Api, Json
from tests.kit.duck import connected
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.service

NDJSON = "application/x-ndjson"
BASE = 1_767_225_600_000  # 2026-01-01 in milliseconds
SECONDS = 120.0


def rows_of(api: Api, query: str, count: int) -> list[dict[str, Json]]:
    """Return so many rows of a query, once they are there, without what the service adds."""
    rows: list[dict[str, Json]] = []

    def are_there() -> bool:
        rows[:] = api.page(query)["rows"]
        return len(rows) >= count

    wait_until(are_there, SECONDS, lambda: f"query {query} has {count} rows, it has {rows}")
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]


def test_nested_input_with_odd_names_gives_the_rows_that_duckdb_gives(api: Api, tmp_path: Path) -> None:
    stream, table = f"shop v1.{uuid.uuid4().hex[:8]}", f"pack names {uuid.uuid4().hex[:8]}"
    api.create_stream(
        f'CREATE STREAM "{stream}" ("user-id" BIGINT NOT NULL FROM \'$.user.id\', "count(*)" INT FROM \'$.pack\','
        ' "unit price" DECIMAL(8,2), "select" INT FROM \'quantity\', "a.b" VARCHAR, ms BIGINT,'
        ' "total.price" AS "unit price" * "select", ts AS TO_TIMESTAMP(ms / 1000.0) LATENESS INTERVAL \'0\' SECOND)'
        " WITH (connector = 'push')"
    )
    path = tmp_path / "packs.csv"
    path.write_text('"Pack No.",name\n1,"one, first"\n2,two\n')
    api.create_table(
        f'CREATE TABLE "{table}" ("count(*)" INT FROM \'Pack No.\', name VARCHAR NOT NULL)'
        f" WITH (connector = 'file', path = '{path}')"
    )
    columns = '"count(*)" AS pack, SUM("total.price") AS "total, all", COUNT(*) AS n, MAX("a.b") AS "max(a.b)"'
    texts = [
        f'SELECT "user-id", "total.price", "a.b", ts FROM "{stream}" WHERE "count(*)" > 1',
        f'SELECT {columns} FROM "{stream}" [RANGE 10 SECONDS] GROUP BY "count(*)"',
        f'SELECT k.name AS "the name", s."a.b" FROM "{stream}" s JOIN "{table}" k USING ("count(*)")',
        f'SELECT x."user-id", x."a.b", y."total.price" FROM "{stream}" [RANGE 10 SECONDS] x'
        f' JOIN "{stream}" [RANGE 10 SECONDS] y ON x."user-id" = y."user-id" AND x."count(*)" = y."select"',
    ]
    queries = [query["id"] for query in api.create_queries([{"sql": text} for text in texts])]
    tuples: list[dict[str, Any]] = [
        {
            "user": {"id": n % 3 if n % 10 else None},
            "pack": float(n % 4),
            "unit price": n / 4,
            "quantity": n % 5,
            "a.b": f"text {n % 7}" if n % 6 else None,
            "ms": BASE + 250 * n,
        }
        for n in range(100)
    ]
    end = {"user": {"id": -1}, "pack": 77, "unit price": 0, "quantity": 78, "a.b": None, "ms": BASE + 60_000}
    answer = api.push(stream, NDJSON, b"\n".join(map(orjson.dumps, tuples)))
    assert (answer["accepted"], answer["rejected"]) == (90, 10)
    assert "column 'user-id' is NOT NULL" in answer["errors"][0]["detail"]
    late = {**end, "ms": BASE}
    api.push(stream, NDJSON, orjson.dumps(end))
    with connected() as duck:
        duck.execute(
            "CREATE TEMP TABLE s AS SELECT *, price * quantity AS total FROM (SELECT"
            " unnest($1) AS user_id, unnest($2) AS pack, unnest($3)::DECIMAL(8, 2) AS price, unnest($4) AS quantity,"
            " unnest($5) AS text, unnest($6) AS ms)",
            [
                [t[name] if name != "id" else t["user"]["id"] for t in tuples if t["user"]["id"] is not None]
                for name in ("id", "pack", "unit price", "quantity", "a.b", "ms")
            ],
        )
        duck.execute("CREATE TEMP TABLE k AS SELECT * FROM (VALUES (1, 'one, first'), (2, 'two')) AS v(pack, name)")
        expected = [
            duck.execute(text).fetchall()
            for text in (
                "SELECT user_id, total, text, ms FROM s WHERE pack > 1",
                "SELECT ms // 10000 * 10000 AS w, pack, SUM(total), COUNT(*), MAX(text) FROM s GROUP BY ALL",
                "SELECT name, text FROM s JOIN k USING (pack)",
                "SELECT x.ms // 10000 * 10000, x.user_id, x.text, y.total FROM s x JOIN s y ON x.user_id = y.user_id"
                " AND x.pack = y.quantity AND x.ms // 10000 = y.ms // 10000",
            )
        ]

    def time(ms: int) -> str:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")

    selected, grouped, looked_up, joined = (
        rows_of(api, query, len(rows) + extra)
        for query, rows, extra in zip(queries, expected, (1, 0, 0, 0), strict=True)
    )

    def as_sets(rows: list[dict[str, Json]], names: list[str]) -> list[str]:
        return sorted(repr([_plain(row[name]) for name in names]) for row in rows if row.get("user-id") != -1)

    assert as_sets(selected, ["user-id", "total.price", "a.b", "ts"]) == sorted(
        repr([_plain(v) for v in (*row[:3], time(row[3]))]) for row in expected[0]
    )
    assert as_sets(grouped, ["window_start", "pack", "total, all", "n", "max(a.b)"]) == sorted(
        repr([_plain(v) for v in (time(row[0]), *row[1:])]) for row in expected[1]
    )
    assert as_sets(looked_up, ["the name", "a.b"]) == sorted(repr([_plain(v) for v in row]) for row in expected[2])
    assert as_sets(joined, ["window_start", "user-id", "a.b", "total.price"]) == sorted(
        repr([_plain(v) for v in (time(row[0]), *row[1:])]) for row in expected[3]
    )
    api.push(stream, NDJSON, orjson.dumps(late))
    wait_until(lambda: api.stream(stream)["late"] == 1, SECONDS, "a computed event time may be late")
    columns_told = {column["name"]: column for column in api.stream(stream)["columns"]}
    assert columns_told["user-id"] == {
        "name": "user-id", "type": "BIGINT", "not_null": True, "source": "$.user.id", "event_time": False,
    }  # fmt: skip
    assert columns_told["ts"]["event_time"]
    assert columns_told["ts"]["computed"] == "TO_TIMESTAMP(ms / 1000.0)"


def _plain(value: Json) -> Json:
    return float(value) if isinstance(value, (Decimal, int)) and not isinstance(value, bool) else value


def test_times_of_arrival_close_windows(api: Api) -> None:
    stream = f"clicks_{uuid.uuid4().hex[:8]}"
    api.create_stream(
        f"CREATE STREAM {stream} (k INT, at TIMESTAMP ARRIVAL LATENESS INTERVAL '0' SECOND) WITH (connector = 'push')"
    )
    (query,) = api.create_queries([{"sql": f"SELECT COUNT(*) AS n, SUM(k) AS s FROM {stream} [RANGE 1 SECONDS]"}])
    pushed: list[int] = []

    def has_closed() -> bool:
        pushed.append(len(pushed))
        api.push(stream, NDJSON, orjson.dumps({"k": pushed[-1]}))
        return bool(api.page(query["id"])["rows"])

    wait_until(has_closed, SECONDS, "a window closes as later tuples come")
    rows = api.page(query["id"])["rows"]
    counted = sum(row["n"] for row in rows)
    assert sum(row["s"] for row in rows) == sum(pushed[:counted])
    told = api.stream(stream)
    assert (told["late"], told["malformed"]) == (0, 0)
