"""Read the rows of one query, page by page, out of the shared result log.

The batch log says which block of which batch holds how many rows of which slot. Invariants:

- a batch becomes visible by :meth:`ResultReader.absorb`, in order, once the session has applied it (so that
  ``active_from`` of the queries in it is known);
- only the newest records are kept in memory; older ones are read again when a reader is that far behind, and a summary
  of each stretch of records (which slots occur) lets a query skip what does not concern it;
- rows have one order for ever: by batch, then within it by block (selection) or window and keys (aggregation). A
  :class:`~router.cursor.Position` in that order is all that a reader must remember;
- no batch has rows of two deployments of one query, so that order holds across pauses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.job_files import BATCHES
from operators.block_files import BlockPart
from operators.functions.text_size import constant_bytes
from operators.queries import Query
from operators.result_rows import empty_rows
from router.cursor import Position, decode_cursor, encode_cursor
from router.deployment import Deployment, from_batch
from router.materialize import DeployedQuery, Materializer
from router.page import Page, widened
from sources.core.errors import CorruptData, Gone, MalformedRequest, TooLarge
from sources.core.least_recently_used import LeastRecentlyUsed
from sources.core.record_log import RecordLog
from sources.core.storage import Storage

RECENT_RECORDS = 512
OLD_RECORD_BYTES = 64 << 20
STRETCH = 64
PAGE_BYTES = 16 << 20
# so many rows are formed before it is known how large they are, and then up to so many times as many
FIRST_ROWS = 1000
_GROWTH = 8


@dataclass(frozen=True)
class BlockEntry:
    """A block of a batch: its path, and the ascending slots that have rows in it with their numbers of rows."""

    path: str
    slots: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]

    def count(self, slot: int) -> int:
        """Return the rows of ``slot``."""
        index = int(np.searchsorted(self.slots, slot))
        return int(self.counts[index]) if index < len(self.slots) and self.slots[index] == slot else 0


@dataclass(frozen=True)
class BatchEntry:
    """What reading needs of a batch record."""

    seq: int
    epoch: int
    committed_us: int
    blocks: tuple[BlockEntry, ...]
    dead_letters: tuple[tuple[str, str, int], ...]
    """``(stream id, path, rows)``"""

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> BatchEntry:
        """Return what a batch record says of it."""
        blocks = tuple(
            BlockEntry(result["path"], np.array(result["slots"], np.int32), np.array(result["counts"], np.int64))
            for result in record["results"]
        )
        dead_letters = tuple(
            (block["stream"], block["path"], block["rows"]) for block in record.get("dead_letters", ())
        )
        return cls(record["seq"], record["epoch"], record["committed_us"], blocks, dead_letters)

    @property
    def nbytes(self) -> int:
        """The memory it takes, about."""
        return 200 + sum(200 + block.slots.nbytes + block.counts.nbytes for block in self.blocks)

    def parts(self, slot: int) -> list[BlockPart]:
        """Return the blocks with rows of ``slot``, in order."""
        return [BlockPart(block.path, count) for block in self.blocks if (count := block.count(slot))]


@dataclass(frozen=True)
class Summary:
    """What occurs in a stretch of :data:`STRETCH` consecutive batches; ``slots`` is a bitset."""

    first_epoch: int
    slots: int
    streams_with_dead_letters: frozenset[str]


class BatchIndex:
    """The visible batches ``first … latest`` of the batch log; safe for one writer and many readers."""

    def __init__(self, log: RecordLog, latest: int = 0) -> None:
        self._log = log
        self._lock = Lock()
        self.latest = latest
        numbers = log.numbers()
        self.first = numbers[0] if numbers else 1
        self._recent: dict[int, BatchEntry] = {}
        self._older: LeastRecentlyUsed[BatchEntry] = LeastRecentlyUsed(OLD_RECORD_BYTES, lambda e: e.nbytes)
        self._summaries: dict[int, Summary] = {}

    def absorb(self, record: dict[str, Any]) -> None:
        """Make a batch visible; one that is visible already changes nothing."""
        entry = BatchEntry.from_record(record)
        with self._lock:
            if entry.seq <= self.latest:
                return
            self._recent[entry.seq] = entry
            for seq in sorted(self._recent)[:-RECENT_RECORDS]:
                del self._recent[seq]
            self.latest = entry.seq

    def advance(self, seq: int) -> None:
        """Make all batches up to ``seq``, which are in the log, visible."""
        with self._lock:
            self.latest = max(self.latest, seq)

    def entry(self, seq: int) -> BatchEntry:
        """Return batch ``seq``; Gone when its record was trimmed."""
        recent = self._recent.get(seq)
        return recent or self._older.get(seq, lambda: self._read(seq))

    def check_kept(self, seq: int) -> None:
        """Raise Gone where a block is lost because its batch has passed its retention."""
        if seq < self.first or not self._log.has(seq):
            raise Gone(_gone(seq, max(self.first, seq + 1)))

    def in_memory(self, seq: int) -> bool:
        """Whether ``seq`` and all batches after it are answered without reading a file."""
        return seq > self.latest or seq in self._recent

    def with_slot(self, seq: int, latest: int, slot: int, freed_epoch: int | None) -> Iterator[BatchEntry]:
        """Yield the batches ``seq … latest`` before ``freed_epoch`` in which ``slot`` may have rows."""
        while seq <= latest:
            if seq % STRETCH == 0 and seq + STRETCH <= latest and not self.in_memory(seq):
                summary = self.summary(seq)
                if freed_epoch is not None and summary.first_epoch >= freed_epoch:
                    return
                if not summary.slots >> slot & 1:
                    seq += STRETCH
                    continue
            entry = self.entry(seq)
            if freed_epoch is not None and entry.epoch >= freed_epoch:
                return
            yield entry
            seq += 1

    def backwards(self, seq: int, first: int, slot: int) -> Iterator[BatchEntry]:
        """Yield the batches ``seq … first``, the newest first, in which ``slot`` may have rows."""
        while seq >= first:
            start = seq - STRETCH + 1
            is_whole_stretch = start % STRETCH == 0 and start >= first and not self.in_memory(seq)
            if is_whole_stretch and not self.summary(start).slots >> slot & 1:
                seq = start - 1
                continue
            yield self.entry(seq)
            seq -= 1

    def with_dead_letters(self, seq: int, latest: int, stream: str) -> Iterator[BatchEntry]:
        """Yield the batches ``seq … latest`` with dead letters of ``stream``."""
        while seq <= latest:
            is_whole_stretch = seq % STRETCH == 0 and seq + STRETCH <= latest and not self.in_memory(seq)
            if is_whole_stretch and stream not in self.summary(seq).streams_with_dead_letters:
                seq += STRETCH
                continue
            entry = self.entry(seq)
            if any(stream == owner for owner, _, _ in entry.dead_letters):
                yield entry
            seq += 1

    def summary(self, start: int) -> Summary:
        """Return what occurs in batches ``start … start + STRETCH - 1``; all of them must be visible."""
        summary = self._summaries.get(start)
        if summary is None:
            entries = [self.entry(seq) for seq in range(start, start + STRETCH)]
            summary = self._summaries[start] = Summary(
                entries[0].epoch,
                _bitset([block.slots for entry in entries for block in entry.blocks]),
                frozenset(stream for entry in entries for stream, _, _ in entry.dead_letters),
            )
        return summary

    def position(self, cursor: str, owner: str, latest: int) -> Position:
        """Read a cursor; MalformedRequest past batch ``latest``, Gone below the batches kept."""
        position = decode_cursor(cursor, owner)
        if position.seq < self.first:
            raise Gone(_gone(position.seq, self.first))
        if position > Position(latest + 1):
            raise MalformedRequest(
                f"A cursor must not point past the newest batch, {latest}; got {cursor!r}, which is at batch"
                f" {position.seq}."
            )
        return position

    def first_of_epoch(self, epoch: int, latest: int) -> int:
        """Return the first batch up to ``latest`` with an epoch of at least ``epoch``, else ``latest + 1``."""
        low, high = self.first, latest + 1
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).epoch >= epoch:
                high = middle
            else:
                low = middle + 1
        return low

    def forget(self, upto: int) -> None:
        """Make the batches up to and including ``upto`` invisible, before their files are removed."""
        self.first = max(self.first, upto + 1)
        for start in [start for start in self._summaries if start <= upto]:
            self._summaries.pop(start, None)

    def _read(self, seq: int) -> BatchEntry:
        try:
            return BatchEntry.from_record(self._log.read(seq))
        except FileNotFoundError:
            raise Gone(_gone(seq, self.first)) from None


class _RowsOfPage:
    """Forms the rows of one page piece by piece, so that no more is formed than the page holds.

    A piece has few rows until it is known how large they are.
    """

    def __init__(self, materializer: Materializer, deployed: DeployedQuery, page_bytes: int) -> None:
        self._materializer = materializer
        self._deployed = deployed
        self._most = page_bytes
        self.bytes_left = page_bytes
        self._at_once = FIRST_ROWS
        outputs = deployed.query.outputs
        self._row_bytes = float(sum(constant_bytes(output.expression) for output in outputs))

    def take(self, deployment: Deployment, parts: Sequence[BlockPart], start: int, count: int) -> Iterator[pa.Table]:
        """Yield rows ``[start, start + count)`` of a batch, or fewer where the page is full; one at least."""
        while count and self.bytes_left > 0:
            rows = min(count, self._at_once)
            if self._row_bytes:
                rows = max(1, min(rows, int(self.bytes_left / self._row_bytes)))
            table = self._form(deployment, parts, start, rows)
            rows, size = table.num_rows, table.nbytes
            yield table
            start, count = start + rows, count - rows
            self.bytes_left -= size
            self._row_bytes = max(size / rows, 1.0)
            self._at_once *= _GROWTH

    def _form(self, deployment: Deployment, parts: Sequence[BlockPart], start: int, rows: int) -> pa.Table:
        """Return so many rows, or fewer where these are larger than was to be expected."""
        while True:
            most_bytes = None if rows == 1 else self.bytes_left + self._most
            try:
                return self._materializer.rows(self._deployed, deployment, parts, start, rows, most_bytes)
            except TooLarge:
                if rows == 1:
                    raise
                self._at_once = rows = max(1, rows // _GROWTH)


class ResultReader:
    """Pages of rows of any query."""

    def __init__(self, storage: Storage, index: BatchIndex | None = None, page_bytes: int = PAGE_BYTES) -> None:
        self.index = index or BatchIndex(RecordLog(storage, BATCHES))
        self.materializer = Materializer(storage)
        self._page_bytes = page_bytes

    def absorb(self, record: dict[str, Any]) -> None:
        """Make the results of a batch visible."""
        self.index.absorb(record)

    def read(
        self,
        deployed: DeployedQuery,
        after: str | None,
        limit: int,
        latest: int | None = None,
        page_bytes: int | None = None,
    ) -> Page:
        """Return up to ``limit`` rows after a cursor, or from the oldest rows kept; of batches up to ``latest``.

        A page ends early once its rows take ``page_bytes`` in Arrow's form; of rows that are larger it has one. It also
        ends before rows that cannot be read; the next one passes over them, and says so as its ``gap``.
        Raises MalformedRequest for a cursor that is not of this query, Gone for one below what is kept.
        """
        latest = self.index.latest if latest is None else latest
        position = Position(self.index.first) if after is None else self.index.position(after, deployed.id, latest)
        end = Position(latest + 1)
        tables: list[pa.Table] = []
        runs: list[tuple[int, int, int]] = []
        completed, has_more, gap = {}, False, None
        rows = _RowsOfPage(self.materializer, deployed, page_bytes or self._page_bytes)
        for entry, deployment in self._batches(deployed, position.seq, latest):
            spans = _spans(deployed.query, entry.parts(deployment.slot))
            total = sum(span.count for span in spans)
            at = start = position.row_in(entry.seq)
            if start > total:
                raise MalformedRequest(f"The cursor {after!r} points past the end of its batch.")
            for span in spans:
                most = min(limit, span.end - at)
                if at >= span.end or most <= 0 or rows.bytes_left <= 0:
                    continue
                try:
                    for table in rows.take(deployment, span.parts, at - span.start, most):
                        tables.append(table)
                        at, limit = at + table.num_rows, limit - table.num_rows
                except CorruptData as lost:
                    self.index.check_kept(entry.seq)
                    if runs or at > start:
                        break
                    gap = widened(gap, entry.seq, span.end - at, lost.detail)
                    at = start = span.end
                if at < span.end:
                    break
            if at > start:
                runs.append((entry.seq, start, at - start))
                if at == total:
                    completed[entry.seq] = entry.committed_us
            if at < total:
                has_more, end = True, Position(entry.seq, at)
                break
        table = pa.concat_tables(tables) if tables else empty_rows(deployed.query)
        return Page(table, encode_cursor(end, deployed.id), has_more, deployed.id, tuple(runs), completed, gap)

    def before_last(self, deployed: DeployedQuery, rows: int) -> str:
        """Return the cursor before the last ``rows`` rows, or before all that are kept where there are fewer."""
        position = Position(self.index.latest + 1)
        for deployment in reversed(deployed.deployments):
            last = self.index.latest
            if deployment.freed_epoch is not None:
                last = self.index.first_of_epoch(deployment.freed_epoch, last) - 1
            for entry in self.index.backwards(last, max(deployment.first_seq, self.index.first), deployment.slot):
                if rows <= 0:
                    break
                total = (
                    sum(part.count for part in entry.parts(deployment.slot)) if entry.epoch >= deployment.epoch else 0
                )
                if total:
                    position = Position(entry.seq, max(0, total - rows))
                    rows -= total
        return encode_cursor(position, deployed.id)

    def has_news(self, deployed: DeployedQuery, after: str) -> bool:
        """Whether there may be rows after a cursor; reads no file, so it may be asked on an event loop."""
        position, latest = decode_cursor(after, deployed.id), self.index.latest
        if not deployed.deployments:
            return False
        return not self.index.in_memory(position.seq) or any(
            sum(part.count for part in entry.parts(deployment.slot)) > position.row_in(entry.seq)
            for entry, deployment in self._batches(deployed, position.seq, latest)
        )

    def _batches(self, deployed: DeployedQuery, seq: int, latest: int) -> Iterator[tuple[BatchEntry, Deployment]]:
        """Yield the batches ``seq … latest`` in which a query may have rows, with the deployment that it has there."""
        for deployment in from_batch(deployed.deployments, seq):
            for entry in self.index.with_slot(
                max(seq, deployment.first_seq), latest, deployment.slot, deployment.freed_epoch
            ):
                if entry.epoch >= deployment.epoch:
                    yield entry, deployment


@dataclass(frozen=True)
class _Span:
    """The rows ``[start, start + count)`` that a query has in a batch, and the blocks that they are formed of."""

    parts: Sequence[BlockPart]
    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count


def _spans(query: Query, parts: Sequence[BlockPart]) -> list[_Span]:
    """Return what can be read whatever becomes of the rest: block by block where rows are in the order of blocks."""
    if query.window is not None:
        return [_Span(parts, 0, sum(part.count for part in parts))]
    ends = itertools.accumulate(part.count for part in parts)
    return [_Span((part,), end - part.count, part.count) for part, end in zip(parts, ends, strict=True)]


def _bitset(slots: list[npt.NDArray[np.int32]]) -> int:
    if not slots:
        return 0
    all_slots = np.concatenate(slots)
    if not len(all_slots):
        return 0
    bits = np.zeros(int(all_slots.max()) + 1, bool)
    bits[all_slots] = True
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def _gone(seq: int, first: int) -> str:
    return (
        f"Results of batch {seq} have passed their retention; the oldest batch kept is {first}."
        " Leave the cursor out to read from there."
    )
