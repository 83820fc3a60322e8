"""The delivery of one query's rows to its sink, and the thread that makes the deliveries of one destination.

A delivery waits until it has rows enough, or they have waited long enough, or the query is over. Then it reads them off
the result log and has the sink write them. When that fails, the sink is given up and opened again later: at the place
that it knows, or else at the cursor that was kept. Between attempts the rest doubles, for all of a destination that is
down, for a query alone that was refused.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from router.cursor import Position, decode_cursor, encode_cursor
from router.delivery_log import DeliveredQuery
from router.progress import DELIVERING, DONE, FAILED, RETRYING, Progress
from router.result_reader import Page, ResultReader
from router.sinks.sink import Deliverer, Destination, Rows, Sink, SinkDown
from sources.errors import Gone

FIRST_REST_SECONDS = 0.5
LONGEST_REST_SECONDS = 30.0

log = logging.getLogger("braid.delivery")


@dataclass(frozen=True)
class News:
    """Rows of a query in batch ``seq``, which has become visible; when that was committed (µs)."""

    seq: int
    rows: int
    committed_us: int


class Delivery:
    """One query's; used under the lock of its courier, but for :meth:`deliver`."""

    def __init__(self, query: DeliveredQuery, progress: Progress) -> None:
        self.query = query
        self.progress = progress
        self.is_ending = False
        self._sink: Sink | None = None
        self._opened_by: Destination | None = None
        self._cursor = ""
        # what waits: about how many rows, and in which batches they are; what was there at the start is not known
        self._rows = 0
        self._last_seq = 0
        self._due = 0.0
        self._failures = 0

    @property
    def due(self) -> float:
        """When to deliver, in the time of :func:`time.monotonic`; infinite while there is nothing to."""
        return math.inf if self.progress.is_over else self._due

    def hear(self, news: News, now: float) -> None:
        """Note that there are rows."""
        self._rows += news.rows
        self._last_seq = news.seq
        if self.progress.waiting_since_us is None:
            self.progress.waiting_since_us = news.committed_us
        if not self._failures:
            self._due = min(self._due, self._due_with(self._rows, now))

    def end(self, now: float) -> None:
        """Note that all its rows are visible."""
        self.is_ending = True
        if not self._failures:
            self._due = now

    def deliver(self, destination: Destination, reader: ResultReader) -> Callable[[float], None]:
        """Deliver a page; return what to note of it under the lock, with the time it is. Raises what went wrong."""
        query, was_ending = self.query, self.is_ending
        if self._sink is None or self._opened_by is not destination:
            self._sink, self._opened_by = destination.open(query.subject, query.sink.options), destination
            cursor = self._sink.resume() if self._sink.keeps_cursor else self.progress.cursor
            self._cursor = cursor or encode_cursor(Position(query.first_seq), query.id)
        page = reader.read(query, self._cursor, query.sink.flush_rows)
        if len(page.table):
            self._sink.write(Rows(page.table, page.cursor, page.runs))
        self._cursor = page.cursor
        return lambda now: self._note(page, was_ending, now)

    def _note(self, page: Page, was_ending: bool, now: float) -> None:
        progress = self.progress
        progress.cursor, progress.error, progress.state = page.cursor, None, DELIVERING
        self._failures = 0
        if len(page.table):
            progress.rows += len(page.table)
            progress.delivered_us = _now_us()
        if page.has_more or decode_cursor(page.cursor, page.owner).seq <= self._last_seq:
            self._rows = max(0, self._rows - len(page.table))
            progress.waiting_since_us = _now_us()
            self._due = now if page.has_more else self._due_with(self._rows, now)
            return
        self._rows, self._due, progress.waiting_since_us = 0, math.inf, None
        if was_ending:
            progress.state = DONE
        elif self.is_ending:
            self._due = now

    def fail(self, problem: Exception, now: float) -> None:
        """Note that an attempt failed; what can never succeed is over."""
        self.tell(problem)
        self._sink = None
        self.progress.errors += 1
        if isinstance(problem, Gone):
            self.progress.state = FAILED
            self.progress.error = f"Rows were not delivered before they were removed: {problem.detail}"
        if isinstance(problem, SinkDown):  # its courier rests
            self._due = now
        else:
            self._due = now + rest_seconds(self._failures)
            self._failures += 1

    def tell(self, problem: Exception) -> None:
        """Say why rows that wait are not delivered."""
        if not self.progress.is_over and self._due < math.inf:
            self.progress.error, self.progress.state = str(problem) or type(problem).__name__, RETRYING
            if self.progress.waiting_since_us is None:  # there may be rows, from before it began
                self.progress.waiting_since_us = _now_us()

    def _due_with(self, rows: int, now: float) -> float:
        return now if rows >= self.query.sink.flush_rows or self.is_ending else now + self.query.sink.flush_seconds


