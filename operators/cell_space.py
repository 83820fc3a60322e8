"""Cell spaces: queries of one operator that test the same columns, and the cells that tell them apart.

A tuple falls into one cell of each space and is added there once, however many queries select it; a query's answer is
the sum over its cells. With one tested column this is cell aggregation; with several, tuples are grouped by equal
query-set (thesis 4.3.1.4), in a space for each query group (5.4.1): its query-sets are short, and tuples that none of
its queries selects are left out. Set cells have the bits of their queries alone, so a query that changes its group
finds its tuples in the buckets of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from operators import cells, kernels, query_set
from operators.cells import LineCells, SetCells
from operators.dimension import Cells, Dimension
from operators.live_queries import LiveQuery
from operators.predicate_index import PredicateIndex
from operators.query_set import Words, words_for

Numbers = npt.NDArray[np.int32]

NO_CELL = -1
# tuples that no query selects are left out beforehand where no more than this share remains
_WORTH_TAKING = 0.8


class LineSpace:
    """Queries with predicates on one column at most."""

    def __init__(self, queries: Sequence[LiveQuery], index: PredicateIndex, dimensions: tuple[str, ...]) -> None:
        self.queries = tuple(queries)
        self.dimensions = dimensions
        self.cells = LineCells()
        self._local: Numbers | None = None
        if not dimensions:
            return
        (name,) = dimensions
        truths = [index.predicates[q.id].truths[name] for q in queries]
        self.cells = LineCells(tuple(sorted({b for truth in truths for b in truth.boundaries})))
        edges = np.zeros(self.cells.count + 1, dtype=np.int32)
        for truth in truths:
            for first, last in truth.runs_over(self.cells.boundaries):
                edges[first] += 1
                edges[last] -= 1
        wanted = np.cumsum(edges)[:-1] > 0
        local = LineCells(index.dimensions[name].boundaries).map_to(self.cells)
        self._local = np.where(wanted[local], local, NO_CELL).astype(np.int32)

    def assign(self, found: Mapping[str, Cells], length: int) -> tuple[Numbers, LineCells]:
        """Return each tuple's cell, shape (length,), ``NO_CELL`` for one that no query selects; and the cells."""
        if self._local is None:
            return np.zeros(length, dtype=np.int32), self.cells
        return kernels.taken(self._local, found[self.dimensions[0]]), self.cells


