"""When the next batch had better begin: soon, or just after the next windows end.

Batches run one after the other. A window that ends just after a batch was planned waits for that batch and has its rows
with the next one, two batches later; planned just after its end, the batch that takes its last tuples fires it. Windows
of different queries mostly end together, at whole seconds or minutes, and batches then do best to begin there. The
price is that what ended before waits a little longer.

Small batches take less time than is worth a batch record and a few files each, so they begin some time after one
another.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.queries import Query
from operators.windows import Window, sliding

Numbers = npt.NDArray[np.int64]

# a stream's tuples come later than their event times: how many of its last batches say by how much
_BATCHES = 8
# in parts of a batch's time: where delays differ by more, nobody can tell when tuples come
_MOST_SPREAD = 0.25
# no batch waits for longer (µs)
_LONGEST_US = 200_000
# windows that end at most this long after the first one count as ending with it (µs)
_TOGETHER_US = 5_000
# tuples come in chunks: how long to wait for the next one after the longest delay, in parts of what delays differ by,
# and at least (µs)
_CHUNK_WAIT, _LEAST_CHUNK_WAIT_US = 0.25, 5_000


class WindowEnds:
    """At which event times windows of running queries end, and how many queries have rows whenever tuples come."""

    def __init__(self) -> None:
        self._queries: dict[str, tuple[tuple[str, ...], Window | None]] = {}
        self._combs: _Combs | None = None

    def __contains__(self, query_id: str) -> bool:
        return query_id in self._queries

    def add(self, query_id: str, query: Query) -> None:
        """Take note of a new query."""
        is_final = query.emit.delay_us is None and query.emit.after_watermark
        self._queries[query_id] = query.streams, sliding(query.window) if is_final else None
        self._combs = None

    def remove(self, query_id: str) -> None:
        """Take note that a query is gone."""
        self._queries.pop(query_id, None)
        self._combs = None

    def around(self, delays: Mapping[str, int], before_us: int, now_us: int) -> tuple[int, int, int]:
        """Return how many windows ended in ``(before, now]``, how long it is until the next ones, how many these are.

        All in processing time (µs). Waterlines follow it with ``delays``; a window over several streams ends with the
        last of them. A query that does not wait for windows counts as one that ended. A query over a stream without a
        delay is left out; without any window the next end is -1 µs away.
        """
        if self._combs is None:
            self._combs = _Combs.of(self._queries.values())
        ended = sum(count for streams, count in self._combs.unwindowed.items() if delays.keys() >= set(streams))
        windowed = [
            (combs, max(delays[stream] for stream in streams))
            for streams, combs in self._combs.ends.items()
            if delays.keys() >= set(streams)
        ]
        if not windowed:
            return ended, -1, 0
        phase = np.concatenate([combs[1] + delay for combs, delay in windowed])
        slide, count = (np.concatenate([combs[row] for combs, _ in windowed]) for row in (0, 2))
        passed = (now_us - phase) // slide
        ended += int(((passed - (before_us - phase) // slide) * count).sum())
        ahead = (passed + 1) * slide + phase - now_us
        is_next = ahead <= ahead.min() + _TOGETHER_US
        return ended, int(ahead[is_next].max()), int(count[is_next].sum())


@dataclass(frozen=True)
class _Combs:
    """By streams: slides and phases of the ends of windows and how many queries have them, shape (3, combs).

    ``unwindowed`` is how many queries do not wait for windows.
    """

    ends: Mapping[tuple[str, ...], Numbers]
    unwindowed: Mapping[tuple[str, ...], int]

    @classmethod
    def of(cls, queries: Iterable[tuple[tuple[str, ...], Window | None]]) -> _Combs:
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


class BatchStart:
    """Decides whether a batch begins at once; ``ends`` must know the running queries.

    Batches begin ``apart_us`` after one another, or later.
    """

    def __init__(self, apart_us: int = 100_000) -> None:
        self.apart_us = apart_us
        self.ends = WindowEnds()
        self._durations_us: deque[int] = deque(maxlen=_BATCHES // 2)
        self._delays: dict[str, deque[int]] = {}

    def learn(self, record: Mapping[str, Any], duration_us: int) -> None:
        """Take note of a batch that took so long, of its processing time and of the waterlines that it came to."""
        self._durations_us.append(duration_us)
        waterlines = {stream: record["waterlines"].get(stream) for stream in record["streams"]}
        self._delays = {stream: self._delays.get(stream, deque(maxlen=_BATCHES)) for stream in waterlines}
        for stream, waterline in waterlines.items():
            if waterline is None or not record["streams"][stream]["tuples"]:
                self._delays[stream].clear()
            else:
                self._delays[stream].append(record["planned_us"] - waterline)

    def is_too_early(self, before_us: int, now_us: int) -> bool:
        """Return whether the batch before has just begun, or rows come sooner if the next waits for windows to end.

        The batch before was planned at ``before_us``. A batch takes about as long as those before it, and longer by as
        much as it waits: rows of windows that ended already come later by twice the wait. Windows that end next have
        their rows a batch earlier, less twice the wait. The batch waits where that gain is the greater one, and never
        for long: batches that take long would only get longer.
        """
        if 0 <= now_us - before_us < self.apart_us:
            return True
        if len(self._durations_us) < _BATCHES // 2:
            return False
        expected_us = sum(self._durations_us) / len(self._durations_us)
        ended, next_us, ending = self.ends.around(self._expected_delays(expected_us), before_us, now_us)
        return next_us >= 0 and next_us * (ending + ended) < min(expected_us / 2, _LONGEST_US) * ending

    def _expected_delays(self, batch_us: float) -> dict[str, int]:
        """Return by how much waterlines will trail the processing time at most (µs), where that is steady."""
        expected = {}
        for stream, delays in self._delays.items():
            if len(delays) == _BATCHES:
                spread = max(delays) - min(delays)
                if spread <= _MOST_SPREAD * batch_us:
                    expected[stream] = max(delays) + max(_LEAST_CHUNK_WAIT_US, round(_CHUNK_WAIT * spread))
        return expected
