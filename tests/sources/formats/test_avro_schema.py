"""Avro schemas: which are taken, what their fields are in Arrow, and which are refused."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.sources.core.errors import NotAllowed
from braid.sources.formats.avro_schema import read_schema


def record(*fields: tuple[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        ("long", pa.int64()),
        (["null", "string"], pa.string()),
        (["string", "null"], pa.string()),
        (["null", "string", "long"], None),
        ("null", pa.null()),
        (logical("long", "timestamp-millis"), pa.timestamp("ms")),
        (["null", logical("long", "timestamp-micros")], pa.timestamp("us")),
        (logical("long", "local-timestamp-nanos"), pa.timestamp("ns")),
        (logical("int", "date"), pa.date32()),
        (logical("int", "time-millis"), pa.int32()),
        (logical("string", "uuid"), pa.string()),
        (logical("bytes", "decimal", precision=9, scale=2), pa.decimal128(9, 2)),
        (logical("bytes", "decimal", precision=60, scale=2), None),
        (logical("long", "unheard-of"), pa.int64()),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 5}, pa.decimal128(5, 0)),
        ({"type": "array", "items": "long"}, pa.list_(pa.int64())),
        ({"type": "map", "values": ["null", logical("int", "date")]}, pa.map_(pa.string(), pa.date32())),
        (record(("x", "long"), name="Inner"), pa.struct([("x", pa.int64())])),
        ({"type": "array", "items": ["string", "long"]}, None),
        (record(("x", ["string", "long"]), name="Inner"), None),
    ],
)
def test_types_of_fields(kind: Any, arrow: pa.DataType | None) -> None:
    assert read_schema(json.dumps(record(("a", kind)))).columns == {"a": arrow}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "well-formed"),
        ('"long"', "of a record"),
        (json.dumps({"type": "record", "fields": []}), "well-formed"),
        (json.dumps(record(("a", "unknown"))), "well-formed"),
        (json.dumps(record(("next", ["null", "R"]))), "contain themselves"),
        (json.dumps(record(("a", {"type": "array", "items": "R"}))), "contain themselves"),
        (json.dumps(record(("a", {"type": "array", "items": "null"}))), "a byte each"),
        (json.dumps(record(("a", {"type": "array", "items": record(name="Empty")}))), "a byte each"),
        (" " * 2_000_000, "at most"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(NotAllowed, match=says):
        read_schema(text)


JSON = st.recursive(
    st.sampled_from(["long", "null", "R", "", 3, None, "decimal", "record", "array", "bytes", "fixed"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "items", "fields", "name", "logicalType", "precision", "scale", "size"]), inner
        ),
        inner.map(lambda kind: record(("a", kind))),
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("size", ["long", -1, 1.5, True, None])
def test_the_size_of_a_fixed_is_a_number(size: object) -> None:
    fixed = {"type": "fixed", "name": "f", "size": size}
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": fixed}]}
    with pytest.raises(NotAllowed):
        read_schema(json.dumps(schema))


@given(st.one_of(st.text(max_size=30), JSON.map(json.dumps)))
def test_whatever_is_given_is_taken_or_refused(text: str) -> None:
    with suppress(NotAllowed):
        read_schema(text)
