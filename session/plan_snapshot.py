"""Snapshots of the running queries for the planner and the tasks, so that they need not replay all changelogs."""

from __future__ import annotations

import orjson

from operators.live_queries import LiveQueries, LiveQuery
from operators.plan_log import ACTIVATIONS, CHANGELOGS
from session.session_state import SessionState
from sources.record_log import RecordLog
from sources.storage import Storage

FOLDER = "plans"
EVERY_EPOCHS = 100
SNAPSHOTS_KEPT = 2
CHANGELOGS_KEPT = 10_000


def live_queries(state: SessionState) -> LiveQueries:
    """Return the queries and streams at the state's epoch, all of which must be active."""
    assert state.active_epoch == state.epoch, "every changelog must be active: its clocks are needed"
    live = LiveQueries()
    live.epoch, live.capacity = state.epoch, state.slots.capacity
    placed = (record for record in state.queries.values() if record.freed_epoch is None)
    for record in sorted((r for r in placed if r.slot is not None), key=lambda r: r.slot or 0):
        assert record.slot is not None
        assert record.epoch is not None
        assert record.active_from is not None
        live.by_slot[record.slot] = LiveQuery(
            record.id,
            record.slot,
            record.epoch,
            record.operator,
            record.query,
            record.active_from,
            record.active_to,
        )
    announced = state.plan.streams
    definitions = [stream.definition for stream in state.catalog.states()]
    live.streams = {definition.id: definition for definition in definitions if definition.id in announced}
    return live


def write_plan_snapshot(storage: Storage, live: LiveQueries) -> None:
    """Write the snapshot of ``live.epoch``."""
    storage.put(f"{FOLDER}/{live.epoch:012d}.json", orjson.dumps(live.to_json()))


def latest_epoch(storage: Storage) -> int:
    """Return the epoch of the newest snapshot, 0 when there is none."""
    return max((int(name[:12]) for name in storage.names(FOLDER)), default=0)


def trim_plan_log(storage: Storage, session_epoch: int) -> None:
    """Remove what nobody needs to rebuild the queries of a batch that may still run.

    Older snapshots go, with the activations and changelogs that the oldest kept one covers. Changelogs after
    ``session_epoch``, the epoch of the session's own snapshot, stay, and so do the newest ones, for GET /changelogs.
    """
    epochs = sorted(int(name[:12]) for name in storage.names(FOLDER))
    if len(epochs) < SNAPSHOTS_KEPT:
        return
    for epoch in epochs[:-SNAPSHOTS_KEPT]:
        storage.delete(f"{FOLDER}/{epoch:012d}.json")
    covered = epochs[-SNAPSHOTS_KEPT]
    for name in storage.names(ACTIVATIONS):
        if int(name[:12]) <= covered:
            storage.delete(f"{ACTIVATIONS}/{name}")
    changelogs = RecordLog(storage, CHANGELOGS)
    changelogs.trim(min(covered, session_epoch, changelogs.latest() - CHANGELOGS_KEPT))
