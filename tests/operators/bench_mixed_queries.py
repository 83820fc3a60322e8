"""What mixed queries cost the kernels, beside DuckDB running each query by itself: processor time, in alternation.

The *source* side: a source task makes buckets of half a million tuples, and writes them; DuckDB adds partial aggregates
of them to tables. The *partition* side, over as many tuples, second by second: partitions read the buckets of a second,
fire the windows that have ended and write their blocks, and the rows of all queries are formed as Arrow; DuckDB merges
partial aggregates and reads rows as Arrow. All in one process, DuckDB with two threads.

``make bench-kernels``, or ``python -m tests.operators.bench_mixed_queries mixed-bids --queries 100 --side source``
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from braid.bench_driver.mixed_query import MixedQuery
from braid.bench_driver.peers.duckdb_batches import DuckdbBatches
from braid.bench_driver.query_generator import generate_queries
from braid.bench_driver.queues.mixed_datasets import static_table
from braid.bench_driver.report.text import table
from braid.bench_driver.workload import Workload, load_workload
from braid.engine.planning.offsets import Offset
from braid.engine.spark.spark_conf import KEPT_MEMORY
from tests.operators.job_in_process import PARTITIONS
from tests.operators.mixed_job import MixedJob, seconds_of, tuples_of

WORKLOADS = ("mixed-bids", "mixed-trips")
TUPLES = {"bids": 460_000, "trips": 500_000}
SOURCE_SECONDS = {"bids": 5.0, "trips": 1.0}
THREADS = 2
SEED = 9
SIDES = ("source", "partition")


@dataclass
class Timer:
    """Processor time of this process by what it was spent on, in seconds."""

    spent: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Count what is done inside."""
        began = time.process_time()
        yield
        self.spent[name] = self.spent.get(name, 0.0) + time.process_time() - began


@dataclass(frozen=True)
class Case:
    """So many queries of a workload, and tuples for them that take `seconds` to come."""

    workload: Workload
    queries: Sequence[MixedQuery]
    seconds: float

    @property
    def tuples(self) -> pa.Table:
        """The tuples, made anew."""
        return tuples_of(self.workload, TUPLES[self.workload.streams[0].dataset], self.seconds, SEED)


def case_of(name: str, count: int, seconds: float | None) -> Case:
    """Return a case; the tuples of the source side come in `SOURCE_SECONDS`."""
    workload = load_workload(name)
    queries = [query for query in generate_queries(workload, count, SEED) if isinstance(query, MixedQuery)]
    return Case(workload, queries, seconds or SOURCE_SECONDS[workload.streams[0].dataset])


def duckdb_with(case: Case, tuples: pa.Table) -> DuckdbBatches:
    """Return DuckDB with all queries of a case."""
    tables = [(name, static_table(name)) for name in case.workload.tables]
    duckdb = DuckdbBatches(tuples.schema, tables, THREADS)
    for number, query in enumerate(case.queries):
        duckdb.add(number, query)
    return duckdb


def source_side(case: Case, rounds: int) -> list[Timer]:
    """Return what a source task and DuckDB took for all tuples at once, round by round."""
    tuples, timers = case.tuples, []
    with tempfile.TemporaryDirectory() as folder:
        job = MixedJob(Path(folder), case.workload, case.queries)
        job.push_table(tuples)
        end = job.whole()
        for number in range(rounds + 1):
            timer, duckdb = Timer(), duckdb_with(case, tuples)
            with timer.of("Braid"):
                written = sum(len(row.payload) + len(row.body) for row in job.tasks.run(Offset(), end, 0, 1))
            with timer.of("DuckDB"):
                duckdb.take(tuples)
            duckdb.close()
            assert written
            timers += [timer] if number else []  # the first compiles
        job.close()
    return timers


