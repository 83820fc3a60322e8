"""Blocks of selected tuples: which words of the query-sets they have, and how a slot is found in them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.predicates import query_set
from braid.operators.selection.reading import rows_of_slot
from braid.operators.selection.source import Selected

SLOTS = st.lists(st.integers(0, 400), min_size=1, max_size=5, unique=True)


def selected(slots: list[int], rows: int, seed: int) -> tuple[Selected, dict[int, list[int]]]:
    """Return tuples that are selected at random, and the rows of each slot."""
    bits = np.zeros((rows, 448), dtype=np.bool_)
    bits[:, slots] = np.random.default_rng(seed).random((rows, len(slots))) < 0.5
    words = np.unique([slot // 64 for slot in slots])
    query_sets = query_set.pack(bits, 7)[:, words]
    expected = {slot: np.flatnonzero(bits[:, slot]).tolist() for slot in slots}
    return Selected("s-1", pa.table({"k": pa.array(range(rows))}), query_sets, words, 0), expected


@given(SLOTS, st.integers(1, 40), st.integers(0, 2**32))
def test_each_slot_has_its_rows(slots: list[int], rows: int, seed: int) -> None:
    tuples, expected = selected(slots, rows, seed)
    for slot in range(448):
        assert rows_of_slot(tuples.table, slot).tolist() == expected.get(slot, [])


def test_a_block_has_the_words_of_its_selections_alone() -> None:
    tuples, _ = selected([3, 1000 - 600], 10, 1)
    assert tuples.table.column(query_set.COLUMN).type.byte_width == 16


@pytest.mark.parametrize("slot", [0, 63, 64, 130])
def test_blocks_of_earlier_versions_have_all_words(slot: int) -> None:
    bits = np.zeros((3, 192), dtype=np.bool_)
    bits[1, slot] = True
    block = pa.table({"k": [1, 2, 3], query_set.COLUMN: query_set.to_arrow(query_set.pack(bits, 3))})
    assert rows_of_slot(block, slot).tolist() == [1]
    assert rows_of_slot(block, 191).tolist() == []
