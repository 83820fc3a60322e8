"""Record batches of another process: columns are matched by name, and taken over without a copy when their types fit.

What does not fit goes the way of pushed Arrow bodies (:mod:`sources.formats.arrow_stream`), so both take the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sources.errors import MalformedRequest
from sources.formats.arrow_stream import decode_arrow_stream
from sources.formats.columns import find_column, one_zero
from sources.formats.decoded import Decoded
from sources.formats.temporal import MAX_DAYS, MAX_US, MIN_DAYS, MIN_US
from sources.schema import Field, Schema


@dataclass(frozen=True)
class MatchedColumns:
    """Where a stream's columns are in batches of schema ``source``; ``direct`` when all have the stream's types."""

    source: pa.Schema
    schema: Schema
    positions: tuple[int, ...]
    direct: bool

    @property
    def names(self) -> list[str]:
        """What the columns are called in the batches."""
        return [self.source.field(position).name for position in self.positions]

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Return the tuples of a batch of schema ``source``, and the rows that are none; rows are "lines", from 1.

        Raises MalformedRequest when the batch is corrupt.
        """
        arrays = [batch.column(position) for position in self.positions]
        try:
            for array in arrays:
                array.validate(full=True)
        except pa.ArrowInvalid as problem:
            raise MalformedRequest(f"Columns must hold values of their types: {str(problem)[:200]}.") from None
        tuples = _taken_over(arrays, self.schema) if self.direct else None
        if tuples is not None:
            return Decoded(tuples, ())
        renamed = pa.RecordBatch.from_arrays(arrays, names=list(self.schema.names))
        return decode_arrow_stream(_stream_of(renamed.schema, [renamed]), self.schema)


def match_columns(source: pa.Schema, schema: Schema) -> MatchedColumns:
    """Find the stream's columns in ``source``; MalformedRequest when one is missing or cannot be cast."""
    positions = tuple(_position(source, field.name) for field in schema.fields)
    kinds = [source.field(position).type for position in positions]
    direct = all(_is_direct(kind, field) for kind, field in zip(kinds, schema.fields, strict=True))
    if not direct:  # no row is enough to see whether types can be cast
        decode_arrow_stream(_stream_of(pa.schema(list(zip(schema.names, kinds, strict=True))), []), schema)
    return MatchedColumns(source, schema, positions, direct)


def _position(source: pa.Schema, name: str) -> int:
    try:
        names = source.names
    except UnicodeDecodeError:
        raise MalformedRequest("The names of columns must be UTF-8, got others.") from None
    return find_column(names, name)


def _is_direct(arrow_type: pa.DataType, field: Field) -> bool:
    if field.type.kind == "TIMESTAMP":
        return pa.types.is_timestamp(arrow_type) and arrow_type.unit == "us"  # with a zone it is the same number
    return arrow_type.equals(field.type.arrow)


def _taken_over(arrays: Sequence[pa.Array], schema: Schema) -> pa.RecordBatch | None:
    """Return direct columns as a batch of the stream, or None when some row does not fit."""
    columns: list[pa.Array] = []
    for array, field in zip(arrays, schema.fields, strict=True):
        kind = field.type.kind
        if kind == "DOUBLE":
            if pc.all(pc.is_finite(array)).as_py() is False:
                return None
            columns.append(one_zero(array))
        elif kind == "TIMESTAMP":
            if not _lies_within(array.view(pa.int64()), MIN_US, MAX_US):
                return None
            columns.append(array.view(pa.timestamp("us")))
        elif kind == "DATE" and not _lies_within(array.view(pa.int32()), MIN_DAYS, MAX_DAYS):
            return None
        else:
            columns.append(array)
    batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    return None if any(batch.column(name).null_count for name in schema.required) else batch


def _lies_within(numbers: pa.Array, least: int, most: int) -> bool:
    bounds: dict[str, int | None] = pc.min_max(numbers).as_py()
    low, high = bounds["min"], bounds["max"]
    return low is None or high is None or (low >= least and high <= most)


def _stream_of(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> Any:
    """Return batches as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()
