"""The planner: decides what the next batch reads and which epoch it runs with.

It runs in a Python process of its own, asked by Spark every few milliseconds. Epochs come from the changelog log,
clocks from the record of the batch before; both lie on disk. A batch is bounded so that a backlog is worked off in
batches of about the target duration.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping

import numpy as np
import orjson

from operators.offsets import Offset
from operators.plan_log import CHANGELOGS, PLANS
from sources.connector import Connector
from sources.connectors import open_connector
from sources.record_log import RecordLog
from sources.schema import StreamDefinition
from sources.storage import Storage

BATCHES = "batches"
WARM_UP_BATCHES = 2


class BatchBudget:
    """How many tuples a batch may read, learnt from how long batches took.

    A batch takes an overhead, whatever it reads, and a time per tuple; a line through the recent batches tells them
    apart. Tuples get what the overhead leaves of the target, and at least half of it: small batches would not make a
    large overhead smaller.
    """

    def __init__(
        self, target_seconds: float, first: int = 200_000, least: int = 50_000, most: int = 20_000_000
    ) -> None:
        self._target = target_seconds
        self._least = least
        self._most = most
        self._recent: deque[tuple[int, float]] = deque(maxlen=20)
        self.tuples = first

    def learn(self, tuples: int, seconds: float) -> None:
        """Take note of a batch; only one that used most of the budget changes it."""
        self._recent.append((tuples, seconds))
        if tuples < self.tuples // 2:
            return
        overhead, per_tuple = self._fit()
        room = max(self._target - overhead, self._target / 2)
        wanted = int(min(room / per_tuple, self._most)) if per_tuple > 0 else self._most
        self.tuples = min(max(wanted, self.tuples // 2, self._least), self.tuples * 2)

    def _fit(self) -> tuple[float, float]:
        """Return the overhead (seconds) and the seconds per tuple of the recent batches."""
        counts, seconds = np.array(self._recent, dtype=np.float64).T
        spread = counts - counts.mean()
        if not spread.any():
            return 0.0, float(seconds.mean() / max(counts.mean(), 1.0))
        per_tuple = max(0.0, float(spread @ seconds / (spread @ spread)))
        return max(0.0, float(seconds.mean() - per_tuple * counts.mean())), per_tuple


class Planner:
    """Answers Spark's ``latestOffset``."""

    def __init__(self, storage: Storage, target_seconds: float) -> None:
        self._storage = storage
        self._changelogs = RecordLog(storage, CHANGELOGS)
        self._batches = RecordLog(storage, BATCHES)
        self._epoch = 0
        self._definitions: dict[str, StreamDefinition] = {}
        self._connectors: dict[str, Connector] = {}
        self._budget = BatchBudget(target_seconds)
        self._warm_ups = WARM_UP_BATCHES
        self._asked: tuple[int, int, float] | None = None

    def latest(self, start: Offset, now_us: int) -> Offset:
        """Return the offset at which the next batch ends, or ``start`` when there is nothing to do."""
        if start.seq and not self._batches.has(start.seq):
            return start
        self._learn_duration(start)
        self._follow_changelogs()
        available = {stream: connector.available(now_us) for stream, connector in self._connectors.items()}
        streams = self._bounded(start, available)
        read = _tuples_between(start, streams)
        if not read and self._epoch == start.epoch and not self._warm_ups:
            return start
        self._warm_ups = max(0, self._warm_ups - 1)
        record = self._batches.read(start.seq) if start.seq else {"clocks": {}, "waterlines": {}}
        self._asked = (start.seq + 1, read, time.monotonic())
        return Offset(
            seq=start.seq + 1,
            epoch=self._epoch,
            streams=streams,
            clocks={stream: record["clocks"].get(stream) for stream in streams},
            waterlines={stream: record["waterlines"].get(stream) for stream in streams},
        )

    def _learn_duration(self, start: Offset) -> None:
        if self._asked is not None and self._asked[0] == start.seq:
            _, tuples, at = self._asked
            self._budget.learn(tuples, time.monotonic() - at)
            self._asked = None

    def _follow_changelogs(self) -> None:
        """Learn of new epochs and of the streams that they create and drop."""
        latest = self._changelogs.latest()
        if self._epoch == 0 and latest:
            self._start_from_snapshot()
        while self._epoch < latest:
            changelog = self._changelogs.read(self._epoch + 1)
            for value in changelog["streams_created"]:
                self._open(StreamDefinition.from_json(value))
            for stream in changelog["streams_dropped"]:
                self._definitions.pop(stream, None)
                self._connectors.pop(stream, None)
            self._epoch += 1

    def _start_from_snapshot(self) -> None:
        names = self._storage.names(PLANS)
        if names:
            plan = orjson.loads(self._storage.get(f"{PLANS}/{names[-1]}"))
            for value in plan["streams"]:
                self._open(StreamDefinition.from_json(value))
            self._epoch = plan["epoch"]

    def _open(self, definition: StreamDefinition) -> None:
        self._definitions[definition.id] = definition
        self._connectors[definition.id] = open_connector(definition, self._storage)

    def _bounded(self, start: Offset, available: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        """Return the end offsets: everything available, or fair shares of the budget when that is too much."""
        backlog = _tuples_between(start, available)
        share = min(1.0, self._budget.tuples / backlog) if backlog else 1.0
        bounded: dict[str, dict[str, int]] = {}
        for stream, partitions in available.items():
            before = start.streams.get(stream, {})
            bounded[stream] = dict(before)  # a partition that is out of sight for a while goes on where it was
            for partition, end in partitions.items():
                first = before.get(partition, 0)
                taken = max(0, end - first)
                bounded[stream][partition] = first + (taken if share == 1.0 else -int(-taken * share // 1))
        return bounded


def _tuples_between(start: Offset, streams: Mapping[str, Mapping[str, int]]) -> int:
    return sum(
        max(0, end - start.streams.get(stream, {}).get(partition, 0))
        for stream, partitions in streams.items()
        for partition, end in partitions.items()
    )
