"""Rows as the bytes of a file."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from braid.router.row_text import ndjson
from braid.sources.formats.json_values import json_texts_of, json_values


def encode(table: pa.Table, format: str) -> bytes:
    """Return rows as a file of a format; JSON and CSV write times and decimals alike."""
    if format == "json":
        return ndjson(table)
    sink = io.BytesIO()
    if format == "parquet":
        pq.write_table(table, sink)
        return sink.getvalue()
    texts = [_csv_value(column) for column in table.columns]
    pa.csv.write_csv(pa.Table.from_arrays(texts, table.column_names), sink)
    return sink.getvalue()


def _csv_value(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    kind = column.type
    if pa.types.is_temporal(kind):
        return pa.array(json_values(column), pa.string())
    if pa.types.is_nested(kind) or isinstance(kind, pa.JsonType):
        return pa.array(json_texts_of(column), pa.string())
    return column.cast(pa.string()) if pa.types.is_decimal(kind) else column
