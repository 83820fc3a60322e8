"""Records, arrays and maps of Avro as columns whose values have parts."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import orjson

from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import CreateStream
from braid.sources.formats.avro_messages import check_columns, decode_avro_messages
from braid.sources.formats.avro_schema import read_schema

ITEM: dict[str, Any] = {
    "type": "record",
    "name": "item",
    "fields": [
        {"name": "sku", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "raw", "type": "bytes"},
    ],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "first", "type": ["null", ITEM]},
        {"name": "items", "type": {"type": "array", "items": "item"}},
        {"name": "by_name", "type": {"type": "map", "values": ["null", "item"]}},
        {"name": "either", "type": ["null", "long", {"type": "array", "items": "long"}]},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
KIND = "STRUCT<sku VARCHAR, at TIMESTAMP, day DATE, price DECIMAL(6,2), raw VARCHAR>"
STREAM = (
    f"CREATE STREAM s (first {KIND}, items ARRAY<STRUCT<at TIMESTAMP>>, names MAP<VARCHAR, {KIND}> FROM 'by_name',"
    " either JSON, plain JSON FROM 'items', time TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push')"
)
NOON = datetime(2026, 1, 1, 12)
NOON_MS = 1_767_268_800_000


def encoded(row: dict[str, Any]) -> bytes:
    sink = BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(json.loads(json.dumps(SCHEMA))), row)
    return sink.getvalue()


def test_records_are_structs_with_times_and_decimals_in_them() -> None:
    statement = parse_statement(STREAM)
    assert isinstance(statement, CreateStream)
    writer = read_schema(json.dumps(SCHEMA))
    check_columns(statement.schema, writer)
    item = {"sku": "a", "at": NOON_MS, "day": date(2026, 1, 1), "price": Decimal("1.50"), "raw": b"\xff"}
    rows: list[dict[str, Any]] = [
        {"first": item, "items": [item], "by_name": {"k": item, "l": None}, "either": [1, 2], "time": NOON_MS * 1000},
        {"first": None, "items": [], "by_name": {}, "either": 7, "time": NOON_MS * 1000},
    ]
    decoded = decode_avro_messages([encoded(row) for row in rows], statement.schema, writer)
    assert not decoded.malformed
    decoded.tuples.validate(full=True)
    expected = {"sku": "a", "at": NOON, "day": date(2026, 1, 1), "price": Decimal("1.50"), "raw": "/w=="}
    first, second = decoded.tuples.to_pylist()
    (plain,) = orjson.loads(first.pop("plain"))
    assert (plain["sku"], plain["at"], plain["price"], plain["raw"]) == ("a", NOON_MS, 1.5, "/w==")
    assert first == {
        "first": expected,
        "items": [{"at": NOON}],
        "names": [("k", expected), ("l", None)],
        "either": "[1,2]",
        "time": NOON,
    }
    assert {name: second[name] for name in ("first", "items", "names", "either")} == {
        "first": None,
        "items": [],
        "names": [],
        "either": "7",
    }
    assert orjson.loads(second["plain"]) == []
