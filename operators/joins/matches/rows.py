"""Form the rows of a join out of join blocks, page by page.

The tuples of an input that have the same codes are a group. A window's rows are ordered by the combination of groups
that they come from, then by the tuple of the first input, of the second, and so on. Only the rows of a page are formed,
however many the window has.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from braid.operators import kernels
from braid.operators.arrays import Places
from braid.operators.expressions import Column, typed_columns_of
from braid.operators.joins.gathering import take
from braid.operators.joins.matches.all_pairs import AllPairs, PickedPairs
from braid.operators.joins.matches.block import COUNT, END, SLOT, START, BlockInput, JoinBlock
from braid.operators.joins.matches.pairs import Pairs
from braid.operators.joins.matches.relations import NO_ROW, JoinResult, Relation
from braid.operators.joins.query import Join, JoinInput
from braid.operators.predicates.query_set import Bools
from braid.operators.query_parts import WINDOW_END, WINDOW_START
from braid.operators.tuples import Tuples
from braid.sources.core.columns import one_array

ActiveFrom = Mapping[str, int | None]

MIN_QUERIES = 2
"""All pairs of a window are found where so many queries have rows of it."""
_EVERYTHING: Bools = np.empty(0, dtype=np.bool_)


@dataclass(frozen=True)
class BlockWindow:
    """``count`` rows of a window of a query in a block; ``start`` and ``end`` in microseconds."""

    block: int
    start: int
    end: int
    count: int


def windows_of_slot(blocks: Sequence[JoinBlock], slot: int) -> list[BlockWindow]:
    """Return the windows of the query in a slot that have rows in some blocks, in their order."""
    windows = []
    for number, block in enumerate(blocks):
        slots = np.asarray(one_array(block.windows.column(SLOT)))
        first, after = np.searchsorted(slots, [slot, slot + 1]).tolist()
        columns = block.windows.slice(first, after - first).select([START, END, COUNT]).to_pydict()
        windows += [
            BlockWindow(number, *bounds) for bounds in zip(columns[START], columns[END], columns[COUNT], strict=True)
        ]
    return sorted(windows, key=lambda window: (window.end, window.start, window.block))


class JoinIndex(Protocol):
    """The tuples of a block that a window of a query joins."""

    @property
    def total(self) -> int:
        """How many joined rows there are."""

    @property
    def nbytes(self) -> int:
        """The memory that it takes, about."""

    def page(self, first: int, count: int) -> Sequence[Places]:
        """Return of the joined rows ``[first, first + count)`` the row of each input, ``NO_ROW`` for none."""


@dataclass(frozen=True)
class _GroupIndex:
    """The rows of each input, group by group; ``joined`` are the groups, the members of which are these rows."""

    inputs: Sequence[Places]
    joined: JoinResult

    @property
    def total(self) -> int:
        return self.joined.total

    @property
    def nbytes(self) -> int:
        # what orders and counts the groups has a few numbers for each of them
        return 18 * sum(rows.nbytes for rows in self.inputs)

    def page(self, first: int, count: int) -> list[Places]:
        pages = zip(self.inputs, self.joined.page(first, count), strict=True)
        return [kernels.take(np.append(rows, np.int32(NO_ROW)), at) for rows, at in pages]


def what_is_indexed(query: Join, start: int, active_from: ActiveFrom) -> Hashable:
    """Return what decides about the index of a window that begins at ``start``: queries with equal ones share it."""
    parts: list[Hashable] = [query.is_reordered]
    for join_input in query.inputs:
        after = active_from.get(join_input.stream)
        sees_after = start - 1 if after is None else max(start - 1, after)
        # 0.0 and -0.0 are equal, but have different texts
        parts.append((join_input.where, str(join_input.where), join_input.outer_of, join_input.anti, sees_after))
    return tuple(parts)


def index_window(query: Join, block: JoinBlock, start: int, end: int, active_from: ActiveFrom) -> JoinIndex:
    """Return what rows of a window are formed from; ``active_from`` is that of the query's streams."""
    inputs = [
        _rows_in_window(join_input, tuples, start, end, active_from.get(join_input.stream))
        for join_input, tuples in zip(query.inputs, block.inputs, strict=True)
    ]
    if block.is_of_pairs:
        right = query.inputs[1]
        return _pairs(block, inputs, bool(right.outer_of), right.anti)
    return _index_groups(query, block, inputs)


def _pairs(block: JoinBlock, inputs: Sequence[Places], outer: bool = False, anti: bool = False) -> Pairs:
    left, right = (code for tuples in block.inputs for code in tuples.codes.values())
    return Pairs((inputs[0], inputs[1]), (left, right), outer, anti)


def may_pick(query: Join, block: JoinBlock, start: int, end: int, active_from: ActiveFrom) -> bool:
    """Whether rows of a window are some of all pairs of its tuples, of interest to several queries: :func:`pick`."""
    after = [active_from.get(join_input.stream) for join_input in query.inputs]
    is_whole = all(clock is None or clock < start for clock in after)
    is_inner = block.is_of_pairs and not query.inputs[1].outer_of
    return is_whole and is_inner and block.queries_of(start, end) >= MIN_QUERIES


