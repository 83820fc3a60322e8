"""The queue between a generator and the systems that pull from it. It stores nothing but what it promised.

Tuples exist as soon as their event time has come, whether anyone pulls them or not (no coordinated omission, thesis
3.4.1.1), and can be read again and again: offset and schedule decide what a tuple is. What holds:

- A tuple that was handed to someone keeps its event time: a new schedule only begins behind it.
- `_claims` are the ends of the ranges being read now: their rest is backlog that a new schedule does not drop.
- Who was told how many tuples there are may have made up its mind to read so many. When it comes with such a range and
  a new schedule has dropped some of it, that comes back: no queue takes back what it has offered.
- `_pulled` is how far each consumer got, which is where throughput is measured.
- All state changes under one condition, on which readers wait for tuples whose time has not come.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Generic, TypeVar

import pyarrow as pa

from braid.bench_driver.queues.ring import Ring
from braid.bench_driver.queues.schedule import SECOND_US, RatePart, Schedule, Share

BATCH_ROWS = 1 << 16
LINGER_US = 10_000  # a reader at the end of the queue gets the tuples of 10 ms at a time, not each alone
CANCEL_POLL_SECONDS = 0.25  # nobody wakes a reader when its call is cancelled
MIN_WAIT_SECONDS = 0.0002
SAMPLES_KEPT = 2_000_000  # numbers in samples: an hour of ten a second for fifty consumers
PULLS_KEPT = 200_000


class QueueClosedError(Exception):
    """The queue ends while somebody waits for its tuples."""


class ReadCancelledError(Exception):
    """Who waited for tuples is gone."""


@dataclass(frozen=True)
class _Change:
    """A new schedule: the one `before`, how many of its tuples others were `offered`, and where the new one begins."""

    before: Schedule
    offered: int
    first: int
    at_us: int
    profile: Sequence[RatePart]


T = TypeVar("T")


class BoundedLog(Generic[T]):
    """Entries 0, 1, 2, …, of which the oldest are forgotten so that the weights of those kept stay within `capacity`.

    The newest is kept whatever its weight. Not safe for several threads: its owner locks.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: deque[tuple[T, int]] = deque()
        self._weight = 0
        self._next = 0

    def append(self, entry: T, weight: int = 1) -> None:
        """Add an entry, and forget old ones as needed."""
        self._entries.append((entry, weight))
        self._weight += weight
        self._next += 1
        while self._weight > self._capacity and len(self._entries) > 1:
            self._weight -= self._entries.popleft()[1]

    def since(self, number: int) -> tuple[list[T], int]:
        """Return the entries from `number` on that are still kept, and the number that the next one will get."""
        skip = max(0, number - (self._next - len(self._entries)))
        return [entry for entry, _ in islice(self._entries, skip, None)], self._next


