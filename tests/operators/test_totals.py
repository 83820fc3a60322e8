"""Tuples added to entries that are looked up, against the same one by one."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.components import COUNT_NAME, encode
from operators.expressions import Column
from operators.predicates.dimension import CellLookup
from operators.queries import Measure
from operators.totals import add_looked_up, new_totals
from sources.schema import BIGINT, DOUBLE, ColumnType

CELLS, KEYS = 3, 4
FUNCTIONS = ("sum", "min", "max")
values = {
    BIGINT: st.none() | st.integers(-(2**63), 2**63 - 1),
    DOUBLE: st.none() | st.sampled_from([math.nan, -math.inf, -1.5, 0.0, 2.5, math.inf]),
}


@pytest.mark.parametrize("kind", [BIGINT, DOUBLE], ids=str)
@given(data=st.data())
def test_entries_have_the_extremes_of_their_tuples(kind: ColumnType, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(values[kind], min_size=1, max_size=30))
    rows = len(numbers)
    cell = data.draw(st.lists(st.integers(-1, CELLS - 1), min_size=rows, max_size=rows))
    key = data.draw(st.lists(st.integers(0, KEYS - 1), min_size=rows, max_size=rows))
    measures = [Measure(function, Column("x", kind)) for function in FUNCTIONS]
    encoded = {measure: encode(measure, pa.array(numbers, kind.arrow)) for measure in measures}
    entries = CELLS * KEYS
    totals = new_totals(entries + KEYS, encoded)
    lookup = CellLookup.of(np.array(cell, dtype=np.int32), CELLS)
    offsets = np.where(lookup.table >= 0, lookup.table * np.int32(KEYS), entries).astype(np.int32)
    add_looked_up(totals, lookup, offsets, np.array(key, dtype=np.int32), encoded)
    for entry in range(entries):
        mine = [v for v, c, k in zip(numbers, cell, key, strict=True) if c * KEYS + k == entry and c >= 0]
        assert totals[COUNT_NAME][entry] == len(mine)
        known = [v for v in mine if v is not None]
        there = [v for v in known if v == v]
        if there:
            assert totals["min(x)"][entry] == min(there)
            assert totals["max(x)"][entry] == max(there)
        elif kind is DOUBLE:
            assert math.isnan(totals["min(x)"][entry])
            assert math.isnan(totals["max(x)"][entry])
