"""Protobuf message by message: all kinds of values, several schemas at once, and no bytes are fatal."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.sources.core.schema import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    TIMESTAMP,
    VARCHAR,
    Field,
    Schema,
    StreamSchema,
)
from braid.sources.formats.protobuf_messages import (
    decode_protobuf_messages,
    framed_messages,
)
from braid.sources.formats.protobuf_schema import ProtobufSchema, read_proto
from tests.kit.examples import examples
from tests.sources.formats.protobuf_records import (
    KNOWN,
    NODES,
    OF_NODES,
    READINGS,
    TIMES,
    decode,
    framed,
    reading,
    writer,
)

COLUMNS = {
    "double": DOUBLE,
    "float": DOUBLE,
    "int32": INT,
    "int64": BIGINT,
    "uint32": BIGINT,
    "uint64": BIGINT,
    "sint32": INT,
    "sint64": BIGINT,
    "fixed32": BIGINT,
    "fixed64": BIGINT,
    "sfixed32": INT,
    "sfixed64": BIGINT,
    "bool": BOOLEAN,
    "string": VARCHAR,
    "bytes": VARCHAR,
    "Colour": VARCHAR,
}
KINDS = list(COLUMNS)
ENUM = "enum Colour { option allow_alias = true; NONE = 0; RED = 1; ALSO_RED = 1; DARK = -5; }"
EVERYTHING = (
    f'syntax = "proto3"; {ENUM} message M {{'
    + "".join(f"{kind} a_{kind} = {i}; optional {kind} b_{kind} = {100 + i};" for i, kind in enumerate(KINDS, 1))
    + "}"
)
SCHEMA = Schema(tuple(Field(f"{presence}_{kind}", COLUMNS[kind]) for presence in "ab" for kind in KINDS))


def values_of(kind: str) -> st.SearchStrategy[Any]:
    """Return the values that a field of a kind can have."""
    if kind in ("double", "float"):
        return st.floats(width=32 if kind == "float" else 64)
    if kind in ("bool", "string", "bytes"):
        return {"bool": st.booleans(), "string": st.text(max_size=5), "bytes": st.binary(max_size=5)}[kind]
    if kind == "Colour":
        return st.sampled_from([0, 1, -5, 7, 2**31 - 1])
    bits = 64 if kind.endswith("64") else 32
    is_unsigned = kind.startswith(("u", "fixed"))
    least = 0 if is_unsigned else -(2 ** (bits - 1))
    return st.integers(least, least + 2**bits - 1) | st.sampled_from([0, least, least + 2**bits - 1])


MESSAGES = st.fixed_dictionaries(
    {}, optional={f"{presence}_{kind}": values_of(kind) for presence in "ab" for kind in KINDS}
)


def expected(kind: str, shown: Any) -> tuple[Any, bool]:
    """Return a value of protobuf's own JSON as a column has it, and whether it fits."""
    if shown is None:
        return None, True
    if kind in ("double", "float"):
        number = float(shown)
        return (None if math.isnan(number) else number), not math.isinf(number)
    if kind == "Colour":
        return str(shown), True
    if kind in ("bool", "string", "bytes"):
        return shown, True
    return int(shown), int(shown) < 2**63


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(MESSAGES, max_size=4))
def test_values_of_all_kinds_are_those_of_protobufs_json(rows: list[dict[str, Any]]) -> None:
    messages = [writer(EVERYTHING)(**row) for row in rows]
    decoded = decode(EVERYTHING, SCHEMA, [message.SerializeToString() for message in messages])
    good, wrong = [], []
    for number, message in enumerate(messages, 1):
        shown = json_format.MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        row = {f.name: expected(f.name[2:], shown.get(f.name)) for f in SCHEMA.fields}
        if all(fits for _, fits in row.values()):
            good.append({name: value for name, (value, _) in row.items()})
        else:
            wrong.append(number)
    assert [fault.line for fault in decoded.malformed] == wrong
    for found, row in zip(decoded.tuples.to_pylist(), good, strict=True):
        for kind in ("a_float", "b_float"):
            assert found.pop(kind) == pytest.approx(row.pop(kind), rel=1e-6, abs=1e-44)
        assert found == row


