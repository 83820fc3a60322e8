"""What the values of fields in Protobuf are in columns: numbers, texts and times at once, all else one by one.

Texts come as bytes, and enums as numbers, see :func:`braid.sources.formats.protobuf_paths.narrowed`. Enums are their
names; a number that has none is that number as text. Bytes are text in base 64. Both are as protobuf writes them in
JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Types

from braid.sources.core.schema import ColumnType
from braid.sources.formats.protobuf_paths import WRAPPERS, Way, attribute, is_map

Convert = Callable[[Any], Any]
"""Returns a value as a column takes it; ValueError says why it does not."""

SCALARS = frozenset(("BOOLEAN", "INT", "BIGINT", "DOUBLE", "DECIMAL", "VARCHAR", "DATE", "TIMESTAMP"))
TIME, DATE, DECIMAL = "google.protobuf.Timestamp", "google.type.Date", "confluent.type.Decimal"
_MIN_SECONDS, _MAX_SECONDS = -62_135_596_800, 253_402_300_799  # of the years 1 to 9999
_EPOCH = datetime(1970, 1, 1)
_PARTS = attrgetter("f1", "f2")  # of a Timestamp
_MAX_DECIMAL_BYTES = 64  # beyond all columns
_MAX_SCALE = 10_000  # likewise
_KINDS = {
    Types.TYPE_DOUBLE: pa.float64(),
    Types.TYPE_FLOAT: pa.float32(),
    Types.TYPE_INT64: pa.int64(),
    Types.TYPE_SINT64: pa.int64(),
    Types.TYPE_SFIXED64: pa.int64(),
    Types.TYPE_UINT64: pa.uint64(),
    Types.TYPE_FIXED64: pa.uint64(),
    Types.TYPE_INT32: pa.int32(),
    Types.TYPE_SINT32: pa.int32(),
    Types.TYPE_SFIXED32: pa.int32(),
    Types.TYPE_UINT32: pa.uint32(),
    Types.TYPE_FIXED32: pa.uint32(),
    Types.TYPE_BOOL: pa.bool_(),
    Types.TYPE_STRING: pa.string(),
    Types.TYPE_BYTES: pa.string(),
}


@dataclass(frozen=True)
class Form:
    """The Arrow type of a field's values, None for what is not simple, and what they go through, if anything."""

    kind: pa.DataType | None
    convert: Convert | None = None


def form_of(way: Way, column: ColumnType) -> Form:
    """Return the form in which what a way leads to becomes a column of a type."""
    field = way.field
    if way.is_many or column.kind not in SCALARS:
        return Form(None, many_of(field) if way.is_many else plain_of(field))
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == TIME:
            return Form(pa.timestamp("us"), _microseconds)
        if name == DATE:
            return Form(pa.date32(), _date)
        return Form(None, plain_of(field))
    if field.enum_type is not None:
        return Form(pa.int32()) if column.is_integer else Form(pa.string(), _name_of(field.enum_type))
    return Form(_KINDS[field.type], _base64 if field.type == Types.TYPE_BYTES else None)


def is_scalar(way: Way, column: ColumnType) -> bool:
    """Whether a way leads to what can be a column of a simple type; of which type its kind says, if it has one."""
    name = "" if way.field.message_type is None else way.field.message_type.full_name
    return not way.is_many and (name in ("", TIME, DATE) or (name == DECIMAL and column.is_numeric))


def describe(way: Way) -> str:
    """Return what a way leads to, in words."""
    if way.is_many:
        return "a map" if is_map(way.field) else "a repeated field"
    return f"a message {way.field.message_type.full_name}"


# values of columns that are not simple, or in such: as JSON has them


def many_of(field: Any) -> Convert:
    """Return what makes lists of repeated fields, and dicts of maps."""
    one = plain_of(field)
    if not is_map(field):
        return lambda values: [one(value) for value in values]
    key, value = (plain_of(field.message_type.fields_by_number[number]) for number in (1, 2))
    return lambda entries: {key_text(key(entry.f1)): value(entry.f2) for entry in entries}


def key_text(key: Any) -> str:
    """Return the key of a map as JSON has it."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def plain_of(field: Any) -> Convert:
    """Return what makes plain values: dicts of messages, whose types may contain themselves."""
    if field.message_type is not None:
        return _plain_message(field.message_type)
    if field.enum_type is not None:
        return _name_of(field.enum_type)
    if field.type in (Types.TYPE_DOUBLE, Types.TYPE_FLOAT):
        return lambda number: None if number != number else number
    return {Types.TYPE_STRING: _text, Types.TYPE_BYTES: _base64}.get(field.type, _same)


def _plain_message(message: Any) -> Convert:
    if message.full_name in _SPECIAL:
        return _SPECIAL[message.full_name]
    if message.full_name in WRAPPERS:
        value = plain_of(message.fields_by_name["value"])
        return lambda wrapper: value(wrapper.f1)
    members: list[tuple[str, str, bool, Convert]] = []

    def convert(value: Any) -> dict[str, Any]:
        if not members:  # a type that contains itself ends here
            members.extend(_members(message))
        return {
            name: None if has_presence and not value.HasField(place) else convert_member(getattr(value, place))
            for name, place, has_presence, convert_member in members
        }

    return convert


def _members(message: Any) -> list[tuple[str, str, bool, Convert]]:
    return [
        (field.name, attribute(field), field.has_presence, (many_of if field.is_repeated else plain_of)(field))
        for field in message.fields
    ]


def _same(value: Any) -> Any:
    return value


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError("it must be UTF-8") from None


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _name_of(enum: Any) -> Convert:
    names = {value.number: value.name for value in reversed(enum.values)}  # of several the first
    return names.get if enum.is_closed else lambda number: names.get(number) or str(number)


def _microseconds(time: Any) -> int:
    seconds, nanos = _PARTS(time)
    if _MIN_SECONDS <= seconds <= _MAX_SECONDS and 0 <= nanos < 1_000_000_000:
        return int(seconds * 1_000_000 + nanos // 1000)
    raise ValueError("it must be a Timestamp of the years 1 to 9999")


def _time_text(time: Any) -> str:
    return f"{(_EPOCH + timedelta(microseconds=_microseconds(time))).isoformat()}Z"


def _date(value: Any) -> date:
    try:
        return date(value.f1, value.f2, value.f3)
    except ValueError:
        raise ValueError("it must be a Date with year, month and day") from None


def _decimal(value: Any) -> Decimal:
    if len(value.f1) > _MAX_DECIMAL_BYTES or abs(value.f3) > _MAX_SCALE:
        raise ValueError("it must be a Decimal of at most 38 digits")
    sign, digits, _ = Decimal(int.from_bytes(value.f1, "big", signed=True)).as_tuple()
    return Decimal((sign, digits, -value.f3))


_SPECIAL: dict[str, Convert] = {TIME: _time_text, DATE: lambda value: _date(value).isoformat(), DECIMAL: _decimal}


def converted(values: Sequence[Any], convert: Convert, name: str) -> tuple[list[Any], dict[int, str]]:
    """Return values of a column as ``convert`` makes them, NULL where they cannot be, with the reasons why not."""
    try:
        return [None if value is None else convert(value) for value in values], {}
    except ValueError:
        pass
    made: list[Any] = []
    errors: dict[int, str] = {}
    for i, value in enumerate(values):
        try:
            made.append(None if value is None else convert(value))
        except ValueError as problem:
            made.append(None)
            errors[i] = f"column {name!r} cannot be what the message has: {problem}"
    return made, errors
