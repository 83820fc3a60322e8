"""The aggregations of one cell space in columns: a place per query, so that many are handled at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from braid.operators.aggregation.shared_aggregation import aggregation_of, with_components
from braid.operators.live_queries import LiveQuery
from braid.operators.predicates.analysis import Predicate
from braid.operators.predicates.cells import CellMap, LineCells, SetCells, unite_bits
from braid.operators.predicates.query_set import Bools
from braid.operators.predicates.range_reduction import CellRuns
from braid.operators.predicates.space_key import ALONE, SpaceKey
from braid.operators.query_parts import Measure
from braid.operators.state.bucket import Bucket

Predicates = Callable[[LiveQuery], Predicate]
Places = npt.NDArray[np.int64]


class SpaceQueries:
    """Queries with the same :class:`SpaceKey`, each at a place; arrays with an entry a query are made once and kept."""

    def __init__(self, queries: Sequence[LiveQuery], predicates: Predicates) -> None:
        self.queries = tuple(queries)
        self._predicates = predicates

    @cached_property
    def slots(self) -> Places:
        """The slot of each query."""
        return np.array([query.slot for query in self.queries], dtype=np.int64)

    @cached_property
    def having(self) -> Bools:
        """Which queries have a HAVING."""
        return np.array([aggregation_of(query).having is not None for query in self.queries], dtype=np.bool_)

    @cached_property
    def _measures(self) -> tuple[list[tuple[Measure, ...]], Places]:
        numbers: dict[tuple[str, ...], int] = {}
        lists: list[tuple[Measure, ...]] = []
        list_numbers: list[int] = []
        for query in self.queries:
            measures = aggregation_of(query).measures
            number = numbers.setdefault(tuple(measure.name for measure in measures), len(numbers))
            if number == len(lists):
                lists.append(measures)
            list_numbers.append(number)
        return lists, np.array(list_numbers, dtype=np.int64)

    @property
    def measures(self) -> list[tuple[Measure, ...]]:
        """The different lists of measures that queries have."""
        return self._measures[0]

    @property
    def measures_of(self) -> Places:
        """Which of these lists each query has."""
        return self._measures[1]

    def measures_among(self, queries: Places) -> tuple[Measure, ...]:
        """Return the distinct measures that are kept as numbers of their own (not COUNT) and that some of the queries,
        given by their places, need.
        """
        return with_components(self.measures[number] for number in np.unique(self.measures_of[queries]).tolist())

    @cached_property
    def _line(self) -> tuple[LineCells, CellRuns]:
        """The cells that their boundaries cut, and which of them each query has."""
        truths = [next(iter(self._predicates(query).truths.values()), None) for query in self.queries]
        cells = LineCells(tuple(sorted({b for truth in truths if truth is not None for b in truth.boundaries})))
        return cells, CellRuns.of([(0, cells.count)] if t is None else t.runs_over(cells.boundaries) for t in truths)

    def cells(self, buckets: Sequence[Bucket], queries: Places | None = None) -> tuple[CellRuns, int, list[CellMap]]:
        """Number the cells of buckets of this space anew, as coarse as all queries allow, or those at some places.

        Returns which of the new cells each query has, how many there are, and for each bucket the new number of each of
        its cells, -1 for one that nobody has.
        """
        queries = np.arange(len(self.queries)) if queries is None else queries
        if isinstance(buckets[0].cells, SetCells):
            of_buckets = [bucket.cells for bucket in buckets if isinstance(bucket.cells, SetCells)]
            bits, maps = unite_bits(of_buckets, self.slots[queries])
            return CellRuns.of_masks(np.ascontiguousarray(bits.T)), len(bits), maps
        all_cells, runs_of = self._line
        cells, runs = _coarsened(all_cells, runs_of.take(queries))
        is_read = runs.covered(cells.count)
        maps = []
        for bucket in buckets:
            assert isinstance(bucket.cells, LineCells)
            new_cell = bucket.cells.map_to(cells)
            maps.append(np.where(is_read[new_cell], new_cell, -1).astype(np.int32))
        return runs, cells.count, maps


def space_of(query: LiveQuery, predicates: Predicates) -> SpaceKey:
    """Return the space of a query, :data:`ALONE` for all that are added up one by one."""
    return ALONE if query.is_alone else SpaceKey.of(query.query, predicates(query))


def by_space(queries: Iterable[LiveQuery], predicates: Predicates) -> Mapping[SpaceKey, list[LiveQuery]]:
    """Split queries by their space, which is how buckets are split."""
    by_key: dict[SpaceKey, list[LiveQuery]] = {}
    for query in queries:
        by_key.setdefault(space_of(query, predicates), []).append(query)
    return by_key


def _coarsened(cells: LineCells, runs: CellRuns) -> tuple[LineCells, CellRuns]:
    """Leave out the boundaries at which no run begins or ends."""
    last_cell = len(cells.boundaries)  # of values; the one after it is that of NULL
    edges = np.unique(np.concatenate([runs.low, runs.high]))
    edges = edges[(edges > 0) & (edges <= last_cell)]
    if len(edges) == last_cell:
        return cells, runs

    def renumbered(numbers: Places) -> Places:
        return np.searchsorted(edges, numbers, side="right") + np.maximum(numbers - last_cell, 0)

    coarse = LineCells(tuple(cells.boundaries[edge - 1] for edge in edges.tolist()))
    return coarse, CellRuns(runs.queries, runs.query, renumbered(runs.low), renumbered(runs.high))
