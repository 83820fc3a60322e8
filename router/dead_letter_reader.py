"""Read the dead letters of one stream (late and malformed tuples), page by page.

They lie in blocks of their own, named by the batch records; the rows of a batch are those of its blocks one after the
other, and a cursor is a position among them, as for results.
"""

from __future__ import annotations

import pyarrow as pa

from operators.block_files import read_table
from router.batch_index import BatchIndex
from router.cursor import Position, encode_cursor
from router.page import Page, widened
from sources.core.errors import CorruptData, MalformedRequest
from sources.core.least_recently_used import LeastRecentlyUsed
from sources.core.storage import Storage

BLOCK_BYTES = 64 << 20
SCHEMA = pa.schema(
    [
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("received_us", pa.int64()),
        pa.field("tuple", pa.string()),
        pa.field("raw", pa.string()),
    ]
)


class DeadLetterReader:
    """Pages of dead letters of any stream; shares the index of the result reader."""

    def __init__(self, storage: Storage, index: BatchIndex) -> None:
        self._storage = storage
        self._index = index
        self._blocks: LeastRecentlyUsed[pa.Table] = LeastRecentlyUsed(BLOCK_BYTES, lambda block: block.nbytes)

    def read(self, stream: str, after: str | None, limit: int) -> Page:
        """Return up to ``limit`` dead letters of the stream with id ``stream`` after a cursor.

        The table has :data:`SCHEMA`. Letters that cannot be read are a gap, as with results. Raises MalformedRequest
        for a cursor that is not of this stream, Gone for one below what is kept.
        """
        latest = self._index.latest
        position = Position(self._index.first) if after is None else self._index.position(after, stream, latest)
        end = Position(latest + 1)
        tables: list[pa.Table] = []
        runs: list[tuple[int, int, int]] = []
        has_more, gap = False, None
        for entry in self._index.with_dead_letters(position.seq, latest, stream):
            blocks = [(path, rows) for owner, path, rows in entry.dead_letters if owner == stream]
            total = sum(rows for _, rows in blocks)
            at = start = position.row_in(entry.seq)
            if start > total:
                raise MalformedRequest(f"The cursor {after!r} points past the end of its batch.")
            block_end = 0
            for path, rows in blocks:
                block_start, block_end = block_end, block_end + rows
                count = min(limit, block_end - at)
                if at >= block_end or count <= 0:
                    continue
                try:
                    tables.append(self._open(path, rows).slice(at - block_start, count))
                    at, limit = at + count, limit - count
                except CorruptData as lost:
                    self._index.check_kept(entry.seq)
                    if runs or at > start:
                        break
                    gap = widened(gap, entry.seq, block_end - at, lost.detail)
                    at = start = block_end
            if at > start:
                runs.append((entry.seq, start, at - start))
            if at < total:
                has_more, end = True, Position(entry.seq, at)
                break
        table = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
        return Page(table, encode_cursor(end, stream), has_more, stream, tuple(runs), gap=gap)

    def forget(self, path: str) -> None:
        """Close the block at ``path``, whose file is being removed."""
        self._blocks.discard(path)

    def _open(self, path: str, rows: int) -> pa.Table:
        block = self._blocks.get(path, lambda: read_table(self._storage, path).select(SCHEMA.names).cast(SCHEMA))
        if block.num_rows != rows:
            raise CorruptData(f"The file {path} must have {rows} rows, as its record says; it has {block.num_rows}.")
        return block
