"""Admission by cost: no query is accepted whose estimated cost, on top of what runs, is more than there are cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from braid.session.commands.plans import Plans
from braid.session.commands.query_requests import PlannedQuery
from braid.sources.core.errors import LimitReached, Overloaded

FRESH_SECONDS = 2.0
RETRY_AFTER_SECONDS = 30


class Capacity:
    """How many ``cores`` the operators of all queries may keep busy; costs are measured and estimated."""

    def __init__(self, plans: Plans, cores: Callable[[], float]) -> None:
        self._plans = plans
        self._cores = cores
        self._tenant_cores: dict[str | None, float] = {}
        self._read_at = float("-inf")

    def check(self, planned: Sequence[PlannedQuery], tenant: str | None, cost_share: float | None) -> None:
        """Raise Overloaded, with the estimate, for queries that would take too much."""
        added = sum(self._plans.added_cores(p.query) for p in planned)
        busy, cores = self._plans.busy_cores(), self._cores()
        if busy + added > cores:
            raise Overloaded(
                f"The queries may keep {cores:g} cores busy (setting admission_cores); they take {busy:.2f}, and"
                f" {_subject(planned)} would take about {added:.3g} more."
                " Delete some, or try again when less comes in.",
                retry_after=RETRY_AFTER_SECONDS,
            )
        if tenant is None or cost_share is None:
            return
        own_cores, allowed = self._cores_of(tenant), cost_share * cores
        if own_cores + added > allowed:
            raise LimitReached(
                f"The queries of this tenant may keep {allowed:.3g} cores busy (quota cost_share {cost_share:g}); they"
                f" take {own_cores:.3g}, and {_subject(planned)} would take about {added:.3g} more. Delete some first.",
                retry_after=RETRY_AFTER_SECONDS,
            )

    def _cores_of(self, tenant: str) -> float:
        """Return what a tenant's queries take, as of a moment ago."""
        if time.monotonic() > self._read_at + FRESH_SECONDS:
            self._tenant_cores = self._plans.cores_by_tenant()
            self._read_at = time.monotonic()
        return self._tenant_cores.get(tenant, 0.0)


def _subject(planned: Sequence[PlannedQuery]) -> str:
    return "this one" if len(planned) == 1 else f"these {len(planned)}"
