"""Rows numbered, ordered and picked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from braid.operators.arrays import Numbers, Places, read_only

_STRETCH = 1 << 12


@njit(cache=True, nogil=True)
def number(codes: Places, first: Numbers, table: Places, values: Numbers, min_value: int) -> int:
    """Number values in the order in which they first occur, list where in ``first``, and return how many there are.

    ``table`` is at least as long as the values lie apart; it is 0 everywhere, before and afterwards.
    """
    count = 0
    for i in range(values.size):
        at = values[i] - min_value
        if table[at] == 0:
            first[count] = i
            count += 1
            table[at] = count
        codes[i] = table[at] - 1
    for n in range(count):
        table[values[first[n]] - min_value] = 0
    return count


@njit(cache=True, nogil=True)
def number_ascending(codes: Places, first: Numbers, table: Places, values: Numbers, min_value: int, span: int) -> int:
    """Do what :func:`number` does, but number the values in their order; they lie within ``span``."""
    for i in range(values.size):
        if table[values[i] - min_value] == 0:
            table[values[i] - min_value] = i + 1
    count = 0
    for at in range(span):
        if table[at] > 0:
            first[count] = table[at] - 1
            count += 1
            table[at] = count
    for i in range(values.size):
        codes[i] = table[values[i] - min_value] - 1
    table[:span] = 0
    return count


@njit(cache=True, nogil=True)
def remainders(out: Numbers, values: Numbers, divisor: int) -> None:
    """Set the remainder of each whole number, which has the number's sign, by a positive divisor.

    Numbers and divisor are less than 2^53: quotients as doubles are off by one at most, which is some twenty times
    quicker than a division of whole numbers.
    """
    inverse = 1.0 / divisor
    for i in range(values.size):
        magnitude = abs(values[i])
        remainder = magnitude - np.int64(magnitude * inverse) * divisor
        remainder += divisor & -np.int64(remainder < 0)
        remainder -= divisor & -np.int64(remainder >= divisor)
        out[i] = -remainder if values[i] < 0 else remainder


@njit(cache=True, nogil=True)
def extent(values: Numbers) -> tuple[int, int]:
    """Return the least and the greatest of some whole numbers, of which there is one at least."""
    low = high = values[0]
    for i in range(1, values.size):
        low, high = min(low, values[i]), max(high, values[i])
    return low, high


@njit(cache=True, nogil=True)
def ascends(values: Numbers) -> bool:
    """Return whether no whole number is less than the one before it."""
    for first in range(0, values.size - 1, _STRETCH):
        # as slices, which begin at 0, they are compared several at a time
        later = values[first + 1 : first + 1 + _STRETCH]
        earlier = values[first : first + later.size]
        descents = 0
        for i in range(later.size):
            descents += 1 if later[i] < earlier[i] else 0
        if descents:
            return False
    return True


@njit(cache=True, nogil=True)
def total(values: Numbers) -> Any:
    """Return the sum of some whole numbers, which wraps around at 64 bits."""
    sum_ = np.int64(0)
    for i in range(values.size):
        sum_ += values[i]
    return sum_


@njit(cache=True, nogil=True)
def mark(occurs: Numbers, values: Numbers, min_value: int) -> None:
    """Set ``occurs`` at each value, counted from the least one."""
    for i in range(values.size):
        occurs[np.uint64(values[i] - min_value)] = True


@njit(cache=True, nogil=True)
def append_digit(code: Numbers, values: Numbers, min_value: int, values_span: int) -> None:
    """Append to each code, as a digit of base ``values_span``, the value of its row."""
    for i in range(values.size):
        code[i] = code[i] * values_span + (values[i] - min_value)


@njit(cache=True, nogil=True)
def order_by_code(order: Numbers, starts: Numbers, codes: Numbers) -> None:
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
def expand(out: Numbers, counts: Numbers, low: Numbers, stride: Numbers, size: Numbers, first: Numbers) -> None:
    """List the digits that count through the numbers ``[low[i], low[i] + taken[i])`` of each row i.

    A digit goes from ``first[i]`` on through ``size[i]`` values, each of which stays for ``stride[i]`` numbers; where
    ``first[i]`` is -1 it is always that.
    """
    at = 0
    for i in range(counts.size):
        digit = (low[i] // stride[i]) % size[i]
        remaining = stride[i] - low[i] % stride[i]
        for _ in range(counts[i]):
            out[at] = -1 if first[i] < 0 else first[i] + digit
            at += 1
            remaining -= 1
            if remaining == 0:
                remaining = stride[i]
                digit += 1
                if digit == size[i]:
                    digit = 0


@njit(cache=True, nogil=True)
def keep_mapped(
    entries: Places, cells: Places, keys: Places, cell: Numbers, key: Numbers, cell_map: Places, key_map: Places
) -> int:
    """List the entries whose cell and key are mapped to something, and to what; return how many there are."""
    n = 0
    for i in range(cell.size):
        c, k = cell_map[cell[i]], key_map[key[i]]
        if c >= 0 and k >= 0:
            entries[n], cells[n], keys[n] = i, c, k
            n += 1
    return n


@njit(cache=True, nogil=True)
def pick_tuples(
    picked: Places,
    places: Places,
    rows: Places,
    key: Places,
    place_of: Places,
    is_wanted: Numbers,
    times: Numbers,
    first: int,
    last: int,
) -> int:
    """List those of some rows that have a wanted key and a time in ``[first, last)``, and the places of their keys.

    Where the place of a key is -1 nobody wants it. ``times`` are of all rows. Return how many are listed.
    """
    n = 0
    for i in range(key.size):
        place = place_of[key[i]]
        if place >= 0 and is_wanted[place] and first <= times[rows[i]] < last:
            picked[n] = rows[i]
            places[n] = place
            n += 1
    return n


@njit(cache=True, nogil=True)
def rows_between(rows: Places, times: Numbers, first: int, last: int, is_wanted: Numbers) -> int:
    """List the wanted rows with a time in ``[first, last)``; an empty ``is_wanted`` wants all. Return how many."""
    n = 0
    for i in range(times.size):
        if first <= times[i] < last and (is_wanted.size == 0 or is_wanted[i]):
            rows[n] = i
            n += 1
    return n


@njit(cache=True, nogil=True)
def scatter(out: Numbers, at: Numbers, values: Numbers, rows: Places) -> None:
    """Set ``out[at[i]]`` to ``values[rows[i]]``."""
    for i in range(rows.size):
        out[at[i]] = values[rows[i]]


@njit(cache=True, nogil=True)
def _take(out: Numbers, numbers: Numbers, at: Numbers) -> None:
    for i in range(at.size):
        out[i] = numbers[at[i]]


def take(numbers: Numbers, at: Numbers) -> Numbers:
    """Return ``numbers[at]``, which numpy does several times slower for indices of 32 or 16 bits; -1 is the last."""
    out = np.empty(len(at), dtype=numbers.dtype)
    _take(out, numbers, at)
    return out


def warm_up() -> None:
    """Load or compile these kernels for the types that they are used with."""
    at, table = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
    short = table.astype(np.int16)
    ints, longs, doubles = (np.zeros(1, dtype=kind) for kind in (np.int32, np.int64, np.float64))
    remainders(longs.copy(), read_only(longs), 1)
    for cell in (at, short):
        for key in (at, short):
            keep_mapped(at.copy(), at.copy(), at.copy(), cell, key, table, table)
    for values in (ints, longs, read_only(ints), read_only(longs)):
        ascends(values)
        extent(values)
        total(values)
        mark(np.zeros(1, dtype=np.bool_), values, 0)
        number(at, longs, np.zeros(1, dtype=np.int32), values, 0)
        number_ascending(at, longs, np.zeros(1, dtype=np.int32), values, 0, 1)
        append_digit(longs, values, 0, 1)
    for codes in (at, longs):
        order_by_code(codes.copy(), np.zeros(2, dtype=np.int64), np.zeros_like(codes))
    expand(longs.copy(), *np.ones((5, 1), dtype=np.int64))
    pick_tuples(at.copy(), at.copy(), table, read_only(at), table, np.zeros(1, dtype=np.bool_), read_only(longs), 0, 1)
    rows_between(at.copy(), longs, 0, 1, np.zeros(1, dtype=np.bool_))
    for values in (ints, longs, doubles, np.zeros(1, dtype=np.float32)):
        for order in (at, np.zeros(1, dtype=np.int64)):
            scatter(values.copy(), order, values, table)
    take(longs, np.zeros(1, dtype=np.int64))
    for values in (ints, longs, doubles, np.zeros(1, dtype=np.complex128), np.zeros(1, dtype=np.bool_)):
        take(values, table)
    take(table, short)
    take(np.zeros(1, dtype=np.uint32), table)
