"""Read the dead letters of one stream (late and malformed tuples), page by page.

They lie in blocks of their own, named by the batch records; the rows of a batch are those of its blocks one after the
other, and a cursor is a position among them, as for results.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from braid.operators.block_files import read_table
from braid.router.batch_index import BatchEntry, BatchIndex
from braid.router.cursor import before_last, encode_cursor
from braid.router.page import Page, PageSpan, read_page
from braid.sources.core.errors import CorruptData
from braid.sources.core.least_recently_used import LeastRecentlyUsed
from braid.sources.core.replays import origin_of, query_of
from braid.sources.core.storage import Storage

BLOCK_BYTES = 64 << 20
_STORED = pa.schema(
    [
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("received_us", pa.int64()),
        pa.field("tuple", pa.string()),
        pa.field("raw", pa.string()),
    ]
)
_QUERY = pa.field("query", pa.string())
SCHEMA = _STORED.append(_QUERY)
"""``query`` is the query that read the past, of letters that a replay made; else NULL."""


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

        def batches(seq: int) -> Iterator[tuple[BatchEntry, list[PageSpan]]]:
            for entry in self._index.with_dead_letters(seq, latest, stream):
                blocks = [
                    (path, rows, query_of(owner))
                    for owner, path, rows in entry.dead_letters
                    if origin_of(owner) == stream
                ]
                ends = itertools.accumulate(rows for _, rows, _ in blocks)
                yield (
                    entry,
                    [
                        PageSpan(end - rows, rows, partial(self._take, path, rows, query))
                        for (path, rows, query), end in zip(blocks, ends, strict=True)
                    ],
                )

        return read_page(self._index, stream, after, latest, limit, batches, SCHEMA.empty_table)

    def before_last(self, stream: str, rows: int) -> str:
        """Return the cursor before the last ``rows`` dead letters, or before all that are kept."""
        index = self._index
        entries = index.backwards(index.latest, index.first, lambda s: stream in s.streams_with_dead_letters)
        totals = (
            (entry.seq, sum(count for owner, _, count in entry.dead_letters if origin_of(owner) == stream))
            for entry in entries
        )
        return encode_cursor(before_last(totals, rows, index.latest + 1), stream)

    def _take(self, path: str, rows: int, query: str | None, start: int, most: int) -> Iterator[pa.Table]:
        letters = self._open(path, rows).slice(start, most)
        queries = pa.repeat(pa.scalar(query, pa.string()), letters.num_rows)
        yield letters.append_column(_QUERY, queries)

    def forget(self, path: str) -> None:
        """Close the block at ``path``, whose file is being removed."""
        self._blocks.discard(path)

    def _open(self, path: str, rows: int) -> pa.Table:
        block = self._blocks.get(path, lambda: read_table(self._storage, path).select(_STORED.names).cast(_STORED))
        if block.num_rows != rows:
            raise CorruptData(f"The file {path} must have {rows} rows, as its record says; it has {block.num_rows}.")
        return block
