"""Messages that come one by one, each a record that the schema of its writer says how to read.

A schema comes with the stream, or from a registry: then messages begin with a header, the byte 0 and the id of the
schema in four bytes, the most significant first. Messages of one schema become columns together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from braid.sources.core.schema import Field, Schema
from braid.sources.formats.arrow_stream import converter_of
from braid.sources.formats.binary import show_bytes
from braid.sources.formats.columns import convert_values, nulls
from braid.sources.formats.decoded import Decoded, DecodedColumn, assemble

HEADER_BYTES = 5
NO_HEADER = " must begin with byte 0 and the id of a schema"
RECORDS_AT_ONCE = 2000  # as objects; with more that live at a time each takes half as long again
UNFIT = (pa.ArrowException, OverflowError, ValueError, TypeError)


@dataclass(frozen=True)
class Records:
    """The columns of some records, in the order of ``schema.read``, and why some could not be read (index from 0)."""

    columns: Sequence[DecodedColumn]
    unreadable: Mapping[int, str]


Reader = Callable[[Sequence[bytes]], Records]
ReaderOf = Callable[[bytes], tuple[Reader, bytes] | str]
"""Returns what reads a message, the same for those of one schema, and its record; or why nothing does."""
S = TypeVar("S")


def decode_records(values: Sequence[bytes | None], schema: Schema, reader_of: ReaderOf, kind: str) -> Decoded:
    """Decode messages, each ``kind`` ("a record in Avro"); they are numbered from 1."""
    unreadable: dict[int, str] = {}
    groups: dict[Reader, tuple[list[int], list[bytes]]] = {}
    for i, value in enumerate(values):
        found = f" must be {kind}, got no value" if value is None else reader_of(value)
        if isinstance(found, str):
            unreadable[i] = found
            continue
        reader, record = found
        members, records = groups.setdefault(reader, ([], []))
        members.append(i)
        records.append(record)
    parts = [(list(unreadable), [nulls(len(unreadable), field) for field in schema.read])] if unreadable else []
    for reader, (members, records) in groups.items():
        for first in range(0, len(records), RECORDS_AT_ONCE):
            read = reader(records[first : first + RECORDS_AT_ONCE])
            unreadable |= {members[first + i]: reason for i, reason in read.unreadable.items()}
            parts.append((members[first : first + RECORDS_AT_ONCE], list(read.columns)))
    columns = parts[0][1] if len(parts) == 1 else _merged(schema, parts)
    return assemble(
        schema,
        columns,
        unreadable,
        lambda i: f"line {i + 1}",
        lambda i: i + 1,
        lambda wrong: [show_bytes(values[i]) for i in wrong],
    )


def schema_id(value: bytes) -> int | None:
    """Return the id in the header of a message, None where it has no header."""
    return int.from_bytes(value[1:HEADER_BYTES], "big") if len(value) >= HEADER_BYTES and not value[0] else None


def registered(schema_of: Callable[[int], S | str], reader_for: Callable[[S], Reader]) -> ReaderOf:
    """Return what finds the readers of messages with headers, given what finds schemas by their ids."""
    readers: dict[int, Reader] = {}

    def reader_of(value: bytes) -> tuple[Reader, bytes] | str:
        number = schema_id(value)
        if number is None:
            return NO_HEADER
        if number not in readers:
            found = schema_of(number)
            if isinstance(found, str):
                return found
            readers[number] = reader_for(found)
        return readers[number], value[HEADER_BYTES:]

    return reader_of


def typed_column(field: Field, values: Sequence[Any], kind: pa.DataType | None, written: str) -> DecodedColumn:
    """Return values of one Arrow type, or of any where that is None, as a column of the stream.

    ``written`` names what the writer has, "Avro": its schema or its types.
    """
    if kind is None:
        return convert_values(field, values)
    convert = converter_of(kind, field)
    if convert is None:
        reason = f"column {field.name!r} must be castable to {field.type}, the {written} schema has {kind}"
        return DecodedColumn(nulls(len(values), field).values, dict.fromkeys(range(len(values)), reason))
    try:
        return convert(pa.array(values, kind), field)
    except UNFIT:
        return _one_by_one(field, values, kind, written)


def field_of(names: Sequence[str], name: str) -> str | None:
    """Return the field of exactly that name, else the only one that differs in case only."""
    if name in names:
        return name
    similar = [field for field in names if field.lower() == name.lower()]
    return similar[0] if len(similar) == 1 else None


def _one_by_one(field: Field, values: Sequence[Any], kind: pa.DataType, written: str) -> DecodedColumn:
    """Return a column of which some values are not what their schema says."""
    fitting: list[Any] = []
    errors: dict[int, str] = {}
    for i, value in enumerate(values):
        try:
            pa.array([value], kind)
            fitting.append(value)
        except UNFIT as problem:
            fitting.append(None)
            errors[i] = f"column {field.name!r} must hold values of {written}'s type: {str(problem)[:200]}"
    convert = converter_of(kind, field)
    assert convert is not None
    column = convert(pa.array(fitting, kind), field)
    return DecodedColumn(column.values, {**column.errors, **errors})


def _merged(schema: Schema, parts: Sequence[tuple[list[int], list[DecodedColumn]]]) -> list[DecodedColumn]:
    """Bring columns of several schemas and pieces into the order of messages."""
    if not parts:
        return [nulls(0, field) for field in schema.read]
    numbers = np.concatenate([members for members, _ in parts])
    order = None if (np.diff(numbers) > 0).all() else pa.array(np.argsort(numbers))
    return [
        DecodedColumn(
            _in_order(pa.concat_arrays([columns[k].values for _, columns in parts]), order),
            {members[i]: reason for members, columns in parts for i, reason in columns[k].errors.items()},
        )
        for k in range(len(schema.read))
    ]


def _in_order(values: pa.Array, order: pa.Array | None) -> pa.Array:
    return values if order is None else values.take(order)
