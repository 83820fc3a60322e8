"""All shared operators over one input, in source tasks: one predicate index, and a side of each kind that queries have.

What the sides do is selection, slicing and pre-aggregation, which AJoin moved into the source (thesis 5.3.2). One
:class:`StreamOperators` is compiled for one input and epoch and serves all batches of that epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from braid.operators.expressions import Expression, columns_of, conjuncts_of
from braid.operators.kinds import KINDS
from braid.operators.live_queries import LiveQueries, LiveQuery
from braid.operators.lookup.lookup_join import LookupJoin
from braid.operators.lookup.lookups import Lookup, TupleJoin
from braid.operators.operator import Arrived, ChunkOutput, Input
from braid.operators.predicates.conditions import Conditions
from braid.operators.predicates.index import PredicateIndex
from braid.operators.query_parts import JOIN
from braid.operators.report import Work, index_of
from braid.operators.state.sliced_tuples import EncodedMeasures
from braid.operators.tuple_bytes import bytes_a_tuple
from braid.operators.tuples import Tuples
from braid.sources.core.schema import StreamDefinition


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
        lookups: tuple[TupleJoin, ...] = (),
    ) -> None:
        """Compile for the epoch of ``live``; the index of ``before``, an earlier epoch's, is taken over and updated."""
        self._stream = stream
        self.name = name = stream.id if name is None else name
        present = live.kinds_over(name)
        self._sides = [kind.source_side(live, name) for kind in KINDS if kind.name in present]
        queries = [query for side in self._sides for query in side.queries]
        self._index: PredicateIndex = PredicateIndex() if before is None else before._index
        self._index.update({q.id: q.where for q in queries}, {q.id for q in queries if q.is_alone})
        source = Input(stream, name, live.epoch, live.words, groups, self._index)
        for side in self._sides:
            side.compile(source)
        self._queries, self._joins = queries, live.over(name, JOIN)
        self._expressions = {query.id: [str(each) for each in _expressions_of(query)] for query in queries}
        lookups_now = tuple(
            live.refreshed.current(lookup) if isinstance(lookup, Lookup) else lookup for lookup in lookups
        )
        self.lookup_join = LookupJoin(lookups_now, self._columns_read(queries))
        """Joins tuples with static tables before they come here."""

    def _columns_read(self, queries: Sequence[LiveQuery]) -> frozenset[str]:
        """Return all columns that some operator reads."""
        of_expressions = {name for query in queries for each in _expressions_of(query) for name in columns_of(each)}
        of_sides = {name for side in self._sides for name in side.columns}
        return frozenset({self._stream.schema.event_time, *of_sides, *of_expressions})

    @property
    def sampled(self) -> set[str]:
        """The columns that predicates of its queries read, and those by which tuples may be spread over partitions."""
        spread_by = {name for side in self._sides for name in side.spread_by}
        return self._index.columns_of(self._index.dimensions) | spread_by

    @cached_property
    def width(self) -> int:
        """How many bytes one tuple takes besides its columns; those of a chunk are in memory together."""
        keys = (key for side in self._sides for key in side.keys)
        measures = (measure for side in self._sides for measure in side.measures)
        residuals = (residual for p in self._index.predicates.values() for residual in p.residuals.values())
        return bytes_a_tuple(keys, measures, residuals)

    @property
    def queries(self) -> set[str]:
        """The ids of all queries that see its tuples."""
        return {query_of(name) for name in self._expressions}

    def queries_reading(self, columns: set[str]) -> set[str]:
        """Return the ids of the queries that read one of some columns, in a source task or for their results."""
        in_task = {q.id for q in self._queries for e in _expressions_of(q) if not columns.isdisjoint(columns_of(e))}
        rows_of = (*self._queries, *self._joins)
        return {query_of(query_id) for query_id in in_task} | {
            query_of(live.id) for live in rows_of if not columns.isdisjoint(live.query.columns_of_rows)
        }

    def process(self, batch: pa.RecordBatch | pa.Table, watermark: int | None, work: Work | None = None) -> ChunkOutput:
        """Run all shared operators over tuples, none of them below ``watermark`` (µs); ``work`` counts the time."""
        output, work = ChunkOutput(), Work() if work is None else work
        if not batch.num_rows or not self._expressions:
            return output
        tuples = Tuples.of(batch)
        times = np.asarray(tuples.columns[self._stream.schema.event_time].view(pa.int64()))
        with work.timed(index_of(self.name)):
            cells = self._index.cells_of(tuples)
        arrived = Arrived(tuples, times, cells, EncodedMeasures.of_tuples(tuples), Conditions(tuples))
        for side in self._sides:
            side.process(arrived, watermark, output, work)
        if tuples.failures:
            output.failures |= {
                query_of(name): tuples.failures[text]
                for name, texts in self._expressions.items()
                for text in texts
                if text in tuples.failures
            }
        return output


def _expressions_of(live: LiveQuery) -> Sequence[Expression]:
    """Return all expressions that a source task evaluates for the query."""
    query = live.query
    return [*conjuncts_of(live.where), *query.keys, *(m.argument for m in query.measures if m.argument is not None)]
