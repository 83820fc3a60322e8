"""One source task's share of one stream in one batch: which tuples it admits, and what becomes a dead letter."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from operators import kernels
from operators.job.recent_times import POINTS_OF_CHUNK, Sum, sum_up
from sources.connector import Chunk
from sources.schema import StreamDefinition
from sources.waterline_options import MAX_FUTURE, format_duration


class StreamShare:
    """Counts the tuples of a share and sets aside those that no query may see.

    ``waterline`` is the stream's at the start of the batch, None before its first tuple; ``planned_us`` is the
    processing time of the batch. Both are in its offset, so a batch that runs again admits the same.
    """

    def __init__(self, stream: StreamDefinition, waterline: int | None, planned_us: int) -> None:
        self.stream = stream
        self.waterline = waterline
        self.unread: str | None = None
        """Why the stream could not be read; then it has no part in the batch."""
        self.must_be_read = False
        self.counts: dict[str, Any] = {"tuples": 0, "late": 0, "malformed": 0, "bytes": 0, "latest_us": None}
        self.dead_letters: list[pa.Table] = []
        self.failures: dict[str, str] = {}
        self.event_times: list[Sum] = []
        """Of a stream with a ``waterline_percentile`` the event times of each chunk, in short."""
        self._planned_us = planned_us
        max_future_us = stream.waterline.max_future_us
        self._last_us = None if max_future_us is None else planned_us + max_future_us
        self._buckets = 0

    def next_bucket(self) -> int:
        """Return the number of the next bucket; by task and number lanes put them in one order, however they come."""
        self._buckets += 1
        return self._buckets

    def admit(self, chunk: Chunk) -> pa.RecordBatch:
        """Count a chunk, set malformed and late tuples aside, and return the rest."""
        self.counts["malformed"] += len(chunk.malformed)
        self.counts["bytes"] += chunk.bytes
        if chunk.malformed:
            self.dead_letters.append(
                dead_letter_table("malformed", chunk.received_us, [(m.detail, None, m.raw) for m in chunk.malformed])
            )
        tuples, times, earliest, latest = self._within_max_future(chunk)
        self.counts["tuples"] += tuples.num_rows
        if not tuples.num_rows:
            return tuples
        if self.stream.waterline.percentile is not None:
            self.event_times.append(sum_up(times, points=POINTS_OF_CHUNK))
        known = self.counts["latest_us"]
        self.counts["latest_us"] = latest if known is None else max(known, latest)
        if self.waterline is None or earliest >= self.waterline:
            return tuples
        late = times < self.waterline
        self.counts["late"] += int(late.sum())
        detail = f"event time before the waterline {format_time(self.waterline)}"
        rows = tuples.filter(pa.array(late)).to_pylist()
        self.dead_letters.append(
            dead_letter_table("late", chunk.received_us, [(detail, _json(row), None) for row in rows])
        )
        return tuples.filter(pa.array(~late))

    def _within_max_future(self, chunk: Chunk) -> tuple[pa.RecordBatch, npt.NDArray[np.int64], int, int]:
        """Return the tuples of a chunk that are not too far in the future, their event times, the first and the last.

        Times are µs; 0 where there are no tuples.
        """
        tuples = chunk.tuples
        times = self._times(tuples)
        earliest, latest = kernels.extent(times) if len(times) else (0, 0)
        if self._last_us is None or latest <= self._last_us:
            return tuples, times, earliest, latest
        beyond = times > self._last_us
        self.counts["malformed"] += int(beyond.sum())
        rows = tuples.filter(pa.array(beyond)).to_pylist()
        entries = [(self._beyond(us), _json(row), None) for us, row in zip(times[beyond].tolist(), rows, strict=True)]
        self.dead_letters.append(dead_letter_table("malformed", chunk.received_us, entries))
        kept = times[~beyond]
        return tuples.filter(pa.array(~beyond)), kept, earliest, int(kept.max(initial=earliest))

    def _times(self, tuples: pa.RecordBatch) -> npt.NDArray[np.int64]:
        return np.asarray(tuples.column(self.stream.schema.event_time).view(pa.int64()))

    def _beyond(self, us: int) -> str:
        allowed = self.stream.waterline.max_future_us
        assert allowed is not None
        return (
            f"event time {format_time(us)} is more than {format_duration(allowed)} after"
            f" {format_time(self._planned_us)}, when it was read; the stream's option {MAX_FUTURE} sets the limit"
            " ('none': no limit)"
        )


def format_time(us: int) -> str:
    """Return microseconds since 1970 as RFC 3339 in UTC."""
    text: str = pc.strftime(pa.scalar(us, pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%SZ").as_py()
    return text


def dead_letter_table(reason: str, received_us: int, entries: Sequence[tuple[str, str | None, str | None]]) -> pa.Table:
    """Return dead letters as a table; each entry is (detail, tuple as JSON or None, raw text or None)."""
    return pa.table(
        {
            "reason": pa.array([reason] * len(entries), pa.string()),
            "detail": pa.array([e[0] for e in entries], pa.string()),
            "received_us": pa.array([received_us] * len(entries), pa.int64()),
            "tuple": pa.array([e[1] for e in entries], pa.string()),
            "raw": pa.array([e[2] for e in entries], pa.string()),
        }
    )


def _json(row: dict[str, Any]) -> str:
    return orjson.dumps({name: _as_in_results(value) for name, value in row.items()}).decode()


def _as_in_results(value: Any) -> Any:
    """Return a value as JSON that looks as it does in result rows."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return orjson.Fragment(format(value, "f")) if isinstance(value, Decimal) else value
