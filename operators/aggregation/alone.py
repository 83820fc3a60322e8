"""Queries that are added up each alone, in source tasks: where they have little in common, nothing is shared in cells.

What they share is what their conditions, keys and measures have in common (:mod:`braid.operators.predicates.bitmaps`).
A query's bitmap then says which tuples are added to its own entries, one for each slice and key.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np

from braid.operators.aggregation.alone_entries import EntryLayout, RunEntries
from braid.operators.aggregation.shared_aggregation import aggregation_of, sliding_window, with_components
from braid.operators.live_queries import LiveQuery
from braid.operators.predicates.bitmaps import Bitmap
from braid.operators.predicates.conditions import Conditions
from braid.operators.predicates.index import PredicateIndex
from braid.operators.query_parts import Measure
from braid.operators.state.query_runs import QueryRuns
from braid.operators.state.sliced_tuples import SlicedTuples

T = TypeVar("T", bound=Hashable)


class AloneQueries:
    """Queries of one operator, each added up alone; with ``only_counts`` no measures are."""

    def __init__(self, queries: Sequence[LiveQuery], index: PredicateIndex, only_counts: bool = False) -> None:
        self._slots = np.array([query.slot for query in queries], dtype=np.int64)
        self._bitmaps: list[Bitmap] = [index.bitmaps[query.id] for query in queries]
        measures = [() if only_counts else with_components([aggregation_of(query).measures]) for query in queries]
        self._measures, measures_of = _numbered(measures)
        self._windows, window_of = _numbered([sliding_window(query) for query in queries])
        begins = [query.after(query.query.streams[0]) + 1 for query in queries]
        self._entries_of = list(zip(measures_of, window_of, begins, strict=True))
        self._sizes: dict[str, int] = {}

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """The distinct measures with components that they need."""
        return with_components(self._measures)

    def add_up(
        self, sliced: SlicedTuples, conditions: Conditions, operator: str, epoch: int
    ) -> Iterator[tuple[int, QueryRuns]]:
        """Add the tuples of a chunk up; yield the runs of each key group that has any, with its number."""
        encoded = sliced.measures.of(self.measures)
        entries = RunEntries(EntryLayout(sliced, self._windows), encoded, self._measures, self._sizes)
        for bitmap, (measures, window, begin) in zip(self._bitmaps, self._entries_of, strict=True):
            entries.add_query(bitmap.of(conditions), measures, window, begin)
        dictionaries = {m.name: e.dictionary for m, e in encoded.items() if e.dictionary is not None}
        for group, runs in entries.by_group():
            yield (
                group,
                QueryRuns(
                    operator=operator,
                    epoch=epoch,
                    slots=self._slots,
                    slices=sliced.slices,
                    latest=sliced.latest,
                    starts=runs.starts,
                    key=runs.key,
                    keys=sliced.keys.of_group(group),
                    components=runs.components,
                    holders=runs.holders,
                    dictionaries=dictionaries,
                ),
            )


def _numbered(values: Sequence[T]) -> tuple[list[T], list[int]]:
    """Return the different values, and for each value which of them it is."""
    numbers: dict[T, int] = {}
    which = [numbers.setdefault(value, len(numbers)) for value in values]
    return list(numbers), which
