"""The queries whose rows go to sinks, as the session tells deliverers of them, and what deliverers tell back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from router.delivery_log import DeliveredQuery, DeliveryWriter
from router.progress import DELIVERING, DONE, RETRYING, Progress, part_of, parts_alive, read_progress
from router.sinks.connectors import read_sink
from session.archive import Archive
from session.query_record import QueryRecord
from session.query_table import number_of
from session.session_state import SessionState, SlotChange
from session.times import rfc3339
from sources.storage import Storage

FRESH_SECONDS = 0.5
ALIVE_SECONDS = 20.0
STALLED = "STALLED"
STATES = (DELIVERING, RETRYING, STALLED, DONE)

log = logging.getLogger("braid.session")


class SinkDeliveries:
    """The writing end of the delivery log, and the reading end of the progress of deliverers.

    ``note`` follows every batch, in the thread that steps the session. ``wanted`` is called when there is a query with
    a sink for the first time.
    """

    def __init__(self, storage: Storage, archive: Archive) -> None:
        self._storage = storage
        self._archive = archive
        self._writer = DeliveryWriter(storage)
        self._holders = self._open()
        self._progress: dict[str, Progress] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()
        self._is_behind = False
        self._is_wanted = False
        self._parts_alive: set[int] = set()
        self.wanted: Callable[[], None] = lambda: None

    def bring_up(self, state: SessionState) -> None:
        """Tell of what has changed since the log was written last."""
        known = self._writer.deliveries.queries
        new = [
            query
            for record in state.queries.values()
            if record.id not in known and (query := _delivered(record, state.active_epoch)) is not None
        ]
        placed = {record.id for record in state.placed()}
        gone = [query.id for query in known.values() if query.freed_epoch is None and query.id not in placed]
        freed = {query_id: self._freed_epoch(query_id, state) for query_id in gone}
        if new or freed or self._writer.deliveries.epoch < state.active_epoch:
            self._write(new, freed, state)
        self._holders = self._open()
        self._call_for_deliverers()

    def note(self, changes: Iterable[SlotChange], state: SessionState) -> None:
        """Tell of the slots that changed hands with a batch that was just applied.

        What cannot be written now is told with a later batch: until then deliverers wait.
        """
        try:
            if self._is_behind:
                self.bring_up(state)
            else:
                self._tell(changes, state)
            self._is_behind = False
        except OSError:
            if not self._is_behind:
                log.exception("deliverers cannot be told of queries; it is tried again with each batch")
            self._is_behind = True

    def _tell(self, changes: Iterable[SlotChange], state: SessionState) -> None:
        new, freed = [], {}
        for slot, holder in changes:
            before = self._holders.pop(slot, None)
            if before is not None:
                freed[before] = self._freed_epoch(before, state)
            record = None if holder is None else state.queries.find(holder.id)
            query = None if record is None else _delivered(record, state.active_epoch)
            if query is not None:
                new.append(query)
                self._holders[slot] = query.id
        if new or freed or self._writer.deliveries.epoch < state.active_epoch:
            self._write(new, freed, state)

    def _freed_epoch(self, query_id: str, state: SessionState) -> int:
        """Return the epoch that freed a query; it may be over for long when that was not told before a crash."""
        record = state.queries.find(query_id) or self._archive.find(number_of(query_id))
        known = None if record is None else record.freed_epoch
        return state.active_epoch if known is None else known

    def _write(self, new: list[DeliveredQuery], freed: dict[str, int], state: SessionState) -> None:
        if not new and not self._writer.deliveries.queries:
            return  # nobody has a sink: no file is written
        self._writer.write(new, freed, state.active_epoch)
        if self._writer.whole_is_due:
            progress = read_progress(self._storage)
            over = [
                query_id
                for query_id in self._writer.deliveries.queries
                if state.queries.find(query_id) is None and query_id in progress and progress[query_id].is_over
            ]
            self._writer.write_whole(without=over)
        self._call_for_deliverers()

    def _call_for_deliverers(self) -> None:
        if self._writer.deliveries.queries and not self._is_wanted:
            self.wanted()
            self._is_wanted = True

    def _open(self) -> dict[int, str]:
        return {query.slot: query.id for query in self._writer.deliveries.queries.values() if query.freed_epoch is None}

    # what deliverers tell

    def progress(self) -> Mapping[str, Progress]:
        """Return how far deliveries are, by the ids of queries; as of half a second ago at the most."""
        with self._lock:
            if time.monotonic() > self._read_at + FRESH_SECONDS:
                known = self._writer.deliveries.queries
                self._progress = {**{query_id: Progress() for query_id in list(known)}, **read_progress(self._storage)}
                since_us = time.time_ns() // 1000 - round(ALIVE_SECONDS * 1e6)
                self._parts_alive = parts_alive(self._storage, since_us)
                self._read_at = time.monotonic()
            return self._progress

    def state_of(self, query_id: str, progress: Progress) -> str:
        """Return the state of a delivery: STALLED while no deliverer runs that would make it."""
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
        }


def lag_seconds(progress: Progress) -> float:
    """Return how long the oldest rows that are not delivered have been there."""
    waiting = progress.waiting_since_us
    return 0.0 if waiting is None or progress.is_over else max(0.0, time.time() - waiting / 1e6)


def _delivered(record: QueryRecord, active_epoch: int) -> DeliveredQuery | None:
    """Return what deliverers must know of a query; None while it has not run, and for one without a sink."""
    sink = read_sink(record.sink)
    if sink is None or record.slot is None or record.epoch is None or record.first_seq is None:
        return None
    if record.epoch > active_epoch:
        return None
    is_freed = record.freed_epoch is not None and record.freed_epoch <= active_epoch
    return DeliveredQuery(
        id=record.id,
        name=record.name,
        created_us=record.created_us,
        query=record.query,
        sink=sink,
        slot=record.slot,
        epoch=record.epoch,
        first_seq=record.first_seq,
        active_from=record.active_from or {},
        freed_epoch=record.freed_epoch if is_freed else None,
    )
