"""The queries of any epoch, rebuilt from what lies on disk.

A process starts from the newest plan snapshot and applies changelogs; activations say with which clocks. Later it only
applies what is new.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from operators.job.offsets import Offset
from operators.live_queries import LiveQueries
from sources.errors import CorruptData
from sources.record_log import RecordLog, file_number
from sources.storage import Storage

BATCHES = "batches"
CHANGELOGS = "changelogs"
ACTIVATIONS = "activations"
PLANS = "plans"
PLANNED = "planned.json"
LANES = "lanes.json"
UNAVAILABLE = "unavailable.json"


class PlanLog:
    """Keeps one :class:`LiveQueries` and moves it to the epoch of the batch at hand."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._changelogs = RecordLog(storage, CHANGELOGS)
        self._live: LiveQueries | None = None
        self._activated: list[int] = []

    def at(self, start: Offset, end: Offset) -> LiveQueries:
        """Return the queries of the batch from ``start`` to ``end``; the caller must not keep it for another batch."""
        live = self._live
        if live is None or live.epoch > end.epoch:
            live = self._load_snapshot(start.epoch) or LiveQueries()
        elif live.epoch < start.epoch:  # other workers ran the batches between; what led there may be trimmed
            live = self._load_snapshot(start.epoch, after=live.epoch) or live
        while live.epoch < end.epoch:
            epoch = live.epoch + 1
            clocks = end.clocks if epoch > start.epoch else self._clocks_at_activation(epoch)
            live.apply(self._changelogs.read(epoch), clocks)
        self._live = live
        return live

    def _load_snapshot(self, upto: int, after: int = 0) -> LiveQueries | None:
        """Return the newest snapshot with an epoch in ``(after, upto]``, None when there is none."""
        epochs = [file_number(name) for name in self._storage.names(PLANS)]
        usable = [epoch for epoch in epochs if after < epoch <= upto]
        if not usable:
            return None
        return LiveQueries.from_json(self._storage.get_json(f"{PLANS}/{max(usable):012d}.json"))

    def _clocks_at_activation(self, epoch: int) -> dict[str, int | None]:
        index = bisect.bisect_left(self._activated, epoch)
        if index == len(self._activated):
            self._activated = [file_number(name) for name in self._storage.names(ACTIVATIONS)]
            index = bisect.bisect_left(self._activated, epoch)
        if index == len(self._activated):
            raise CorruptData(f"Epoch {epoch} is in the offset log, but no activation of it is in {ACTIVATIONS!r}.")
        record = self._storage.get_json(f"{ACTIVATIONS}/{self._activated[index]:012d}.json")
        clocks: dict[str, int | None] = record["clocks"]
        return clocks


_SHARED: dict[str, PlanLog] = {}


def shared_plan(storage: Storage) -> PlanLog:
    """Return the plan log that all tasks in this process share: those of a batch want the queries of one epoch."""
    return _SHARED.setdefault(storage.uri, PlanLog(storage))


def write_activation(storage: Storage, previous_epoch: int, epoch: int, clocks: dict[str, Any]) -> None:
    """Record the clocks with which the epochs in ``(previous_epoch, epoch]`` became active; nothing for none."""
    if epoch > previous_epoch:
        record = {"previous_epoch": previous_epoch, "epoch": epoch, "clocks": clocks}
        storage.put(f"{ACTIVATIONS}/{epoch:012d}.json", orjson.dumps(record))


@dataclass(frozen=True)
class PlannedBatch:
    """The newest batch that takes in changelogs: those of the epochs in ``(previous_epoch, epoch]``.

    ``clocks`` are those of the streams at its start, ``planned_us`` its processing time. The planner writes it before
    Spark logs the batch. If Spark never does, batch ``seq`` is planned again with the same clocks, which the
    batch before decided, and with the same epochs at least.
    """

    seq: int
    previous_epoch: int
    epoch: int
    clocks: Mapping[str, int | None]
    planned_us: int


def write_planned(storage: Storage, batch: PlannedBatch) -> None:
    """Tell the session of a batch that takes in changelogs."""
    storage.put(PLANNED, orjson.dumps(asdict(batch)), durable=False)


def read_planned(storage: Storage) -> PlannedBatch | None:
    """Return the newest batch that takes in changelogs, None before the first."""
    message = _read_message(storage, PLANNED)
    return PlannedBatch(**message) if message else None


def write_unavailable(storage: Storage, problems: Mapping[str, str]) -> None:
    """Tell the session why streams have nothing to read, by their ids."""
    storage.put(UNAVAILABLE, orjson.dumps(problems), durable=False)


def read_unavailable(storage: Storage) -> dict[str, str]:
    """Return what :func:`write_unavailable` wrote last."""
    return _read_message(storage, UNAVAILABLE)


def _read_message(storage: Storage, path: str) -> dict[str, Any]:
    """Return what the planner wrote, empty where a power cut tore it: it is not flushed to disk."""
    with suppress(FileNotFoundError, orjson.JSONDecodeError):
        message: dict[str, Any] = orjson.loads(storage.get(path))
        return message
    return {}


def read_lanes(storage: Storage) -> int | None:
    """Return how many lanes the job of a data folder has, None before its first start decided that."""
    try:
        return int(storage.get_json(LANES)["lanes"])
    except FileNotFoundError:
        return None
