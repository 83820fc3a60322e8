"""The same rows written in each format, and decoded by the code of it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from braid.sources.core.schema import Schema
from braid.sources.formats import Decoded, decode
from braid.sources.formats.csv_messages import decode_csv_messages
from braid.sources.formats.csv_records import CsvLayout, read_carefully, read_fast, record_ends
from braid.sources.formats.messages import decode_json_messages
from braid.sources.formats.ndjson import WORTH_BYTES
from braid.sources.formats.parquet_rows import ParquetRows
from braid.sources.formats.record_batches import match_columns

NDJSON, JSON, ARROW = "application/x-ndjson", "application/json", "application/vnd.apache.arrow.stream"
Rows = Sequence[Mapping[str, Any]]


def json_lines(rows: Rows, padding: int = 0) -> list[bytes]:
    """Return rows as JSON objects, the first with so many bytes more, in a member that no stream has."""
    return [orjson.dumps({**row, **({"padding": " " * padding} if not i else {})}) for i, row in enumerate(rows)]


def _ndjson(rows: Rows, schema: Schema) -> Decoded:
    return decode(b"\n".join(json_lines(rows)), NDJSON, schema)


def _long_ndjson(rows: Rows, schema: Schema) -> Decoded:
    return decode(b"\n".join(json_lines(rows, WORTH_BYTES)), NDJSON, schema)


def _json(rows: Rows, schema: Schema) -> Decoded:
    return decode(b"[" + b",".join(json_lines(rows)) + b"]", JSON, schema)


def _json_messages(rows: Rows, schema: Schema) -> Decoded:
    return decode_json_messages(json_lines(rows), schema)


def csv_text(rows: Rows) -> str:
    """Return rows as CSV whose first record has the names; NULL is an empty field."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _field(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _field(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value


def _csv(rows: Rows, schema: Schema) -> Decoded:
    text = csv_text(rows).encode()
    end = int(record_ends(text, ",")[0])
    layout, text = CsvLayout.named(text[:end], schema, ","), text[end:]
    carefully = read_carefully(text, schema, layout)
    fast = read_fast(text, schema, layout)
    assert fast is None or (fast.equals(carefully.tuples) and not carefully.malformed)
    return carefully


def _csv_messages(rows: Rows, schema: Schema) -> Decoded:
    declared = ([_field(row.get(f.input_name)) for f in schema.read] for row in rows)
    return decode_csv_messages([_csv_line(values) for values in declared], schema, ",")


def _csv_line(values: Sequence[Any]) -> bytes:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue().encode()


def arrow_table(rows: Rows) -> pa.Table:
    """Return rows as a table, in the types that Arrow infers."""
    return pa.Table.from_pylist(list(rows))


def _arrow(rows: Rows, schema: Schema) -> Decoded:
    table, sink = arrow_table(rows), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return decode(sink.getvalue().to_pybytes(), ARROW, schema)


def _parquet(rows: Rows, schema: Schema) -> Decoded:
    sink = pa.BufferOutputStream()
    pq.write_table(arrow_table(rows), sink)
    parquet = ParquetRows(pa.BufferReader(sink.getvalue()))
    columns = match_columns(parquet.schema, schema)
    (batch,) = parquet.batches(0, columns.names, 1 << 16)
    return match_columns(batch.schema, schema).decode(batch)


Decode = Callable[[Rows, Schema], Decoded]
JSON_FORMATS: dict[str, Decode] = {
    "ndjson": _ndjson,
    "long ndjson": _long_ndjson,
    "json": _json,
    "json messages": _json_messages,
}
CSV_FORMATS: dict[str, Decode] = {"csv": _csv, "csv messages": _csv_messages}
ARROW_FORMATS: dict[str, Decode] = {"arrow": _arrow, "parquet": _parquet}
FORMATS: dict[str, Decode] = {**JSON_FORMATS, **CSV_FORMATS, **ARROW_FORMATS}
