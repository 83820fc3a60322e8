"""Write batch records and result blocks by hand: what the Spark router commits, in real files."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from braid.operators.predicates.query_set import pack, to_arrow, words_for
from braid.operators.windowing.window_rows import SLOT, WindowRows
from braid.sources.core.checksums import crc32, with_checksum
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage

SECOND = 1_000_000
DEAD_LETTERS = pa.schema(
    {
        "reason": pa.string(),
        "detail": pa.string(),
        "received_us": pa.int64(),
        "tuple": pa.string(),
        "raw": pa.string(),
    }  # type: ignore[arg-type]  # the stubs want fields of one type
)


class BatchWriter:
    """Appends to the batch log of a data directory."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.log = RecordLog(storage, "batches")
        self.seq = self.log.latest()
        self.epoch = self.log.read(self.seq)["epoch"] if self.seq else 0
        self._blocks = 0

    def selection(
        self, stream: str, tuples: pa.Table, members: Sequence[set[int]], chunk: int | None = None
    ) -> dict[str, Any]:
        """Write a selection block; ``members[i]`` are the slots that row i belongs to."""
        slots = sorted(set().union(*members)) if members else []
        capacity = max(slots, default=0) + 1
        bits = np.zeros((tuples.num_rows, capacity), bool)
        for row, of in enumerate(members):
            bits[row, list(of)] = True
        table = tuples.append_column("_query_set", to_arrow(pack(bits, words_for(capacity))))
        return {
            "path": self._write("results", table, chunk),
            "kind": "selection",
            "operator": f"select-{stream}",
            "stream": stream,
            "slots": slots,
            "counts": [sum(slot in of for of in members) for slot in slots],
            "latest_event_us": [None] * len(slots),
        }

    def aggregation(self, stream: str, rows: pa.Table, chunk: int | None = None) -> dict[str, Any]:
        """Write an aggregation block; ``rows`` has ``_slot``, the window, keys and measures, in any order."""
        order = [("_slot", "ascending"), ("window_end", "ascending"), ("window_start", "ascending")]
        table = rows.sort_by(order)  # type: ignore[arg-type]
        slots, counts = np.unique(table["_slot"].to_numpy(), return_counts=True)
        return {
            "path": self._write("results", table, chunk),
            "kind": "aggregation",
            "operator": f"aggregate-{stream}",
            "stream": stream,
            "slots": slots.tolist(),
            "counts": counts.tolist(),
            "latest_event_us": [None] * len(slots),
        }

    def dead_letters(self, stream: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Write a block of dead letters."""
        table = pa.Table.from_pylist([dict(row) for row in rows], schema=DEAD_LETTERS)
        return {"stream": stream, "path": self._write("dead-letters", table, None), "rows": len(rows)}

    def commit(self, epoch: int | None = None, **changes: Any) -> dict[str, Any]:
        """Append the next batch record and return it; ``changes`` replace its empty parts."""
        self.seq += 1
        previous, self.epoch = self.epoch, self.epoch if epoch is None else epoch
        record: dict[str, Any] = {
            "seq": self.seq,
            "epoch": self.epoch,
            "previous_epoch": previous,
            "clocks_at_start": {},
            "clocks": {},
            "watermarks": {},
            "fired": {},
            "planned_us": self.seq * SECOND,
            "started_us": self.seq * SECOND,
            "committed_us": self.seq * SECOND + SECOND // 2,
            "waiting": 0,
            "source_busy_us": [],
            "operator_busy_us": [],
            "streams": {},
            "results": [],
            "dead_letters": [],
            "failures": {},
            "bytes": {"state": 0, "buckets": 0, "results": 0},
            "duration_us": SECOND // 2,
            "oldest_needed": 1,
            "partitions": {},
        }
        record |= changes
        self.log.append(self.seq, record)
        return record

    def _write(self, folder: str, table: pa.Table, chunk: int | None) -> str:
        self._blocks += 1
        sink = io.BytesIO()
        if SLOT in table.column_names:
            WindowRows.of_table(table).write(sink)
        else:
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=chunk)
        stem = f"{folder}/{self.seq + 1:012d}-{self._blocks}"
        path = with_checksum(stem, crc32(sink.getvalue()), ".arrow")
        self._storage.put(path, sink.getvalue(), durable=False)
        return path
