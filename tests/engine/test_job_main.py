"""What the process of the Spark driver writes down, and when."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from braid.engine import job_main
from braid.engine.data_layout import read_partitions
from braid.engine.job_main import Job
from braid.engine.pipeline import JobSettings, settle_partitions
from braid.sources.core.storage import Storage


def test_a_start_that_fails_does_not_settle_the_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(settings: JobSettings) -> None:
        raise ValueError(f"Could not parse Master URL: {settings.master!r}")

    def start(_: JobSettings) -> SimpleNamespace:
        return SimpleNamespace(sparkContext=None)

    class Started(Exception):
        pass

    def go_on(*_: object) -> None:
        raise Started

    storage = Storage(str(tmp_path))
    settings = JobSettings(storage.uri, "lokal[2]", partitions=8, target_seconds=1.0, join_row_limit=1)
    monkeypatch.setattr(job_main, "start_spark", refuse)
    with pytest.raises(ValueError, match="lokal"):
        Job(storage, settings).run()
    assert read_partitions(storage) is None
    monkeypatch.setattr(job_main, "start_spark", start)
    monkeypatch.setattr(job_main.SparkContext, "_gateway", SimpleNamespace(proc=SimpleNamespace(pid=1)))
    monkeypatch.setattr(job_main, "ExecutorPool", go_on)
    with pytest.raises(Started):
        Job(storage, settings).run()
    assert read_partitions(storage) == 8
    settle_partitions(storage, 2)
    assert read_partitions(storage) == 8
