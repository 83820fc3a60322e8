"""Tuples added to entries that are looked up, against the same one by one."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.expressions import Column
from braid.operators.predicates.dimension import CellLookup
from braid.operators.query_parts import Measure
from braid.operators.state.addresses import Addresses
from braid.operators.state.components import COUNT_NAME, encode
from braid.operators.state.totals import Run, add_looked_up, new_totals
from braid.sources.core.schema import BIGINT, DOUBLE, ColumnType

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
    lookup = CellLookup.of(np.array(cell, dtype=np.int32), CELLS)
    addresses = Addresses.of(lookup, np.array(key, dtype=np.int32), (CELLS, 1, KEYS))
    totals = new_totals(addresses.size, encoded)
    add_looked_up(totals, addresses, encoded)
    for entry in range(CELLS * KEYS):
        mine = [v for v, c, k in zip(numbers, cell, key, strict=True) if c * KEYS + k == entry and c >= 0]
        assert totals[COUNT_NAME][entry] == len(mine)
        known = [v for v in mine if v is not None]
        there = [v for v in known if v == v]
        if there:
            assert totals["min(x)"][entry] == min(there)
        elif kind is DOUBLE:
            assert math.isnan(totals["min(x)"][entry])
        if len(there) < len(known):
            assert math.isnan(totals["max(x)"][entry])
        elif there:
            assert totals["max(x)"][entry] == max(there)


@given(st.data(), st.integers(1, 200), st.integers(1, 3), st.booleans(), st.sampled_from(["min", "max"]))
def test_extremes_of_ascending_numbers_are_those_of_any(
    data: st.DataObject, rows: int, slices: int, ascending: bool, function: str
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    measure = Measure(function, Column("x", BIGINT))
    numbers = rng.choice([rng.integers(-9, 9, rows), rng.integers(-(2**63), 2**63 - 1, rows)])
    numbers[: data.draw(st.integers(0, 2))] = -(2**63)
    encoded = {measure: encode(measure, pa.array(np.sort(numbers) if ascending else numbers))}
    slice_of = np.sort(rng.integers(0, slices, rows))
    cell = rng.integers(-1, CELLS, rows).astype(np.int32)
    column = (slice_of * KEYS + rng.integers(0, KEYS, rows)).astype(np.int32)
    pieces = tuple(np.split(cell, np.sort(rng.integers(0, rows, 2))))
    lookup = replace(CellLookup.of(cell, CELLS), pieces=pieces)
    addresses = Addresses.of(lookup, column, (CELLS, slices, KEYS))
    bounds = np.searchsorted(slice_of, np.arange(slices + 1)).tolist()
    runs = []
    for low, high in itertools.pairwise(bounds):
        mine = addresses.of_tuples()[low:high]
        mine = mine[mine < addresses.entries]
        runs.append(Run(low, high, 10**9, len(np.unique(mine))))
    plain, quick = (new_totals(addresses.size, encoded) for _ in range(2))
    add_looked_up(plain, addresses, encoded)
    add_looked_up(quick, addresses, encoded, runs)
    for name, total in plain.items():
        assert quick[name][: addresses.entries].tolist() == total[: addresses.entries].tolist()
