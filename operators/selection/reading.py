"""Rows of selections, out of blocks of tuples with their query-sets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from braid.operators.block_files import BlockFiles, BlockPart, Rows, as_table, check_count
from braid.operators.operator import Reached
from braid.operators.predicates.query_set import column_of_slot
from braid.operators.queries import Selection
from braid.operators.result_rows import compute_outputs, empty_rows, needed_columns


class SelectionReader:
    """Reads blocks of columns of a stream and ``_query_set``: little-endian words, bit ``s`` of word ``s // 64``, those
    words that have selections.
    """

    def __init__(self, files: BlockFiles) -> None:
        self._files = files

    def rows(
        self,
        query: Selection,
        slot: int,
        active_from: Reached,  # noqa: ARG002
        parts: Sequence[BlockPart],
        start: int,
        count: int,
        max_bytes: int | None,
    ) -> pa.Table:
        """Return rows of a query in one batch, see :class:`braid.operators.operator.RowReader`."""
        pieces = []
        for part in parts:
            if start < part.count and count > 0:
                length = min(part.count - start, count)
                pieces.append(self._selected(query, slot, part, start, length, max_bytes))
                count -= length
                start = 0
            else:
                start -= part.count
        return pa.concat_tables(pieces) if pieces else empty_rows(query)

    def _selected(
        self, query: Selection, slot: int, part: BlockPart, start: int, count: int, max_bytes: int | None
    ) -> pa.Table:
        block = self._files.open(part.path, as_table)
        indexes = self._files.rows(("selection", part.path, slot), lambda: rows_of_slot(block, slot))
        check_count(part, slot, len(indexes))
        row_numbers = indexes[start : start + count]
        first, last = int(row_numbers[0]), int(row_numbers[-1])
        span = block.slice(first, last - first + 1)
        if len(row_numbers) < len(span):
            span = span.select(needed_columns(query, span)).take(row_numbers - first)
        return compute_outputs(query, span, len(row_numbers), max_bytes=max_bytes)


def rows_of_slot(block: pa.Table, slot: int) -> Rows:
    """Return the ascending row numbers of a selection block whose query-set has bit ``slot``."""
    row_numbers, first_row = [], 0
    for words in column_of_slot(block, slot):
        row_numbers.append(np.flatnonzero(words & np.uint64(1 << (slot % 64))) + first_row)
        first_row += len(words)
    return np.concatenate(row_numbers) if row_numbers else np.empty(0, np.int64)
