"""Pairs of rows with equal codes, page by page, against all pairs compared one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.joins.matches.all_pairs import AllPairs, PickedPairs
from braid.operators.joins.matches.pairs import Pairs
from braid.operators.joins.matches.relations import MANY

CODES = st.lists(st.integers(-1, 4), max_size=12).map(sorted)


@given(CODES, CODES, st.data(), st.sampled_from(["inner", "outer", "anti"]))
def test_pages_are_the_pairs_with_equal_codes(
    left_codes: list[int], right_codes: list[int], data: st.DataObject, kind: str
) -> None:
    codes = np.array(left_codes, dtype=np.int32), np.array(right_codes, dtype=np.int32)
    chosen_rows = [sorted(data.draw(st.sets(st.sampled_from(range(len(code)))))) if len(code) else [] for code in codes]
    left, right = (np.array(rows, dtype=np.int32) for rows in chosen_rows)
    expected = []
    for i in chosen_rows[0]:
        partners = [j for j in chosen_rows[1] if codes[0][i] == codes[1][j] >= 0]
        if kind != "anti":
            expected += [(i, j) for j in partners]
        if kind != "inner" and not partners:
            expected.append((i, -1))
    pairs = Pairs((left, right), codes, outer=kind == "outer", anti=kind == "anti")
    assert pairs.total == len(expected)
    first, pages = 0, []
    while first < pairs.total:
        count = data.draw(st.integers(1, 5))
        rows = pairs.page(first, count)
        assert len(rows[0]) == len(rows[1]) == min(count, pairs.total - first)
        pages += list(zip(rows[0].tolist(), rows[1].tolist(), strict=True))
        first += count
    assert pages == expected
    assert [len(rows) for rows in pairs.page(pairs.total, 3)] == [0, 0]


@given(CODES, CODES, st.data())
def test_picked_pairs_are_those_of_the_wanted_rows_in_their_order(
    left_codes: list[int], right_codes: list[int], data: st.DataObject
) -> None:
    codes = np.array(left_codes, dtype=np.int32), np.array(right_codes, dtype=np.int32)
    masks = [data.draw(st.lists(st.booleans(), min_size=len(code), max_size=len(code))) for code in codes]
    wanted_rows = [np.array(mask if data.draw(st.booleans()) else [], dtype=np.bool_) for mask in masks]
    everything = [np.arange(len(code), dtype=np.int32) for code in codes]
    rows_left = [rows[mask] if len(mask) else rows for rows, mask in zip(everything, wanted_rows, strict=True)]
    expected = Pairs((rows_left[0], rows_left[1]), codes)
    picked = PickedPairs(AllPairs(Pairs((everything[0], everything[1]), codes)), wanted_rows[0], wanted_rows[1])
    assert picked.total == expected.total
    for first in range(picked.total + 1):
        pages = zip(picked.page(first, 3), expected.page(first, 3), strict=True)
        assert all(rows.tolist() == expected_rows.tolist() for rows, expected_rows in pages)


@pytest.mark.parametrize("size", [1 << 18, 1 << 20])
def test_no_more_than_many_are_counted(size: int) -> None:
    rows, codes = np.arange(size, dtype=np.int32), np.zeros(size, dtype=np.int32)
    pairs = Pairs((rows, rows), (codes, codes))
    assert pairs.total == MANY
    first = 5 * size + 7
    assert [page.tolist() for page in pairs.page(first, 2)] == [[5, 5], [7, 8]]
