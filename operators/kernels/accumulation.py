"""Numbers put into dense arrays, and what is there picked out again.

`at` is where each number goes, int32, -1 for nowhere. NaN is greater than all else; sums of integers wrap around at 64
bits, as they do everywhere on the way to an exact total.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from operators.arrays import Numbers, Places, read_only
from operators.kernels.rows import extent


@njit(cache=True, nogil=True)
def place(at: Places, cell: Places, column: Places, columns: Any) -> None:
    """Set `at` to the entry of each tuple in an array of shape (cells, columns), int32; cell -1 is nowhere."""
    for i in range(at.size):
        at[i] = cell[i] * columns + column[i] if cell[i] >= 0 else -1


@njit(cache=True, nogil=True)
def place_looked_up(at: Places, values: Numbers, least_value: int, table: Places, column: Places) -> None:
    """Set `at` to the entry of each tuple: what `table` has for its value, from the least one on, and its column.

    Beyond an end of the table it is what stands there. Nothing is -1: what goes nowhere goes beyond the last entry.
    """
    last = np.uint64(table.size - 1)
    for i in range(at.size):
        at[i] = table[min(last, np.uint64(max(least_value, values[i]) - least_value))] + column[i]


@njit(cache=True, nogil=True)
def add_packed(
    packed: Numbers,
    values: Numbers,
    least_value: int,
    table: Places,
    column: Numbers,
    numbers: Numbers,
    one: int,
) -> None:
    """Add a number and ``one`` to an entry for each tuple: a count above the sum, see :mod:`operators.packed_sums`.

    Which entry that is, is looked up as in :func:`place_looked_up`. What the entry has no room for is lost.
    """
    if values.size == 0:
        return
    last = np.uint64(table.size - 1)
    low, high = extent(values)
    # an index without a sign needs no look whether it counts from the end: a fifth of the time
    if least_value <= low and high <= least_value + table.size - 1:
        for i in range(values.size):
            packed[np.uint64(table[np.uint64(values[i] - least_value)] + column[i])] += numbers[i] + one
        return
    for i in range(values.size):
        at = min(last, np.uint64(max(least_value, values[i]) - least_value))
        packed[np.uint64(table[at] + column[i])] += numbers[i] + one


@njit(cache=True, nogil=True)
def _apart(packed: Any, bits: int, least_number: int) -> tuple[Any, Any]:
    """Return the count and the sum in one packed number."""
    number = np.int64(packed)
    count = number >> bits
    return count, (number & ((np.int64(1) << bits) - 1)) + count * least_number


@njit(cache=True, nogil=True)
def packed_totals(packed: Numbers, bits: int) -> tuple[Any, Any]:
    """Return all counts of packed sums together, and all sums; these take the lowest ``bits``."""
    counts, sums = np.int64(0), np.int64(0)
    for i in range(packed.size):
        count, total = _apart(packed[i], bits, 0)
        counts += count
        sums += total
    return counts, sums


SUM, LEAST, GREATEST = 0, 1, 2


@njit(cache=True, nogil=True)
def _merged(way: int, one: Any, other: Any) -> Any:
    """Return both together: the sum, the least or the greatest, which is NaN if one is; the least only if both are."""
    if way == SUM:
        return one + other
    if way == LEAST:
        return one if one <= other or other != other else other
    return one if one >= other or one != one else other


@njit(cache=True, nogil=True)
def merge_looked_up(
    way: int, out: Numbers, values: Numbers, least_value: int, table: Places, column: Places, numbers: Numbers
) -> None:
    """Merge each number into its entry, ``way`` says how; the entry is looked up as in :func:`place_looked_up`."""
    last = np.uint64(table.size - 1)
    for i in range(values.size):
        at = np.uint64(table[min(last, np.uint64(max(least_value, values[i]) - least_value))] + column[i])
        out[at] = _merged(way, out[at], numbers[i])


@njit(cache=True, nogil=True)
def set_looked_up(
    out: Numbers,
    unset: int,
    missing: int,
    values: Numbers,
    least_value: int,
    table: Places,
    column: Places,
    numbers: Numbers,
    backwards: bool,
) -> int:
    """Set each entry that is ``unset`` to the first number that comes for it, the last one if ``backwards``.

    So many are ``missing`` before; return how many are afterwards, and stop once none is. Entries are looked up as in
    :func:`place_looked_up`; what goes beyond the last one is passed over.
    """
    last, size = np.uint64(table.size - 1), values.size
    for step in range(size):
        if missing == 0:
            break
        i = size - 1 - step if backwards else step
        at = table[min(last, np.uint64(max(least_value, values[i]) - least_value))] + column[i]
        if at < out.size and out[at] == unset and numbers[i] != unset:
            out[at] = numbers[i]
            missing -= 1
    return missing


@njit(cache=True, nogil=True)
def unpack(counts: Numbers, sums: Numbers, packed: Numbers, bits: int, least_number: int) -> bool:
    """Take packed sums apart. Return whether all sums fit into what they are put into."""
    fits = True
    for i in range(packed.size):
        count, total = _apart(packed[i], bits, least_number)
        counts[i] = count
        sums[i] = total
        fits &= sums[i] == total
    return fits


@njit(cache=True, nogil=True)
def place_mapped(
    at: Places, cell: Numbers, key: Numbers, cell_map: Places, key_map: Places, first: int, keys: int
) -> None:
    """Set `at` for an array of shape (cells, keys) after renumbering both; other keys than those from `first` go."""
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
    """Return whether keys keep their order and distance when they are renumbered, and all of them are wanted."""
    for k in range(1, key_map.size):
        if key_map[k] != key_map[0] + k:
            return False
    return key_map[0] >= first and key_map[0] - first + key_map.size <= keys


@njit(cache=True, nogil=True)
def merge_full(
    way: int, out: Numbers, numbers: Numbers, cell_map: Places, key_map: Places, first: int, keys: int, own_keys: int
) -> None:
    """Merge numbers of which each cell has one for all of ``own_keys``, in their order, and so again and again.

    ``way`` says how. ``out`` has the shape (cells, keys) of both renumbered, flat; keys other than those from ``first``
    are left out.
    """
    shift, follow = key_map[0] - first, shift_is_whole(key_map, first, keys)
    cells = cell_map.size
    for i in range(numbers.size // own_keys):
        c = cell_map[i % cells]
        if c < 0:
            continue
        row, base = c * keys, i * own_keys
        if follow:
            # as slices, which begin at 0, several are merged at a time
            mine, merged = numbers[base : base + own_keys], out[row + shift : row + shift + own_keys]
            for k in range(mine.size):
                merged[k] = _merged(way, merged[k], mine[k])
            continue
        for k in range(own_keys):
            at = key_map[k] - first
            if 0 <= at < keys:
                out[row + at] = _merged(way, out[row + at], numbers[base + k])


@njit(cache=True, nogil=True)
def merge_packed(
    counts: Numbers,
    sums: Numbers,
    packed: Numbers,
    bits: int,
    least_number: int,
    cell_map: Places,
    key_map: Places,
    first: int,
    keys: int,
    own_keys: int,
) -> None:
    """Add packed sums to counts and sums, each as :func:`merge_full` does it."""
    shift, follow = key_map[0] - first, shift_is_whole(key_map, first, keys)
    cells = cell_map.size
    for i in range(packed.size // own_keys):
        c = cell_map[i % cells]
        if c < 0:
            continue
        row, base = c * keys, i * own_keys
        if follow:
            mine, to = packed[base : base + own_keys], row + shift
            some, totals = counts[to : to + own_keys], sums[to : to + own_keys]
            for k in range(mine.size):
                count, total = _apart(mine[k], bits, least_number)
                some[k] += count
                totals[k] += total
            continue
        for k in range(own_keys):
            at = key_map[k] - first
            if 0 <= at < keys:
                count, total = _apart(packed[base + k], bits, least_number)
                counts[row + at] += count
                sums[row + at] += total


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
def occupied_per_group(counts: Numbers, group_starts: Numbers) -> Numbers:
    """Return how many entries of ``counts``, shape (cells, slices, keys), are above zero in each group of keys.

    Group g has the keys ``[group_starts[g], group_starts[g + 1])``.
    """
    cells, slices, _ = counts.shape
    groups = group_starts.size - 1
    found = np.zeros(groups, dtype=np.int64)
    for c in range(cells):
        for s in range(slices):
            for g in range(groups):
                # as a slice, which begins at 0, several are compared at a time
                mine, some = counts[c, s, group_starts[g] : group_starts[g + 1]], 0
                for k in range(mine.size):
                    some += mine[k] > 0
                found[g] += some
    return found


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
    met: Numbers,
    code: Numbers,
    cell: Numbers,
    number: Numbers,
    starts: Numbers,
    cells: Numbers,
    numbers: Numbers,
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
    for packed in (shorts, read_only(shorts), longs):
        for sums in (at, longs):
            unpack(at, sums, packed, 1, 0)
        merge_packed(longs, longs, packed, 1, 0, table, table, 0, 1, 1)
    packed_totals(shorts, 1)
    pairs: list[tuple[Numbers, Numbers]] = [
        (at, read_only(ints)),
        (at, read_only(longs)),
        (short.view(np.uint16), short),
    ]
    for values in (at, read_only(ints), read_only(longs)):
        place_looked_up(at, values, 0, table, at)
        for packed in (longs, shorts):
            for column, numbers in pairs:
                add_packed(packed, values, 0, table, column, numbers, 1)
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
    count_pairs(np.zeros((1, 1), dtype=np.int64), np.zeros(1, dtype=np.bool_), at, at, counts, starts, at, counts)
