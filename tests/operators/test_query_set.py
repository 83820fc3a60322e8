"""Query-sets: packing, unpacking, counting, and the way through Arrow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.predicates import query_set
from braid.operators.selection.source import count_per_slot


def bools(rows: int, slots: int, seed: int) -> query_set.Bools:
    return np.random.default_rng(seed).random((rows, slots)) < 0.4


sizes = {"rows": st.integers(0, 40), "slots": st.integers(0, 200), "seed": st.integers(0, 2**32)}


@pytest.mark.parametrize(("capacity", "words"), [(0, 1), (1, 1), (64, 1), (65, 2), (128, 2), (129, 3)])
def test_words_hold_the_capacity(capacity: int, words: int) -> None:
    assert query_set.words_for(capacity) == words


def test_bit_s_is_in_word_s_div_64() -> None:
    bits = np.zeros((1, 130), dtype=np.bool_)
    bits[0, [0, 63, 64, 129]] = True
    assert query_set.pack(bits, 3).tolist() == [[1 | 1 << 63, 1, 2]]


@given(**sizes)
def test_unpack_reverses_pack(rows: int, slots: int, seed: int) -> None:
    bits = bools(rows, slots, seed)
    packed = query_set.pack(bits, query_set.words_for(slots))
    order = np.random.default_rng(seed).permutation(slots)
    assert (query_set.unpack(packed, order) == bits[:, order]).all()


@given(**sizes)
def test_slots_beyond_the_words_are_absent(rows: int, slots: int, seed: int) -> None:
    packed = query_set.pack(bools(rows, slots, seed), query_set.words_for(slots))
    beyond = np.arange(3) + 64 * packed.shape[1]
    assert not query_set.unpack(packed, beyond).any()


@given(**sizes)
def test_count_per_slot_counts_rows(rows: int, slots: int, seed: int) -> None:
    bits = bools(rows, slots, seed)
    counts = count_per_slot(query_set.pack(bits, query_set.words_for(slots)))
    assert counts[:slots].tolist() == bits.sum(axis=0).tolist()
    assert not counts[slots:].any()


def test_count_per_slot_counts_each_row() -> None:
    packed = np.full((70_000, 4), 5, dtype=np.uint64)
    counts = count_per_slot(packed)
    assert counts[counts > 0].tolist() == [70_000] * 8
    assert np.flatnonzero(counts).tolist() == [0, 2, 64, 66, 128, 130, 192, 194]


@given(**sizes, cut=st.integers(0, 40))
def test_arrow_round_trip_also_of_a_slice(rows: int, slots: int, seed: int, cut: int) -> None:
    packed = query_set.pack(bools(rows, slots, seed), query_set.words_for(slots))
    array = query_set.to_arrow(packed)
    assert len(array) == rows
    assert (query_set.from_arrow(array) == packed).all()
    assert (query_set.from_arrow(array.slice(min(cut, rows))) == packed[cut:]).all()
