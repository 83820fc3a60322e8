"""The composite source: one Spark data source over all streams, which come and go while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from braid.engine.data_layout import WARM_UP_BATCHES, noting_damage
from braid.engine.planning.offsets import Offset
from braid.engine.spark.worker_memory import freeze_garbage
from braid.engine.wire import WIRE_SCHEMA, to_batch
from braid.sources.core.storage import Storage

if TYPE_CHECKING:
    from braid.engine.planning.planner import Planner
    from braid.engine.source_task import SourceTasks

TUPLES_WORTH_A_TASK = 20_000

# Spark's question takes a millisecond of both processes, so while there is nothing to do the answer waits
_ANSWER_SECONDS, _LOOK_SECONDS = 0.25, 0.025

_SHARED: dict[str, SourceTasks] = {}


class CompositeSource(DataSource):
    """Options: ``uri`` of the data folder, ``partitions`` (JSON list), ``target_seconds`` of a batch and
    ``replay_share``, see
    :class:`~braid.engine.planning.replaying.ReplayBudget`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``readStream.format``."""
        return "braid-streams"

    def schema(self) -> str:
        """Return the schema of the rows to partitions."""
        return WIRE_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's names
        """Return the reader."""
        return CompositeReader(
            self.options["uri"],
            orjson.loads(self.options["partitions"]),
            float(self.options["target_seconds"]),
            float(self.options["replay_share"]),
        )


class CompositeReader(DataSourceStreamReader):
    """The planner half runs in one lasting process, ``read`` in the workers."""

    def __init__(self, uri: str, partitions: list[int], target_seconds: float, replay_share: float) -> None:
        self._uri = uri
        self._storage = Storage(uri)
        self._partitions = partitions
        self._target_seconds = target_seconds
        self._replay_share = replay_share
        self._planner: Planner | None = None
        self._warm_ups = WARM_UP_BATCHES

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset before all batches."""
        return Offset().to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, ARG002
        """Return the end of the next batch as soon as there is something to do, else ``start`` a little later."""
        if self._planner is None:
            from braid.engine.planning.planner import Planner  # as in read

            self._planner = Planner(self._storage, self._target_seconds, replay_share=self._replay_share)
        begin, until = Offset.from_json(start), time.monotonic() + _ANSWER_SECONDS
        with noting_damage(self._storage):
            while (end := self._planner.latest(begin, time.time_ns() // 1000)) is begin:
                if time.monotonic() >= until:
                    return start
                time.sleep(_LOOK_SECONDS)
        return end.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one task, or one per partition when there are tuples enough; the same for a batch that runs again.

        The first batches are there to have every worker load what it needs: without tuples they have a task per
        partition.
        """
        tuples = sum(span.end - span.start for span in Offset.from_json(end).spans)
        tasks = max(1, min(len(self._partitions), tuples // TUPLES_WORTH_A_TASK))
        if self._warm_ups and not tuples:
            self._warm_ups -= 1
            tasks = len(self._partitions)
        return [InputPartition((start, end, task, tasks)) for task in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run one source task."""
        freeze_garbage()
        start, end, task, tasks = partition.value
        # Spark starts processes that only look this class up or plan: what computes takes a second to import
        from braid.engine.plan_log import shared_plan
        from braid.engine.source_task import SourceTasks

        if self._uri not in _SHARED:
            _SHARED[self._uri] = SourceTasks(self._storage, shared_plan(self._storage), self._partitions)
        with noting_damage(self._storage):
            rows = list(_SHARED[self._uri].run(Offset.from_json(start), Offset.from_json(end), task, tasks))
        yield to_batch(rows)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the session trims what was read, once the batch record is on disk."""
