"""Queries whose rows go to sinks: what the session tells deliverers of them, and how far deliverers are."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from braid.router.delivery.delivery_log import DeliveredQuery, DeliveryWriter
from braid.router.delivery.progress import (
    DELIVERING,
    DONE,
    RETRYING,
    DeliveryProgress,
    part_of,
    parts_alive,
    read_progress,
)
from braid.router.deployment import Deployment
from braid.router.sinks.connectors import read_sink
from braid.session.log.archive import Archive
from braid.session.state.applied_epoch import SlotChange
from braid.session.state.query_record import QueryRecord
from braid.session.state.query_table import number_of
from braid.session.state.session_state import SessionState
from braid.session.state.times import rfc3339
from braid.sources.core.storage import Storage

FRESH_SECONDS = 0.5
ALIVE_SECONDS = 20.0
STALLED = "STALLED"
STATES = (DELIVERING, RETRYING, STALLED, DONE)

log = logging.getLogger("braid.session")


@dataclass(frozen=True)
class DeliveryChanges:
    """What is to be written for deliverers after a batch with ``epoch``.

    ``freed`` maps queries to the epochs that freed them. ``finished`` are queries that will not be deployed again,
    ``removed`` those in the delivery log that have left the state.
    """

    epoch: int
    new: list[DeliveredQuery] = field(default_factory=list)
    freed: dict[str, int] = field(default_factory=dict)
    finished: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


class SinkDeliveries:
    """The writing end of the delivery log, and the reading end of the progress of deliverers.

    The session's writer calls ``follow`` after every batch. ``on_wanted`` is called when there is a query with a sink
    for the first time.
    """

    def __init__(self, storage: Storage, archive: Archive) -> None:
        self._storage = storage
        self._archive = archive
        self._writer = DeliveryWriter(storage)
        # queries with sinks: by the slots that they hold; and those without a slot that may get one again
        self._holders: dict[int, str] = {}
        self._paused: set[str] = set()
        self._index_slots()
        self._progress: dict[str, DeliveryProgress] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()
        self._is_behind = False
        self._is_wanted = False
        self._parts_alive: set[int] = set()
        self.on_wanted: Callable[[], None] = lambda: None

    def bring_up(self, state: SessionState) -> None:
        """Write what has changed since the log was written last; nobody else uses the state meanwhile."""
        self._write(self._all_changes(state), state)
        self._index_slots()
        self._call_for_deliverers()

    def follow(self, changes: Iterable[SlotChange], state: SessionState) -> None:
        """Tell deliverers of the slots that changed hands with a batch, and of paused queries that are over.

        What cannot be written now is written later: deliverers wait for it.
        """
        try:
            self._write(self._changes(changes, state), state)
            if self._is_behind:
                self._index_slots()
            self._is_behind = False
        except OSError:
            if not self._is_behind:
                log.exception("writing the delivery log failed; it is tried again")
            self._is_behind = True

    def _changes(self, slots: Iterable[SlotChange], state: SessionState) -> DeliveryChanges:
        if self._is_behind:
            return self._all_changes(state)
        changes = DeliveryChanges(state.active_epoch)
        for slot, holder in slots:
            former_id = self._holders.pop(slot, None)
            if former_id is not None:
                freed_epoch = state.queries[former_id].all_deployments[-1].freed_epoch
                changes.freed[former_id] = state.active_epoch if freed_epoch is None else freed_epoch
                self._paused.add(former_id)
            record = None if holder is None else state.queries.find(holder.id)
            query = None if record is None else _delivered(record, state.active_epoch)
            if query is not None:
                changes.new.append(query)
                self._holders[slot] = query.id
                self._paused.discard(query.id)
        for query_id in self._paused:
            record = state.queries.find(query_id)
            if record is None or record.has_ended:
                changes.finished.append(query_id)
        self._paused.difference_update(changes.finished)
        return changes

    def _all_changes(self, state: SessionState) -> DeliveryChanges:
        """Return all that the delivery log lacks; looks at all queries."""
        known = self._writer.deliveries.queries
        queries = (_delivered(record, state.active_epoch) for record in state.queries.values())
        new = [query for query in queries if query is not None and known.get(query.id) != query]
        removed = [query.id for query in known.values() if not query.is_over and state.queries.find(query.id) is None]
        return DeliveryChanges(state.active_epoch, new, removed=removed)

    def _write(self, changes: DeliveryChanges, state: SessionState) -> None:
        new, freed, finished = [*changes.new], {**changes.freed}, [*changes.finished]
        for query_id in changes.removed:
            record = self._archive.find(number_of(query_id))
            query = None if record is None else _delivered(record, changes.epoch)
            if query is None:  # its retention has passed
                freed[query_id] = changes.epoch
                finished.append(query_id)
            else:
                new.append(query)
        deliveries = self._writer.deliveries
        if not new and not deliveries.queries:
            return  # nobody has a sink: no file is written
        if not new and not freed and not finished and deliveries.epoch >= changes.epoch:
            return
        self._writer.write(new, freed, changes.epoch, finished)
        if self._writer.whole_is_due:
            progress = read_progress(self._storage)
            forgotten = [
                query_id
                for query_id in self._writer.deliveries.queries
                if state.queries.find(query_id) is None and query_id in progress and progress[query_id].is_over
            ]
            self._writer.write_whole(without=forgotten)
        self._call_for_deliverers()

    def _call_for_deliverers(self) -> None:
        if self._writer.deliveries.queries and not self._is_wanted:
            self.on_wanted()
            self._is_wanted = True

    def _index_slots(self) -> None:
        queries = self._writer.deliveries.queries.values()
        self._holders = {query.open_slot: query.id for query in queries if query.open_slot is not None}
        self._paused = {query.id for query in queries if query.open_slot is None and not query.is_over}

    # what deliverers tell

    def progress(self) -> Mapping[str, DeliveryProgress]:
        """Return how far deliveries are, by the ids of queries; as of at most half a second ago."""
        with self._lock:
            if time.monotonic() > self._read_at + FRESH_SECONDS:
                queries = self._writer.deliveries.queries
                self._progress = {
                    **{query_id: DeliveryProgress() for query_id in list(queries)},
                    **read_progress(self._storage),
                }
                since_us = time.time_ns() // 1000 - round(ALIVE_SECONDS * 1e6)
                self._parts_alive = parts_alive(self._storage, since_us)
                self._read_at = time.monotonic()
            return self._progress

    def state_of(self, query_id: str, progress: DeliveryProgress) -> str:
        """Return the state of a delivery: STALLED while no deliverer of its part runs."""
        is_stalled = not progress.is_over and part_of(query_id) not in self._parts_alive
        return STALLED if is_stalled else progress.state

    def describe(self, query_id: str) -> dict[str, Any] | None:
        """Return what GET /queries/{id} shows of a delivery; None where there is none."""
        progress = self.progress().get(query_id)
        if progress is None:
            return None
        return {
            "state": self.state_of(query_id, progress),
            "rows": progress.rows,
            "delivered_at": rfc3339(progress.delivered_us),
            "lag_seconds": lag_seconds(progress),
            "errors": progress.errors,
            "error": progress.error,
            "gaps": progress.gaps,
            "gap": progress.gap,
            "refused": progress.refused,
            "refusal": progress.refusal,
        }


def lag_seconds(progress: DeliveryProgress) -> float:
    """Return how long the oldest undelivered rows have waited."""
    since_us = progress.waiting_since_us
    return 0.0 if since_us is None or progress.is_over else max(0.0, time.time() - since_us / 1e6)


def _as_of(active_epoch: int, deployment: Deployment) -> Deployment:
    """Return what the batches up to an epoch know of a deployment."""
    freed_epoch = deployment.freed_epoch
    if freed_epoch is not None and freed_epoch > active_epoch:
        freed_epoch = None
    return replace(deployment, active_to=None, freed_epoch=freed_epoch)


def _delivered(record: QueryRecord, active_epoch: int) -> DeliveredQuery | None:
    """Return what deliverers must know of a query; None while it has not run, and for one without a sink."""
    sink = read_sink(record.sink)
    if sink is None:
        return None
    deployments = tuple(
        _as_of(active_epoch, deployment) for deployment in record.all_deployments if deployment.epoch <= active_epoch
    )
    if not deployments:
        return None
    return DeliveredQuery(
        id=record.id,
        name=record.name,
        created_us=record.created_us,
        query=record.query,
        sink=sink,
        deployments=deployments,
        is_over=record.has_ended and deployments[-1].freed_epoch is not None,
    )
