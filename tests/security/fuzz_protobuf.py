"""Messages and schemas in Protobuf to mutate, and what decodes them; see :mod:`tests.security.fuzz_formats`."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from google.protobuf import message_factory

from braid.sources.core.schema import BIGINT, INT, VARCHAR, Field, Schema
from braid.sources.formats.decoded import Decoded
from braid.sources.formats.protobuf_messages import decode_protobuf_messages, framed_messages, plain_messages
from braid.sources.formats.protobuf_schema import ProtobufSchema, read_proto

MESSAGES = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/type/date.proto";
message M {
    bool b = 1; int32 i = 2; optional uint64 n = 3; double d = 4; string m = 5; string s = 6; google.type.Date day = 7;
    google.protobuf.Timestamp time = 8; repeated M more = 9; map<string, M> map = 10;
    oneof one { M x = 11; bytes y = 12; }
}
"""
GROUPS = """message M {
    repeated group Item = 1 { optional sint64 k = 2; } optional M user = 3; repeated int32 list = 4 [packed = true];
    optional fixed64 at = 5; enum E { A = 0; B = 1; } required E s = 6; extensions 100 to max;
}
"""


def message_seeds() -> list[bytes]:
    """Return messages in Protobuf."""
    made = message_factory.GetMessageClass(_compiled().named(""))
    inner = {"i": -1, "n": 2**63, "s": "x" * 40, "time": {"seconds": 1_706_702_400, "nanos": 123_456_789}}
    outer = {**inner, "n": 5, "m": "1.25", "day": {"year": 2024, "month": 1, "day": 31}, "d": 1.5, "b": True}
    rows: list[dict[str, Any]] = [
        {"time": {}},
        outer,
        {**outer, "more": [inner, {"more": [outer, inner]}], "map": {"k": inner, "": {}}, "x": outer},
    ]
    return [made(**row).SerializeToString() for row in rows]


def schema_seeds() -> list[bytes]:
    """Return schemas in Protobuf, each with a message that was written with it."""
    of_groups = b"\x0b\x10\x09\x0c\x12\x02\x30\x01\x22\x02\x05\x06\x30\x00"
    return [text.encode() + b"\0" + record for text, record in ((MESSAGES, message_seeds()[1]), (GROUPS, of_groups))]


WITHIN = Schema(
    (
        Field("i", INT),
        Field("x", BIGINT, source="$.more[1].more[0].n"),
        Field("k", VARCHAR, source="$.map.k.s"),
        Field("y", VARCHAR),
        Field("more", VARCHAR),
        Field("map", VARCHAR),
    )
)


@functools.cache
def _compiled() -> ProtobufSchema:
    return read_proto(MESSAGES)


def decode_messages(body: bytes, schema: Schema) -> Iterable[Decoded]:
    """Decode a message, and what may have a header."""
    message, header = _compiled().named(""), b"\0\0\0\0\1"
    for columns in (schema, WITHIN):
        yield decode_protobuf_messages([body, None], columns, plain_messages(columns, message))
        reader_of = framed_messages(columns, lambda _: _compiled())
        yield decode_protobuf_messages([body, header + body, header + b"\0" + body], columns, reader_of)


def decode_schemas(body: bytes, schema: Schema) -> Iterable[Decoded]:
    """Decode a message as each of those of the schema that stands before it."""
    text, _, record = body.partition(b"\0")
    for message in read_proto(text.decode(errors="replace")).messages.values():
        for columns in (schema, WITHIN):
            yield decode_protobuf_messages([record, None], columns, plain_messages(columns, message))
