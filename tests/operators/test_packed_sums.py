"""Counts and sums that share a number are what they are apart."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.components import COUNT_NAME, encode
from operators.expressions import Column
from operators.packed_sums import Packable
from operators.predicates.dimension import CellLookup
from operators.queries import Measure
from sources.schema import BIGINT, DOUBLE

SUM, LEAST = Measure("sum", Column("x", BIGINT)), Measure("min", Column("x", BIGINT))
CELLS, SLICES, KEYS = SHAPE = (3, 2, 4)
ENTRIES = CELLS * SLICES * KEYS


def offsets_of(lookup: CellLookup) -> npt.NDArray[np.int32]:
    """Return where each cell's entries begin; those of no cell are beyond all others."""
    return np.where(lookup.table >= 0, lookup.table * np.int32(SLICES * KEYS), ENTRIES).astype(np.int32)


@given(
    numbers=st.lists(
        st.one_of(st.integers(-5, 5), st.integers(-(2**31), 2**31), st.integers(-(2**50), 2**50)), max_size=40
    ),
    seed=st.integers(0, 2**32),
)
def test_taken_apart_they_are_counts_and_sums(numbers: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    cell = rng.integers(-1, CELLS, len(numbers)).astype(np.int32)
    column = rng.integers(0, SLICES * KEYS, len(numbers)).astype(np.int32)
    packable = Packable.first_of({SUM: encode(SUM, pa.array(numbers, pa.int64()))}, len(numbers))
    assert packable is not None
    lookup = CellLookup.of(cell, CELLS)
    offsets = offsets_of(lookup)
    packed = packable.add_up(lookup, offsets, column, ENTRIES + SLICES * KEYS).first(ENTRIES)
    counts, sums = np.zeros((2, *SHAPE), dtype=np.int64)
    some = cell >= 0
    places = cell[some], column[some] // KEYS, column[some] % KEYS
    np.add.at(counts, places, 1)
    np.add.at(sums, places, np.array(numbers, dtype=np.int64)[some])
    assert ((packed.numbers > 0) == (counts > 0).ravel()).all()
    for first, last in ((0, KEYS), (1, 3)):
        found = packed.of_keys(SHAPE, first, last)
        assert found[COUNT_NAME].tolist() == counts[:, :, first:last].transpose(1, 0, 2).ravel().tolist()
        assert found["sum(x)"].tolist() == sums[:, :, first:last].transpose(1, 0, 2).ravel().tolist()
    positions = np.flatnonzero(counts).astype(np.int32)
    found = packed.at(positions)
    assert found[COUNT_NAME].tolist() == counts.ravel()[positions].tolist()
    assert found["sum(x)"].tolist() == sums.ravel()[positions].tolist()


@pytest.mark.parametrize("greatest", [2**61, -(2**63)])
def test_sums_that_are_too_large_are_not_packed(greatest: int) -> None:
    assert Packable.first_of({SUM: encode(SUM, pa.array([1, greatest], pa.int64()))}, 2) is None


def test_only_sums_of_whole_numbers_are_packed() -> None:
    doubles = Measure("sum", Column("y", DOUBLE))
    encoded = {
        LEAST: encode(LEAST, pa.array([1, 2], pa.int64())),
        doubles: encode(doubles, pa.array([1.0, 2.0])),
        SUM: encode(SUM, pa.array([1, None], pa.int64())),
    }
    packable = Packable.first_of(encoded, 2)
    assert packable is not None
    assert (packable.name, packable.numbers.tolist()) == ("sum(x)", [1, 0])
    del encoded[SUM]
    assert Packable.first_of(encoded, 2) is None
