"""Rows of queries as source tasks read them: out of the result blocks of the batches that gave them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from braid.engine.data_layout import BATCHES
from braid.engine.past_rows import read_past
from braid.operators.block_files import BlockFiles, BlockPart
from braid.operators.derived import as_tuples, queries_behind, with_time
from braid.operators.kinds import KINDS
from braid.sources.connectors.connector import Chunk, Extent
from braid.sources.core.derived import FIRST_ROW
from braid.sources.core.errors import NotReady
from braid.sources.core.least_recently_used import LeastRecentlyUsed
from braid.sources.core.record_log import RecordLog
from braid.sources.core.replays import is_replay
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.storage import Storage

ROWS_AT_ONCE = 1 << 16
_RECORDS_KEPT = 8


@dataclass(frozen=True)
class _EmittedInBatch:
    """What a query gave in a batch: rows ``[first, first + count)``, in ``parts``."""

    slot: int
    active_from: Mapping[str, int | None]
    first: int
    count: int
    parts: tuple[BlockPart, ...]
    committed_us: int


class DerivedRows:
    """Opens derived streams; they share the blocks and records that it keeps."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        files = BlockFiles(storage)
        self._readers = {kind.name: kind.reader(files) for kind in KINDS}
        self._log = RecordLog(storage, BATCHES)
        self._records: LeastRecentlyUsed[dict[str, Any]] = LeastRecentlyUsed(_RECORDS_KEPT, lambda _: 1)

    def open(self, definition: StreamDefinition) -> DerivedConnector:
        """Return the reading end of a derived stream."""
        return DerivedConnector(self, definition)

    def read(self, definition: StreamDefinition, number: int, start: int, end: int) -> Iterator[Chunk]:
        """Yield the rows ``[start, end)`` of a query, by its number, as tuples of a derived stream.

        NotReady where some are gone.
        """
        query_id, query = next((each.id, each.query) for each in queries_behind(definition) if each.number == number)
        timed = with_time(query)
        past = self._past(definition, number, start, min(end, FIRST_ROW)) if start < FIRST_ROW else []
        for emitted in (*past, *self._emitted(query_id, max(start, FIRST_ROW), end, is_replay(definition.id))):
            at, last = max(start, emitted.first), min(end, emitted.first + emitted.count)
            while at < last:
                count = min(last - at, ROWS_AT_ONCE)
                rows = self._readers[query.kind].rows(
                    timed, emitted.slot, emitted.active_from, emitted.parts, at - emitted.first, count, None
                )
                yield Chunk(as_tuples(rows, definition, timed), (), emitted.committed_us, rows.nbytes)
                at += count

    def _past(self, definition: StreamDefinition, number: int, start: int, end: int) -> Iterator[_EmittedInBatch]:
        """Yield the batches that gave rows ``[start, end)`` before the stream was there; those that are gone are left
        out.
        """
        for batch in read_past(self._storage, definition.id, number, start, end):
            try:
                record: Mapping[str, Any] = self._records.get(str(batch.seq), partial(self._log.read, batch.seq))
            except FileNotFoundError:
                continue
            yield _emitted_in_record(record, batch.slot, batch.active_from, batch.first)

    def _emitted(self, query_id: str, start: int, end: int, may_lack: bool) -> list[_EmittedInBatch]:
        """Return the batches that gave rows ``[start, end)``, in order, going back from the newest.

        A replay does without those that are gone.
        """
        found: list[_EmittedInBatch] = []
        seq = self._log.latest()
        while end > start:
            emitted = self._emitted_in(query_id, seq)
            if emitted is None and may_lack:
                break  # what has passed its retention is no past any more
            if emitted is None:
                raise NotReady(
                    f"Rows of query {query_id} must be kept until they are read; those before batch {seq + 1} are gone."
                    " Give results a longer retention (setting result_retention_seconds)."
                )
            if emitted.first < end:
                if emitted.count:
                    found.append(emitted)
                end = min(end, emitted.first)
            seq -= 1
        return found[::-1]

    def _emitted_in(self, query_id: str, seq: int) -> _EmittedInBatch | None:
        """Return what a query gave in a batch; None where the batch is gone, or did not know the query."""
        try:
            record = self._records.get(str(seq), lambda: self._log.read(seq))
        except FileNotFoundError:
            return None
        noted = record.get("derived", {}).get(query_id)
        if noted is None:
            return None
        return _emitted_in_record(record, noted["slot"], noted["active_from"], noted["first"])


def _emitted_in_record(
    record: Mapping[str, Any], slot: int | None, active_from: Mapping[str, int | None], first: int
) -> _EmittedInBatch:
    blocks = [block for block in record["results"] if slot is not None and slot in block["slots"]]
    parts = tuple(BlockPart(block["path"], block["counts"][block["slots"].index(slot)]) for block in blocks)
    count = sum(part.count for part in parts)
    return _EmittedInBatch(-1 if slot is None else slot, active_from, first, count, parts, record["committed_us"])


class DerivedConnector:
    """A derived stream as source tasks read it; the planner knows what there is by itself."""

    problem: str | None = None

    def __init__(self, rows: DerivedRows, definition: StreamDefinition) -> None:
        self._rows = rows
        self._definition = definition

    def available(self, now_us: int) -> dict[str, Extent]:  # noqa: ARG002 - the planner knows
        """Return nothing."""
        return {}

    def bounds(self) -> Mapping[str, int] | None:
        """Return None."""
        return None

    def oldest(self) -> dict[str, int]:
        """Return nothing."""
        return {}

    def read(self, partition: str, start: int, end: int) -> Iterator[Chunk]:
        """Yield the rows ``[start, end)`` of the query whose number a partition has."""
        return self._rows.read(self._definition, int(partition), start, end)
