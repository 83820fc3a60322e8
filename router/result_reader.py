"""Read the rows of one query, page by page, out of the shared result log.

:mod:`router.batch_index` says which block of which batch holds how many rows of which slot. Invariants:

- rows have one order for ever: by batch, then within it by block (selection) or window and keys (aggregation). A
  :class:`~router.cursor.Position` in that order is all that a reader must remember;
- no batch has rows of two deployments of one query, so that order holds across pauses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from engine.job_files import BATCHES
from operators.block_files import BlockPart
from operators.functions.text_size import constant_bytes
from operators.queries import Query
from operators.result_rows import empty_rows
from router.batch_index import BatchEntry, BatchIndex
from router.cursor import Position, decode_cursor, encode_cursor
from router.deployment import Deployment, from_batch
from router.materialize import DeployedQuery, Materializer
from router.page import Page, widened
from sources.core.errors import CorruptData, MalformedRequest, TooLarge
from sources.core.record_log import RecordLog
from sources.core.storage import Storage

PAGE_BYTES = 16 << 20
# so many rows are formed before it is known how large they are, and then up to so many times as many
FIRST_ROWS = 1000
_GROWTH = 8


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
