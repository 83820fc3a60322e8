"""Read the rows of one query, page by page, out of the shared result log.

:mod:`braid.router.batch_index` says which block of which batch holds how many rows of which slot. Invariants:

- rows have one order for ever: by batch, then within it by block (selection) or window and keys (aggregation). A
  :class:`~braid.router.cursor.CursorPosition` in that order is all that a reader must remember;
- no batch has rows of two deployments of one query, so that order holds across pauses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from braid.engine.data_layout import BATCHES
from braid.operators.block_files import BlockPart
from braid.operators.functions.text_size import constant_bytes
from braid.operators.result_rows import empty_rows
from braid.router.batch_index import BatchEntry, BatchIndex, BatchSummary
from braid.router.cursor import before_last, decode_cursor, encode_cursor
from braid.router.deployment import Deployment, from_batch
from braid.router.materialize import DeployedQuery, Materializer
from braid.router.page import Page, PageSpan, read_page
from braid.sources.core.errors import TooLarge
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage

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
            max_bytes = None if rows == 1 else self.bytes_left + self._most
            try:
                return self._materializer.rows(self._deployed, deployment, parts, start, rows, max_bytes)
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
        newest = self.index.latest if latest is None else latest
        rows = _RowsOfPage(self.materializer, deployed, page_bytes or self._page_bytes)

        def batches(seq: int) -> Iterator[tuple[BatchEntry, list[PageSpan]]]:
            for entry, deployment in self.batches(deployed, seq, newest):
                blocks = entry.parts(deployment.slot)
                # block by block where rows are in the order of blocks
                parts = [blocks] if deployed.query.window is not None else [[block] for block in blocks]
                counts = [sum(block.count for block in part) for part in parts]
                yield (
                    entry,
                    [
                        PageSpan(end - count, count, partial(rows.take, deployment, part))
                        for part, count, end in zip(parts, counts, itertools.accumulate(counts), strict=True)
                    ],
                )

        return read_page(self.index, deployed.id, after, newest, limit, batches, lambda: empty_rows(deployed.query))

    def before_last(self, deployed: DeployedQuery, rows: int) -> str:
        """Return the cursor before the last ``rows`` rows, or before all that are kept where there are fewer."""
        return encode_cursor(before_last(self._totals(deployed), rows, self.index.latest + 1), deployed.id)

    def _totals(self, deployed: DeployedQuery) -> Iterator[tuple[int, int]]:
        """Yield the numbers of batches that may have rows of a query, the newest first, with how many they have."""
        for deployment in reversed(deployed.deployments):
            last, slot = self.index.latest, deployment.slot
            if deployment.freed_epoch is not None:
                last = self.index.first_of_epoch(deployment.freed_epoch, last) - 1
            first = max(deployment.first_seq, self.index.first)
            for entry in self.index.backwards(last, first, partial(_has_slot, slot)):
                if entry.epoch >= deployment.epoch:
                    yield entry.seq, sum(part.count for part in entry.parts(slot))

    def has_news(self, deployed: DeployedQuery, after: str) -> bool:
        """Whether there may be rows after a cursor; reads no file, so it may be asked on an event loop."""
        position, latest = decode_cursor(after, deployed.id), self.index.latest
        if not deployed.deployments:
            return False
        return not self.index.in_memory(position.seq) or any(
            sum(part.count for part in entry.parts(deployment.slot)) > position.row_in(entry.seq)
            for entry, deployment in self.batches(deployed, position.seq, latest)
        )

    def batches(self, deployed: DeployedQuery, seq: int, latest: int) -> Iterator[tuple[BatchEntry, Deployment]]:
        """Yield the batches ``seq … latest`` in which a query may have rows, with the deployment that it has there."""
        for deployment in from_batch(deployed.deployments, seq):
            for entry in self.index.with_slot(
                max(seq, deployment.first_seq), latest, deployment.slot, deployment.freed_epoch
            ):
                if entry.epoch >= deployment.epoch:
                    yield entry, deployment


def _has_slot(slot: int, summary: BatchSummary) -> bool:
    return bool(summary.slots >> slot & 1)
