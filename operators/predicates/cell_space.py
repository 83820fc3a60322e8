"""Cell spaces: queries of one kind of one operator that test the same columns, and the cells that tell them apart.

A tuple falls into one cell of each space and is added there once, however many queries select it; a query's answer is
the sum over its cells. With one tested column this is cell aggregation; with several, tuples are grouped by equal
query-set (thesis 4.3.1.4), in a space for each query group (5.4.1): its query-sets are short, and tuples that none of
its queries selects are left out. Which groups take a tuple is found like a query-set, by one lookup per column. Set
cells have the bits of their queries alone, so a query that changes its group finds its tuples in the buckets of both.

Queries over one column that ask for a minimum or a maximum have a space of their own beside those that only add up:
otherwise a minimum would be kept in every cell of all queries, however few ask for one. What they add up besides is not
added up again where the cells of the others are made so fine that each lies in one of theirs. Queries that are true on
many stretches of the column's values, a long IN, would cut the cells of all others to pieces, so their tuples are
grouped by equal query-set, too: that makes hardly more cells than there are queries, however many values these name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from braid.operators import kernels
from braid.operators.arrays import Places
from braid.operators.live_queries import LiveQuery
from braid.operators.predicates import query_set
from braid.operators.predicates.cells import LineCells, SetCells
from braid.operators.predicates.dimension import CellLookup, Cells, Dimension
from braid.operators.predicates.index import PredicateIndex, TupleCells
from braid.operators.predicates.query_set import Bools, QuerySets, words_for
from braid.operators.predicates.space_key import SpaceKey

NO_CELL = -1
# tuples that no query of a space selects are left out beforehand where no more than this share remains
_WORTH_TAKING = 0.8
_SAMPLE = 1024
_BITS = 64
_ALL = (1 << _BITS) - 1
# query-sets of up to so many combinations of cells are worked out once for all tuples
_MAX_JOINT = 1 << 16
_MAX_CODES = np.iinfo(np.int32).max
# cells of queries that only add up are made finer for those with extremes if that gives at most so many boundaries, or
# so many times as many
_FEW_BOUNDARIES = 64
_MORE_BOUNDARIES = 2.5


class LineSpace:
    """Queries with predicates on one column at most, true on few stretches of its values.

    Its cells are fine enough for the queries ``besides``, too, and tuples that these select have one. The space of the
    queries besides has this one as its ``finer``, and finds sums in its cells.
    """

    def __init__(
        self,
        queries: Sequence[LiveQuery],
        index: PredicateIndex,
        key: SpaceKey,
        besides: Sequence[LiveQuery] = (),
        finer: LineSpace | None = None,
    ) -> None:
        self.queries = tuple(queries)
        self.key = key
        self.has_besides = bool(besides)
        self.finer = finer
        self.cells = LineCells()
        self._is_selected = np.ones(self.cells.count, dtype=np.bool_)
        self._cell_of: Cells | None = None
        if not key.dimensions:
            return
        (name,) = key.dimensions
        self.cells = LineCells(tuple(sorted(_boundaries([*queries, *besides], index, name))))
        edges = np.zeros(self.cells.count + 1, dtype=np.int32)
        for query in (*queries, *besides):
            for first, last in index.predicates[query.id].truths[name].runs_over(self.cells.boundaries):
                edges[first] += 1
                edges[last] -= 1
        self._is_selected = np.cumsum(edges)[:-1] > 0
        self._cell_of = self._selected_only(LineCells(index.dimensions[name].boundaries).map_to(self.cells))

    def lookup(self, tuple_cells: TupleCells, length: int) -> CellLookup:
        """Return how the cell of each tuple is looked up, ``NO_CELL`` for one that no query selects."""
        if self._cell_of is None:
            return CellLookup.of(np.zeros(length, dtype=np.int32), 1)
        return tuple_cells.lookup(self.key.dimensions[0]).mapped(self._cell_of)

    @cached_property
    def of_finer(self) -> Cells:
        """The cell of which each cell of ``finer`` is a part, ``NO_CELL`` where no query selects it."""
        assert self.finer is not None
        return self._selected_only(self.finer.cells.map_to(self.cells))

    def _selected_only(self, cells: Cells) -> Cells:
        return np.where(self._is_selected[cells], cells, NO_CELL).astype(np.int32)


class SetSpace:
    """Queries with predicates on the same columns, however many.

    Within the space query-sets have a bit per query of the space; :meth:`to_slots` gives them a bit per slot.
    """

    def __init__(self, queries: Sequence[LiveQuery], index: PredicateIndex, key: SpaceKey, words: int) -> None:
        self.queries = tuple(queries)
        self.key = key
        self._words = words
        self._slots = np.array([q.slot for q in queries], dtype=np.int64)
        axes = [query_set.distinct(_query_sets_over(index.dimensions[name], queries, index)) for name in key.dimensions]
        self._axes = [query_sets for query_sets, _ in axes]
        self._numbers = [numbers for _, numbers in axes]

    def takes(self, number: int) -> Bools:
        """Return which cells of a dimension, by its number, have tuples that some query may select."""
        return query_set.not_empty(self._axes[number])[self._numbers[number]]

    def assign(
        self, tuple_cells: Mapping[str, Cells], length: int, rows: Places | None = None
    ) -> tuple[Cells, QuerySets]:
        """Return the cell of each tuple, or of each of some ``rows``, and the query-set of each cell."""
        rows = np.arange(length, dtype=np.int32) if rows is None else rows
        if math.prod(map(len, self._axes)) <= min(_MAX_JOINT, len(rows)):
            codes = np.zeros(len(rows), dtype=np.int32)
            for name, numbers, axis in zip(self.key.dimensions, self._numbers, self._axes, strict=True):
                kernels.append_cell(codes, np.int32(len(axis)), numbers, tuple_cells[name], rows)
            numbers, query_sets = self._joint
            return kernels.take(numbers, codes), query_sets
        cell, query_sets = np.zeros(len(rows), dtype=np.int32), self._all_queries
        for name, numbers, axis in zip(self.key.dimensions, self._numbers, self._axes, strict=True):
            place = np.zeros(len(rows), dtype=np.int32)
            kernels.append_cell(place, np.int32(1), numbers, tuple_cells[name], rows)
            present, cell = _distinct_pairs(cell, len(query_sets), place, len(axis))
            query_sets, numbers = query_set.distinct(query_sets[present // len(axis)] & axis[present % len(axis)])
            cell = kernels.take(numbers, cell)
        return cell, query_sets

    @cached_property
    def _all_queries(self) -> QuerySets:
        """The query-set of all queries of the space."""
        return query_set.pack(np.ones((1, len(self.queries)), dtype=np.bool_), words_for(len(self.queries)))

    @cached_property
    def _joint(self) -> tuple[Cells, QuerySets]:
        """The number of the query-set of each combination of cells, by the first dimension first; and these sets."""
        combined = self._all_queries
        for axis in self._axes:
            combined = (combined[:, np.newaxis] & axis).reshape(-1, axis.shape[1])
        query_sets, numbers = query_set.distinct(combined)
        return numbers, query_sets

    def for_bucket(self, cell: Cells, query_sets: QuerySets) -> tuple[Cells, SetCells]:
        """Return the same cells for a bucket: ``NO_CELL`` for a tuple that no query selects, slots for bits."""
        is_selected = query_set.not_empty(query_sets)
        if not is_selected.all():
            numbers = np.arange(len(is_selected), dtype=np.int32)
            cell = kernels.take(np.where(is_selected, numbers, np.int32(NO_CELL)), cell)
        return cell, SetCells(self.to_slots(query_sets))

    def to_slots(self, query_sets: QuerySets) -> QuerySets:
        """Return query-sets of the space in the slots of the epoch."""
        bits = np.zeros((len(query_sets), self._words * 64), dtype=np.bool_)
        bits[:, self._slots] = query_set.unpack(query_sets, np.arange(len(self.queries)))
        return query_set.pack(bits, self._words)


CellSpace = LineSpace | SetSpace


class Groups:
    """Which tuples the query groups among some cell spaces take.

    A tuple has a set of groups, as it has a set of queries: those with queries for its cell, in every dimension.
    """

    def __init__(self, spaces: Sequence[CellSpace]) -> None:
        self._spaces = len(spaces)
        by_dimensions: dict[tuple[str, ...], dict[int, SetSpace]] = {}
        for number, space in enumerate(spaces):
            if isinstance(space, SetSpace) and space.key.dimensions:
                by_dimensions.setdefault(space.key.dimensions, {})[number] = space
        # a set of groups is one word, so spaces come in portions of as many as it has bits
        self._words: list[tuple[list[int], list[tuple[str, npt.NDArray[np.uint64]]]]] = []
        for dimensions, members in by_dimensions.items():
            for first in range(0, len(members), _BITS):
                numbers = list(members)[first : first + _BITS]
                spaces_of_word = [members[number] for number in numbers]
                axes = [(name, _groups_taking(place, spaces_of_word)) for place, name in enumerate(dimensions)]
                self._words.append((numbers, axes))

    def rows(self, tuple_cells: Mapping[str, Cells], length: int) -> list[Places | None]:
        """Return for each space the tuples in cells that it takes in every dimension; None if these are most."""
        rows: list[Places | None] = [None] * self._spaces
        sample = slice(0, length, max(1, length // _SAMPLE))
        for numbers, axes in self._words:
            sampled = _sets({name: tuple_cells[name][sample] for name, _ in axes}, axes, np.uint64(_ALL))
            share = np.diff(_starts(sampled)) / len(sampled)
            is_listed = [share[bit] < _WORTH_TAKING for bit in range(len(numbers))]
            if not any(is_listed):
                continue
            listed_groups = np.uint64(sum(1 << bit for bit, listed in enumerate(is_listed) if listed))
            sets = _sets(tuple_cells, axes, listed_groups)
            starts = _starts(sets)
            tuples_by_bit = np.empty(int(starts[-1]), dtype=np.int32)
            kernels.list_by_bit(tuples_by_bit, starts.copy(), sets)
            for bit, number in enumerate(numbers):
                if is_listed[bit]:
                    rows[number] = tuples_by_bit[starts[bit] : starts[bit + 1]]
        return rows


def assign_cells(space: CellSpace, tuple_cells: TupleCells, length: int) -> tuple[Cells, LineCells | SetCells]:
    """Return each tuple's cell, ``NO_CELL`` for one that no query selects, and what the cells stand for."""
    if isinstance(space, LineSpace):
        return space.lookup(tuple_cells, length).cells(), space.cells
    return space.for_bucket(*space.assign(tuple_cells, length))


