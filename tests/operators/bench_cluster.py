"""What grows with a cluster and not with its tuples: control rows, batch records, what each worker knows of queries.

`pytest tests/operators/bench_cluster.py`, with pytest-benchmark; docs/scaling.md calculates with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from braid.engine.data_layout import BATCHES
from braid.engine.plan_log import PlanLog
from braid.engine.planning.batch_progress import progress_of
from braid.engine.planning.offsets import Offset
from braid.engine.sink import publish
from braid.engine.source_task import SourceTasks
from braid.engine.wire import BLOCK, OUTCOME, PROGRESS, to_batch
from braid.operators.live_queries import LiveQueries
from braid.operators.stream_operators import StreamOperators
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage
from tests.operators.bench_operators import STREAM, queries

WORKER = """
import os, sys
import psutil
from braid.operators.stream_operators import StreamOperators
from tests.operators.bench_operators import STREAM, queries
from braid.operators import kernels
kernels.warm_up()
memory = psutil.Process(os.getpid()).memory_info
before = memory().rss
live = queries(int(sys.argv[1]))
operators = StreamOperators(live, STREAM, 2)
print(memory().rss - before)
"""


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


@pytest.mark.parametrize("partitions", [2, 32, 200])
def test_control_rows_of_a_source_task(benchmark: Any, storage: Storage, partitions: int) -> None:
    """A source task that reads nothing says so to every partition."""
    tasks = SourceTasks(storage, PlanLog(storage), list(range(partitions)))
    rows = benchmark(lambda: to_batch(list(tasks.run(Offset(), Offset(seq=1), 0, partitions))))
    benchmark.extra_info["bytes"] = rows.nbytes
    assert rows.num_rows == partitions


@pytest.mark.parametrize("tasks", [2, 32, 200])
def test_control_rows_at_a_partition(benchmark: Any, storage: Storage, tasks: int) -> None:
    """A partition brings together what the source tasks say."""
    each = SourceTasks(storage, PlanLog(storage), [0])
    bodies = [row.body for task in range(tasks) for row in each.run(Offset(), Offset(seq=1), task, tasks)]
    progress = benchmark(lambda: progress_of([orjson.loads(body) for body in bodies], Offset(), Offset(seq=1)))
    assert len(progress["source_busy_us"]) == tasks


@pytest.mark.parametrize(
    ("partitions", "fired"), [(2, 10_000), (32, 10_000), (200, 10_000), (2, 100_000), (32, 100_000)]
)
def test_publishing_a_batch(benchmark: Any, storage: Storage, partitions: int, fired: int) -> None:
    """Each partition fires windows of so many queries, which the batch record counts by slot."""
    progress = {"seq": 1, "epoch": 1, "previous_epoch": 1, "clocks_at_start": {}, "started_us": 1, "failures": {}}
    slots = list(range(fired))
    times = [1_700_000_000_000_000] * fired
    block = {"path": "results/x", "kind": "aggregation", "slots": slots, "counts": slots, "latest_event_us": times}
    state = {"progress": 1, "bytes": 0, "busy_us": 0, "failures": {}, "path": None, "partition": 0}
    rows = [(PROGRESS, orjson.dumps(progress).decode())]
    rows += [(kind, orjson.dumps(body).decode()) for kind, body in ((BLOCK, block), (OUTCOME, state))] * partitions
    log = RecordLog(storage, BATCHES)

    def run() -> None:
        publish(storage, 1, rows)
        log.trim(1)

    benchmark.pedantic(run, rounds=3)
    publish(storage, 1, rows)
    benchmark.extra_info["bytes"] = storage.size(BATCHES)
    assert len(log.read(1)["results"]) == partitions


@pytest.mark.parametrize("count", [1000, 10_000, 100_000])
def test_a_worker_learns_the_queries(benchmark: Any, count: int) -> None:
    """A process that starts reads the plan and compiles the operators of a stream."""
    plan = queries(count).to_json()

    def run() -> StreamOperators:
        return StreamOperators(LiveQueries(plan), STREAM, 2)

    operators = benchmark.pedantic(run, rounds=1)
    worker = subprocess.run([sys.executable, "-c", WORKER, str(count)], capture_output=True, check=True, env=os.environ)
    benchmark.extra_info["worker_bytes"] = int(worker.stdout)
    assert len(operators.queries) == count
