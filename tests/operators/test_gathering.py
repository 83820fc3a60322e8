"""Picking rows gives what Arrow's own `take` gives, whatever the type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.joins.gathering import gather, inverse, take

COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int32(), [1, -2, 3, 4]),
    (pa.int64(), [2**40, -1, 0, 5]),
    (pa.float64(), [0.5, -0.0, 1e300, float("inf")]),
    (pa.timestamp("us"), [dt.datetime(2026, 1, 1, microsecond=n) for n in range(4)]),
    (pa.date32(), [dt.date(2026, 1, n) for n in range(1, 5)]),
    (pa.bool_(), [True, False, False, True]),
    (pa.string(), ["a", "", "long", "ü"]),
    (pa.decimal128(10, 2), [Decimal("1.25"), Decimal("-3.00"), Decimal(0), Decimal("9.99")]),
    (pa.int64(), [1, None, 3, None]),
]


@pytest.mark.parametrize(("kind", "values"), COLUMNS)
@settings(max_examples=25)
@given(pieces=st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=3), seed=st.integers(0, 99))
def test_rows_of_pieces_come_in_the_order_asked_for(
    kind: pa.DataType, values: list[Any], pieces: list[list[int]], seed: int
) -> None:
    column = pa.chunked_array([pa.array(values[:2], kind), pa.array(values[2:], kind)])
    rows = [np.array(piece, dtype=np.int32) for piece in pieces]
    assert take(column, rows[0]).equals(column.combine_chunks().take(pa.array(rows[0])))
    expected = [values[row] for piece in pieces for row in piece]
    column_pieces = [(column, rows_of_piece) for rows_of_piece in rows]
    gathered = gather(column_pieces, None)
    assert (gathered.type, gathered.to_pylist()) == (kind, expected)
    order = np.random.default_rng(seed).permutation(len(expected)).astype(np.int32)
    gathered = gather(column_pieces, inverse(order))
    assert (gathered.type, gathered.to_pylist()) == (kind, [expected[place] for place in order])