@pytest.mark.parametrize(
    ("declared", "fields", "absent"),
    [
        ('syntax = "proto3";', "int32 k = 1; string s = 2; Colour c = 3;", [0, "", "NONE"]),
        ('syntax = "proto3";', "optional int32 k = 1; optional string s = 2; optional Colour c = 3;", [None] * 3),
        ('syntax = "proto3";', "oneof o { int32 k = 1; string s = 2; } oneof p { Colour c = 3; }", [None] * 3),
        ('syntax = "proto2";', "required int32 k = 1; optional string s = 2; optional Colour c = 3;", [None] * 3),
        ('syntax = "proto2";', "optional int32 k = 1 [default = 5]; optional string s = 2; optional Colour c = 3;",
         [None] * 3),
        ('edition = "2023";', "int32 k = 1; string s = 2; Colour c = 3;", [None] * 3),
        ('edition = "2023"; option features.field_presence = IMPLICIT;', "int32 k = 1; string s = 2; Colour c = 3;",
         [0, "", "NONE"]),
    ],
)  # fmt: skip
def test_what_is_absent_is_null_where_a_field_has_presence(declared: str, fields: str, absent: list[Any]) -> None:
    text = f"{declared} {ENUM} message M {{ {fields} }}"
    schema = Schema((Field("k", INT), Field("s", VARCHAR), Field("c", VARCHAR)))
    assert [list(row.values()) for row in decode(text, schema, [b""]).tuples.to_pylist()] == [absent]
    assert decode(text, schema, [b"\x08\x07"]).tuples.to_pylist()[0]["k"] == 7


def test_numbers_of_enums_without_a_name_are_text_unless_the_enum_is_closed() -> None:
    record, schema = b"\x08\x07", Schema((Field("c", VARCHAR), Field("n", BIGINT, source="c")))
    text = f'syntax = "proto3"; {ENUM} message M {{ Colour c = 1; }}'
    assert decode(text, schema, [record, b"\x08\x01"]).tuples.to_pylist() == [
        {"c": "7", "n": 7},
        {"c": "RED", "n": 1},
    ]
    text = f"{ENUM} message M {{ optional Colour c = 1; }}"
    assert decode(text, schema, [record]).tuples.to_pylist() == [{"c": None, "n": 7}]


def known(**values: dict[str, Any]) -> bytes:
    return json_format.ParseDict({"t": "2026-01-31T12:00:00.123456789Z", **values}, writer(KNOWN)()).SerializeToString()


def test_messages_that_stand_for_values() -> None:
    decimal = {"value": "ME4=", "scale": 2}  # 12366
    date_of = {"year": 2026, "month": 2, "day": 3}
    records = [known(d=date_of, p=decimal, n="0", s="x", lasts="3.5s"), known()]  # type: ignore[arg-type]
    decoded = decode(KNOWN, TIMES, [*records, b""])
    time = datetime(2026, 1, 31, 12, 0, 0, 123456)
    assert decoded.tuples.to_pylist() == [
        {"t": time, "d": date(2026, 2, 3), "p": Decimal("123.66"), "n": 0, "s": "x", "seconds": 3},
        {"t": time, "d": None, "p": None, "n": None, "s": None, "seconds": None},
    ]
    assert [fault.detail for fault in decoded.malformed] == [
        "line 3: column 't' is the event time and must not be NULL or missing"
    ]


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("t", {"seconds": 253_402_300_800}, "of the years 1 to 9999"),
        ("t", {"seconds": -(2**63)}, "of the years 1 to 9999"),
        ("t", {"nanos": -1}, "of the years 1 to 9999"),
        ("t", {"nanos": 10**9}, "of the years 1 to 9999"),
        ("d", {"year": 2026}, "with year, month and day"),
        ("d", {"year": 2026, "month": 2, "day": 30}, "with year, month and day"),
        ("d", {"year": -1, "month": 2, "day": 3}, "with year, month and day"),
        ("p", {"value": b"\x7f" * 100, "scale": 2}, "at most 38 digits"),
        ("p", {"value": b"\x01", "scale": -(2**31)}, "at most 38 digits"),
        ("p", {"value": b"\x01", "scale": 3}, "must fit precision and scale exactly"),
    ],
)
def test_values_that_these_must_not_have(field: str, value: dict[str, Any], says: str) -> None:
    message = writer(KNOWN).FromString(known())
    getattr(message, field).Clear()
    for name, number in value.items():
        setattr(getattr(message, field), name, number)
    decoded = decode(KNOWN, TIMES, [known(), message.SerializeToString(), known()])
    assert decoded.tuples.num_rows == 2
    (fault,) = decoded.malformed
    assert fault.line == 2
    assert says in fault.detail
    assert f"column {field!r}" in fault.detail