class SetSpace:
    """Queries with predicates on the same columns, however many.

    Within the space query-sets have a bit per query of the space; :meth:`to_slots` gives them a bit per slot.
    """

    def __init__(
        self, queries: Sequence[LiveQuery], index: PredicateIndex, dimensions: tuple[str, ...], words: int
    ) -> None:
        self.queries = tuple(queries)
        self.dimensions = dimensions
        self._words = words
        self._slots = np.array([q.slot for q in queries], dtype=np.int64)
        self._axes = [_query_sets_over(index.dimensions[name], queries, index) for name in dimensions]
        self._wanted = [query_set.not_empty(axis) for axis in self._axes]

    def rows(self, found: Mapping[str, Cells], length: int) -> npt.NDArray[np.int64] | None:
        """Return the tuples that lie in a cell of some query in every dimension; None where these are hardly fewer."""
        there = np.ones(length, dtype=np.bool_)
        for name, wanted in zip(self.dimensions, self._wanted, strict=True):
            if not wanted.all():
                there &= kernels.taken(wanted, found[name])
        rows = np.flatnonzero(there)
        return rows if len(rows) < _WORTH_TAKING * length else None

    def assign(self, found: Mapping[str, Cells], length: int) -> tuple[Numbers, Words]:
        """Return each tuple's cell, shape (length,), and the query-set of each cell."""
        if not self.dimensions:
            everybody = np.ones((1, len(self.queries)), dtype=np.bool_)
            return np.zeros(length, dtype=np.int32), query_set.pack(everybody, words_for(len(self.queries)))
        cell: npt.NDArray[Any] = found[self.dimensions[0]]
        query_sets = self._axes[0]
        for name, axis in zip(self.dimensions[1:], self._axes[1:], strict=True):
            combined = cell.astype(np.int64) * len(axis) + found[name]
            present, cell = _distinct(combined, len(query_sets) * len(axis))
            query_sets, cell = _merge_equal(query_sets[present // len(axis)] & axis[present % len(axis)], cell)
        return cell.astype(np.int32), query_sets

    def wanted(self, cell: Numbers, query_sets: Words) -> tuple[Numbers, SetCells]:
        """Return the same cells for a bucket: ``NO_CELL`` for a tuple that no query selects, slots for bits."""
        some = query_set.not_empty(query_sets)
        cell = cell if some.all() else np.where(some[cell], cell, NO_CELL).astype(np.int32)
        return cell, SetCells(self.to_slots(query_sets))

    def to_slots(self, query_sets: Words) -> Words:
        """Return query-sets of the space in the slots of the epoch."""
        bits = np.zeros((len(query_sets), self._words * 64), dtype=np.bool_)
        bits[:, self._slots] = query_set.unpack(query_sets, np.arange(len(self.queries)))
        return query_set.pack(bits, self._words)


CellSpace = LineSpace | SetSpace


def assign_cells(space: CellSpace, found: Mapping[str, Cells], length: int) -> tuple[Numbers, LineCells | SetCells]:
    """Return each tuple's cell, ``NO_CELL`` for one that no query selects, and what the cells stand for."""
    if isinstance(space, LineSpace):
        return space.assign(found, length)
    return space.wanted(*space.assign(found, length))


def _query_sets_over(dimension: Dimension, queries: Sequence[LiveQuery], index: PredicateIndex) -> Words:
    """Return the query-set of each cell of a dimension."""
    bits = np.zeros((dimension.cell_count, len(queries)), dtype=np.bool_)
    for number, query in enumerate(queries):
        for first, last in index.predicates[query.id].truths[dimension.name].runs_over(dimension.boundaries):
            bits[first:last, number] = True
    return query_set.pack(bits, words_for(len(queries)))


def _distinct(codes: npt.NDArray[np.int64], count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Return the distinct codes in ``[0, count)`` that occur, ascending, and each code's rank among them."""
    if count > 4 * len(codes) + 1000:
        return np.unique(codes, return_inverse=True)
    occurs = np.zeros(count, dtype=np.bool_)
    occurs[codes] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]


def _merge_equal(query_sets: Words, cell: npt.NDArray[Any]) -> tuple[Words, npt.NDArray[Any]]:
    """Give cells with equal query-sets one number."""
    (merged, (numbers,)) = cells.unite_sets([SetCells(query_sets)])
    return merged.query_sets, numbers[cell]


def cell_spaces(queries: Sequence[LiveQuery], index: PredicateIndex, words: int) -> list[CellSpace]:
    """Split aggregations, all of them in the index, by the dimensions they test; where these are several, by group."""
    spaces: list[CellSpace] = []
    for dimensions, members in _by_dimensions(queries, index):
        if len(dimensions) > 1:
            spaces += [SetSpace(group, index, dimensions, words) for group in _by_group(members)]
        else:
            spaces.append(LineSpace(members, index, dimensions))
    return spaces


def set_spaces(queries: Sequence[LiveQuery], index: PredicateIndex, words: int) -> list[SetSpace]:
    """Split selections, which need the query-set of each tuple, in the same way."""
    return [SetSpace(members, index, dimensions, words) for dimensions, members in _by_dimensions(queries, index)]


def _by_dimensions(
    queries: Sequence[LiveQuery], index: PredicateIndex
) -> list[tuple[tuple[str, ...], list[LiveQuery]]]:
    split: dict[tuple[str, ...], list[LiveQuery]] = {}
    for query in queries:
        split.setdefault(index.predicates[query.id].dimensions, []).append(query)
    return sorted(split.items(), key=lambda item: item[0])


def _by_group(queries: Sequence[LiveQuery]) -> list[list[LiveQuery]]:
    split: dict[int, list[LiveQuery]] = {}
    for query in queries:
        split.setdefault(query.group, []).append(query)
    return [members for _, members in sorted(split.items())]
