"""How many executors are wanted: what :mod:`optimizer.scaling` decides, told to the Spark driver and shown.

The session's thread calls :meth:`Scaling.observe` and :meth:`Scaling.look`; any thread may ask for the rest. What was
decided last is in a file, from which a restart goes on. With ``executors_max`` 0 nothing is decided and there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operators.job.executors import WANTED, Asked, read_asked, read_registered, write_asked
from operators.job.masters import has_executors
from operators.job.plan_log import read_lanes
from optimizer.scaling import Decision, Load, Pool, Rules, decide
from session.settings import Settings
from session.times import rfc3339
from sources.storage import Storage

KEPT = 20
LOOK_US = 1_000_000
QUIET_US = 5_000_000
"""For how long there must have been no batch for its absence to count as one without work."""

NOT_DECIDED = "The setting executors_max is 0: their number is what Spark's configuration and the cluster make it."


class Scaling:
    """The executors that one session wants; times in microseconds since 1970."""

    def __init__(self, storage: Storage, settings: Settings) -> None:
        self._storage = storage
        self._master = settings.master
        self._rules: Rules | None = None
        if settings.executors_max:
            self._rules = Rules(
                settings.executors_min,
                settings.executors_max,
                settings.scale_latency_seconds,
                settings.scale_period_seconds,
            )
        self._asked: list[Asked] = []
        self._decision: Decision | None = None
        self._batch_us = 0
        self._looked_us = 0

    def start(self, now_us: int) -> None:
        """Go on with what was wanted before, as far as the settings allow it."""
        if self._rules is None:
            self._storage.delete(WANTED)
            return
        rules, self._asked = self._rules, read_asked(self._storage)
        before = self._asked[-1].wanted if self._asked else None
        wanted = rules.held(rules.least if before is None else before)
        if wanted != before:
            self._ask(Asked(wanted, f"There must be from {rules.least} to {rules.most} executors.", now_us))
        newest = self._asked[-1]
        self._decision = Decision(newest.wanted, newest.why, newest.at_us / 1e6)
        self._batch_us = now_us

    def observe(self, record: Mapping[str, Any]) -> None:
        """Take note of the record of a batch, the next one."""
        if self._rules is not None:
            self._decide(Load.of(record, self._batch_us))
            self._batch_us = record["committed_us"]

    def look(self, now_us: int) -> None:
        """Take note that nothing comes, when that is so; looks once in :data:`LOOK_US` at most."""
        if self._rules is None or 0 <= now_us - self._looked_us < LOOK_US:
            return
        self._looked_us = now_us
        registered = read_registered(self._storage)
        if registered is not None and registered.idle and now_us - self._batch_us > QUIET_US:
            self._decide(Load(now_us / 1e6, 0.0, 0.0, 0))

    def _decide(self, load: Load) -> None:
        registered, lanes = read_registered(self._storage), read_lanes(self._storage)
        if registered is None or not registered.executors or not registered.cores or lanes is None:
            return  # the driver starts, or its executors do
        assert self._rules is not None
        assert self._decision is not None
        pool = Pool(registered.executors, registered.cores, lanes)
        before, self._decision = self._decision, decide(self._decision, load, pool, self._rules)
        if self._decision.wanted != before.wanted:
            self._ask(Asked(self._decision.wanted, self._decision.why, round(load.at * 1e6)))

    def _ask(self, asked: Asked) -> None:
        assert self._rules is not None
        self._asked = [*self._asked, asked][-KEPT:]
        write_asked(self._storage, self._rules.most, self._asked)

    @property
    def now(self) -> int | None:
        """How many executors there are, None while that is not known."""
        registered = read_registered(self._storage)
        return None if registered is None else registered.executors

    @property
    def wanted(self) -> int | None:
        """How many executors are wanted, None while nothing is decided."""
        return self._asked[-1].wanted if self._asked else None

    def describe(self) -> dict[str, Any]:
        """Return it as GET /plan shows it."""
        if self._rules is None:
            return {"now": self.now, "wanted": None, "bounds": None, "why": NOT_DECIDED, "since": None, "decisions": []}
        asked = self._asked
        why = asked[-1].why if asked else NOT_DECIDED
        if not has_executors(self._master):
            why += f" Nothing is done about it: the master {self._master} has no executors but the driver's process."
        return {
            "now": self.now,
            "wanted": self.wanted,
            "bounds": [self._rules.least, self._rules.most],
            "why": why,
            "since": rfc3339(asked[-1].at_us) if asked else None,
            "decisions": [{"at": rfc3339(each.at_us), "wanted": each.wanted, "why": each.why} for each in asked],
        }
