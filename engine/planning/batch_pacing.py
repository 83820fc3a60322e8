"""When the next batch had better begin: soon, or just after the next windows end.

Batches run one after the other. A window that ends just after a batch was planned waits for that batch and has its rows
with the next one, two batches later; planned just after its end, the batch that takes its last tuples fires it. Windows
of different queries mostly end together, at whole seconds or minutes, and batches then do best to begin there. The
price is that what ended before waits a little longer.

A batch that fires nothing gives nobody a row. It is worth its record, files and tasks only if the batch that fires the
next windows has less to read because of it. So it begins just early enough to be over when these windows end. Where
there is little to read it does not run at all. Where reading takes as long as all else of a batch, more such batches
run before it.

Small batches take less time than is worth a batch record and a few files each, so they begin some time after one
another.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from braid.engine.planning.replaying import reads_replays
from braid.operators.queries import Query
from braid.operators.windows import Window, sliding

Numbers = npt.NDArray[np.int64]

# a stream's tuples come later than their event times: how many of its last batches say by how much
_BATCHES = 8
# in parts of a batch's time: where delays differ by more, nobody can tell when tuples come
_MAX_SPREAD = 0.25
# no batch waits for longer (µs)
_LONGEST_US = 200_000
# windows that end at most this long after the first one count as ending with it (µs)
_TOGETHER_US = 5_000
# tuples come in chunks: how long to wait for the next one after the longest delay, in parts of what delays differ by,
# and at least (µs)
_CHUNK_WAIT, _MIN_CHUNK_WAIT_US = 0.25, 5_000
# where tuples come, batches begin at most this long after one another, so that counts of tuples stay fresh (µs)
_MAX_APART_US = 1_000_000
# a batch that fires nothing begins this many times as long before the next windows end as it takes; where reading
# takes more than this part of all time, as many times the longest recent duration
_MARGIN, _SPARE, _LONG_MARGIN = 1.1, 0.5, 1.25
# there is little to read where that takes at most this part of the rest of a batch
_LITTLE = 0.2
# and much where it takes at least this part of it
_MUCH = 1.0
# a batch that reads replays has so many times as long as it should take until the next windows end, or more often where
# one of the last ones took longer by more than that
_ROOM = 1.5
# the first one takes so many times as long as those before it
_FIRST_REPLAY = 2.0


class ExpectedEnds:
    """At which event times windows of running queries end, and how many queries have rows whenever tuples come."""

    def __init__(self) -> None:
        # of each query its streams, its windows where batches know when they end, and whether it has any
        self._queries: dict[str, tuple[tuple[str, ...], Window | None, bool]] = {}
        self._combs: _PeriodicEnds | None = None
        self._lengths_us: dict[str, int] = {}
        self._longest_us: dict[tuple[str, ...], int] | None = None

    def __contains__(self, query_id: str) -> bool:
        return query_id in self._queries

    def add(self, query_id: str, query: Query) -> None:
        """Take note of a new query."""
        is_final = query.emit.delay_us is None and query.emit.after_watermark
        self._queries[query_id] = query.streams, sliding(query.window) if is_final else None, query.window is not None
        self._lengths_us[query_id] = 0 if query.window is None else query.window.reach_us
        self._combs = self._longest_us = None

    def remove(self, query_id: str) -> None:
        """Take note that a query is gone."""
        self._queries.pop(query_id, None)
        self._lengths_us.pop(query_id, None)
        self._combs = self._longest_us = None

    @property
    def joins(self) -> Mapping[tuple[str, ...], int]:
        """The streams that queries read, as these join them, and how long after a tuple its last window ends (µs)."""
        if self._longest_us is None:
            self._longest_us = {}
            for query_id, (streams, _, _) in self._queries.items():
                self._longest_us[streams] = max(self._lengths_us[query_id], self._longest_us.get(streams, 0))
        return self._longest_us

    def last_end(self, stream: str, clocks: Mapping[str, int | None]) -> int | None:
        """Return the last end of a window that needs a stream's watermark (µs), None without any.

        ``clocks`` are those of all streams: joins wait for a stream as long as another one has tuples.
        """
        newest = (
            (us, [at for each in streams if (at := clocks.get(each)) is not None])
            for streams, us in self.joins.items()
            if stream in streams
        )
        return max((us + max(clocks_of) for us, clocks_of in newest if clocks_of), default=None)

    def has_end(self, stream: str, after: int | None, upto: int) -> bool:
        """Whether a window of some query over a stream ends in ``(after, upto]`` (µs); of sessions nobody knows."""
        for streams, window, has_windows in self._queries.values():
            if stream not in streams or not has_windows:
                continue
            if window is None or after is None:
                return True
            phase = window.offset_us + window.size_us
            if (upto - phase) // window.slide_us > (after - phase) // window.slide_us:
                return True
        return False

    @property
    def streams(self) -> frozenset[str]:
        """The streams that some query reads."""
        return frozenset(stream for streams in self.joins for stream in streams)

    def around(self, delays: Mapping[str, int], reached: Mapping[str, int], now_us: int) -> tuple[int, int, int]:
        """Return how many windows ended and were not fired, how long it is until the next end, and how many then do.

        Those that ended by the watermarks that streams ``reached`` were fired (µs). Watermarks follow the processing
        time with ``delays``; a window over several streams ends with the last of them. A query that does not wait for
        windows counts as one that ended. A query over a stream without a delay is left out; without any window the next
        end is -1 µs away.
        """
        if self._combs is None:
            self._combs = _PeriodicEnds.of((streams, window) for streams, window, _ in self._queries.values())
        ended = sum(count for streams, count in self._combs.unwindowed.items() if delays.keys() >= set(streams))
        windowed = [
            (combs, now_us - max(delays[stream] for stream in streams), min(reached[stream] for stream in streams))
            for streams, combs in self._combs.ends.items()
            if delays.keys() >= set(streams)
        ]
        if not windowed:
            return ended, -1, 0
        sizes = [combs.shape[1] for combs, _, _ in windowed]
        slide, phase, count = np.concatenate([combs for combs, _, _ in windowed], axis=1)
        expected, fired = (np.repeat([each[at] for each in windowed], sizes) for at in (1, 2))
        passed = (expected - phase) // slide
        ended += int((np.maximum(0, passed - (fired - phase) // slide) * count).sum())
        ahead = (passed + 1) * slide + phase - expected
        is_next = ahead <= ahead.min() + _TOGETHER_US
        return ended, int(ahead[is_next].max()), int(count[is_next].sum())


@dataclass(frozen=True)
class _PeriodicEnds:
    """By streams: slides and phases of the ends of windows and how many queries have them, shape (3, combs).

    ``unwindowed`` is how many queries do not wait for windows.
    """

    ends: Mapping[tuple[str, ...], Numbers]
    unwindowed: Mapping[tuple[str, ...], int]

    @classmethod
    def of(cls, queries: Iterable[tuple[tuple[str, ...], Window | None]]) -> _PeriodicEnds:
        ends: dict[tuple[str, ...], Counter[tuple[int, int]]] = {}
        unwindowed: Counter[tuple[str, ...]] = Counter()
        for streams, window in queries:
            if window is None:
                unwindowed[streams] += 1
            else:
                phase = (window.offset_us + window.size_us) % window.slide_us
                ends.setdefault(streams, Counter())[window.slide_us, phase] += 1
        rows = {streams: [(*comb, count) for comb, count in counts.items()] for streams, counts in ends.items()}
        return cls({streams: np.array(combs, dtype=np.int64).T for streams, combs in rows.items()}, unwindowed)


class ReadingTime:
    """How long batches take to read tuples, by how durations differ with what is read: a line through recent ones.

    Batches that have rows for somebody take longer, by what firing windows costs; the line is that of the others.
    """

    _KEPT, _SPREAD, _SURPRISE = 0.85, 0.15, 1.3

    def __init__(self) -> None:
        # sums over batches of the products of (1, size, whether it has rows), and of these with the duration; those of
        # older batches weigh less
        self._products, self._sums = np.zeros((3, 3)), np.zeros(3)
        self._line: tuple[float, float] | None = None
        self._firing_us = 0.0

    def learn(self, size: float, duration_us: float, has_rows: bool = False) -> None:
        """Take note of a batch; one that took much longer than it should have makes all before it worthless."""
        expected_us = self.expected_us(size)
        if expected_us is not None and duration_us > self._SURPRISE * (expected_us + has_rows * self._firing_us):
            self._line, self._products, self._sums = None, np.zeros((3, 3)), np.zeros(3)
        batch = np.array([1.0, size, has_rows])
        self._products = self._KEPT * self._products + np.outer(batch, batch)
        self._sums = self._KEPT * self._sums + batch * duration_us
        count, sizes, firing = self._products[0]
        mean = sizes / count
        # sizes as far as they do not go with having rows: where these explain each other, nobody knows which costs
        free = self._products[1, 1] / count - mean * mean
        spread = firing / count * (1 - firing / count)
        if spread > 0:
            free -= (self._products[1, 2] / count - mean * firing / count) ** 2 / spread
        if free > (self._SPREAD * mean) ** 2:
            fitted, *_ = np.linalg.lstsq(self._products, self._sums, rcond=None)
            shortest = max(0.0, self._sums[0] / count - max(0.0, fitted[2]) * firing / count)
            slope = min(max(0.0, fitted[1]), shortest / mean)
            self._line, self._firing_us = (shortest - slope * mean, slope), max(0.0, fitted[2])

    def expected_us(self, size: float) -> float | None:
        """Return how long a batch takes that reads so much (µs), None while nothing is known."""
        return None if self._line is None else self._line[0] + self._line[1] * size

    def size_within(self, duration_us: float) -> float | None:
        """Return how much a batch reads that takes so long (µs), None while nothing is known."""
        if self._line is None:
            return None
        fixed_us, slope = self._line
        left_us = max(0.0, duration_us - fixed_us)
        return left_us / slope if slope else math.inf if left_us else 0.0

    def is_little(self, size: float) -> bool:
        """Return whether reading so much takes little of what a batch takes besides; not while nothing is known."""
        return self._line is not None and self._line[1] * size <= _LITTLE * self._line[0]

    def share(self, size: float, us: float) -> float:
        """Return which part of a time reading takes what came in it; 0 while nothing is known."""
        return 0.0 if self._line is None else self._line[1] * size / max(us, 1.0)

    def is_much(self, size: float) -> bool:
        """Return whether reading so much takes as long as what a batch takes besides; not while nothing is known."""
        return self._line is not None and self._line[1] * size >= _MUCH * self._line[0]


class BatchPacing:
    """Decides whether a batch begins at once; ``ends`` must know the running queries.

    Batches begin ``apart_us`` after one another, or later.
    """

    def __init__(self, apart_us: int = 100_000) -> None:
        self.apart_us = apart_us
        self.window_ends = ExpectedEnds()
        self._durations_us: deque[int] = deque(maxlen=_BATCHES // 2)
        self._delays: dict[str, deque[int]] = {}
        self._reached: dict[str, int] = {}
        self._reading = ReadingTime()
        self._replaying = ReadingTime()
        # of the last batches with replays: size, duration (µs), how many times what was expected that is
        self._replays: deque[tuple[float, int, float]] = deque(maxlen=_BATCHES)

    def learn(self, record: Mapping[str, Any], size: float, duration_us: int) -> None:
        """Take note of a batch of a ``size`` that took so long, of its processing time and of its watermarks."""
        self._durations_us.append(duration_us)
        if reads_replays(record):  # what the streams and operators of these cost is no matter of size
            expected_us = self._replaying.expected_us(size)
            self._replays.append((size, duration_us, duration_us / expected_us if expected_us else 1.0))
            self._replaying.learn(size, duration_us)
        else:
            self._reading.learn(size, duration_us, bool(record.get("results")))
        watermarks = {stream: record["watermarks"].get(stream) for stream in record["streams"]}
        self._delays = {stream: self._delays.get(stream, deque(maxlen=_BATCHES)) for stream in watermarks}
        for stream, watermark in watermarks.items():
            if watermark is None or not record["streams"][stream]["tuples"]:
                self._delays[stream].clear()
            else:
                self._delays[stream].append(record["planned_us"] - watermark)
                self._reached[stream] = watermark

    @property
    def duration_us(self) -> float:
        """How long recent batches took (µs); 0 while there are none."""
        return sum(self._durations_us) / len(self._durations_us) if self._durations_us else 0.0

    def room(self, now_us: int) -> float | None:
        """Return the size of a batch with replays that is over before the next windows end; None if nobody can tell.

        It is 0 where windows ended already, or too little time is left: rows should not wait for replays.
        """
        if len(self._durations_us) < _BATCHES // 2:
            return None
        ended, next_us, _ = self.window_ends.around(self._expected_delays(self.duration_us), self._reached, now_us)
        if ended:
            return 0.0
        if next_us < 0:
            return None
        if not self._replays:
            return math.inf if _ROOM * _FIRST_REPLAY * max(self._durations_us) <= next_us else 0.0
        sizes, durations_us, overruns = zip(*self._replays, strict=True)
        allowed_us = next_us / max(_ROOM, *overruns)
        most = self._replaying.size_within(allowed_us)
        if most is None:  # nobody knows what a larger one takes
            most = max(sizes) if max(durations_us) <= allowed_us else 0.0
        return most

    def is_too_early(self, before_us: int, now_us: int, size: float, streams: Collection[str]) -> bool:
        """Return whether the batch before has just begun, or rows come sooner if the next waits for windows to end.

        The next would be of a ``size``, as :meth:`learn` is told, and read tuples of some ``streams``.

        The batch before was planned at ``before_us``. A batch takes about as long as those before it, and longer by as
        much as it waits: rows of windows that ended already come later by twice the wait. Windows that end next have
        their rows a batch earlier, less twice the wait. The batch waits where that gain is the greater one, and never
        for long: batches that take long would only get longer. Where no window ended, nobody's rows wait for the batch,
        and it begins as late as the module says.
        """
        if 0 <= now_us - before_us < self.apart_us:
            return True
        if len(self._durations_us) < _BATCHES // 2:
            return False
        expected_us = self.duration_us
        delays = self._expected_delays(expected_us)
        ended, next_us, ending = self.window_ends.around(delays, self._reached, now_us)
        if next_us < 0 or next_us * (ending + ended) < min(expected_us / 2, _LONGEST_US) * ending:
            return next_us >= 0
        if ended or now_us - before_us >= _MAX_APART_US or not delays.keys() >= set(streams):
            return False  # there are rows for somebody, or nobody can tell
        if self._reading.share(size, now_us - before_us) > _SPARE:
            return next_us > _LONG_MARGIN * max(self._durations_us)  # each wait is lost for reading
        takes_us = self._reading.expected_us(size) or max(self._durations_us)
        if next_us > 2 * _MARGIN * takes_us and self._reading.is_much(size):
            return False  # the last one before the windows end has less to read
        return next_us > _MARGIN * takes_us or self._reading.is_little(size)

    def _expected_delays(self, batch_us: float) -> dict[str, int]:
        """Return by how much watermarks will trail the processing time at most (µs), where that is steady."""
        expected = {}
        for stream, delays in self._delays.items():
            if len(delays) == _BATCHES:
                spread = max(delays) - min(delays)
                if spread <= _MAX_SPREAD * batch_us:
                    expected[stream] = max(delays) + max(_MIN_CHUNK_WAIT_US, round(_CHUNK_WAIT * spread))
        return expected
