"""Parquet files: rows are counted by what the footer says, and read by row group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from braid.sources.connectors.files.index import IndexedFile
from braid.sources.connectors.files.reading import FilePiece, Scan
from braid.sources.core.schema import Schema
from braid.sources.formats.parquet_rows import ParquetRows
from braid.sources.formats.record_batches import match_columns

ROWS_AT_ONCE = 1 << 16


class ParquetFormat:
    """Rows of Parquet; columns are found by name, and must have types that can be cast without a change of values."""

    unit = "row"

    def __init__(self, schema: Schema, rows_at_once: int = ROWS_AT_ONCE) -> None:
        self._schema = schema
        self._rows_at_once = rows_at_once

    def scan(self, source: Any, size: int) -> Scan:  # noqa: ARG002
        """Check the columns and read how many rows there are."""
        parquet = ParquetRows(source)
        match_columns(parquet.schema, self._schema)
        return Scan(sum(parquet.groups))

    def read(self, source: Any, file: IndexedFile, start: int, end: int) -> Iterator[FilePiece]:
        """Yield rows; of a row group what comes before ``start`` is decoded in vain."""
        parquet = ParquetRows(source)
        names = match_columns(parquet.schema, self._schema).names
        first = 0
        for group, rows in enumerate(parquet.groups):
            if first < end and start < first + rows:
                row = first
                for batch in parquet.batches(group, names, self._rows_at_once):
                    low, high = max(start - row, 0), min(end - row, batch.num_rows)
                    if low < high:
                        columns = match_columns(batch.schema, self._schema)
                        decoded = columns.decode(batch.slice(low, high - low))
                        size = _size_upto(file, row + high) - _size_upto(file, row + low)
                        yield FilePiece(row + low, high - low, decoded, size)
                    row += batch.num_rows
                    if row >= end:
                        break
            first += rows


def _size_upto(file: IndexedFile, row: int) -> int:
    return file.size * row // file.records
