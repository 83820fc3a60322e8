"""What Spark keeps of the job, seen on a running service."""

from __future__ import annotations

import uuid
from pathlib import Path

import psutil
import pytest

from braid.engine.spark import class_archive
from braid.engine.spark.spark_conf import KEPT_MEMORY
from tests.kit.client import Api
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.service


@pytest.mark.long
def test_files_of_partitions_go_once_a_later_state_is_published(service: RunningService, api: Api) -> None:
    stream = f"states_{uuid.uuid4().hex[:8]}"
    api.create_stream(
        f"CREATE STREAM {stream} (k INT, t TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push')"
    )
    api.create_queries([{"sql": f"SELECT COUNT(*) AS n FROM {stream} [RANGE 1 HOUR]"}])
    states, seen = service.data_dir / "states", set[str]()

    def first_are_gone() -> bool:
        api.push(stream, "application/x-ndjson", b'{"k": 1, "t": "2026-01-01T00:00:00Z"}')
        names = {path.name for path in states.glob("*")}
        seen.update(names)
        return len(seen) > 20 and len(names) < len(seen) / 2

    wait_until(first_are_gone, 60.0, "most of what partitions wrote is gone")


def test_processes_that_compute_keep_the_memory_that_they_free(service: RunningService, api: Api) -> None:
    stream = f"memory_{uuid.uuid4().hex[:8]}"
    api.create_stream(
        f"CREATE STREAM {stream} (k INT, t TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push')"
    )
    api.push(stream, "application/x-ndjson", b'{"k": 1, "t": "2026-01-01T00:00:00Z"}')
    expected = KEPT_MEMORY

    def is_worker(process: psutil.Process) -> bool:
        return process.cmdline()[-1:] == ["pyspark.worker"]

    wait_until(lambda: service.descendants(is_worker), 30.0, "a batch has run")
    for worker in service.descendants(is_worker):
        assert expected.items() <= worker.environ().items()


def test_the_jvm_takes_its_classes_from_the_archive_that_setting_up_wrote(service: RunningService) -> None:
    jvms = service.descendants(lambda process: process.name() == "java")
    assert len(jvms) == 1
    mapped = Path(f"/proc/{jvms[0].pid}/maps").read_text(encoding="utf-8")
    assert class_archive.PATH.exists(), "make setup writes it"
    assert str(class_archive.PATH) in mapped, "and a JVM maps what fits"
