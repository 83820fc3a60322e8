"""The delivery of one query's rows to its sink.

A delivery waits until it has rows enough, or they have waited long enough, or the query is over. Then it reads them off
the result log and has the sink write them. When that fails, the sink is given up and opened again later: at the place
that it knows, or else at the cursor that was kept. Rows that the place refuses for good are set aside
(:mod:`braid.router.delivery.refused_rows`), and the rest goes on.

Its worker's thread calls :meth:`Delivery.deliver`, which reads and writes, without a lock. All else waits for no disk
and is called under the lock of the worker: by the worker, by whoever follows the logs, and by whoever saves progress.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from braid.router.cursor import CursorPosition, decode_cursor, encode_cursor
from braid.router.delivery.delivery_log import DeliveredQuery
from braid.router.delivery.progress import DELIVERING, DONE, RETRYING, DeliveryProgress
from braid.router.delivery.refused_rows import RefusedRow, RefusedRows, Suspects
from braid.router.page import Page
from braid.router.result_reader import ResultReader
from braid.router.row_text import objects
from braid.router.sinks.sink import Destination, RowsRefused, Sink, SinkDown, SinkRows
from braid.sources.core.errors import Gone

FIRST_REST_SECONDS = 0.5
LONGEST_REST_SECONDS = 30.0

log = logging.getLogger("braid.delivery")

OldestSeq = Callable[[], int]
"""Tells the oldest batch that is kept; reads the folder of the log."""


@dataclass(frozen=True)
class NewRows:
    """Rows of a query in batch ``seq``, which has become visible; when that was committed (µs)."""

    seq: int
    rows: int
    committed_us: int


class Readable(NamedTuple):
    """What may be read now: the query as the log has it up to batch ``latest``; rows wait from ``from_seq`` on."""

    query: DeliveredQuery
    latest: int
    from_seq: int
    is_ending: bool


@dataclass(frozen=True)
class DeliveryOutcome:
    """A page that was delivered, or one row that was set aside.

    ``waiting_since_us`` is when the batch with the next rows was committed, if any; ``refusal`` is why the place will
    never take the row.
    """

    readable: Readable
    page: Page
    waiting_since_us: int | None
    refusal: str | None = None


class Delivery:
    """The delivery of one query; ``latest`` is the newest batch that is visible when it begins."""

    def __init__(self, query: DeliveredQuery, progress: DeliveryProgress, latest: int, refused: RefusedRows) -> None:
        self.query = query
        self.progress = progress
        self.is_dirty = True
        """Whether ``progress`` has changed since it was last saved."""
        self.is_ending = False
        """Whether all rows of the query are visible."""
        self._latest = latest
        # what waits: about how many rows, and the batches that they are in; at the start it has to look
        self._rows = 0
        self._first_seq: int | None = progress.next_seq
        self._last_seq = latest
        self._due = 0.0
        self._failures = 0
        # of the worker's thread
        self._sink: Sink | None = None
        self._opened_by: Destination | None = None
        self._cursor = ""
        self._refused = refused
        self._suspects = Suspects(query.sink.max_retries)
        # the place after the last row that was set aside; None until it is looked up
        self._aside_end: CursorPosition | None = None

    @property
    def due(self) -> float:
        """When to deliver, in the time of :func:`time.monotonic`; infinite while there is nothing to."""
        return math.inf if self.progress.is_over else self._due

    @property
    def first_seq(self) -> int:
        """The first batch in which there may be rows that are not delivered."""
        first_waiting = self._latest + 1 if self._first_seq is None else self._first_seq
        return max(first_waiting, self.query.first_seq)

    @property
    def readable(self) -> Readable:
        """What may be read now."""
        return Readable(self.query, self._latest, self.first_seq, self.is_ending)

    def see(self, latest: int, new_rows: NewRows | None, now: float) -> None:
        """Note that batches up to ``latest`` are visible, and the rows in the last one, if there are any."""
        self._latest = latest
        if new_rows is None:
            return
        self._rows += new_rows.rows
        self._last_seq = new_rows.seq
        if self._first_seq is None:
            self._first_seq = new_rows.seq
        if self.progress.waiting_since_us is None:
            self.progress.waiting_since_us = new_rows.committed_us
            self.is_dirty = True
        if not self._failures:
            self._due = min(self._due, self._due_with(self._rows, now))

    def end(self, now: float) -> None:
        """Note that all its rows are visible."""
        if self.is_ending:
            return
        self.is_ending = True
        if self._first_seq is None:
            self.progress.state, self.is_dirty = DONE, True
        elif not self._failures:
            self._due = now

    def checkpoint_idle(self) -> None:
        """Note durably that the query has no rows in the batches that are visible, if that is so."""
        if self._first_seq is None and not self.progress.is_over and self.progress.next_seq <= self._latest:
            self.progress.next_seq = self._latest + 1
            self.is_dirty = True

    def deliver(
        self,
        destination: Destination,
        reader: ResultReader,
        get_readable: Callable[[], Readable],
        oldest_seq: OldestSeq,
    ) -> DeliveryOutcome:
        """Deliver a page of what ``get_readable`` says once the sink is open, or set one row aside.

        Raises what went wrong.
        """
        while True:
            outcome = self._attempt(destination, reader, get_readable, oldest_seq)
            if outcome is not None:
                return outcome

    def _attempt(
        self,
        destination: Destination,
        reader: ResultReader,
        get_readable: Callable[[], Readable],
        oldest_seq: OldestSeq,
    ) -> DeliveryOutcome | None:
        """Do as :meth:`deliver`; return None when fewer rows are to be tried at once."""
        is_behind = False
        if self._sink is None or self._opened_by is not destination:
            sink = destination.open(self.query.subject, self.query.sink.options)
            self._cursor, is_behind = self._resumed(sink)
            self._sink, self._opened_by = sink, destination
        readable = get_readable()
        query = readable.query
        # what the place has lost is delivered again, as far as it is kept
        from_seq = oldest_seq() if is_behind else readable.from_seq
        position = max(decode_cursor(self._cursor, query.id), CursorPosition(min(from_seq, readable.latest + 1)))
        max_rows = self._suspects.at_most(query.sink.flush_rows)
        page = reader.read(query, encode_cursor(position, query.id), max_rows, readable.latest)
        refusal = None
        if len(page.table):
            try:
                self._sink.write(SinkRows(page.table, page.cursor, page.runs))
                self._suspects.take(len(page.table))
            except RowsRefused as problem:
                self._sink = None
                if not (query.sink.sets_aside and self._suspects.refuse(len(page.table), time.monotonic())):
                    raise
                if len(page.table) > 1:
                    return None
                refusal = str(problem)
                self._set_aside(page, refusal)
        self._cursor = page.cursor
        waiting_since_us = None
        if page.has_more:
            waiting_since_us = reader.index.entry(decode_cursor(page.cursor, query.id).seq).committed_us
        return DeliveryOutcome(readable, page, waiting_since_us, refusal)

    def _set_aside(self, page: Page, refusal: str) -> None:
        """Keep the only row of a page as a dead letter; it is durable when this returns."""
        (row,) = objects(page.table)
        seq, number, _ = page.runs[0]
        refused = RefusedRow(CursorPosition(seq, number), refusal, time.time_ns() // 1000, orjson.dumps(row))
        self._refused.keep(self.query.id, refused)
        self._aside_end = max(self._aside_end or CursorPosition(0), CursorPosition(seq, number + 1))
        self._suspects.set_aside()

    def _resumed(self, sink: Sink) -> tuple[str, bool]:
        """Return the cursor to go on at, and whether the place has less than it had, as one restored from a backup."""
        query_id, kept_cursor = self.query.id, self.progress.cursor
        sink_cursor = sink.resume() if sink.keeps_cursor else None
        if (
            sink_cursor is not None
            and kept_cursor is not None
            and decode_cursor(sink_cursor, query_id) < decode_cursor(kept_cursor, query_id)
        ):
            return sink_cursor, True
        cursor = sink_cursor or kept_cursor or encode_cursor(CursorPosition(self.query.first_seq), query_id)
        # rows that were set aside last are in no cursor
        if self._aside_end is None:
            self._aside_end = self._refused.end(query_id)
        if self._aside_end > decode_cursor(cursor, query_id):
            cursor = encode_cursor(self._aside_end, query_id)
        return cursor, False

    def note(self, outcome: DeliveryOutcome, now: float) -> None:
        """Note that a page was delivered."""
        progress, page = self.progress, outcome.page
        count = len(page.table)
        self._failures = 0
        self.is_dirty = True
        if progress.state == RETRYING:
            progress.error, progress.state = None, DELIVERING
        if page.gap is not None:
            fields = {"query_id": page.owner, "gap": str(page.gap)}
            log.warning("a delivery skips rows that cannot be read", extra={"fields": fields})
            progress.gaps, progress.gap, progress.cursor = progress.gaps + 1, str(page.gap), page.cursor
        if outcome.refusal is not None:  # the cursor says up to where rows are in the place
            progress.refused += count
            progress.refusal = outcome.refusal
        elif count:
            progress.cursor = page.cursor
            progress.rows += count
            progress.delivered_us = time.time_ns() // 1000
            for committed_us in page.completed.values():
                progress.count_latency(progress.delivered_us - committed_us)
        next_seq = decode_cursor(page.cursor, page.owner).seq
        progress.next_seq = next_seq
        if page.has_more or next_seq <= self._last_seq:
            self._rows = max(0, self._rows - count)
            self._first_seq = next_seq
            progress.waiting_since_us = outcome.waiting_since_us or time.time_ns() // 1000
            self._due = now if page.has_more else self._due_with(self._rows, now)
            return
        self._rows, self._first_seq, self._due, progress.waiting_since_us = 0, None, math.inf, None
        if outcome.readable.is_ending:
            progress.state = DONE
        elif self.is_ending:
            self._due = now

    def may_lack_batches(self, problem: Exception) -> bool:
        """Whether an attempt may have failed because batches were removed; asked without the lock."""
        return isinstance(problem, Gone) or self.is_ending

    def fail(self, problem: Exception, oldest: int | None, now: float) -> None:
        """Note that an attempt failed. Rows of batches before the ``oldest``, if it is known, are passed over."""
        self._sink = None
        self.progress.errors += 1
        self.show(problem)
        if oldest is not None and self.first_seq < oldest and self.first_seq <= self._last_seq:
            self._pass_over(oldest)
            return
        if isinstance(problem, SinkDown):  # its worker rests
            self._due = now
        else:
            self._due = now + rest_seconds(self._failures)
            self._failures += 1

    def _pass_over(self, oldest: int) -> None:
        progress = self.progress
        progress.gaps += 1
        progress.gap = f"Batches {self.first_seq} to {oldest - 1} were removed before all their rows were delivered."
        self._first_seq = progress.next_seq = oldest
        self._failures, self._due = 0, 0.0
        if self.is_ending and oldest > self._last_seq:
            progress.state, progress.waiting_since_us = DONE, None

    def show(self, problem: Exception) -> None:
        """Say why rows that wait are not delivered."""
        if not self.progress.is_over and self._due < math.inf:
            self.progress.error, self.progress.state = str(problem) or type(problem).__name__, RETRYING
            self.is_dirty = True
            if self.progress.waiting_since_us is None:  # there may be rows, from before it began
                self.progress.waiting_since_us = time.time_ns() // 1000

    def _due_with(self, rows: int, now: float) -> float:
        return now if rows >= self.query.sink.flush_rows or self.is_ending else now + self.query.sink.flush_seconds


def rest_seconds(failures: int) -> float:
    """Return how long to rest after another attempt that failed."""
    return min(LONGEST_REST_SECONDS, FIRST_REST_SECONDS * 2.0 ** min(failures, 10))
