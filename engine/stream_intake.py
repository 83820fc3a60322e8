"""What one source task takes in of one stream in one batch: which tuples it admits, and what becomes a dead letter."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braid.engine.planning.offsets import PassedOver
from braid.engine.planning.recent_times import POINTS_OF_CHUNK, Sum, sum_up
from braid.engine.spark.json_texts import json_texts, times_as_text
from braid.operators import kernels
from braid.sources.connectors.connector import Chunk
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.watermark_options import MAX_FUTURE, format_duration

LETTERS_AT_ONCE = 1 << 16


class StreamIntake:
    """Counts the tuples that a task reads and sets aside those that no query may see.

    ``watermark`` is the stream's at the start of the batch, None before its first tuple; ``planned_us`` is the
    processing time of the batch. Both are in its offset, so a batch that runs again admits the same.
    """

    def __init__(self, stream: StreamDefinition, watermark: int | None, planned_us: int) -> None:
        self.stream = stream
        self.watermark = watermark
        self.unread: str | None = None
        """Why the stream could not be read; then it has no part in the batch."""
        self.counts: dict[str, Any] = dict.fromkeys(("tuples", "late", "malformed", "bytes"), 0)
        self.counts |= {"earliest_us": None, "latest_us": None}
        self.dead_letters: list[pa.Table] = []
        self.failures: dict[str, str] = {}
        self.event_times: list[Sum] = []
        """The event times of each chunk, summed up; only of a stream with a ``watermark_percentile``."""
        self._planned_us = planned_us
        max_future_us = stream.watermark.max_future_us
        self._latest_allowed_us = None if max_future_us is None else planned_us + max_future_us
        self._buckets = 0

    def next_bucket(self) -> int:
        """Return the number of the next bucket; partitions order buckets by task and number, however they arrive."""
        self._buckets += 1
        return self._buckets

    def admit(self, chunk: Chunk) -> pa.RecordBatch:
        """Count a chunk, set malformed and late tuples aside, and return the rest."""
        self.counts["malformed"] += len(chunk.malformed)
        self.counts["bytes"] += chunk.bytes
        if chunk.malformed:
            details = pa.array([malformed.detail for malformed in chunk.malformed], pa.string())
            raw = pa.array([malformed.raw for malformed in chunk.malformed], pa.string())
            self.dead_letters.append(dead_letter_table("malformed", details, chunk.received_us, raw=raw))
        tuples, times, earliest, latest = self._within_max_future(chunk)
        self.counts["tuples"] += tuples.num_rows
        if not tuples.num_rows:
            return tuples
        if self.stream.watermark.percentile is not None:
            self.event_times.append(sum_up(times, points=POINTS_OF_CHUNK))
        self._widen(earliest, latest)
        if self.watermark is None or earliest >= self.watermark:
            return tuples
        late = times < self.watermark
        self._set_late_aside(tuples.filter(pa.array(late)), chunk.received_us)
        return tuples.filter(pa.array(~late))

    def admit_again(self, tuples: pa.Table) -> pa.Table:
        """Count tuples that the intake of another stream admitted, set those aside that are late here, return the rest.

        That of a replay that has caught up gets what its origin admits; mostly both have one watermark.
        """
        times = np.asarray(tuples.column(self.stream.schema.event_time).combine_chunks().view(pa.int64()))
        self.counts["tuples"] += len(times)
        if not len(times):
            return tuples
        earliest, latest = kernels.extent(times)
        self._widen(earliest, latest)
        if self.stream.watermark.percentile is not None:
            self.event_times.append(sum_up(times, points=POINTS_OF_CHUNK))
        if self.watermark is None or earliest >= self.watermark:
            return tuples
        late = pa.array(times < self.watermark)
        for batch in tuples.filter(late).combine_chunks().to_batches():
            self._set_late_aside(batch, self._planned_us)
        return tuples.filter(pc.invert(late))

    def pass_over(self, passed_over: PassedOver) -> None:
        """Count what the batch cannot be run with as malformed, and make one dead letter of it."""
        count = passed_over.end - passed_over.start
        self.counts["malformed"] += count
        detail = (
            f"{count} rows from offset {passed_over.start} of partition {passed_over.partition} on are passed over:"
            f" {passed_over.reason}"
        )
        self.dead_letters.append(dead_letter_table("malformed", pa.array([detail]), self._planned_us))

    def _within_max_future(self, chunk: Chunk) -> tuple[pa.RecordBatch, npt.NDArray[np.int64], int, int]:
        """Return the tuples of a chunk that are not too far in the future, their event times, the first and the last.

        Times are µs; 0 where there are no tuples.
        """
        tuples = chunk.tuples
        times = self._times(tuples)
        earliest, latest = kernels.extent(times) if len(times) else (0, 0)
        if self._latest_allowed_us is None or latest <= self._latest_allowed_us:
            return tuples, times, earliest, latest
        is_beyond = times > self._latest_allowed_us
        self.counts["malformed"] += int(is_beyond.sum())
        self._set_aside(
            "malformed", self._beyond_details(times[is_beyond]), chunk.received_us, tuples.filter(pa.array(is_beyond))
        )
        admitted = times[~is_beyond]
        return tuples.filter(pa.array(~is_beyond)), admitted, earliest, int(admitted.max(initial=earliest))

    def _times(self, tuples: pa.RecordBatch) -> npt.NDArray[np.int64]:
        return np.asarray(tuples.column(self.stream.schema.event_time).view(pa.int64()))

    def _beyond_details(self, times: npt.NDArray[np.int64]) -> pa.Array:
        allowed = self.stream.watermark.max_future_us
        assert allowed is not None
        limit = (
            f" is more than {format_duration(allowed)} after {format_time(self._planned_us)}, when it was read; the"
            f" stream's option {MAX_FUTURE} sets the limit ('none': no limit)"
        )
        return pc.binary_join_element_wise("event time ", times_as_text(pa.array(times)), limit, "")

    def _widen(self, earliest: int, latest: int) -> None:
        """Take note of the first and the last event time of some tuples (µs)."""
        earliest_so_far, latest_so_far = self.counts["earliest_us"], self.counts["latest_us"]
        self.counts["earliest_us"] = earliest if earliest_so_far is None else min(earliest_so_far, earliest)
        self.counts["latest_us"] = latest if latest_so_far is None else max(latest_so_far, latest)

    def _set_late_aside(self, tuples: pa.RecordBatch, received_us: int) -> None:
        """Count late tuples, and make dead letters of them."""
        assert self.watermark is not None
        self.counts["late"] += tuples.num_rows
        details = pa.repeat(f"event time before the watermark {format_time(self.watermark)}", tuples.num_rows)
        self._set_aside("late", details, received_us, tuples)

    def _set_aside(self, reason: str, details: pa.Array, received_us: int, tuples: pa.RecordBatch) -> None:
        """Make dead letters of tuples, some at a time: they take much memory while they become texts."""
        for first in range(0, tuples.num_rows, LETTERS_AT_ONCE):
            rows = slice(first, first + LETTERS_AT_ONCE)
            self.dead_letters.append(dead_letter_table(reason, details[rows], received_us, json_texts(tuples[rows])))


def format_time(us: int) -> str:
    """Return microseconds since 1970 as RFC 3339 in UTC."""
    text: str = times_as_text(pa.array([us]))[0].as_py()
    return text


def dead_letter_table(
    reason: str, details: pa.Array, received_us: int, tuples: pa.Array | None = None, raw: pa.Array | None = None
) -> pa.Table:
    """Return dead letters as a table; ``tuples`` are JSON, ``raw`` texts, either None where there are none."""
    count = len(details)
    return pa.table(
        {
            "reason": pa.repeat(reason, count),
            "detail": details,
            "received_us": pa.repeat(received_us, count),
            "tuple": pa.nulls(count, pa.string()) if tuples is None else tuples,
            "raw": pa.nulls(count, pa.string()) if raw is None else raw,
        }
    )
