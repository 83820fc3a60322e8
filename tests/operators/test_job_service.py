"""What Spark keeps of the job, seen on a running service."""

from __future__ import annotations

import uuid

import psutil
import pytest

from operators.job.spark_conf import KEPT_MEMORY
from tests.kit.client import Api
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.service

# the state store looks for what is to be snapshotted once a minute
SNAPSHOT_SECONDS = 180.0


@pytest.mark.long
def test_state_is_snapshotted_so_that_a_restart_does_not_replay_everything(service: RunningService, api: Api) -> None:
    """Without snapshots the changes of every batch would be kept, and Spark gives a job up after ten minutes."""
    stream = f"snapshots_{uuid.uuid4().hex[:8]}"
    api.create_stream(
        f"CREATE STREAM {stream} (k INT, t TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push')"
    )
    api.create_queries([{"sql": f"SELECT COUNT(*) AS n FROM {stream} [RANGE 1 HOUR]"}])
    state = service.data_dir / "checkpoint" / "state"

    def has_a_snapshot() -> bool:
        api.push(stream, "application/x-ndjson", b'{"k": 1, "t": "2026-01-01T00:00:00Z"}')
        return any(int(snapshot.stem) > 1 for snapshot in state.glob("*/*/*.zip"))

    wait_until(has_a_snapshot, SNAPSHOT_SECONDS, "a snapshot of the state of a later batch is there")
    assert "snapshot maintenance" not in (service.data_dir / "logs" / "job.log").read_text(encoding="utf-8")


def test_processes_that_compute_keep_the_memory_that_they_free(service: RunningService, api: Api) -> None:
    stream = f"memory_{uuid.uuid4().hex[:8]}"
    api.create_stream(
        f"CREATE STREAM {stream} (k INT, t TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push')"
    )
    api.push(stream, "application/x-ndjson", b'{"k": 1, "t": "2026-01-01T00:00:00Z"}')
    wanted = {name.removeprefix("spark.executorEnv."): value for name, value in KEPT_MEMORY.items()}

    def is_worker(process: psutil.Process) -> bool:
        return process.cmdline()[-1:] == ["pyspark.worker"]

    wait_until(lambda: service.descendants(is_worker), 30.0, "a batch has run")
    for worker in service.descendants(is_worker):
        assert wanted.items() <= worker.environ().items()
