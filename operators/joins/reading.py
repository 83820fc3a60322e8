"""Rows of joins: out of rows of windows where partitions formed them, else formed out of blocks when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from braid.operators.block_files import BlockFiles, BlockPart, check_count, lost
from braid.operators.joins.matches.all_pairs import AllPairs
from braid.operators.joins.matches.block import JoinBlock
from braid.operators.joins.matches.rows import (
    JoinIndex,
    all_pairs,
    form_rows,
    index_window,
    may_pick,
    overlapping,
    pick,
    what_is_indexed,
    windows_of_slot,
)
from braid.operators.joins.query import Join
from braid.operators.operator import Reached
from braid.operators.result_rows import compute_outputs, empty_rows
from braid.operators.windowing.reading import WindowReader, greatest
from braid.sources.core.least_recently_used import LeastRecentlyUsed

INDEX_BYTES = 64 << 20


class JoinReader:
    """Reads blocks of :class:`braid.operators.joins.matches.block.JoinBlock`; :mod:`.matches.rows` forms their rows."""

    def __init__(self, files: BlockFiles) -> None:
        self._files = files
        self._windows = WindowReader(files)
        self._pairs: LeastRecentlyUsed[AllPairs] = LeastRecentlyUsed(INDEX_BYTES, lambda pairs: pairs.nbytes)
        self._indexes: LeastRecentlyUsed[JoinIndex] = LeastRecentlyUsed(INDEX_BYTES, lambda index: index.nbytes)

    def rows(
        self,
        query: Join,
        slot: int,
        active_from: Reached,
        parts: Sequence[BlockPart],
        start: int,
        count: int,
        max_bytes: int | None,
    ) -> pa.Table:
        """Return rows of a query in one batch, see :class:`braid.operators.operator.RowReader`."""
        if not query.is_formed_late:
            return self._windows.rows(query, slot, active_from, parts, start, count, max_bytes)
        paths = [part.path for part in parts]
        blocks = [self._files.open(path, partial(JoinBlock.deserialize, files=self._files.tuples)) for path in paths]
        windows = windows_of_slot(blocks, slot)
        for number, part in enumerate(parts):
            check_count(part, slot, sum(window.count for window in windows if window.block == number))
        pieces = []
        for window, first, length in overlapping(windows, start, count):
            block = blocks[window.block]
            index = self._indexes.get(
                (paths[window.block], window.start, window.end, what_is_indexed(query, window.start, active_from)),
                partial(self._index, query, block, paths[window.block], window.start, window.end, active_from),
            )
            rows = form_rows(query, block, window, index.page(first, length))
            if len(rows) != length:
                raise lost(paths[window.block], f"a window of slot {slot} has fewer rows than {window.count}")
            pieces.append(compute_outputs(query, rows, length, greatest(active_from), max_bytes))
        return pa.concat_tables(pieces) if pieces else empty_rows(query)

    def _index(self, query: Join, block: JoinBlock, path: str, start: int, end: int, active_from: Reached) -> JoinIndex:
        if may_pick(query, block, start, end, active_from):
            pairs = self._pairs.get((path, start, end), partial(all_pairs, block, start, end))
            if pairs.is_worth:
                return pick(query, block, pairs)
        return index_window(query, block, start, end, active_from)
