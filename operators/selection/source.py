"""Shared selection (thesis 4.3.1.2), in source tasks: tuples with the set of the queries that select each."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators import kernels
from braid.operators.expressions import Expression
from braid.operators.failure_isolation import isolate_failures
from braid.operators.live_queries import LiveQueries, LiveQuery
from braid.operators.operator import Arrived, ChunkOutput, Input
from braid.operators.predicates import query_set
from braid.operators.predicates.cell_space import set_spaces
from braid.operators.predicates.index import TupleCells
from braid.operators.predicates.query_set import QuerySets
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

    ``query_sets`` have the words that some selection has a slot in, ``words`` by number; ``latest_us`` is the greatest
    event time (µs).
    """

    stream: str
    columns: pa.Table
    query_sets: QuerySets
    words: npt.NDArray[np.int64]
    latest_us: int

    @property
    def table(self) -> pa.Table:
        """The tuples as a result block has them: the columns and ``_query_set``."""
        return self.columns.append_column(*query_set.as_column(self.query_sets, self.words.tolist()))

    def write(self, storage: Storage, seq: int, links: dict[str, str]) -> dict[str, Any]:  # noqa: ARG002
        """Write them as a result block and describe it for the batch record."""
        counts = count_per_slot(self.query_sets)
        bits = np.flatnonzero(counts)
        slots = self.words[bits // 64] * 64 + bits % 64
        return {
            "path": put_block(storage, RESULTS, seq, self.table),
            "kind": SELECTION,
            "operator": f"selection:{self.stream}",
            "stream": self.stream,
            "slots": slots.tolist(),
            "counts": counts[bits].tolist(),
            "latest_event_us": [self.latest_us] * len(slots),
        }


def count_per_slot(query_sets: QuerySets) -> npt.NDArray[np.int64]:
    """Return, for each bit of query-sets, how many rows have it: shape (64 * words,)."""
    totals = np.zeros(query_sets.shape[1] * 64, dtype=np.int64)
    kernels.count_slots(totals, query_sets)
    return totals


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
        self._held = np.unique([query.slot // 64 for query in self.queries])
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
        query_sets = np.zeros((tuples.length, len(self._held)), dtype=np.uint64)
        for space in self._spaces:
            cell, query_set_of_cell = space.assign(cells, tuples.length)
            query_sets |= space.to_slots(query_set_of_cell)[:, self._held][cell]
        visible = visibility(self.queries, self._stream, watermark, self._words)
        query_sets &= visible.query_sets[:, self._held][visible.stretch_of(times)]
        is_selected = query_set.not_empty(query_sets)
        if not is_selected.any():
            return None
        columns = {name: tuples.columns[name] for name in self.columns}
        if not is_selected.all():
            mask = pa.array(is_selected)
            columns = {name: column.filter(mask) for name, column in columns.items()}
            query_sets, times = query_sets[is_selected], times[is_selected]
        table = pa.table(columns) if columns else pa.table({_ALL_TUPLES: pa.nulls(len(query_sets))})
        return Selected(self._stream, table, query_sets, self._held, int(times.max()))
