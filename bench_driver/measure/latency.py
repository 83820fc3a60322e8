"""Latency of windowed output as the thesis defines it (3.4.1, definitions 1 to 4), read outside the system.

The event time of an output is the greatest of the tuples that contributed (definition 3), its processing time the
greatest at which such a tuple reached the system (definition 4), which is when a queue handed it over. A queue's
schedule tells which tuple it was, the log of pulls when that was handed over.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter

from braid.bench_driver.measure import statistics
from braid.bench_driver.queues.process import Pull
from braid.bench_driver.queues.schedule import Schedule
from braid.bench_driver.systems.system import SystemOutput

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
# what came at one moment is one window's firing: a single one says nothing about quantiles
MIN_ARRIVALS = 2


@dataclass(frozen=True)
class Latency:
    """Rows that came at `arrived`, all of them `seconds` late."""

    arrived: float
    seconds: float
    rows: int


class Ingestion:
    """When the tuples of one queue reached the system."""

    def __init__(self, pulls: Iterable[Pull], schedule: Schedule) -> None:
        self._schedule = schedule
        self._logs: list[tuple[list[int], list[float]]] = []
        by_consumer: dict[str, list[Pull]] = {}
        for pull in pulls:
            by_consumer.setdefault(pull.consumer, []).append(pull)
        for consumer_pulls in by_consumer.values():
            first_pulls: list[Pull] = []
            for pull in sorted(consumer_pulls, key=attrgetter("start", "at")):
                if not first_pulls or pull.end > first_pulls[-1].end:  # else it is pulled once more, after a failure
                    first_pulls.append(pull)
            # ranges may be pulled side by side: a tuple has all those before it only once they are there, too
            self._logs.append(
                ([pull.end for pull in first_pulls], list(accumulate((pull.at for pull in first_pulls), max)))
            )

    def of(self, event_time: float, arrived: float) -> float | None:
        """Return when the newest tuple of up to `event_time` reached the system; None when it had not by `arrived`.

        Of several consumers it is not known whose output it is: the middle one of those that had it by then counts.
        """
        offset = self._schedule.generated(round(event_time * 1e6)) - 1
        if offset < 0:
            return None
        times = []
        for ends, handed_over in self._logs:
            index = bisect_right(ends, offset)
            if index < len(ends) and handed_over[index] <= arrived:
                times.append(handed_over[index])
        return sorted(times)[(len(times) - 1) // 2] if times else None


def event_time_latencies(outputs: Iterable[SystemOutput], begin: float, end: float, since: float) -> list[Latency]:
    """Return the event-time latency (definition 1) of what arrived in `[begin, end]` and is of `since` or later."""
    return [
        Latency(output.arrived, output.arrived - output.event_time, output.rows)
        for output in _outputs_in(outputs, begin, end, since)
    ]


def processing_time_latencies(
    outputs: Iterable[SystemOutput], begin: float, end: float, since: float, ingestions: Sequence[Ingestion]
) -> list[Latency]:
    """Return the processing-time latency (definition 2) of the same outputs, as far as it is known.

    `ingestions` are those of all the streams' queues: the greatest time counts (definition 4).
    """
    latencies = []
    for output in _outputs_in(outputs, begin, end, since):
        times = [ingestion.of(output.event_time, output.arrived) for ingestion in ingestions]
        known_times = [time for time in times if time is not None]
        if known_times:
            # a queue that hands tuples over as they come has noted when the first of them left
            reached = min(output.arrived, max(*known_times, output.event_time))
            latencies.append(Latency(output.arrived, output.arrived - reached, output.rows))
    return latencies


def _outputs_in(outputs: Iterable[SystemOutput], begin: float, end: float, since: float) -> Iterable[SystemOutput]:
    return (
        output
        for output in outputs
        if begin <= output.arrived <= end and output.event_time >= since and output.rows > 0
    )


def quantiles(values: Sequence[float], weights: Sequence[float] | None = None) -> dict[str, float] | None:
    """Return p50, p95, p99 and max by nearest rank; None without values."""
    by_name = {name: statistics.percentile(values, share, weights) for name, share in QUANTILES.items()}
    known_quantiles = {name: value for name, value in by_name.items() if value is not None}
    return known_quantiles or None


def latency_quantiles(latencies: Sequence[Latency]) -> dict[str, float] | None:
    """Return the quantiles over rows; None when too little arrived for one (fewer than `MIN_ARRIVALS` moments)."""
    if len({latency.arrived for latency in latencies}) < MIN_ARRIVALS:
        return None
    return quantiles([latency.seconds for latency in latencies], [float(latency.rows) for latency in latencies])


def latency_series(latencies: Iterable[Latency], begin: float) -> list[list[float]]:
    """Return `[second, p50, max]` for every second since `begin` in which something arrived."""
    seconds: dict[int, list[Latency]] = {}
    for latency in latencies:
        seconds.setdefault(int(latency.arrived - begin), []).append(latency)
    series = []
    for second, of_second in sorted(seconds.items()):
        middle = statistics.percentile(
            [latency.seconds for latency in of_second], 0.5, [float(latency.rows) for latency in of_second]
        )
        series.append([float(second), middle or 0.0, max(latency.seconds for latency in of_second)])
    return series
