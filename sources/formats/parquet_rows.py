"""Rows of Parquet files of others: what the footer says must be true, and times of INT96 are right or refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from braid.sources.core.errors import MalformedRequest

TEXT_BYTES = 64 << 20  # that texts of dictionaries take at once
PAGE_BYTES = 1 << 16


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
        """Yield the rows of a row group, ``rows_at_once`` or fewer at a time.

        Raises MalformedRequest when they cannot be read, or are not as many as the footer says.
        """
        rows = 0
        try:
            rows_at_once = max(min(rows_at_once, TEXT_BYTES // max(self._longest_texts(group, names), 1)), 1)
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

    def _longest_texts(self, group: int, names: Sequence[str]) -> int:
        """Return how many bytes the longest texts in the dictionaries of a row group have, one of each column.

        A text in a dictionary takes few bytes in each row, and all of its own once the row is read. A first row is
        enough to see the dictionary.
        """
        texts = self._columns("BYTE_ARRAY", names)
        if not texts or not self.groups[group]:
            return 0
        streamed = pq.ParquetFile(
            self._source,
            metadata=self._file.metadata,
            read_dictionary=texts,
            buffer_size=PAGE_BYTES,
            pre_buffer=False,
        )
        first = next(streamed.iter_batches(1, [group], texts))
        dictionaries = (array.dictionary for column in first.columns for array in _dictionaries(column))
        return int(sum(pc.max(pc.binary_length(texts)).as_py() or 0 for texts in dictionaries))

    def _int96_in_seconds(self, group: int, names: Sequence[str], rows_at_once: int) -> Any:
        """Return the columns of INT96 in seconds, which hold all of its days; None without any."""
        wanted = self._columns("INT96", names)
        if not wanted:
            return None
        if not set(wanted) <= set(self.schema.names):
            raise MalformedRequest("Times of INT96 in structs and lists are not read. Write them as TIMESTAMP.")
        coarse = pq.ParquetFile(self._source, coerce_int96_timestamp_unit="s")
        return coarse.iter_batches(rows_at_once, [group], wanted)

    def _columns(self, kind: str, names: Sequence[str]) -> list[str]:
        """Return which of some columns, members of structs with dots, are of one of Parquet's types.

        Only the schema is asked: what the metadata says of the chunks of a column ends the process where it is wrong.
        """
        columns = [self._file.schema.column(number) for number in range(len(self._file.schema.names))]
        is_named = [c.path in names or c.path.partition(".")[0] in names for c in columns]
        return [c.path for c, named in zip(columns, is_named, strict=True) if c.physical_type == kind and named]


def _dictionaries(array: Any) -> Iterator[pa.DictionaryArray]:
    """Yield an array if it is a dictionary, and those in its parts."""
    if isinstance(array, pa.DictionaryArray):
        yield array
    elif pa.types.is_struct(array.type):
        for member in array.flatten():
            yield from _dictionaries(member)
    elif pa.types.is_map(array.type):
        yield from _dictionaries(array.keys)
        yield from _dictionaries(array.items)
    elif pa.types.is_list(array.type):
        yield from _dictionaries(array.values)


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
