"""The queries of any epoch, rebuilt from what lies on disk.

A process starts from the newest plan snapshot and applies changelogs; activations say with which clocks. Later it only
applies what is new.
"""

from __future__ import annotations

import bisect

from braid.engine.data_layout import ACTIVATIONS, CHANGELOGS, PLANS
from braid.engine.planning.offsets import Offset
from braid.operators.live_queries import LiveQueries
from braid.sources.core.errors import CorruptData
from braid.sources.core.record_log import RecordLog, file_number
from braid.sources.core.storage import Storage


class PlanLog:
    """Keeps one :class:`LiveQueries` and moves it to the epoch of the batch at hand."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._changelogs = RecordLog(storage, CHANGELOGS)
        self._live: LiveQueries | None = None
        self._without: LiveQueries | None = None
        self._activated: list[int] = []

    def at(self, start: Offset, end: Offset) -> LiveQueries:
        """Return the queries of the batch from ``start`` to ``end``; the caller must not keep it for another batch.

        Those that no batch can be run with are left out.
        """
        live = self._live
        if live is None or live.epoch > end.epoch:
            live = self._load_snapshot(start.epoch) or LiveQueries()
        elif live.epoch < start.epoch:  # other workers ran the batches between; what led there may be trimmed
            live = self._load_snapshot(start.epoch, after=live.epoch) or live
        while live.epoch < end.epoch:
            epoch = live.epoch + 1
            clocks = end.clocks if epoch > start.epoch else self._clocks_at_activation(epoch)
            live.apply(self._changelogs.needed(epoch), clocks)
        self._live = live
        if not end.failed:
            self._without = None
            return live
        if self._without is None or self._without.version != (live.epoch, frozenset(end.failed)):
            self._without = live.leaving_out(end.failed)
        return self._without

    def _load_snapshot(self, upto: int, after: int = 0) -> LiveQueries | None:
        """Return the newest snapshot with an epoch in ``(after, upto]``, None when there is none."""
        epochs = [file_number(name) for name in self._storage.names(PLANS)]
        usable = [epoch for epoch in epochs if after < epoch <= upto]
        if not usable:
            return None
        return LiveQueries(self._storage.get_json(f"{PLANS}/{max(usable):012d}.json"))

    def _clocks_at_activation(self, epoch: int) -> dict[str, int | None]:
        index = bisect.bisect_left(self._activated, epoch)
        if index == len(self._activated):
            self._activated = [file_number(name) for name in self._storage.names(ACTIVATIONS)]
            index = bisect.bisect_left(self._activated, epoch)
        if index == len(self._activated):
            raise CorruptData(f"Epoch {epoch} is in the offset log, but no activation of it is in {ACTIVATIONS!r}.")
        record = self._storage.get_json(f"{ACTIVATIONS}/{self._activated[index]:012d}.json")
        if record["previous_epoch"] >= epoch:
            raise CorruptData(f"Epoch {epoch} is in the offset log, but no activation of it is in {ACTIVATIONS!r}.")
        clocks: dict[str, int | None] = record["clocks"]
        return clocks


_SHARED: dict[str, PlanLog] = {}


def shared_plan(storage: Storage) -> PlanLog:
    """Return the plan log that all tasks in this process share: those of a batch want the queries of one epoch."""
    return _SHARED.setdefault(storage.uri, PlanLog(storage))
