"""Query groups: queries that select much the same tuples are evaluated together (thesis 5.4.1, figures 5.7 and 5.8).

What shared and separate evaluation cost is estimated from a sample of the tuples: adding them up in source tasks, and
reducing what they added up to in partitions. Of eq. 5.2 these are the terms of the inputs: pairs of joined tuples,
whose number decides in the thesis, are not formed here, and partitions count by key.

Pairs of queries become groups and groups of these larger ones, the pair that gains most first; of all groupings on the
way from each query alone to all in one the cheapest is taken. Many queries begin in groups that lie near each other in
one of the columns that they test, in that with which it costs least. Queries that come later join the group in which
they cost least. To find the best groups is NP-hard, says the thesis; this is a greedy heuristic.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from braid.operators.predicates.query_set import Bools, words_for
from braid.operators.state.entries import better_alone

Numbers = npt.NDArray[np.int64]

MAX_PAIRED = 100
"""At most so many groups are compared in pairs."""
MAX_STARTS = 2
"""From so many starting groupings groups are merged: each column of each input gives one, the cheapest are taken."""

# nanoseconds, fitted to `pytest tests/operators/bench_operators.py -k query_groups`
_LOOK = 9.0  # to hand a tuple to 64 groups
_TAKEN = 11.0  # to add a tuple up in its query-set
_ALONE, _ALONE_WORD, _ALONE_QUERY = 12.0, 27.0, 4.0  # to add it up alone: for itself, each word, each of its queries
_PLACE = 0.7  # to look at an entry that may be there
_ENTRY = 30.0  # to write and read one that is
_REDUCED = 2.0  # to reduce a place of a cell in a partition
_GROUP = 140_000.0  # for a group, in each chunk
# which share of the parts of a plane (see query_sets below) has a query-set of its own; how many steps approach v
_APART = 0.7
_STEPS = 8


@dataclass(frozen=True)
class Sampled:
    """Sampled tuples of an input, of ``rate`` a second, as queries that test the same columns of it see them.

    ``tests`` has for each column whether the queries' predicates hold, shape (queries, tuples); ``edges`` the cells of
    the column at which each query's predicate changes (:func:`edges_of`); ``cells`` the cell of each tuple, shape
    (tuples,). Source tasks add up ``chunk`` tuples at once, in as many ``places`` (slices, keys) for each query-set;
    partitions reduce ``fired`` places (windows, keys) a second.
    """

    tests: Sequence[Bools]
    edges: Sequence[Sequence[int]]
    cells: Sequence[npt.NDArray[Any]]
    rate: float
    chunk: float
    places: float
    fired: float

    @property
    def tuples(self) -> int:
        """How many sampled tuples there are."""
        return len(self.cells[0])

    @cached_property
    def changes(self) -> npt.NDArray[np.float64]:
        """How often each query's predicate on a column changes, shape (queries, columns)."""
        return np.array([[edges.bit_count() for edges in column] for column in self.edges], dtype=np.float64).T

    @cached_property
    def changes_seen(self) -> npt.NDArray[np.float64]:
        """The same, times the share of the tuples for which its predicates on all other columns hold."""
        shares = np.stack([holds.mean(axis=1) for holds in self.tests], axis=1)
        shares_of_others = [np.delete(shares, column, axis=1).prod(axis=1) for column in range(len(self.tests))]
        return self.changes * np.stack(shares_of_others, axis=1)

    @cached_property
    def selected(self) -> Bools:
        """Which tuples queries select, shape (queries, tuples)."""
        return np.logical_and.reduce(list(self.tests))

    def orders(self) -> list[Numbers]:
        """Return for each column the queries, sorted by the mean cell of the tuples for which their test holds."""
        orders = []
        for holds, cells in zip(self.tests, self.cells, strict=True):
            mean_cell = (holds @ cells.astype(np.float64)) / np.maximum(holds.sum(axis=1), 1)
            orders.append(np.argsort(mean_cell, kind="stable"))
        return orders


def edges_of(mask: Bools) -> int:
    """Return the cells at which a predicate, true at some of a column's cells, becomes true or false, as bits."""
    return int.from_bytes(np.packbits(mask[1:] != mask[:-1]).tobytes())


