"""Form the rows of one join query out of join blocks, page by page.

A window's rows are ordered by the tuple of the first input, then by that of the second, and so on, as they lie in the
block. How many rows each tuple of the first input is part of says where a page begins, so that only its own rows are
formed, however many the window has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from operators.expressions import typed_columns_of
from operators.join_block import COUNT, END, SLOT, START, TIME, JoinBlock, code_column
from operators.queries import WINDOW_END, WINDOW_START, Join
from operators.relations import NO_ROW, Relation, Rows, combine, row_counts
from operators.tuples import Tuples

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
        slots = np.asarray(block.windows.column(SLOT).combine_chunks())
        first, after = np.searchsorted(slots, [slot, slot + 1]).tolist()
        mine = block.windows.slice(first, after - first).select([START, END, COUNT]).to_pydict()
        found += [WindowRows(number, *each) for each in zip(mine[START], mine[END], mine[COUNT], strict=True)]
    return sorted(found, key=lambda window: (window.end, window.start, window.block))


@dataclass(frozen=True)
class JoinIndex:
    """The tuples of a block that a window of a query joins: of each input their rows, and what they join by.

    ``before[i]`` is how many joined rows the first i tuples of the first input are part of.
    """

    rows: Sequence[Rows]
    relations: Sequence[Relation]
    before: Rows

    @property
    def nbytes(self) -> int:
        """The memory it takes, about."""
        codes = sum(code.nbytes for relation in self.relations for code in relation.codes.values())
        return int(self.before.nbytes + codes + sum(rows.nbytes for rows in self.rows))


def index_window(query: Join, block: JoinBlock, start: int, end: int, active_from: ActiveFrom) -> JoinIndex:
    """Return what rows of a window are formed from; ``active_from`` is that of the query's streams."""
    rows, relations = [], []
    for each, table in zip(query.inputs, block.inputs, strict=True):
        times = np.asarray(table.column(TIME).combine_chunks())
        after = active_from.get(each.stream)
        mask = (times >= start) & (times < end)
        if after is not None:
            mask &= times > after
        if each.where is not None and table.num_rows:
            tuples = Tuples({name: table.column(name).combine_chunks() for name in table.column_names}, table.num_rows)
            mask &= np.asarray(tuples.value(each.where).fill_null(False))
        mine = np.flatnonzero(mask)
        codes = {
            attribute: np.asarray(table.column(code_column(attribute)).combine_chunks())[mine].astype(np.int64)
            for attribute, key in enumerate(each.keys)
            if key is not None
        }
        rows.append(mine)
        relations.append(Relation(len(mine), codes, each.outer_of))
    return JoinIndex(rows, relations, np.concatenate([[0], np.cumsum(row_counts(relations))]))


def form_rows(query: Join, block: JoinBlock, index: JoinIndex, window: WindowRows, first: int, count: int) -> pa.Table:
    """Return the joined rows ``[first, first + count)`` of a window: columns ``alias.column``, and its bounds."""
    low = int(np.searchsorted(index.before, first, side="right")) - 1
    high = int(np.searchsorted(index.before, first + count, side="left"))
    leading = index.relations[0]
    part = Relation(high - low, {a: code[low:high] for a, code in leading.codes.items()}, leading.outer_of)
    joined = combine([part, *index.relations[1:]])
    skipped = first - int(index.before[low])
    columns: dict[str, pa.Array] = {}
    for number, each in enumerate(query.inputs):
        at = joined[number][skipped : skipped + count] + (low if number == 0 else 0)
        mine, table = index.rows[number], block.inputs[number]
        missing = at == NO_ROW if each.outer_of else None
        places = mine[at] if missing is None else np.where(missing, 0, mine[at] if len(mine) else 0)
        taken = pa.array(places, mask=missing)
        for name in table.column_names:
            if not name.startswith("_"):
                columns[f"{each.alias}.{name}"] = table.column(name).combine_chunks().take(taken)
    length = len(joined[0][skipped : skipped + count])
    for output in query.outputs:
        for column in typed_columns_of(output.expression):  # an outer input may have no tuples, nor their columns
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
