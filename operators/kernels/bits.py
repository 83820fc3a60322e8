"""Bitmaps of tuples, 64 a word, and tuples added up where their bit is set; runs of entries brought together.

A bit beyond the last tuple is 0. `at` is the place of each tuple, int32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from braid.operators.arrays import Numbers, Places
from braid.operators.kernels.accumulation import _merged
from braid.operators.kernels.double_double import Pairs, sum_of_pairs

_ONE = np.uint64(1)


def _lowest(_typing: Any, _word: Any) -> Any:
    """Return the number of the lowest bit of a word that is not 0."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def _bits(_typing: Any, _word: Any) -> Any:
    """Return how many bits of a word are set."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


_lowest_bit: Any = intrinsic(_lowest)
_bits_set: Any = intrinsic(_bits)


@njit(cache=True, nogil=True)
def count_set(words: Numbers) -> int:
    """Return how many tuples have their bit set."""
    count = 0
    for w in range(words.size):
        count += _bits_set(words[w])
    return count


@njit(cache=True, nogil=True)
def list_set(rows: Places, words: Numbers) -> None:
    """List the tuples whose bit is set."""
    count = 0
    for w in range(words.size):
        word, base = words[w], w * 64
        while word:
            rows[count] = base + _lowest_bit(word)
            count += 1
            word &= word - _ONE


@njit(cache=True, nogil=True)
def count_at_set(counts: Numbers, at: Places, words: Numbers) -> None:
    """Count the tuples whose bit is set at their places."""
    for w in range(words.size):
        word, base = words[w], w * 64
        while word:
            counts[np.uint32(at[base + _lowest_bit(word)])] += 1
            word &= word - _ONE


@njit(cache=True, nogil=True)
def count_and_merge_at_set(
    way: int, counts: Numbers, out: Numbers, at: Places, numbers: Numbers, words: Numbers
) -> None:
    """Count the tuples whose bit is set at their places, and merge their numbers there; ``way`` says how."""
    for w in range(words.size):
        word, base = words[w], w * 64
        while word:
            i = base + _lowest_bit(word)
            place = np.uint32(at[i])
            counts[place] += 1
            out[place] = _merged(way, out[place], numbers[i])
            word &= word - _ONE


@njit(cache=True, nogil=True)
def merge_at_set(way: int, out: Numbers, at: Places, numbers: Numbers, words: Numbers) -> None:
    """Merge the numbers of the tuples whose bit is set into their places; ``way`` says how."""
    for w in range(words.size):
        word, base = words[w], w * 64
        while word:
            i = base + _lowest_bit(word)
            place = np.uint32(at[i])
            out[place] = _merged(way, out[place], numbers[i])
            word &= word - _ONE


@njit(cache=True, nogil=True)
def add_pairs_at_set(
    a: Pairs, b: Pairs, c: Pairs, at: Places, to_a: Pairs, to_b: Pairs, to_c: Pairs, words: Numbers
) -> None:
    """Add three pairs of each tuple whose bit is set at its place: the processor adds up several at a time."""
    for w in range(words.size):
        word, base = words[w], w * 64
        while word:
            i = base + _lowest_bit(word)
            place = np.uint32(at[i])
            a[place] = sum_of_pairs(a[place], to_a[i])
            b[place] = sum_of_pairs(b[place], to_b[i])
            c[place] = sum_of_pairs(c[place], to_c[i])
            word &= word - _ONE


@njit(cache=True, nogil=True)
def take_occupied(
    found: Places, key: Numbers, numbers: Numbers, position: int, counts: Places, keys: Numbers, runs: Places, ends: Any
) -> int:
    """Take the counts that are not 0 out of ``counts``, in the order of their places, and return how many there are.

    The places are listed in ``found``; what ``keys`` has for them, and the counts, in ``key`` and ``numbers`` from
    ``position`` on: they have room for one more than there are. Run r is the places ``[runs[r], runs[r + 1])``; where
    its entries begin and end is set in ``ends``. Afterwards ``counts`` is 0 everywhere.
    """
    count = 0
    for run in range(runs.size - 1):
        ends[run] = position + count
        for place in range(runs[run], runs[run + 1]):
            found[count] = place
            key[position + count] = keys[place]
            numbers[position + count] = counts[place]
            count += counts[place] != 0
            counts[place] = 0
    ends[runs.size - 1] = position + count
    return count


@njit(cache=True, nogil=True)
def take_found(out: Numbers, position: int, totals: Numbers, found: Places, count: int, neutral: Any) -> None:
    """Move the totals at the places ``found[:count]`` to ``out``, from ``position`` on, and leave ``neutral`` there."""
    for i in range(count):
        place = np.uint32(found[i])
        out[position + i] = totals[place]
        totals[place] = neutral


@njit(cache=True, nogil=True)
def place_joined(at: Places, codes: Places, slice_of: Places, joined: Places) -> None:
    """Set `at` to the place of each tuple: that of its code in the places of its slice, which begin at ``joined``."""
    for i in range(at.size):
        at[i] = codes[i] + joined[slice_of[i]]


@njit(cache=True, nogil=True)
def join_runs(out: Numbers, numbers: Numbers, first: Numbers, last: Numbers) -> None:
    """Bring the runs ``[first[r], last[r])`` together, one after the other."""
    position = 0
    for run in range(first.size):
        for i in range(first[run], last[run]):
            out[position] = numbers[i]
            position += 1


@njit(cache=True, nogil=True)
def bits_of_table(words: Numbers, numbers: Places, table: Numbers) -> None:
    """Set the bit of each tuple for whose number ``table``, of 0 and 1, has 1."""
    for w in range(words.size):
        base = w * 64
        word = np.uint64(0)
        for bit in range(min(64, numbers.size - base)):
            word |= np.uint64(table[numbers[base + bit]]) << np.uint64(bit)
        words[w] = word


@njit(cache=True, nogil=True)
def add_range(words: Numbers, values: Numbers, low: Any, last: Any) -> None:
    """Set the bit of each tuple whose whole number is in ``[low, last]``."""
    for w in range(words.size):
        base = w * 64
        word = np.uint64(0)
        if base + 64 <= values.size:  # a loop of a fixed length becomes a few instructions
            for bit in range(64):
                value = values[base + bit]
                word |= np.uint64((value >= low) & (value <= last)) << np.uint64(bit)
        else:
            for bit in range(values.size - base):
                value = values[base + bit]
                word |= np.uint64((value >= low) & (value <= last)) << np.uint64(bit)
        words[w] |= word


@njit(cache=True, nogil=True)
def add_double_range(words: Numbers, values: Numbers, low: float, high: float, is_open: bool) -> None:
    """Set the bit of each tuple whose double is in ``[low, high)``; if ``is_open`` from ``low`` on, up to NaN."""
    for w in range(words.size):
        base = w * 64
        word = np.uint64(0)
        if base + 64 <= values.size:
            for bit in range(64):
                value = values[base + bit]
                word |= np.uint64((not value < low) & ((value < high) | is_open)) << np.uint64(bit)
        else:
            for bit in range(values.size - base):
                value = values[base + bit]
                word |= np.uint64((not value < low) & ((value < high) | is_open)) << np.uint64(bit)
        words[w] |= word


@njit(cache=True, nogil=True)
def address_runs(
    addresses: Numbers, window: Numbers, first: Numbers, last: Numbers, key: Numbers, key_map: Places, keys: int
) -> None:
    """Set the address of each entry of some runs: that of its window and key, of which there are so many ``keys``.

    The entries of run r are ``[first[r], last[r])``, and belong to ``window[r]``.
    """
    position = 0
    for run in range(first.size):
        base = window[run] * keys
        for entry in range(first[run], last[run]):
            addresses[position] = base + key_map[key[entry]]
            position += 1


@njit(cache=True, nogil=True)
def merge_runs(
    way: int, out: Numbers, at: Places, begin: Numbers, first: Numbers, last: Numbers, numbers: Numbers
) -> None:
    """Merge the numbers ``[first[r], last[r])`` of each run r into the rows that ``at`` has from ``begin[r]`` on."""
    for run in range(first.size):
        shift = begin[run] - first[run]
        for i in range(first[run], last[run]):
            row = at[i + shift]
            out[row] = _merged(way, out[row], numbers[i])


def warm_up() -> None:
    """Load the compiled loops for the types that nearly all buckets have."""
    words, at = np.array([1], dtype=np.uint64), np.zeros(1, dtype=np.int32)
    counts, whole = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int64)
    count_set(words)
    list_set(at.copy(), words)
    count_at_set(counts, at, words)
    for numbers in (whole, whole.astype(np.float64)):
        count_and_merge_at_set(0, counts, numbers.copy(), at, numbers, words)
        merge_at_set(1, numbers.copy(), at, numbers, words)
        take_found(numbers.copy(), 0, numbers.copy(), at, 1, numbers.dtype.type(0))
        join_runs(numbers.copy(), numbers, whole, whole + 1)
    merge_at_set(0, counts, at, counts.copy(), words)
    bits_of_table(words, at, np.zeros(1, dtype=np.uint8))
    for keys in (at, at.astype(np.int16)):
        found, ends, runs = np.zeros(2, dtype=np.int32), np.zeros(2, dtype=np.int64), np.array([0, 1], dtype=np.int32)
        take_occupied(found, np.zeros(2, dtype=keys.dtype), found.copy(), 0, counts, keys, runs, ends)
        join_runs(keys.copy(), keys, whole, whole + 1)
    place_joined(at.copy(), at, at, at)
