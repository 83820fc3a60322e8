"""How many executors are wanted: tells the Spark driver what :mod:`braid.optimizer.scaling` decides, and shows it.

The session's writer calls :meth:`Scaling.observe` and :meth:`Scaling.look`; any thread may call the rest. The last
decisions are in a file, from which a restart goes on. With ``executors_max`` 0 nothing is decided, and no file is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from braid.engine.data_layout import read_partitions
from braid.engine.spark.executors import WANTED, ExecutorRequest, read_registered, read_requests, write_requests
from braid.engine.spark.masters import has_executors
from braid.optimizer.scaling import Decision, Load, Pool, Rules, decide
from braid.session.settings import Settings
from braid.session.state.times import rfc3339
from braid.sources.core.storage import Storage

KEPT = 20
LOOK_US = 1_000_000
QUIET_US = 5_000_000
"""After how long without a batch it counts as if a batch without work had come."""
LOADS_A_PERIOD = 5
"""Small batches are judged together, so often: one may have all windows that end in a second, the next none."""

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
        self._history: list[ExecutorRequest] = []
        self._decision: Decision | None = None
        self._records: list[Mapping[str, Any]] = []
        self._batch_us = 0
        self._judged_us = 0
        self._looked_us = 0

    def start(self, now_us: int) -> None:
        """Go on with what was wanted before, as far as the settings allow it."""
        if self._rules is None:
            self._storage.delete(WANTED)
            return
        rules, self._history = self._rules, read_requests(self._storage)
        wanted_before = self._history[-1].wanted if self._history else None
        wanted = rules.clamped(rules.least if wanted_before is None else wanted_before)
        if wanted != wanted_before:
            self._ask(ExecutorRequest(wanted, f"There must be from {rules.least} to {rules.most} executors.", now_us))
        newest = self._history[-1]
        self._decision = Decision(newest.wanted, newest.why, newest.at_us / 1e6)
        self._batch_us = self._judged_us = now_us

    def observe(self, record: Mapping[str, Any]) -> None:
        """Take note of the record of the next batch, and decide by those that are not judged yet if it is time."""
        if self._rules is None:
            return
        self._batch_us = record["committed_us"]
        if self._batch_us < self._judged_us:
            self._begin_anew()
        self._records.append(record)
        if (self._batch_us - self._judged_us) * LOADS_A_PERIOD >= self._rules.period_seconds * 1e6:
            self._judge(Load.of(self._records, self._judged_us), self._batch_us)

    def _begin_anew(self) -> None:
        """Forget since when there has been much or little to do: the clock was set back."""
        self._records, self._judged_us = [], self._batch_us
        if self._decision is not None:
            self._decision = replace(self._decision, high_since=None, low_since=None)

    def look(self, now_us: int) -> None:
        """Decide that there is no work, when no batch has come for a while; at most every :data:`LOOK_US`."""
        if self._rules is None or 0 <= now_us - self._looked_us < LOOK_US:
            return
        self._looked_us = now_us
        registered = read_registered(self._storage)
        if registered is not None and registered.idle and now_us - self._batch_us > QUIET_US:
            self._judge(Load(now_us / 1e6, 0.0, 0.0, 0), now_us)

    def _judge(self, load: Load, now_us: int) -> None:
        """Decide by a load, which is all that there was up to now."""
        self._records, self._judged_us = [], now_us
        self._decide(load)

    def _decide(self, load: Load) -> None:
        registered, partitions = read_registered(self._storage), read_partitions(self._storage)
        if registered is None or not registered.executors or not registered.cores or partitions is None:
            return  # the driver starts, or its executors do
        assert self._rules is not None
        assert self._decision is not None
        pool = Pool(registered.executors, registered.cores, partitions)
        previous, self._decision = self._decision, decide(self._decision, load, pool, self._rules)
        if self._decision.wanted != previous.wanted:
            self._ask(ExecutorRequest(self._decision.wanted, self._decision.why, round(load.at * 1e6)))

    def _ask(self, request: ExecutorRequest) -> None:
        assert self._rules is not None
        self._history = [*self._history, request][-KEPT:]
        write_requests(self._storage, self._rules.most, self._history)

    @property
    def now(self) -> int | None:
        """How many executors there are, None while that is not known."""
        registered = read_registered(self._storage)
        return None if registered is None else registered.executors

    @property
    def wanted(self) -> int | None:
        """How many executors are wanted, None while nothing is decided."""
        return self._history[-1].wanted if self._history else None

    def describe(self) -> dict[str, Any]:
        """Return it as GET /plan shows it."""
        if self._rules is None:
            return {"now": self.now, "wanted": None, "bounds": None, "why": NOT_DECIDED, "since": None, "decisions": []}
        history = self._history
        why = history[-1].why if history else NOT_DECIDED
        if not has_executors(self._master):
            why += f" Nothing is done about it: the master {self._master} has no executors but the driver's process."
        return {
            "now": self.now,
            "wanted": self.wanted,
            "bounds": [self._rules.least, self._rules.most],
            "why": why,
            "since": rfc3339(history[-1].at_us) if history else None,
            "decisions": [{"at": rfc3339(asked.at_us), "wanted": asked.wanted, "why": asked.why} for asked in history],
        }
