"""The innermost loops, compiled by numba: put numbers into dense arrays, and pick what is there.

All are one pass over flat arrays. `at` is where each number goes, int32, -1 for nowhere. Compiled code is cached on
disk; :func:`warm_up` loads it before tuples come. Minimum and maximum pass over NaN, which is their neutral value for
doubles; sums of integers wrap around at 64 bits, as they do everywhere on the way to an exact total.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[Any]
Places = npt.NDArray[np.int32]


@njit(cache=True, nogil=True)
def place(at: Places, cell: Places, column: Places, columns: Any) -> None:
    """Set `at` to the entry of each tuple in an array of shape (cells, columns), int32; cell -1 is nowhere."""
    for i in range(at.size):
        at[i] = cell[i] * columns + column[i] if cell[i] >= 0 else -1


@njit(cache=True, nogil=True)
def place_mapped(at: Places, cell: Array, key: Array, cell_map: Places, key_map: Places, first: int, keys: int) -> None:
    """Set `at` for an array of shape (cells, keys) after renumbering both; other keys than those from `first` go."""
    for i in range(at.size):
        c = cell_map[cell[i]]
        k = key_map[key[i]] - first
        at[i] = c * keys + k if c >= 0 and 0 <= k < keys else -1


@njit(cache=True, nogil=True)
def count(out: Array, at: Places) -> None:
    """Count what goes to each entry."""
    for i in range(at.size):
        if at[i] >= 0:
            out[at[i]] += 1


@njit(cache=True, nogil=True)
def add(out: Array, at: Places, values: Array) -> None:
    """Add numbers up."""
    for i in range(at.size):
        if at[i] >= 0:
            out[at[i]] += values[i]


@njit(cache=True, nogil=True)
def count_and_add(counts: Array, out: Array, at: Places, values: Array) -> None:
    """Count and add up in one pass."""
    for i in range(at.size):
        if at[i] >= 0:
            counts[at[i]] += 1
            out[at[i]] += values[i]


@njit(cache=True, nogil=True)
def least(out: Array, at: Places, values: Array) -> None:
    """Keep the least number."""
    for i in range(at.size):
        if at[i] >= 0 and not (out[at[i]] <= values[i]) and values[i] == values[i]:
            out[at[i]] = values[i]


@njit(cache=True, nogil=True)
def greatest(out: Array, at: Places, values: Array) -> None:
    """Keep the greatest number."""
    for i in range(at.size):
        if at[i] >= 0 and not (out[at[i]] >= values[i]) and values[i] == values[i]:
            out[at[i]] = values[i]


@njit(cache=True, nogil=True)
def set_bits(query_sets: Array) -> Array:
    """Return how many bits each row of ``query_sets``, shape (rows, words), has."""
    rows, words = query_sets.shape
    found = np.zeros(rows, dtype=np.int64)
    for r in range(rows):
        for w in range(words):
            word = query_sets[r, w]
            while word:
                word &= word - np.uint64(1)
                found[r] += 1
    return found


# the number of the only bit of a word is found by multiplying it with a de Bruijn sequence: six bits that occur once
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_OF = np.zeros(64, dtype=np.int32)
for _bit in range(64):
    _BIT_OF[((1 << _bit) * int(_DE_BRUIJN) % 2**64) >> 58] = _bit


@njit(cache=True, nogil=True)
def place_each(
    at: Places, source: Places, tuples: Places, cell: Places, column: Places, query_sets: Array, queries: int
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


@njit(cache=True, nogil=True)
def occupied_per_group(counts: Array, group_starts: Array) -> Array:
    """Return how many entries of ``counts``, shape (cells, slices, keys), are above zero in each group of keys.

    Group g has the keys ``[group_starts[g], group_starts[g + 1])``.
    """
    cells, slices, _ = counts.shape
    groups = group_starts.size - 1
    found = np.zeros(groups, dtype=np.int64)
    for c in range(cells):
        for s in range(slices):
            for g in range(groups):
                for k in range(group_starts[g], group_starts[g + 1]):
                    found[g] += counts[c, s, k] > 0
    return found


@njit(cache=True, nogil=True)
def pick_group(
    counts: Array, first: int, last: int, position: Places, cell: Places, key: Places, starts: Array
) -> None:
    """List the entries above zero of the keys ``[first, last)``, slice by slice: where, which cell, which key.

    Keys are counted from ``first``; ``starts[s]`` becomes the number of the first entry of slice s.
    """
    cells, slices, keys = counts.shape
    i = 0
    for s in range(slices):
        starts[s] = i
        for c in range(cells):
            base = (c * slices + s) * keys
            for k in range(first, last):
                if counts[c, s, k] > 0:
                    position[i] = base + k
                    cell[i] = c
                    key[i] = k - first
                    i += 1
    starts[slices] = i


@njit(cache=True, nogil=True)
def running_sums(sums: Array, cells: Array) -> None:
    """Set row i of ``sums``, shape (cells + 1, keys), to the sum of the rows of ``cells`` before i."""
    rows, keys = cells.shape
    for k in range(keys):
        sums[0, k] = 0
    for i in range(rows):
        for k in range(keys):
            sums[i + 1, k] = sums[i, k] + cells[i, k]


@njit(cache=True, nogil=True)
def number(codes: Places, first: Array, table: Places, values: Array, least_value: int) -> int:
    """Number values in the order in which they first occur, list where in ``first``, and return how many there are.

    ``table`` is as long as the values lie apart or longer, 0 everywhere, and so it is left.
    """
    found = 0
    for i in range(values.size):
        at = values[i] - least_value
        if table[at] == 0:
            first[found] = i
            found += 1
            table[at] = found
        codes[i] = table[at] - 1
    for n in range(found):
        table[values[first[n]] - least_value] = 0
    return found


@njit(cache=True, nogil=True)
def number_ascending(codes: Places, first: Array, table: Places, values: Array, least_value: int, span: int) -> int:
    """Do what :func:`number` does, but number the values in their order; they lie within ``span``."""
    for i in range(values.size):
        if table[values[i] - least_value] == 0:
            table[values[i] - least_value] = i + 1
    found = 0
    for at in range(span):
        if table[at] > 0:
            first[found] = table[at] - 1
            found += 1
            table[at] = found
    for i in range(values.size):
        codes[i] = table[values[i] - least_value] - 1
    table[:span] = 0
    return found


@njit(cache=True, nogil=True)
def append_digit(code: Array, values: Array, least_value: int, values_span: int) -> None:
    """Append to each code the value of its row, of so many possible ones, as a digit."""
    for i in range(values.size):
        code[i] = code[i] * values_span + (values[i] - least_value)


@njit(cache=True, nogil=True)
def order_by_code(order: Array, starts: Array, codes: Array) -> None:
    """List the rows of each code in ``order``; ``starts[c]``, 0 at first, becomes where those of code c begin.

    Rows with code -1 are left out. ``starts`` has one end more than there are codes.
    """
    for i in range(codes.size):
        if codes[i] >= 0:
            starts[codes[i] + 1] += 1
    for c in range(1, starts.size):
        starts[c] += starts[c - 1]
    free = starts.copy()
    for i in range(codes.size):
        if codes[i] >= 0:
            order[free[codes[i]]] = i
            free[codes[i]] += 1


@njit(cache=True, nogil=True)
def expand(out: Array, taken: Array, low: Array, stride: Array, size: Array, first: Array) -> None:
    """List the digits that count through the numbers ``[low[i], low[i] + taken[i])`` of each row i.

    A digit goes from ``first[i]`` on through ``size[i]`` values, each of which stays for ``stride[i]`` numbers; where
    ``first[i]`` is -1 it is always that.
    """
    at = 0
    for i in range(taken.size):
        digit = (low[i] // stride[i]) % size[i]
        left = stride[i] - low[i] % stride[i]
        for _ in range(taken[i]):
            out[at] = -1 if first[i] < 0 else first[i] + digit
            at += 1
            left -= 1
            if left == 0:
                left = stride[i]
                digit += 1
                if digit == size[i]:
                    digit = 0


@njit(cache=True, nogil=True)
def keep_mapped(
    kept: Places, cells: Places, keys: Places, cell: Array, key: Array, cell_map: Places, key_map: Places
) -> int:
    """List the entries whose cell and key are mapped to something, and to what; return how many there are."""
    n = 0
    for i in range(cell.size):
        c, k = cell_map[cell[i]], key_map[key[i]]
        if c >= 0 and k >= 0:
            kept[n], cells[n], keys[n] = i, c, k
            n += 1
    return n


@njit(cache=True, nogil=True)
def count_pairs(
    pairs: Array, met: Array, code: Array, cell: Array, number: Array, starts: Array, cells: Array, numbers: Array
) -> None:
    """Add up by both cells how many pairs there are of entries with the same code.

    Those on the right with code c are ``[starts[c], starts[c + 1])`` of ``cells`` and ``numbers``; ``met[c]`` is set
    where there are some on both sides.
    """
    for i in range(code.size):
        row, many = cell[i], number[i]
        for j in range(starts[code[i]], starts[code[i] + 1]):
            pairs[row, cells[j]] += many * numbers[j]
            met[code[i]] = True


@njit(cache=True, nogil=True)
def count_few_boundaries(out: Places, boundaries: Array, values: Array) -> None:
    """Set ``out``, all zeros, to how many of few boundaries are at most each value, without a branch."""
    for first in range(0, values.size, 4096):
        last = min(values.size, first + 4096)
        for boundary in boundaries:
            for i in range(first, last):
                out[i] += values[i] >= boundary


@njit(cache=True, nogil=True)
def count_close_boundaries(out: Places, least_value: int, greatest_value: int, table: Places, values: Array) -> None:
    """Set ``out`` to how many boundaries are at most each value; ``table`` has it from the least to the greatest."""
    for i in range(values.size):
        value = values[i]
        inside = max(least_value, min(greatest_value, value))
        out[i] = table[inside - least_value] if value >= least_value else 0


@njit(cache=True, nogil=True)
def count_boundaries(out: Places, boundaries: Array, table: Places, shift: int, values: Array) -> None:
    """Set ``out`` to how many of the ascending boundaries are at most each value.

    From the least boundary on values lie in stretches of ``2 ** shift``; ``table`` has the count for the first of each.
    """
    least_value, greatest_value = boundaries[0], boundaries[-1]
    for i in range(values.size):
        value = values[i]
        if value < least_value:
            out[i] = 0
        elif value >= greatest_value:
            out[i] = boundaries.size
        else:
            found = table[(value - least_value) >> shift]
            while boundaries[found] <= value:
                found += 1
            out[i] = found


@njit(cache=True, nogil=True)
def count_double_boundaries(out: Places, boundaries: Array, table: Places, scale: float, values: Array) -> None:
    """Do the same for doubles; NaN is beyond all boundaries.

    The stretch of a value is its distance from the least boundary times ``scale``, rounded down. However that is
    rounded, it never falls as values grow; ``table`` has how many boundaries are in earlier stretches.
    """
    least_value, greatest_value = boundaries[0], boundaries[-1]
    for i in range(values.size):
        value = values[i]
        if value < least_value:
            out[i] = 0
        elif not value < greatest_value:
            out[i] = boundaries.size
        else:
            found = table[int((value - least_value) * scale)]
            while boundaries[found] <= value:
                found += 1
            out[i] = found


@njit(cache=True, nogil=True)
def _take(out: Array, numbers: Array, at: Array) -> None:
    for i in range(at.size):
        out[i] = numbers[at[i]]


def taken(numbers: Array, at: Array) -> Array:
    """Return ``numbers[at]``, which numpy does several times slower for indices of 32 or 16 bits; none is negative."""
    out = np.empty(len(at), dtype=numbers.dtype)
    _take(out, numbers, at)
    return out


def warm_up() -> None:
    """Load or compile every kernel for the types that it is used with."""
    at, table = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
    numbers = [np.zeros(1, dtype=kind) for kind in (np.int32, np.int64, np.float64)]
    place(at, at, at, np.int32(1))
    short = table.astype(np.int16)
    for cell in (at, short):
        for key in (at, short):
            place_mapped(at, cell, key, table, table, 0, 1)
            keep_mapped(at.copy(), at.copy(), at.copy(), cell, key, table, table)
    counts = np.zeros(1, dtype=np.int64)
    count(counts, at)
    for out, values in ((numbers[1], numbers[0]), (numbers[1], numbers[1]), (numbers[2], numbers[2])):
        add(out, at, values)
        count_and_add(counts, out, at, values)
        least(out, at, values)
        greatest(out, at, values)
    query_sets = np.ones((1, 1), dtype=np.uint64)
    set_bits(query_sets)
    place_each(at, at.copy(), table, table, at.copy(), query_sets, 1)
    dense, starts = np.zeros((1, 1, 1), dtype=np.int64), np.zeros(2, dtype=np.int64)
    occupied_per_group(dense, starts)
    pick_group(dense, 0, 1, at, at, at, starts)
    running_sums(np.zeros((2, 1), dtype=np.int64), np.zeros((1, 1), dtype=np.int64))
    for values in numbers[:2]:
        number(at, counts, np.zeros(1, dtype=np.int32), values, 0)
        number_ascending(at, counts, np.zeros(1, dtype=np.int32), values, 0, 1)
        append_digit(counts, values, 0, 1)
        count_boundaries(at, numbers[1], table, 0, values)
        count_close_boundaries(at, 0, 0, table, values)
        count_few_boundaries(at, numbers[1], values)
    count_few_boundaries(at, numbers[2], numbers[2])
    count_double_boundaries(at, numbers[2], table, 0.0, numbers[2])
    order_by_code(counts, np.zeros(2, dtype=np.int64), counts)
    order_by_code(at, np.zeros(2, dtype=np.int64), at)
    expand(counts.copy(), *np.ones((5, 1), dtype=np.int64))
    taken(counts, np.zeros(1, dtype=np.int64))
    count_pairs(np.zeros((1, 1), dtype=np.int64), np.zeros(1, dtype=np.bool_), at, at, counts, starts, at, counts)
    for values in (*numbers, np.zeros(1, dtype=np.complex128), np.zeros(1, dtype=np.bool_)):
        taken(values, table)
    taken(table, short)
