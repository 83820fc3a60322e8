"""What measuring a system on a workload comes to: a row of `report.json`, and how far it is until then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from braid.bench_driver.measure import latency, steps, throughput
from braid.bench_driver.measure.search import StepResult

Quantiles = Mapping[str, float]


@dataclass(frozen=True)
class MeasureProgress:
    """How far it is: the phase ("start", "deploy", "warm-up", "search", "latency", "fluctuation", "stop") and its step.

    `share` is how much of the step is over, from 0 to 1; `rate` is offered, None when there is none or no limit.
    """

    phase: str
    step: int = 1
    share: float = 0.0
    rate: int | None = None


@dataclass(frozen=True)
class Measured:
    """Figures of one system, workload and number of queries; rates in tuples a second and stream.

    `sustained` tells whether `sustainable` is the highest rate that was sustained. When none was, it is the rate at
    which the system took what was too much for it in the last step. `processor_cores` is how many cores its processes
    kept busy while latency was looked at. `not_measured` says in words which other figures are missing, and why.
    `unsupported` is the system's reason why it
    cannot run such queries at all; then there is no row.
    """

    system: str
    source: str
    workload: str
    queries: int
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    sustained: bool = False
    sustainable: float | None = None
    slowest: float | None = None
    overall: float | None = None
    event_time_latency: Quantiles | None = None
    processing_time_latency: Quantiles | None = None
    deployment_latency: Quantiles | None = None
    query_throughput: float | None = None
    processor_cores: float | None = None
    error: str | None = None
    not_measured: str | None = None
    unsupported: str | None = None
    series: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    steps: tuple[StepResult, ...] = ()

    def row(self) -> dict[str, Any]:
        """Return the result row of `report.json`.

        Raises:
            ValueError: the system does not support the queries, which is listed apart.
        """
        if self.unsupported is not None:
            raise ValueError(f"there is no row of what {self.system} does not support: {self.unsupported}")
        steps_of_row = [asdict(step) for step in self.steps]
        for step in steps_of_row:
            del step["consumers"]
        return {
            "system": self.system,
            "workload": self.workload,
            "queries": self.queries,
            "sustainable_tuples_per_second": self.sustainable,
            "overall_tuples_per_second": self.overall,
            "event_time_latency_seconds": self.event_time_latency,
            "processing_time_latency_seconds": self.processing_time_latency,
            "deployment_latency_seconds": self.deployment_latency,
            "sustained": self.sustained,
            "seed": self.seed,
            "settings": self.settings,
            "source": self.source,
            "slowest_tuples_per_second": self.slowest,
            "query_throughput_per_second": self.query_throughput,
            "processor_cores": self.processor_cores,
            "error": self.error,
            "not_measured": self.not_measured,
            "series": {**dict.fromkeys(("queue_length", "latency", "pull_interval", "rate"), ()), **self.series},
            "steps": steps_of_row,
        }


def series_of(run: steps.StepRun) -> dict[str, list[list[float]]]:
    """Return the series of a step, each point beginning with the seconds since the step began.

    Queue length is that of the longest queue; a pull interval the longest of a second of one consumer.
    """
    lengths: dict[int, list[float]] = {}
    intervals: dict[int, float] = {}
    for log in run.logs.values():
        for point in throughput.queue_points(log.samples, run.begin, run.end, log.consumers):
            tenth = lengths.setdefault(int((point.at - run.begin) * 10), [point.at - run.begin, 0.0])
            tenth[1] = max(tenth[1], float(point.length))
        for consumer in log.consumers:
            times = [pull.at for pull in log.pulls if pull.consumer == consumer and run.begin <= pull.at <= run.end]
            for previous, at in pairwise(times):
                second = int(at - run.begin)
                intervals[second] = max(intervals.get(second, 0.0), at - previous)
    return {
        "queue_length": [lengths[tenth] for tenth in sorted(lengths)],
        "latency": latency.latency_series(steps.event_time_latencies(run, warm=False), run.begin),
        "pull_interval": [[float(second), interval] for second, interval in sorted(intervals.items())],
        "rate": _offered(run.profile),
    }


def _offered(profile: Sequence[tuple[float, int | None]]) -> list[list[float]]:
    """Return the corners of the rate that was offered."""
    corners, elapsed = [], 0.0
    for seconds, rate in profile:
        if rate is not None:
            corners += [[elapsed, float(rate)], [elapsed + seconds, float(rate)]]
        elapsed += seconds
    return corners
