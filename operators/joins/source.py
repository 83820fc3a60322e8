"""Inputs of joins in source tasks: counted by key, as aggregations are, and indexed where rows are made of tuples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from braid.operators.aggregation.shared_aggregation import aggregation_of, sliding_window
from braid.operators.aggregation.source import SourceOperator, spaces_of
from braid.operators.event_times import EARLIEST, LATEST
from braid.operators.expressions import Expression, columns_of
from braid.operators.failure_isolation import isolate_failures
from braid.operators.joins.hot_keys import RoutedRows, routed_rows
from braid.operators.joins.inputs import LiveInput, columns_for_rows, columns_to_spread_by, join_of, live_inputs_over
from braid.operators.live_queries import LiveQueries
from braid.operators.operator import Arrived, ChunkOutput, Input
from braid.operators.predicates.cell_space import assign_cells
from braid.operators.query_parts import Measure
from braid.operators.report import ChunkWork, Work, index_of
from braid.operators.state.bucket import Bucket
from braid.operators.state.tuple_bucket import Wanted, index_tuples


@dataclass(frozen=True)
class InputOperator:
    """An input that joins compare by the same attributes, as an aggregation by these.

    ``columns`` are those that rows of joins are made of and tuples with split keys are spread by, None when no rows are
    made of its tuples. Its windows read tuples with event times in ``[span[0], span[1])`` (µs). ``joins`` are the ids
    of the queries.
    """

    counted: SourceOperator
    columns: tuple[str, ...] | None
    span: tuple[int, int]
    has_sessions: bool
    joins: tuple[str, ...]

    @classmethod
    def of(cls, name: str, live_inputs: Sequence[LiveInput], source: Input) -> InputOperator:
        """Return the operator of some live inputs, all of them at ``source``."""
        queries = [live_input.query for live_input in live_inputs]
        joins = [join_of(live_input.live) for live_input in live_inputs]
        with_rows = [
            (live_input, join)
            for live_input, join in zip(live_inputs, joins, strict=True)
            if join.grouping is None or not join.is_factorised
        ]
        columns = {column for live_input, join in with_rows for column in columns_for_rows(join, live_input.number)}
        columns.update(live_inputs[0].placement.by)
        keys = aggregation_of(queries[0]).keys
        counted = SourceOperator(name, tuple(queries), spaces_of(queries, source), keys, live_inputs[0].placement)
        ids = tuple(live_input.live.id for live_input in live_inputs)
        return cls(
            counted, tuple(sorted(columns)) if with_rows else None, _span(live_inputs), joins[0].has_sessions, ids
        )

    @property
    def takes_all(self) -> bool:
        """Whether all tuples go where their keys do."""
        return self.span == (EARLIEST, LATEST) and not self.counted.placement.split

    def routed(self, arrived: Arrived, partitions: int) -> Iterator[tuple[RoutedRows, Arrived]]:
        """Yield which rows of a chunk go to which partitions, each with these tuples."""
        counted = self.counted
        if self.takes_all:
            yield RoutedRows.of_all(counted.placement, partitions), arrived
            return
        routed = routed_rows(
            arrived.tuples, arrived.times, self.span, counted.keys, self.columns or (), counted.placement, partitions
        )
        for rows in routed:
            yield rows, arrived if rows.rows is None else arrived.take(rows.rows, counted.columns_read)


class JoinSource:
    """The operators of all inputs of joins that read one input."""

    def __init__(self, live: LiveQueries, input_name: str) -> None:
        self._by_operator = live_inputs_over(live, input_name)
        self._live_inputs = [live_input for live_inputs in self._by_operator.values() for live_input in live_inputs]
        self.queries = [live_input.query for live_input in self._live_inputs]

    def compile(self, source: Input) -> None:
        """Work out the cell spaces, and which columns are needed."""
        self._partitions, self._epoch, self._index_name = source.groups, source.epoch, index_of(source.name)
        self._operators = [
            InputOperator.of(name, live_inputs, source) for name, live_inputs in self._by_operator.items()
        ]
        self.columns = {column for operator in self._operators for column in operator.columns or ()}
        attributes = [
            key for live_inputs in self._by_operator.values() for key in live_inputs[0].input.keys if key is not None
        ]
        self.spread_by = {name for key in attributes for name in columns_of(key)}
        for live_input in self._live_inputs:
            self.spread_by.update(columns_to_spread_by(join_of(live_input.live), live_input.number) or ())

    @property
    def keys(self) -> Iterable[Expression]:
        """What inputs are compared by, and what groups need of them."""
        return (key for operator in self._operators for key in operator.counted.keys)

    @property
    def measures(self) -> Iterable[Measure]:
        """What is added up."""
        return (measure for operator in self._operators for measure in operator.counted.measures)

    def process(self, arrived: Arrived, watermark: int | None, output: ChunkOutput, work: Work) -> None:  # noqa: ARG002
        """Count a chunk by key for each operator, and index the tuples that some of them want."""
        wanted: list[Wanted] = []
        for operator in self._operators:
            with work.timed(operator.counted.name), isolate_failures(operator.joins, output.failures):
                chunk, buckets, wanted_of_operator = self._process(operator, arrived)
                work.saw(operator.counted.name, chunk)
                output.buckets += buckets
                wanted += wanted_of_operator
        if wanted:
            ids = [query for operator in self._operators if operator.columns for query in operator.joins]
            with work.timed(self._index_name), isolate_failures(ids, output.failures):
                output.indexed = index_tuples(arrived.tuples, arrived.times, wanted)

    def _process(
        self, operator: InputOperator, arrived: Arrived
    ) -> tuple[ChunkWork, list[tuple[int, Bucket]], list[Wanted]]:
        counted, largest = operator.counted, ChunkWork()
        buckets: list[tuple[int, Bucket]] = []
        wanted: list[Wanted] = []
        for routed, taken in operator.routed(arrived, self._partitions):
            if operator.has_sessions:  # sessions of joins are of several inputs together: nothing is counted before
                sliced = counted.in_one_slice(taken, routed.groups)
            else:
                sliced, of_groups = counted.add_up(taken, routed.groups, self._epoch)
                buckets += [
                    (group + partition, bucket) for group, bucket in of_groups for partition in routed.partitions
                ]
            largest = max(largest, ChunkWork(taken.tuples.length, len(sliced.slices), sliced.keys.count))
            if operator.columns is not None:
                mine = Wanted(counted.name, _selected(counted, taken), sliced.keys, operator.columns, routed.partitions)
                wanted.append(mine if routed.rows is None else mine.among_all(routed.rows, arrived.tuples.length))
        return largest, buckets, wanted


def _selected(operator: SourceOperator, arrived: Arrived) -> np.ndarray:
    """Return which tuples some query of an operator selects, shape (tuples,)."""
    selected = np.zeros(arrived.tuples.length, dtype=np.bool_)
    for space, _ in operator.spaces:
        selected |= assign_cells(space, arrived.cells, arrived.tuples.length)[0] >= 0
    return selected


def _span(live_inputs: Sequence[LiveInput]) -> tuple[int, int]:
    """Return the event times between which all tuples lie that windows of some live inputs read (µs)."""
    first, last = (
        min(live_input.starts[0] for live_input in live_inputs),
        max(live_input.starts[1] for live_input in live_inputs),
    )
    longest = max(sliding_window(live_input.query).size_us for live_input in live_inputs) if last < LATEST else 0
    return first if first == EARLIEST else first + 1, last + longest
