"""How many source tasks a batch has, and what becomes of a batch some of whose tasks ran twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from braid.engine.composite_source import TUPLES_WORTH_A_TASK, CompositeReader
from braid.engine.data_layout import BATCHES
from braid.engine.planning.offsets import Offset
from braid.engine.planning.planner import WARM_UP_BATCHES
from braid.engine.sink import publish
from braid.sources.core.errors import NotReady
from braid.sources.core.record_log import RecordLog
from braid.sources.core.schema import BIGINT, TIMESTAMP, Field, StreamDefinition, StreamSchema
from braid.sources.core.watermark_options import SECOND
from tests.operators.job_in_process import PARTITIONS, Job

NOW = 1_700_000_000 * SECOND
SCHEMA = StreamSchema((Field("k", BIGINT), Field("t", TIMESTAMP)), "t", 0)
SUMS = "SELECT k, COUNT(*) AS n FROM a [RANGE 10 SECONDS] GROUP BY k"


def tasks_of(reader: CompositeReader, tuples: int) -> int:
    start, end = Offset(), Offset(1, streams={"a": {"0": tuples}}, begins={"a": {"0": 0}})
    return len(reader.partitions(start.to_json(), end.to_json()))


def test_a_batch_has_as_many_tasks_as_it_has_tuples_for_and_partitions_at_most(tmp_path: Path) -> None:
    reader = CompositeReader(str(tmp_path), [0, 1, 2], 1.0, 0.2)
    assert [tasks_of(reader, n * TUPLES_WORTH_A_TASK + 1) for n in (0, 1, 2, 3, 9)] == [1, 1, 2, 3, 3]


def test_the_first_batches_have_a_task_for_each_partition_so_that_all_workers_load(tmp_path: Path) -> None:
    reader = CompositeReader(str(tmp_path), [0, 1, 2], 1.0, 0.2)
    assert tasks_of(reader, 1) == 1, "a batch with tuples has the same tasks whenever it runs"
    assert [tasks_of(reader, 0) for _ in range(WARM_UP_BATCHES + 2)] == [3] * WARM_UP_BATCHES + [1, 1]


def test_a_batch_that_partitions_saw_with_and_without_a_stream_is_not_published_but_run_again(tmp_path: Path) -> None:
    """An executor dies when one partition is done; its source tasks run again, and the stream is away."""
    running = Job(tmp_path, [StreamDefinition("a", "a", SCHEMA, "push", "json")], {"sums": SUMS})
    try:
        running.push("a", [{"k": k, "t": NOW + second * SECOND} for k in range(9) for second in (1, 20)])
        end = running.planner.latest(running.offset, NOW)
        read = running.read(end)
        segments = tmp_path / "streams" / "a" / "segments"
        segments.rename(tmp_path / "elsewhere")
        read_again = running.read(end)
        (tmp_path / "elsewhere").rename(segments)
        for rows in (
            {PARTITIONS[0]: read, PARTITIONS[1]: read_again},
            {PARTITIONS[0]: read_again, PARTITIONS[1]: read},
        ):
            with pytest.raises(NotReady, match="the same batch 1"):
                publish(running.storage, 1, running.advance(rows))
        assert RecordLog(running.storage, BATCHES).latest() == 0
        record = running.batch(end)
        assert record["streams"]["a"]["tuples"] == 18
        assert sorted(row["k"] for row in running.rows("sums")) == list(range(9))
    finally:
        running.close()
