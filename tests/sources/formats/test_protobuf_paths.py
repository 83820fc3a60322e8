"""Paths into messages of Protobuf: where they lead, what they read of a message, and how much it may take."""

from __future__ import annotations

import pytest
from google.protobuf import json_format

from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, INT, TIMESTAMP, VARCHAR, Field, Schema
from braid.sources.formats.protobuf_messages import (
    check_columns,
    decode_protobuf_messages,
    decoded_size,
    framed_messages,
    plain_messages,
)
from braid.sources.formats.protobuf_schema import ProtobufSchema, read_proto
from tests.sources.formats.protobuf_records import KNOWN, NODES, OF_NODES, TIMES, decode, framed, writer


def test_paths_lead_into_messages_lists_and_maps() -> None:
    document = {
        "next": {"id": 1, "next": {}},
        "children": [{"tags": ["a", "b"]}, {"id": 2}],
        "counts": {"x": 3, "y": 4},
        "nodes": {"-7": {"next": {"id": 5}}},
        "flags": {"true": "yes"},
        "left": {"id": 6},
    }
    records = [json_format.ParseDict(given, writer(NODES)()).SerializeToString() for given in (document, {})]
    full, empty = decode(NODES, OF_NODES, records).tuples.to_pylist()
    assert list(full.values()) == [0, 1, 2, "a", 3, 5, "yes", 6]
    assert list(empty.values()) == [None] * 8


def test_the_last_of_several_fields_of_a_oneof_counts_also_where_no_column_reads_it() -> None:
    left, text = b"\x42\x02\x08\x06", b"\x52\x01x"
    schema = Schema((Field("id", BIGINT, source="$.left.id"),))
    rows = decode(NODES, schema, [text + left, left + text]).tuples.to_pylist()
    assert [row["id"] for row in rows] == [6, None]


def test_the_last_entry_of_a_map_counts() -> None:
    entries = b"\x2a\x05\x0a\x01x\x10\x01" * 2 + b"\x2a\x05\x0a\x01x\x10\x09"
    schema = Schema((Field("x", INT, source="$.counts.x"),))
    assert decode(NODES, schema, [entries, b"\x2a\x03\x0a\x01x"]).tuples.to_pylist() == [{"x": 9}, {"x": 0}]


def test_groups_are_read() -> None:
    inside = "{ optional int32 k = 2; }"
    text = f"message M {{ optional group Inner = 1 {inside} repeated group Many = 3 {inside} }}"
    schema = Schema((Field("k", INT, source="$.inner.k"), Field("l", INT, source="$.many[1].k")))
    record = writer(text)(inner={"k": 5}, many=[{"k": 6}, {"k": 7}]).SerializeToString()
    assert decode(text, schema, [record]).tuples.to_pylist() == [{"k": 5, "l": 7}]


@pytest.mark.parametrize(("depth", "says"), [(50, "got an object"), (99, "got an object"), (150, "MaxDepth")])
def test_messages_within_messages_have_a_limit(depth: int, says: str) -> None:
    record = b""
    for _ in range(depth):
        size = len(record)
        record = b"\x12" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + record
    schema_of: dict[int, ProtobufSchema | str] = {1: read_proto(NODES)}
    schema = Schema((Field("next", VARCHAR),))
    decoded = decode_protobuf_messages([framed(1, record)], schema, framed_messages(schema, schema_of.__getitem__))
    assert says in decoded.malformed[0].detail
    schema = Schema((Field("id", BIGINT, source="$.next.next.id"),))
    assert decode(NODES, schema, [record]).tuples.to_pylist() == [{"id": 0}], "what no column reads is passed over"
    (fault,) = decode(NODES, schema, [b"\x13" * 100_000]).malformed
    assert "must be a message in Protobuf" in fault.detail


WIDE = (
    'syntax = "proto3"; message M { int32 k = 1; repeated Wide items = 2; } message Wide { Wide more = 1000; '
    + "".join(f"int64 f{i} = {i};" for i in range(1, 300))
    + "}"
)


def test_fields_that_no_column_reads_take_nothing() -> None:
    schema = Schema((Field("k", INT), Field("f", BIGINT, source="$.items[0].f7")))
    hostile = b"\x08\x05" + b"\x12\x00" * 500_000
    reader_of = plain_messages(schema, read_proto(WIDE).named("M"))
    assert decoded_size(hostile, reader_of) < 1 << 28
    assert decode_protobuf_messages([hostile], schema, reader_of).tuples.to_pylist() == [{"k": 5, "f": 0}]


@pytest.mark.parametrize("begin", [b"\x12\x00", b"\x92\x00\x00", b"\x12\x03\xc2\x3e\x00"])
def test_a_message_that_would_take_all_memory_is_malformed(begin: bytes) -> None:
    schema = Schema((Field("k", INT), Field("items", VARCHAR)))
    schema_of: dict[int, ProtobufSchema | str] = {1: read_proto(WIDE)}
    reader_of = framed_messages(schema, schema_of.__getitem__)
    hostile = framed(1, begin * 200_000)
    decoded = decode_protobuf_messages([framed(1, b"\x08\x05"), hostile], schema, reader_of)
    assert "must unpack to at most" in decoded.malformed[-1].detail
    filled = writer(WIDE, "M")(items=[{f"f{i}": 2**62 for i in range(1, 300)}] * 400)
    large = framed(1, filled.SerializeToString())
    assert len(large) > len(hostile) / 2
    assert "got an array" in decode_protobuf_messages([large], schema, reader_of).malformed[0].detail


def test_columns_must_be_in_a_given_schema() -> None:
    node = read_proto(NODES).named("")
    check_columns(OF_NODES, node)
    for path, kind, says in [
        ("missing", INT, "'c' must be a field of the Protobuf message Node, which has 'id', 'next'"),
        ("$.next.missing", INT, "must be a field of"),
        ("$.id.more", INT, "must be a field of"),
        ("$.tags.more", INT, "must be a field of"),
        ("$.next[0]", INT, "must be a field of"),
        ("tags", VARCHAR, "must be castable to VARCHAR; the Protobuf schema has a repeated field"),
        ("counts", VARCHAR, "has a map"),
        ("next", VARCHAR, "has a message Node"),
        ("$.tags[0]", INT, "must be castable to INT; the Protobuf schema has string"),
        ("id", TIMESTAMP, "must be castable to TIMESTAMP; the Protobuf schema has int64"),
    ]:
        with pytest.raises(NotAllowed) as refused:
            check_columns(Schema((Field("c", kind, source=path),)), node)
        assert says in refused.value.detail
    known_types = read_proto(KNOWN).named("")
    check_columns(TIMES, known_types)
    for path in ("t", "d", "p", "lasts"):
        with pytest.raises(NotAllowed, match="castable to VARCHAR"):
            check_columns(Schema((Field("c", VARCHAR, source=path),)), known_types)


def test_a_column_that_does_not_fit_a_registered_schema_is_malformed() -> None:
    schema_of: dict[int, ProtobufSchema | str] = {1: read_proto(NODES)}
    schema = Schema((Field("next", VARCHAR), Field("tags", INT)))
    record = json_format.ParseDict({"next": {"id": 5}}, writer(NODES)()).SerializeToString()
    reader_of = framed_messages(schema, schema_of.__getitem__)
    decoded = decode_protobuf_messages([framed(1, record), framed(1, b"")], schema, reader_of)
    assert [fault.detail for fault in decoded.malformed] == [
        "line 1: column 'next' must be a VARCHAR, got an object",
        "line 2: column 'tags' must be an INT, got an array",
    ]
