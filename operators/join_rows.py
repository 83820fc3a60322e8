"""Form the rows of a join out of join blocks, page by page.

The tuples of an input that have the same codes are a group. A window's rows are ordered by the combination of groups
that they come from, then by the tuple of the first input, of the second, and so on. Only the rows of a page are formed,
however many the window has.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from operators import kernels
from operators.expressions import typed_columns_of
from operators.join_block import COUNT, END, SLOT, START, TIME, JoinBlock, code_column, order_by_codes
from operators.queries import WINDOW_END, WINDOW_START, Join
from operators.relations import NO_ROW, JoinResult, Relation, Rows
from operators.tuples import Tuples
from sources.columns import arrays_of, one_array

ActiveFrom = Mapping[str, int | None]


@dataclass(frozen=True)
class WindowRows:
    """``count`` rows of a window of a query in a block; ``start`` and ``end`` in microseconds."""

    block: int
    start: int
    end: int
    count: int


def windows_of_slot(blocks: Sequence[JoinBlock], slot: int) -> list[WindowRows]:
    """Return the windows of the query in a slot that have rows in some blocks, in their order."""
    found = []
    for number, block in enumerate(blocks):
        slots = np.asarray(one_array(block.windows.column(SLOT)))
        first, after = np.searchsorted(slots, [slot, slot + 1]).tolist()
        mine = block.windows.slice(first, after - first).select([START, END, COUNT]).to_pydict()
        found += [WindowRows(number, *each) for each in zip(mine[START], mine[END], mine[COUNT], strict=True)]
    return sorted(found, key=lambda window: (window.end, window.start, window.block))


@dataclass(frozen=True)
class JoinIndex:
    """The tuples of a block that a window of a query joins: of each input their rows, group by group.

    ``joined`` are the groups, the members of which are these tuples.
    """

    inputs: Sequence[Rows]
    joined: JoinResult

    @property
    def nbytes(self) -> int:
        """The memory it takes, about: what orders and counts the groups has a few numbers for each of them."""
        return 9 * sum(rows.nbytes for rows in self.inputs)


def what_is_indexed(query: Join, start: int, active_from: ActiveFrom) -> Hashable:
    """Return what decides about the index of a window that begins at ``start``: queries with equal ones share it."""
    found = []
    for each in query.inputs:
        after = active_from.get(each.stream)
        sees_after = start - 1 if after is None else max(start - 1, after)
        # 0.0 and -0.0 are equal, but have different texts
        found.append((each.where, str(each.where), each.outer_of, each.anti, sees_after))
    return tuple(found)


def index_window(query: Join, block: JoinBlock, start: int, end: int, active_from: ActiveFrom) -> JoinIndex:
    """Return what rows of a window are formed from; ``active_from`` is that of the query's streams."""
    inputs, sizes, relations = [], [], []
    for each, table in zip(query.inputs, block.inputs, strict=True):
        times = np.asarray(one_array(table.column(TIME)))
        after = active_from.get(each.stream)
        mask = (times >= start) & (times < end)
        if after is not None:
            mask &= times > after
        if each.where is not None and table.num_rows:
            tuples = Tuples(arrays_of(table), table.num_rows)
            mask &= np.asarray(tuples.value(each.where).fill_null(False))
        mine = np.flatnonzero(mask)
        names = [(attribute, code_column(attribute)) for attribute in range(len(each.keys))]
        codes = {
            attribute: np.asarray(one_array(table.column(name)))[mine]
            for attribute, name in names
            if name in table.column_names
        }
        order = order_by_codes(list(codes.values()))
        if order is not None:  # of a block written before they were kept in order
            mine, codes = mine[order], {attribute: code[order] for attribute, code in codes.items()}
        differs = np.zeros(max(0, len(mine) - 1), dtype=np.bool_)
        for code in codes.values():
            differs |= code[1:] != code[:-1]
        starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(mine)), dtype=np.bool_), differs]))
        inputs.append(mine)
        sizes.append(np.diff(starts, append=len(mine)))
        codes = {attribute: code[starts].astype(np.int64) for attribute, code in codes.items()}
        relations.append(Relation(len(starts), codes, each.outer_of, each.anti))
    return JoinIndex(inputs, JoinResult(relations, sizes))


def _places(rows: Rows, at: Rows) -> pa.Array:
    """Return some of the rows, NULL for ``NO_ROW``."""
    missing = at == NO_ROW
    if not missing.any():
        return pa.array(kernels.taken(rows, at))
    return pa.array(kernels.taken(np.append(rows, 0), np.where(missing, len(rows), at)), mask=missing)


def form_rows(query: Join, block: JoinBlock, index: JoinIndex, window: WindowRows, first: int, count: int) -> pa.Table:
    """Return the joined rows ``[first, first + count)`` of a window: columns ``alias.column``, and its bounds."""
    columns: dict[str, pa.Array] = {}
    for each, table, rows, at in zip(
        query.inputs, block.inputs, index.inputs, index.joined.page(first, count), strict=True
    ):
        length, taken = len(at), _places(rows, at)
        for name in table.column_names:
            if not name.startswith("_"):
                columns[f"{each.alias}.{name}"] = one_array(table.column(name)).take(taken)
    for expression in query.over_rows:
        for column in typed_columns_of(expression):  # an outer input may have no tuples, nor their columns
            columns.setdefault(column.name, pa.nulls(length, column.type.arrow))
    columns[WINDOW_START] = pa.array(np.full(length, window.start)).view(pa.timestamp("us"))
    columns[WINDOW_END] = pa.array(np.full(length, window.end)).view(pa.timestamp("us"))
    return pa.table(columns)


def overlapping(windows: Sequence[WindowRows], start: int, count: int) -> Iterator[tuple[WindowRows, int, int]]:
    """Yield the windows in which rows ``[start, start + count)`` of all lie, each with the first and their number."""
    for window in windows:
        if count <= 0:
            return
        if start < window.count:
            taken = min(window.count - start, count)
            yield window, start, taken
            count -= taken
            start = 0
        else:
            start -= window.count
