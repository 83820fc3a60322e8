"""Query groups: queries that select much the same tuples are evaluated together (thesis 5.4.1, figures 5.7 and 5.8).

What shared and separate evaluation cost is estimated from a sample of the tuples. Of eq. 5.2 these are the terms of
the inputs: pairs of joined tuples, whose number decides in the thesis, are not formed here, and lanes count by key.
Pairs of queries become groups and groups of these larger ones, the pair that gains most first; of all groupings on the
way from each query alone to all in one the cheapest is taken. Many queries begin in groups that lie near each other in
one of the columns that they test. Queries that come later join the group in which they cost least. To find the best
groups is NP-hard, says the thesis; this is a greedy heuristic.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.query_set import Bools

Numbers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

MOST_PAIRED = 64
"""Costs are worked out for pairs of so many groups at most."""

# nanoseconds a tuple, fitted to `pytest tests/operators/bench_operators.py -k query_groups`: for a group to look at it,
# for the query-set of one that the group takes, by its words, and for each query to which one is added alone
_LOOK = 7.3
_TAKE, _WORD, _WORD_SAVED = 18.0, 22.0, 15.0
_ALONE = 2.7
# tuples are added up together where there are few query-sets and places for each, alone where there are many; in
# between a sample, which shows a half or less of the query-sets, cannot tell (`operators.entries` draws the line at 4)
_FEW, _MANY = 0.9, 1.8


@dataclass(frozen=True)
class Sampled:
    """What queries, all of which test the same columns of an input, say of sampled tuples, of ``rate`` a second.

    ``tests`` has for each column whether the queries' predicates hold, shape (queries, tuples), and ``cells`` where the
    tuples lie among its values, shape (tuples,). Source tasks add up ``chunk`` tuples at once, in as many ``places``
    (slices, keys) for each query-set that occurs.
    """

    tests: Sequence[Bools]
    cells: Sequence[npt.NDArray[Any]]
    rate: float
    chunk: float = 0.0
    places: float = 0.0

    @property
    def tuples(self) -> int:
        """How many sampled tuples there are."""
        return len(self.cells[0])

    @property
    def weight(self) -> float:
        """How many tuples a second one of the sample stands for."""
        return self.rate / max(1, self.tuples)

    @cached_property
    def selected(self) -> Bools:
        """Which tuples queries select, shape (queries, tuples)."""
        return np.logical_and.reduce(list(self.tests))

    def orders(self) -> list[Numbers]:
        """Return for each column the queries in the order in which the tuples lie there for which their test holds."""
        orders = []
        for holds, cells in zip(self.tests, self.cells, strict=True):
            middle = (holds @ cells.astype(np.float64)) / np.maximum(holds.sum(axis=1), 1)
            orders.append(np.argsort(middle, kind="stable"))
        return orders


@dataclass(frozen=True)
class Workload:
    """The queries of an operator that test the same columns, by number, as they look to the optimizer."""

    inputs: Sequence[Sampled]

    @property
    def queries(self) -> int:
        """How many queries there are."""
        return len(self.inputs[0].tests[0])

    def cost(self, groups: Numbers) -> float:
        """Return how many cores evaluating queries in groups keeps busy; ``groups`` has shape (queries,)."""
        return sum(_Groups.of(self, groups).costs) / 1e9


def group_queries(workload: Workload) -> Numbers:
    """Return the group of each query, shape (queries,), counted from 0.

    The thesis starts with pairs of queries and adds others to them one by one; here groups may become one, too.
    """
    count = workload.queries
    begun = [np.arange(count)]
    if count > MOST_PAIRED:
        orders = [order for sampled in workload.inputs for order in sampled.orders()]
        begun = [np.argsort(order, kind="stable") * MOST_PAIRED // count for order in orders]
    return min((_merged(workload, groups) for groups in begun), key=workload.cost)


def place_queries(workload: Workload, groups: Numbers, newcomers: Numbers) -> Numbers:
    """Return the groups after each of the ``newcomers`` has joined the group in which it costs least, or begun one.

    Nobody else moves, and no group gets another number: the incremental step of 5.4.2.
    """
    placed = groups.copy()
    placed[newcomers] = -1
    numbers = np.unique(placed[placed >= 0]).tolist()
    there = _Groups.of(workload, placed)
    for query in newcomers.tolist():
        mine = _Groups(workload, [np.array([query])])
        gains = [there.gain(number, mine, 0) for number in range(len(numbers))]
        best = int(np.argmax(gains)) if gains else 0
        if gains and gains[best] > 0:
            there.join(best, mine, 0)
        else:
            best = len(numbers)
            numbers.append(max(numbers, default=-1) + 1)
            there = _Groups(workload, [*there.members, *mine.members])
        placed[query] = numbers[best]
    return placed


@dataclass
class _Taken:
    """What a group has to do with the sampled tuples of an input.

    ``tests`` says for each column at which tuples some query's predicate holds. ``sets`` has a hash of each tuple's
    query-set, the bitwise XOR of the hashes of its queries; ``bits`` is how many of these all tuples have together.
    """

    tests: list[Bools]
    sets: Hashes
    bits: int

    @classmethod
    def by(cls, sampled: Sampled, queries: Numbers, hashes: Hashes) -> _Taken:
        tests = [np.asarray(holds[queries].any(axis=0)) for holds in sampled.tests]
        selected = sampled.selected[queries]
        sets = np.bitwise_xor.reduce(np.where(selected, hashes[queries, None], np.uint64(0)), axis=0)
        return cls(tests, sets, int(selected.sum()))

    def with_those(self, other: _Taken) -> _Taken:
        tests = [mine | theirs for mine, theirs in zip(self.tests, other.tests, strict=True)]
        return _Taken(tests, self.sets ^ other.sets, self.bits + other.bits)

    def cost(self, sampled: Sampled, words: int) -> float:
        """Return the nanoseconds a second that it takes.

        All tuples are looked at; those for which each test holds for some query get a query-set; and they are added to
        their queries one by one where hardly two can be added up in the same place (4.3.1.4).
        """
        taken = np.count_nonzero(np.logical_and.reduce(self.tests)) * sampled.weight
        cost = _LOOK * sampled.rate + max(_TAKE, _WORD * words - _WORD_SAVED) * taken
        found = self.sets[self.sets != 0]
        together = len(found) * sampled.chunk / max(1, sampled.tuples)
        alone = (_distinct(found) * sampled.places / together - _FEW) / (_MANY - _FEW) if together else 0.0
        return cost + min(1.0, max(0.0, alone)) * _ALONE * self.bits * sampled.weight


class _Groups:
    """Groups: the members of each, what these have to do with sampled tuples, input by input, and what they cost."""

    def __init__(self, workload: Workload, members: list[Numbers]) -> None:
        self.members = members
        self._workload = workload
        hashes = np.random.default_rng(0).integers(1, 2**63, workload.queries, dtype=np.uint64)
        self._taken = [[_Taken.by(sampled, each, hashes) for sampled in workload.inputs] for each in members]
        self.costs = [self._cost(taken, len(each)) for taken, each in zip(self._taken, members, strict=True)]

    @classmethod
    def of(cls, workload: Workload, groups: Numbers) -> _Groups:
        """Take the groups of queries, in the order of their numbers; a negative one is none."""
        known = np.unique(groups[groups >= 0]).tolist()
        return cls(workload, [np.flatnonzero(groups == group) for group in known])

    def _cost(self, taken: Sequence[_Taken], size: int) -> float:
        """Return what a group of ``size`` queries costs: eq. 5.2, of which only the inputs depend on groups."""
        both = zip(taken, self._workload.inputs, strict=True)
        return sum(mine.cost(sampled, -(-size // 64)) for mine, sampled in both)

    def _together(self, number: int, other: _Groups, joining: int) -> tuple[list[_Taken], float]:
        """Return a group and one of ``other`` as one, and what that costs."""
        both = zip(self._taken[number], other._taken[joining], strict=True)
        taken = [mine.with_those(theirs) for mine, theirs in both]
        return taken, self._cost(taken, len(self.members[number]) + len(other.members[joining]))

    def gain(self, number: int, other: _Groups, joining: int) -> float:
        """Return what a group gains by becoming one with a group of ``other``."""
        return self.costs[number] + other.costs[joining] - self._together(number, other, joining)[1]

    def join(self, number: int, other: _Groups, joining: int) -> None:
        """Let a group take in one of ``other``."""
        self._taken[number], self.costs[number] = self._together(number, other, joining)
        self.members[number] = np.concatenate([self.members[number], other.members[joining]])


def _merged(workload: Workload, begun: Numbers) -> Numbers:
    """Let groups become one, the pair that gains most first, until one is left; return the cheapest on the way."""
    groups = _Groups.of(workload, begun)
    left = list(range(len(groups.members)))
    gains = np.full((len(left), len(left)), -np.inf)
    for first, second in itertools.combinations(left, 2):
        gains[first, second] = gains[second, first] = groups.gain(first, groups, second)
    cost = least = sum(groups.costs)
    cheapest = list(groups.members)
    while len(left) > 1:
        first, second = divmod(int(gains.argmax()), len(gains))
        cost -= float(gains[first, second])
        groups.join(first, groups, second)
        left.remove(second)
        gains[second] = gains[:, second] = -np.inf
        for other in left:
            if other != first:
                gains[first, other] = gains[other, first] = groups.gain(first, groups, other)
        if cost <= least:
            least, cheapest = cost, [groups.members[number] for number in left]
    found = np.empty_like(begun)
    for number, members in enumerate(cheapest):
        found[members] = number
    return found


def _distinct(sets: Hashes) -> float:
    """Estimate how many different query-sets there are by those that a sample has once and twice (Chao 1984)."""
    _, counts = np.unique(sets, return_counts=True)
    once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    return float(len(counts) + once * (once - 1) / (2 * (twice + 1)))
