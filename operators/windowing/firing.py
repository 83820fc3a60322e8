"""Firing windows: from the entries of buckets to what each due window holds.

A window's rows are due in the first batch after which the waterline has reached its end (CONTRACT section 3.5). Windows
that end together are fired together: going back from their end, slices are added up once, and the windows that begin
where one does take their share there. Each query then reduces over its cells, all queries of these windows at once.

A query reads the slices that began after it was created. All of them were cut with its boundaries and its measures at
hand, in whatever later epoch, so buckets of different epochs are added up as they are; the changelog-set of the thesis
(eq. 4.1, 4.2) has nothing left to mask.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.aggregation import measures_of
from operators.bucket import Bucket
from operators.components import COUNT_NAME, component_named, names_of
from operators.joins.keys import InputKeys
from operators.keys import unite_keys
from operators.live_queries import LiveQuery
from operators.merging import DENSE_ENTRIES, Renumbered, common_ranks, component_names
from operators.predicates.analysis import Predicate
from operators.predicates.cell_space import SpaceKey
from operators.predicates.cells import CellMap, LineCells, SetCells, unite_bits
from operators.predicates.range_reduction import CellRuns, RangeReduction
from operators.queries import Measure
from operators.totals import empty
from operators.windowing.fired_rows import DistinctCounts, Due, Fired, FiredRows, Held, counts_distinct
from operators.windowing.slice_tree import stretches
from operators.windowing.slicing import due_windows, with_ends_in
from operators.windows import Window

# so many numbers of (queries, keys) at once
_MOST_AT_ONCE = 1 << 22

Predicates = Callable[[LiveQuery], Predicate]


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
    due = _by_space(_due(queries, slices, after, upto), predicates)
    rows = FiredRows({} if failures is None else failures)
    for space, members in due.items():
        mine = [bucket for bucket in buckets if bucket.space == space]
        counts = DistinctCounts()
        for argument, having in (distinct or {}).items():
            counting = [each for each in members if counts_distinct(each.query, argument)]
            for held in _windows([b for b in having if b.space == space], counting, predicates, False):
                counts.add(argument, held)
        for held in _windows(mine, members, predicates, True):
            rows.add(held, counts)
    return rows.fired()


def held_windows(
    buckets: Sequence[Bucket], due: Sequence[Due], predicates: Predicates, keys: InputKeys
) -> Iterator[Held]:
    """Yield what due windows of queries of one operator hold; it is to be used before the next is asked for."""
    for space, members in _by_space(due, predicates).items():
        yield from _windows([b for b in buckets if b.space == space], members, predicates, True, keys)


def _by_space(due: Iterable[Due], predicates: Predicates) -> dict[SpaceKey, list[Due]]:
    """Split windows by the space of their query, which is how buckets are split."""
    found: dict[SpaceKey, list[Due]] = {}
    for each in due:
        found.setdefault(SpaceKey.of(each.query, predicates(each.query)), []).append(each)
    return found


def _due(
    queries: Mapping[Window, Sequence[LiveQuery]], slices: npt.NDArray[np.int64], after: int, upto: int
) -> Iterator[Due]:
    for window in with_ends_in(list(queries), after, upto):
        windows = due_windows(slices, window, after, upto).tolist()
        for query in queries[window]:
            seen_after, until = query.after(query.query.streams[0]), query.until(query.query.streams[0])
            for start, end in windows:
                if until >= end > seen_after + 1:
                    yield Due(query, start, end, max(start, seen_after + 1))


def _windows(
    buckets: Sequence[Bucket],
    due: Sequence[Due],
    predicates: Predicates,
    with_measures: bool,
    numbered: InputKeys | None = None,
) -> Iterator[Held]:
    """Add up the slices of the due windows of the queries of one cell space; without measures only count tuples.

    ``numbered`` are the keys of the buckets where these are numbered already. What windows hold is to be used before
    the next is asked for.
    """
    if not due:
        return
    first, last = min(each.reads_from for each in due), max(each.end for each in due)
    buckets = [b for b in buckets if ((b.slices[:, 0] >= first) & (b.slices[:, 1] <= last)).any()]
    if not buckets:
        return
    queries = list({each.query.id: each.query for each in due}.values())
    runs_of, cells, cell_maps = cells_of_queries(buckets, queries, predicates)
    if numbered is None:
        keys, key_maps = unite_keys([bucket.keys for bucket in buckets])
    else:
        keys, key_maps = numbered.distinct, [numbered.places[id(bucket.keys)] for bucket in buckets]
    names = needed_names(buckets, measures_of(queries) if with_measures else ())
    dictionaries, ranks = common_ranks(buckets, names)
    per_pass = max(1, DENSE_ENTRIES // cells)
    place = {query.id: i for i, query in enumerate(queries)}
    ends: dict[int, dict[int, list[Due]]] = {}
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
        renumbered = [Renumbered(*maps, first_key, count) for maps in zip(cell_maps, key_maps, ranks, strict=True)]
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
                    for entries, low, high in stretches(bucket, bucket.above, slice_, after):
                        renumbered[i].add(totals, entries, low, high)
                reduced = {
                    name: RangeReduction(total.reshape(cells, count), component_named(name, total.dtype).merge)
                    for name, total in totals.items()
                }
                for some in _chunks(by_start[start], max(1, _MOST_AT_ONCE // count)):
                    mine = runs_of.taken([place[each.query.id] for each in some])
                    yield Held(some, mine, reduced, keys, first_key, newest, dictionaries)


def _chunks(due: Sequence[Due], length: int) -> Iterator[Sequence[Due]]:
    return (due[first : first + length] for first in range(0, len(due), length))


def cells_of_queries(
    buckets: Sequence[Bucket], queries: Sequence[LiveQuery], predicates: Predicates
) -> tuple[CellRuns, int, list[CellMap]]:
    """Number the cells anew, as coarse as the due queries allow.

    Returns which of the new cells each query has, how many there are, and for each bucket the new number of each of its
    cells, -1 for one that nobody has.
    """
    if isinstance(buckets[0].cells, SetCells):
        slots = np.array([query.slot for query in queries], dtype=np.int64)
        bits, maps = unite_bits([b.cells for b in buckets if isinstance(b.cells, SetCells)], slots)
        return CellRuns.of_masks(np.ascontiguousarray(bits.T)), len(bits), maps
    truths = [next(iter(predicates(query).truths.values()), None) for query in queries]
    cells = LineCells(tuple(sorted({b for truth in truths if truth is not None for b in truth.boundaries})))
    runs = CellRuns.of([(0, cells.count)] if t is None else t.runs_over(cells.boundaries) for t in truths)
    somebody = runs.somebody(cells.count)
    maps = []
    for bucket in buckets:
        assert isinstance(bucket.cells, LineCells)
        new = bucket.cells.map_to(cells)
        maps.append(np.where(somebody[new], new, -1).astype(np.int32))
    return runs, cells.count, maps


def needed_names(buckets: Sequence[Bucket], measures: Sequence[Measure]) -> dict[str, np.dtype[Any]]:
    """Return the components that the measures are made of, as far as some bucket has them."""
    there = component_names(buckets)
    wanted = [COUNT_NAME, *(name for measure in measures for name in names_of(measure))]
    return {name: there[name] for name in dict.fromkeys(wanted) if name in there}


def _runs(slices: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a bucket's slices in which none overlaps the next: those of different epochs may."""
    breaks = np.flatnonzero(slices[1:, 0] < slices[:-1, 1]) + 1
    return itertools.pairwise([0, *breaks.tolist(), len(slices)])
