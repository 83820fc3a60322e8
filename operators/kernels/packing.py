"""Counts and sums packed into one number, see :mod:`braid.operators.state.packed_sums`: added up, taken apart and
merged.

The sum has the lowest ``bits``, the count those above; each number is added less ``min_number``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from braid.operators.arrays import Numbers, Places, read_only
from braid.operators.kernels.accumulation import shift_is_whole
from braid.operators.kernels.rows import extent


@njit(cache=True, nogil=True)
def add_packed(
    packed: Numbers,
    values: Numbers,
    min_value: int,
    table: Places,
    column: Numbers,
    numbers: Numbers,
    one_tuple: int,
) -> None:
    """Add a number and ``one_tuple`` to an entry for each tuple: its sum and, in higher bits, its count.

    Entries are looked up as in :func:`braid.operators.kernels.accumulation.place_looked_up`. What an entry has no room
    for is lost.
    """
    if values.size == 0:
        return
    last = np.uint64(table.size - 1)
    low, high = extent(values)
    # an index without a sign needs no look whether it counts from the end: a fifth of the time
    if min_value <= low and high <= min_value + table.size - 1:
        for i in range(values.size):
            packed[np.uint64(table[np.uint64(values[i] - min_value)] + column[i])] += numbers[i] + one_tuple
        return
    for i in range(values.size):
        at = min(last, np.uint64(max(min_value, values[i]) - min_value))
        packed[np.uint64(table[at] + column[i])] += numbers[i] + one_tuple


@njit(cache=True, nogil=True)
def _unpacked(packed: Any, bits: int, min_number: int) -> tuple[Any, Any]:
    """Return the count and the sum in one packed number."""
    number = np.int64(packed)
    count = number >> bits
    return count, (number & ((np.int64(1) << bits) - 1)) + count * min_number


@njit(cache=True, nogil=True)
def packed_totals(packed: Numbers, bits: int) -> tuple[Any, Any]:
    """Return all counts of packed sums together, and all sums; these take the lowest ``bits``."""
    counts, sums = np.int64(0), np.int64(0)
    for i in range(packed.size):
        count, total = _unpacked(packed[i], bits, 0)
        counts += count
        sums += total
    return counts, sums


@njit(cache=True, nogil=True)
def unpack(counts: Numbers, sums: Numbers, packed: Numbers, bits: int, min_number: int) -> bool:
    """Take packed sums apart. Return whether all sums fit into what they are put into."""
    fits = True
    for i in range(packed.size):
        count, total = _unpacked(packed[i], bits, min_number)
        counts[i] = count
        sums[i] = total
        fits &= sums[i] == total
    return fits


@njit(cache=True, nogil=True)
def merge_packed(
    counts: Numbers,
    sums: Numbers,
    packed: Numbers,
    bits: int,
    min_number: int,
    cell_map: Places,
    key_map: Places,
    first: int,
    keys: int,
    keys_per_cell: int,
) -> None:
    """Add packed sums to counts and sums, each as :func:`braid.operators.kernels.accumulation.merge_full` does it."""
    shift, is_shift = key_map[0] - first, shift_is_whole(key_map, first, keys)
    cells = cell_map.size
    for i in range(packed.size // keys_per_cell):
        c = cell_map[i % cells]
        if c < 0:
            continue
        row, base = c * keys, i * keys_per_cell
        if is_shift:
            cell_packed, begin = packed[base : base + keys_per_cell], row + shift
            cell_counts, cell_sums = counts[begin : begin + keys_per_cell], sums[begin : begin + keys_per_cell]
            for k in range(cell_packed.size):
                count, total = _unpacked(cell_packed[k], bits, min_number)
                cell_counts[k] += count
                cell_sums[k] += total
            continue
        for k in range(keys_per_cell):
            at = key_map[k] - first
            if 0 <= at < keys:
                count, total = _unpacked(packed[base + k], bits, min_number)
                counts[row + at] += count
                sums[row + at] += total


def warm_up() -> None:
    """Load or compile these kernels for the types that they are used with."""
    at, table = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
    ints, longs, shorts = (np.zeros(1, dtype=kind) for kind in (np.int32, np.int64, np.uint32))
    for packed in (shorts, read_only(shorts), longs):
        for sums in (at, longs):
            unpack(at, sums, packed, 1, 0)
        merge_packed(longs, longs, packed, 1, 0, table, table, 0, 1, 1)
    packed_totals(shorts, 1)
    short = table.astype(np.int16)
    pairs: list[tuple[Numbers, Numbers]] = [
        (at, read_only(ints)),
        (at, read_only(longs)),
        (short.view(np.uint16), short),
    ]
    for values in (at, read_only(ints), read_only(longs)):
        for packed in (longs, shorts):
            for column, numbers in pairs:
                add_packed(packed, values, 0, table, column, numbers, 1)
