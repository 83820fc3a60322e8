"""The small files of the data folder by which planner, tasks, router and session tell each other how far the job is.

Processes that only plan or commit import this module and not :mod:`braid.engine.plan_log`, which knows queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from braid.sources.core.errors import CorruptData
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage, not_read_back

BATCHES = "batches"
CHANGELOGS = "changelogs"
ACTIVATIONS = "activations"
PLANS = "plans"
PLANNED = "planned.json"
PARTITIONS = "partitions.json"
UNAVAILABLE = "unavailable.json"
HEARTBEAT = "heartbeat.json"
DAMAGED = "damaged.json"
JOB_FILE = "job.json"
READY_FILE = "ready.json"
FAILING_FILE = "failing.json"

WARM_UP_BATCHES = 2
"""How many batches at a start are there to have every process load what it needs; then the job is ready."""


def write_activation(storage: Storage, previous_epoch: int, epoch: int, clocks: dict[str, Any]) -> None:
    """Record the clocks with which the epochs in ``(previous_epoch, epoch]`` became active; nothing for none."""
    if epoch > previous_epoch:
        record = {"previous_epoch": previous_epoch, "epoch": epoch, "clocks": clocks}
        storage.put_json(f"{ACTIVATIONS}/{epoch:012d}.json", record)


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


def write_heartbeat(storage: Storage, number: int) -> None:
    """Give a sign of life: a number that differs from the one before."""
    storage.put(HEARTBEAT, orjson.dumps({"number": number}), durable=False)


def read_heartbeat(storage: Storage) -> int | None:
    """Return the last sign of life of the job, None before the first since it was started."""
    return _read_message(storage, HEARTBEAT).get("number")


@contextmanager
def noting_damage(storage: Storage) -> Iterator[None]:
    """Tell the service, where CorruptData is raised, without which file the job cannot go on."""
    try:
        yield
    except CorruptData as error:
        storage.put_json(DAMAGED, {"detail": error.detail})
        raise


def read_damage(storage: Storage) -> str | None:
    """Return what the job told so, None for nothing."""
    try:
        return str(storage.get_json(DAMAGED)["detail"])
    except FileNotFoundError:
        return None


def _read_message(storage: Storage, path: str) -> dict[str, Any]:
    """Return what the planner wrote, empty where a power cut tore it: it is not flushed to disk."""
    with suppress(FileNotFoundError, orjson.JSONDecodeError):
        message: dict[str, Any] = orjson.loads(storage.get(path))
        return message
    return {}


def read_partitions(storage: Storage) -> int | None:
    """Return how many partitions the job of a data folder has, None before its first start decided that."""
    try:
        return int(storage.get_json(PARTITIONS)["partitions"])
    except FileNotFoundError:
        return None
    except (TypeError, KeyError, ValueError) as error:
        raise not_read_back(PARTITIONS, repr(error), "the number of partitions") from error


def check_partitions(storage: Storage) -> None:
    """Raise CorruptData where the newest batch had another number of partitions: keys would move."""
    batches = RecordLog(storage, BATCHES)
    newest = batches.latest()
    had = len(batches.read(newest).get("operator_busy_us", ())) if newest else 0
    partitions = read_partitions(storage)
    if had and partitions != had:
        got = "it is missing" if partitions is None else f"it has {partitions}"
        raise not_read_back(PARTITIONS, got, f"the number of partitions, {had} as the record of batch {newest} says,")
