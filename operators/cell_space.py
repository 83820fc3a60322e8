"""Cell spaces: queries of one operator that test the same columns, and the cells that tell them apart.

A tuple falls into one cell of each space and is added there once, however many queries select it; a query's answer is
the sum over its cells. With one tested column this is cell aggregation; with several, tuples are grouped by equal
query-set (thesis 4.3.1.4). Each cell has its query-set, so what a space produces explains itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.dimension import Cells
from operators.live_queries import LiveQuery
from operators.predicate_index import PredicateIndex
from operators.query_set import Bools, Words, not_empty, pack

Numbers = npt.NDArray[np.int64]

NO_CELL = -1


@dataclass(frozen=True)
class _Axis:
    """One dimension of a space: global cells merged where no query of the space tells neighbours apart."""

    dimension: str
    local: npt.NDArray[np.int64]
    query_sets: Words

    @classmethod
    def merge(cls, dimension: str, masks: Bools, slots: npt.NDArray[np.int64], words: int) -> _Axis:
        """Build an axis from ``masks`` of shape (queries, global cells)."""
        differs = (masks[:, 1:] != masks[:, :-1]).any(axis=0)
        local = np.concatenate([[0], np.cumsum(differs)]).astype(np.int64)
        first = np.concatenate([[0], np.flatnonzero(differs) + 1])
        bits = np.zeros((len(first), words * 64), dtype=np.bool_)
        bits[:, slots] = masks[:, first].T
        return cls(dimension, local, pack(bits, words))


class CellSpace:
    """The cells of some queries that have predicates on the same dimensions."""

    def __init__(
        self,
        queries: Sequence[LiveQuery],
        masks: Sequence[Mapping[str, Bools]],
        dimensions: tuple[str, ...],
        words: int,
    ) -> None:
        self.queries = tuple(queries)
        self.dimensions = dimensions
        slots = np.array([q.slot for q in queries], dtype=np.int64)
        bits = np.zeros((1, words * 64), dtype=np.bool_)
        bits[0, slots] = True
        self._all = pack(bits, words)
        self._axes = [_Axis.merge(name, np.array([m[name] for m in masks]), slots, words) for name in dimensions]

    def assign(self, cells: Mapping[str, Cells], length: int) -> tuple[Numbers, Words]:
        """Return each tuple's cell in this space, shape (length,), and the query-set of each cell.

        A tuple that no query of the space selects has ``NO_CELL``.
        """
        if not self._axes:
            return np.zeros(length, dtype=np.int64), self._all
        first, *rest = self._axes
        cell, query_sets = first.local[cells[first.dimension]], first.query_sets
        for axis in rest:
            combined = cell * len(axis.query_sets) + axis.local[cells[axis.dimension]]
            present, cell = _distinct(combined, len(query_sets) * len(axis.query_sets))
            query_sets = query_sets[present // len(axis.query_sets)] & axis.query_sets[present % len(axis.query_sets)]
            query_sets, cell = _merge_equal(query_sets, cell)
        wanted = not_empty(query_sets)
        return (cell if wanted.all() else np.where(wanted[cell], cell, NO_CELL)), query_sets


def _distinct(codes: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """Return the distinct codes in ``[0, count)`` that occur, ascending, and each code's rank among them."""
    if count > 4 * len(codes) + 1000:
        return np.unique(codes, return_inverse=True)
    occurs = np.zeros(count, dtype=np.bool_)
    occurs[codes] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]


def _merge_equal(query_sets: Words, cell: Numbers) -> tuple[Words, Numbers]:
    """Give cells with equal query-sets one number."""
    distinct, inverse = np.unique(query_sets, axis=0, return_inverse=True)
    return distinct, inverse.reshape(-1)[cell]


def cell_spaces(queries: Sequence[LiveQuery], index: PredicateIndex, words: int) -> list[CellSpace]:
    """Split queries, all of them in the index, by the dimensions they test."""
    by_dimensions: dict[tuple[str, ...], list[LiveQuery]] = {}
    for query in queries:
        by_dimensions.setdefault(tuple(sorted(index.predicates[query.id].truths)), []).append(query)
    return [
        CellSpace(members, [index.masks_of(q.id) for q in members], dimensions, words)
        for dimensions, members in sorted(by_dimensions.items(), key=lambda item: item[0])
    ]
