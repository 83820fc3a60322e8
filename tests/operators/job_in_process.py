"""The whole job in one process, without Spark: push logs, planner, source tasks, partition tasks, router, reader.

What Spark does is done by hand: it logs an offset, runs the tasks, brings their rows to partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from braid.engine.data_layout import BATCHES, CHANGELOGS
from braid.engine.partition_task import PartitionTasks
from braid.engine.plan_log import PlanLog
from braid.engine.planning.offsets import Offset
from braid.engine.planning.planner import Planner
from braid.engine.sink import publish
from braid.engine.source_task import SourceTasks
from braid.engine.wire import WireRow, to_batch
from braid.operators.live_queries import LiveQuery
from braid.router.dead_letter_reader import DeadLetterReader
from braid.router.result_reader import BatchIndex, ResultReader
from braid.session.sql.inputs import NO_TABLES, KnownTables
from braid.sources.connectors.push import PushLog
from braid.sources.core.record_log import RecordLog
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.storage import Storage
from tests.kit.plans import plan_select
from tests.operators.join_pipeline import Deployed, changelog
from tests.operators.pipeline import Row, batch_of

PARTITIONS = [0, 1]


class Job:
    """A data folder with streams and queries (by name), and the batches that run over it.

    ``offset`` is where the last batch ended.
    """

    def __init__(
        self,
        folder: Path,
        streams: Sequence[StreamDefinition],
        queries: dict[str, str],
        tables: KnownTables = NO_TABLES,
    ) -> None:
        self.storage = Storage(str(folder))
        self.streams = {stream.name: stream for stream in streams}
        self.pushes = {stream.name: PushLog(self.storage, stream) for stream in streams}
        self.offset = Offset()
        self.now_us = 0
        self.planner = self.new_planner()
        self.tasks = SourceTasks(self.storage, PlanLog(self.storage), PARTITIONS)
        self.partitions = self.new_partitions()
        planned = [
            (name, slot, plan_select(sql, self.streams, tables)) for slot, (name, sql) in enumerate(queries.items())
        ]
        created = changelog(1, planned) | {
            "streams_created": [stream.to_json() for stream in streams],
            "capacity": max(64, len(planned)),
        }
        RecordLog(self.storage, CHANGELOGS).append(1, created)

    def new_planner(self) -> Planner:
        """Return a planner as a process that has just started has it."""
        planner = Planner(self.storage, 1.0, lambda: self.now_us * 1000)
        planner._warm_ups = 0
        planner._pacing.apart_us = 0
        return planner

    def push(self, stream: str, rows: Sequence[Row]) -> None:
        """Append tuples to a stream."""
        self.push_batch(stream, batch_of(rows, self.streams[stream].schema))

    def push_batch(self, stream: str, tuples: pa.RecordBatch) -> None:
        """Append tuples in Arrow's form to a stream."""
        self.pushes[stream].append(tuples, [], received_us=1, bytes=tuples.nbytes)

    def run(self, now_us: int) -> list[dict[str, Any]]:
        """Run batches until there is nothing to do at a processing time; return their records."""
        records = []
        while (end := self.latest(now_us)) is not self.offset:
            records.append(self.batch(end))
        return records

    def latest(self, now_us: int) -> Offset:
        """Return the end of the next batch as the planner has it at a time of all clocks."""
        self.now_us = now_us
        return self.planner.latest(self.offset, now_us)

    def batch(self, end: Offset) -> dict[str, Any]:
        """Run and publish the batch that ends at an offset, as Spark logs it; return its record."""
        end = Offset.from_json(orjson.loads(orjson.dumps(end.to_json())))
        rows = [row for task in (0, 1) for row in self.tasks.run(self.offset, end, task, 2)]
        self.publish(end, self.advance(dict.fromkeys(PARTITIONS, rows), self.partitions))
        return RecordLog(self.storage, BATCHES).read(end.seq)

    def publish(self, end: Offset, output: Sequence[tuple[str, str]]) -> None:
        """Publish the batch that ends at an offset, as partitions give it."""
        publish(self.storage, end.seq, output)
        self.offset = end

    def attempt(self, end: Offset) -> list[tuple[str, Any]]:
        """Run the batch that ends at an offset, in new processes, up to what it would publish."""
        output = self.advance(dict.fromkeys(PARTITIONS, self.read(end)))
        return [(kind, orjson.loads(body)) for kind, body in output]

    def read(self, end: Offset) -> list[WireRow]:
        """Run the source tasks of the batch that ends at an offset, in new processes."""
        tasks = SourceTasks(self.storage, PlanLog(self.storage), PARTITIONS)
        return [row for task in (0, 1) for row in tasks.run(self.offset, end, task, 2)]

    def advance(
        self, rows: Mapping[int, Sequence[WireRow]], partitions: PartitionTasks | None = None
    ) -> list[tuple[str, str]]:
        """Run each partition on the rows that it got, in a new process unless told, up to what it would publish."""
        partitions = partitions or self.new_partitions()
        output = []
        for partition in PARTITIONS:
            mine = [row for row in rows[partition] if row.partition == partition]
            output += partitions.run([to_batch(mine[:1]), to_batch(mine[1:])])
        return output

    def new_partitions(self) -> PartitionTasks:
        """Return partitions as a process that has just started has them."""
        return PartitionTasks(self.storage, PlanLog(self.storage), PARTITIONS, 1_000_000)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return all rows of a query."""
        live = PlanLog(self.storage).at(self.offset, self.offset)
        found: list[LiveQuery] = [each for each in live.by_slot.values() if each.id == query]
        reader = ResultReader(self.storage, self._index())
        return reader.read(Deployed(found[0]), None, 100_000).table.to_pylist()

    def dead_letters(self, stream: str) -> list[dict[str, Any]]:
        """Return the dead letters of a stream."""
        reader = DeadLetterReader(self.storage, self._index())
        return reader.read(self.streams[stream].id, None, 100_000).table.to_pylist()

    def close(self) -> None:
        """Close the push logs."""
        for log in self.pushes.values():
            log.close()

    def _index(self) -> BatchIndex:
        return BatchIndex(RecordLog(self.storage, BATCHES), self.offset.seq)
