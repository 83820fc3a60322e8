"""How full entries are told to be before tuples are added up; what they hold is tested with buckets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from braid.operators.predicates.dimension import CellLookup
from braid.operators.state.entries import _fullest
from braid.operators.state.keys import encode_keys
from braid.operators.state.sliced_tuples import EncodedMeasures, SlicedTuples
from braid.operators.tuples import Tuples

TUPLES, CELLS, KEYS = 400_000, 200, 400


@pytest.mark.parametrize(
    ("follows", "none", "expected"),
    [
        pytest.param(False, False, TUPLES / CELLS / KEYS, id="cells and keys that have nothing to do with each other"),
        pytest.param(True, False, TUPLES / KEYS, id="cells that follow from keys"),
        pytest.param(False, True, TUPLES / KEYS, id="tuples that nobody wants"),
    ],
)
def test_about_how_full_the_fullest_entry_is(follows: bool, none: bool, expected: float) -> None:
    rng = np.random.default_rng(1)
    key = rng.integers(0, KEYS, TUPLES, dtype=np.int32)
    cell = key % CELLS if follows else rng.integers(0, CELLS, TUPLES, dtype=np.int32)
    cell = np.full_like(cell, -1) if none else cell
    one_slice, latest = np.array([[0, 10]]), np.array([9])
    sliced = SlicedTuples(
        EncodedMeasures.of_tuples(Tuples({}, TUPLES)),
        one_slice,
        np.zeros(TUPLES, dtype=np.int32),
        latest,
        encode_keys([pa.array(key)], TUPLES, 1, ""),
    )
    in_pieces = CellLookup((cell[:70_000], cell[70_000:]), -1, np.arange(-1, CELLS, dtype=np.int32))
    assert expected / 3 < _fullest(sliced, in_pieces) < expected * 3
