"""Messages that come one by one, each in Protobuf's wire format, without a header or with a registry's.

After the id of a schema such a header says which of its messages follows: how many numbers there are, and those, the
place of the message in the file and in the messages around it, all as signed varints. A single 0 is the first message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import Field, Schema
from braid.sources.formats.arrow_stream import converter_of
from braid.sources.formats.columns import nulls
from braid.sources.formats.decoded import Decoded, DecodedColumn
from braid.sources.formats.limits import MESSAGE
from braid.sources.formats.protobuf_paths import Step, Way, attribute, narrowed, way_to
from braid.sources.formats.protobuf_schema import ProtobufSchema
from braid.sources.formats.protobuf_values import SCALARS, converted, describe, form_of, is_scalar, key_text
from braid.sources.formats.record_messages import (
    HEADER_BYTES,
    NO_HEADER,
    Records,
    decode_records,
    schema_id,
    typed_column,
)

MAX_NESTING = 100  # of messages in a file, as protoc has it
MAX_READERS = 1000
_FIRST = (0,)
_FIRST_BYTES = HEADER_BYTES + 1
_MAX_VARINT_BYTES = 5
_KIND = "a message in Protobuf"

SchemaOf = Callable[[int], ProtobufSchema | str]
"""Returns the schema with an id, or why there is none."""


class ProtobufReader:
    """Reads what the columns of a stream need of messages of one type."""

    def __init__(self, message: Any, schema: Schema) -> None:
        self._schema = schema
        self._ways = [way_to(message, field.path) for field in schema.read]
        self._narrowed = narrowed(message, [way for way in self._ways if way is not None])

    def __call__(self, records: Sequence[bytes]) -> Records:
        """Return the columns of messages; one that their type lacks is NULL."""
        unreadable: dict[int, str] = {}
        parse, nothing = self._narrowed.type.FromString, self._narrowed.type()
        messages: list[Any] = []
        for i, record in enumerate(records):
            try:
                self._check_size(record)
                messages.append(parse(record))
            except Exception as problem:  # what garbage makes the library raise is not documented
                unreadable[i] = f" must be {_KIND}: {str(problem)[:200] or type(problem).__name__}"
                messages.append(nothing)
        columns = [_column(field, way, messages) for field, way in zip(self._schema.read, self._ways, strict=True)]
        return Records(columns, unreadable)

    def size(self, record: bytes) -> int:
        """Return a bound of the bytes that a message takes once it is decoded."""
        return self._narrowed.size(record)

    def _check_size(self, record: bytes) -> None:
        if len(record) > self._narrowed.min_bytes(MESSAGE.unpacked_bytes):
            MESSAGE.check_bytes(self.size(record))


ReaderOf = Callable[[bytes], tuple[ProtobufReader, bytes] | str]
"""Returns what reads a message, and the message without its header; or why nothing does."""


def plain_messages(schema: Schema, message: Any) -> ReaderOf:
    """Return what finds the reader of messages without headers, all of one type."""
    reader = ProtobufReader(message, schema)
    return lambda value: (reader, value)


def framed_messages(schema: Schema, schema_of: SchemaOf) -> ReaderOf:
    """Return what finds the readers of messages with headers."""
    readers: dict[tuple[int, tuple[int, ...]], ProtobufReader] = {}
    of_first: dict[bytes, ProtobufReader] = {}  # by the whole header, of those that read the first message

    def reader_of(value: bytes) -> tuple[ProtobufReader, bytes] | str:
        known = of_first.get(value[:_FIRST_BYTES])
        if known is not None:
            return known, value[_FIRST_BYTES:]
        number = schema_id(value)
        if number is None:
            return NO_HEADER
        try:
            place, start = _place_of(value)
        except (IndexError, ValueError):
            return " must say which message of its schema follows"
        reader = readers.get((number, place))
        if reader is None:
            found = schema_of(number)
            if isinstance(found, str):
                return found
            if place not in found.messages:
                return f" must be one of the messages of its schema; {number} has none at {list(place)}"
            if len(readers) >= MAX_READERS:
                readers.clear()
                of_first.clear()
            reader = readers[number, place] = ProtobufReader(found.messages[place], schema)
        if start == _FIRST_BYTES:
            of_first[value[:start]] = reader
        return reader, value[start:]

    return reader_of


def decode_protobuf_messages(values: Sequence[bytes | None], schema: Schema, reader_of: ReaderOf) -> Decoded:
    """Decode messages; they are numbered from 1."""
    return decode_records(values, schema, reader_of, _KIND)


def decoded_size(value: bytes | None, reader_of: ReaderOf) -> int:
    """Return a bound of the bytes that a message takes once it is decoded."""
    found = "" if value is None else reader_of(value)
    return len(value or b"") if isinstance(found, str) else found[0].size(found[1])


def check_columns(schema: Schema, message: Any) -> None:
    """Raise NotAllowed when a column is not in a type of message, or of another type there."""
    for field in schema.read:
        way = way_to(message, field.path)
        if way is None:
            names = ", ".join(map(repr, list(message.fields_by_name)[:50]))
            raise NotAllowed(
                f"Column {field.name!r} must be a field of the Protobuf message {message.full_name}, which has"
                f" {names or 'none'}."
            )
        kind = form_of(way, field.type).kind
        if field.type.kind in SCALARS and not is_scalar(way, field.type):
            raise NotAllowed(
                f"Column {field.name!r} must be castable to {field.type}; the Protobuf schema has {describe(way)}."
            )
        if kind is not None and converter_of(kind, field) is None:
            raise NotAllowed(f"Column {field.name!r} must be castable to {field.type}; the Protobuf schema has {kind}.")


def _place_of(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return the place of a message in its schema, and where it begins; IndexError or ValueError if none is said."""
    count, at = _signed(value, HEADER_BYTES)
    if not count:
        return _FIRST, at
    if not 0 < count <= MAX_NESTING:
        raise ValueError
    place = []
    for _ in range(count):
        number, at = _signed(value, at)
        place.append(number)
    return tuple(place), at


