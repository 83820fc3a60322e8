"""Replay: records become available as fast as they happened, or a multiple of that.

When a file is discovered its event times are read once: for about every STEP_SECONDS of the replay the index keeps the
number of the record up to which no event time is later. What is available follows from that and the time since the
stream was created.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from braid.sources.connectors.files.index import IndexedFile
from braid.sources.connectors.files.reading import FilePiece
from braid.sources.core.schema import StreamSchema

STEP_SECONDS = 0.1
NEVER = -(2**63)


def with_times(
    file: IndexedFile, pieces: Iterable[FilePiece], schema: StreamSchema, speed: float, latest: int
) -> IndexedFile:
    """Return a file with the event times of its records; ``latest`` is the greatest one of files before it."""
    step = max(int(speed * STEP_SECONDS * 1_000_000), 1)
    times: list[tuple[int, int]] = []
    begins: int | None = None
    for piece in pieces:
        tuples = piece.decoded.tuples
        if not tuples.num_rows:
            continue
        event_times = np.asarray(tuples.column(schema.event_time).view(pa.int64()))
        begins = int(event_times[0]) if begins is None else begins
        greatest_so_far = np.maximum(np.maximum.accumulate(event_times), latest)
        steps = greatest_so_far // step
        last_rows = [*np.flatnonzero(np.diff(steps)).tolist(), len(event_times) - 1]
        for row in last_rows:
            # malformed records among them make this a guess; only when they become available depends on it
            upto = piece.first + (row + 1) * piece.records // len(event_times)
            if times and times[-1][1] // step == greatest_so_far[row] // step:
                times.pop()
            times.append((upto, int(greatest_so_far[row])))
        latest = int(greatest_so_far[-1])
    if times:
        times[-1] = (file.records, times[-1][1])
    else:
        times = [(file.records, latest)]
    return replace(file, times=times, begins_us=begins)


class Replay:
    """Which records of the files of an index are available at a time; ``created_us`` is when the stream was created."""

    def __init__(self, speed: float, created_us: int) -> None:
        self._speed = speed
        self._created_us = created_us
        self._files_learnt = 0
        self._begins_us: int | None = None
        self._ends: list[int] = []
        self._times: list[int] = []

    def learn(self, files: list[IndexedFile]) -> None:
        """Take note of files after those that are known."""
        for file in files[self._files_learnt :]:
            if self._begins_us is None:
                self._begins_us = file.begins_us
            for records, time_us in file.times:
                self._ends.append(file.first + records)
                self._times.append(time_us)
            self._files_learnt += 1

    @property
    def latest_us(self) -> int:
        """The greatest event time of all files."""
        return self._times[-1] if self._times else NEVER

    def end(self, now_us: int) -> int:
        """Return the offset up to which records are available."""
        if self._begins_us is None:
            return self._ends[-1] if self._ends else 0
        reached = self._begins_us + (now_us - self._created_us) * self._speed
        steps = bisect.bisect_right(self._times, reached)
        return self._ends[steps - 1] if steps else 0
