"""Cells of numbers, in every way in which they are found, against a binary search."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.predicates.dimension import Dimension
from braid.operators.tuples import Tuples

doubles = st.one_of(
    st.floats(allow_nan=False),
    st.floats(-1, 1),
    st.integers(-50, 50).map(float),
    st.sampled_from([math.inf, -math.inf]),
)
integers = st.one_of(st.integers(-50, 50), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**40), 2**40))


def cells(kind: str, boundaries: list[Any], values: pa.Array) -> list[int]:
    dimension = Dimension("x", kind, tuple(boundaries))
    found: list[int] = dimension.cells_of(Tuples({"x": values}, len(values))).tolist()
    middle = len(values) // 3
    in_chunks = Tuples.of(pa.table({"x": pa.chunked_array([values[:middle], values[middle:]])}))
    lookup = dimension.lookup(in_chunks)
    if lookup is not None:
        assert lookup.cells().tolist() == found
    return found


@given(
    boundaries=st.lists(doubles, max_size=60, unique=True).map(sorted),
    others=st.lists(doubles, max_size=10),
    scale=st.sampled_from([1.0, 1e-300, 1e-9, 1e9]),
)
def test_cells_of_doubles(boundaries: list[float], others: list[float], scale: float) -> None:
    boundaries = sorted({0.0 + each * scale for each in boundaries})  # no -0.0
    values = np.array([each * scale for each in others] + boundaries, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        values = np.concatenate([values, np.nextafter(values, -np.inf), np.nextafter(values, np.inf), [np.nan]])
    wanted = np.searchsorted(np.array(boundaries, dtype=np.float64), values, side="right").tolist()
    found = cells("DOUBLE", boundaries, pa.array(values, pa.float64(), from_pandas=False))
    assert found[:-1] == wanted[:-1]
    assert found[-1] in (0, wanted[-1]), "what is not a number is not among the numbers"


@given(boundaries=st.lists(integers, max_size=60, unique=True).map(sorted), others=st.lists(integers, max_size=10))
def test_cells_of_integers(boundaries: list[int], others: list[int]) -> None:
    near = [each + step for each in (*boundaries, *others) for step in (-1, 0, 1)]
    values = [each for each in near if -(2**63) <= each < 2**63]
    wanted = np.searchsorted(np.array(boundaries, dtype=np.int64), np.array(values, dtype=np.int64), side="right")
    assert cells("BIGINT", boundaries, pa.array(values, pa.int64())) == wanted.tolist()
    short = [each for each in values if -(2**31) <= each < 2**31]
    wanted = np.searchsorted(np.array(boundaries, dtype=np.int64), np.array(short, dtype=np.int64), side="right")
    assert cells("INT", boundaries, pa.array(short, pa.int32())) == wanted.tolist()


@pytest.mark.parametrize("kind", ["INT", "BIGINT"])
def test_cells_of_close_integers_are_looked_up(kind: str) -> None:
    dimension = Dimension("x", kind, tuple(range(-20, 500, 7)))
    values = pa.array(range(-100, 600), pa.int32() if kind == "INT" else pa.int64())
    lookup = dimension.lookup(Tuples({"x": values}, len(values)))
    assert lookup is not None
    wanted = dimension.cells_of(Tuples({"x": values}, len(values)))
    assert lookup.cells().tolist() == wanted.tolist()
    numbers = np.where(np.arange(dimension.cell_count) % 3 == 0, -1, np.arange(dimension.cell_count)).astype(np.int32)
    assert lookup.mapped(numbers).cells().tolist() == numbers[wanted].tolist()
    assert dimension.lookup(Tuples({"x": pa.array([1, None], values.type)}, 2)) is None


def test_null_has_the_last_cell() -> None:
    for boundaries in ([1], list(range(0, 100, 7))):
        assert cells("BIGINT", boundaries, pa.array([None, 10**6])) == [len(boundaries) + 1, len(boundaries)]
        as_doubles = [float(each) for each in boundaries]
        assert cells("DOUBLE", as_doubles, pa.array([None, 1e6])) == [len(boundaries) + 1, len(boundaries)]
