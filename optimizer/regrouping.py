"""When queries change their groups: all of them at first and after many changes, in between only new ones (5.4.2).

A query runs at once with all others of its operator, whatever it selects; no deployment waits for what happens here.
Once the job has told enough of its tuples, queries are grouped where that promises to pay. What it saves is measured
then: groups that save nothing are dissolved, and there are no others before many queries have come or gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

import numpy as np

from operators.expressions import Expression, columns_of
from operators.live_queries import UNGROUPED
from operators.predicate_index import PredicateIndex
from operators.queries import Join, Query, Selection
from operators.windows import SessionWindow
from optimizer.grouping import Numbers, Sampled, Workload, group_queries, place_queries
from optimizer.plan import source_operators
from optimizer.statistics import Spent, Statistics

LEAST_SAMPLE = 512
LEAST_QUERIES = 16
LEAST_GAIN = 0.2
"""Which part of its estimated cost in source tasks a full plan must save to be taken."""
LEAST_CORES = 0.1
"""How many cores it must save: plans for low rates are bad for high ones."""
LEAST_SAVED = 0.1
"""Which part of what its operator takes, in source tasks and lanes, it must save besides."""
LEAST_SEEN = 0.03
"""Which part of what it took before it must have saved to be kept."""
COMPARABLE = 2.0
"""Measurements at rates that differ by more than this factor, and plans made for them, say nothing of each other."""
CHANGES_KEPT = 100


@dataclass(frozen=True)
class Member:
    """A query of an operator, with its group."""

    id: str
    query: Query
    group: int


@dataclass
class PlanChange:
    """New groups of queries of an operator, by their ids, and why; ``estimated`` are cores before and after.

    ``before`` and ``after`` are what the operator took for tuples before, and after it was in effect.
    """

    at_us: int
    operator: str
    kind: str
    why: str
    groups: Mapping[str, int]
    estimated: tuple[float, float] | None = None
    before: Spent | None = None
    after: Spent | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what people see of it."""
        estimated = (None, None) if self.estimated is None else tuple(float(f"{cores:.3g}") for cores in self.estimated)
        return {
            "operator": self.operator,
            "kind": self.kind,
            "why": self.why,
            "queries": len(self.groups),
            "estimated_cores": dict(zip(("before", "after"), estimated, strict=True)),
            "measured_us_per_tuple": {"before": _us_a_tuple(self.before), "after": _us_a_tuple(self.after)},
        }


class Policy(Protocol):
    """What decides about groups: :class:`Regrouping`, or arbitrary plans in tests."""

    log: deque[PlanChange]

    def propose(
        self, now_us: int, operators: Mapping[str, Sequence[Member]], statistics: Statistics, /
    ) -> list[PlanChange]: ...


@dataclass
class _Known:
    """What is known of an operator: who was there, and at which rate, at the last full plan; a plan on trial."""

    planned_for: frozenset[str] | None = None
    planned_rate: float = 0.0
    spent: Spent | None = None
    trial: PlanChange | None = None
    looks: int = 0
    indexes: dict[int, PredicateIndex] = field(default_factory=dict)


