"""Read the dead letters of one stream (late and malformed tuples), page by page.

They lie in blocks of their own, named by the batch records; the rows of a batch are those of its blocks one after the
other, and a cursor is a position among them, as for results.
"""

from __future__ import annotations

import pyarrow as pa

from router.cursor import Position, encode_cursor
from router.materialize import read_block
from router.result_reader import BatchIndex, Page
from sources.errors import MalformedRequest
from sources.least_recently_used import LeastRecentlyUsed
from sources.storage import Storage

OPEN_BLOCKS = 16
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
        self._blocks: LeastRecentlyUsed[pa.Table] = LeastRecentlyUsed(OPEN_BLOCKS, lambda _: 1)

    def read(self, stream: str, after: str | None, limit: int) -> Page:
        """Return up to ``limit`` dead letters of the stream with id ``stream`` after a cursor.

        The table has :data:`SCHEMA`. Raises MalformedRequest for a cursor that is not of this stream, Gone for one
        below what is kept.
        """
        latest = self._index.latest
        position = Position(self._index.first) if after is None else self._index.position(after, stream, latest)
        end = Position(latest + 1)
        tables, runs, has_more = [], [], False
        for entry in self._index.with_dead_letters(position.seq, latest, stream):
            blocks = [(path, rows) for owner, path, rows in entry.dead_letters if owner == stream]
            total = sum(rows for _, rows in blocks)
            start = position.row_in(entry.seq)
            if start > total:
                raise MalformedRequest(f"The cursor {after!r} points past the end of its batch.")
            count = min(limit, total - start)
            if count:
                letters = pa.concat_tables([self._open(path) for path, _ in blocks])
                tables.append(letters.slice(start, count))
                runs.append((entry.seq, start, count))
                limit -= count
            if start + count < total:
                has_more, end = True, Position(entry.seq, start + count)
                break
        table = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
        return Page(table, encode_cursor(end, stream), has_more, stream, tuple(runs))

    def forget(self, path: str) -> None:
        """Close the block at ``path``, whose file is being removed."""
        self._blocks.discard(path)

    def _open(self, path: str) -> pa.Table:
        return self._blocks.get(path, lambda: read_block(self._storage, path).select(SCHEMA.names).cast(SCHEMA))
