"""Columns with parts through the service: members, elements, JSON and UNNEST give the rows that DuckDB gives."""

from __future__ import annotations

import io
import random
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from tests.kit.client import Api, Json
from tests.kit.duck import connected
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.service

NDJSON, ARROW = "application/x-ndjson", "application/vnd.apache.arrow.stream"
BASE = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = 120.0
COLUMNS = (
    "id BIGINT, customer STRUCT<id INT, name VARCHAR, address STRUCT<city VARCHAR, zip INT>>,"
    " items ARRAY<STRUCT<sku VARCHAR, qty INT, price DOUBLE>>, tags VARCHAR[], labels MAP<VARCHAR, INT>, extra JSON"
)
DUCK = (
    "STRUCT(id BIGINT, customer STRUCT(id INT, name VARCHAR, address STRUCT(city VARCHAR, zip INT)),"
    " items STRUCT(sku VARCHAR, qty INT, price DOUBLE)[], tags VARCHAR[], labels MAP(VARCHAR, INT), extra JSON,"
    " t TIMESTAMP)"
)
END_ID = -1


def orders(seed: int, count: int) -> list[dict[str, Any]]:
    """Return random orders, ten a second; what can be missing sometimes is."""
    draw = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if draw.random() < 0.15 else value

    def item() -> Any:
        return maybe({"sku": maybe(draw.choice("abcd")), "qty": draw.randrange(5), "price": draw.randrange(100) / 4})

    return [
        {
            "id": n,
            "customer": maybe(
                {"id": draw.randrange(4), "name": maybe("n" * draw.randrange(3)), "address": maybe(
                    {"city": maybe(draw.choice(["Oslo", "Rom"])), "zip": draw.randrange(3)})}
            ),
            "items": maybe([item() for _ in range(draw.randrange(4))]),
            "tags": maybe([maybe(draw.choice("xyz")) for _ in range(draw.randrange(3))]),
            "labels": maybe({key: maybe(draw.randrange(9)) for key in draw.sample("klm", draw.randrange(3))}),
            "extra": maybe({"a": draw.choice([1, "text", [1, 2], {"b": 1.5}, True]), "n": draw.randrange(5)}),
            "t": (BASE + timedelta(milliseconds=100 * n)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        for n in range(count)
    ]  # fmt: skip


END = {"id": END_ID, "t": "2026-01-02T00:00:00Z"}

SAME = (
    "SELECT id, customer.name AS name, o.customer.address.city AS city, items[1].sku AS first, items[-1].qty AS last,"
    " tags[2] AS tag, labels['k'] AS k, customer.address AS address, items, labels FROM {s} o WHERE customer.id > 0",
    "SELECT id, extra ->> 'n' AS n, extra -> 'a' AS a, CAST(extra ->> '$.a.b' AS DOUBLE) AS b FROM {s}"
    " WHERE extra ->> 'a' = 'text' OR CAST(extra ->> 'n' AS INT) > 2",
    "SELECT id, i.sku, i.qty * i.price AS total FROM {s}, UNNEST(items) AS i WHERE i.qty > 1",
)


def windowed(stream: str) -> list[tuple[str, str]]:
    """Return windows over parts, each with what DuckDB is asked instead."""
    per = "time_bucket(INTERVAL '5 seconds', t) AS w"
    window = f"{stream} [RANGE 5 SECONDS]"
    items = "(SELECT id, customer, t, unnest(items) AS i FROM s)"
    return [
        (
            f"SELECT customer.address.city AS city, COUNT(*) AS n, COUNT(items) AS c, SUM(CARDINALITY(tags)) AS tags"
            f" FROM {window} GROUP BY customer.address.city",
            f"SELECT {per}, customer.address.city AS city, COUNT(*), COUNT(items), SUM(len(tags)) FROM s GROUP BY ALL",
        ),
        (
            f"SELECT i.sku AS sku, SUM(i.qty) AS q, COUNT(DISTINCT customer.id) AS c, MAX(i.price) AS p"
            f" FROM {window}, UNNEST(items) AS i GROUP BY i.sku",
            f"SELECT {per}, i.sku, SUM(i.qty), COUNT(DISTINCT customer.id), MAX(i.price) FROM {items} GROUP BY ALL",
        ),
        (
            f"SELECT a AS sku, COUNT(*) AS n FROM {window} CROSS JOIN UNNEST(items) AS x (a, b, c) WHERE b < 3"
            " GROUP BY a",
            f"SELECT {per}, i.sku, COUNT(*) FROM {items} WHERE i.qty < 3 GROUP BY ALL",
        ),
        (
            f"SELECT tag, n, COUNT(*) AS c FROM {window} LEFT JOIN UNNEST(tags) WITH ORDINALITY AS x (tag, n) ON TRUE"
            " GROUP BY tag, n",
            f"SELECT {per}, tag, n, COUNT(*) FROM s LEFT JOIN (SELECT id, unnest(tags) AS tag,"
            " unnest(range(1, len(tags) + 1)) AS n FROM s) USING (id) GROUP BY ALL",
        ),
        (
            f"SELECT key, SUM(value) AS v FROM {window}, UNNEST(labels) AS l GROUP BY key",
            f"SELECT {per}, e.key, SUM(e.value) FROM (SELECT t, unnest(map_entries(labels)) AS e FROM s) GROUP BY ALL",
        ),
        (
            f"SELECT k.name AS name, SUM(i.qty) AS q FROM {window} o CROSS JOIN UNNEST(o.items) AS i"
            " JOIN {table} k ON i.sku = k.sku GROUP BY k.name",
            f"SELECT {per}, k.name, SUM(i.qty) FROM {items} JOIN k ON i.sku = k.sku GROUP BY ALL",
        ),
        (
            f"SELECT x.sku AS sku, COUNT(*) AS n, MAX(b.id) AS m FROM {window} a CROSS JOIN UNNEST(a.items) AS x"
            f" JOIN {window} b ON a.customer.id = b.customer.id AND b.id > a.id GROUP BY x.sku",
            "SELECT time_bucket(INTERVAL '5 seconds', a.t), a.i.sku, COUNT(*), MAX(b.id)"
            f" FROM {items} a JOIN s b ON a.customer.id = b.customer.id AND b.id > a.id"
            " AND time_bucket(INTERVAL '5 seconds', a.t) = time_bucket(INTERVAL '5 seconds', b.t) GROUP BY ALL",
        ),
        (
            f"SELECT a.id AS a, b.id AS b, a.customer, b.items FROM {window} a JOIN {window} b"
            " ON a.customer.address.zip = b.customer.address.zip AND a.id < b.id",
            "SELECT time_bucket(INTERVAL '5 seconds', a.t), a.id, b.id, a.customer, b.items FROM s a JOIN s b"
            " ON a.customer.address.zip = b.customer.address.zip AND a.id < b.id"
            " AND time_bucket(INTERVAL '5 seconds', a.t) = time_bucket(INTERVAL '5 seconds', b.t)",
        ),
    ]


def comparable(value: Any) -> str:
    """Return a value of a row as a text that is equal for equal values of either engine."""

    def plain(each: Any) -> Any:
        if isinstance(each, datetime):
            return each.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if isinstance(each, dict):
            return {name: plain(part) for name, part in sorted(each.items())}
        if isinstance(each, (list, tuple)):
            return [plain(part) for part in each]
        return float(each) if isinstance(each, int) and not isinstance(each, bool) else each

    return orjson.dumps(plain(value), default=float).decode()


def lines(rows: Sequence[Sequence[Any]]) -> list[str]:
    return sorted(comparable(list(row)) for row in rows)


def of_service(api: Api, query: str, count: int) -> list[list[Json]]:
    rows: list[dict[str, Json]] = []

    def are_there() -> bool:
        rows[:] = api.page(query, limit=10_000)["rows"]
        return len(rows) >= count

    wait_until(are_there, SECONDS, lambda: f"query {query} has {count} rows, it has {len(rows)}")
    return [[v for name, v in row.items() if name not in ("_partial", "window_end")] for row in rows]


@pytest.mark.parametrize("form", [NDJSON, ARROW])
def test_parts_of_values_give_the_rows_that_duckdb_gives(api: Api, tmp_path: Path, form: str) -> None:
    stream, table = f"orders_{uuid.uuid4().hex[:8]}", f"skus_{uuid.uuid4().hex[:8]}"
    api.create_stream(
        f"CREATE STREAM {stream} ({COLUMNS}, t TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push')"
    )
    (tmp_path / "skus.csv").write_text("sku,name\na,Apple\nb,Bread\nb,Bun\n")
    api.create_table(
        f"CREATE TABLE {table} (sku VARCHAR, name VARCHAR) WITH (connector = 'file', path = '{tmp_path}/skus.csv')"
    )
    windows = [(text.replace("{table}", table), expected) for text, expected in windowed(stream)]
    texts = [text.format(s=stream) for text in SAME] + [text for text, _ in windows]
    queries = [query["id"] for query in api.create_queries([{"sql": text} for text in texts])]
    tuples = orders(7, 400)
    for first in range(0, len(tuples), 150):
        answer = api.push(stream, form, body(tuples[first : first + 150], form))
        assert answer["accepted"] == len(tuples[first : first + 150]), answer
    api.push(stream, NDJSON, orjson.dumps(END))
    with connected() as duck:
        duck.execute(
            f"CREATE TEMP TABLE s AS SELECT unnest(CAST(j AS {DUCK})) FROM (SELECT unnest($1)::JSON AS j)",
            [[orjson.dumps(row).decode() for row in tuples]],
        )
        duck.execute("CREATE TEMP TABLE k AS FROM (VALUES ('a', 'Apple'), ('b', 'Bread'), ('b', 'Bun')) v(sku, name)")
        expected = [duck.execute(duckdbs(text)).fetchall() for text in SAME]
        expected += [duck.execute(text).fetchall() for _, text in windows]
    for query, text, rows in zip(queries, texts, expected, strict=True):
        came = of_service(api, query, len(rows))
        assert rows, "a query without rows shows nothing"
        assert lines(came) == lines(as_json(rows, text)), text


def duckdbs(text: str) -> str:
    """Return a selection as DuckDB writes it."""
    if "UNNEST" in text:
        return "SELECT id, i.sku, i.qty * i.price FROM (SELECT id, unnest(items) AS i FROM s) WHERE i.qty > 1"
    return text.format(s="s").replace(" o ", " AS o ").replace("'a' = 'text'", "'$.a' = 'text'")


def as_json(rows: Sequence[Sequence[Any]], text: str) -> list[list[Any]]:
    """Return rows of DuckDB with its JSON parsed, which it gives as texts."""
    is_json = "extra -> 'a'" in text
    return [[orjson.loads(v) if is_json and i == 2 and v is not None else v for i, v in enumerate(r)] for r in rows]


def body(tuples: Sequence[dict[str, Any]], form: str) -> bytes:
    if form == NDJSON:
        return b"\n".join(map(orjson.dumps, tuples))
    kind = pa.struct([("sku", pa.large_string()), ("qty", pa.int8()), ("price", pa.float32())])
    address = pa.struct([("zip", pa.int64()), ("city", pa.dictionary(pa.int8(), pa.string()))])
    customer = pa.struct([("NAME", pa.string_view()), ("address", address), ("id", pa.float64()), ("more", pa.int8())])
    plain = [{**t, "customer": t["customer"] and {"NAME": t["customer"]["name"], **t["customer"]}} for t in tuples]
    table = pa.table(
        {
            "id": [t["id"] for t in tuples],
            "customer": pa.array([t["customer"] for t in plain], customer),
            "items": pa.array([t["items"] for t in tuples], pa.large_list(kind)),
            "tags": pa.array([t["tags"] for t in tuples], pa.list_(pa.string_view())),
            "labels": pa.array(
                [None if t["labels"] is None else list(t["labels"].items()) for t in tuples],
                pa.map_(pa.string(), pa.int64()),
            ),
            "extra": [None if t["extra"] is None else orjson.dumps(t["extra"]).decode() for t in tuples],
            "t": [t["t"] for t in tuples],
        }
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_files_that_duckdb_wrote_give_the_rows_that_it_reads_from_them(api: Api, tmp_path: Path, form: str) -> None:
    stream = f"orders_{uuid.uuid4().hex[:8]}"
    tuples = orders(11, 600)
    with connected() as duck:
        duck.execute(
            f"CREATE TEMP TABLE s AS SELECT unnest(CAST(j AS {DUCK})) FROM (SELECT unnest($1)::JSON AS j)",
            [[orjson.dumps(row).decode() for row in tuples]],
        )
        for part in range(3):
            target = f"'{tmp_path}/{part}.{form}' (FORMAT {form})"
            duck.execute(f"COPY (FROM s WHERE id % 3 = {part} ORDER BY id) TO {target}")
        windows = [(text, expected) for text, expected in windowed(stream) if "{table}" not in text]
        expected = [duck.execute(text).fetchall() for _, text in windows]
    api.create_stream(
        f"CREATE STREAM {stream} ({COLUMNS}, t TIMESTAMP LATENESS INTERVAL '1' MINUTE)"
        f" WITH (connector = 'file', path = '{tmp_path}', format = '{form}', bounded = 'true')"
    )
    queries = [query["id"] for query in api.create_queries([{"sql": text} for text, _ in windows])]
    for query, (text, _), rows in zip(queries, windows, expected, strict=True):
        assert lines(of_service(api, query, len(rows))) == lines(rows), text
    assert api.stream(stream)["malformed"] == 0
