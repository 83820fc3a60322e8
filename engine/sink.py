"""The router as Spark's sink (thesis 4.3.1.6): its tasks run partitions, its commit publishes the batch by its record.

Tasks have staged result and dead-letter blocks and the state of partitions; each counts only once a batch record names
it. The record is one atomic file named by the batch's number, so that committing a batch again, after a crash, changes
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from braid.engine.data_layout import BATCHES, noting_damage, write_activation
from braid.engine.spark.worker_memory import freeze_garbage
from braid.engine.wire import BLOCK, OUTCOME, PROGRESS, WIRE_SCHEMA
from braid.operators.report import merged
from braid.operators.state.bucket_store import BUCKETS, DEAD_LETTERS, RESULTS, STATES, TUPLES, block_paths
from braid.sources.core.errors import NotReady
from braid.sources.core.record_log import RecordLog, file_number
from braid.sources.core.storage import Storage

if TYPE_CHECKING:
    from braid.engine.partition_task import PartitionTasks

_SHARED: dict[str, PartitionTasks] = {}


@dataclass
class StagedRows(WriterCommitMessage):
    """The (kind, body) rows of one task."""

    rows: list[tuple[str, str]]


class RouterSink(DataSource):
    """Options: ``uri`` of the data folder, ``partitions`` (JSON list) and ``join_row_limit``, see
    :class:`PartitionTasks`; and ``flush_batches`` (``True``, ``False``).
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``writeStream.format``."""
        return "braid-router"

    def schema(self) -> str:
        """Return the schema of the rows from source tasks."""
        return WIRE_SCHEMA

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802, ARG002
        """Return the writer; Spark asks once a batch, in a process that does nothing else."""
        freeze_garbage()
        return RouterWriter(
            self.options["uri"],
            orjson.loads(self.options["partitions"]),
            int(self.options["join_row_limit"]),
            self.options["flush_batches"] == "True",
        )


class RouterWriter(DataSourceStreamArrowWriter):
    """``write`` runs in tasks, ``commit`` once a batch in a process that keeps nothing."""

    def __init__(self, uri: str, partitions: list[int], join_row_limit: int, flush_batches: bool) -> None:
        self._uri = uri
        self._partitions = partitions
        self._join_row_limit = join_row_limit
        self._flush_batches = flush_batches

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Run the partition that the rows of this task are for; what it returns goes to ``commit``."""
        freeze_garbage()
        # Spark starts processes that only look this class up or commit: what computes takes a second to import
        from braid.engine.partition_task import PartitionTasks
        from braid.engine.plan_log import shared_plan

        storage = Storage(self._uri)
        if self._uri not in _SHARED:
            _SHARED[self._uri] = PartitionTasks(storage, shared_plan(storage), self._partitions, self._join_row_limit)
        with noting_damage(storage):
            return StagedRows(_SHARED[self._uri].run(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the batch; Spark counts from 0."""
        freeze_garbage()
        rows = [row for message in messages if isinstance(message, StagedRows) for row in message.rows]
        storage = Storage(self._uri)
        if self._flush_batches:
            storage.flush()  # what the record names, and Spark's log of offsets, must outlive a power cut if it does
        publish(storage, batchId + 1, rows)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to undo: staged blocks that no record names are swept at the next start."""


def publish(storage: Storage, seq: int, rows: Sequence[tuple[str, str]]) -> None:
    """Write the activation and the record of batch ``seq``, which ``rows`` describe, unless it is there already.

    Raises NotReady, and writes nothing, when partitions did not see the same batch: Spark runs source tasks again whose
    output went with an executor, and a stream that could be read may be away by then. The batch has to run again.
    """
    log = RecordLog(storage, BATCHES)
    if log.has(seq):
        return
    decoded = [(kind, orjson.loads(body)) for kind, body in rows]
    record: dict[str, Any] = next(body for kind, body in decoded if kind == PROGRESS)
    partitions = sorted((body for kind, body in decoded if kind == OUTCOME), key=lambda body: body["partition"])
    if len({partition["progress"] for partition in partitions}) > 1:
        raise NotReady(f"All partitions must have seen the same batch {seq}, and did not; it runs again.")
    write_activation(storage, record["previous_epoch"], record["epoch"], record["clocks_at_start"])
    blocks = sorted(
        (body for kind, body in decoded if kind == BLOCK), key=lambda block: (block.get("task", 0), block["path"])
    )
    record["results"] = [block for block in blocks if "kind" in block]
    record["dead_letters"] = [block for block in blocks if "dead_letters" in block]
    for partition in partitions:
        record["failures"].update(partition["failures"])
    record["partitions"] = {
        str(partition["partition"]): partition["path"] for partition in partitions if partition["path"] is not None
    }
    record["bytes"] = {"state": sum(partition["bytes"] for partition in partitions)}
    record["oldest_needed"] = min(
        (partition["oldest"] for partition in partitions if partition.get("oldest") is not None), default=None
    )
    record["emit_due_us"] = min(
        (partition["due_us"] for partition in partitions if partition.get("due_us") is not None), default=None
    )
    record["fire_to"] = {
        stream: min(partition["fire_to"][stream] for partition in partitions)
        for stream in partitions[0].get("fire_to", {})
    }
    record["operator_busy_us"] = [partition["busy_us"] for partition in partitions]
    if record.get("report") is not None:
        record["report"]["partitions"] = merged(
            partition["report"] for partition in partitions if partition["report"] is not None
        )
        record["report"]["each_partition"] = [
            partition["report"]["busy_us"] if partition["report"] else {} for partition in partitions
        ]
    record["committed_us"] = time.time_ns() // 1000
    record["duration_us"] = record["committed_us"] - record["started_us"]
    log.append(seq, record)


def sweep_unpublished(storage: Storage) -> int:
    """Delete files of batches that were staged but never published; return how many. Call it before the job starts.

    A file's name begins with its batch's number. Files of batches after the newest published one will be written anew.
    A task of the newest published batch may have run twice: of its blocks only those that its record names count, of
    its buckets, their tuples and files of partitions all, since the state knows which it holds.
    """
    log = RecordLog(storage, BATCHES)
    latest = log.latest()
    published_paths: set[str] = set()
    if latest:
        record = log.read(latest)
        published_paths = set(block_paths(record))
    removed = 0
    for folder in (RESULTS, DEAD_LETTERS, BUCKETS, TUPLES, STATES):
        for name in storage.names(folder):
            seq, path = file_number(name), f"{folder}/{name}"
            if seq > latest or (seq == latest and folder in (RESULTS, DEAD_LETTERS) and path not in published_paths):
                storage.delete(path)
                removed += 1
    return removed
