"""Stock Spark as a system under test: what it is asked to run, how it reads the queues, and one real run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from braid.bench_driver.peers.flight_source import (
    ROWS_WORTH_A_TASK,
    FlightReader,
    arrow_schema,
    declared,
    next_end,
    source_options,
    split,
)
from braid.bench_driver.peers.spark_program import generated_columns
from braid.bench_driver.query_load.consume import latest_of
from braid.bench_driver.query_spec import ColumnRef
from braid.bench_driver.queues.datasets import DATASETS
from braid.bench_driver.queues.process import QueueProcess
from braid.bench_driver.systems.spark_system import (
    MIN_ROWS_PER_BATCH,
    PROBES,
    ROWS_PER_BATCH,
    SparkSystem,
    bound_batch,
    deploy_seconds,
    statements,
)
from braid.bench_driver.systems.system import OWN_GENERATOR, QUEUE, SystemFailedError, UnsupportedError
from braid.bench_driver.workload import Churn
from tests.bench_driver.sums_of_a_stream import aggregation, workload
from tests.kit.waiting import wait_until
from tests.sources.scripted_server import Script, serving

SECONDS = 90.0
RATE = 20_000

WORKLOAD = workload(RATE)


def microseconds(*times: int) -> pa.Array:
    return pa.array(times, pa.timestamp("us", "UTC"))


def test_names_tell_the_source() -> None:
    assert SparkSystem("spark-queries").source == QUEUE
    assert SparkSystem("spark-fused-own").source == OWN_GENERATOR
    with pytest.raises(ValueError, match=r"must be one of .*'spark-fused'"):
        SparkSystem("spark")


def test_one_streaming_query_each_of_which_a_few_are_probes() -> None:
    streaming = statements([aggregation(i) for i in range(20)], fused=False)
    assert len(streaming) == 20
    assert sum(statement.probe for statement in streaming) == PROBES
    assert all(("latest" in statement.sql) == statement.probe for statement in streaming)
    assert {statement.streams for statement in streaming} == {("a",)}


def test_fewer_queries_than_probes_are_all_probes() -> None:
    assert [statement.probe for statement in statements([aggregation(1), aggregation(2)], fused=False)] == [True, True]


def test_queries_are_fused_by_window() -> None:
    fused = statements([aggregation(i, size_ms=1000 * (1 + i % 2)) for i in range(10)], fused=True)
    assert [statement.sql.count("CASE WHEN") for statement in fused] == [5, 5]
    assert len(statements([aggregation(i) for i in range(10)], fused=True)) == 1


def test_what_has_no_sum_cannot_be_fused() -> None:
    without_sum = replace(aggregation(1), measure=None, keys=(), columns=(ColumnRef("a", "key"),))
    with pytest.raises(UnsupportedError, match="cannot be fused by hand"):
        statements([without_sum, without_sum], fused=True)


def test_a_fused_query_has_no_churn() -> None:
    with pytest.raises(UnsupportedError, match="static"):
        SparkSystem("spark-fused").begin_churn([aggregation(1)], Churn(1, 1.0))
    with pytest.raises(SystemFailedError, match="must be begun"):
        SparkSystem("spark-queries").end_churn()


def test_the_deadline_grows_with_the_queries_up_to_ten_minutes() -> None:
    assert [deploy_seconds(queries) for queries in (1, 20, 1000)] == [144.0, 600.0, 600.0]


def test_a_batch_is_bounded_by_what_all_queries_share() -> None:
    assert bound_batch(1) == ROWS_PER_BATCH
    assert bound_batch(20) == ROWS_PER_BATCH // 20
    assert bound_batch(100_000) == MIN_ROWS_PER_BATCH


def test_stopping_what_never_started_is_harmless() -> None:
    system = SparkSystem("spark-queries")
    system.stop()
    system.stop()


def test_a_batch_ends_at_the_bound_and_passes_over_what_is_not_kept() -> None:
    assert next_end({"0": 10}, {"0": (0, 100)}, None) == {"0": 100}
    assert next_end({"0": 10}, {"0": (0, 100)}, 30) == {"0": 40}
    assert next_end({"0": 10}, {"0": (50, 100)}, 30) == {"0": 80}
    assert next_end({"0": 100}, {"0": (0, 100)}, 30) == {"0": 100}
    assert next_end({"0": 0, "1": 0}, {"0": (0, 100), "1": (0, 5)}, 30) == {"0": 15, "1": 5}


def test_ranges_cover_a_batch_and_are_worth_a_task() -> None:
    assert split(7, 7, 4) == []
    assert split(7, 8, 4) == [(7, 8)]
    end = 5 + 2 * ROWS_WORTH_A_TASK
    assert split(5, end, 4) == [(5, 5 + ROWS_WORTH_A_TASK), (5 + ROWS_WORTH_A_TASK, end)]


def test_the_event_time_of_a_row_is_its_newest_tuple() -> None:
    sums = {"total": [1, 2, 3], "latest": microseconds(1_000_000, 1_000_900, 2_500_000)}
    assert latest_of([pa.table(sums)]) == [[1.0, 2], [2.5, 1]]
    pairs = {"time_0": microseconds(5000, 1000), "time_1": microseconds(2000, 9000)}
    assert latest_of([pa.table(pairs)]) == [[0.005, 1], [0.009, 1]]


@pytest.mark.parametrize("dataset", ["ads", "ajoin", "astream", "purchases"])
@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_the_own_generator_has_the_columns_of_the_datasets(dataset: str, distribution: str) -> None:
    spec = DATASETS[dataset]
    options = {"distribution": distribution} if "distribution" in spec.defaults else {}
    columns = generated_columns(dataset, spec.options(options), "a")
    assert [*columns, "time"] == [name for name, _ in spec.columns]


def test_batches_get_the_declared_columns_and_types() -> None:
    schema = arrow_schema(StructType().add("time", "timestamp").add("key", "long"))
    batch = pa.record_batch(
        {"key": pa.array([1], pa.int32()), "more": [2], "time": pa.array([3], pa.timestamp("us"))},
    )
    assert declared(batch, schema).schema == schema
    assert declared(batch, schema).to_pylist()[0]["key"] == 1
    with pytest.raises(ValueError, match="'name' must be one of"):
        arrow_schema(StructType().add("name", "string"))


@pytest.fixture
def queue() -> Iterator[QueueProcess]:
    with QueueProcess("a", "astream", {"keys": 10}, seed=1) as process:
        yield process


def test_the_data_source_reads_what_the_queue_has(queue: QueueProcess) -> None:
    schema = StructType().add("time", "timestamp").add("key", "integer")
    reader = FlightReader(schema, source_options(queue.location, "a", "me", tasks=2, most=50_000))
    start = reader.initialOffset()
    assert start == {"0": 0}
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert list(reader.partitions(start, start)) == []
    queue.run(int((time.time() - 1) * 1e6), [(1.0, 60_000)])
    assert reader.getDefaultReadLimit() == ReadMaxRows(50_000)
    end = reader.latestOffset(start, ReadMaxRows(50_000))
    assert end == {"0": 50_000}
    ranges = reader.partitions(start, end)
    assert len(ranges) == 2
    table = pa.Table.from_batches([batch for partition in ranges for batch in reader.read(partition)])
    assert table.schema == arrow_schema(schema)
    assert np.array_equal(table["key"].to_numpy(), np.arange(50_000) % 10)
    client = flight.FlightClient(queue.location)
    direct = client.do_get(flight.Ticket(b'{"path": "a", "partition": "0", "start": 0, "end": 50000}'))
    times = pa.chunked_array([chunk.data["time"] for chunk in direct])
    assert table["time"].cast(pa.int64()).equals(times.cast(pa.int64()))
    assert {pull.consumer for pull in queue.pulls()} == {"me", ""}


def test_a_read_that_the_server_cancels_fails_and_interrupts_nobody() -> None:
    schema = StructType().add("time", "timestamp")
    script = Script({"0": (0, pa.table({"time": microseconds(*range(10))}))}, failures=[1])
    script.failure = flight.FlightCancelledError
    with serving(script) as server:
        location = f"grpc://127.0.0.1:{server.port}"
        reader = FlightReader(schema, source_options(location, "a", "me", tasks=1, most=None))
        (task,) = reader.partitions({"0": 0}, {"0": 10})
        batches = reader.read(task)
        assert next(batches).num_rows == script.batch_rows
        with pytest.raises(flight.FlightCancelledError, match="tripped over a cable"):
            list(batches)
        # Spark runs the task again
        assert sum(batch.num_rows for batch in reader.read(task)) == 10


@pytest.mark.long
def test_a_real_run_from_the_queue(queue: QueueProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that another takes the place of: rows with event times, one consumer at the queue, nothing left."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # it is soon over
    system = SparkSystem("spark-queries")
    before = set(psutil.Process().children(recursive=True))
    try:
        system.start(WORKLOAD, {"a": queue.location})
        deployed = system.deploy([aggregation(500)], per_second=10)
        assert deployed.queries == len(deployed.latencies) == 1
        assert 0 < deployed.latencies[0] <= deployed.seconds
        began = time.time()
        queue.run(int(began * 1e6), [(None, RATE)])
        windows = lambda: len({output.event_time for output in system.outputs()}) > 1  # noqa: E731
        wait_until(windows, SECONDS, "results of several windows come")
        first = system.outputs()[0]
        assert began <= first.event_time < first.arrived <= time.time()
        system.begin_churn([aggregation(900)], Churn(1, 3600.0))
        churned = system.end_churn()
        assert len(churned.latencies) == len(churned.deletions) == 1
        assert {pull.consumer for pull in queue.pulls()} == {"spark-0"}
        assert system.settings()["streaming_queries"] == 1
        assert system.taken() == []
        started = set(psutil.Process().children(recursive=True)) - before
        assert any("java" in command(process) for process in started)
    finally:
        system.stop()
    assert [process for process in started if command(process)] == []


def command(process: psutil.Process) -> str:
    """Return its command line, empty when it has ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""