def partition_side(case: Case, rounds: int) -> list[Timer]:
    """Return what partitions, forming rows and DuckDB took second by second, round by round; all give as many rows."""
    tuples, timers = case.tuples, []
    for number in range(rounds + 1):
        timer = Timer()
        if braid_by_second(case, tuples, timer) != duckdb_by_second(case, tuples, timer):
            raise AssertionError("Braid and DuckDB give different numbers of rows")
        timers += [timer] if number else []
    return timers


def braid_by_second(case: Case, tuples: pa.Table, timer: Timer) -> int:
    """Run a job over the tuples and return how many rows it gave."""
    rows = 0
    with tempfile.TemporaryDirectory() as folder:
        job = MixedJob(Path(folder), case.workload, case.queries)
        for second, part in enumerate(seconds_of(tuples), start=1):
            job.push_table(part)
            while (end := job.due(second)) is not None:
                with timer.of("source"):
                    sent = [row for task in PARTITIONS for row in job.tasks.run(job.offset, end, task, len(PARTITIONS))]
                with timer.of("partition"):
                    output = job.advance(dict.fromkeys(PARTITIONS, sent), job.partitions)
                job.publish(end, output)
            with timer.of("rows"):
                rows += sum(each.num_rows for each in job.new_rows().values())
        job.close()
    return rows


def duckdb_by_second(case: Case, tuples: pa.Table, timer: Timer) -> int:
    """Run DuckDB over the tuples and return how many rows it gave."""
    rows, duckdb = 0, duckdb_with(case, tuples)
    for part in seconds_of(tuples):
        with timer.of("DuckDB source"):
            duckdb.take(part)
        with timer.of("DuckDB partition"):
            rows += sum(each.num_rows for _, each in duckdb.fire())
    duckdb.close()
    return rows


def report(
    cases: Sequence[Case], measure: Callable[[Case, int], list[Timer]], rounds: int, ours: Sequence[str]
) -> None:
    """Measure all cases and print medians in µs of a core a tuple, and DuckDB's as multiples of what is `ours`."""
    lines: list[list[str]] = []
    for case in cases:
        timers, count = measure(case, rounds), TUPLES[case.workload.streams[0].dataset]
        names = list(timers[0].spent)
        medians = [f"{statistics.median(timer.spent[name] for timer in timers) / count * 1e6:.2f}" for name in names]
        theirs = [name for name in names if name.startswith("DuckDB")]
        multiples = [
            sum(timer.spent[name] for name in theirs) / sum(timer.spent[name] for name in ours) for timer in timers
        ]
        start = [case.workload.name, f"{len(case.queries):,}", f"{count / case.seconds:,.0f}"]
        if not lines:
            lines.append(["workload", "queries", "tuples/s", *(f"{name} µs" for name in names), "DuckDB / Braid"])
        lines.append(
            [*start, *medians, f"{statistics.median(multiples):.2f} ({min(multiples):.2f} … {max(multiples):.2f})"]
        )
        print("  ".join(lines[-1]), file=sys.stderr, flush=True)
    print(f"{table(lines)}\n", flush=True)


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=WORKLOADS, help="with options, such as mixed-bids:distinct=0.1")
    parser.add_argument("--queries", default="20,100,1000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12.0, help="in which the tuples of the partition side come")
    parser.add_argument("--side", choices=SIDES, action="append")
    options = parser.parse_args()
    if not KEPT_MEMORY.items() <= os.environ.items():  # as workers have it; glibc reads it when a process starts
        os.execve(sys.executable, [sys.executable, "-m", __spec__.name, *sys.argv[1:]], {**os.environ, **KEPT_MEMORY})
    counts = [int(count) for count in options.queries.split(",")]
    for side in options.side or SIDES:
        is_source = side == "source"
        seconds = None if is_source else options.seconds
        cases = [case_of(name, count, seconds) for name in options.workloads for count in counts]
        print(f"{side} side: µs of a core a tuple, medians of {options.rounds} rounds\n")
        if is_source:
            report(cases, source_side, options.rounds, ("Braid",))
        else:
            report(cases, partition_side, options.rounds, ("source", "partition", "rows"))


if __name__ == "__main__":
    main()