class Regrouping:
    """Proposes changes of groups; it is asked again and again, with all operators as they are now.

    ``share`` is which part of an operator's queries must have come or gone for a full plan.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._known: dict[str, _Known] = {}
        self.log: deque[PlanChange] = deque(maxlen=CHANGES_KEPT)
        """The newest changes."""

    def propose(
        self, now_us: int, operators: Mapping[str, Sequence[Member]], statistics: Statistics
    ) -> list[PlanChange]:
        """Return what should change now."""
        able = {name: members for name, members in operators.items() if _can_group(members)}
        self._known = {name: self._known.get(name) or _Known() for name in able}
        numbers = count(1 + max((member.group for members in operators.values() for member in members), default=0))
        found = []
        for name, members in able.items():
            look = _Look(self._known[name], now_us, name, members, statistics, numbers)
            change = look.judge() if look.known.trial is not None else look.plan(self._share)
            if change is not None:
                self.log.append(change)
                found.append(change)
        return found


class _Look:
    """One look at an operator."""

    def __init__(
        self,
        known: _Known,
        now_us: int,
        name: str,
        members: Sequence[Member],
        statistics: Statistics,
        numbers: count[int],
    ) -> None:
        self.known = known
        self._now_us, self._name, self._members = now_us, name, members
        self._statistics, self._numbers = statistics, numbers
        sources, streams = source_operators(members[0].query), members[0].query.streams
        last, known.spent = known.spent, statistics.spent(sources, name, streams)
        self._spent = None if last is None else known.spent.since(last)

    def judge(self) -> PlanChange | None:
        """Return what undoes a plan that saves nothing; a plan is measured between the second look and the third."""
        trial = self.known.trial
        assert trial is not None
        assert trial.before is not None
        self.known.looks += 1
        if self.known.looks < 2 or self._spent is None or not self._spent.tuples:
            return None
        self.known.trial, trial.after = None, self._spent
        if not _alike(trial.before.rate, trial.after.rate) or trial.after.per_tuple <= trial.before.per_tuple * (
            1 - LEAST_SEEN
        ):
            return None
        why = (
            f"With these groups the operator took {_us_a_tuple(trial.after)} µs a tuple, before"
            f" {_us_a_tuple(trial.before)} µs: they are dissolved"
        )
        grouped = {member.id: UNGROUPED for member in self._members if member.group != UNGROUPED}
        return self._change("undone", why, grouped) if grouped else None

    def plan(self, share: float) -> PlanChange | None:
        """Return new groups for all queries, or for new ones; None where nothing promises to pay."""
        if self._spent is None or not self._spent.tuples or len(self._members) < LEAST_QUERIES:
            return None
        ids = frozenset(member.id for member in self._members)
        known = self.known
        if known.planned_for is None:
            reason = "first plan"
        elif len(ids ^ known.planned_for) > share * len(ids):
            reason = f"{len(ids ^ known.planned_for)} queries came or went since the last full plan"
        elif not _alike(known.planned_rate, self._spent.rate):
            reason = f"{self._spent.rate:,.0f} tuples come a second, {known.planned_rate:,.0f} at the last full plan"
        else:
            return self._place()
        workloads = self._workloads(self._members)
        if workloads is None:
            return None
        known.planned_for, known.planned_rate = ids, self._spent.rate
        return self._full(workloads, reason)

    def _full(self, workloads: Sequence[tuple[Sequence[Member], Workload]], reason: str) -> PlanChange | None:
        groups: dict[str, int] = {}
        now, then = 0.0, 0.0
        for members, workload in workloads:
            current = np.array([member.group for member in members])
            found = group_queries(workload)
            cost, less = workload.cost(current), workload.cost(found)
            if less <= (1 - LEAST_GAIN) * cost:
                names = [next(self._numbers) for _ in range(int(found.max()) + 1)]
                groups |= {member.id: names[group] for member, group in zip(members, found.tolist(), strict=True)}
                now, then = now + cost, then + less
        if now - then < LEAST_CORES:
            return None
        assert self._spent is not None
        if (1 - then / now) * self._spent.sources < LEAST_SAVED * (self._spent.sources + self._spent.lanes):
            return None
        many = len(set(groups.values()))
        why = f"{reason}: {len(groups)} queries in {many} groups should take source tasks {then / now:.2g} of the time"
        change = self._change("holistic", why, groups, (now, then))
        change.before = self._spent
        self.known.trial, self.known.looks = change, 0
        return change

    def _place(self) -> PlanChange | None:
        """Return groups for queries that have none where others that test the same columns have one."""
        groups: dict[str, int] = {}
        if len({member.group != UNGROUPED for member in self._members}) < 2:
            return None
        now, then = 0.0, 0.0
        for members, workload in self._workloads(self._members, only_mixed=True) or ():
            current = np.array([member.group for member in members])
            newcomers = np.flatnonzero(current == UNGROUPED)
            placed = self._renumbered(place_queries(workload, current, newcomers), current)
            now, then = now + workload.cost(current), then + workload.cost(placed)
            groups |= {members[number].id: int(placed[number]) for number in newcomers.tolist()}
        if not groups:
            return None
        why = f"{len(groups)} new queries join the groups in which they cost least"
        return self._change("incremental", why, groups, (now, then))

    def _renumbered(self, placed: Numbers, current: Numbers) -> Numbers:
        """Give groups that were not there before numbers that no other group has."""
        renumbered = placed.copy()
        for group in np.setdiff1d(placed, current).tolist():
            renumbered[placed == group] = next(self._numbers)
        return renumbered

    def _change(
        self, kind: str, why: str, groups: Mapping[str, int], estimated: tuple[float, float] | None = None
    ) -> PlanChange:
        return PlanChange(self._now_us, self._name, kind, why, groups, estimated)

    def _workloads(
        self, members: Sequence[Member], only_mixed: bool = False
    ) -> list[tuple[Sequence[Member], Workload]] | None:
        """Return those who test the same columns, and what they select of samples, None before there are enough.

        Left out are those who test one column of each input, for these have no groups; with ``only_mixed`` also those
        of whom all or none have one.
        """
        inputs = {member.id: _inputs(member.query) for member in members}
        members = [each for each in members if any(len(_columns(where)) > 1 for _, _, where in inputs[each.id])]
        if not members:
            return []
        of_input = inputs[members[0].id]
        numbers = range(len(of_input))
        for number in numbers:
            index = self.known.indexes.setdefault(number, PredicateIndex())
            index.update({member.id: inputs[member.id][number][2] for member in members})
        alike: dict[tuple[tuple[str, ...], ...], list[Member]] = {}
        for member in members:
            dimensions = tuple(self.known.indexes[n].predicates[member.id].dimensions for n in numbers)
            alike.setdefault(dimensions, []).append(member)
        found: list[tuple[Sequence[Member], Workload]] = []
        for dimensions, mine in alike.items():
            grouped = [member.group != UNGROUPED for member in mine]
            tested = [number for number in numbers if len(dimensions[number]) > 1]
            if not tested or (only_mixed and (all(grouped) or not any(grouped))):
                continue
            sampled = [self._sampled(number, dimensions[number], mine, of_input[number]) for number in tested]
            if any(each is None for each in sampled):
                return None
            found.append((mine, Workload([each for each in sampled if each is not None])))
        return found

    def _sampled(
        self, number: int, dimensions: tuple[str, ...], members: Sequence[Member], of: tuple[str, str, Any]
    ) -> Sampled | None:
        index = self.known.indexes[number]
        tuples = self._statistics.sample(of[0], index.columns_of(dimensions))
        if tuples is None or tuples.length < LEAST_SAMPLE:
            return None
        cells = {name: index.dimensions[name].cells_of(tuples) for name in dimensions}
        masks = [index.masks_of(member.id) for member in members]
        tests = [np.stack([mask[name][cells[name]] for mask in masks]) for name in dimensions]
        chunk = self._statistics.chunk(source_operators(members[0].query)[number])
        rate = self._rate_of(of[1], members[0].query.streams)
        return Sampled(tests, [cells[name] for name in dimensions], rate, chunk.tuples, chunk.slices * chunk.keys)

    def _rate_of(self, stream: str, streams: Sequence[str]) -> float:
        """Return how many tuples of a stream came a second since the last look: its part of those of all streams."""
        rates = {each: self._statistics.tuples_per_second(each) for each in streams}
        assert self._spent is not None
        return self._spent.rate * rates[stream] / max(sum(rates.values()), 1e-9)


def _can_group(members: Sequence[Member]) -> bool:
    """Whether groups matter: selections have query-sets of all queries, sessions are cut by each query's own gap."""
    query = members[0].query
    return not isinstance(query, Selection) and not isinstance(query.window, SessionWindow)


def _inputs(query: Query) -> list[tuple[str, str, Expression | None]]:
    """Return for each input what tells it from others, the id of its stream, and what the query asks of it."""
    if isinstance(query, Join):
        return [(each.input, each.stream, each.where) for each in query.inputs]
    return [(query.input, query.stream, query.where)]


def _columns(where: Expression | None) -> set[str]:
    return set() if where is None else set(columns_of(where))


def _alike(one: float, other: float) -> bool:
    """Whether two rates may be compared."""
    return max(one, other) <= COMPARABLE * min(one, other)


def _us_a_tuple(spent: Spent | None) -> float | None:
    return None if spent is None else float(f"{spent.per_tuple * 1e6:.3g}")
