"""The offset of the composite source: all that decides a batch.

Spark writes it to its write-ahead log before the batch runs, so a replayed batch sees the same tuples, queries and
watermarks. Clocks and watermarks in an offset are those at the start of the batch that ends at it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import orjson

from braid.sources.core.checksums import crc32
from braid.sources.core.derived import FIRST_ROW
from braid.sources.core.errors import CorruptData


class QueryProgress(NamedTuple):
    """How far a query behind a derived stream is: up to which number of a row, and which watermark (µs), if any."""

    rows: int = FIRST_ROW
    watermark: int | None = None


class PassedOver(NamedTuple):
    """The offsets ``[start, end)`` of a partition of a stream that cannot be read, and why."""

    stream: str
    partition: str
    start: int
    end: int
    reason: str


@dataclass(frozen=True)
class Offset:
    """Up to where a batch reads, and all that a batch that runs again must decide as before.

    Times are µs since 1970 or None; maps without another word are by stream id.
    """

    seq: int = 0
    """The number of the batch that ends at this offset."""
    epoch: int = 0
    """The last changelog that it runs."""
    streams: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By partition of the source, the offset after the last tuple of the batch."""
    begins: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Where the batch begins to read: where the one before ended, or began, for streams that could not be read then."""
    clocks: Mapping[str, int | None] = field(default_factory=dict)
    """The greatest event time before the batch."""
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    """The watermark before the batch."""
    planned_us: int = 0
    """The processing time of the batch, which never falls."""
    idle: Sequence[str] = ()
    """The streams that have been silent for their ``idle_timeout``; the batch reads nothing of them."""
    recent: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Sums of the last event times, for a ``watermark_percentile`` (:mod:`braid.engine.planning.recent_times`)."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """How many offsets before the batch are gone, and are done without."""
    waiting: int = 0
    """How many tuples were there and are left for later."""
    partitions: Mapping[str, str] = field(default_factory=dict)
    """Where the state of each partition of the operators is (:mod:`braid.engine.partition_files`)."""
    fired: Mapping[str, int | None] = field(default_factory=dict)
    """Up to where windows had fired before the batch."""
    fire_to: Mapping[str, int] = field(default_factory=dict)
    """Up to where to fire, of streams that have more to fire than fits a batch."""
    firing_budget_us: float = math.inf
    """What firing the windows of other streams may cost (:mod:`braid.operators.windowing.firing_limit`)."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """By query, until its slot is freed, why no batch can be run with it."""
    passed_over: Sequence[PassedOver] = ()
    """What this batch could not be run with, dead letters from now on (:mod:`braid.engine.recovery.isolation`)."""
    joined: Mapping[str, str] = field(default_factory=dict)
    """By replay that begins where its origin begins, that origin: from then on it gets what that reads."""
    raised: Mapping[str, int] = field(default_factory=dict)
    """To which watermarks the batch raises those of streams: set from outside, at their end, or by rows of queries."""
    derived: Mapping[str, QueryProgress] = field(default_factory=dict)
    """By query behind a derived stream, how far it was before the batch (:mod:`braid.engine.planning.derived_rows`)."""

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark logs, with its checksum."""
        value = {
            "seq": self.seq,
            "epoch": self.epoch,
            "streams": {stream: dict(partitions) for stream, partitions in self.streams.items()},
            "begins": {stream: dict(partitions) for stream, partitions in self.begins.items()},
            "clocks": dict(self.clocks),
            "watermarks": dict(self.watermarks),
            "planned_us": self.planned_us,
            "idle": list(self.idle),
            "recent": {stream: list(sums) for stream, sums in self.recent.items()},
            "skipped": dict(self.skipped),
            "waiting": self.waiting,
            "partitions": dict(self.partitions),
            "fired": dict(self.fired),
            "fire_to": dict(self.fire_to),
            "firing_budget_us": self.firing_budget_us if math.isfinite(self.firing_budget_us) else None,
            "failed": dict(self.failed),
            "passed_over": [list(passed_over) for passed_over in self.passed_over],
            "joined": dict(self.joined),
            "raised": dict(self.raised),
            "derived": {query: list(emitted) for query, emitted in self.derived.items()},
        }
        return {**value, "crc": _checksum(value)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Offset:
        """Read what :meth:`to_json` wrote, in whatever order; CorruptData where it is another."""
        value = dict(value)
        crc = value.pop("crc", None)
        if not value.keys() <= {each.name for each in fields(cls)} or crc != _checksum(value):
            raise CorruptData(
                "An offset in Spark's log (checkpoint/offsets) must hold what was written to go on; its checksum is"
                " another. Restore the data directory from a backup."
            )
        budget_us = value["firing_budget_us"]
        return cls(
            **{
                **value,
                "idle": tuple(value["idle"]),
                "firing_budget_us": math.inf if budget_us is None else budget_us,
                "passed_over": tuple(PassedOver(*values) for values in value["passed_over"]),
                "derived": {query: QueryProgress(*values) for query, values in value.get("derived", {}).items()},
            }
        )

    @property
    def spans(self) -> list[Span]:
        """What the batch that ends here reads, without what is empty; replays that have joined read nothing."""
        return [
            Span(stream, partition, self.begins[stream][partition], end)
            for stream, partitions in self.streams.items()
            if stream not in self.joined
            for partition, end in partitions.items()
            if end > self.begins[stream][partition]
        ]


def _checksum(value: Mapping[str, Any]) -> int:
    return crc32(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


@dataclass(frozen=True)
class Span:
    """The tuples of one partition of one stream that a batch reads: ``[start, end)``."""

    stream: str
    partition: str
    start: int
    end: int

    def without(self, passed_over: Iterable[PassedOver]) -> list[Span]:
        """Return what is left of it without what is passed over, in order."""
        left, at = [], self.start
        for each in sorted(p for p in passed_over if (p.stream, p.partition) == (self.stream, self.partition)):
            if at < min(each.start, self.end):
                left.append(Span(self.stream, self.partition, at, min(each.start, self.end)))
            at = max(at, each.end)
        return [*left, Span(self.stream, self.partition, at, self.end)] if at < self.end else left

    def share(self, task: int, tasks: int) -> Span:
        """Return the part that task ``task`` of ``tasks`` reads."""
        length = self.end - self.start
        low, high = self.start + length * task // tasks, self.start + length * (task + 1) // tasks
        return Span(self.stream, self.partition, low, high)


def advance_watermark(watermark: int | None, clock: int | None, lateness_us: int) -> int | None:
    """Return the watermark that follows from a clock; it never falls."""
    if clock is None:
        return watermark
    reached = clock - lateness_us
    return reached if watermark is None else max(watermark, reached)
