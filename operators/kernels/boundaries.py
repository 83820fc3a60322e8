"""The cell of each value: how many ascending boundaries are at most that."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from braid.operators.arrays import Numbers, Places, read_only

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

HEAD_BYTES = 8


@njit(cache=True, nogil=True)
def count_few_boundaries(out: Places, boundaries: Numbers, values: Numbers) -> None:
    """Set ``out``, all zeros, to how many of few boundaries are at most each value, without a branch."""
    for first in range(0, values.size, 4096):
        last = min(values.size, first + 4096)
        for boundary in boundaries:
            for i in range(first, last):
                out[i] += not values[i] < boundary  # NaN is beyond all


@njit(cache=True, nogil=True)
def look_up(out: Places, values: Numbers, min_value: int, table: Places) -> None:
    """Set ``out`` to what ``table``, from ``min_value`` on, has for each value; its ends stand for all beyond."""
    greatest_value = min_value + table.size - 1
    for i in range(values.size):
        out[i] = table[max(min_value, min(greatest_value, values[i])) - min_value]


@njit(cache=True, nogil=True)
def count_boundaries(
    out: Places, boundaries: Numbers, first: int, last: int, table: Places, shift: int, values: Numbers
) -> None:
    """Set ``out`` to how many of the ascending boundaries are at most each value.

    Between boundary ``first`` and boundary ``last`` values lie in stretches of ``2 ** shift``; ``table`` has the count
    for the first value of each, and at its end that for boundary ``last``.
    """
    min_value, greatest_value = boundaries[first], boundaries[last]
    for i in range(values.size):
        value = values[i]
        if value < min_value:
            out[i] = _count(boundaries, value, 0, first)
        elif value >= greatest_value:
            out[i] = _count(boundaries, value, last + 1, boundaries.size)
        else:
            stretch = (value - min_value) >> shift
            out[i] = _count(boundaries, value, table[stretch], table[stretch + 1])


@njit(cache=True, nogil=True)
def count_double_boundaries(
    out: Places, boundaries: Numbers, first: int, last: int, table: Places, scale: float, values: Numbers
) -> None:
    """Do what :func:`count_boundaries` does for doubles; NaN is beyond all boundaries.

    The stretch of a value is its distance from boundary ``first`` times ``scale``, rounded down. However that is
    rounded, it never falls as values grow; ``table`` has how many boundaries are in earlier stretches.
    """
    min_value, greatest_value = boundaries[first], boundaries[last]
    for i in range(values.size):
        value = values[i]
        if value < min_value:
            out[i] = _count(boundaries, value, 0, first)
        elif value < greatest_value:
            stretch = int((value - min_value) * scale)
            out[i] = _count(boundaries, value, table[stretch], table[stretch + 1])
        elif value == value:
            out[i] = _count(boundaries, value, last + 1, boundaries.size)
        else:
            out[i] = boundaries.size


@njit(cache=True, nogil=True)
def _count(boundaries: Numbers, value: Any, low: int, high: int) -> int:
    """Return how many boundaries are at most a value; the answer lies from ``low`` to ``high``."""
    while low < high:
        middle = (low + high) >> 1
        if boundaries[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def count_texts(
    out: Places, shared: Bytes, heads: Words, table: Places, starts: Places, texts: Bytes, at: Places, values: Bytes
) -> None:
    """Set ``out`` to how many of ascending boundaries are at most each value; all are texts in UTF-8.

    All boundaries begin with ``shared``. ``heads`` are the eight bytes after it, as a number, zeros beyond their ends;
    ``table`` has how many heads have less than each number in their first two bytes, and at its end that of all.
    Boundary i is ``texts[starts[i]:starts[i + 1]]``, and values lie alike between the places ``at``.
    """
    count = heads.size
    for i in range(out.size):
        begin, end = at[i], at[i + 1]
        order = _compare(values, begin, min(end, begin + shared.size), shared, 0, shared.size)
        if order:
            out[i] = 0 if order < 0 else count
            continue
        head = np.uint64(0)
        for place in range(begin + shared.size, begin + shared.size + HEAD_BYTES):
            head = (head << np.uint64(8)) | np.uint64(values[place] if place < end else 0)
        stretch = np.int64(head >> np.uint64(48))
        low, high = table[stretch], table[stretch + 1]
        while low < high:
            middle = (low + high) >> 1
            is_least = heads[middle] < head
            if heads[middle] == head:
                is_least = _compare(texts, starts[middle], starts[middle + 1], values, begin, end) <= 0
            if is_least:
                low = middle + 1
            else:
                high = middle
        out[i] = low


@njit(cache=True, nogil=True)
def _compare(left: Bytes, begin: int, end: int, right: Bytes, other_begin: int, other_end: int) -> int:
    """Return a number below, at or above 0 as one text is less than, equal to or greater than another."""
    for i in range(min(end - begin, other_end - other_begin)):
        byte, other = left[begin + i], right[other_begin + i]
        if byte != other:
            return -1 if byte < other else 1
    return (end - begin) - (other_end - other_begin)


@njit(cache=True, nogil=True)
def append_cell(code: Places, cells: Any, numbers: Places, cell_of: Places, rows: Places) -> None:
    """Append to each code, as a digit of base ``cells``, the number of its row's cell."""
    for i in range(rows.size):
        code[i] = code[i] * cells + numbers[cell_of[rows[i]]]


def warm_up() -> None:
    """Load or compile these kernels for the types that they are used with."""
    at, table = np.zeros(1, dtype=np.int32), np.zeros(2, dtype=np.int32)
    ints, longs, doubles = (np.zeros(1, dtype=kind) for kind in (np.int32, np.int64, np.float64))
    for values in (ints, longs):
        count_boundaries(at, longs, 0, 0, table, 0, values)
        look_up(at, values, 0, table)
        count_few_boundaries(at, longs, values)
    count_few_boundaries(at, doubles, doubles)
    count_double_boundaries(at, doubles, 0, 0, table, 0.0, doubles)
    rows = np.zeros(1, dtype=np.int32)  # not ``at``, whose counts need not be rows
    append_cell(at, np.int32(1), table, rows, rows)
    text, heads = np.zeros(1, dtype=np.uint8), np.zeros(1, dtype=np.uint64)
    count_texts(at, text, heads, table, table, text, read_only(table), read_only(text))