def _query_sets_over(dimension: Dimension, queries: Sequence[LiveQuery], index: PredicateIndex) -> QuerySets:
    """Return the query-set of each cell of a dimension."""
    changes = np.zeros((dimension.cell_count + 1, words_for(len(queries))), dtype=np.uint64)
    for number, query in enumerate(queries):
        runs = index.predicates[query.id].truths[dimension.name].runs_over(dimension.boundaries)
        word, bit = divmod(number, _BITS)
        changes[np.array(runs, dtype=np.int64).ravel(), word] ^= np.uint64(1 << bit)
    return np.bitwise_xor.accumulate(changes, axis=0)[:-1]


def _sets(
    tuple_cells: Mapping[str, Cells], axes: Sequence[tuple[str, npt.NDArray[np.uint64]]], among: np.uint64
) -> npt.NDArray[np.uint64]:
    """Return which of the groups ``among`` all take each tuple, as bits."""
    sets = np.full(len(next(iter(tuple_cells.values()))), among, dtype=np.uint64)
    for name, axis in axes:
        kernels.intersect(sets, axis, tuple_cells[name])
    return sets


def _starts(sets: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return where the tuples of each bit begin in a list of them, bit by bit; one end more."""
    starts = np.zeros(_BITS + 1, dtype=np.int64)
    kernels.count_bits(starts, sets)
    return starts


def _groups_taking(dimension: int, spaces: Sequence[SetSpace]) -> npt.NDArray[np.uint64]:
    """Return which of some spaces take each cell of a dimension, given by its number among theirs, as bits."""
    return query_set.pack(np.stack([space.takes(dimension) for space in spaces], axis=1), 1)[:, 0]


def _distinct_pairs(left: Cells, lefts: int, right: Cells, rights: int) -> tuple[npt.NDArray[np.int64], Cells]:
    """Return the pairs of cells that occur, ascending, as ``left * rights + right``, and the rank of each tuple's."""
    length, span = len(left), lefts * rights
    if span > _MAX_CODES or span > 4 * length + 1000:
        present, rank = np.unique(left.astype(np.int64) * rights + right, return_inverse=True)
        return present, rank.astype(np.int32)
    codes, rank = np.empty(length, dtype=np.int32), np.empty(length, dtype=np.int32)
    kernels.place(codes, left, right, np.int32(rights))
    first = np.empty(min(length, span), dtype=np.int64)
    pairs = kernels.number_ascending(rank, first, np.zeros(span, dtype=np.int32), codes, 0, span)
    return codes[first[:pairs]].astype(np.int64), rank


def cell_spaces(queries: Sequence[LiveQuery], index: PredicateIndex, words: int) -> list[CellSpace]:
    """Split aggregations, all of them in the index, by their space; where it is over several columns, by group, too."""
    spaces: list[CellSpace] = []
    by_key = dict(_by_key(queries, index))
    finer: dict[tuple[str, ...], LineSpace] = {}
    for key, members in by_key.items():
        if key.has_sets:
            spaces += [SetSpace(group, index, key, words) for group in _by_group(members)]
            continue
        besides = [] if key.has_extremes else by_key.get(key._replace(has_extremes=True), [])
        if besides and not _add_few_cells(besides, members, index, *key.dimensions):
            besides = []
        space = LineSpace(members, index, key, besides, finer.get(key.dimensions))
        spaces.append(space)
        if besides:
            finer[key.dimensions] = space
    return spaces


def _add_few_cells(
    besides: Sequence[LiveQuery], queries: Sequence[LiveQuery], index: PredicateIndex, name: str
) -> bool:
    """Return whether cells fine enough for the queries ``besides``, too, are not many more."""
    boundaries = _boundaries(queries, index, name)
    finer = boundaries | _boundaries(besides, index, name)
    return len(finer) <= max(_FEW_BOUNDARIES, _MORE_BOUNDARIES * len(boundaries))


def _boundaries(queries: Iterable[LiveQuery], index: PredicateIndex, name: str) -> set[Any]:
    return {boundary for query in queries for boundary in index.predicates[query.id].truths[name].boundaries}


def set_spaces(queries: Sequence[LiveQuery], index: PredicateIndex, words: int) -> list[SetSpace]:
    """Split selections, which need the query-set of each tuple, in the same way."""
    return [SetSpace(members, index, key, words) for key, members in _by_key(queries, index)]


def _by_key(queries: Sequence[LiveQuery], index: PredicateIndex) -> list[tuple[SpaceKey, list[LiveQuery]]]:
    by_key: dict[SpaceKey, list[LiveQuery]] = {}
    for query in queries:
        by_key.setdefault(SpaceKey.of(query.query, index.predicates[query.id]), []).append(query)
    return sorted(by_key.items(), key=lambda item: item[0])


def _by_group(queries: Sequence[LiveQuery]) -> list[list[LiveQuery]]:
    by_group: dict[int, list[LiveQuery]] = {}
    for query in queries:
        by_group.setdefault(query.group, []).append(query)
    return [members for _, members in sorted(by_group.items())]
