"""Queries that are added up each alone, in source tasks: where they have little in common, nothing is shared in cells.

What they share is what their conditions, keys and measures have in common (:mod:`operators.predicates.conditions`). A
query's bitmap then says which tuples are added to its own entries, one for each slice and key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from operators import kernels
from operators.aggregation.shared_aggregation import aggregation_of, sliding_window, with_components
from operators.arrays import Numbers, Places
from operators.live_queries import LiveQuery
from operators.predicates.conditions import Conditions
from operators.predicates.index import PredicateIndex
from operators.predicates.query_set import Bools, Words
from operators.query_parts import Measure
from operators.state.components import COUNT_NAME, Component, Encoded, components_of, count_name
from operators.state.entries import SlicedTuples
from operators.state.query_runs import QueryRuns
from operators.state.totals import add_up, empty, merge_into, new_totals
from operators.windows import Window

# entries of a query are numbered first where they could be so many times as many as its tuples
_SPARSE = 16
# so many places have each an address however few the tuples are, or so many for each tuple
_ALWAYS_DENSE, _DENSE_PER_TUPLE = 1 << 16, 4
_NUMBER = Component(COUNT_NAME, "sum", np.dtype(np.int32))
_WAYS = {"sum": kernels.SUM, "min": kernels.LEAST, "max": kernels.GREATEST}


class AloneQueries:
    """Queries of one operator, each added up alone; with ``only_counts`` no measures are."""

    def __init__(self, queries: Sequence[LiveQuery], index: PredicateIndex, only_counts: bool = False) -> None:
        self._slots = np.array([query.slot for query in queries], dtype=np.int64)
        self._windows = [(sliding_window(query), query.after(query.query.streams[0]) + 1) for query in queries]
        self._predicates = [index.predicates[query.id] for query in queries]
        self._measures = [() if only_counts else with_components([aggregation_of(query).measures]) for query in queries]

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """The distinct measures with components that they need."""
        return with_components(self._measures)

    def add_up(
        self, sliced: SlicedTuples, conditions: Conditions, operator: str, epoch: int
    ) -> Iterator[tuple[int, QueryRuns]]:
        """Add the tuples of a chunk up; yield the runs of each key group that has any, with its number."""
        encoded = sliced.measures.of(self.measures)
        entries = _Entries(_Layout(sliced))
        for predicate, measures, window in zip(self._predicates, self._measures, self._windows, strict=True):
            of_query = {measure: encoded[measure] for measure in measures}
            entries.add_query(conditions.holds(predicate), of_query, joined_slices(sliced.slices, *window))
        dictionaries = {m.name: e.dictionary for m, e in encoded.items() if e.dictionary is not None}
        for group, numbers in entries.by_group():
            yield (
                group,
                QueryRuns(
                    operator=operator,
                    epoch=epoch,
                    slots=self._slots,
                    slices=sliced.slices,
                    latest=sliced.latest,
                    starts=numbers.starts,
                    key=numbers.key,
                    keys=sliced.keys.of_group(group),
                    components=numbers.components,
                    having=numbers.having,
                    dictionaries=dictionaries,
                ),
            )


def joined_slices(slices: npt.NDArray[np.int64], window: Window, begin: int) -> Places:
    """Return for each slice the first of those that a query cannot tell from it; shape (slices,).

    It has ``window`` and sees tuples from ``begin`` on (µs). The tuples of such slices are added up together.
    """
    starts, after_start = slices[:, 0], window.offset_us + window.size_us
    numbers = np.stack(
        [(starts - window.offset_us) // window.slide_us, (starts - after_start) // window.slide_us, starts >= begin]
    )
    is_parted = np.any(numbers[:, 1:] != numbers[:, :-1], axis=0)
    first = np.concatenate([[0], np.where(is_parted, np.arange(1, len(starts)), 0)])
    return np.maximum.accumulate(first).astype(np.int32)


class _Layout:
    """The places of entries: those of a key group together, of these those of a slice, then by key.

    ``key`` is the key within its group at each place; the places of group g and slice s begin at
    ``edges[g · slices + s]``, which has one end more.
    """

    def __init__(self, sliced: SlicedTuples) -> None:
        keys, slices, starts = sliced.keys, len(sliced.slices), sliced.keys.group_starts
        groups, sizes = len(starts) - 1, np.diff(starts)
        self.groups, self.slices, self._slice_of = groups, slices, sliced.slice_of
        group_of_key = np.repeat(np.arange(groups), sizes)
        edges = np.append(
            (starts[:-1, np.newaxis] * slices + sizes[:, np.newaxis] * np.arange(slices)).ravel(), slices * keys.count
        )
        first_place = starts[group_of_key] * (slices - 1) + np.arange(keys.count)
        self._at: dict[bytes, Places] = {}
        self._numbered: Places | None = keys.codes if slices == 1 else None
        if slices > 1 and edges[-1] > max(_ALWAYS_DENSE, _DENSE_PER_TUPLE * sliced.length):
            # the places that occur are numbered
            at = first_place[keys.codes] + sliced.slice_of * sizes[group_of_key][keys.codes]
            occupied, numbers = np.unique(at, return_inverse=True)
            run = np.searchsorted(edges, occupied, side="right") - 1
            self._numbered = numbers.astype(np.int32)
            self.key = (occupied - edges[run]).astype(np.int32)
            self.edges = np.searchsorted(occupied, edges).astype(np.int32)
            return
        self.edges = edges.astype(np.int32)
        self.key = (np.arange(edges[-1]) - np.repeat(edges[:-1], np.diff(edges))).astype(np.int32)
        if self._numbered is None:
            self._first = kernels.take(first_place.astype(np.int32), keys.codes)
            self._width = kernels.take(sizes[group_of_key].astype(np.int32), keys.codes)

    def at(self, joined: Places) -> Places:
        """Return the place of each tuple if slices are joined, of which ``joined`` has the first for each."""
        if self._numbered is not None:
            return self._numbered
        name = joined.tobytes()
        if name not in self._at:
            self._at[name] = self._first + kernels.take(joined, self._slice_of) * self._width
        return self._at[name]

    @property
    def size(self) -> int:
        """How many places there are."""
        return len(self.key)


@dataclass(frozen=True)
class _Group:
    """The entries of one key group, as query runs have them."""

    starts: npt.NDArray[np.int64]
    key: Places
    components: Mapping[str, Numbers]
    having: Mapping[str, Bools]


class _Entries:
    """The entries of queries, one query after the other."""

    def __init__(self, layout: _Layout) -> None:
        self._layout = layout
        self._scratch: dict[str, Numbers] = {}
        self._queries: list[tuple[Places, dict[str, Numbers], npt.NDArray[np.int64]]] = []

    def add_query(self, words: Words, encoded: Mapping[Measure, Encoded], joined: Places) -> None:
        """Add the tuples of a query up, which have their bit in ``words``; slices are ``joined``."""
        layout, tuples = self._layout, kernels.count_set(words)
        at = layout.at(joined)
        if tuples * _SPARSE < layout.size:
            places, numbers = self._numbered(words, tuples, encoded, at)
        else:
            places, numbers = self._addressed(words, encoded, at)
        self._queries.append((places, numbers, np.searchsorted(places, layout.edges)))

    def _numbered(
        self, words: Words, tuples: int, encoded: Mapping[Measure, Encoded], at: Places
    ) -> tuple[Places, dict[str, Numbers]]:
        """Add few tuples up: their places are numbered first."""
        rows, codes = np.empty(tuples, dtype=np.int32), np.empty(tuples, dtype=np.int32)
        kernels.list_set(rows, words)
        places, first = kernels.take(at, rows), np.empty(tuples, dtype=np.int64)
        count = kernels.number(codes, first, self._array("", _NUMBER), places, 0)
        places = places[first[:count]]
        order = np.argsort(places)
        rank = np.empty(count, dtype=np.int32)
        rank[order] = np.arange(count, dtype=np.int32)
        numbers = new_totals(count, encoded)
        add_up(numbers, kernels.take(rank, codes), encoded, rows)
        return places[order], numbers

    def _addressed(
        self, words: Words, encoded: Mapping[Measure, Encoded], at: Places
    ) -> tuple[Places, dict[str, Numbers]]:
        """Add tuples up in arrays of all places, which are as before afterwards."""
        counts = self._array(COUNT_NAME, _NUMBER)
        totals: dict[str, tuple[Component, Numbers]] = {}
        is_counted = False
        for component, numbers in _components(encoded):
            if component.name in totals:
                continue
            total = self._array(component.name, component)
            totals[component.name] = component, total
            if component.dtype.kind == "c":
                rows = np.empty(kernels.count_set(words), dtype=np.int32)
                kernels.list_set(rows, words)
                merge_into(component, total, kernels.take(at, rows), kernels.take(numbers, rows))
            elif component.merge == "sum" and not is_counted:
                kernels.count_and_add_at_set(counts, total, at, numbers, words)
                is_counted = True
            else:
                kernels.merge_at_set(_WAYS[component.merge], total, at, numbers, words)
        if not is_counted:
            kernels.count_at_set(counts, at, words)
        places = self._places
        places = places[: kernels.list_occupied(places, counts)].copy()
        of_places = {COUNT_NAME: kernels.take(counts, places)}
        counts[places] = 0
        for name, (component, total) in totals.items():
            of_places[name] = kernels.take(total, places)
            total[places] = component.neutral
        return places, of_places

    @cached_property
    def _places(self) -> Places:
        return np.empty(self._layout.size + 1, dtype=np.int32)

    def _array(self, name: str, component: Component) -> Numbers:
        if name not in self._scratch:
            self._scratch[name] = empty(component, self._layout.size)
        return self._scratch[name]

    def by_group(self) -> Iterator[tuple[int, _Group]]:
        """Yield what each key group has, with its number; none without entries."""
        slices = self._layout.slices
        held = [set(numbers) for _, numbers, _ in self._queries]
        names = sorted(set().union(*held), key=lambda name: (name != COUNT_NAME, name))
        having = {name: np.array([name in of_query for of_query in held], dtype=np.bool_) for name in names}
        lengths = np.array([np.diff(bounds) for _, _, bounds in self._queries])
        for group in range(self._layout.groups):
            first, last = group * slices, (group + 1) * slices
            spans = [slice(*bounds[[first, last]].tolist()) for _, _, bounds in self._queries]
            places = np.concatenate(
                [of_query[span] for (of_query, _, _), span in zip(self._queries, spans, strict=True)]
            )
            if not len(places):
                continue
            components = {
                name: np.concatenate(
                    [
                        numbers[name][span]
                        for (_, numbers, _), span in zip(self._queries, spans, strict=True)
                        if name in numbers
                    ]
                )
                for name in names
            }
            starts = np.concatenate([[0], np.cumsum(lengths[:, first:last])])
            yield group, _Group(starts, kernels.take(self._layout.key, places), components, having)


def _components(encoded: Mapping[Measure, Encoded]) -> Iterator[tuple[Component, Numbers]]:
    """Yield the components of measures and what tuples add to each; a name may come twice."""
    for measure, values in encoded.items():
        for component in components_of(measure):
            yield component, values.numbers[component.name]
        if values.valid is not None:
            yield replace(_NUMBER, name=count_name(measure)), values.valid