class TupleQueue:
    """The tuples of one stream, a share of its workload's; `clock` returns microseconds since 1970."""

    def __init__(
        self, ring: Ring, clock: Callable[[], int] = lambda: time.time_ns() // 1000, share: Share | None = None
    ) -> None:
        self._ring = ring
        self._clock = clock
        self._share = share or Share()
        self._groups = Schedule()  # of the workload, none of which is ever dropped
        self._changed = threading.Condition()
        self._schedule = Schedule()
        self._offered = 0
        self._last_change: _Change | None = None
        self._claims: dict[object, int] = {}
        self._pulled: dict[str, int] = {}
        self._samples: BoundedLog[list[Any]] = BoundedLog(SAMPLES_KEPT)
        self._pulls: BoundedLog[list[Any]] = BoundedLog(PULLS_KEPT)
        self._closed = False

    @property
    def schema(self) -> pa.Schema:
        """The columns of its batches."""
        return self._ring.schema

    def generated(self) -> int:
        """Return how many tuples there are by now, for one who may want to read them."""
        with self._changed:
            self._offered = self._generated(self._clock())
            return self._offered

    def run(self, at_us: int, profile: Sequence[RatePart]) -> Schedule:
        """Generate from `at_us` on by `profile`, drop the backlog that nobody began to read, return the schedule.

        The profile has the rates of the workload, of which this stream generates its share.
        """
        groups = [RatePart(part.seconds, self._share.groups(part.tuples_per_second)) for part in profile]
        profile = [RatePart(part.seconds, self._share.rate(part.tuples_per_second)) for part in profile]
        with self._changed:
            self._groups = self._groups.after(self._groups.generated(at_us), at_us, groups)
            begun_end = max([*self._pulled.values(), *self._claims.values()], default=0)
            first = min(begun_end, self._generated(self._clock()))
            previous_schedule, offered, last_change = self._schedule, self._offered, self._last_change
            # nobody has read of the newest schedule yet: what others know is the one before it
            if last_change is not None and begun_end <= last_change.first and offered <= last_change.offered:
                previous_schedule, offered = last_change.before, last_change.offered
            schedule = self._change(first, at_us, profile)
            self._last_change, self._offered = _Change(previous_schedule, offered, first, at_us, profile), 0
            return schedule

    def stop(self) -> Schedule:
        """Generate no more, keep the backlog, return the schedule."""
        with self._changed:
            now, self._last_change = self._clock(), None
            return self._change(self._generated(now), now, [RatePart(None, 0)])

    def read(
        self, start: int, end: int, consumer: str = "", cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[pa.RecordBatch]:
        """Return the tuples in `[start, end)`; the iterator waits for those that there are not yet.

        While it waits it asks `cancelled` again and again, and raises ReadCancelledError; or QueueClosedError.

        Raises:
            ValueError: the range is none.
        """
        if not 0 <= start <= end:
            raise ValueError(f"a range of offsets must have 0 <= start <= end, got [{start}, {end})")
        return self._batches(start, end, consumer, cancelled)

    def sample(self) -> None:
        """Note how long the queue is now."""
        with self._changed:
            now = self._clock()
            self._samples.append([now, self._generated(now), dict(self._pulled)], weight=2 + len(self._pulled))

    @property
    def schedule(self) -> Schedule:
        """When its tuples come."""
        return self._schedule

    def samples(self, after: int) -> tuple[list[list[Any]], int]:
        """Return `[microseconds, generated, {consumer: pulled}]` from number `after` on, and the next number."""
        with self._changed:
            return self._samples.since(after)

    def pulls(self, after: int) -> tuple[list[list[Any]], int]:
        """Return `[microseconds of its first batch, consumer, start, end]` of every read, and the next number."""
        with self._changed:
            return self._pulls.since(after)

    def close(self) -> None:
        """Let everyone who waits go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _batches(self, start: int, end: int, consumer: str, cancelled: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
        claim = object()
        with self._changed:
            self._claims[claim] = end
            self._give_back(end)
        try:
            offset = start
            while offset < end:
                limit = min(end, offset + BATCH_ROWS, self._ring.end_of_turn(offset))
                reached, schedule = self._await(offset, limit, cancelled)
                batch = self._ring.batch(offset, schedule.times(offset, reached), self._groups)
                with self._changed:
                    if offset == start:
                        self._pulls.append([self._clock(), consumer, start, end])
                    self._pulled[consumer] = max(self._pulled.get(consumer, 0), reached)
                yield batch
                offset = reached
        finally:
            with self._changed:
                del self._claims[claim]

    def _await(self, start: int, limit: int, cancelled: Callable[[], bool]) -> tuple[int, Schedule]:
        """Wait for tuples from `start` on; return how far they go, up to `limit`, and the schedule they are of."""
        with self._changed:
            while True:
                if self._closed:
                    raise QueueClosedError
                if cancelled():
                    raise ReadCancelledError
                now = self._clock()
                reached = min(limit, self._generated(now))
                wake = self._wake_time(start, limit)
                if reached == limit or (reached > start and wake is not None and wake <= now):
                    return reached, self._schedule
                seconds = CANCEL_POLL_SECONDS if wake is None else (wake - now) / SECOND_US
                self._changed.wait(min(max(seconds, MIN_WAIT_SECONDS), CANCEL_POLL_SECONDS))

    def _wake_time(self, start: int, limit: int) -> int | None:
        """Return when a reader of `[start, limit)` gets what there is then; None when that is not known."""
        first, last = self._schedule.time_of(start), self._schedule.time_of(limit - 1)
        if first is None:
            return None
        return first + LINGER_US if last is None else min(last, first + LINGER_US)

    def _generated(self, now_us: int) -> int:
        # a clock that was set back does not take back what somebody has
        return max(self._schedule.generated(now_us), max(self._pulled.values(), default=0))

    def _give_back(self, end: int) -> None:
        """Let the new schedule begin behind a range that was offered before it and that somebody reads only now."""
        change = self._last_change
        if change is None or max(self._pulled.values(), default=0) > change.first:  # what was read must stay as it is
            return
        if self._generated(self._clock()) < end <= change.offered:
            self._schedule, self._last_change = change.before, replace(change, first=end)
            self._change(end, change.at_us, change.profile)

    def _change(self, offset: int, at_us: int, profile: Sequence[RatePart]) -> Schedule:
        self._schedule = self._schedule.after(offset, at_us, profile)
        self._changed.notify_all()
        return self._schedule
