"""When the optimizer looks at the running queries again, and what it is shown of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optimizer.arbitrary_groups import ArbitraryGroups
from optimizer.plan_changes import Member, PlanChange, Policy
from optimizer.regrouping import Regrouping
from optimizer.statistics import Statistics
from session.session_state import SessionState
from session.settings import ARBITRARY, AUTO, Settings
from session.times import rfc3339


class Reoptimization:
    """Asks the optimizer for new groups every ``reoptimize_seconds``."""

    def __init__(self, settings: Settings, statistics: Statistics) -> None:
        self._statistics = statistics
        self._every_us = round(settings.reoptimize_seconds * 1e6)
        self._due_us: int | None = None
        self._policy: Policy | None = None
        if settings.query_groups == AUTO:
            self._policy = Regrouping(settings.reoptimize_share)
        elif settings.query_groups == ARBITRARY:
            self._policy = ArbitraryGroups(seed=0)

    def is_due(self, now_us: int) -> bool:
        """Whether it is time; if so, it is again after the period."""
        if self._policy is None:
            return False
        if self._due_us is None:
            self._due_us = now_us + self._every_us
        if now_us < self._due_us:
            return False
        self._due_us = now_us + self._every_us
        return True

    @staticmethod
    def members(state: SessionState) -> dict[str, list[Member]]:
        """Return the queries of each operator of the plan; under the session's lock."""
        return {
            name: [Member(query_id, state.queries[query_id].query, group) for query_id, group in each.queries.items()]
            for name, each in state.plan.operators.items()
        }

    def propose(self, now_us: int, operators: dict[str, list[Member]]) -> list[PlanChange]:
        """Return what should change now."""
        assert self._policy is not None
        return self._policy.propose(now_us, operators, self._statistics)

    def changes(self) -> list[dict[str, Any]]:
        """Return the newest changes, oldest first, as GET /plan shows them."""
        log: Sequence[PlanChange] = () if self._policy is None else list(self._policy.log)
        return [{"at": rfc3339(change.at_us), **change.to_json()} for change in log]
