"""The cell of each value: how many ascending boundaries are at most that."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from operators.arrays import Numbers, Places


@njit(cache=True, nogil=True)
def count_few_boundaries(out: Places, boundaries: Numbers, values: Numbers) -> None:
    """Set ``out``, all zeros, to how many of few boundaries are at most each value, without a branch."""
    for first in range(0, values.size, 4096):
        last = min(values.size, first + 4096)
        for boundary in boundaries:
            for i in range(first, last):
                out[i] += values[i] >= boundary


@njit(cache=True, nogil=True)
def look_up(out: Places, values: Numbers, least_value: int, table: Places) -> None:
    """Set ``out`` to what ``table`` has for each value, from the least on, and beyond its ends to what stands there."""
    greatest_value = least_value + table.size - 1
    for i in range(values.size):
        out[i] = table[max(least_value, min(greatest_value, values[i])) - least_value]


@njit(cache=True, nogil=True)
def count_boundaries(out: Places, boundaries: Numbers, table: Places, shift: int, values: Numbers) -> None:
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
def count_double_boundaries(out: Places, boundaries: Numbers, table: Places, scale: float, values: Numbers) -> None:
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
def append_cell(code: Places, cells: Any, numbers: Places, found: Places, rows: Places) -> None:
    """Append to each code the number of the cell that was found for its row, of so many ``cells``, as a digit."""
    for i in range(rows.size):
        code[i] = code[i] * cells + numbers[found[rows[i]]]


def warm_up() -> None:
    """Load or compile these kernels for the types that they are used with."""
    at, table = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
    ints, longs, doubles = (np.zeros(1, dtype=kind) for kind in (np.int32, np.int64, np.float64))
    for values in (ints, longs):
        count_boundaries(at, longs, table, 0, values)
        look_up(at, values, 0, table)
        count_few_boundaries(at, longs, values)
    count_few_boundaries(at, doubles, doubles)
    count_double_boundaries(at, doubles, table, 0.0, doubles)
    rows = np.zeros(1, dtype=np.int32)  # what has been counted is no row
    append_cell(at, np.int32(1), table, rows, rows)
