"""What the cells of a bucket stand for, so that a query of any later epoch finds its own among them.

Cells over one column are *line cells*: stretches of its values between boundaries. Cells over several are *set cells*:
each has the query-set of the tuples in it (thesis 4.3.1.4). A query reads only slices that began after it was created,
and their buckets were cut at its boundaries, or have its bit: cells of other buckets may be mapped anywhere.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators.predicates import query_set
from braid.operators.predicates.query_set import Bools, QuerySets

CellMap = npt.NDArray[np.int32]


@dataclass(frozen=True)
class LineCells:
    """Cell i holds the values v with ``boundaries[i - 1] <= v < boundaries[i]``; the cell after the last holds NULL.

    A space without predicates has no boundaries, and all its tuples in cell 0.
    """

    boundaries: tuple[Any, ...] = ()

    @property
    def count(self) -> int:
        """How many cells there are."""
        return len(self.boundaries) + 2

    @property
    def nbytes(self) -> int:
        """The size in memory, about."""
        return 16 * len(self.boundaries)

    def map_to(self, other: LineCells) -> CellMap:
        """Return, for each cell, the cell of ``other`` that holds its least value; NULL goes to NULL."""
        if self.boundaries == other.boundaries:
            return np.arange(self.count, dtype=np.int32)
        if self.boundaries and other.boundaries and not isinstance(self.boundaries[0], str):
            inner = np.searchsorted(_numbers(other.boundaries), _numbers(self.boundaries), side="right")
        else:
            inner = np.array([bisect.bisect_right(other.boundaries, b) for b in self.boundaries], dtype=np.int64)
        return np.concatenate([[0], inner, [other.count - 1]]).astype(np.int32)

    def to_arrow(self) -> pa.Table:
        """Return the boundaries as a table of one column."""
        kind = pa.null() if not self.boundaries else None
        return pa.table({"boundary": pa.array(self.boundaries, kind)})


@dataclass(frozen=True)
class SetCells:
    """Cell i holds tuples with the query-set ``query_sets[i]``, in the slots of the bucket's epoch."""

    query_sets: QuerySets

    @property
    def count(self) -> int:
        """How many cells there are."""
        return len(self.query_sets)

    @property
    def nbytes(self) -> int:
        """The size in memory."""
        return self.query_sets.nbytes

    def to_arrow(self) -> pa.Table:
        """Return the query-sets as a table of one column."""
        return pa.table({query_set.COLUMN: query_set.to_arrow(self.query_sets)})


Cells = LineCells | SetCells


def cells_from_arrow(table: pa.Table) -> Cells:
    """Read what ``to_arrow`` made."""
    if table.column_names == ["boundary"]:
        return LineCells(tuple(table.column(0).to_pylist()))
    column = table.column(0)
    width = column.type.byte_width // 8
    words = [query_set.from_arrow(chunk) for chunk in column.chunks if len(chunk)]
    return SetCells(np.concatenate(words) if words else np.zeros((0, width), dtype=np.uint64))


def unite_sets(cells: Sequence[SetCells]) -> tuple[SetCells, list[CellMap]]:
    """Return one cell for each query-set that occurs, and the new number of each old cell."""
    distinct, numbers = query_set.distinct(_all_query_sets(cells))
    return SetCells(distinct), _split(numbers, [part.count for part in cells])


def unite_bits(cells: Sequence[SetCells], slots: npt.NDArray[np.int64]) -> tuple[Bools, list[CellMap]]:
    """Reduce query-sets to the bits of some slots; return the distinct rows of bits, and the row of each cell.

    A cell whose query-set has none of the slots gets -1.
    """
    query_sets = _all_query_sets(cells)
    distinct, numbers = query_set.distinct(query_sets & query_set.of_slots(slots, query_sets.shape[1]))
    numbers = np.where(query_set.not_empty(distinct)[numbers], numbers, -1)
    return query_set.unpack(distinct, slots), _split(numbers, [part.count for part in cells])


def _all_query_sets(cells: Sequence[SetCells]) -> QuerySets:
    """Return the query-sets of all cells; words that earlier epochs lack are empty."""
    words = max(part.query_sets.shape[1] for part in cells)
    return np.concatenate([np.pad(part.query_sets, ((0, 0), (0, words - part.query_sets.shape[1]))) for part in cells])


def _split(numbers: npt.NDArray[Any], counts: Sequence[int]) -> list[CellMap]:
    """Split numbers, one per cell, into those of each part of so many cells."""
    bounds = np.cumsum([0, *counts])
    return [numbers[low:high].astype(np.int32) for low, high in itertools.pairwise(bounds.tolist())]


def _numbers(boundaries: Sequence[Any]) -> npt.NDArray[Any]:
    return np.array(boundaries, dtype=np.float64 if isinstance(boundaries[0], float) else np.int64)
