"""Frames of pandas, Polars and Arrow: as bodies of pushes, as declarations of streams, and out of results.

A frame is any object with Arrow's PyCapsule interface. pyarrow is imported when a frame is first seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

if TYPE_CHECKING:
    import pyarrow as pa

MAX_BODY_BYTES = 16 << 20
"""Larger frames are pushed in several requests; the service takes 64 MiB by default."""
_INDEX = "__index_level_"
_MOST_DIGITS = 38


class Frame(Protocol):
    """A frame of any library."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows."""


@dataclass(frozen=True)
class ArrowPage:
    """Rows as an Arrow table; `cursor`, `end` and `gap` are as in a ResultPage, the gap as a sentence."""

    table: pa.Table
    cursor: str
    end: bool
    gap: str | None = None


def is_frame(value: Any) -> TypeGuard[Frame]:
    """Whether a value is a frame."""
    return hasattr(value, "__arrow_c_stream__")


def library(name: str, use: str) -> Any:
    """Import an optional library; ImportError says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        raise ImportError(f"{use} needs {name}: pip install {name}") from None


def arrow_of(frame: Frame) -> pa.Table:
    """Return a frame as an Arrow table, without an index that has no name."""
    pyarrow = library("pyarrow", "a frame")
    table = pyarrow.table(frame)
    return table.drop_columns([name for name in table.column_names if name.startswith(_INDEX)])


def bodies_of(frame: Frame, max_bytes: int = MAX_BODY_BYTES) -> Iterator[bytes]:
    """Yield Arrow IPC streams of about `max_bytes` or fewer that have the rows of a frame; at least one."""
    table = arrow_of(frame)
    pyarrow = library("pyarrow", "a frame")
    rows_at_once = max(1, table.num_rows * max_bytes // max(table.nbytes, max_bytes))
    for first in range(0, max(table.num_rows, 1), rows_at_once):
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(first, rows_at_once))
        yield sink.getvalue().to_pybytes()


def table_of(body: bytes) -> pa.Table:
    """Read an Arrow IPC stream."""
    pyarrow = library("pyarrow", "a result as Arrow")
    with pyarrow.ipc.open_stream(body) as reader:
        return reader.read_all()


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of several pages, one at least, as one table."""
    return library("pyarrow", "a result as Arrow").concat_tables(tables)


def declaration(frame: Frame, name: str, time: str | None = None, lateness_seconds: float | None = None) -> str:
    """Return the CREATE STREAM statement for rows like those of a frame.

    `time` is the column of the event time; it may be left out where only one holds times. The lateness is by default
    how far the rows of the frame are out of order, in whole seconds. Raises ValueError where a column does not fit.
    """
    table = arrow_of(frame)
    types = {field.name: sql_type(field.type, field.name) for field in table.schema}
    times = [column for column, kind in types.items() if kind == "TIMESTAMP"]
    if time is None and len(times) == 1:
        time = times[0]
    if time not in times:
        known = ", ".join(map(repr, times)) or "none: convert one, as with pandas.to_datetime"
        raise ValueError(f"time must name a column of timestamps, got {time!r}; of timestamps are {known}")
    if lateness_seconds is None:
        lateness_seconds = math.ceil(_disorder_seconds(table.column(time)))
    late = f" LATENESS INTERVAL '{lateness_seconds:.15g}' SECOND"
    columns = [f"{_quoted(column)} {kind}{late if column == time else ''}" for column, kind in types.items()]
    return f"CREATE STREAM {_quoted(name)} ({', '.join(columns)}) WITH (connector = 'push', format = 'json')"


def sql_type(arrow_type: pa.DataType, column: str) -> str:
    """Return the SQL type that holds all values of an Arrow type; ValueError where none does."""
    kinds = library("pyarrow", "a frame").types
    if kinds.is_dictionary(arrow_type):
        return sql_type(arrow_type.value_type, column)
    if kinds.is_decimal(arrow_type) and arrow_type.precision <= _MOST_DIGITS and arrow_type.scale >= 0:
        return f"DECIMAL({arrow_type.precision}, {arrow_type.scale})"
    if kinds.is_list(arrow_type) or kinds.is_large_list(arrow_type) or kinds.is_fixed_size_list(arrow_type):
        return f"ARRAY<{sql_type(arrow_type.value_type, column)}>"
    if kinds.is_map(arrow_type) and sql_type(arrow_type.key_type, column) == "VARCHAR":
        return f"MAP<VARCHAR, {sql_type(arrow_type.item_type, column)}>"
    if kinds.is_struct(arrow_type):
        members = (f"{_quoted(field.name)} {sql_type(field.type, column)}" for field in arrow_type)
        return f"STRUCT<{', '.join(members)}>"
    for tests, kind in _SQL_TYPES:
        if any(getattr(kinds, f"is_{test}")(arrow_type) for test in tests):
            return kind
    raise ValueError(f"column {column!r} must have a type that SQL has, got {arrow_type}: cast or drop it")


_SQL_TYPES = (
    (("boolean",), "BOOLEAN"),
    (("int8", "int16", "int32", "uint8", "uint16"), "INT"),
    (("int64", "uint32"), "BIGINT"),
    (("uint64",), "DECIMAL(20, 0)"),
    (("floating",), "DOUBLE"),
    (("string", "large_string", "string_view", "null"), "VARCHAR"),
    (("date",), "DATE"),
    (("timestamp",), "TIMESTAMP"),
)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _disorder_seconds(times: pa.ChunkedArray) -> float:
    """Return how far the latest time before a row is ahead of the row's, at most."""
    pyarrow = library("pyarrow", "a frame")
    compute = import_module("pyarrow.compute")
    counts = times.drop_null().combine_chunks().cast(pyarrow.timestamp("us", times.type.tz), safe=False)
    counts = counts.cast(pyarrow.int64())
    behind = compute.max(compute.subtract(compute.cumulative_max(counts), counts)).as_py()
    return (behind or 0) / 1e6
