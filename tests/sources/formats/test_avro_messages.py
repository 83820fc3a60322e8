"""Avro message by message: types, several schemas at once, and no bytes are fatal."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    TIMESTAMP,
    VARCHAR,
    ColumnType,
    Field,
    StreamSchema,
)
from braid.sources.formats.avro_messages import check_columns, decode_avro_messages, decode_framed_messages
from braid.sources.formats.avro_schema import AvroSchema, read_schema
from tests.kit.examples import examples

SCHEMA = StreamSchema(
    (
        Field("Id", BIGINT),
        Field("small", INT),
        Field("price", ColumnType("DECIMAL", 9, 2)),
        Field("x", DOUBLE),
        Field("ok", BOOLEAN),
        Field("s", VARCHAR),
        Field("day", DATE),
        Field("t", TIMESTAMP),
    ),
    "t",
    0,
)
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
WRITTEN: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": ["null", "int"]},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "x", "type": ["float", "null"]},
        {"name": "ok", "type": "boolean"},
        {"name": "s", "type": ["null", "string", "long"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
        {"name": "t", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    ],
}
OLDER: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "t", "type": MILLIS}, {"name": "small", "type": "string"}, {"name": "id", "type": "int"}],
}
TIME = datetime(2026, 1, 1, 12, 0, 0, 123456, UTC)


def encoded(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    sink = BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), row)
    return sink.getvalue()


def row(number: int, **values: Any) -> dict[str, Any]:
    return {
        "id": number,
        "small": number,
        "price": Decimal(number) / 4,
        "x": number / 8,
        "ok": number % 2 == 0,
        "s": f"é{number}",
        "day": date(2026, 1, 1 + number),
        "tags": {"a": ["b"]},
        "t": TIME,
        **values,
    }


def test_values_of_all_types() -> None:
    given_rows = [row(1), row(2, small=None, price=None, x=None, s=None)]
    decoded = decode_avro_messages(
        [encoded(WRITTEN, record) for record in given_rows], SCHEMA, read_schema(json.dumps(WRITTEN))
    )
    assert not decoded.malformed
    time = TIME.replace(tzinfo=None)
    values = {"ok": False, "day": date(2026, 1, 2), "t": time, "Id": 1, "small": 1, "x": 0.125, "s": "é1"}
    assert decoded.tuples.to_pylist() == [
        {**values, "price": Decimal("0.25")},
        {"Id": 2, "small": None, "price": None, "x": None, "ok": True, "s": None, "day": date(2026, 1, 3), "t": time},
    ]


def test_what_is_wrong_with_a_message_is_said() -> None:
    good = encoded(WRITTEN, row(1))
    values = [
        good,
        None,
        good + b"x",
        good[:-1],
        encoded(WRITTEN, row(2, s=7)),
        encoded(WRITTEN, row(3, t=None)),
        b"",
        good,
    ]
    decoded = decode_avro_messages(values, SCHEMA, read_schema(json.dumps(WRITTEN)))
    assert decoded.tuples.column("Id").to_pylist() == [1, 1]
    details = {fault.line: fault.detail for fault in decoded.malformed}
    assert details.keys() == {2, 3, 4, 5, 6, 7}
    assert "got no value" in details[2]
    assert "1 bytes follow it" in details[3]
    assert details[4].startswith("line 4 must be a record in Avro: ")
    assert details[5] == "line 5: column 's' must be a VARCHAR, got 7"
    assert "is the event time" in details[6]


def test_messages_of_several_schemas_keep_their_order() -> None:
    schemas: dict[int, AvroSchema | str] = {
        1: read_schema(json.dumps(WRITTEN)),
        2: read_schema(json.dumps({**OLDER, "fields": [OLDER["fields"][0], OLDER["fields"][2]]})),
        3: read_schema(json.dumps(OLDER)),
        4: " must be known",
    }
    old = {**OLDER, "fields": [OLDER["fields"][0], OLDER["fields"][2]]}

    def framed(number: int, value: bytes) -> bytes:
        return struct.pack(">bI", 0, number) + value

    values = [
        framed(2, encoded(old, {"t": TIME, "id": 0})),
        framed(1, encoded(WRITTEN, row(1))),
        framed(4, b"x"),
        framed(2, encoded(old, {"t": TIME, "id": 3})),
        b"\x01\x00\x00\x00\x01" + encoded(WRITTEN, row(4)),
        framed(3, encoded(OLDER, {"t": TIME, "id": 5, "small": "x"})),
        framed(1, encoded(WRITTEN, row(6))),
        b"\x00\x00",
    ]
    numbers_asked_for: list[int] = []

    def schema_of(number: int) -> AvroSchema | str:
        numbers_asked_for.append(number)
        return schemas[number]

    decoded = decode_framed_messages(values, SCHEMA, schema_of)
    assert decoded.tuples.column("Id").to_pylist() == [0, 1, 3, 6]
    assert decoded.tuples.column("s").to_pylist() == [None, "é1", None, "é6"]
    assert decoded.origins_of(len(values)).tolist() == [0, 1, 3, 6]
    assert sorted(numbers_asked_for) == [1, 2, 3, 4]
    details = {fault.line: fault.detail for fault in decoded.malformed}
    assert details.keys() == {3, 5, 6, 8}
    assert details[3] == "line 3 must be known"
    assert "must begin with byte 0" in details[5]
    assert "must be castable to INT, the Avro schema has string" in details[6]


def test_columns_must_be_in_a_given_schema() -> None:
    writer = read_schema(json.dumps(WRITTEN))
    check_columns(SCHEMA, writer)
    with pytest.raises(NotAllowed, match="'missing' must be a field of the Avro schema, which has 'id', "):
        check_columns(StreamSchema((Field("missing", INT), Field("t", TIMESTAMP)), "t", 0), writer)
    with pytest.raises(NotAllowed, match="'ok' must be castable to INT; the Avro schema has bool"):
        check_columns(StreamSchema((Field("ok", INT), Field("t", TIMESTAMP)), "t", 0), writer)


GOOD = encoded(WRITTEN, row(1))
SCHEMAS = [read_schema(json.dumps(WRITTEN)), read_schema(json.dumps(OLDER))]
NOISE = st.one_of(
    st.binary(max_size=30),
    st.tuples(st.integers(0, len(GOOD)), st.binary(max_size=12)).map(lambda p: GOOD[: p[0]] + p[1] + GOOD[p[0] + 1 :]),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(NOISE, max_size=4), st.sampled_from(SCHEMAS))
def test_no_bytes_are_fatal_or_touch_others(noise: list[bytes], writer: AvroSchema) -> None:
    values = [GOOD, *noise, GOOD]
    decoded = decode_avro_messages(values, SCHEMA, SCHEMAS[0])
    assert decoded.tuples.num_rows + len(decoded.malformed) == len(values)
    ids = decoded.tuples.column("Id").to_pylist()
    assert (ids[0], ids[-1]) == (1, 1)
    framed = [struct.pack(">bI", 0, i % 3) + value for i, value in enumerate(values)]
    given_schemas: list[AvroSchema | str] = [SCHEMAS[0], writer, " is unknown"]
    decoded = decode_framed_messages([*framed, *noise], SCHEMA, lambda number: given_schemas[number % 3])
    assert decoded.tuples.num_rows + len(decoded.malformed) == len(framed) + len(noise)
