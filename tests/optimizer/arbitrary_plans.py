"""Arbitrary valid plans: whatever the groups and the splits of keys, rows must be the same.

``python -m tests.optimizer.arbitrary_plans serve …`` is ``braid serve …`` with such plans.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest import mock

from braid.operators.joins.key_splits import NOT_SPLIT, KeySplit
from braid.operators.live_queries import UNGROUPED
from braid.optimizer.key_splitting import rows_by_key, splittable_joins, spreadings_of
from braid.optimizer.plan_changes import CHANGES_KEPT, GroupPolicy, Member, PlanChange, Situation, SplitPolicy
from braid.optimizer.statistics import Statistics
from braid.session.settings import Settings
from braid.session.upkeep import reoptimization

MAX_GROUPS = 3


class ArbitrarySplits(SplitPolicy):
    """Splits keys of the samples by lot whenever it may, hashes that no key has where there are no samples, or none."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def propose(self, situation: Situation) -> list[PlanChange]:
        """Return a split of the keys of most operators."""
        changes = []
        for name in situation.splits:
            joins = splittable_joins([member.query for member in situation.operators[name]])
            if not joins or self._random.random() < 0.3:
                continue
            rows = rows_by_key(joins[0], situation.statistics, min_sample=1, min_seen=1)
            candidates = range(4) if rows is None else rows.hashes.tolist()
            hashes = frozenset(key for key in candidates if self._random.random() < 0.5)
            spread, by = self._random.choice(spreadings_of(joins, lambda _: self._random.random()) or [(0, ())])
            split = KeySplit(next(situation.numbers), hashes, spread, by=by) if hashes else NOT_SPLIT
            changes.append(
                PlanChange(situation.now_us, name, "arbitrary", "drawn by lot, as tests want it", {}, split=split)
            )
        return changes


class ArbitraryGroups:
    """Moves half of the queries to groups by lot whenever it is asked."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.log: deque[PlanChange] = deque(maxlen=CHANGES_KEPT)

    def propose(self, now_us: int, operators: Mapping[str, Sequence[Member]], _: Statistics) -> list[PlanChange]:
        """Return a change of each operator's groups."""
        changes = []
        for name, members in operators.items():
            moved = [member for member in members if self._random.random() < 0.5]
            groups = {member.id: self._random.randint(UNGROUPED, MAX_GROUPS) for member in moved}
            changes.append(PlanChange(now_us, name, "arbitrary", "drawn by lot, as tests want it", groups))
        self.log.extend(changes)
        return changes


def policies(_: Settings) -> tuple[GroupPolicy, SplitPolicy]:
    """Return policies that draw by lot, the same each time, in place of the optimizer's."""
    return ArbitraryGroups(seed=0), ArbitrarySplits(seed=0)


@contextmanager
def arbitrary_plans() -> Iterator[None]:
    """Have the sessions that are made meanwhile change their plans by lot."""
    with mock.patch.object(reoptimization, "policies", policies):
        yield


if __name__ == "__main__":
    from braid.api.cli.main import main

    with arbitrary_plans():
        main()
