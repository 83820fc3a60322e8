"""What a source task does with the tuples of one stream: shared selection, slicing, pre-aggregation.

Thesis 4.3.1.2-4.3.1.5 moved into the source, as AJoin does (5.3.2). One :class:`StreamOperators` is compiled for one
stream and epoch and serves all batches of that epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from operators import kernels
from operators.aggregation.shared_aggregation import (
    SharedAggregation,
    aggregation_of,
    changelog_times,
    distinct_arguments,
    distinct_operator,
    measures_of,
    sliding_window,
)
from operators.arrays import Places
from operators.containment import contained
from operators.event_times import EARLIEST, LATEST
from operators.expressions import Expression, columns_of, conjuncts_of
from operators.joins.parts import Part, Placement, columns_for_rows, columns_to_spread_by, join_of, parts_over
from operators.joins.shares import Share, shares_of
from operators.live_queries import LiveQueries, LiveQuery
from operators.lookup.lookup_join import LookupJoin
from operators.lookup.lookups import Lookup
from operators.predicates import query_set
from operators.predicates.cell_space import CellSpace, Groups, assign_cells, cell_spaces, set_spaces
from operators.predicates.index import PredicateIndex, TupleCells
from operators.predicates.query_set import Words
from operators.queries import Aggregation, Measure
from operators.report import Chunk, Work, index_of
from operators.sessions.sessions import fragments, has_sessions
from operators.state.bucket import Bucket
from operators.state.entries import EncodedMeasures, SlicedTuples
from operators.state.tuple_bucket import IndexedTuples, Wanted, index_tuples
from operators.tuple_bytes import bytes_a_tuple
from operators.tuples import Tuples
from operators.windowing.slicing import Combs, cut_slices
from operators.windowing.visibility import visibility
from sources.core.schema import StreamDefinition

_ALL_TUPLES = "_"


@dataclass(frozen=True)
class Selected:
    """Tuples that some selection wants: the needed columns, the query-set of each, the greatest event time (µs)."""

    columns: pa.Table
    query_sets: Words
    latest_us: int


@dataclass
class StreamOutput:
    """What the tuples of one stream gave: selected tuples, and buckets with their key groups.

    ``joined`` are tuples that rows of joins are made of.
    """

    selected: Selected | None = None
    buckets: list[tuple[int, Bucket]] = field(default_factory=list)
    joined: IndexedTuples | None = None
    failures: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Arrived:
    """Tuples, their event times (µs) and cells, and the numbers that they add to measures of all operators."""

    tuples: Tuples
    times: np.ndarray
    cells: TupleCells
    measures: EncodedMeasures

    def take(self, rows: Places, names: Iterable[str]) -> _Arrived:
        """Return some of them, with the columns ``names``."""
        tuples = self.tuples.take(rows, names)
        times, cells = kernels.take(self.times, rows), self.cells.take(rows)
        return _Arrived(tuples, times, cells, EncodedMeasures.of_tuples(tuples))


@dataclass(frozen=True)
class _Operator:
    """An aggregation operator: its queries, and their cell spaces with the measures that they need.

    ``keys`` are those of its queries, and for COUNT(DISTINCT …) the expression as one more; ``placement`` says which of
    them decide about the lane. ``columns`` are those that rows of joins are made of and tuples with split keys are
    spread by, None when no rows of joins are made of its tuples. Its windows read tuples with event times in
    ``[span[0], span[1])`` (µs).
    """

    name: str
    queries: tuple[LiveQuery, ...]
    spaces: tuple[tuple[CellSpace, tuple[Measure, ...]], ...]
    keys: tuple[Expression, ...]
    placement: Placement
    columns: tuple[str, ...] | None = None
    span: tuple[int, int] = (EARLIEST, LATEST)

    @property
    def takes_all(self) -> bool:
        """Whether all tuples go where their keys do."""
        return self.span == (EARLIEST, LATEST) and not self.placement.split

    @cached_property
    def columns_read(self) -> frozenset[str]:
        """The columns that are read when its tuples are added up."""
        arguments = (m.argument for _, measures in self.spaces for m in measures if m.argument is not None)
        return frozenset(name for expression in (*self.keys, *arguments) for name in columns_of(expression))

    @property
    def query_ids(self) -> Iterator[str]:
        """The ids of its queries."""
        return (query_of(query.id) for query in self.queries)

    @cached_property
    def cuts(self) -> list[int]:
        """The changelog times: where each query begins to see tuples."""
        return changelog_times(self.queries)

    @cached_property
    def groups(self) -> Groups:
        return Groups([space for space, _ in self.spaces])

    @cached_property
    def combs(self) -> Combs:
        return Combs.of({sliding_window(q) for q in self.queries})


def query_of(name: str) -> str:
    """Return the id of a query from its own, or from that of an input of its join."""
    return name.partition("#")[0]


class StreamOperators:
    """The shared operators over one input, a stream after ``lookups``, at one epoch.

    ``groups`` is the number of key groups, ``name`` that of the input: for tuples as they come the stream's id.
    """

    def __init__(
        self,
        live: LiveQueries,
        stream: StreamDefinition,
        groups: int,
        before: StreamOperators | None = None,
        name: str | None = None,
        lookups: tuple[Lookup, ...] = (),
    ) -> None:
        """Compile for the epoch of ``live``; the index of ``before``, an earlier epoch's, is taken over and updated."""
        self._stream = stream
        self._words = live.words
        self._groups = groups
        self._epoch = live.epoch
        self.name = name = stream.id if name is None else name
        self._selections = live.selections(name)
        operators = live.aggregations(name)
        parts = parts_over(live, name)
        all_parts = [part for members in parts.values() for part in members]
        queries = [
            *self._selections,
            *(query for members in operators.values() for query in members),
            *(part.query for part in all_parts),
        ]
        self._index: PredicateIndex = PredicateIndex() if before is None else before._index
        self._index.update({q.id: q.where for q in queries})
        self._selection_spaces = set_spaces(self._selections, self._index, self._words)
        self._operators = [
            operator for name, members in operators.items() for operator in self._aggregations(name, members)
        ]
        self._operators += [self._part(name, members) for name, members in parts.items()]
        keys = [key for members in parts.values() for key in members[0].input.keys if key is not None]
        self._spread_by = {name for key in keys for name in columns_of(key)}
        for part in all_parts:
            self._spread_by.update(columns_to_spread_by(join_of(part.live), part.number) or ())
        self._selected_columns = sorted(
            {name for q in self._selections for output in q.query.outputs for name in columns_of(output.expression)}
        )
        self._expressions = {q.id: [str(expression) for expression in _expressions_of(q)] for q in queries}
        lookups_now = tuple(live.refreshed.current(lookup) for lookup in lookups)
        self.lookup_join = LookupJoin(lookups_now, self._columns_read(queries))
        """Joins tuples with static tables before they come here."""

    def _columns_read(self, queries: Sequence[LiveQuery]) -> frozenset[str]:
        """Return all columns that some operator reads."""
        of_expressions = {name for q in queries for expression in _expressions_of(q) for name in columns_of(expression)}
        of_joined_rows = {name for operator in self._operators for name in operator.columns or ()}
        return frozenset({self._stream.schema.event_time, *self._selected_columns, *of_expressions, *of_joined_rows})

    @property
    def sampled(self) -> set[str]:
        """The columns that predicates of its queries read, and those by which joins may spread it over lanes."""
        return self._index.columns_of(self._index.dimensions) | self._spread_by

    @cached_property
    def width(self) -> int:
        """How many bytes one tuple takes besides its columns; those of a chunk are in memory together."""
        keys = (key for operator in self._operators for key in operator.keys)
        measures = (m for operator in self._operators for _, measures in operator.spaces for m in measures)
        residuals = (d.residual for d in self._index.dimensions.values() if d.residual is not None)
        return bytes_a_tuple(keys, measures, residuals)

    @property
    def queries(self) -> set[str]:
        """The ids of all queries that see its tuples."""
        return {query_of(name) for name in self._expressions}

    def _aggregations(self, name: str, queries: list[LiveQuery]) -> Iterator[_Operator]:
        """Yield an operator, and one more for each expression whose distinct values its queries count."""
        keys = aggregation_of(queries[0]).keys
        placement = Placement(name, tuple(range(len(keys))))
        yield _Operator(name, tuple(queries), self._spaces(queries), keys, placement)
        for text, (argument, counting) in distinct_arguments(queries).items():
            distinct_name = distinct_operator(name, text)
            spaces = self._spaces(counting, only_counts=True)
            yield _Operator(distinct_name, tuple(counting), spaces, (*keys, argument), placement)

    def _part(self, name: str, parts: list[Part]) -> _Operator:
        """Return the operator of an input of joins."""
        queries = [part.query for part in parts]
        with_rows = [
            part for part in parts if join_of(part.live).grouping is None or not join_of(part.live).is_factorised
        ]
        columns = {name for part in with_rows for name in columns_for_rows(join_of(part.live), part.number)}
        columns.update(parts[0].placement.by)
        return _Operator(
            name,
            tuple(queries),
            self._spaces(queries),
            aggregation_of(queries[0]).keys,
            parts[0].placement,
            columns=tuple(sorted(columns)) if with_rows else None,
            span=_span(parts),
        )

    def _spaces(
        self, queries: list[LiveQuery], only_counts: bool = False
    ) -> tuple[tuple[CellSpace, tuple[Measure, ...]], ...]:
        spaces = cell_spaces(queries, self._index, self._words)
        return tuple((space, () if only_counts else measures_of(space.queries)) for space in spaces)

    def process(
        self, batch: pa.RecordBatch | pa.Table, waterline: int | None, work: Work | None = None
    ) -> StreamOutput:
        """Run all shared operators over tuples, none of them below ``waterline`` (µs); ``work`` counts the time."""
        output, work = StreamOutput(), Work() if work is None else work
        if not batch.num_rows or not self._expressions:
            return output
        tuples = Tuples.of(batch)
        times = np.asarray(tuples.columns[self._stream.schema.event_time].view(pa.int64()))
        with work.timed(index_of(self.name)):
            cells = self._index.cells_of(tuples)
        arrived = _Arrived(tuples, times, cells, EncodedMeasures.of_tuples(tuples))
        failures = output.failures
        if self._selections:
            with work.timed(self._selections[0].operator), contained((q.id for q in self._selections), failures):
                output.selected = self._select(tuples, times, cells, waterline)
        wanted: list[Wanted] = []
        for operator in self._operators:
            # an operator that fails adds nothing
            operator_output, wanted_of_operator = StreamOutput(), list[Wanted]()
            with work.timed(operator.name), contained(operator.query_ids, failures):
                work.saw(operator.name, self._aggregate(operator, arrived, operator_output, wanted_of_operator))
                output.buckets += operator_output.buckets
                wanted += wanted_of_operator
        if wanted:
            joins = (query for operator in self._operators if operator.columns for query in operator.query_ids)
            with work.timed(index_of(self.name)), contained(joins, failures):
                output.joined = index_tuples(tuples, times, wanted)
        if tuples.failures:
            failures |= {
                query_of(name): tuples.failures[text]
                for name, texts in self._expressions.items()
                for text in texts
                if text in tuples.failures
            }
        return output

    def _select(self, tuples: Tuples, times: np.ndarray, cells: TupleCells, waterline: int | None) -> Selected | None:
        """Shared selection (4.3.1.2): compute query-sets, drop tuples that no query selects."""
        query_sets = np.zeros((tuples.length, self._words), dtype=np.uint64)
        for space in self._selection_spaces:
            cell, query_set_of_cell = space.assign(cells, tuples.length)
            query_sets |= space.to_slots(query_set_of_cell)[cell]
        visible = visibility(self._selections, self._stream.id, waterline, self._words)
        query_sets &= visible.query_sets[visible.stretch_of(times)]
        is_selected = query_sets.any(axis=1)
        if not is_selected.any():
            return None
        mask = pa.array(is_selected)
        columns = {name: tuples.columns[name].filter(mask) for name in self._selected_columns}
        query_sets = query_sets[is_selected]
        table = pa.table(columns) if columns else pa.table({_ALL_TUPLES: pa.nulls(len(query_sets))})
        return Selected(table, query_sets, int(times[is_selected].max()))

    def _aggregate(self, operator: _Operator, arrived: _Arrived, output: StreamOutput, wanted: list[Wanted]) -> Chunk:
        """Add up the tuples that are for an operator; those that joins make rows of are added to ``wanted``."""
        if operator.takes_all:
            return self._add_up(operator, Share.of_all(operator.placement, self._groups), arrived, output, wanted)
        columns, placement = operator.columns or (), operator.placement
        shares = shares_of(
            arrived.tuples, arrived.times, operator.span, operator.keys, columns, placement, self._groups
        )
        largest = Chunk()
        for share in shares:
            if share.rows is None:
                largest = max(largest, self._add_up(operator, share, arrived, output, wanted))
                continue
            wanted_of_share = list[Wanted]()
            arrived_of_share = arrived.take(share.rows, operator.columns_read)
            largest = max(largest, self._add_up(operator, share, arrived_of_share, output, wanted_of_share))
            wanted += [tuples.among_all(share.rows, arrived.tuples.length) for tuples in wanted_of_share]
        return largest

    def _add_up(
        self, operator: _Operator, share: Share, arrived: _Arrived, output: StreamOutput, wanted: list[Wanted]
    ) -> Chunk:
        """Shared aggregation (4.3.1.5): slice, number the keys, add each tuple to one cell per space."""
        tuples, times, cells = arrived.tuples, arrived.times, arrived.cells
        sessions = has_sessions(operator.queries)
        if sessions:  # fragments have no slices
            slices, slice_of = np.zeros((1, 2), dtype=np.int64), np.zeros(len(times), dtype=np.int32)
        else:
            slices, slice_of = cut_slices(times, operator.combs, operator.cuts)
        rows_of_spaces = [None] * len(operator.spaces) if sessions else operator.groups.rows(cells, tuples.length)
        placement, spaces_with_all = operator.placement, sum(rows is None for rows in rows_of_spaces)
        sliced = SlicedTuples.of(
            tuples,
            times,
            arrived.measures,
            slices,
            slice_of,
            operator.keys,
            share.groups,
            placement.salt,
            placement.hashed,
            spaces_with_all,
        )
        aggregation = SharedAggregation(sliced, cells, operator.name, self._epoch)
        for (space, measures), rows in zip(operator.spaces, rows_of_spaces, strict=True):
            if sessions and operator.columns is not None:
                continue  # sessions of joins are of several inputs together
            if sessions:
                output.buckets += fragments(
                    sliced, times, space, cells, measures, operator.name, self._epoch, operator.cuts
                )
                continue
            buckets = aggregation.aggregate(space, rows, measures)
            output.buckets += [(group + lane, bucket) for group, bucket in buckets for lane in share.lanes]
        if operator.columns is not None:
            selected = np.zeros(tuples.length, dtype=np.bool_)
            for space, _ in operator.spaces:
                selected |= assign_cells(space, cells, tuples.length)[0] >= 0
            wanted.append(Wanted(operator.name, selected, sliced.keys, operator.columns, share.lanes))
        return Chunk(tuples.length, len(slices), sliced.keys.count)


def _span(parts: Sequence[Part]) -> tuple[int, int]:
    """Return the event times between which all tuples lie that windows of some parts read (µs)."""
    first, last = min(part.starts[0] for part in parts), max(part.starts[1] for part in parts)
    longest = max(sliding_window(part.query).size_us for part in parts) if last < LATEST else 0
    return first if first == EARLIEST else first + 1, last + longest


def _expressions_of(live: LiveQuery) -> Sequence[Expression]:
    """Return all expressions that a source task evaluates for the query."""
    evaluated: list[Expression] = list(conjuncts_of(live.where))
    if isinstance(live.query, Aggregation):
        evaluated += [*live.query.keys, *(m.argument for m in live.query.measures if m.argument is not None)]
    return evaluated


def selected_block(selected: Selected) -> pa.Table:
    """Return selected tuples as a result block: the columns and ``_query_set``."""
    return selected.columns.append_column(query_set.COLUMN, query_set.to_arrow(selected.query_sets))
