"""Numbers put into dense arrays, and what is there picked out again.

`at` is where each number goes, int32, -1 for nowhere. NaN is greater than all else; sums of integers wrap around at 64
bits, as they do everywhere on the way to an exact total.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from braid.operators.arrays import Numbers, Places, read_only


@njit(cache=True, nogil=True)
def place(at: Places, cell: Places, column: Places, columns: Any) -> None:
    """Set `at` to the entry of each tuple in an array of shape (cells, columns), int32; cell -1 is nowhere."""
    for i in range(at.size):
        at[i] = cell[i] * columns + column[i] if cell[i] >= 0 else -1


@njit(cache=True, nogil=True)
def place_looked_up(at: Places, values: Numbers, min_value: int, table: Places, column: Places) -> None:
    """Set `at` to the entry of each tuple: what `table` has for its value, from the least one on, and its column.

    Beyond an end of the table it is what stands there. Nothing is -1: what goes nowhere goes beyond the last entry.
    """
    last = np.uint64(table.size - 1)
    for i in range(at.size):
        at[i] = table[min(last, np.uint64(max(min_value, values[i]) - min_value))] + column[i]


SUM, LEAST, GREATEST = 0, 1, 2


@njit(cache=True, nogil=True)
def _merged(way: int, a: Any, b: Any) -> Any:
    """Return the sum, the least or the greatest of two numbers; NaN if one is, but the least only if both are."""
    if way == SUM:
        return a + b
    if way == LEAST:
        return a if a <= b or b != b else b
    return a if a >= b or a != a else b


@njit(cache=True, nogil=True)
def merge_looked_up(
    way: int, out: Numbers, values: Numbers, min_value: int, table: Places, column: Places, numbers: Numbers
) -> None:
    """Merge each number into its entry, ``way`` says how; the entry is looked up as in :func:`place_looked_up`."""
    last = np.uint64(table.size - 1)
    for i in range(values.size):
        at = np.uint64(table[min(last, np.uint64(max(min_value, values[i]) - min_value))] + column[i])
        out[at] = _merged(way, out[at], numbers[i])


@njit(cache=True, nogil=True)
def set_looked_up(
    out: Numbers,
    unset: int,
    missing: int,
    values: Numbers,
    min_value: int,
    table: Places,
    column: Places,
    numbers: Numbers,
    backwards: bool,
) -> int:
    """Set each entry that is ``unset`` to the first number that comes for it, the last one if ``backwards``.

    ``missing`` entries are unset before; return how many are afterwards, and stop once none is. They are looked up as
    in :func:`place_looked_up`; what goes beyond the last one is passed over.
    """
    last, size = np.uint64(table.size - 1), values.size
    for step in range(size):
        if missing == 0:
            break
        i = size - 1 - step if backwards else step
        at = table[min(last, np.uint64(max(min_value, values[i]) - min_value))] + column[i]
        if at < out.size and out[at] == unset and numbers[i] != unset:
            out[at] = numbers[i]
            missing -= 1
    return missing


@njit(cache=True, nogil=True)
def place_mapped(
    at: Places, cell: Numbers, key: Numbers, cell_map: Places, key_map: Places, first: int, keys: int
) -> None:
    """Set `at` for an array of shape (cells, keys) after renumbering both: of the ``keys`` from ``first`` on."""
    for i in range(at.size):
        c = cell_map[cell[i]]
        k = key_map[key[i]] - first
        at[i] = c * keys + k if c >= 0 and 0 <= k < keys else -1


@njit(cache=True, nogil=True)
def count(out: Numbers, at: Places) -> None:
    """Count what goes to each entry."""
    for i in range(at.size):
        if at[i] >= 0:
            out[at[i]] += 1


@njit(cache=True, nogil=True)
def add(out: Numbers, at: Places, values: Numbers) -> None:
    """Add numbers up."""
    for i in range(at.size):
        if at[i] >= 0:
            out[at[i]] += values[i]


@njit(cache=True, nogil=True)
def count_and_add(counts: Numbers, out: Numbers, at: Places, values: Numbers) -> None:
    """Count and add up in one pass."""
    for i in range(at.size):
        if at[i] >= 0:
            counts[at[i]] += 1
            out[at[i]] += values[i]


@njit(cache=True, nogil=True)
def shift_is_whole(key_map: Places, first: int, keys: int) -> bool:
    """Return whether keys keep their order and distance when they are renumbered, and none of them is left out."""
    for k in range(1, key_map.size):
        if key_map[k] != key_map[0] + k:
            return False
    return key_map[0] >= first and key_map[0] - first + key_map.size <= keys


@njit(cache=True, nogil=True)
def merge_full(
    way: int,
    out: Numbers,
    numbers: Numbers,
    cell_map: Places,
    key_map: Places,
    first: int,
    keys: int,
    keys_per_cell: int,
) -> None:
    """Merge numbers that lie cell by cell, ``keys_per_cell`` of them in the order of keys, slice after slice.

    ``way`` says how. ``out`` is flat, of shape (cells, keys) after renumbering both; it has the ``keys`` from ``first``
    on, others are left out.
    """
    shift, is_shift = key_map[0] - first, shift_is_whole(key_map, first, keys)
    cells = cell_map.size
    for i in range(numbers.size // keys_per_cell):
        c = cell_map[i % cells]
        if c < 0:
            continue
        row, base = c * keys, i * keys_per_cell
        if is_shift:
            # as slices, which begin at 0, several are merged at a time
            cell_numbers = numbers[base : base + keys_per_cell]
            cell_totals = out[row + shift : row + shift + keys_per_cell]
            for k in range(cell_numbers.size):
                cell_totals[k] = _merged(way, cell_totals[k], cell_numbers[k])
            continue
        for k in range(keys_per_cell):
            at = key_map[k] - first
            if 0 <= at < keys:
                out[row + at] = _merged(way, out[row + at], numbers[base + k])


@njit(cache=True, nogil=True)
def least(out: Numbers, at: Places, values: Numbers) -> None:
    """Keep the least number."""
    for i in range(at.size):
        if at[i] >= 0 and not (out[at[i]] <= values[i]) and values[i] == values[i]:
            out[at[i]] = values[i]


@njit(cache=True, nogil=True)
def greatest(out: Numbers, at: Places, values: Numbers) -> None:
    """Keep the greatest number."""
    for i in range(at.size):
        if at[i] >= 0 and not (out[at[i]] >= values[i]) and out[at[i]] == out[at[i]]:
            out[at[i]] = values[i]


@njit(cache=True, nogil=True)
def running_sums(sums: Numbers, cells: Numbers) -> None:
    """Set row i of ``sums``, shape (cells + 1, keys), to the sum of the rows of ``cells`` before i."""
    rows, keys = cells.shape
    for k in range(keys):
        sums[0, k] = 0
    for i in range(rows):
        for k in range(keys):
            sums[i + 1, k] = sums[i, k] + cells[i, k]


@njit(cache=True, nogil=True)
def add_runs(result: Numbers, query: Numbers, low: Numbers, high: Numbers, cells: Numbers, sums: Numbers) -> None:
    """Add to rows of ``result``, shape (queries, keys), those of ``cells`` in runs ``[low, high)``.

    ``sums`` are the running sums of ``cells``: what lies in a run that is not short is the difference of two of them.
    """
    keys = result.shape[1]
    for i in range(query.size):
        row, first, last = query[i], low[i], high[i]
        if last - first <= 2:
            for cell in range(first, last):
                for k in range(keys):
                    result[row, k] += cells[cell, k]
        else:
            for k in range(keys):
                result[row, k] += sums[last, k] - sums[first, k]


@njit(cache=True, nogil=True)
def count_present(
    lengths: Numbers, first_run: Numbers, runs: Numbers, low: Numbers, high: Numbers, sums: Numbers
) -> None:
    """Count, for each query, the keys whose counts are not zero in its cells.

    Query q has the ``runs[q]`` runs ``[low, high)`` from number ``first_run[q]`` on; ``sums``, shape (cells + 1, keys),
    are running sums of counts.
    """
    keys = sums.shape[1]
    for q in range(lengths.size):
        n = 0
        if runs[q] == 1:
            first, last = sums[low[first_run[q]]], sums[high[first_run[q]]]
            for k in range(keys):
                n += last[k] != first[k]
        else:
            for k in range(keys):
                is_present = False
                for run in range(first_run[q], first_run[q] + runs[q]):
                    is_present |= sums[high[run], k] != sums[low[run], k]
                n += is_present
        lengths[q] = n


@njit(cache=True, nogil=True)
def occupied_per_group(counts: Numbers, group_starts: Numbers) -> Numbers:
    """Return how many entries of ``counts``, shape (cells, slices, keys), are above zero in each group of keys.

    Group g has the keys ``[group_starts[g], group_starts[g + 1])``.
    """
    cells, slices, _ = counts.shape
    groups = group_starts.size - 1
    occupied = np.zeros(groups, dtype=np.int64)
    for c in range(cells):
        for s in range(slices):
            for g in range(groups):
                # as a slice, which begins at 0, several are compared at a time
                group_counts, above_zero = counts[c, s, group_starts[g] : group_starts[g + 1]], 0
                for k in range(group_counts.size):
                    above_zero += group_counts[k] > 0
                occupied[g] += above_zero
    return occupied


@njit(cache=True, nogil=True)
def pick_group(
    counts: Numbers, first: int, last: int, position: Places, cell: Places, key: Places, starts: Numbers
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
def count_pairs(
    pairs: Numbers,
    has_pairs: Numbers,
    code: Numbers,
    cell: Numbers,
    number: Numbers,
    starts: Numbers,
    cells: Numbers,
    numbers: Numbers,
) -> None:
    """Add up by both cells how many pairs there are of entries with the same code.

    Those on the right with code c are ``[starts[c], starts[c + 1])`` of ``cells`` and ``numbers``; ``has_pairs[c]`` is
    set where there are some on both sides.
    """
    for i in range(code.size):
        row, tuples = cell[i], number[i]
        for j in range(starts[code[i]], starts[code[i] + 1]):
            pairs[row, cells[j]] += tuples * numbers[j]
            has_pairs[code[i]] = True


def warm_up() -> None:
    """Load or compile these kernels for the types that they are used with."""
    at, table = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
    ints, longs, doubles = (np.zeros(1, dtype=kind) for kind in (np.int32, np.int64, np.float64))
    place(at, at, at, np.int32(1))
    short = table.astype(np.int16)
    for cell in (at, short):
        for key in (at, short):
            place_mapped(at, cell, key, table, table, 0, 1)
    counts = np.zeros(1, dtype=np.int64)
    count(counts, at)
    shorts = np.zeros(1, dtype=np.uint32)
    for values in (at, read_only(ints), read_only(longs)):
        place_looked_up(at, values, 0, table, at)
        for out, kinds in ((longs, (ints, longs)), (doubles, (doubles,))):
            for kind in kinds:
                for numbers in (kind, read_only(kind)):
                    merge_looked_up(LEAST, out, values, 0, table, at, numbers)
        for numbers in (ints, longs, read_only(ints), read_only(longs)):
            set_looked_up(longs, 0, 1, values, 0, table, at, numbers, True)
    for out, values in ((longs, ints), (longs, longs), (doubles, doubles)):
        add(out, at, values)
        count_and_add(counts, out, at, values)
        least(out, at, values)
        greatest(out, at, values)
        for numbers in (values, read_only(values)):
            merge_full(SUM, out, numbers, table, table, 0, 1, 1)
    starts = np.zeros(2, dtype=np.int64)
    for dense in (longs.reshape(1, 1, 1), shorts.reshape(1, 1, 1)):
        occupied_per_group(dense, starts)
        pick_group(dense, 0, 1, at, at, at, starts)
    table_of_one = np.zeros((2, 1), dtype=np.int64)
    running_sums(table_of_one, table_of_one[:1].copy())
    add_runs(table_of_one.copy(), counts, counts, counts, table_of_one, table_of_one)
    none = np.zeros(1, dtype=np.int64)
    count_present(none, none, none, none, none, table_of_one)
    count_pairs(np.zeros((1, 1), dtype=np.int64), np.zeros(1, dtype=np.bool_), at, at, counts, starts, at, counts)
