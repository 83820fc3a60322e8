"""Record batches of another process: what is taken over as it is, what is cast, and what becomes malformed."""

from __future__ import annotations

import struct
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from braid.sources.core.errors import TooLarge
from braid.sources.core.schema import BIGINT, DOUBLE, TIMESTAMP, ColumnType, Field, StreamSchema
from braid.sources.formats.record_batches import match_columns

INT, DECIMAL = ColumnType("INT"), ColumnType("DECIMAL", 5, 2)


def schema_of(**types: ColumnType) -> StreamSchema:
    """Return a schema of these columns and the event time."""
    return StreamSchema((*(Field(n, t) for n, t in types.items()), Field("time", TIMESTAMP)), "time", 0)


def test_tuples_that_fit_are_not_copied() -> None:
    schema = schema_of(a=ColumnType("INT"), b=ColumnType("VARCHAR"))
    zoned = pa.array([0, 1], pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"B": ["x", "y"], "more": [0, 0], "TIME": zoned, "a": pa.array([1, 2], pa.int32())})
    tuples = match_columns(batch.schema, schema).decode(batch).tuples
    assert tuples.schema == schema.arrow
    for name, origin in (("a", "a"), ("b", "B"), ("time", "TIME")):
        assert addresses(tuples.column(name)) == addresses(batch.column(origin))


def addresses(array: pa.Array) -> list[int]:
    """Return where the values of an array are in memory."""
    return [buffer.address for buffer in array.buffers() if buffer is not None]


@pytest.mark.parametrize(
    ("declared", "column", "expected"),
    [
        (BIGINT, pa.array([1, None, 3], pa.int32()), [1, None, 3]),
        (INT, pa.array([1, None, 3], pa.int64()), [1, None, 3]),
        (DOUBLE, pa.array([1.5, None, 3], pa.float32()), [1.5, None, 3.0]),
        (DOUBLE, pa.array([1, 2, 3], pa.int64()), [1.0, 2.0, 3.0]),
        (DECIMAL, pa.array([1, None, 3], pa.int64()), [Decimal("1.00"), None, Decimal("3.00")]),
        (ColumnType("VARCHAR"), pa.array(["a", None, "ü"]).dictionary_encode(), ["a", None, "ü"]),
        (ColumnType("VARCHAR"), pa.array(["a", None, "ü"], pa.large_string()), ["a", None, "ü"]),
        (ColumnType("BOOLEAN"), pa.array([True, None, False]), [True, None, False]),
        (ColumnType("DATE"), pa.array([1, None, 2], pa.date32()), [date(1970, 1, 2), None, date(1970, 1, 3)]),
        (
            TIMESTAMP,
            pa.array([1000, None, 2999], pa.timestamp("ns")),
            [datetime(1970, 1, 1, 0, 0, 0, 1), None, datetime(1970, 1, 1, 0, 0, 0, 2)],
        ),
        (
            TIMESTAMP,
            pa.array([1, None, 0], pa.timestamp("s")),
            [datetime(1970, 1, 1, 0, 0, 1), None, datetime(1970, 1, 1)],
        ),
        (
            TIMESTAMP,
            pa.array([1, None, 0], pa.timestamp("us", "+05:00")),
            [datetime(1970, 1, 1, 0, 0, 0, 1), None, datetime(1970, 1, 1)],
        ),
        (INT, pa.nulls(3), [None, None, None]),
    ],
)
def test_types_are_cast_where_no_value_changes(declared: ColumnType, column: pa.Array, expected: list[Any]) -> None:
    schema = schema_of(c=declared)
    batch = pa.record_batch({"c": column, "time": pa.array(range(3), pa.timestamp("us"))})
    decoded = match_columns(batch.schema, schema).decode(batch)
    assert decoded.malformed == ()
    assert decoded.tuples.schema == schema.arrow
    assert decoded.tuples.column("c").to_pylist() == expected


def test_a_batch_with_one_bad_row_gives_what_a_pushed_body_gives() -> None:
    schema = schema_of(d=ColumnType("DATE"))
    days = pa.array([0, 10_000_000, None, 1], pa.date32())
    batch = pa.record_batch({"d": days, "time": pa.array([0, 1, 2, None], pa.timestamp("us"))})
    decoded = match_columns(batch.schema, schema).decode(batch)
    assert decoded.tuples.to_pylist() == [
        {"d": date(1970, 1, 1), "time": datetime(1970, 1, 1)},
        {"d": None, "time": datetime(1970, 1, 1, 0, 0, 0, 2)},
    ]
    assert [m.line for m in decoded.malformed] == [2, 4]


def test_views_of_nulls_and_shared_texts_are_read_as_in_pushed_bodies() -> None:
    schema = schema_of(s=ColumnType("VARCHAR"))
    views = struct.pack("<iiii", -65536, 0, 0, 0) + struct.pack("<i12s", 1, b"a")
    hidden = pa.Array.from_buffers(pa.string_view(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(views)])
    batch = pa.record_batch({"s": hidden, "time": pa.array([0, 1], pa.timestamp("us"))})
    assert match_columns(batch.schema, schema).decode(batch).tuples.column("s").to_pylist() == [None, "a"]
    indexes = pa.array([0] * 20_000, pa.int32())
    swollen = pa.DictionaryArray.from_arrays(indexes, pa.array(["x" * 100_000]))
    batch = pa.record_batch({"s": swollen, "time": pa.array(range(20_000), pa.timestamp("us"))})
    with pytest.raises(TooLarge, match="column 's' would take 2000000000"):
        match_columns(batch.schema, schema).decode(batch)