def _signed(value: bytes, at: int) -> tuple[int, int]:
    number = 0
    for i in range(_MAX_VARINT_BYTES):
        byte = value[at + i]
        number |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at + i + 1
    raise ValueError


def _column(field: Field, way: Way | None, messages: Sequence[Any]) -> DecodedColumn:
    if way is None:
        return nulls(len(messages), field)
    first, *steps = way.steps
    values: Sequence[Any] = _first_values(first, messages)
    for get in map(_getter, steps):
        values = [None if value is None else get(value) for value in values]
    form = form_of(way, field.type)
    errors: Mapping[int, str] = {}
    if form.convert is not None:
        values, errors = converted(values, form.convert, field.name)
    column = typed_column(field, values, form.kind, "Protobuf")
    return DecodedColumn(column.values, {**column.errors, **errors}) if errors else column


def _first_values(step: Step, messages: Sequence[Any]) -> list[Any]:
    place = attribute(step.field)
    get = attrgetter(place)
    if not step.field.has_presence:
        return list(map(get, messages))
    return [get(message) if message.HasField(place) else None for message in messages]


def _getter(step: Step) -> Callable[[Any], Any]:
    """Return what takes a step from a message, a list or the entries of a map; None where there is nothing."""
    place, item = attribute(step.field), step.item
    get = attrgetter(place)
    if item is not None:
        return lambda values: values[item] if item < len(values) else None
    if step.key is not None:
        has_key = _key_test(step.field.containing_type.fields_by_number[1], step.key)
        return lambda entries: next((get(entry) for entry in reversed(entries) if has_key(entry.f1)), None)
    if not step.field.has_presence:
        return get
    return lambda message: get(message) if message.HasField(place) else None


def _key_test(field: Any, key: str) -> Callable[[Any], bool]:
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return key.encode(errors="replace").__eq__
    return lambda found: key_text(found) == key
