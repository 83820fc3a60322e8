"""Cells: what they stand for is kept when they are renumbered, written and read."""

from __future__ import annotations

import bisect
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.predicates.cells import Cells, LineCells, SetCells, cells_from_arrow, unite_bits, unite_sets
from braid.operators.predicates.query_set import pack, unpack

numbers = st.integers(-(2**63), 2**63 - 1)
lines = st.one_of(
    st.sets(st.integers(-5, 5)), st.sets(numbers), st.sets(st.floats(allow_nan=False)), st.sets(st.text(max_size=3))
).map(lambda values: LineCells(tuple(sorted(values))))
sets = st.lists(st.lists(st.booleans(), min_size=70, max_size=70), min_size=1, max_size=6).map(
    lambda rows: SetCells(pack(np.array(rows), 2))
)


def through_arrow(cells: Cells) -> Cells:
    sink = pa.BufferOutputStream()
    table = cells.to_arrow()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return cells_from_arrow(pa.ipc.open_stream(sink.getvalue()).read_all())


@given(lines)
def test_line_cells_round_trip(cells: LineCells) -> None:
    assert through_arrow(cells) == cells


@given(sets)
def test_set_cells_round_trip(cells: SetCells) -> None:
    back = through_arrow(cells)
    assert isinstance(back, SetCells)
    assert back.query_sets.tolist() == cells.query_sets.tolist()


@given(st.lists(st.integers(-6, 6), unique=True).map(sorted), st.lists(st.integers(-6, 6), unique=True).map(sorted))
def test_a_cell_goes_where_its_least_value_is(old: list[int], new: list[int]) -> None:
    found = LineCells(tuple(old)).map_to(LineCells(tuple(new)))
    assert found.tolist() == [0, *(bisect.bisect_right(new, b) for b in old), len(new) + 1]


@given(lines, st.data())
def test_coarser_cells_hold_the_same_values(cells: LineCells, data: st.DataObject) -> None:
    kept = data.draw(st.sets(st.sampled_from(cells.boundaries))) if cells.boundaries else set()
    coarse = LineCells(tuple(sorted(kept)))
    mapped = cells.map_to(coarse)
    value: Any
    for value in cells.boundaries:
        cell = bisect.bisect_right(cells.boundaries, value)
        assert mapped[cell] == bisect.bisect_right(coarse.boundaries, value)


@given(st.lists(sets, min_size=1, max_size=3))
def test_equal_query_sets_become_one_cell(cells: list[SetCells]) -> None:
    united, maps = unite_sets(cells)
    rows = [tuple(row) for row in united.query_sets.tolist()]
    assert len(set(rows)) == len(rows)
    for each, mapped in zip(cells, maps, strict=True):
        assert [rows[i] for i in mapped] == [tuple(row) for row in each.query_sets.tolist()]


@given(st.lists(sets, min_size=1, max_size=3), st.lists(st.integers(0, 200), min_size=1, max_size=5, unique=True))
def test_bits_of_some_slots(cells: list[SetCells], slots: list[int]) -> None:
    wanted = np.array(slots)
    bits, maps = unite_bits(cells, wanted)
    for each, mapped in zip(cells, maps, strict=True):
        expected = unpack(each.query_sets, wanted)
        assert [m >= 0 for m in mapped] == expected.any(axis=1).tolist()
        assert all((bits[m] == row).all() for m, row in zip(mapped, expected, strict=True) if m >= 0)
