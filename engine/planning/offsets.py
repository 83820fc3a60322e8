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
from braid.sources.core.derived import FIRST
from braid.sources.core.errors import CorruptData


class QueryProgress(NamedTuple):
    """How far a query behind a derived stream is: up to which number of a row, and which watermark (µs), if any."""

    rows: int = FIRST
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
    """``streams`` maps stream id to partition to the offset after the last tuple of the batch; times are µs or None.

    ``seq`` numbers the batches: the batch that ends at this offset is batch ``seq``. ``begins`` says where it begins to
    read. That is where the batch before ended, except for streams that could not be read then: they begin there again.
    ``skipped`` counts by stream the offsets before that which are gone, and which the stream does without.
    ``planned_us`` is the processing time of the batch, which never falls. ``idle`` are the streams that have been
    silent for their ``idle_timeout`` by then; the batch reads nothing of them. ``recent`` sums up the last event times
    of streams with a ``watermark_percentile`` (:mod:`braid.engine.planning.recent_times`). ``waiting`` counts
    the tuples that were there and are left for later. ``partitions`` says where the state of each partition is that has
    any (:mod:`braid.engine.partition_files`). ``fired`` says up to where the windows of each stream had fired before
    the batch, ``fire_to`` up to where partitions can fire those of streams that have more to fire than fits a batch,
    and ``firing_budget_us`` what the others may cost (:mod:`braid.operators.windowing.firing_limit`). ``failed`` are
    queries, by id, that no batch can be run with, each with the reason, until their slots are freed; ``passed_over``
    are spans that this batch could not be run with, which become dead letters (:mod:`braid.engine.recovery.isolation`).
    ``joined`` are the replays that begin where their origin begins, by their ids, each with that of its origin: from
    then on they get what that reads. ``raised`` are watermarks to which this batch raises those of streams: set from
    outside, or of streams that have ended, or of rows that queries gave. ``derived`` says of each query behind a
    derived stream what it had emitted before the batch (:mod:`braid.engine.planning.derived_rows`).
    """

    seq: int = 0
    epoch: int = 0
    streams: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    begins: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    clocks: Mapping[str, int | None] = field(default_factory=dict)
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    planned_us: int = 0
    idle: Sequence[str] = ()
    recent: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    partitions: Mapping[str, str] = field(default_factory=dict)
    fired: Mapping[str, int | None] = field(default_factory=dict)
    fire_to: Mapping[str, int] = field(default_factory=dict)
    firing_budget_us: float = math.inf
    failed: Mapping[str, str] = field(default_factory=dict)
    passed_over: Sequence[PassedOver] = ()
    joined: Mapping[str, str] = field(default_factory=dict)
    raised: Mapping[str, int] = field(default_factory=dict)
    derived: Mapping[str, QueryProgress] = field(default_factory=dict)

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
