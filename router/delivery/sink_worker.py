"""A thread that makes the deliveries of one destination, one after the other.

What is due first is made first. After each failure the pause doubles: for all of them when the destination is down, for
one query when only its rows were refused.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from collections.abc import Mapping

from braid.router.delivery.delivery import Delivery, NewRows, OldestSeq, Readable, rest_seconds
from braid.router.delivery.delivery_log import DeliveredQuery
from braid.router.delivery.progress import DeliveryProgress
from braid.router.result_reader import ResultReader
from braid.router.sinks.sink import DelivererIdentity, Destination, SinkDown

BROKEN_REST_SECONDS = 1.0

log = logging.getLogger("braid.delivery")


class SinkWorker:
    """The deliveries of one destination; :meth:`add` … :meth:`end` are called by whoever follows the logs."""

    def __init__(self, name: str, deliverer: DelivererIdentity, reader: ResultReader, oldest_seq: OldestSeq) -> None:
        self._deliverer = deliverer
        self._reader = reader
        self._oldest_seq = oldest_seq
        self._deliveries: dict[str, Delivery] = {}
        # (due, a number, delivery); an entry whose delivery is due at another time by now is passed over
        self._queue: list[tuple[float, int, Delivery]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._stopping = False
        self._destination: Destination | None = None
        self._failures = 0
        self._rests_until = -math.inf
        self._thread = threading.Thread(target=self._run, name=f"sink {name}", daemon=True)
        self._thread.start()

    def add(self, delivery: Delivery) -> None:
        """Make another delivery from now on."""
        with self._changed:
            self._deliveries[delivery.query.id] = delivery
            self._queue_up(delivery)
            self._changed.notify()

    def remove(self, query_id: str) -> bool:
        """Forget a delivery; return whether there are none left."""
        with self._changed:
            self._deliveries.pop(query_id, None)
            return not self._deliveries

    def update(self, query: DeliveredQuery) -> None:
        """Note what the log says of a query now, before a batch is visible for which that matters."""
        with self._changed:
            self._deliveries[query.id].query = query

    def see(self, latest: int, new_rows: Mapping[str, NewRows]) -> None:
        """Note that batches up to ``latest`` are visible, and which queries have rows in the last one, by their ids."""
        with self._changed:
            now = time.monotonic()
            for query_id, delivery in self._deliveries.items():
                due = delivery.due
                delivery.see(latest, new_rows.get(query_id), now)
                if delivery.due != due:
                    self._queue_up(delivery)
            self._changed.notify()

    def end(self, query_id: str) -> None:
        """Note that all rows of a query are visible."""
        with self._changed:
            delivery = self._deliveries[query_id]
            delivery.end(time.monotonic())
            self._queue_up(delivery)
            self._changed.notify()

    def progress_to_keep(self, delivery: Delivery) -> DeliveryProgress:
        """Return how far a delivery has got, for the caller to write."""
        with self._changed:
            delivery.is_dirty = False
            return delivery.progress.copy()

    def checkpoint_idle(self) -> None:
        """Note durably which queries have no rows to deliver."""
        with self._changed:
            for delivery in self._deliveries.values():
                delivery.checkpoint_idle()

    def stop(self) -> None:
        """End after the page that is being delivered."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def join(self, seconds: float) -> None:
        """Wait for the end."""
        self._thread.join(max(0.0, seconds))

    def _run(self) -> None:
        while not self._stopping:
            delivery = self._next()
            if delivery is None:
                break
            try:
                self._make(delivery)
            except Exception:  # a mistake of ours must not end all deliveries
                log.exception(
                    "a defect in delivering; the query's rows are tried again",
                    extra={"fields": {"query_id": delivery.query.id, "retry_seconds": BROKEN_REST_SECONDS}},
                )
                with self._changed:
                    self._queue_up(delivery)
                    self._changed.wait(BROKEN_REST_SECONDS)
        self._close()

    def _queue_up(self, delivery: Delivery) -> None:
        if delivery.due < math.inf:
            heapq.heappush(self._queue, (delivery.due, next(self._numbers), delivery))

    def _next(self) -> Delivery | None:
        """Wait until a delivery is due and return it; None when the worker is to stop."""
        with self._changed:
            while not self._stopping:
                while self._queue and not self._is_queued(*self._queue[0]):
                    heapq.heappop(self._queue)
                due = max(self._queue[0][0], self._rests_until) if self._queue else math.inf
                seconds = due - time.monotonic()
                if seconds <= 0:
                    return heapq.heappop(self._queue)[2]
                self._changed.wait(None if math.isinf(seconds) else seconds)
            return None

    def _is_queued(self, due: float, _: int, delivery: Delivery) -> bool:
        return delivery.due == due and self._deliveries.get(delivery.query.id) is delivery

    def _make(self, delivery: Delivery) -> None:
        try:
            if self._destination is None:
                self._destination = delivery.query.sink.connect(self._deliverer)
            outcome = delivery.deliver(
                self._destination, self._reader, lambda: self._readable_of(delivery), self._oldest_seq
            )
            with self._changed:
                delivery.note(outcome, time.monotonic())
                self._queue_up(delivery)
            self._failures = 0
        except Exception as problem:  # a sink may raise whatever its library does; all of it is tried again
            self._note_failure(delivery, problem)

    def _readable_of(self, delivery: Delivery) -> Readable:
        with self._changed:
            return delivery.readable

    def _note_failure(self, delivery: Delivery, problem: Exception) -> None:
        log.warning(
            "the sink is down; its deliveries are tried again"
            if isinstance(problem, SinkDown)
            else "rows could not be delivered; they are tried again",
            extra={
                "fields": {"query_id": delivery.query.id, "sink": delivery.query.sink.connector, "error": str(problem)}
            },
            exc_info=None if isinstance(problem, SinkDown) else problem,
        )
        oldest = None
        try:
            if delivery.may_lack_batches(problem):
                oldest = self._oldest_seq()
        finally:  # it is tried again, whatever became of looking
            self._put_off(delivery, problem, oldest)

    def _put_off(self, delivery: Delivery, problem: Exception, oldest: int | None) -> None:
        with self._changed:
            now = time.monotonic()
            delivery.fail(problem, oldest, now)
            self._queue_up(delivery)
            if isinstance(problem, SinkDown):
                self._rests_until = now + max(rest_seconds(self._failures), problem.retry_after or 0.0)
                self._failures += 1
                for affected in self._deliveries.values():
                    affected.show(problem)
        if isinstance(problem, SinkDown):
            self._close()

    def _close(self) -> None:
        destination, self._destination = self._destination, None
        if destination is not None:
            try:
                destination.close()
            except Exception as problem:  # it is given up anyway
                log.warning(
                    "closing the connection to a sink failed",
                    extra={"fields": {"worker": self._thread.name, "error": str(problem)}},
                )
