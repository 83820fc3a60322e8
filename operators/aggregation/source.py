"""Windowed aggregations in source tasks: slicing and pre-aggregation, as AJoin does (thesis 4.3.1.5, 5.3.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from braid.operators.aggregation.alone import AloneQueries
from braid.operators.aggregation.shared_aggregation import (
    SharedAggregation,
    aggregation_of,
    changelog_times,
    distinct_arguments,
    distinct_operator,
    measures_of,
    sliding_window,
)
from braid.operators.expressions import Expression, columns_of
from braid.operators.failure_isolation import isolate_failures
from braid.operators.live_queries import LiveQueries, LiveQuery
from braid.operators.operator import Arrived, ChunkOutput, Input
from braid.operators.placement import Placement
from braid.operators.predicates.cell_space import CellSpace, Groups, cell_spaces
from braid.operators.query_parts import AGGREGATION, Measure
from braid.operators.report import ChunkWork, Work
from braid.operators.state.bucket import Bucket
from braid.operators.state.query_runs import Partials
from braid.operators.state.sliced_tuples import SlicedTuples
from braid.operators.windowing.slicing import PeriodicEdges, cut_slices


@dataclass(frozen=True)
class SourceOperator:
    """Queries that are aggregated together: their cell spaces with the measures that these need.

    Those in ``alone`` share no cells. ``keys`` are those of its queries, and for COUNT(DISTINCT …) the expression as
    one more; ``placement`` says which of them decide about the partition.
    """

    name: str
    queries: tuple[LiveQuery, ...]
    spaces: tuple[tuple[CellSpace, tuple[Measure, ...]], ...]
    keys: tuple[Expression, ...]
    placement: Placement
    alone: AloneQueries | None = None

    @property
    def measures(self) -> Iterator[Measure]:
        """What is added up."""
        yield from (measure for _, measures in self.spaces for measure in measures)
        if self.alone is not None:
            yield from self.alone.measures

    @cached_property
    def columns_read(self) -> frozenset[str]:
        """The columns that are read when its tuples are added up."""
        arguments = (measure.argument for measure in self.measures if measure.argument is not None)
        return frozenset(name for expression in (*self.keys, *arguments) for name in columns_of(expression))

    @cached_property
    def cuts(self) -> list[int]:
        """The changelog times: where each query begins to see tuples."""
        return changelog_times(self.queries)

    @cached_property
    def groups(self) -> Groups:
        """The query groups of its spaces."""
        return Groups([space for space, _ in self.spaces])

    @cached_property
    def combs(self) -> PeriodicEdges:
        """Where the windows of its queries cut."""
        return PeriodicEdges.of({sliding_window(query) for query in self.queries})

    def sliced(
        self,
        arrived: Arrived,
        groups: int,
        slices: npt.NDArray[np.int64],
        slice_of: npt.NDArray[np.int32],
        spaces_with_all: int,
    ) -> SlicedTuples:
        """Number the keys of a chunk, in so many key groups; each tuple lies in a slice of ``slices``."""
        return SlicedTuples.of(
            arrived.tuples,
            arrived.times,
            arrived.measures,
            slices,
            slice_of,
            self.keys,
            groups,
            self.placement.salt,
            self.placement.hashed,
            spaces_with_all,
        )

    def in_one_slice(self, arrived: Arrived, groups: int) -> SlicedTuples:
        """Number the keys of a chunk that is not cut into slices, for operators of sessions."""
        slice_of = np.zeros(len(arrived.times), dtype=np.int32)
        return self.sliced(arrived, groups, np.zeros((1, 2), dtype=np.int64), slice_of, len(self.spaces))

    def add_up(self, arrived: Arrived, groups: int, epoch: int) -> tuple[SlicedTuples, list[tuple[int, Bucket]]]:
        """Shared aggregation (4.3.1.5): slice, number the keys, add each tuple to one cell per space."""
        slices, slice_of = cut_slices(arrived.times, self.combs, self.cuts)
        rows_of_spaces = self.groups.rows(arrived.cells, arrived.tuples.length)
        sliced = self.sliced(arrived, groups, slices, slice_of, sum(rows is None for rows in rows_of_spaces))
        aggregation = SharedAggregation(sliced, arrived.cells, self.name, epoch)
        buckets: list[tuple[int, Bucket]] = []
        for (space, measures), rows in zip(self.spaces, rows_of_spaces, strict=True):
            buckets += aggregation.aggregate(space, rows, measures)
        return sliced, buckets


class AggregationSource:
    """The operators of aggregations over an input, and one more for each expression whose values they count."""

    kind = AGGREGATION
    columns: Collection[str] = ()
    spread_by: Collection[str] = ()

    def __init__(self, live: LiveQueries, input_name: str) -> None:
        self._members = live.by_operator(self.kind, input_name)
        self.queries = [query for members in self._members.values() for query in members]

    def compile(self, source: Input) -> None:
        """Work out the cell spaces."""
        self._epoch, self._groups = source.epoch, source.groups
        self._operators = [
            operator for name, members in self._members.items() for operator in operators_of(name, members, source)
        ]

    @property
    def keys(self) -> Iterable[Expression]:
        """What is grouped by."""
        return (key for operator in self._operators for key in operator.keys)

    @property
    def measures(self) -> Iterable[Measure]:
        """What is added up."""
        return (measure for operator in self._operators for measure in operator.measures)

    def process(self, arrived: Arrived, watermark: int | None, output: ChunkOutput, work: Work) -> None:  # noqa: ARG002
        """Add up a chunk for each operator."""
        for operator in self._operators:
            ids = [query.id for query in operator.queries]
            with work.timed(operator.name), isolate_failures(ids, output.failures):
                sliced, buckets = self._add_up(operator, arrived)
                work.saw(operator.name, ChunkWork(arrived.tuples.length, len(sliced.slices), sliced.keys.count))
                output.buckets += buckets

    def _add_up(
        self, operator: SourceOperator, arrived: Arrived
    ) -> tuple[SlicedTuples, Sequence[tuple[int, Partials]]]:
        sliced, buckets = operator.add_up(arrived, self._groups, self._epoch)
        if operator.alone is None:
            return sliced, buckets
        return sliced, [*buckets, *operator.alone.add_up(sliced, arrived.conditions, operator.name, self._epoch)]


def operators_of(name: str, queries: Sequence[LiveQuery], source: Input) -> Iterator[SourceOperator]:
    """Yield an operator, and one more for each expression whose distinct values its queries count."""
    keys = aggregation_of(queries[0]).keys
    placement = Placement(name, tuple(range(len(keys))))
    yield _operator(name, queries, source, keys, placement)
    for text, (argument, counting) in distinct_arguments(queries).items():
        yield _operator(distinct_operator(name, text), counting, source, (*keys, argument), placement, only_counts=True)


def _operator(
    name: str,
    queries: Sequence[LiveQuery],
    source: Input,
    keys: tuple[Expression, ...],
    placement: Placement,
    only_counts: bool = False,
) -> SourceOperator:
    in_cells, alone = [q for q in queries if not q.is_alone], [q for q in queries if q.is_alone]
    return SourceOperator(
        name,
        tuple(queries),
        spaces_of(in_cells, source, only_counts),
        keys,
        placement,
        AloneQueries(alone, source.index, only_counts) if alone else None,
    )


def spaces_of(
    queries: Sequence[LiveQuery], source: Input, only_counts: bool = False
) -> tuple[tuple[CellSpace, tuple[Measure, ...]], ...]:
    """Return the cell spaces of some queries, with the measures that each needs."""
    spaces = cell_spaces(queries, source.index, source.words)
    return tuple((space, () if only_counts else measures_of(space.queries)) for space in spaces)
