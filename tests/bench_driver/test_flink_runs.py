"""Flink SQL as a system under test, really run.

It takes minutes and Flink's environment of 800 MB: `BRAID_TEST_FLINK=1` has these tests.
"""

from __future__ import annotations

import os
import time

import psutil
import pytest

from braid.bench_driver.query_generator import generate_queries
from braid.bench_driver.query_spec import ColumnRef, QuerySpec, WindowSpec
from braid.bench_driver.systems.flink_system import (
    JOBS,
    STATEMENT_SET,
    FlinkSystem,
)
from braid.bench_driver.systems.system import UnsupportedError
from braid.bench_driver.workload import Churn, load_workload
from tests.bench_driver.sums_of_a_stream import AT_ONCE, aggregation, workload
from tests.kit.waiting import wait_until

RATE = 2_000
WORKLOAD = workload(RATE)
REAL_SECONDS = 120.0
# counters come late, and then all at once
RATE_SECONDS = 8.0

real = pytest.mark.skipif(
    not os.environ.get("BRAID_TEST_FLINK"),
    reason="a real Flink takes minutes and an environment of 800 MB: set BRAID_TEST_FLINK=1",
)


@real
def test_a_real_run_of_jobs() -> None:
    """Two jobs, one that another takes the place of, and another rate: rows with event times, nothing left."""
    system = FlinkSystem(JOBS)
    before = set(psutil.Process().children(recursive=True))
    try:
        system.start(WORKLOAD, {})
        system.offer(RATE)
        began = time.time()
        deployed = system.deploy([aggregation(500), aggregation(900)], per_second=10)
        assert deployed.queries == len(deployed.latencies) == 2
        assert 0 < min(deployed.latencies) <= max(deployed.latencies) <= deployed.seconds
        wait_until(lambda: len({output.event_time for output in system.outputs()}) > 2, REAL_SECONDS, "windows come")
        first = system.outputs()[0]
        assert began <= first.event_time < first.arrived <= time.time()
        wait_for_rate(system, RATE)

        system.begin_churn([aggregation(700)], Churn(1, 3600.0))
        churned = system.end_churn()
        assert churned.queries == len(churned.latencies) == len(churned.deletions) == 1

        system.offer(5 * RATE)
        wait_for_rate(system, 5 * RATE)
        assert system.settings()["version"].startswith("2.")
        started_by_it = set(psutil.Process().children(recursive=True)) - before
        assert sum("java" in command(process) for process in started_by_it) >= 2
    finally:
        system.stop()
    assert [process for process in started_by_it if command(process)] == []


@real
def test_a_real_run_of_a_statement_set() -> None:
    """A refusal has the words of Flink; what it takes runs as one job as fast as it can."""
    system = FlinkSystem(STATEMENT_SET)
    try:
        system.start(WORKLOAD, {})
        with pytest.raises(UnsupportedError, match="colour"):
            system.deploy([aggregation(1), QuerySpec(("a",), WindowSpec(1, 1), columns=(ColumnRef("a", "colour"),))], 1)
        system.start(WORKLOAD, {})
        deployed = system.deploy([aggregation(constant) for constant in range(100, 110)], AT_ONCE)
        assert (deployed.queries, deployed.latencies) == (10, ())
        wait_until(lambda: len({output.event_time for output in system.outputs()}) > 2, REAL_SECONDS, "windows come")
        wait_until(lambda: system.taken() and system.taken()[-1][1] > 10 * RATE, REAL_SECONDS, "tuples are taken")
        assert system.settings()["jobs"] == 1
    finally:
        system.stop()


@real
def test_a_real_run_of_nexmark() -> None:
    """Flink takes all of its queries; tuples come at the rate of the workload, and rows with event times."""
    workload = load_workload("nexmark")
    system = FlinkSystem(STATEMENT_SET)
    try:
        system.start(workload, {})
        system.offer(RATE)
        assert system.deploy(generate_queries(workload, *workload.counts, 1), AT_ONCE).queries == 20
        wait_until(lambda: len({output.event_time for output in system.outputs()}) > 2, REAL_SECONDS, "rows come")
        wait_for_rate(system, RATE)
    finally:
        system.stop()


def wait_for_rate(system: FlinkSystem, rate: float) -> None:
    """Wait until tuples were taken at this rate for a while; before, what waited while it started is caught up with."""

    def held() -> bool:
        points = system.taken()
        began = next((point for point in reversed(points) if points[-1][0] - point[0] >= RATE_SECONDS), None)
        if began is None:
            return False
        (ended, after), (start, before) = points[-1], began
        return (after - before) / (ended - start) == pytest.approx(rate, rel=0.3)

    wait_until(held, REAL_SECONDS, f"tuples are taken at {rate:g} a second for {RATE_SECONDS:g} s")


def command(process: psutil.Process) -> str:
    """Return its command line, empty when it has ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""
