"""Rows as the bytes of a file."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from braid.router.row_text import ndjson, values


def encode(table: pa.Table, format: str) -> bytes:
    """Return rows as a file of a format; JSON and CSV write times and decimals alike."""
    if format == "json":
        return ndjson(table)
    sink = io.BytesIO()
    if format == "parquet":
        pq.write_table(table, sink)
        return sink.getvalue()
    texts = [
        pa.array(values(column), pa.string()) if pa.types.is_temporal(column.type) else _csv_value(column)
        for column in table.columns
    ]
    pa.csv.write_csv(pa.Table.from_arrays(texts, table.column_names), sink)
    return sink.getvalue()


def _csv_value(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_decimal(column.type) else column