@dataclass(frozen=True)
class SampledWorkload:
    """The queries of an operator that test the same columns, by number, as they look to the optimizer."""

    inputs: Sequence[Sampled]

    @property
    def queries(self) -> int:
        """How many queries there are."""
        return len(self.inputs[0].tests[0])

    def cost(self, groups: Numbers) -> float:
        """Return how many cores evaluating queries in groups keeps busy; ``groups`` has shape (queries,)."""
        costs = _Groups.of(self, groups).costs
        return (sum(costs) + self.dispatch(len(costs))) / 1e9

    def dispatch(self, groups: int) -> float:
        """Return the nanoseconds a second that it takes to hand tuples to so many groups; one gets them all."""
        return sum(_LOOK * -(-groups // 64) * sampled.rate for sampled in self.inputs) if groups > 1 else 0.0


def group_queries(workload: SampledWorkload) -> Numbers:
    """Return the group of each query, shape (queries,), counted from 0.

    The thesis starts with pairs of queries and adds others to them one by one; here groups may become one, too.
    """
    count = workload.queries
    starts = [np.arange(count)]
    if count > MAX_PAIRED:
        orders = [order for sampled in workload.inputs for order in sampled.orders()]
        starts = [np.argsort(order, kind="stable") * MAX_PAIRED // count for order in orders]
        starts = sorted(starts, key=workload.cost)[:MAX_STARTS]
    return min((_merged(workload, groups) for groups in starts), key=workload.cost)


def expected_query_sets(sampled: Sampled) -> float:
    """Return how many query-sets all queries in one group are estimated to tell apart among tuples of an input."""
    return _GroupInput.by(sampled, np.arange(len(sampled.tests[0]))).query_sets()


def place_queries(workload: SampledWorkload, groups: Numbers, newcomers: Numbers) -> Numbers:
    """Return the groups after each of the ``newcomers`` has joined the group in which it costs least, or begun one.

    Nobody else moves, and no group gets another number: the incremental step of 5.4.2.
    """
    placed = groups.copy()
    placed[newcomers] = -1
    group_numbers = np.unique(placed[placed >= 0]).tolist()
    current = _Groups.of(workload, placed)
    for query in newcomers.tolist():
        newcomer = _Groups(workload, [np.array([query])])
        gains = [current.gain(number, newcomer, 0) for number in range(len(group_numbers))]
        best = int(np.argmax(gains)) if gains else 0
        if gains and gains[best] > 0:
            current.join(best, newcomer, 0)
        else:
            best = len(group_numbers)
            group_numbers.append(max(group_numbers, default=-1) + 1)
            current = _Groups(workload, [*current.members, *newcomer.members])
        placed[query] = group_numbers[best]
    return placed


@dataclass
class _GroupInput:
    """What the queries of a group ask of the sampled tuples of an input.

    For each column, ``tests`` says at which tuples some query's predicate holds, ``edges`` where some predicate
    changes, as bits, and ``changes`` how often they do; ``changes_seen`` counts each change by the share of the tuples
    for which the query's predicates on all other columns hold. ``selections`` are all pairs of tuple and query.
    """

    tests: list[Bools]
    edges: list[int]
    changes: list[float]
    changes_seen: list[float]
    selections: int

    @classmethod
    def by(cls, sampled: Sampled, queries: Numbers) -> _GroupInput:
        tests = [np.asarray(holds[queries].any(axis=0)) for holds in sampled.tests]
        edges = [functools.reduce(operator.or_, (column[query] for query in queries)) for column in sampled.edges]
        changes, changes_seen = sampled.changes[queries].sum(axis=0), sampled.changes_seen[queries].sum(axis=0)
        return cls(tests, edges, changes.tolist(), changes_seen.tolist(), int(sampled.selected[queries].sum()))

    def union(self, other: _GroupInput) -> _GroupInput:
        tests = [first | second for first, second in zip(self.tests, other.tests, strict=True)]
        edges = [first | second for first, second in zip(self.edges, other.edges, strict=True)]
        changes = [first + second for first, second in zip(self.changes, other.changes, strict=True)]
        changes_seen = [first + second for first, second in zip(self.changes_seen, other.changes_seen, strict=True)]
        return _GroupInput(tests, edges, changes, changes_seen, self.selections + other.selections)

    def query_sets(self) -> float:
        """Estimate how many query-sets the group tells apart among the tuples that it takes.

        Where a predicate on one column changes at a value, the query-set changes only as far as the query's predicates
        on the others hold: such changes are lines, which divide the plane or space of all combinations of values.
        """
        shares = [max(1, int(np.count_nonzero(test))) / max(1, len(test)) for test in self.tests]
        selected = math.prod(shares)
        parts = 1.0
        columns = zip(self.edges, self.changes, self.changes_seen, shares, strict=True)
        for edges, changes, changes_seen, share in columns:
            parts *= 1 + _distinct(changes, edges.bit_count(), min(changes, changes_seen * share / selected))
        return _APART * parts

    def cost(self, sampled: Sampled, queries: int) -> float:
        """Return the nanoseconds a second that it takes in source tasks and partitions.

        A tuple for which each test holds for some query is added up in its query-set, or alone for each query of it.
        """
        per_chunk = sampled.chunk / max(1, sampled.tuples)
        tuples = np.count_nonzero(np.logical_and.reduce(self.tests)) * per_chunk
        selections = self.selections * per_chunk
        query_sets = min(self.query_sets(), tuples)
        if better_alone(tuples, query_sets * sampled.places, queries * sampled.places):
            cells, additions = float(queries), selections
            adding = (_ALONE + _ALONE_WORD * words_for(queries)) * tuples + _ALONE_QUERY * selections
        else:
            cells, additions = query_sets, tuples
            adding = _TAKEN * tuples
        entries = cells * sampled.places
        filled_entries = -math.expm1(-additions / entries) * entries if entries else 0.0
        chunks = sampled.rate / sampled.chunk if sampled.chunk else 0.0
        return (
            _GROUP + adding + _PLACE * entries + _ENTRY * filled_entries
        ) * chunks + _REDUCED * cells * sampled.fired


def _distinct(drawn: float, distinct: int, sample: float) -> float:
    """Estimate how many different values ``sample`` draws have if all ``drawn`` ones have ``distinct``.

    All are drawn from v equally likely values, with v such that ``distinct = v (1 - exp(-drawn / v))``.
    """
    if not distinct or distinct >= drawn:
        return sample
    draws_of_each = 2 * (drawn - distinct) / drawn
    for _ in range(_STEPS):
        draws_of_each = -math.expm1(-draws_of_each) * drawn / distinct
    return drawn / draws_of_each * -math.expm1(-draws_of_each * sample / drawn)


class _Groups:
    """Groups: the members of each, what these ask of sampled tuples, input by input, and what they cost."""

    def __init__(self, workload: SampledWorkload, members: list[Numbers]) -> None:
        self.members = members
        self._workload = workload
        self._inputs = [[_GroupInput.by(sampled, queries) for sampled in workload.inputs] for queries in members]
        self.costs = [self._cost(inputs, len(queries)) for inputs, queries in zip(self._inputs, members, strict=True)]

    @classmethod
    def of(cls, workload: SampledWorkload, groups: Numbers) -> _Groups:
        """Take the groups of queries, in the order of their numbers; a negative one is none."""
        numbers = np.unique(groups[groups >= 0]).tolist()
        return cls(workload, [np.flatnonzero(groups == number) for number in numbers])

    def _cost(self, inputs: Sequence[_GroupInput], size: int) -> float:
        """Return what a group of ``size`` queries costs: eq. 5.2, of which only the inputs depend on groups."""
        pairs = zip(inputs, self._workload.inputs, strict=True)
        return sum(group_input.cost(sampled, size) for group_input, sampled in pairs)

    def _union(self, number: int, other: _Groups, other_number: int) -> tuple[list[_GroupInput], float]:
        """Return what a group and one of ``other`` ask of each input as one group, and what that costs."""
        pairs = zip(self._inputs[number], other._inputs[other_number], strict=True)
        inputs = [first.union(second) for first, second in pairs]
        return inputs, self._cost(inputs, len(self.members[number]) + len(other.members[other_number]))

    def gain(self, number: int, other: _Groups, other_number: int) -> float:
        """Return what a group gains by becoming one with a group of ``other``."""
        return self.costs[number] + other.costs[other_number] - self._union(number, other, other_number)[1]

    def join(self, number: int, other: _Groups, other_number: int) -> None:
        """Let a group take in one of ``other``."""
        self._inputs[number], self.costs[number] = self._union(number, other, other_number)
        self.members[number] = np.concatenate([self.members[number], other.members[other_number]])


def _merged(workload: SampledWorkload, start: Numbers) -> Numbers:
    """Let groups become one, the pair that gains most first, until one is left; return the cheapest on the way."""
    groups = _Groups.of(workload, start)
    remaining = list(range(len(groups.members)))
    gains = np.full((len(remaining), len(remaining)), -np.inf)
    for first, second in itertools.combinations(remaining, 2):
        gains[first, second] = gains[second, first] = groups.gain(first, groups, second)
    cost = sum(groups.costs)
    min_cost = cost + workload.dispatch(len(remaining))
    cheapest = list(groups.members)
    while len(remaining) > 1:
        first, second = divmod(int(gains.argmax()), len(gains))
        cost -= float(gains[first, second])
        groups.join(first, groups, second)
        remaining.remove(second)
        gains[second] = gains[:, second] = -np.inf
        for other in remaining:
            if other != first:
                gains[first, other] = gains[other, first] = groups.gain(first, groups, other)
        total_cost = cost + workload.dispatch(len(remaining))
        if total_cost <= min_cost:
            min_cost, cheapest = total_cost, [groups.members[number] for number in remaining]
    group_of_query = np.empty_like(start)
    for number, members in enumerate(cheapest):
        group_of_query[members] = number
    return group_of_query
