"""Record batches of another process: columns are matched by name, and taken over without a copy when their types fit.

All goes the way of pushed Arrow bodies (:mod:`braid.sources.formats.arrow_checks`,
:mod:`braid.sources.formats.arrow_stream`), so both take the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from braid.sources.core.errors import MalformedRequest
from braid.sources.core.schema import Field, Schema
from braid.sources.formats.arrow_checks import column_at, sound_array, type_at
from braid.sources.formats.arrow_stream import check_castable, decode_arrays
from braid.sources.formats.columns import find_column, one_zero
from braid.sources.formats.decoded import Decoded, whole_batch
from braid.sources.formats.temporal import MAX_DAYS, MAX_US, MIN_DAYS, MIN_US


@dataclass(frozen=True)
class MatchedColumns:
    """Where a stream's columns are in batches of schema ``source``; ``direct`` when all have the stream's types."""

    source: pa.Schema
    schema: Schema
    positions: tuple[int, ...]
    direct: bool

    @property
    def names(self) -> list[str]:
        """What the columns are called in the batches, members of structs with dots."""
        names = (self.source.field(position).name for position in self.positions)
        return [".".join((name, *map(str, f.path[1:]))) for name, f in zip(names, self.schema.read, strict=True)]

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Return the tuples of a batch of schema ``source``, and the rows that are none; rows are "lines", from 1.

        Raises MalformedRequest when the batch is corrupt, TooLarge when it is beyond
        :class:`braid.sources.formats.limits`.
        """
        if any(len(batch.column(position)) != batch.num_rows for position in self.positions):
            raise MalformedRequest("Each column must have as many rows as its batch.")
        arrays = [
            sound_array(column_at(batch.column(position), field), field.name)
            for position, field in zip(self.positions, self.schema.read, strict=True)
        ]
        tuples = _taken_over(arrays, self.schema) if self.direct else None
        if tuples is not None:
            return Decoded(tuples, ())
        return decode_arrays(
            {field.name: array for field, array in zip(self.schema.read, arrays, strict=True)},
            batch.num_rows,
            self.schema,
        )


def match_columns(source: pa.Schema, schema: Schema) -> MatchedColumns:
    """Find the stream's columns in ``source``; MalformedRequest when one is missing or cannot be cast."""
    positions = tuple(_position(source, field.input_name) for field in schema.read)
    kinds = [type_at(source.field(p).type, field) for p, field in zip(positions, schema.read, strict=True)]
    direct = all(_is_direct(kind, field) for kind, field in zip(kinds, schema.read, strict=True))
    for kind, field in zip(kinds, schema.read, strict=True):
        check_castable(kind, field)
    return MatchedColumns(source, schema, positions, direct)


def _position(source: pa.Schema, name: str) -> int:
    try:
        names = source.names
    except UnicodeDecodeError:
        raise MalformedRequest("The names of columns must be UTF-8, got others.") from None
    return find_column(names, name, "The Arrow schema")


def _is_direct(arrow_type: pa.DataType, field: Field) -> bool:
    if field.type.kind == "TIMESTAMP":
        return pa.types.is_timestamp(arrow_type) and arrow_type.unit == "us"  # with a zone it is the same number
    return arrow_type.equals(field.type.arrow)


def _taken_over(arrays: Sequence[pa.Array], schema: Schema) -> pa.RecordBatch | None:
    """Return direct columns as a batch of the stream, or None when some row does not fit."""
    columns: list[pa.Array] = []
    for array, field in zip(arrays, schema.read, strict=True):
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
    return whole_batch(schema, columns)


def _lies_within(numbers: pa.Array, least: int, most: int) -> bool:
    bounds: dict[str, int | None] = pc.min_max(numbers).as_py()
    low, high = bounds["min"], bounds["max"]
    return low is None or high is None or (low >= least and high <= most)
