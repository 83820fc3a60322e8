"""Tuples as JSON texts look as result rows do."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.engine.spark.json_texts import json_texts, times_as_text
from braid.router.row_text import objects

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.decimal128(12, 2): st.decimals(Decimal("-9e9"), Decimal("9e9"), places=2),
    pa.decimal128(38, 12): st.integers(-(10**30), 10**30).map(lambda units: Decimal(units).scaleb(-12)),
    pa.string(): st.text(st.sampled_from('a\n ,"\\\x00\x7f\x85\u2028é😀') | st.characters(exclude_categories=["Cs"])),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
}


@settings(deadline=None)  # the first example imports
@given(st.lists(st.tuples(*(st.none() | values for values in VALUES.values())), max_size=5))
def test_tuples_look_as_in_results(rows: list[tuple[Any, ...]]) -> None:
    columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(VALUES)]
    tuples = pa.RecordBatch.from_arrays(columns, [f'"{kind}"' for kind in VALUES])
    expected = [orjson.dumps(row).decode() for row in objects(pa.Table.from_batches([tuples]))]
    assert json_texts(tuples).to_pylist() == expected


@given(st.datetimes())
def test_times_have_microseconds_and_z(time: dt.datetime) -> None:
    texts = times_as_text(pa.array([time, None], pa.timestamp("us")))
    assert texts.to_pylist() == [time.isoformat(timespec="microseconds") + "Z", None]
