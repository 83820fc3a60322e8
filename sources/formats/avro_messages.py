"""Messages that come one by one, each a record in Avro's binary encoding, without a header or with a registry's.

Records are decoded one by one, and become columns together. A header is the byte 0 and the id of the writer's schema,
in four bytes, the most significant first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
from fastavro import schemaless_reader

from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import Field, Schema
from braid.sources.formats.arrow_stream import converter_of
from braid.sources.formats.avro_schema import AvroSchema
from braid.sources.formats.binary import show_bytes
from braid.sources.formats.columns import convert_values, nulls
from braid.sources.formats.decoded import Decoded, DecodedColumn, assemble

_HEADER = struct.Struct(">bI")
_NO_SCHEMA = AvroSchema(None, {})
_UNFIT = (pa.ArrowException, OverflowError, ValueError, TypeError)

SchemaOf = Callable[[int], AvroSchema | str]
"""Returns the schema with an id, or why there is none."""


def decode_avro_messages(values: Sequence[bytes | None], schema: Schema, writer: AvroSchema) -> Decoded:
    """Decode records without headers, all written with one schema; they are numbered from 1."""
    unreadable: dict[int, str] = {}
    rows = [_read(i, value, 0, writer, unreadable) for i, value in enumerate(values)]
    return _assembled(schema, _columns(schema, rows, writer), unreadable, values)


def decode_framed_messages(values: Sequence[bytes | None], schema: Schema, schema_of: SchemaOf) -> Decoded:
    """Decode records with headers; they are numbered from 1."""
    unreadable: dict[int, str] = {}
    schemas: dict[int, AvroSchema | str] = {}
    groups: dict[int | None, list[int]] = {}  # of messages, by their schema; None for those without a usable one
    rows: list[Any] = []
    for i, value in enumerate(values):
        number = _schema_id(value)
        writer: AvroSchema | str = " must begin with byte 0 and the id of a schema"
        if number is not None:
            if number not in schemas:
                schemas[number] = schema_of(number)
            writer = schemas[number]
        if isinstance(writer, str):
            unreadable[i], number = writer, None
            rows.append({})
        else:
            rows.append(_read(i, value, _HEADER.size, writer, unreadable))
        groups.setdefault(number, []).append(i)
    if len(groups) == 1:
        (number,) = groups
        return _assembled(schema, _columns(schema, rows, _writer_of(schemas, number)), unreadable, values)
    parts = [
        (members, _columns(schema, [rows[i] for i in members], _writer_of(schemas, number)))
        for number, members in groups.items()
    ]
    return _assembled(schema, _merged(schema, parts), unreadable, values)


def check_columns(schema: Schema, writer: AvroSchema) -> None:
    """Raise NotAllowed when a column is not in a schema, or of another type there."""
    for field in schema.read:
        name = _field_of(writer, field.input_name)
        if name is None:
            names = ", ".join(map(repr, list(writer.columns)[:50]))
            raise NotAllowed(f"Column {field.name!r} must be a field of the Avro schema, which has {names}.")
        kind = writer.columns[name]
        if kind is not None and converter_of(kind, field) is None:
            raise NotAllowed(f"Column {field.name!r} must be castable to {field.type}; the Avro schema has {kind}.")


def _read(i: int, value: bytes | None, start: int, writer: AvroSchema, unreadable: dict[int, str]) -> Any:
    """Return a record, an empty one where it cannot be read; ``unreadable`` gets the reason."""
    if value is None:
        unreadable[i] = " must be a record in Avro, got no value"
        return {}
    source = BytesIO(value)
    source.seek(start)
    try:
        row = schemaless_reader(source, writer.parsed, None)
    except Exception as problem:  # what garbage makes the library raise is not documented
        unreadable[i] = f" must be a record in Avro: {str(problem)[:200] or type(problem).__name__}"
        return {}
    if source.tell() != len(value):
        unreadable[i] = f" must be one record in Avro; {len(value) - source.tell()} bytes follow it"
        return {}
    return row


def _schema_id(value: bytes | None) -> int | None:
    if value is None or len(value) < _HEADER.size or value[0] != 0:
        return None
    return int(_HEADER.unpack_from(value)[1])


def _writer_of(schemas: Mapping[int, AvroSchema | str], number: int | None) -> AvroSchema:
    writer = None if number is None else schemas[number]
    return writer if isinstance(writer, AvroSchema) else _NO_SCHEMA


def _columns(schema: Schema, rows: Sequence[Any], writer: AvroSchema) -> list[DecodedColumn]:
    """Return the columns of records; one that their schema lacks is NULL."""
    return [_column(field, rows, writer) for field in schema.read]


def _column(field: Field, rows: Sequence[Any], writer: AvroSchema) -> DecodedColumn:
    name = _field_of(writer, field.input_name)
    if name is None:
        return nulls(len(rows), field)
    values, kind = [row.get(name) for row in rows], writer.columns[name]
    if kind is None:
        return convert_values(field, values)
    convert = converter_of(kind, field)
    if convert is None:
        reason = f"column {field.name!r} must be castable to {field.type}, the Avro schema has {kind}"
        return DecodedColumn(nulls(len(rows), field).values, dict.fromkeys(range(len(rows)), reason))
    try:
        return convert(pa.array(values, kind), field)
    except _UNFIT:
        return _one_by_one(field, values, kind)


def _one_by_one(field: Field, values: Sequence[Any], kind: pa.DataType) -> DecodedColumn:
    """Return a column of which some values are not what their schema says."""
    fitting: list[Any] = []
    errors: dict[int, str] = {}
    for i, value in enumerate(values):
        try:
            pa.array([value], kind)
            fitting.append(value)
        except _UNFIT as problem:
            fitting.append(None)
            errors[i] = f"column {field.name!r} must hold values of Avro's type: {str(problem)[:200]}"
    convert = converter_of(kind, field)
    assert convert is not None
    column = convert(pa.array(fitting, kind), field)
    return DecodedColumn(column.values, {**column.errors, **errors})


def _merged(schema: Schema, parts: Sequence[tuple[list[int], list[DecodedColumn]]]) -> list[DecodedColumn]:
    """Bring columns of several schemas into the order of messages."""
    order = pa.array(np.argsort(np.concatenate([members for members, _ in parts])))
    return [
        DecodedColumn(
            pa.concat_arrays([columns[k].values for _, columns in parts]).take(order),
            {members[i]: reason for members, columns in parts for i, reason in columns[k].errors.items()},
        )
        for k in range(len(schema.read))
    ]


def _field_of(writer: AvroSchema, name: str) -> str | None:
    """Return the field of exactly that name, else the only one that differs in case only."""
    if name in writer.columns:
        return name
    similar = [field for field in writer.columns if field.lower() == name.lower()]
    return similar[0] if len(similar) == 1 else None


def _assembled(
    schema: Schema, columns: Sequence[DecodedColumn], unreadable: Mapping[int, str], values: Sequence[bytes | None]
) -> Decoded:
    return assemble(
        schema,
        columns,
        unreadable,
        lambda i: f"line {i + 1}",
        lambda i: i + 1,
        lambda wrong: [show_bytes(values[i]) for i in wrong],
    )
