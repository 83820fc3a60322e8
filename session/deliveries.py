"""The queries whose rows go to sinks, as the session tells deliverers of them, and what deliverers tell back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from router.delivery_log import DeliveredQuery, DeliveryWriter
from router.progress import DELIVERING, DONE, RETRYING, Progress, part_of, parts_alive, read_progress
from router.sinks.connectors import read_sink
from session.active import SlotChange
from session.archive import Archive
from session.query_record import QueryRecord
from session.query_table import number_of
from session.session_state import SessionState
from session.times import rfc3339
from sources.storage import Storage

FRESH_SECONDS = 0.5
ALIVE_SECONDS = 20.0
STALLED = "STALLED"
STATES = (DELIVERING, RETRYING, STALLED, DONE)

log = logging.getLogger("braid.session")


@dataclass(frozen=True)
class DeliveryNews:
    """What deliverers are to be told as of a batch with ``epoch``.

    ``freed`` has the epochs that freed queries, ``over`` those that will not be deployed again, ``gone`` those that
    have left the state since they were told of.
    """

    epoch: int
    new: list[DeliveredQuery] = field(default_factory=list)
    freed: dict[str, int] = field(default_factory=dict)
    over: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


class SinkDeliveries:
    """The writing end of the delivery log, and the reading end of the progress of deliverers.

    ``look`` and ``tell`` follow every batch, in the thread that steps the session: the one under its lock, the other
    without it. ``wanted`` is called when there is a query with a sink for the first time.
    """

    def __init__(self, storage: Storage, archive: Archive) -> None:
        self._storage = storage
        self._archive = archive
        self._writer = DeliveryWriter(storage)
        # queries with sinks by the slots that they hold, and those that hold none and may get one again
        self._holders: dict[int, str] = {}
        self._paused: set[str] = set()
        self._take_stock()
        self._progress: dict[str, Progress] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()
        self._is_behind = False
        self._is_wanted = False
        self._parts_alive: set[int] = set()
        self.wanted: Callable[[], None] = lambda: None

    def bring_up(self, state: SessionState) -> None:
        """Tell of what has changed since the log was written last; nobody else uses the state meanwhile."""
        self._write(self._all_news(state), state)
        self._take_stock()
        self._call_for_deliverers()

    def look(self, changes: Iterable[SlotChange], state: SessionState) -> DeliveryNews:
        """Return what to tell of the slots that changed hands with a batch, and of paused queries that are over."""
        if self._is_behind:
            return self._all_news(state)
        news = DeliveryNews(state.active_epoch)
        for slot, holder in changes:
            before = self._holders.pop(slot, None)
            if before is not None:
                known = state.queries[before].all_deployments[-1].freed_epoch
                news.freed[before] = state.active_epoch if known is None else known
                self._paused.add(before)
            record = None if holder is None else state.queries.find(holder.id)
            query = None if record is None else _delivered(record, state.active_epoch)
            if query is not None:
                news.new.append(query)
                self._holders[slot] = query.id
                self._paused.discard(query.id)
        for query_id in self._paused:
            record = state.queries.find(query_id)
            if record is None or record.is_finished:
                news.over.append(query_id)
        self._paused.difference_update(news.over)
        return news

    def tell(self, news: DeliveryNews, state: SessionState) -> None:
        """Tell it.

        What cannot be written now is told later: until then deliverers wait.
        """
        try:
            self._write(news, state)
            if self._is_behind:
                self._take_stock()
            self._is_behind = False
        except OSError:
            if not self._is_behind:
                log.exception("deliverers cannot be told of queries; it is tried again soon")
            self._is_behind = True

    def _all_news(self, state: SessionState) -> DeliveryNews:
        """Return what to tell when it is not known what was told; costs all queries."""
        known = self._writer.deliveries.queries
        queries = (_delivered(record, state.active_epoch) for record in state.queries.values())
        new = [query for query in queries if query is not None and known.get(query.id) != query]
        gone = [query.id for query in known.values() if not query.is_over and state.queries.find(query.id) is None]
        return DeliveryNews(state.active_epoch, new, gone=gone)

    def _write(self, news: DeliveryNews, state: SessionState) -> None:
        new, freed, over = [*news.new], {**news.freed}, [*news.over]
        for query_id in news.gone:
            record = self._archive.find(number_of(query_id))
            query = None if record is None else _delivered(record, news.epoch)
            if query is None:  # its retention has passed
                freed[query_id] = news.epoch
                over.append(query_id)
            else:
                new.append(query)
        deliveries = self._writer.deliveries
        if not new and not deliveries.queries:
            return  # nobody has a sink: no file is written
        if not new and not freed and not over and deliveries.epoch >= news.epoch:
            return
        self._writer.write(new, freed, news.epoch, over)
        if self._writer.whole_is_due:
            progress = read_progress(self._storage)
            unknown = [
                query_id
                for query_id in self._writer.deliveries.queries
                if state.queries.find(query_id) is None and query_id in progress and progress[query_id].is_over
            ]
            self._writer.write_whole(without=unknown)
        self._call_for_deliverers()

    def _call_for_deliverers(self) -> None:
        if self._writer.deliveries.queries and not self._is_wanted:
            self.wanted()
            self._is_wanted = True

    def _take_stock(self) -> None:
        queries = self._writer.deliveries.queries.values()
        self._holders = {query.open_slot: query.id for query in queries if query.open_slot is not None}
        self._paused = {query.id for query in queries if query.open_slot is None and not query.is_over}

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
    if sink is None:
        return None
    deployments = tuple(
        replace(
            each,
            active_to=None,
            freed_epoch=None if each.freed_epoch is None or each.freed_epoch > active_epoch else each.freed_epoch,
        )
        for each in record.all_deployments
        if each.epoch <= active_epoch
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
        is_over=record.is_finished and deployments[-1].freed_epoch is not None,
    )
