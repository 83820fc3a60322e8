"""DuckDB over micro-batches as a system under test: a real process that pulls from a real queue.

That its rows are DuckDB's is in `tests/operators/test_mixed_rows.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from braid.bench_driver.mixed_query import Aggregate, MixedQuery
from braid.bench_driver.peers.duckdb_program import MAX_ROWS, MIN_ROWS, bound_batch
from braid.bench_driver.query_generator import generate_queries
from braid.bench_driver.query_spec import WindowSpec
from braid.bench_driver.queues.process import QueueProcess
from braid.bench_driver.systems.duckdb_system import DuckdbSystem
from braid.bench_driver.systems.system import SystemFailedError, UnsupportedError
from braid.bench_driver.workload import Churn, Workload, load_workload
from tests.kit.waiting import wait_until

OPTIONS = ":selections=0.2:sessions=0.2:table_joins=0.2:distinct=0.2:having=0.2"


@pytest.fixture
def workload() -> Workload:
    return load_workload("mixed-trips" + OPTIONS)


@pytest.fixture
def queue(workload: Workload) -> Iterator[QueueProcess]:
    (stream,) = workload.streams
    with QueueProcess(stream.name, stream.dataset, stream.options, seed=1) as process:
        yield process


@pytest.fixture
def duckdb(workload: Workload, queue: QueueProcess) -> Iterator[DuckdbSystem]:
    system = DuckdbSystem()
    system.start(workload, {"trips": queue.location})
    yield system
    system.stop()


def test_it_pulls_from_the_queue_and_its_probes_tell_how_late_rows_come(
    duckdb: DuckdbSystem, workload: Workload, queue: QueueProcess
) -> None:
    queue.run(int(time.time() * 1e6), [(None, 5000)])
    deployment = duckdb.deploy(generate_queries(workload, 20, 3), 100.0)
    assert (deployment.queries, len(deployment.latencies)) == (20, 20)
    assert 0 < max(deployment.latencies) <= deployment.seconds + 0.1
    wait_until(lambda: len({output.arrived for output in duckdb.outputs()}) >= 3, 60, "three batches give rows")
    assert all(0 < output.arrived - output.event_time < 60 and output.rows > 0 for output in duckdb.outputs())
    assert {pull.consumer for pull in queue.pulls()} == {"duckdb"}
    pulls = queue.pulls()
    assert all(before.end == after.start for before, after in pairwise(pulls))
    assert (duckdb.processor_seconds() or 0) > 0
    settings = duckdb.settings()
    assert (settings["threads_of_a_database"], settings["max_rows_of_a_batch"]) == (1, bound_batch(20))
    assert (duckdb.taken(), duckdb.left_out(), duckdb.missing(0)) == ([], None, None)


def test_what_duckdb_cannot_run_is_unsupported_in_its_own_words(duckdb: DuckdbSystem) -> None:
    query = MixedQuery("trips", "colour = 1", (), (Aggregate("count", "*"),), WindowSpec(1000, 1000))
    with pytest.raises(UnsupportedError, match=r"DuckDB: .*colour"):
        duckdb.deploy([query], 100.0)


def test_queries_of_other_workloads_and_churn_are_unsupported(duckdb: DuckdbSystem) -> None:
    with pytest.raises(UnsupportedError, match="mixed workloads only"):
        duckdb.deploy(generate_queries(load_workload("astream-sc1"), 1, 1), 1.0)
    with pytest.raises(UnsupportedError, match="queries that stay"):
        duckdb.begin_churn([], Churn(1, 1.0))
    with pytest.raises(UnsupportedError, match="reads one stream"):
        DuckdbSystem().start(load_workload("rovio-join"), {})


def test_it_fails_in_words_when_its_queue_is_gone(
    duckdb: DuckdbSystem, workload: Workload, queue: QueueProcess
) -> None:
    duckdb.deploy(generate_queries(workload, 2, 3), 100.0)
    queue.stop()

    with pytest.raises(SystemFailedError, match=r"duckdb-batches.*[Cc]onnect"):
        wait_until(lambda: duckdb.outputs() is None, 30, "the process says that it failed")


def test_a_batch_is_bounded_by_the_work_that_it_is() -> None:
    assert [bound_batch(queries) for queries in (1, 100, 1000, 5000)] == [MAX_ROWS, 2_000_000, 200_000, MIN_ROWS]
