"""Rows of Parquet files of others: what the footer says must be true, and times of INT96 are right or refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sources.errors import MalformedRequest


class ParquetRows:
    """A Parquet file; ``groups`` are the rows of each row group.

    INT96 counts nanoseconds, of years that 64 bits cannot count so finely: it is read as microseconds.
    """

    def __init__(self, source: Any) -> None:
        """Read the footer; MalformedRequest when there is none, or it contradicts itself."""
        self._source = source
        try:
            self._file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
            metadata = self._file.metadata
            self.groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
            self.schema: pa.Schema = self._file.schema_arrow
        except Exception as problem:  # what garbage makes the library raise is not documented
            raise _unreadable(problem) from None
        if min(self.groups, default=0) < 0 or sum(self.groups) != metadata.num_rows:
            raise MalformedRequest(
                f"The row groups of Parquet must have the {metadata.num_rows} rows of the file together; they say"
                f" {sum(self.groups)}."
            )

    @property
    def unpacked_bytes(self) -> int:
        """How many bytes all columns have unpacked, as the footer says."""
        metadata = self._file.metadata
        return sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))

    def batches(self, group: int, names: Sequence[str], rows_at_once: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group; MalformedRequest when they cannot be read, or are not as many as it says."""
        rows = 0
        try:
            in_seconds = self._int96_in_seconds(group, names, rows_at_once)
            for batch in self._file.iter_batches(rows_at_once, [group], list(names)):
                if in_seconds is not None:
                    _check_not_wrapped(batch, next(in_seconds))
                rows += batch.num_rows
                yield batch
        except MalformedRequest:
            raise
        except Exception as problem:  # as above
            raise _unreadable(problem) from None
        if rows != self.groups[group]:
            raise MalformedRequest(f"Row group {group} of Parquet must have {self.groups[group]} rows; it has {rows}.")

    def _int96_in_seconds(self, group: int, names: Sequence[str], rows_at_once: int) -> Any:
        """Return the columns of INT96 in seconds, which hold all of its days; None without any."""
        columns = [self._file.schema.column(i) for i in range(len(self._file.schema.names))]
        wanted = [c.name for c in columns if c.physical_type == "INT96" and c.path == c.name and c.name in names]
        if not wanted:
            return None
        coarse = pq.ParquetFile(self._source, coerce_int96_timestamp_unit="s")
        return coarse.iter_batches(rows_at_once, [group], wanted)


def _check_not_wrapped(batch: pa.RecordBatch, in_seconds: pa.RecordBatch) -> None:
    """Raise MalformedRequest where microseconds of INT96 are beyond 64 bits, and so became other times."""
    for name in in_seconds.schema.names:
        fine, coarse = (np.asarray(part.column(name).view(pa.int64()).fill_null(0)) for part in (batch, in_seconds))
        wrapped = np.flatnonzero(fine // 1_000_000 != coarse)
        if len(wrapped):
            raise MalformedRequest(
                f"Times of column {name!r} must be of the years 1 to 9999; row {wrapped[0] + 1} of a batch is one of"
                f" second {coarse[wrapped[0]]} since 1970."
            )


def _unreadable(problem: Exception) -> MalformedRequest:
    return MalformedRequest(f"It must be Parquet: {str(problem)[:200]}.")
