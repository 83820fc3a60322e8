"""Query-sets as rows of 64-bit words: their bits counted, listed, and tuples placed once per bit."""

from __future__ import annotations

import numpy as np
from numba import njit

from braid.operators.arrays import Numbers, Places

# the number of the only bit of a word is found by multiplying it with a de Bruijn sequence: six bits that occur once
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_OF = np.zeros(64, dtype=np.int32)
for _bit in range(64):
    _BIT_OF[((1 << _bit) * int(_DE_BRUIJN) % 2**64) >> 58] = _bit


@njit(cache=True, nogil=True)
def set_bits(query_sets: Numbers) -> Numbers:
    """Return how many bits each row of ``query_sets``, shape (rows, words), has."""
    rows, words = query_sets.shape
    counts = np.zeros(rows, dtype=np.int64)
    for r in range(rows):
        for w in range(words):
            word = query_sets[r, w]
            while word:
                word &= word - np.uint64(1)
                counts[r] += 1
    return counts


@njit(cache=True, nogil=True)
def count_slots(totals: Numbers, query_sets: Numbers) -> None:
    """Add to ``totals``, shape (64 * words,), how many rows of ``query_sets``, shape (rows, words), have each bit."""
    rows, words = query_sets.shape
    for r in range(rows):
        for w in range(words):
            word = query_sets[r, w]
            while word:
                lowest = word & (~word + np.uint64(1))
                totals[w * 64 + _BIT_OF[(lowest * _DE_BRUIJN) >> np.uint64(58)]] += 1
                word ^= lowest


@njit(cache=True, nogil=True)
def intersect(words: Numbers, table: Numbers, at: Places) -> None:
    """AND each word with the one of ``table`` at which it belongs."""
    for i in range(words.size):
        words[i] &= table[at[i]]


@njit(cache=True, nogil=True)
def count_bits(starts: Numbers, words: Numbers) -> None:
    """Set ``starts``, 0 at first, to where the numbers of the words with each bit begin; at its end is that of all."""
    for word in words:
        while word:
            lowest = word & (~word + np.uint64(1))
            starts[_BIT_OF[(lowest * _DE_BRUIJN) >> np.uint64(58)] + 1] += 1
            word ^= lowest
    for bit in range(1, starts.size):
        starts[bit] += starts[bit - 1]


@njit(cache=True, nogil=True)
def list_by_bit(numbers: Places, free: Numbers, words: Numbers) -> None:
    """List the numbers of the words with each bit, from ``free[bit]`` on, which becomes where they end."""
    for i in range(words.size):
        word = words[i]
        while word:
            lowest = word & (~word + np.uint64(1))
            bit = _BIT_OF[(lowest * _DE_BRUIJN) >> np.uint64(58)]
            numbers[free[bit]] = i
            free[bit] += 1
            word ^= lowest


@njit(cache=True, nogil=True)
def place_each(
    at: Places, source: Places, tuples: Places, cell: Places, column: Places, query_sets: Numbers, queries: int
) -> None:
    """List where each of some tuples goes in an array of shape (columns, queries): once for each query in its set.

    ``source`` becomes the number of the tuple.
    """
    i = 0
    words = query_sets.shape[1]
    for t in tuples:
        for w in range(words):
            word = query_sets[cell[t], w]
            while word:
                lowest = word & (~word + np.uint64(1))
                bit = _BIT_OF[(lowest * _DE_BRUIJN) >> np.uint64(58)]
                at[i] = column[t] * queries + w * 64 + bit
                source[i] = t
                i += 1
                word ^= lowest


def warm_up() -> None:
    """Load or compile these kernels for the types that they are used with."""
    at, table = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
    query_sets = np.ones((1, 1), dtype=np.uint64)
    set_bits(query_sets)
    count_slots(np.zeros(64, dtype=np.int64), query_sets)
    intersect(query_sets[0], query_sets[0], at)
    count_bits(np.zeros(65, dtype=np.int64), query_sets[0])
    list_by_bit(at.copy(), np.zeros(65, dtype=np.int64), query_sets[0])
    place_each(at, at.copy(), table, table, at.copy(), query_sets, 1)
