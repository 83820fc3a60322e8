"""Shared aggregation in the source (thesis 4.3.1.5): from the tuples of a chunk to buckets of partial aggregates.

Every tuple is added to one entry per cell space: that of its slice, its cell and its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from braid.operators.arrays import Places
from braid.operators.event_times import EARLIEST
from braid.operators.expressions import Expression
from braid.operators.live_queries import LiveQuery
from braid.operators.predicates import query_set
from braid.operators.predicates.cell_space import CellSpace, LineSpace, SetSpace
from braid.operators.predicates.cells import Cells, SetCells
from braid.operators.predicates.dimension import CellLookup
from braid.operators.predicates.index import TupleCells
from braid.operators.queries import Aggregation
from braid.operators.query_parts import Measure
from braid.operators.state.bucket import Bucket
from braid.operators.state.components import Encoded
from braid.operators.state.dense_totals import DenseTotals, Entries, FinerTotals
from braid.operators.state.entries import cell_by_cell, query_by_query, tuples_alone
from braid.operators.state.sliced_tuples import SlicedTuples
from braid.operators.windows import Window, sliding


def aggregation_of(live: LiveQuery) -> Aggregation:
    """Return the query of a live aggregation."""
    assert isinstance(live.query, Aggregation)
    return live.query


def changelog_times(queries: Sequence[LiveQuery]) -> list[int]:
    """Return the event times at which queries begin to see tuples, ascending."""
    begins = {live.after(live.query.streams[0]) + 1 for live in queries}
    return sorted(begins - {EARLIEST + 1})


def sliding_window(live: LiveQuery) -> Window:
    """Return the window of an aggregation that is not over sessions."""
    window = sliding(live.query.window)
    assert window is not None
    return window


def by_window(queries: Iterable[LiveQuery]) -> dict[Window, list[LiveQuery]]:
    """Return aggregations that are not over sessions by their window."""
    grouped: dict[Window, list[LiveQuery]] = {}
    for query in queries:
        grouped.setdefault(sliding_window(query), []).append(query)
    return grouped


def measures_of(queries: Sequence[LiveQuery]) -> tuple[Measure, ...]:
    """Return the distinct measures with components that the queries need."""
    return with_components(aggregation_of(live).measures for live in queries)


def with_components(lists: Iterable[Sequence[Measure]]) -> tuple[Measure, ...]:
    """Return the distinct measures of some lists that have components."""
    by_name = {m.name: m for measures in lists for m in measures if m.argument is not None}
    return tuple(measure for measure in by_name.values() if not measure.by_value)


def distinct_arguments(queries: Sequence[LiveQuery]) -> dict[str, tuple[Expression, list[LiveQuery]]]:
    """Return the expressions that are counted by their values, by text, each with the queries that count them."""
    counted: dict[str, tuple[Expression, list[LiveQuery]]] = {}
    for live in queries:
        of_query = {each: None for measure in aggregation_of(live).measures for each in measure.by_value}
        for argument in of_query:
            counted.setdefault(str(argument), (argument, []))[1].append(live)
    return counted


def distinct_operator(operator: str, argument: str) -> str:
    """Return the name of the operator that has ``argument`` as one more key, for COUNT(DISTINCT argument)."""
    return f"{operator} distinct {argument}"


class SharedAggregation:
    """Adds the tuples of one chunk up in the cell spaces of an operator, one after the other.

    ``tuple_cells`` are the tuples' cells in each dimension.
    """

    def __init__(self, sliced: SlicedTuples, tuple_cells: TupleCells, operator: str, epoch: int) -> None:
        self._sliced = sliced
        self._tuple_cells = tuple_cells
        self._operator = operator
        self._epoch = epoch
        self._finer_totals: dict[LineSpace, DenseTotals] = {}

    def aggregate(
        self, space: CellSpace, rows: Places | None, measures: Sequence[Measure]
    ) -> Iterator[tuple[int, Bucket]]:
        """Add tuples up in the cells of a space; yield a bucket for each key group that has any, with its number.

        ``rows`` are the tuples that the space takes, None for all.
        """
        sliced = self._sliced if rows is None else self._sliced.take(rows)
        encoded = sliced.measures.of(measures)
        if isinstance(space, LineSpace):
            cells, entries = self._along_a_line(space, encoded)
        else:
            cells, entries = self._by_query_set(space, sliced, rows, encoded)
        dictionaries = {m.name: e.dictionary for m, e in encoded.items() if e.dictionary is not None}
        for group, starts, places, numbers in entries:
            has_entries = np.diff(starts) > 0
            yield (
                group,
                Bucket(
                    operator=self._operator,
                    space=space.key,
                    epoch=self._epoch,
                    cells=cells,
                    slices=sliced.slices[has_entries],
                    starts=np.concatenate([[0], np.cumsum(np.diff(starts)[has_entries])]),
                    latest=sliced.latest[has_entries],
                    places=places,
                    keys=sliced.keys.of_group(group),
                    components=numbers,
                    dictionaries=dictionaries,
                ),
            )

    def _along_a_line(self, space: LineSpace, encoded: Mapping[Measure, Encoded]) -> tuple[Cells, Iterator[Entries]]:
        """Return the cells and the entries of a space over one column at most, from finer totals if there are any."""
        finer = None
        if space.finer is not None and space.finer in self._finer_totals:
            finer = FinerTotals(self._finer_totals.pop(space.finer), space.of_finer)
        lookup = space.lookup(self._tuple_cells, self._sliced.length)
        entries, totals = cell_by_cell(self._sliced, lookup, space.cells.count, encoded, finer)
        if space.has_besides and totals is not None:
            self._finer_totals[space] = totals
        return space.cells, entries

    def _by_query_set(
        self, space: SetSpace, sliced: SlicedTuples, rows: Places | None, encoded: Mapping[Measure, Encoded]
    ) -> tuple[Cells, Iterator[Entries]]:
        """Return the cells and the entries of a space whose cells are query-sets."""
        cell, query_sets = space.assign(self._tuple_cells, sliced.length, rows)
        queries_per_tuple = tuples_alone(sliced, cell, query_sets, len(space.queries))
        if queries_per_tuple is not None:
            cells = SetCells(space.to_slots(query_set.singletons(len(space.queries))))
            return cells, query_by_query(sliced, cell, query_sets, len(space.queries), encoded, queries_per_tuple)
        cell, cells = space.for_bucket(cell, query_sets)
        return cells, cell_by_cell(sliced, CellLookup.of(cell, cells.count), cells.count, encoded)[0]
