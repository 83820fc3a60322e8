"""Shared selection (thesis 4.3.1.2), in source tasks: tuples with the set of the queries that select each."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators.expressions import Expression
from braid.operators.failure_isolation import isolate_failures
from braid.operators.live_queries import LiveQueries, LiveQuery
from braid.operators.operator import Arrived, ChunkOutput, Input
from braid.operators.predicates import query_set
from braid.operators.predicates.cell_space import set_spaces
from braid.operators.predicates.index import TupleCells
from braid.operators.predicates.query_set import Words, count_per_slot
from braid.operators.query_parts import SELECTION, Measure
from braid.operators.report import Work
from braid.operators.state.bucket_store import RESULTS, put_block
from braid.operators.tuples import Tuples
from braid.operators.windowing.visibility import visibility
from braid.sources.core.storage import Storage

_ALL_TUPLES = "_"


@dataclass(frozen=True)
class Selected:
    """Tuples of a stream that some selection wants: the needed columns, the query-set of each.

    ``latest_us`` is the greatest event time (µs).
    """

    stream: str
    columns: pa.Table
    query_sets: Words
    latest_us: int

    @property
    def table(self) -> pa.Table:
        """The tuples as a result block has them: the columns and ``_query_set``."""
        return self.columns.append_column(query_set.COLUMN, query_set.to_arrow(self.query_sets))

    def write(self, storage: Storage, seq: int, links: dict[str, str]) -> dict[str, Any]:  # noqa: ARG002
        """Write them as a result block and describe it for the batch record."""
        counts = count_per_slot(self.query_sets)
        slots = np.flatnonzero(counts)
        return {
            "path": put_block(storage, RESULTS, seq, self.table),
            "kind": SELECTION,
            "operator": f"selection:{self.stream}",
            "stream": self.stream,
            "slots": slots.tolist(),
            "counts": counts[slots].tolist(),
            "latest_event_us": [self.latest_us] * len(slots),
        }


class SelectionSource:
    """The one operator that runs all selections over an input."""

    spread_by: Collection[str] = ()
    keys: Iterable[Expression] = ()
    measures: Iterable[Measure] = ()

    def __init__(self, live: LiveQueries, input_name: str) -> None:
        self.queries: list[LiveQuery] = live.over(input_name, SELECTION)
        self.columns = sorted({name for q in self.queries for name in q.query.columns_of_rows})

    def compile(self, source: Input) -> None:
        """Work out the spaces in which query-sets are found."""
        self._stream = source.stream.id
        self._words = source.words
        self._spaces = set_spaces(self.queries, source.index, source.words)

    def process(self, arrived: Arrived, watermark: int | None, output: ChunkOutput, work: Work) -> None:
        """Add a block of the tuples that some query selects."""
        operator, ids = self.queries[0].operator, [query.id for query in self.queries]
        with work.timed(operator), isolate_failures(ids, output.failures):
            selected = self._select(arrived.tuples, arrived.times, arrived.cells, watermark)
            output.blocks += [] if selected is None else [selected]

    def _select(
        self, tuples: Tuples, times: npt.NDArray[np.int64], cells: TupleCells, watermark: int | None
    ) -> Selected | None:
        query_sets = np.zeros((tuples.length, self._words), dtype=np.uint64)
        for space in self._spaces:
            cell, query_set_of_cell = space.assign(cells, tuples.length)
            query_sets |= space.to_slots(query_set_of_cell)[cell]
        visible = visibility(self.queries, self._stream, watermark, self._words)
        query_sets &= visible.query_sets[visible.stretch_of(times)]
        is_selected = query_sets.any(axis=1)
        if not is_selected.any():
            return None
        mask = pa.array(is_selected)
        columns = {name: tuples.columns[name].filter(mask) for name in self.columns}
        query_sets = query_sets[is_selected]
        table = pa.table(columns) if columns else pa.table({_ALL_TUPLES: pa.nulls(len(query_sets))})
        return Selected(self._stream, table, query_sets, int(times[is_selected].max()))
