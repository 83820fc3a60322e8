"""The rows that pass between Spark's stages: few, small, about buckets and blocks rather than about tuples.

Source tasks send ``WIRE_SCHEMA`` rows to partitions. A partition has one key group of
every operator.

| kind | body (JSON) | payload |
| --- | --- | --- |
| ``control`` | what the task read: :meth:`braid.engine.source_task.SourceTasks.run` | |
| ``bucket`` | ``{"path", "stream", "task", "number"}``: no path when the payload is the bucket | bucket or nothing |
| ``block`` | an entry of the batch record: a result or dead-letter block | |

A ``bucket`` with a path into ``tuples/`` is the partition's own path to tuples that other buckets refer to.

Partitions tell the router kinds and bodies: ``block`` as above, ``progress`` (the first partition only) and
``outcome``, what became of the partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

WIRE_SCHEMA = "partition int, kind string, body string, payload binary"

CONTROL = "control"
BUCKET = "bucket"
BLOCK = "block"
PROGRESS = "progress"
OUTCOME = "outcome"

_ARROW = pa.schema([("partition", pa.int32()), ("kind", pa.string()), ("body", pa.string()), ("payload", pa.binary())])


@dataclass(frozen=True)
class WireRow:
    """One row to a partition."""

    partition: int
    kind: str
    body: str
    payload: bytes = b""


def to_batch(rows: Sequence[WireRow]) -> pa.RecordBatch:
    """Return rows as the record batch that a source task yields."""
    columns = [
        pa.array([r.partition for r in rows], pa.int32()),
        pa.array([r.kind for r in rows], pa.string()),
        pa.array([r.body for r in rows], pa.string()),
        pa.array([r.payload for r in rows], pa.binary()),
    ]
    return pa.record_batch(columns, schema=_ARROW)
