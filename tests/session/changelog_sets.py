"""The changelog-set between two epochs, out of those of all changelogs in between."""

from __future__ import annotations

from collections.abc import Mapping

from bitarray import frozenbitarray
from bitarray.util import ones

from braid.session.state.changelog import Changelog, resized


def changelog_set_between(changelogs: Mapping[int, Changelog], i: int, j: int) -> frozenbitarray:
    """Return cl-set(T_i, T_j): bit s is 1 iff slot s holds the same query at both epochs (thesis eq. 4.1, 4.2).

    ``changelogs`` maps epochs to changelogs and has at least those in ``(i, j]`` (for i = j, the one of i).
    The result has the capacity of epoch j. For i = j nothing changed: all bits are 1.
    """
    if i > j:
        raise ValueError(f"A changelog-set leads forward in time: i <= j must hold; got i={i}, j={j}.")
    capacity = changelogs[j].capacity
    result = ones(capacity)
    for epoch in range(i + 1, j + 1):
        result &= resized(changelogs[epoch].changelog_set, capacity)
    return frozenbitarray(result)
