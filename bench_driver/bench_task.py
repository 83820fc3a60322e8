"""The measurements of a benchmark: which there are, of which systems, and how one of them is taken."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from braid.bench_driver.measure.result import MeasureProgress
from braid.bench_driver.mixed_query import Query
from braid.bench_driver.query_load.probes import READ_PROBES
from braid.bench_driver.report.document import Row
from braid.bench_driver.report.summary import OURS
from braid.bench_driver.systems.system import System, UnsupportedError
from braid.bench_driver.workload import Workload

if TYPE_CHECKING:
    from braid.bench_driver.measure.run_settings import RunSettings

PEERS = {
    "spark": ("spark-queries", "spark-fused", "spark-queries-own", "spark-fused-own"),
    "flink": ("flink-jobs", "flink-statement-set"),
    "duckdb": ("duckdb-batches",),
}
# the largest number of queries of a quick run: it has to end within three minutes
QUICK_QUERIES = 20

# queries prepared for so many rounds of coming and going; after them they repeat
CHURN_ROUNDS = 40

_CLASSES = {
    OURS: ("braid.bench_driver.systems.braid_system", "BraidSystem"),
    "spark": ("braid.bench_driver.systems.spark_system", "SparkSystem"),
    "flink": ("braid.bench_driver.systems.flink_system", "FlinkSystem"),
    "duckdb": ("braid.bench_driver.systems.duckdb_system", "DuckdbSystem"),
}

Tell = Callable[[str, float | None], None]


@dataclass(frozen=True)
class Task:
    """One measurement; `number` is its round, from 1."""

    workload: Workload
    queries: int
    number: int
    system: str

    @property
    def label(self) -> str:
        """What is measured, in words."""
        queries = "1 query" if self.queries == 1 else f"{self.queries:,} queries"
        return f"{self.workload.name}, {queries}, {self.system}, round {self.number}"


@dataclass(frozen=True)
class Options:
    """How everything is measured; `seconds` is how long a step lasts, None for the default.

    `reading` tells whose rows of Braid's queries are read while it is measured, as the command line has it. With a
    `rate`, in tuples a second and stream, that one is offered and no sustainable throughput searched. `variants` are
    settings with which Braid is measured besides.
    """

    quick: bool
    rounds: int
    seconds: float | None
    seed: int
    reading: str = READ_PROBES
    rate: int | None = None
    variants: tuple[str, ...] = ()


Measure = Callable[[Task, Options, Tell], Row]


def resolve_peers(names: Sequence[str]) -> list[str]:
    """Return the systems that names stand for: of a family all, of a system itself.

    Raises:
        ValueError: there is no such peer; the text names what there is.
    """
    system_names = {name for family in PEERS.values() for name in family}
    systems: dict[str, None] = {}
    for name in names:
        if name not in PEERS and name not in system_names:
            available = "; ".join(f"{family} ({', '.join(members)})" for family, members in PEERS.items())
            raise ValueError(f"there is no peer {name!r}; there are {available}")
        systems.update(dict.fromkeys(PEERS.get(name, (name,))))
    return list(systems)


def make_system(name: str, reading: str = READ_PROBES) -> System:
    """Return a system under test by name, not started; its module is imported only now."""
    base, _, settings = name.partition(" ")
    module, class_name = _CLASSES[base.split("-")[0]]
    system_class = getattr(importlib.import_module(module), class_name)
    if base != OURS:
        return system_class(name)
    environment = {f"BRAID_{key.upper()}": value for key, value in _settings(settings).items()}
    return system_class(environment, reading=reading, name=name)


def variant(settings: str) -> str:
    """Return the name of Braid with other settings, such as ``query_groups=off,partitions=1``, as a system of its own.

    Raises:
        ValueError: that is not how settings are written.
    """
    return f"{OURS} {','.join(f'{name}={value}' for name, value in _settings(settings).items())}"


def _settings(text: str) -> dict[str, str]:
    parts = [part.partition("=") for part in text.split(",") if part]
    if not all(name.strip().isidentifier() and equals for name, equals, _ in parts):
        raise ValueError(f"settings are written as NAME=VALUE,…, such as query_groups=off; got {text!r}")
    return {name.strip().lower(): value.strip() for name, _, value in parts}


def plan(
    workloads: Sequence[Workload], counts: Sequence[int] | None, systems: Sequence[str], options: Options
) -> list[Task]:
    """Return all measurements in order: all systems take turns before the next round and the next number of queries."""
    return [
        Task(workload, queries, number, system)
        for workload in workloads
        for queries in _counts(workload, counts, options.quick)
        for number in range(1, options.rounds + 1)
        for system in systems
    ]


def measure_task(task: Task, options: Options, tell: Tell) -> Row:
    """Measure a task with the real system and real queues; each measurement gets new queues.

    Raises:
        UnsupportedError: the system cannot run such queries at all.
        Exception: whatever else keeps it from being measured.
    """
    from braid.bench_driver.measure.runner import measure as measure_system
    from braid.bench_driver.queues.process import QueueProcess

    settings = run_settings(options)
    rate = options.rate or task.workload.first_rate(task.queries)
    workload = replace(task.workload, start_rate=rate)
    queries, next_queries = _queries(task, options.seed)
    with contextlib.ExitStack() as stack:
        queues = {
            stream.name: stack.enter_context(
                QueueProcess(stream.name, stream.dataset, stream.options, options.seed + place, stream.share)
            )
            for place, stream in enumerate(workload.streams)
        }
        measured = measure_system(
            make_system(task.system, options.reading),
            workload,
            queries,
            queues,
            settings,
            lambda progress: tell(_phase_text(progress), progress.share),
            next_queries,
        )
    if measured.unsupported is not None:
        raise UnsupportedError(measured.unsupported)
    return measured.row()


def run_settings(options: Options) -> RunSettings:
    """Return how long and how exactly to measure: a given rate takes one step, and latency is looked at there.

    That is once the system has adapted to it.
    """
    from braid.bench_driver.measure.run_settings import RunSettings

    settings = RunSettings(seed=options.seed, quick=options.quick)
    if options.seconds is not None:
        settings = replace(settings, seconds=options.seconds)
    return settings if options.rate is None else replace(settings, max_steps=1, latency_load=1.0, adapts=True)


def _queries(task: Task, seed: int) -> tuple[list[Query], list[Query]]:
    """Return the queries of a task, and those that come later where queries come and go."""
    from braid.bench_driver.query_generator import generate_queries

    churn = task.workload.churn(task.queries)
    later = 0 if churn is None else CHURN_ROUNDS * churn.queries
    queries = generate_queries(task.workload, task.queries + later, seed)
    return queries[: task.queries], queries[task.queries :]


def _phase_text(progress: MeasureProgress) -> str:
    texts = {"search": f"search, step {progress.step}", "latency": "latency", "fluctuation": "fluctuating rate"}
    phase = texts.get(progress.phase, progress.phase)
    return phase if progress.rate is None else f"{phase}: {progress.rate:,.0f} tuples/s"


def _counts(workload: Workload, counts: Sequence[int] | None, quick: bool) -> list[int]:
    if counts is not None:
        return sorted(set(counts))
    if quick:
        small_counts = [count for count in workload.counts if count <= QUICK_QUERIES]
        return [max(small_counts) if small_counts else min(workload.counts)]
    return sorted(set(workload.counts))
