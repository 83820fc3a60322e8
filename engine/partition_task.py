"""A partition task: runs one partition for a batch, up to what the batch record is to say of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import pyarrow as pa

from braid.engine.partition_files import PartitionFiles
from braid.engine.plan_log import PlanLog
from braid.engine.planning.batch_progress import digest_of, progress_of
from braid.engine.planning.offsets import Offset
from braid.engine.wire import BLOCK, BUCKET, CONTROL, OUTCOME, PROGRESS
from braid.operators.partition import Partition
from braid.operators.report import is_report_due
from braid.operators.state.partition_state import Payload
from braid.sources.core.storage import Storage


class PartitionTasks:
    """What a worker process keeps between batches: the plan, and a cache of partitions."""

    def __init__(self, storage: Storage, plan: PlanLog, partitions: Sequence[int], join_row_limit: int) -> None:
        self._storage = storage
        self._plan = plan
        self._first_partition = partitions[0]
        self._join_row_limit = join_row_limit
        self._partitions: dict[int, Partition] = {}

    def run(self, rows: Iterable[pa.RecordBatch]) -> list[tuple[str, str]]:
        """Run the partition that ``rows``, as source tasks send them, are for; return rows for the router.

        Source tasks send none of a batch that is published already; then none are returned.
        """
        batches = [batch for batch in rows if batch.num_rows]
        if not batches:
            return []
        began = time.perf_counter()
        partition_number = batches[0].column(0)[0].as_py()
        partition = self._partitions.setdefault(partition_number, Partition(self._storage, self._join_row_limit))
        controls, payloads, sent_blocks = _sort_rows(batches)
        start, end = Offset.from_json(controls[0]["start"]), Offset.from_json(controls[0]["end"])
        live = self._plan.at(start, end)
        progress = progress_of(controls, start, end)
        firing_limit = partition.follow(live)
        progress["fired"] = firing_limit.fired_after(
            end.fired, progress["watermarks"], progress.pop("earliest"), end.fire_to, end.firing_budget_us
        )
        state = PartitionFiles(self._storage, end.seq, end.partitions.get(str(partition_number)))
        blocks = partition.advance(end.seq, payloads, live, dict(end.fired), progress["fired"], state, end.planned_us)
        tuple_links: dict[str, str] = {}
        entries = [block.write(self._storage, end.seq, tuple_links) for block in blocks]
        partition.release_tuples()
        output = [(BLOCK, body) for body in (*sent_blocks, *(orjson.dumps(entry).decode() for entry in entries))]
        if partition_number == self._first_partition:  # all work out the same, which their digests show
            output.append((PROGRESS, orjson.dumps(progress).decode()))
        outcome = {
            "partition": partition_number,
            "progress": digest_of(progress),
            "bytes": partition.bytes,
            "failures": partition.failures,
            "due_us": partition.due_us,  # of the next early row that a delay holds back
            # up to where the next batch can fire windows that are due already, of streams with too many for this one
            "fire_to": partition.affordable(progress["fired"], progress["watermarks"], end.firing_budget_us),
            # the oldest batch whose files it still needs
            "oldest": min((n for n in (partition.oldest, state.oldest) if n is not None), default=None),
            "report": partition.work.tell() if is_report_due(start.planned_us, end.planned_us) else None,
            "path": state.write_manifest(),
            "busy_us": int((time.perf_counter() - began) * 1e6),
        }
        output.append((OUTCOME, orjson.dumps(outcome).decode()))
        return output


def _sort_rows(rows: Iterable[pa.RecordBatch]) -> tuple[list[dict[str, Any]], list[Payload], list[str]]:
    """Split a partition's rows by kind, and drop those of streams that some task could not read.

    The files of dropped rows stay until they are swept: another attempt at this batch may find the streams readable.
    """
    controls: list[dict[str, Any]] = []
    buckets: list[tuple[dict[str, Any], Payload]] = []
    blocks: list[tuple[dict[str, Any], str]] = []
    for batch in rows:
        columns = (batch.column(name).to_pylist() for name in ("kind", "body", "payload"))
        for kind, body, payload in zip(*columns, strict=True):
            entry = orjson.loads(body)
            if kind == CONTROL:
                controls.append(entry)
            elif kind == BUCKET:
                buckets.append((entry, Payload(entry["path"], payload)))
            else:
                blocks.append((entry, body))
    controls.sort(key=lambda control: control["task"])
    # doubles are added in one order, so that a batch that runs again tells the same to the last digit
    buckets.sort(key=lambda bucket: (bucket[0]["stream"], bucket[0]["task"], bucket[0]["number"]))
    unread = {stream for control in controls for stream in control["unread"]}
    return (
        controls,
        [payload for entry, payload in buckets if entry["stream"] not in unread],
        [body for entry, body in blocks if entry["stream"] not in unread],
    )
