"""When queries change their groups: all of them at first and after many changes, in between only new ones (5.4.2).

A query runs at once with all others of its operator, whatever it selects; no deployment waits for what happens here.
Once the job has told enough of its tuples, queries are grouped where that promises to pay. What it saves is measured
then: groups that save nothing are dissolved, and there are no others before many queries have come or gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import count

import numpy as np

from braid.operators.kinds import source_operators
from braid.operators.live_queries import UNGROUPED
from braid.optimizer.grouping import Numbers, group_queries, place_queries
from braid.optimizer.plan_changes import CHANGES_KEPT, Member, PlanChange, us_a_tuple
from braid.optimizer.statistics import Spent, Statistics
from braid.optimizer.workloads import OperatorSamples, Workloads

MIN_QUERIES = 16
MIN_GAIN = 0.2
"""Which part of its estimated cost a full plan must save to be taken."""
MIN_CORES = 0.1
"""How many cores it must save: plans for low rates are bad for high ones."""
MIN_SAVED = 0.1
"""Which part of what its operator was measured to take it must save."""
MIN_SEEN = 0.03
"""Which part of what it took before it must have saved to be kept."""
COMPARABLE = 2.0
"""Measurements at rates that differ by more than this factor, and plans made for them, say nothing of each other."""
SHORTEST_PAUSE, LONGEST_PAUSE = 2, 64
"""After how many looks a full plan is made again where the last one gained nothing; each in vain doubles the pause."""


class Regrouping:
    """Proposes changes of groups; it is asked again and again, with all operators as they are now.

    ``share`` is which part of an operator's queries must have come or gone for a full plan.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._operators: dict[str, _Operator] = {}
        self.log: deque[PlanChange] = deque(maxlen=CHANGES_KEPT)
        """The newest changes."""

    def propose(
        self, now_us: int, operators: Mapping[str, Sequence[Member]], statistics: Statistics
    ) -> list[PlanChange]:
        """Return what should change now."""
        groupable = {name: members for name, members in operators.items() if _can_group(members)}
        self._operators = {name: self._operators.get(name) or _Operator(name, self._share) for name in groupable}
        numbers = count(1 + max((member.group for members in operators.values() for member in members), default=0))
        outcomes = (
            self._operators[name].look(now_us, members, statistics, numbers) for name, members in groupable.items()
        )
        changes = [change for change in outcomes if change is not None]
        self.log.extend(changes)
        return changes


