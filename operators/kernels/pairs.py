"""Pairs of rows of two inputs with equal codes: found group by group, and formed as far as somebody asks.

Rows are listed in ascending order of their codes, -1 for NULL, which equals nothing. A group is the rows of one code:
the place of the first on the left and how many there are, and the same on the right, where there may be none.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from braid.operators.arrays import Numbers, Places
from braid.operators.predicates.query_set import Bools


@njit(cache=True, nogil=True)
def match_groups(
    groups: Places,
    before: Numbers,
    left: Places,
    left_codes: Places,
    right: Places,
    right_codes: Places,
    with_partner: bool,
    without_partner: bool,
    most: int,
) -> int:
    """Set ``groups``, shape (groups, 4), to those with a partner, without one, or both, as is asked; return how many.

    ``before`` becomes the number of pairs of all groups before each, and at its end of all; none above ``most``.
    """
    i, j, n = 0, 0, 0
    before[0] = 0
    while i < left.size:
        first, code = i, left_codes[left[i]]
        while i < left.size and left_codes[left[i]] == code:
            i += 1
        while j < right.size and right_codes[right[j]] < max(code, 0):
            j += 1
        begin = j
        while j < right.size and right_codes[right[j]] == code:
            j += 1
        if (j > begin and with_partner) or (j == begin and without_partner):
            groups[n, 0], groups[n, 1], groups[n, 2], groups[n, 3] = first, i - first, begin, j - begin
            before[n + 1] = min(most, before[n] + (i - first) * max(1, j - begin))
            n += 1
    return n


@njit(cache=True, nogil=True)
def form_pairs(
    left_out: Places, right_out: Places, groups: Places, left: Places, right: Places, group: int, skipped: int
) -> None:
    """List the rows of pairs from a group on, without the first ``skipped`` of it; -1 on the right for no partner."""
    n = 0
    while n < left_out.size:
        first, rows, begin, partners = groups[group]
        pairs_per_row = max(1, partners)
        i, j = skipped // pairs_per_row, skipped % pairs_per_row
        while i < rows and n < left_out.size:
            left_out[n] = left[first + i]
            right_out[n] = right[begin + j] if partners > 0 else -1
            n += 1
            j += 1
            if j == pairs_per_row:
                i, j = i + 1, 0
        group, skipped = group + 1, 0


@njit(cache=True, nogil=True)
def pick_pairs(
    left_out: Places, right_out: Places, left: Places, right: Places, wanted_left: Bools, wanted_right: Bools
) -> int:
    """List those pairs whose rows are wanted on both sides, where an empty mask wants all; return how many."""
    n = 0
    for pair in range(left.size):
        i, j = left[pair], right[pair]
        left_out[n], right_out[n] = i, j  # the next one takes its place if it is not wanted
        n += (wanted_left.size == 0 or wanted_left[i]) and (wanted_right.size == 0 or wanted_right[j])
    return n


def warm_up() -> None:
    """Load or compile these kernels for the types that they are used with."""
    rows, groups = np.zeros(1, dtype=np.int32), np.zeros((1, 4), dtype=np.int32)
    match_groups(groups, np.zeros(2, dtype=np.int64), rows, rows, rows, rows, True, True, 1)
    form_pairs(rows.copy(), rows.copy(), groups, rows, rows, 0, 0)
    wanted = np.zeros(1, dtype=np.bool_)
    pick_pairs(rows.copy(), rows.copy(), rows, rows, wanted, wanted)