def rest_seconds(failures: int) -> float:
    """Return how long to rest after another attempt that failed."""
    return min(LONGEST_REST_SECONDS, FIRST_REST_SECONDS * 2.0 ** min(failures, 10))


class Courier:
    """Makes the deliveries of one destination, one after the other, on a thread of its own."""

    def __init__(self, name: str, deliverer: Deliverer, reader: ResultReader) -> None:
        self._deliverer = deliverer
        self._reader = reader
        self._deliveries: dict[str, Delivery] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._destination: Destination | None = None
        self._failures = 0
        self._rests_until = -math.inf
        self._thread = threading.Thread(target=self._run, name=f"courier {name}", daemon=True)
        self._thread.start()

    def add(self, delivery: Delivery) -> None:
        """Make another delivery from now on."""
        with self._changed:
            self._deliveries[delivery.query.id] = delivery
            self._changed.notify()

    def remove(self, query_id: str) -> bool:
        """Forget a delivery; return whether there are none left."""
        with self._changed:
            self._deliveries.pop(query_id, None)
            return not self._deliveries

    def hear(self, news: dict[str, News]) -> None:
        """Note which queries have rows in a batch, by their ids."""
        with self._changed:
            now = time.monotonic()
            for query_id, each in news.items():
                self._deliveries[query_id].hear(each, now)
            self._changed.notify()

    def end(self, query_id: str) -> None:
        """Note that all rows of a query are visible."""
        with self._changed:
            self._deliveries[query_id].end(time.monotonic())
            self._changed.notify()

    def stop(self) -> None:
        """End after the page that is being delivered."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def join(self, seconds: float) -> None:
        """Wait for the end."""
        self._thread.join(max(0.0, seconds))

    def _run(self) -> None:
        while (delivery := self._next()) is not None:
            try:
                if self._destination is None:
                    self._destination = delivery.query.sink.connect(self._deliverer)
                note = delivery.deliver(self._destination, self._reader)
            except Exception as problem:  # a sink may raise whatever its library does; all of it is tried again
                self._note_failure(delivery, problem)
            else:
                self._failures = 0
                with self._changed:
                    note(time.monotonic())
        self._close()

    def _next(self) -> Delivery | None:
        """Return the delivery that is due first, as soon as it is; None to end."""
        with self._changed:
            while not self._stopping:
                first = min(self._deliveries.values(), key=lambda each: each.due, default=None)
                due = math.inf if first is None else max(first.due, self._rests_until)
                rest = due - time.monotonic()
                if first is not None and rest <= 0:
                    return first
                self._changed.wait(None if math.isinf(rest) else rest)
            return None

    def _note_failure(self, delivery: Delivery, problem: Exception) -> None:
        now = time.monotonic()
        log.warning(
            "delivery failed",
            extra={"fields": {"query": delivery.query.id, "error": str(problem)}},
            exc_info=None if isinstance(problem, SinkDown) else problem,
        )
        with self._changed:
            delivery.fail(problem, now)
            if not isinstance(problem, SinkDown):
                return
            self._rests_until = now + max(rest_seconds(self._failures), problem.retry_after or 0.0)
            self._failures += 1
            for each in self._deliveries.values():
                each.tell(problem)
        self._close()

    def _close(self) -> None:
        destination, self._destination = self._destination, None
        if destination is not None:
            try:
                destination.close()
            except Exception as problem:  # it is given up anyway
                log.warning("closing failed", extra={"fields": {"error": str(problem)}})


def _now_us() -> int:
    return time.time_ns() // 1000
