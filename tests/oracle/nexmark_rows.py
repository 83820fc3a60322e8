"""Persons, auctions and bids of NEXMark as the benchmark makes them, in the order in which they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.queues.ring import Ring
from braid.bench_driver.queues.schedule import SECOND_US, RatePart, Schedule
from braid.bench_driver.workload import load_workload

Event = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Burst:
    """So many ``seconds`` of events from ``start`` on."""

    start: datetime
    seconds: int


def events(seed: int, per_second: int, bursts: Sequence[Burst]) -> Iterator[Event]:
    """Yield ``person``, ``auction`` or ``bid`` with a row for each event, in the order of their times.

    Times (``dateTime``, and ``expires`` of auctions) are naive UTC in whole milliseconds.
    """
    made: list[Event] = []
    for stream in load_workload("nexmark").streams:
        groups = _schedule(bursts, stream.share.groups(per_second))
        tuples = _schedule(bursts, stream.share.rate(per_second))
        count = tuples.segments[-1].first_offset
        ring = Ring(find_dataset(stream.dataset), stream.options, seed, stream.name, count)
        batch = ring.batch(0, tuples.times(0, count), groups)
        schema = pa.schema([(field.name, _in_ms(field.type)) for field in batch.schema])
        made += [(stream.name, row) for row in pa.table(batch).cast(schema, safe=False).to_pylist()]
    return iter(sorted(made, key=lambda event: event[1]["dateTime"]))


def _schedule(bursts: Sequence[Burst], per_second: int) -> Schedule:
    schedule, count = Schedule(), 0
    for burst in bursts:
        at_us = round(burst.start.replace(tzinfo=UTC).timestamp() * SECOND_US)
        schedule = schedule.after(count, at_us, [RatePart(burst.seconds, per_second)])
        count += burst.seconds * per_second
    return schedule


def _in_ms(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("ms") if pa.types.is_timestamp(kind) else kind
