"""Firing windows: from the entries of buckets to each query's rows.

A window's rows are due in the first batch after which the waterline has reached its end (CONTRACT section 3.5). Windows
that end together are fired together: going back from their end, slices are added up once, and every window takes its
share when its start is reached. Each query then reduces over its cells.

A query reads the slices that began after it was created. All of them were cut with its boundaries and its measures at
hand, in whatever later epoch, so buckets of different epochs are added up as they are; the changelog-set of the thesis
(eq. 4.1, 4.2) has nothing left to mask.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators import components, kernels
from operators.aggregation import aggregation_of, empty, measures_of, merge_into
from operators.bucket import Bucket
from operators.cells import CellMap, LineCells, SetCells, unite_bits
from operators.components import COUNT_DISTINCT, COUNT_NAME, component_named, names_of
from operators.keys import key_columns, unite_keys
from operators.live_queries import LiveQuery
from operators.merging import DENSE_ENTRIES, common_ranks, component_names, numbers_of
from operators.predicate_analysis import Predicate
from operators.queries import WINDOW_END, WINDOW_START, Measure, Window
from operators.query_set import Bools, not_empty
from operators.range_reduction import RangeReduction
from operators.slicing import due_windows, with_ends_in
from operators.tuples import Tuples

SLOT = "_slot"

Numbers = npt.NDArray[Any]
Predicates = Callable[[LiveQuery], Predicate]


@dataclass(frozen=True)
class Fired:
    """Rows of due windows. ``table`` has the columns ``_slot``, ``window_start``, ``window_end``, keys and measures.

    A slot's rows are next to each other, by end and start of their window. ``slots`` ascend; for each of them there is
    the number of its rows, and the greatest event time (µs) of the slices that its windows are made of, where known.
    """

    table: pa.Table
    slots: list[int]
    counts: list[int]
    latest_us: Sequence[int | None]


@dataclass(frozen=True)
class _Due:
    """A query's window that is due; ``reads_from`` is the start of the first slice that it may read."""

    query: LiveQuery
    start: int
    end: int
    reads_from: int


def fire(
    buckets: Sequence[Bucket],
    queries: Mapping[Window, Sequence[LiveQuery]],
    predicates: Predicates,
    after: int,
    upto: int,
    failures: dict[str, str] | None = None,
    distinct: Mapping[str, Sequence[Bucket]] | None = None,
) -> Fired | None:
    """Return the rows of all windows that end in ``(after, upto]``, or None when there are none.

    ``buckets`` and ``queries``, by their window, are those of one operator, ``distinct`` the buckets in which an
    expression, given by its text, is one more key: those of COUNT(DISTINCT expression). Groups without tuples and
    groups that HAVING excludes are left out. A query whose HAVING raises gets no rows, and ``failures`` its id and the
    message.
    """
    if not buckets:
        return None
    slices = np.unique(np.concatenate([b.slices for b in buckets]), axis=0)
    due: dict[tuple[str, ...], list[_Due]] = {}
    for each in _due(queries, slices, after, upto):
        due.setdefault(tuple(sorted(predicates(each.query).truths)), []).append(each)
    rows = _Rows({} if failures is None else failures)
    for dimensions, members in due.items():
        mine = [bucket for bucket in buckets if bucket.dimensions == dimensions]
        counts = _DistinctCounts()
        for argument, having in (distinct or {}).items():
            counting = [each for each in members if counts_distinct(each.query, argument)]
            for window in _windows([b for b in having if b.dimensions == dimensions], counting, predicates, False):
                counts.add(argument, window)
        for window in _windows(mine, members, predicates, True):
            rows.add(window, counts)
    return rows.fired()


def counts_distinct(query: LiveQuery, argument: str) -> bool:
    """Return whether a query counts the distinct values of ``argument``, a text."""
    return any(m.function == COUNT_DISTINCT and str(m.argument) == argument for m in aggregation_of(query).measures)


