"""Kernels of packed sums: what they add, merge and take apart are counts and sums."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators import kernels
from braid.operators.kernels import SUM

BITS, LEAST = 40, -50
ONE_TUPLE = (1 << BITS) - LEAST
"""What a tuple adds besides its number: to the count 1, and to the sum what makes it never negative."""

Totals = dict[int, tuple[int, int]]
Longs = npt.NDArray[np.int64]


def packed_of(entries: list[tuple[int, int]]) -> Longs:
    """Return packed numbers of counts and sums."""
    return np.array([(count << BITS) + total - count * LEAST for count, total in entries], dtype=np.int64)


ENTRIES = st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda pair: (pair[0], pair[1] if pair[0] else 0))
TUPLES = st.lists(st.tuples(st.integers(-3, 12), st.integers(0, 1), st.integers(-50, 50)), max_size=60)
TABLE = [8, 0, 2, 8, 4, 6, 2, 8]
"""Where the entries of values begin, from value 0 on; there are two columns, and 8 is nowhere."""


@given(TUPLES, st.booleans())
def test_tuples_are_counted_and_added_up(tuples: list[tuple[int, int, int]], all_within: bool) -> None:
    if all_within:
        tuples = [(value % len(TABLE), column, number) for value, column, number in tuples]
    expected: Totals = defaultdict(lambda: (0, 0))
    for value, column, number in tuples:
        at = TABLE[value if 0 <= value < len(TABLE) else (0 if value < 0 else -1)] + column
        count, total = expected[at]
        expected[at] = count + 1, total + number
    values, columns, numbers = (np.array([row[i] for row in tuples], dtype=np.int32) for i in range(3))
    packed = np.zeros(10, dtype=np.int64)
    kernels.add_packed(packed, values, 0, np.array(TABLE, dtype=np.int32), columns, numbers, ONE_TUPLE)
    counts, sums = np.zeros(10, dtype=np.int64), np.zeros(10, dtype=np.int64)
    assert kernels.unpack(counts, sums, packed, BITS, LEAST)
    assert [(c, s) for c, s in zip(counts.tolist(), sums.tolist(), strict=True)] == [expected[at] for at in range(10)]


@given(st.lists(ENTRIES, max_size=9))
def test_totals_are_those_of_all_entries(entries: list[tuple[int, int]]) -> None:
    counts, sums = kernels.packed_totals(packed_of(entries), BITS)
    count, total = sum(count for count, _ in entries), sum(total for _, total in entries)
    assert (counts, sums) == (count, total - count * LEAST)


@pytest.mark.parametrize(("total", "fits"), [((1 << 31) - 1, True), (1 << 31, False)])
def test_a_sum_that_does_not_fit_is_told(total: int, fits: bool) -> None:
    counts, sums = np.zeros(2, dtype=np.int32), np.zeros(2, dtype=np.int32)
    assert kernels.unpack(counts, sums, packed_of([(1, 5), (2, total)]), BITS, LEAST) is fits
    assert counts.tolist() == [1, 2]
    assert sums[0] == 5


@given(st.data())
def test_they_are_merged_as_their_counts_and_sums_are(data: st.DataObject) -> None:
    slices, cells, keys = (data.draw(st.integers(1, 3)) for _ in range(3))
    new_cells, new_keys = cells + 1, keys + 2
    packed = packed_of([data.draw(ENTRIES) for _ in range(slices * cells * keys)])
    cell_map = data.draw(st.lists(st.integers(-1, new_cells - 1), min_size=cells, max_size=cells))
    first, first_key = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))
    key_map = [first_key + key for key in range(keys)]
    if data.draw(st.booleans()):
        key_map = data.draw(st.lists(st.integers(0, new_keys - 1), min_size=keys, max_size=keys, unique=True))
    maps = np.array(cell_map, dtype=np.int32), np.array(key_map, dtype=np.int32), first, new_keys - first, keys

    def empty() -> Longs:
        return np.zeros(new_cells * (new_keys - first), dtype=np.int64)

    counts, sums, merged_counts, merged_sums = empty(), empty(), empty(), empty()
    kernels.merge_packed(merged_counts, merged_sums, packed, BITS, LEAST, *maps)
    unpacked = np.zeros_like(packed), np.zeros_like(packed)
    kernels.unpack(*unpacked, packed, BITS, LEAST)
    for out, numbers in zip((counts, sums), unpacked, strict=True):
        kernels.merge_full(SUM, out, numbers, *maps)
    assert merged_counts.tolist() == counts.tolist()
    assert merged_sums.tolist() == sums.tolist()
