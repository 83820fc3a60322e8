"""Rows of queries with groups, out of blocks of rows of windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braid.operators.block_files import BlockFiles, BlockPart, Rows, check_count
from braid.operators.joins.query import Join
from braid.operators.operator import Reached
from braid.operators.queries import Aggregation
from braid.operators.query_parts import VER, WINDOW_END, WINDOW_START
from braid.operators.result_rows import compute_outputs, needed_columns
from braid.operators.windowing.window_rows import WindowRows
from braid.sources.core.least_recently_used import LeastRecentlyUsed

_FORMED_BYTES = 64 << 20


class WindowReader:
    """Reads blocks of :class:`braid.operators.windowing.window_rows.WindowRows`: ``key0``…, measures.

    Rows of queries with EMIT STREAM have ``_op``, ``_ptime`` and ``_ver``, too.
    """

    def __init__(self, files: BlockFiles) -> None:
        self._files = files
        self._formed: LeastRecentlyUsed[WindowRows] = LeastRecentlyUsed(_FORMED_BYTES, lambda rows: rows.nbytes)

    def rows(
        self,
        query: Aggregation | Join,
        slot: int,
        active_from: Reached,
        parts: Sequence[BlockPart],
        start: int,
        count: int,
        max_bytes: int | None,
    ) -> pa.Table:
        """Return rows of a query in one batch, see :class:`braid.operators.operator.RowReader`."""
        slices = []
        for part in parts:
            slot_rows = self._of_slot(part.path, slot)
            check_count(part, slot, len(slot_rows))
            block = slot_rows.table()
            # blocks of one batch differ in the measures of other queries, and in their order
            names = [*window_order(query), *sorted(needed_columns(query, block))]
            slices.append(block.select(list(dict.fromkeys(names))))
        all_rows = pa.concat_tables(slices)
        key = ("windows", tuple(part.path for part in parts), slot)
        order = self._files.rows(key, lambda: order_windows(all_rows, query))
        row_numbers = order[start : start + count]
        rows = all_rows.select(needed_columns(query, all_rows)).take(row_numbers)
        return compute_outputs(query, rows, len(row_numbers), greatest(active_from), max_bytes)

    def _of_slot(self, path: str, slot: int) -> WindowRows:
        """Return the rows of a slot in a block; those that have to be formed are kept for the next page."""
        block = self._files.open(path, WindowRows.read)
        return self._formed.get((path, slot), lambda: block.of_slot(slot)) if block.cells else block.of_slot(slot)


def greatest(active_from: Reached) -> int | None:
    """Return the event time (µs) at or before which the windows begin that are partial, None where none is."""
    return max((time for time in active_from.values() if time is not None), default=None)


def window_order(query: Aggregation | Join) -> list[str]:
    """Return the columns that order one batch's rows of a query with groups."""
    keys = (f"key{i}" for i in range(len(query.keys)))
    return [WINDOW_END, WINDOW_START, *keys, *([VER] * query.emit.stream)]


def order_windows(rows: pa.Table, query: Aggregation | Join) -> Rows:
    """Return the order of one batch's rows: by window_end, window_start, the keys (NULL last), changes as they came."""
    names = window_order(query)
    sort_keys: list[tuple[str, Literal["ascending", "descending"]]] = [(name, "ascending") for name in names]
    order = pc.sort_indices(rows.select(names), sort_keys=sort_keys)  # NULL comes last
    return order.to_numpy().astype(np.int64)
