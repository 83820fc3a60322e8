"""Snapshots of the running queries for the planner and the tasks, so that they need not replay all changelogs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import orjson

from braid.engine.data_layout import ACTIVATIONS, CHANGELOGS, PLANS
from braid.operators.live_queries import LiveQuery
from braid.session.log.archive import compact
from braid.session.state.session_state import SessionState
from braid.sources.core.record_log import RecordLog, file_number
from braid.sources.core.storage import Storage

EVERY_EPOCHS = 100
MAX_EPOCHS = 1000
SNAPSHOTS_KEPT = 2
CHANGELOGS_KEPT = 10_000

_live_fields = attrgetter(*(field.name for field in fields(LiveQuery)))  # a QueryRecord has them all by the same names


class Pace:
    """When a snapshot is due: when reading it costs a new process less than applying the changelogs since the last one.

    So how much is written for a query does not depend on how many queries run.
    """

    def __init__(self, storage: Storage, state: SessionState) -> None:
        """Begin at the last snapshot; queries that came and went between it and ``state`` do not count."""
        self._epoch = latest_epoch(storage)
        self._changes = _changes(state)

    def due(self, state: SessionState) -> bool:
        """Whether a snapshot is due."""
        epochs = state.active_epoch - self._epoch
        changes = _changes(state) - self._changes
        return epochs >= MAX_EPOCHS or (epochs >= EVERY_EPOCHS and changes >= state.queries.unfinished)

    def restart(self, state: SessionState) -> None:
        """Count from a snapshot of ``state`` on."""
        self._epoch, self._changes = state.active_epoch, _changes(state)


def _changes(state: SessionState) -> int:
    return state.queries_created + state.queries_deleted


@dataclass(frozen=True)
class PlanSnapshot:
    """What the data plane knows at one epoch: the fields of a LiveQuery each, and the rest of the state as JSON."""

    epoch: int
    queries: list[tuple[Any, ...]]
    state: dict[str, Any]


def take(state: SessionState) -> PlanSnapshot:
    """Return a snapshot at the epoch of the last batch."""
    active = state.active
    return PlanSnapshot(state.active_epoch, [_live_fields(record) for record in active.queries], active.state_json())


def write(storage: Storage, snapshot: PlanSnapshot) -> None:
    """Write a snapshot in the data plane's form, query by query: all of them at once would keep the GC busy."""
    queries = [orjson.Fragment(compact(orjson.dumps(LiveQuery(*fields).to_json()))) for fields in snapshot.queries]
    plan = {"epoch": snapshot.epoch, "queries": queries, **snapshot.state}
    storage.put_json(f"{PLANS}/{snapshot.epoch:012d}.json", plan)


def latest_epoch(storage: Storage) -> int:
    """Return the epoch of the newest snapshot, 0 when there is none."""
    return max((file_number(name) for name in storage.names(PLANS)), default=0)


def trim_plan_log(storage: Storage, session_epoch: int) -> None:
    """Remove files that are not needed to rebuild the queries of any batch that may still run.

    Older snapshots go, with the activations and changelogs that the oldest kept one covers. Changelogs after
    ``session_epoch``, the epoch of the session's own snapshot, stay, and so do the newest ones, for GET /changelogs.
    """
    epochs = sorted(file_number(name) for name in storage.names(PLANS))
    if len(epochs) < SNAPSHOTS_KEPT:
        return
    for epoch in epochs[:-SNAPSHOTS_KEPT]:
        storage.delete(f"{PLANS}/{epoch:012d}.json")
    covered = epochs[-SNAPSHOTS_KEPT]
    for name in storage.names(ACTIVATIONS):
        if file_number(name) <= covered:
            storage.delete(f"{ACTIVATIONS}/{name}")
    changelogs = RecordLog(storage, CHANGELOGS)
    changelogs.trim(min(covered, session_epoch, changelogs.latest() - CHANGELOGS_KEPT))
