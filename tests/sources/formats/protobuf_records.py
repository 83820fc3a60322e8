"""What tests of Protobuf share: writing messages with protobuf's own types, and headers before them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from google.protobuf import message_factory

from braid.sources.core.schema import BIGINT, DATE, INT, TIMESTAMP, VARCHAR, ColumnType, Field, Schema, StreamSchema
from braid.sources.formats.decoded import Decoded
from braid.sources.formats.protobuf_messages import decode_protobuf_messages, plain_messages
from braid.sources.formats.protobuf_schema import read_proto

READINGS = """
    syntax = "proto3";
    package shop;
    import "google/protobuf/timestamp.proto";
    message Reading { optional int32 k = 1; google.protobuf.Timestamp t = 2; }
    message Other { string k = 1; message Inner { google.protobuf.Timestamp t = 7; sint64 k = 8; } }
"""
"""Messages at (0,), (1,) and (1, 0), all with ``k``; the first and the last have a time ``t``."""

KNOWN = """
    syntax = "proto3";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";
    import "google/protobuf/duration.proto";
    import "google/type/date.proto";
    import "confluent/type/decimal.proto";
    message M {
        google.protobuf.Timestamp t = 1;
        google.type.Date d = 2;
        confluent.type.Decimal p = 3;
        google.protobuf.Int64Value n = 4;
        google.protobuf.StringValue s = 5;
        google.protobuf.Duration lasts = 6;
    }
"""
TIMES = StreamSchema(
    (
        Field("t", TIMESTAMP),
        Field("d", DATE),
        Field("p", ColumnType("DECIMAL", 9, 2)),
        Field("n", BIGINT),
        Field("s", VARCHAR),
        Field("seconds", BIGINT, source="$.lasts.seconds"),
    ),
    "t",
    0,
)
"""Columns of ``KNOWN``."""

NODES = """
    syntax = "proto3";
    message Node {
        int64 id = 1;
        Node next = 2;
        repeated Node children = 3;
        repeated string tags = 4;
        map<string, int32> counts = 5;
        map<int64, Node> nodes = 6;
        map<bool, string> flags = 7;
        oneof one { Node left = 8; Node right = 9; string text = 10; }
    }
"""
OF_NODES = Schema(
    tuple(
        Field(f"c{i}", kind, source=path)
        for i, (path, kind) in enumerate(
            {
                "$.next.next.id": BIGINT,
                "$.NEXT.ID": BIGINT,
                "$.children[1].id": BIGINT,
                "$.children[0].tags[0]": VARCHAR,
                "$.counts.x": INT,
                "$.nodes['-7'].next.id": BIGINT,
                "$.flags.true": VARCHAR,
                "$.left.id": BIGINT,
            }.items()
        )
    )
)
"""Columns of ``NODES``."""


def decode(text: str, schema: Schema, records: Sequence[bytes | None], name: str = "") -> Decoded:
    """Decode messages without headers."""
    return decode_protobuf_messages(records, schema, plain_messages(schema, read_proto(text).named(name)))


def writer(text: str, name: str = "") -> Any:
    """Return protobuf's own class for a message of a schema."""
    return message_factory.GetMessageClass(read_proto(text).named(name))


def framed(number: int, record: bytes, place: bytes = b"\0") -> bytes:
    """Return a message behind the header of a registry; ``place`` says which message of the schema it is."""
    return struct.pack(">bI", 0, number) + place + record


def reading(k: int | None, seconds: int = 1_767_225_600) -> bytes:
    """Return a ``shop.Reading``, of 2026-01-01 if not said otherwise."""
    record = writer(READINGS, "Reading")(k=k)
    record.t.seconds = seconds
    return record.SerializeToString()