def test_what_is_wrong_with_a_message_is_said() -> None:
    schema = Schema((Field("k", INT), Field("s", VARCHAR)))
    text = 'syntax = "proto3"; message M { int64 k = 1; string s = 2; string unread = 3; }'
    good = writer(text)(k=1, s="é").SerializeToString()
    bad = b"\x12\x01\xff"
    records = [good, None, good[:-1], writer(text)(k=2**40).SerializeToString(), bad, b"\x0b", b"\x1a\x01\xff" + good]
    decoded = decode(text, schema, records)
    assert decoded.tuples.to_pylist() == [{"k": 1, "s": "é"}] * 2
    details = {fault.line: fault.detail for fault in decoded.malformed}
    assert details.keys() == {2, 3, 4, 5, 6}
    assert details[2] == "line 2 must be a message in Protobuf, got no value"
    assert details[3].startswith("line 3 must be a message in Protobuf: ")
    assert "column 'k' must be an INT, got 1099511627776" in details[4]
    assert "column 's'" in details[5]
    assert "utf8" in details[5]
    assert decoded.malformed[3].raw == "EgH/"


READING = StreamSchema((Field("k", INT), Field("t", TIMESTAMP)), "t", 0)


def test_messages_of_several_schemas_keep_their_order() -> None:
    inner = writer(READINGS, "shop.Other.Inner")(k=-3, t={"seconds": 1})
    schemas: dict[int, ProtobufSchema | str] = {
        1: read_proto(READINGS),
        2: read_proto(READINGS.replace("optional int32 k = 1;", "")),
        4: " must be known",
    }
    values = [
        framed(2, reading(0)),
        framed(1, reading(1)),
        framed(4, b"x"),
        framed(1, inner.SerializeToString(), b"\x04\x02\x00"),
        b"\x01\x00\x00\x00\x01\x00" + reading(4),
        framed(1, reading(5), b"\x02\x00"),
        framed(1, reading(6), b"\x02\x08"),
        framed(1, reading(7), b"\x02\x03"),
        framed(1, b"", b""),
        framed(1, b"", b"\x08\x00"),
        framed(1, b"", b"\x01\x00"),
        framed(1, b"", b"\xff\xff\xff\xff\xff\xff\x01"),
        None,
        framed(2, reading(13)),
    ]
    asked_for: list[int] = []

    def schema_of(number: int) -> ProtobufSchema | str:
        asked_for.append(number)
        return schemas[number]

    decoded = decode_protobuf_messages(values, READING, framed_messages(READING, schema_of))
    assert decoded.tuples.column("k").to_pylist() == [None, 1, -3, 5, None]
    assert decoded.origins_of(len(values)).tolist() == [0, 1, 3, 5, 13]
    details = {fault.line: fault.detail for fault in decoded.malformed}
    assert details.keys() == {3, 5, 7, 8, 9, 10, 11, 12, 13}
    assert details[3] == "line 3 must be known"
    assert "must begin with byte 0" in details[5]
    assert details[7] == "line 7 must be one of the messages of its schema; 1 has none at [4]"
    assert "has none at [-2]" in details[8]
    assert all("must say which message" in details[line] for line in (9, 10, 11, 12))
    assert "got no value" in details[13]


GOOD = reading(1)
NOISE = st.one_of(
    st.binary(max_size=30),
    st.tuples(st.integers(0, len(GOOD)), st.binary(max_size=12)).map(lambda p: GOOD[: p[0]] + p[1] + GOOD[p[0] + 1 :]),
)
SCHEMAS = [read_proto(text) for text in (READINGS, EVERYTHING, NODES)]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(NOISE, max_size=4))
def test_no_bytes_are_fatal_or_touch_others(noise: list[bytes]) -> None:
    values: list[bytes | None] = [GOOD, *noise, GOOD]
    decoded = decode(READINGS, READING, values, "Reading")
    assert decoded.tuples.num_rows + len(decoded.malformed) == len(values)
    found = decoded.tuples.column("k").to_pylist()
    assert (found[0], found[-1]) == (1, 1)
    for schema in (SCHEMA, OF_NODES, READING):
        reader_of = framed_messages(schema, lambda number: SCHEMAS[number % 3])
        many: list[bytes | None] = [*(framed(i, value or b"") for i, value in enumerate(values)), *noise]
        many += [framed(i, value, b"") for i, value in enumerate(noise)]
        decoded = decode_protobuf_messages(many, schema, reader_of)
        assert decoded.tuples.num_rows + len(decoded.malformed) == len(many)