class _Operator:
    """What is known of an operator from look to look.

    Of the last full plan: its queries, the rate then, how many looks ago it was, and after how many there is another if
    it gained nothing. Besides: what the operator had taken by the last look, and the plan that is on trial.
    """

    def __init__(self, name: str, share: float) -> None:
        self._name, self._share = name, share
        self._samples = OperatorSamples()
        self._planned_for: frozenset[str] | None = None
        self._planned_rate = 0.0
        self._looks = 0
        self._pause = 0
        self._spent: Spent | None = None
        self._trial: tuple[PlanChange, Spent] | None = None

    def look(
        self, now_us: int, members: Sequence[Member], statistics: Statistics, numbers: count[int]
    ) -> PlanChange | None:
        """Return what should change now; new groups get the next of ``numbers``."""
        sources, streams = source_operators(members[0].query), members[0].query.streams
        earlier, self._spent = self._spent, statistics.spent(sources, self._name, streams)
        if earlier is None or self._spent.tuples <= earlier.tuples:
            return None
        spent = self._spent.since(earlier)
        self._looks += 1
        if self._trial is not None:
            return self._judge(now_us, members, spent)
        return self._plan(now_us, members, statistics, spent, numbers)

    def _judge(self, now_us: int, members: Sequence[Member], spent: Spent) -> PlanChange | None:
        """Return what undoes a plan that saves nothing; it is measured between the first look after it and the next."""
        assert self._trial is not None
        if self._looks < 2:
            return None
        (trial, spent_before), self._trial = self._trial, None
        trial.after = spent
        if (
            not _are_comparable(spent_before.rate, spent.rate)
            or spent.per_tuple <= (1 - MIN_SEEN) * spent_before.per_tuple
        ):
            return None
        why = (
            f"With these groups the operator took {us_a_tuple(spent)} µs a row, before {us_a_tuple(spent_before)} µs:"
            " they are dissolved"
        )
        grouped = {member.id: UNGROUPED for member in members if member.group != UNGROUPED}
        return PlanChange(now_us, self._name, "undone", why, grouped) if grouped else None

    def _plan(
        self, now_us: int, members: Sequence[Member], statistics: Statistics, spent: Spent, numbers: count[int]
    ) -> PlanChange | None:
        """Return new groups for all queries, or for new ones; None where nothing promises to pay."""
        if len(members) < MIN_QUERIES:
            return None
        ids = frozenset(member.id for member in members)
        reason = self._reason(ids, spent.rate)
        if reason is not None:
            workloads = self._samples.workloads(members, statistics, spent.rate)
            if workloads is None:
                return None
            change = self._group_all(now_us, workloads, spent, reason, numbers)
            self._note_plan(ids, spent.rate, change is not None)
            if change is not None:
                return change
        if len({member.group == UNGROUPED for member in members}) < 2:
            return None
        mixed = self._samples.workloads(members, statistics, spent.rate, only_mixed=True)
        return self._place_newcomers(now_us, mixed or [], numbers)

    def _reason(self, ids: frozenset[str], rate: float) -> str | None:
        """Return why all queries should be looked at anew, None if they should not."""
        if self._planned_for is None:
            return "first plan"
        changed = len(ids ^ self._planned_for)
        if changed > self._share * len(ids):
            return f"{changed} queries came or went since the last full plan"
        if self._pause > 0 and rate <= COMPARABLE * self._planned_rate:
            return f"nothing was found {self._looks} looks ago" if self._looks >= self._pause else None
        if not _are_comparable(self._planned_rate, rate):
            return f"{rate:,.0f} rows come a second, {self._planned_rate:,.0f} at the last full plan"
        return None

    def _note_plan(self, ids: frozenset[str], rate: float, is_taken: bool) -> None:
        """Take note of a full plan; looking in vain takes longer and longer pauses, up to the highest rate of it."""
        planned_for = self._planned_for
        is_new = (
            planned_for is None
            or len(ids ^ planned_for) > self._share * len(ids)
            or rate > COMPARABLE * self._planned_rate
        )
        if is_taken or is_new or self._pause == 0:
            self._pause = 0 if is_taken else SHORTEST_PAUSE
            self._planned_rate = rate
        else:
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            self._planned_rate = max(rate, self._planned_rate)
        self._planned_for, self._looks = ids, 0

    def _group_all(
        self, now_us: int, workloads: Workloads, spent: Spent, reason: str, numbers: count[int]
    ) -> PlanChange | None:
        """Return new groups for all queries, and put them on trial."""
        groups: dict[str, int] = {}
        total_cost, total_new_cost = 0.0, 0.0
        for members, workload in workloads:
            new_groups = group_queries(workload)
            cost, new_cost = workload.cost(_groups_of(members)), workload.cost(new_groups)
            if new_cost <= (1 - MIN_GAIN) * cost:
                group_numbers = [next(numbers) for _ in range(int(new_groups.max()) + 1)]
                groups |= {
                    member.id: group_numbers[group] for member, group in zip(members, new_groups.tolist(), strict=True)
                }
                total_cost, total_new_cost = total_cost + cost, total_new_cost + new_cost
        if total_cost - total_new_cost < max(MIN_CORES, MIN_SAVED * spent.cores):
            return None
        group_count = len(set(groups.values()))
        share = total_new_cost / total_cost
        why = f"{reason}: {len(groups)} queries in {group_count} groups should take {share:.2g} of the time"
        change = PlanChange(now_us, self._name, "holistic", why, groups, (total_cost, total_new_cost), spent)
        self._trial = (change, spent)
        return change

    def _place_newcomers(self, now_us: int, workloads: Workloads, numbers: count[int]) -> PlanChange | None:
        """Return groups for queries that have none where others that test the same columns have one."""
        groups: dict[str, int] = {}
        total_cost, total_new_cost = 0.0, 0.0
        for members, workload in workloads:
            current = _groups_of(members)
            newcomers = np.flatnonzero(current == UNGROUPED)
            placed = place_queries(workload, current, newcomers)
            number_of_new = {group: next(numbers) for group in np.setdiff1d(placed, current).tolist()}
            placed = np.array(
                [number_of_new.get(group, group) for group in placed.tolist()]
            )  # numbers that nobody else has
            total_cost, total_new_cost = total_cost + workload.cost(current), total_new_cost + workload.cost(placed)
            groups |= {members[number].id: int(placed[number]) for number in newcomers.tolist()}
        if not groups:
            return None
        why = f"{len(groups)} new queries join the groups in which they cost least"
        return PlanChange(now_us, self._name, "incremental", why, groups, (total_cost, total_new_cost))


def _can_group(members: Sequence[Member]) -> bool:
    """Whether groups matter: selections have query-sets of all queries, sessions are cut by each query's own gap."""
    query = members[0].query
    return query.window is not None and not query.has_sessions


def _groups_of(members: Sequence[Member]) -> Numbers:
    return np.array([member.group for member in members])


def _are_comparable(first: float, second: float) -> bool:
    """Whether two rates may be compared."""
    return max(first, second) <= COMPARABLE * min(first, second)