def all_pairs(block: JoinBlock, start: int, end: int) -> AllPairs:
    """Return the pairs of all tuples in a window."""
    return AllPairs(_pairs(block, [_between(tuples, start, end) for tuples in block.inputs]))


def pick(query: Join, block: JoinBlock, pairs: AllPairs) -> JoinIndex:
    """Return what rows of a window are formed from, where :func:`may_pick`, out of all its pairs."""
    left, right = (
        _satisfying(join_input, tuples) for join_input, tuples in zip(query.inputs, block.inputs, strict=True)
    )
    return PickedPairs(pairs, left, right)


def _satisfying(join_input: JoinInput, tuples: BlockInput) -> Bools:
    """Return whether tuples of an input satisfy what a query asks of them; empty where it asks nothing."""
    if join_input.where is None or not tuples.length:
        return _EVERYTHING
    columns = {column.name: _column(tuples, column) for column in typed_columns_of(join_input.where)}
    tested = Tuples(columns, tuples.length)
    return np.asarray(tested.value(join_input.where).fill_null(False))


def _rows_in_window(join_input: JoinInput, tuples: BlockInput, start: int, end: int, after: int | None) -> Places:
    """Return the tuples of an input that lie in a window and satisfy what a query asks of them."""
    return _between(tuples, start if after is None else max(start, after + 1), end, _satisfying(join_input, tuples))


def _between(tuples: BlockInput, start: int, end: int, is_wanted: Bools = _EVERYTHING) -> Places:
    rows = np.empty(tuples.length, dtype=np.int32)
    return rows[: kernels.rows_between(rows, tuples.times, start, end, is_wanted)].copy()


def _index_groups(query: Join, block: JoinBlock, inputs: Sequence[Places]) -> _GroupIndex:
    """Return the joined groups of tuples with equal codes."""
    sizes, relations = [], []
    for join_input, tuples, rows in zip(query.inputs, block.inputs, inputs, strict=True):
        codes = {attribute: kernels.take(code, rows) for attribute, code in tuples.codes.items()}
        differs = np.zeros(max(0, len(rows) - 1), dtype=np.bool_)
        for code in codes.values():
            differs |= code[1:] != code[:-1]
        starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(rows)), dtype=np.bool_), differs]))
        sizes.append(np.diff(starts, append=len(rows)))
        of_groups = {attribute: code[starts].astype(np.int64) for attribute, code in codes.items()}
        relations.append(Relation(len(starts), of_groups, join_input.outer_of, join_input.anti))
    return _GroupIndex(inputs, JoinResult(relations, sizes, query.is_reordered))


def _column(tuples: BlockInput, column: Column) -> pa.Array:
    """Return a column of an input: an outer one may have no tuples, or only some that no query sees that needs it."""
    array = tuples.column(column.name)
    return pa.nulls(tuples.length, column.type.arrow) if array is None else array


def _rows_of(column: pa.Array, rows: Places, missing: Bools | None) -> pa.Array:
    """Return some rows of a column, NULL for those that are ``missing``."""
    return take(column, rows) if missing is None else column.take(pa.array(rows, mask=missing))


def form_rows(query: Join, block: JoinBlock, window: BlockWindow, rows_of: Sequence[Places]) -> pa.Table:
    """Return joined rows of a window, given as the row of each input: columns ``alias.column``, and its bounds."""
    columns: dict[str, pa.Array] = {}
    needed = {column.name: column for expression in query.over_rows for column in typed_columns_of(expression)}
    for join_input, tuples, rows in zip(query.inputs, block.inputs, rows_of, strict=True):
        length, prefix = len(rows), f"{join_input.alias}."
        missing = rows == NO_ROW if join_input.outer_of else None
        for name in needed:
            if name.startswith(prefix):
                column = _column(tuples, Column(name.removeprefix(prefix), needed[name].type))
                columns[name] = _rows_of(column, rows, missing)
    for name, column in needed.items():
        columns.setdefault(name, pa.nulls(length, column.type.arrow))
    columns[WINDOW_START] = pa.array(np.full(length, window.start)).view(pa.timestamp("us"))
    columns[WINDOW_END] = pa.array(np.full(length, window.end)).view(pa.timestamp("us"))
    return pa.table(columns)


def overlapping(windows: Sequence[BlockWindow], start: int, count: int) -> Iterator[tuple[BlockWindow, int, int]]:
    """Yield the windows in which rows ``[start, start + count)`` of all lie, each with the first and their number."""
    for window in windows:
        if count <= 0:
            return
        if start < window.count:
            in_window = min(window.count - start, count)
            yield window, start, in_window
            count -= in_window
            start = 0
        else:
            start -= window.count
