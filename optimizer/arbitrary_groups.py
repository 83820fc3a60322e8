"""Arbitrary valid plans, for tests: whatever the groups, rows must be the same."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence

from operators.live_queries import UNGROUPED
from optimizer.plan_changes import CHANGES_KEPT, Member, PlanChange
from optimizer.statistics import Statistics

MOST_GROUPS = 3


class ArbitraryGroups:
    """Moves half of the queries to groups by lot whenever it is asked."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.log: deque[PlanChange] = deque(maxlen=CHANGES_KEPT)

    def propose(self, now_us: int, operators: Mapping[str, Sequence[Member]], _: Statistics) -> list[PlanChange]:
        """Return a change of each operator's groups."""
        found = []
        for name, members in operators.items():
            moved = [member for member in members if self._random.random() < 0.5]
            groups = {member.id: self._random.randint(UNGROUPED, MOST_GROUPS) for member in moved}
            found.append(PlanChange(now_us, name, "arbitrary", "drawn by lot, as tests want it", groups))
        self.log.extend(found)
        return found
