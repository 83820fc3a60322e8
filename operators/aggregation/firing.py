"""Firing windows: from the entries of buckets to what each due window holds.

A window's rows are due in the first batch after which the watermark has reached its end. Windows
that end together are fired together: going back from their end, what these windows need of slices is added up once,
and the windows that begin where one does take their share there. Each query then reduces over its cells, all queries of
these windows at once.

A query reads the slices that began after it was created. All of them were cut with its boundaries and its measures at
hand, in whatever later epoch, so buckets of different epochs are added up as they are; the changelog-set of the thesis
(eq. 4.1, 4.2) has nothing left to mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from braid.operators.aggregation import alone_windows
from braid.operators.aggregation.due import Due, WindowedQueries, WindowsToFire, due_by_space
from braid.operators.aggregation.due_slices import DueSlices
from braid.operators.aggregation.slice_tree import stretches
from braid.operators.aggregation.space_queries import Predicates
from braid.operators.arrays import Numbers
from braid.operators.joins.keys import InputKeys
from braid.operators.predicates.query_set import Bools
from braid.operators.predicates.space_key import ALONE, SpaceKey
from braid.operators.query_parts import Measure
from braid.operators.state.bucket import Bucket
from braid.operators.state.components import COUNT_NAME, component_named, names_of
from braid.operators.state.merging import DENSE_ENTRIES, Renumbered, common_keys, common_ranks, component_names
from braid.operators.state.query_runs import Partials, QueryRuns
from braid.operators.state.totals import empty
from braid.operators.windowing.fired_rows import Fired, FiredRows
from braid.operators.windowing.value_counts import ValueCounts, counts_values
from braid.operators.windowing.window_contents import Reductions, WindowContents

# so many numbers of (queries, keys) at once
_MAX_AT_ONCE = 1 << 22


def fire(
    buckets: Sequence[Bucket],
    queries: WindowedQueries,
    after: int,
    upto: int,
    failures: dict[str, str] | None = None,
    distinct: Mapping[str, Sequence[Bucket]] | None = None,
    may_form_later: bool = False,
) -> Fired | None:
    """Return the rows of all windows that end in ``(after, upto]``, or None when there are none.

    ``buckets`` and ``queries`` are those of one operator, ``distinct`` the buckets in which an expression, given by its
    text, is one more key: those of COUNT(DISTINCT expression) and the like. Groups without tuples and groups that
    HAVING excludes are left out. A query whose HAVING raises gets no rows, and ``failures`` its id and the message.
    With ``may_form_later`` rows are formed when they are read, where that is less to write.
    """
    if not buckets:
        return None
    slices = np.unique(np.concatenate([b.slices for b in buckets]), axis=0)
    rows = FiredRows({} if failures is None else failures, may_form_later)
    by_space = _by_space(buckets)
    wide_by_space = {argument: _by_space(wide) for argument, wide in (distinct or {}).items()}
    for space, due in queries.due(slices, after, upto):
        counts = ValueCounts()
        if space == ALONE:
            _fire_alone(by_space, wide_by_space, due, rows, counts)
            continue
        for argument, wide in wide_by_space.items():
            is_counting = np.array([counts_values(measures, argument) for measures in due.space.measures])
            due_counting = due.take(np.flatnonzero(is_counting[due.space.measures_of[due.query]]))
            for contents in _windows(wide.get(space, []), due_counting, False):
                counts.add(argument, contents)
        for contents in _windows(by_space.get(space, []), due, True):
            rows.add(contents, counts)
    return rows.fired()


def _fire_alone(
    by_space: Mapping[SpaceKey, Sequence[Partials]],
    wide_by_space: Mapping[str, Mapping[SpaceKey, Sequence[Partials]]],
    due: WindowsToFire,
    rows: FiredRows,
    counts: ValueCounts,
) -> None:
    """Add the rows of due windows of queries that are added up each alone."""
    space = due.space
    due = due.take(np.argsort(space.measures_of[due.query], kind="stable"))
    for argument, wide in wide_by_space.items():
        is_counting = np.array([counts_values(measures, argument) for measures in space.measures])
        counting = due.take(np.flatnonzero(is_counting[space.measures_of[due.query]]))
        for totals in alone_windows.totals(_query_runs(wide), _stretches_of(counting, {})):
            counts.add_totals(argument, counting.take(totals.windows), totals)
    needs = alone_windows.needs_of(space.measures, space.measures_of[due.query])
    for totals in alone_windows.totals(_query_runs(by_space), _stretches_of(due, needs)):
        rows.add_totals(due.take(totals.windows), totals, counts)


def _query_runs(by_space: Mapping[SpaceKey, Sequence[Partials]]) -> list[QueryRuns]:
    return [block for block in by_space.get(ALONE, ()) if isinstance(block, QueryRuns)]


def _stretches_of(due: WindowsToFire, needs: Mapping[str, Bools]) -> alone_windows.Stretches:
    return alone_windows.Stretches(due.space.slots[due.query], due.reads_from, due.end, needs)


def window_contents(
    buckets: Sequence[Bucket], due: Sequence[Due], predicates: Predicates, keys: InputKeys
) -> Iterator[WindowContents]:
    """Yield what due windows of queries of one operator hold; use each before asking for the next."""
    by_space = _by_space(buckets)
    for space, members in due_by_space(due, predicates):
        yield from _windows(by_space.get(space, []), members, True, keys)


def _by_space(buckets: Sequence[Bucket]) -> dict[SpaceKey, list[Bucket]]:
    by_space: dict[SpaceKey, list[Bucket]] = {}
    for bucket in buckets:
        by_space.setdefault(bucket.space, []).append(bucket)
    return by_space


def _windows(
    buckets: Sequence[Bucket], due: WindowsToFire, with_measures: bool, input_keys: InputKeys | None = None
) -> Iterator[WindowContents]:
    """Add up the slices of the due windows of one cell space; without measures only count tuples.

    ``input_keys`` are the keys of the buckets where these are numbered already. Use what windows hold before asking for
    the next.
    """
    if not len(due):
        return
    first, last = due.reads_from.min(), due.end.max()
    buckets = [b for b in buckets if len(b.slices) and b.slices[-1, 0] >= first and b.slices[:, 1].min() <= last]
    if not buckets:
        return
    due = due.take(np.lexsort((-due.reads_from, due.end)))
    queries, number_of = np.unique(due.query, return_inverse=True)
    runs_of, cells, cell_maps = due.space.cells(buckets, queries)
    if input_keys is None:
        keys, key_maps = common_keys(buckets)
    else:
        keys, key_maps = input_keys.distinct, [input_keys.places[id(bucket.keys)] for bucket in buckets]
    dtypes = needed_names(buckets, due.space.measures_among(queries) if with_measures else ())
    dictionaries, ranks = common_ranks(buckets, dtypes)
    slices = DueSlices(buckets, due)
    per_pass = max(1, DENSE_ENTRIES // cells)
    for first_key in range(0, keys.num_rows, per_pass):
        count = min(per_pass, keys.num_rows - first_key)
        renumbered = [Renumbered(*maps, first_key, count) for maps in zip(cell_maps, key_maps, ranks, strict=True)]
        blocks = slices.blocks(cells, count)
        for block in blocks or ():
            totals = _totals(dtypes, due, block.due, with_measures, block.size)
            newest = block.add_up(buckets, renumbered, totals)
            reduced = Reductions({name: total.reshape(-1, count) for name, total in totals.items()})
            for chunk in _chunks(block.due, max(1, _MAX_AT_ONCE // count)):
                windows = block.windows(chunk)
                runs = runs_of.take(number_of[chunk]).from_cells(block.stride * windows)
                yield WindowContents(due.take(chunk), runs, reduced, keys, first_key, newest[windows], dictionaries)
        for ending in slices.endings if blocks is None else ():
            totals = _totals(dtypes, due, ending, with_measures, cells * count)
            latest = np.iinfo(np.int64).min
            for alike, spans in slices.back_from(ending):
                for number, low, high in spans:
                    bucket = buckets[number]
                    latest = max(latest, int(bucket.latest[low:high].max()))
                    for entries, begin, stop in stretches(bucket, bucket.above, low, high):
                        renumbered[number].add(totals, entries, begin, stop)
                reduced = Reductions({name: total.reshape(cells, count) for name, total in totals.items()})
                for chunk in _chunks(alike, max(1, _MAX_AT_ONCE // count)):
                    runs, newest = runs_of.take(number_of[chunk]), np.full(chunk.stop - chunk.start, latest)
                    yield WindowContents(due.take(chunk), runs, reduced, keys, first_key, newest, dictionaries)


def _totals(
    dtypes: Mapping[str, np.dtype[Any]], due: WindowsToFire, windows: slice, with_measures: bool, size: int
) -> dict[str, Numbers]:
    """Return so many neutral values of each component that some of the windows need."""
    measures = due.space.measures_among(due.query[windows]) if with_measures else ()
    return {name: empty(component_named(name, dtype), size) for name, dtype in _of_measures(dtypes, measures).items()}


def _chunks(whole: slice, size: int) -> Iterator[slice]:
    for begin in range(whole.start, whole.stop, size):
        yield slice(begin, min(begin + size, whole.stop))


def needed_names(buckets: Sequence[Bucket], measures: Sequence[Measure]) -> dict[str, np.dtype[Any]]:
    """Return the components that the measures are made of, as far as some bucket has them."""
    return _of_measures(component_names(buckets), measures)


def _of_measures(dtypes: Mapping[str, np.dtype[Any]], measures: Sequence[Measure]) -> dict[str, np.dtype[Any]]:
    names = [COUNT_NAME, *(name for measure in measures for name in names_of(measure))]
    return {name: dtypes[name] for name in dict.fromkeys(names) if name in dtypes}
