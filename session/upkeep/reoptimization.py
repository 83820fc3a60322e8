"""When the optimizer looks at the running queries again, and what it is shown of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count
from typing import Any

from braid.engine.data_layout import read_partitions
from braid.operators.joins.key_splits import KeySplit
from braid.optimizer.key_splitting import KeySplitting, NoSplits
from braid.optimizer.plan_changes import CHANGES_KEPT, GroupPolicy, Member, PlanChange, Situation, SplitPolicy
from braid.optimizer.regrouping import Regrouping
from braid.optimizer.statistics import Statistics
from braid.session.settings import AUTO, Settings
from braid.session.state.session_state import SessionState
from braid.session.state.times import rfc3339
from braid.sources.core.storage import Storage


@dataclass(frozen=True)
class RunningPlan:
    """The queries of each operator of the plan, and the key splits of the operators that may get another split now.

    ``members`` are the queries that share cells, of the operators that have some. ``names`` are those of streams,
    inputs and operators, in source tasks and in partitions. ``unsettled`` operators still have a former split, which is
    not needed any more. ``next_split`` is a number that no split has.
    """

    members: Mapping[str, Sequence[Member]]
    names: Set[str]
    splits: Mapping[str, KeySplit]
    unsettled: Collection[str]
    next_split: int

    @classmethod
    def of(cls, state: SessionState) -> RunningPlan:
        """Return what runs as of now; under the session's lock."""
        operators = state.plan.operators
        members = {
            name: [
                Member(query_id, state.queries[query_id].query, group)
                for query_id, group in operator.queries.items()
                if query_id not in operator.alone
            ]
            for name, operator in operators.items()
        }
        members = {name: of_operator for name, of_operator in members.items() if of_operator}
        names: set[str] = set()
        for operator in operators.values():
            names.update((operator.id, *operator.streams, *operator.inputs, *operator.sources))
        splits = {
            name: operator.split
            for name, operator in operators.items()
            if operator.join is not None and state.may_split(name)
        }
        unsettled = [name for name in splits if len(state.active.splits.get(name, ())) > 1]
        active_numbers = (split.number for key_splits in state.active.splits.values() for split in key_splits)
        planned_numbers = (split.number for split in state.plan.splits.values())
        return cls(members, names, splits, unsettled, 1 + max((state.epoch, *active_numbers, *planned_numbers)))


def policies(settings: Settings) -> tuple[GroupPolicy | None, SplitPolicy]:
    """Return what decides about query groups, None for nothing, and about split keys."""
    groups = Regrouping(settings.reoptimize_share) if settings.query_groups == AUTO else None
    return groups, KeySplitting() if settings.key_splits == AUTO else NoSplits()


class Reoptimization:
    """Asks the optimizer for new groups and key splits every ``reoptimize_seconds``."""

    def __init__(self, storage: Storage, settings: Settings, statistics: Statistics) -> None:
        self._storage = storage
        self._statistics = statistics
        self._every_us = round(settings.reoptimize_seconds * 1e6)
        self._due_us: int | None = None
        self._groups, self._splits = policies(settings)

    def is_due(self, now_us: int) -> bool:
        """Whether it is time; if so, the next time is one period later."""
        if self._due_us is None:
            self._due_us = now_us + self._every_us
        if 0 < self._due_us - now_us <= self._every_us:  # farther away, the clock was set back
            return False
        self._due_us = now_us + self._every_us
        return True

    def propose(self, now_us: int, running: RunningPlan) -> list[PlanChange]:
        """Return what should change now."""
        self._statistics.keep(running.names)
        changes: list[PlanChange] = []
        if self._groups is not None:
            changes += self._groups.propose(now_us, running.members, self._statistics)
        partitions, numbers = read_partitions(self._storage) or 1, count(running.next_split)
        situation = Situation(now_us, running.members, running.splits, numbers, partitions, self._statistics)
        return changes + self._splits.propose(situation)

    def note(self, change: PlanChange) -> None:
        """Note that a split of keys was made."""
        self._splits.note(change)

    def changes(self) -> list[dict[str, Any]]:
        """Return the newest changes, oldest first, as GET /plan shows them."""
        log = [*(() if self._groups is None else self._groups.log), *self._splits.log]
        newest = sorted(log, key=lambda change: change.at_us)[-CHANGES_KEPT:]
        return [{"at": rfc3339(change.at_us), **change.to_json()} for change in newest]
