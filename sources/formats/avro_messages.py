"""Messages that come one by one, each a record in Avro's binary encoding, without a header or with a registry's.

Records are decoded one by one, and become columns together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import pyarrow as pa
from fastavro import schemaless_reader

from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import Field, Schema
from braid.sources.formats.arrow_stream import converter_of
from braid.sources.formats.avro_schema import AvroSchema
from braid.sources.formats.columns import nulls
from braid.sources.formats.decoded import Decoded, DecodedColumn
from braid.sources.formats.record_messages import Records, decode_records, field_of, registered, typed_column

_KIND = "a record in Avro"

SchemaOf = Callable[[int], AvroSchema | str]
"""Returns the schema with an id, or why there is none."""


def decode_avro_messages(values: Sequence[bytes | None], schema: Schema, writer: AvroSchema) -> Decoded:
    """Decode records without headers, all written with one schema; they are numbered from 1."""
    reader = partial(_read, schema=schema, writer=writer)
    return decode_records(values, schema, lambda value: (reader, value), _KIND)


def decode_framed_messages(values: Sequence[bytes | None], schema: Schema, schema_of: SchemaOf) -> Decoded:
    """Decode records with headers; they are numbered from 1."""
    reader_of = registered(schema_of, lambda writer: partial(_read, schema=schema, writer=writer))
    return decode_records(values, schema, reader_of, _KIND)


def check_columns(schema: Schema, writer: AvroSchema) -> None:
    """Raise NotAllowed when a column is not in a schema, or of another type there."""
    for field in schema.read:
        name = field_of(list(writer.columns), field.input_name)
        if name is None:
            names = ", ".join(map(repr, list(writer.columns)[:50]))
            raise NotAllowed(f"Column {field.name!r} must be a field of the Avro schema, which has {names}.")
        kind = _kind(writer, name, field)
        if kind is not None and converter_of(kind, field) is None:
            raise NotAllowed(f"Column {field.name!r} must be castable to {field.type}; the Avro schema has {kind}.")


def _read(records: Sequence[bytes], schema: Schema, writer: AvroSchema) -> Records:
    unreadable: dict[int, str] = {}
    rows = [_row(i, record, writer, unreadable) for i, record in enumerate(records)]
    return Records([_column(field, rows, writer) for field in schema.read], unreadable)


def _row(i: int, record: bytes, writer: AvroSchema, unreadable: dict[int, str]) -> Any:
    """Return a record, an empty one where it cannot be read; ``unreadable`` gets the reason."""
    source = BytesIO(record)
    try:
        row = schemaless_reader(source, writer.parsed, None)
    except Exception as problem:  # what garbage makes the library raise is not documented
        unreadable[i] = f" must be a record in Avro: {str(problem)[:200] or type(problem).__name__}"
        return {}
    if source.tell() != len(record):
        unreadable[i] = f" must be one record in Avro; {len(record) - source.tell()} bytes follow it"
        return {}
    return row


def _column(field: Field, rows: Sequence[Any], writer: AvroSchema) -> DecodedColumn:
    """Return a column; one that the writer's schema lacks is NULL."""
    name = field_of(list(writer.columns), field.input_name)
    if name is None:
        return nulls(len(rows), field)
    return typed_column(field, [row.get(name) for row in rows], _kind(writer, name, field), "Avro")


def _kind(writer: AvroSchema, name: str, field: Field) -> pa.DataType | None:
    """Return the Arrow type of a field's values; None where they are read one by one, as JSON is."""
    return None if field.type.kind == "JSON" else writer.columns[name]