def _due(
    queries: Mapping[Window, Sequence[LiveQuery]], slices: npt.NDArray[np.int64], after: int, upto: int
) -> Iterator[_Due]:
    for window in with_ends_in(list(queries), after, upto):
        windows = due_windows(slices, window, after, upto).tolist()
        for query in queries[window]:
            seen_after, until = query.after(query.query.streams[0]), query.until(query.query.streams[0])
            for start, end in windows:
                if until >= end > seen_after + 1:
                    yield _Due(query, start, end, max(start, seen_after + 1))


@dataclass(frozen=True)
class _Window:
    """A due window with what it holds for some of the keys: those from ``first_key`` on, as many as are reduced.

    ``cells`` are the cells of its query, ``newest`` is the greatest event time in its slices.
    """

    due: _Due
    reduced: _Reduced
    cells: Bools
    keys: pa.Table
    first_key: int
    newest: int
    dictionaries: Mapping[str, pa.Array]


def _windows(
    buckets: Sequence[Bucket], due: Sequence[_Due], predicates: Predicates, with_measures: bool
) -> Iterator[_Window]:
    """Add up the slices of the due windows of the queries of one cell space; without measures only count tuples.

    Each window is to be used before the next one is asked for.
    """
    if not due:
        return
    first, last = min(each.reads_from for each in due), max(each.end for each in due)
    buckets = [b for b in buckets if ((b.slices[:, 0] >= first) & (b.slices[:, 1] <= last)).any()]
    if not buckets:
        return
    queries = list({each.query.id: each.query for each in due}.values())
    wanted, maps = cells_of_queries(buckets, queries, predicates)
    keys, key_maps = unite_keys([bucket.keys for bucket in buckets])
    names = needed_names(buckets, measures_of(queries) if with_measures else ())
    dictionaries, ranks = common_ranks(buckets, names)
    cells = wanted.shape[1]
    per_pass = max(1, DENSE_ENTRIES // cells)
    place = {query.id: i for i, query in enumerate(queries)}
    ends: dict[int, dict[int, list[_Due]]] = {}
    for each in due:
        ends.setdefault(each.end, {}).setdefault(each.reads_from, []).append(each)
    starts = sorted({start for by_start in ends.values() for start in by_start})
    runs = [(i, low, high) for i, bucket in enumerate(buckets) for low, high in _runs(bucket.slices)]
    # of each run, the first slice from each start on, and the first that does not lie before each end
    firsts = [(low + np.searchsorted(buckets[i].slices[low:high, 0], starts)).tolist() for i, low, high in runs]
    afters = [
        (low + np.searchsorted(buckets[i].slices[low:high, 1], list(ends), side="right")).tolist()
        for i, low, high in runs
    ]
    for first_key in range(0, keys.num_rows, per_pass):
        count = min(per_pass, keys.num_rows - first_key)
        addresses = _Addresses(buckets, maps, key_maps, first_key, count)
        for number, by_start in enumerate(ends.values()):
            totals = {name: empty(component_named(name, dtype), cells * count) for name, dtype in names.items()}
            reached = [after[number] for after in afters]
            newest = np.iinfo(np.int64).min
            for start in sorted(by_start, reverse=True):
                at_start = bisect_left(starts, start)
                for run, (i, _, _) in enumerate(runs):
                    slice_, after = firsts[run][at_start], reached[run]
                    if slice_ >= after:
                        continue
                    reached[run] = slice_
                    bucket = buckets[i]
                    newest = max(newest, int(bucket.latest[slice_:after].max()))
                    low, high = int(bucket.starts[slice_]), int(bucket.starts[after])
                    at = addresses.of(i, low, high)
                    for name, total in totals.items():
                        component = component_named(name, total.dtype)
                        numbers = numbers_of(bucket, component, low, high, ranks[i])
                        if numbers is not None:
                            merge_into(component, total, at, numbers)
                reduced = _Reduced({name: total.reshape(cells, count) for name, total in totals.items()})
                for each in by_start[start]:
                    mine = wanted[place[each.query.id]]
                    yield _Window(each, reduced, mine, keys, first_key, newest, dictionaries)


class _DistinctCounts:
    """How many distinct values there are in each window of each query, by key."""

    def __init__(self) -> None:
        self._present: dict[tuple[str, int, int, str], list[tuple[pa.Table, npt.NDArray[np.int64]]]] = {}
        self._key_of: dict[tuple[int, int], npt.NDArray[np.int64]] = {}

    def add(self, argument: str, window: _Window) -> None:
        """Note which keys and values a window has."""
        counts = window.reduced.over(COUNT_NAME, window.cells)
        assert counts is not None
        due = window.due
        present = np.flatnonzero(counts) + window.first_key
        self._present.setdefault((due.query.id, due.start, due.end, argument), []).append((window.keys, present))

    def of(self, argument: str, due: _Due, keys: pa.Table) -> npt.NDArray[np.int64]:
        """Return the number of distinct values that are not NULL, for each of the keys."""
        totals = np.zeros(keys.num_rows, dtype=np.int64)
        for wide, present in self._present.get((due.query.id, due.start, due.end, argument), ()):
            key_of = self._key_of.get((id(keys), id(wide)))
            if key_of is None:
                key_of = self._key_of[id(keys), id(wide)] = keys_of_wide(keys, wide)
            found = key_of[present]
            totals += np.bincount(found[found >= 0], minlength=keys.num_rows)
        return totals


def keys_of_wide(keys: pa.Table, wide: pa.Table) -> npt.NDArray[np.int64]:
    """Return, for each key with a value as last column, the row of the key without it; -1 where the value is NULL."""
    *names, value = key_columns(wide)
    if names:
        united, (mine, theirs) = unite_keys([keys, wide.select(names)])
        row = np.full(united.num_rows, -1, dtype=np.int64)
        row[mine] = np.arange(keys.num_rows)
        found = row[theirs]
    else:
        found = np.zeros(wide.num_rows, dtype=np.int64)
    found[np.asarray(wide.column(value).combine_chunks().is_null())] = -1
    return found


def cells_of_queries(
    buckets: Sequence[Bucket], queries: Sequence[LiveQuery], predicates: Predicates
) -> tuple[Bools, list[CellMap]]:
    """Number the cells anew, as coarse as the due queries allow.

    Returns which of the new cells each query has, shape (queries, cells), and for each bucket the new number of each of
    its cells, -1 for one that nobody has.
    """
    if isinstance(buckets[0].cells, SetCells):
        slots = np.array([query.slot for query in queries], dtype=np.int64)
        bits, maps = unite_bits([b.cells for b in buckets if isinstance(b.cells, SetCells)], slots)
        return np.ascontiguousarray(bits.T), maps
    truths = [next(iter(predicates(query).truths.values()), None) for query in queries]
    cells = LineCells(tuple(sorted({b for truth in truths if truth is not None for b in truth.boundaries})))
    wanted = np.array(
        [
            np.ones(cells.count, dtype=np.bool_) if truth is None else truth.mask_over(cells.boundaries)
            for truth in truths
        ]
    )
    somebody = not_empty(wanted.T)
    maps = []
    for bucket in buckets:
        assert isinstance(bucket.cells, LineCells)
        new = bucket.cells.map_to(cells)
        maps.append(np.where(somebody[new], new, -1).astype(np.int32))
    return wanted, maps


def needed_names(buckets: Sequence[Bucket], measures: Sequence[Measure]) -> dict[str, np.dtype[Any]]:
    """Return the components that the measures are made of, as far as some bucket has them."""
    there = component_names(buckets)
    wanted = [COUNT_NAME, *(name for measure in measures for name in names_of(measure))]
    return {name: there[name] for name in dict.fromkeys(wanted) if name in there}


def _runs(slices: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a bucket's slices in which none overlaps the next: those of different epochs may."""
    breaks = np.flatnonzero(slices[1:, 0] < slices[:-1, 1]) + 1
    return itertools.pairwise([0, *breaks.tolist(), len(slices)])


class _Addresses:
    """Where each entry of each bucket goes in an array of shape (cells, keys), for some of the keys."""

    def __init__(
        self,
        buckets: Sequence[Bucket],
        maps: Sequence[CellMap],
        key_maps: Sequence[npt.NDArray[np.int32]],
        first: int,
        count: int,
    ) -> None:
        self._buckets, self._maps, self._key_maps = buckets, maps, key_maps
        self._first, self._count = first, count

    def of(self, number: int, low: int, high: int) -> npt.NDArray[np.int32]:
        """Return the addresses of the entries ``[low, high)`` of a bucket."""
        bucket, at = self._buckets[number], np.empty(high - low, dtype=np.int32)
        cell, key = bucket.cell[low:high], bucket.key[low:high]
        kernels.place_mapped(at, cell, key, self._maps[number], self._key_maps[number], self._first, self._count)
        return at


class _Reduced:
    """The components of a window, shape (cells, keys) each, and reductions over some of their cells."""

    def __init__(self, totals: Mapping[str, Numbers]) -> None:
        self._reductions = {
            name: RangeReduction(total, component_named(name, total.dtype).merge) for name, total in totals.items()
        }

    def over(self, name: str, cells: Bools) -> Numbers | None:
        """Return a component over some cells, shape (keys,); None when no bucket has it."""
        reduction = self._reductions.get(name)
        return None if reduction is None else reduction.over(cells)


@dataclass
class _Segments:
    """The rows of queries with the same measures, window by window; ``numbers`` has a part per window and component."""

    measures: tuple[Measure, ...]
    windows: list[_Due] = field(default_factory=list)
    keys: list[pa.Table] = field(default_factory=list)
    picked: list[npt.NDArray[np.int64]] = field(default_factory=list)
    numbers: list[dict[str, Numbers]] = field(default_factory=list)
    dictionaries: list[Mapping[str, pa.Array]] = field(default_factory=list)
    newest: list[int] = field(default_factory=list)


class _Rows:
    """Collects the rows of all queries of one operator."""

    def __init__(self, failures: dict[str, str]) -> None:
        self._failures = failures
        self._segments: dict[tuple[Measure, ...], _Segments] = {}

    def add(self, window: _Window, distinct: _DistinctCounts) -> None:
        """Take the rows of a query's window: one for each key that has tuples."""
        reduced, cells, due = window.reduced, window.cells, window.due
        counts = reduced.over(COUNT_NAME, cells)
        assert counts is not None
        present = np.flatnonzero(counts)
        if not len(present):
            return
        measures = aggregation_of(due.query).measures
        segments = self._segments.setdefault(measures, _Segments(measures))
        numbers = {COUNT_NAME: counts[present]}
        for measure in measures:
            if measure.function == COUNT_DISTINCT:
                found = distinct.of(str(measure.argument), due, window.keys)
                numbers[measure.name] = found[present + window.first_key]
                continue
            for name in names_of(measure):
                if name not in numbers:
                    numbers[name] = _picked(reduced, name, cells, present, numbers[COUNT_NAME])
        segments.windows.append(due)
        segments.keys.append(window.keys)
        segments.picked.append(present + window.first_key)
        segments.numbers.append(numbers)
        segments.dictionaries.append(window.dictionaries)
        segments.newest.append(window.newest)

    def fired(self) -> Fired | None:
        """Return everything that was taken."""
        tables: list[pa.Table] = []
        found: dict[int, tuple[int, int]] = {}
        for segments in self._segments.values():
            table = self._table(segments, found)
            if table is not None:
                tables.append(table)
        if not tables:
            return None
        slots = sorted(found)
        counts, latest = [found[slot][0] for slot in slots], [found[slot][1] for slot in slots]
        return Fired(pa.concat_tables(tables, promote_options="default"), slots, counts, latest)

    def _table(self, segments: _Segments, found: dict[int, tuple[int, int]]) -> pa.Table | None:
        order = sorted(
            range(len(segments.windows)),
            key=lambda i: (segments.windows[i].query.slot, segments.windows[i].end, segments.windows[i].start),
        )
        windows = [segments.windows[i] for i in order]
        lengths = np.array([len(segments.picked[i]) for i in order])
        columns: dict[str, pa.Array] = {
            SLOT: pa.array(np.repeat(np.array([w.query.slot for w in windows], dtype=np.int32), lengths)),
            WINDOW_START: _times([w.start for w in windows], lengths),
            WINDOW_END: _times([w.end for w in windows], lengths),
            **_taken(segments, order),
        }
        for measure in segments.measures:
            columns[measure.name] = _measure_column(measure, segments, order)
        table, kept = self._having(pa.table(columns), windows, lengths)
        for number, window in enumerate(windows):
            if kept[number]:
                rows, latest = found.get(window.query.slot, (0, segments.newest[order[number]]))
                found[window.query.slot] = rows + kept[number], max(latest, segments.newest[order[number]])
        return table if table.num_rows else None

    def _having(
        self, table: pa.Table, windows: Sequence[_Due], lengths: npt.NDArray[np.int64]
    ) -> tuple[pa.Table, list[int]]:
        """Keep the rows that satisfy their query's HAVING; also return how many are left of each window."""
        bounds = np.concatenate([[0], np.cumsum(lengths)]).tolist()
        kept = lengths.tolist()
        keep: npt.NDArray[np.bool_] | None = None
        for number, window in enumerate(windows):
            if aggregation_of(window.query).having is None:
                continue
            keep = np.ones(table.num_rows, dtype=np.bool_) if keep is None else keep
            low, high = bounds[number], bounds[number + 1]
            keep[low:high] = _satisfies_having(table.slice(low, high - low), window.query, self._failures)
            kept[number] = int(keep[low:high].sum())
        return (table if keep is None else table.filter(pa.array(keep))), kept


def apply_having(rows: pa.Table, query: LiveQuery, failures: dict[str, str]) -> pa.Table:
    """Return the rows of a query that satisfy its HAVING."""
    if aggregation_of(query).having is None:
        return rows
    return rows.filter(pa.array(_satisfies_having(rows, query, failures)))


def _satisfies_having(rows: pa.Table, query: LiveQuery, failures: dict[str, str]) -> Bools:
    having = aggregation_of(query).having
    assert having is not None
    tuples = Tuples({name: rows.column(name).combine_chunks() for name in rows.column_names}, rows.num_rows)
    satisfied: Bools = np.asarray(pc.fill_null(tuples.value(having), False))
    if tuples.failures:
        failures[query.id] = "; ".join(tuples.failures.values())
    return satisfied


def _picked(reduced: _Reduced, name: str, cells: Bools, present: npt.NDArray[np.int64], counts: Numbers) -> Numbers:
    """Return a component of some keys; a count that was left out is that of all tuples."""
    found = reduced.over(name, cells)
    if found is not None:
        return found[present]
    return counts if name.startswith("count(") else empty(component_named(name, np.dtype(np.int64)), len(present))


def _times(times: Sequence[int], lengths: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(np.repeat(np.array(times, dtype=np.int64), lengths)).view(pa.timestamp("us"))


def _taken(segments: _Segments, order: Sequence[int]) -> dict[str, pa.Array]:
    """Return the key columns of all rows."""
    names = key_columns(segments.keys[0])
    if not names:
        return {}
    distinct: dict[int, pa.Table] = {id(keys): keys for keys in segments.keys}
    starts, total = {}, 0
    for identity, keys in distinct.items():
        starts[identity], total = total, total + keys.num_rows
    together = pa.concat_tables(list(distinct.values())).combine_chunks()
    rows = np.concatenate([segments.picked[i] + starts[id(segments.keys[i])] for i in order])
    taken = together.take(pa.array(rows))
    return {name: taken.column(name).combine_chunks() for name in names}


def _measure_column(measure: Measure, segments: _Segments, order: Sequence[int]) -> pa.Array:
    """Return the values of a measure; a ranked one space by space, since each has a dictionary of its own."""

    def joined(name: str, numbers: Sequence[int]) -> Numbers:
        return np.concatenate([segments.numbers[i][name] for i in numbers])

    def decoded(numbers: Sequence[int], dictionary: pa.Array | None) -> pa.Array:
        return components.decode(measure, {name: joined(name, numbers) for name in names_of(measure)}, dictionary)

    if not components.is_ranked(measure):
        return decoded(order, None)
    return pa.concat_arrays([decoded([i], segments.dictionaries[i].get(measure.name)) for i in order])
