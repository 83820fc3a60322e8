"""What pandas writes of a data frame arrives as the frame is: missing integers, NaN, quotes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braid.sources.core.schema import BIGINT, BOOLEAN, DOUBLE, INT, TIMESTAMP, VARCHAR, ColumnType, Field, StreamSchema
from braid.sources.formats import Decoded, decode
from braid.sources.formats.csv_document import decode_csv
from braid.sources.formats.csv_records import CsvLayout, read_carefully, read_fast
from braid.sources.formats.parquet_rows import ParquetRows
from braid.sources.formats.record_batches import match_columns

SCHEMA = StreamSchema(
    (
        Field("id", BIGINT),
        Field("pack", INT),
        Field("price", DOUBLE),
        Field("amount", ColumnType("DECIMAL", 8, 2)),
        Field("name", VARCHAR),
        Field("ok", BOOLEAN),
        Field("t", TIMESTAMP),
    ),
    "t",
    0,
)
# a column of integers that lacks one is a column of doubles in pandas
FRAME = pd.DataFrame(
    {
        "id": [517.0, np.nan, -3.0, 2.0**50],
        "pack": [1.0, 2.0, np.nan, 4.0],
        "price": [0.5, np.nan, 1e300, -2.0],
        "amount": [1.25, 2.0, np.nan, 0.1],
        "name": ["a", None, "b, c", 'd "e"'],
        "ok": [True, False, True, False],
        "t": pd.date_range("2026-01-01", periods=4, freq="h"),
    }
)


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame, NaN as None, whole numbers as such."""
    rows: list[dict[str, Any]] = []
    for row in frame.astype(object).where(frame.notna(), None).to_dict("records"):
        plain: dict[str, Any] = {str(name): value for name, value in row.items()}
        for name in ("id", "pack"):
            plain[name] = None if plain[name] is None else int(plain[name])
        amount = plain["amount"]
        rows.append({**plain, "amount": None if amount is None else round(amount, 2), "t": plain["t"].to_pydatetime()})
    return rows


def _csv(**options: Any) -> Callable[[pd.DataFrame], Decoded]:
    def read(frame: pd.DataFrame) -> Decoded:
        text = frame.to_csv(index=False, **options).encode()
        names, _, records = text.partition(b"\n")
        layout = CsvLayout.named(names, SCHEMA, ",")
        carefully, fast = read_carefully(records, SCHEMA, layout), read_fast(records, SCHEMA, layout)
        assert fast is None or fast.equals(carefully.tuples)
        assert decode_csv(text, SCHEMA).tuples.equals(carefully.tuples)
        return carefully

    return read


def _json(frame: pd.DataFrame) -> Decoded:
    text = frame.to_json(orient="records", lines=True, date_format="iso")
    return decode(text.encode(), "application/x-ndjson", SCHEMA)


def _arrow(*, nan_is_null: bool) -> Callable[[pd.DataFrame], Decoded]:
    def read(frame: pd.DataFrame) -> Decoded:
        columns = {
            name: pa.array(frame[name], from_pandas=nan_is_null or frame[name].dtype == object) for name in frame
        }
        table, sink = pa.table(columns), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return decode(sink.getvalue().to_pybytes(), "application/vnd.apache.arrow.stream", SCHEMA)

    return read


def _parquet(frame: pd.DataFrame) -> Decoded:
    file = io.BytesIO()
    frame.to_parquet(file)
    parquet = ParquetRows(pa.BufferReader(file.getvalue()))
    (batch,) = parquet.batches(0, match_columns(parquet.schema, SCHEMA).names, 1000)
    return match_columns(batch.schema, SCHEMA).decode(batch)


WRITERS: dict[str, Callable[[pd.DataFrame], Decoded]] = {
    "csv": _csv(),
    "csv in quotes": _csv(quoting=csv.QUOTE_NONNUMERIC),
    "csv with NaN": _csv(na_rep="NaN"),
    "json lines": _json,
    "arrow": _arrow(nan_is_null=True),
    "arrow with NaN": _arrow(nan_is_null=False),
    "parquet": _parquet,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_frame_arrives_as_it_is(writer: str) -> None:
    decoded = WRITERS[writer](FRAME)
    assert decoded.malformed == ()
    expected = rows_of(FRAME)
    if writer == "csv in quotes":
        expected[1]["name"] = ""  # a text in quotes is one, also without characters
    if writer == "csv with NaN":
        expected[1]["name"] = "NaN"
    rows = decoded.tuples.to_pylist()
    for row in rows:
        row["amount"] = None if row["amount"] is None else float(row["amount"])
    assert rows == expected


@pytest.mark.parametrize("writer", WRITERS)
def test_a_fraction_in_a_column_of_integers_is_malformed_alone(writer: str) -> None:
    frame = FRAME.copy()
    frame.loc[2, "id"] = 517.5
    decoded = WRITERS[writer](frame)
    assert decoded.tuples.num_rows == 3
    (fault,) = decoded.malformed
    assert fault.line == 3
    assert "column 'id' must be a BIGINT, got 517.5 (it must be whole" in fault.detail


def test_long_files_of_whole_doubles_take_the_fast_way() -> None:
    frame = pd.DataFrame(
        {"id": [float(n) for n in range(3000)], "pack": [np.nan] * 3000, "t": ["2026-01-01T00:00:00Z"] * 3000}
    )
    schema = StreamSchema((Field("id", BIGINT), Field("pack", INT), Field("t", TIMESTAMP)), "t", 0)
    text = frame.to_csv(index=False, header=False, quoting=csv.QUOTE_ALL).encode()
    fast = read_fast(text, schema, CsvLayout.declared(schema, ","))
    assert fast is not None
    assert fast.column("id").to_pylist() == list(range(3000))
    assert fast.column("pack").null_count == 3000
    table = pq.ParquetFile(io.BytesIO(frame.to_parquet())).read()
    assert match_columns(table.schema, schema).decode(table.to_batches()[0]).tuples.equals(fast)
