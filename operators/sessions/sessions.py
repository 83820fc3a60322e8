"""Session windows, shared: what lies together for every query is kept together, and each query joins it by its own gap.

Tuples of one cell and key that follow each other within the shortest gap of all queries belong to the same session of
every query that selects the cell. They are kept as one *fragment*: its first and last event time, and the components
of its tuples. A query's session is a chain of fragments of its cells, none of which begins its gap or more after the
last tuple before it. A fragment never lies across a *cut*, an event time at which a query begins or ceases to see
tuples, so each query has whole fragments.

The thesis has sessions as windows like any other (section 2.1.3, figure 2.3); it does not say how they are shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from braid.operators.aggregation.firing import needed_names
from braid.operators.aggregation.shared_aggregation import aggregation_of, measures_of
from braid.operators.aggregation.space_queries import Predicates, SpaceQueries, by_space
from braid.operators.arrays import Numbers
from braid.operators.live_queries import LiveQuery
from braid.operators.predicates.cell_space import CellSpace, assign_cells
from braid.operators.predicates.cells import Cells, LineCells, SetCells, unite_sets
from braid.operators.predicates.index import TupleCells
from braid.operators.predicates.space_key import SpaceKey
from braid.operators.query_parts import COUNT_DISTINCT, WINDOW_END, WINDOW_START, Measure
from braid.operators.state import components
from braid.operators.state.bucket import Bucket
from braid.operators.state.components import COUNT_NAME, component_named, names_of
from braid.operators.state.keys import encode_keys, key_columns, key_names
from braid.operators.state.merging import common_keys, common_ranks, component_names, numbers_of
from braid.operators.state.sliced_tuples import SlicedTuples
from braid.operators.state.totals import accumulate, empty, merge_into
from braid.operators.windowing.fired_rows import Fired, apply_having
from braid.operators.windowing.value_counts import counts_values, keys_of_wide
from braid.operators.windowing.window_rows import SLOT, WindowRows
from braid.operators.windows import SessionWindow
from braid.sources.core.columns import one_array

Times = npt.NDArray[np.int64]

FIRST, LAST = "min(event time)", "max(event time)"


def gap_of(live: LiveQuery) -> int:
    """Return the gap of a query over sessions (µs)."""
    window = aggregation_of(live).window
    assert isinstance(window, SessionWindow)
    return window.gap_us


@njit(cache=True, nogil=True)
def _chain(number: Times, order: Times, group: Times, stretch: Times, first: Times, last: Times, gap: int) -> int:
    """Number the chains of intervals that are in ``order`` of group, stretch and begin; return how many there are."""
    count, reach = 0, 0
    for n in range(order.size):
        i = order[n]
        previous = order[n - 1] if n else i
        is_first = n == 0 or group[i] != group[previous] or stretch[i] != stretch[previous] or first[i] - reach >= gap
        if is_first:
            count += 1
            reach = last[i]
        else:
            reach = max(reach, last[i])
        number[i] = count - 1
    return count


def chain(group: Times, first: Times, last: Times, gap: int, cuts: Sequence[int] = ()) -> tuple[Times, int]:
    """Join intervals of one group that are less than ``gap`` apart, and not parted by one of the ``cuts`` (both µs).

    Returns for each interval the number of its chain, and how many chains there are; they are in order of group and
    begin.
    """
    stretch = np.searchsorted(np.array(cuts, dtype=np.int64), first, side="right")
    order = np.lexsort((first, stretch, group))
    number = np.empty(len(first), dtype=np.int64)
    return number, int(_chain(number, order, group, stretch, first, last, gap))


def fragments(
    sliced: SlicedTuples,
    times: Times,
    space: CellSpace,
    tuple_cells: TupleCells,
    measures: Sequence[Measure],
    operator: str,
    epoch: int,
    cuts: Sequence[int],
) -> Iterator[tuple[int, Bucket]]:
    """Bring the tuples of a chunk together as fragments; yield a bucket for each key group that has any."""
    cell, cells = assign_cells(space, tuple_cells, sliced.length)
    selected = np.flatnonzero(cell >= 0)
    if not len(selected):
        return
    keys = sliced.keys
    address = cell[selected].astype(np.int64) * keys.count + keys.codes[selected]
    event_times = times[selected]
    gap = min(gap_of(query) for query in space.queries)
    number, count = chain(address, event_times, event_times, gap, cuts)
    at = np.full(len(cell), -1, dtype=np.int32)
    at[selected] = number
    encoded = sliced.measures.of(measures)
    totals = accumulate(at, count, encoded)
    totals |= _ends(number, count, event_times, event_times)
    chain_address = np.zeros(count, dtype=np.int64)
    chain_address[number] = address
    in_cell, in_key = np.divmod(chain_address, keys.count)
    dictionaries = {m.name: e.dictionary for m, e in encoded.items() if e.dictionary is not None}
    group = np.searchsorted(keys.group_starts, in_key, side="right") - 1
    for key_group in np.unique(group).tolist():
        in_group = np.flatnonzero(group == key_group)
        numbers = {name: total[in_group] for name, total in totals.items()}
        key = (in_key[in_group] - keys.group_starts[key_group]).astype(np.int32)
        yield key_group, _bucket(
            operator, space.key, epoch, cells, in_cell[in_group].astype(np.int32), key, keys.of_group(key_group),
            numbers, dictionaries,
        )  # fmt: skip


def _ends(number: Times, count: int, first: Times, last: Times) -> dict[str, Numbers]:
    """Return the first and the last event time of each chain."""
    ends: dict[str, Numbers] = {}
    for name, values in ((FIRST, first), (LAST, last)):
        component = component_named(name, np.dtype(np.int64))
        ends[name] = empty(component, count)
        merge_into(component, ends[name], number.astype(np.int32), values)
    return ends


def _bucket(
    operator: str,
    space: SpaceKey,
    epoch: int,
    cells: Cells,
    cell: npt.NDArray[np.int32],
    key: npt.NDArray[np.int32],
    keys: pa.Table,
    numbers: Mapping[str, Numbers],
    dictionaries: Mapping[str, pa.Array],
) -> Bucket:
    """Return a bucket of fragments: one slice, from the first event time to the last."""
    span = [int(numbers[FIRST].min()), int(numbers[LAST].max()) + 1] if len(cell) else [0, 1]
    return Bucket(
        operator=operator,
        space=space,
        epoch=epoch,
        cells=cells,
        slices=np.array([span], dtype=np.int64),
        starts=np.array([0, len(cell)], dtype=np.int64),
        latest=np.array([span[1] - 1], dtype=np.int64),
        places=(cell, key),
        keys=keys,
        components=numbers,
        dictionaries=dictionaries,
    )


def alive_fragments(
    buckets: Sequence[Bucket], queries: Sequence[LiveQuery], reached: int | None
) -> list[npt.NDArray[np.bool_]]:
    """Return which fragments may still be part of a session that has not ended; ``reached`` is the watermark.

    With the longest gap, whatever the cells, fragments form the longest chains; every session is within one of them.
    Where a value that is counted is one more key, sessions are those of the keys without it.
    """
    if not queries:
        return [np.zeros(bucket.entries, dtype=np.bool_) for bucket in buckets]
    if reached is None or not buckets:
        return [np.ones(bucket.entries, dtype=np.bool_) for bucket in buckets]
    gap = max(gap_of(query) for query in queries)
    keys, key_maps = common_keys(buckets)
    columns = [one_array(keys.column(name)) for name in key_names(len(aggregation_of(queries[0]).keys))]
    session_key = encode_keys(columns, keys.num_rows, 1, "").codes.astype(np.int64)
    key = np.concatenate([session_key[key_map[bucket.key]] for bucket, key_map in zip(buckets, key_maps, strict=True)])
    first, last = (np.concatenate([bucket.component(name) for bucket in buckets]) for name in (FIRST, LAST))
    number, count = chain(key, first, last, gap)
    is_open = (_ends(number, count, first, last)[LAST] + gap > reached)[number]
    return np.split(is_open, np.cumsum([bucket.entries for bucket in buckets])[:-1])


class _Fragments:
    """The fragments of several buckets of one space, in common cells and keys."""

    def __init__(
        self, buckets: Sequence[Bucket], maps: Sequence[npt.NDArray[np.int32]], names: Mapping[str, np.dtype[Any]]
    ) -> None:
        self.keys, key_maps = common_keys(buckets)
        self.dictionaries, ranks = common_ranks(buckets, names)
        self.cell = np.concatenate([cell_map[bucket.cell] for bucket, cell_map in zip(buckets, maps, strict=True)])
        self.key = np.concatenate([key_map[bucket.key] for bucket, key_map in zip(buckets, key_maps, strict=True)])
        self.first, self.last = (np.concatenate([bucket.component(n) for bucket in buckets]) for n in (FIRST, LAST))
        self.numbers: dict[str, Numbers] = {}
        for name, dtype in names.items():
            component = component_named(name, dtype)
            parts = []
            for bucket, rank in zip(buckets, ranks, strict=True):
                numbers = numbers_of(bucket, component, slice(None), rank)
                parts.append(empty(component, bucket.entries) if numbers is None else numbers)
            self.numbers[name] = np.concatenate(parts)

    def total(self, rows: npt.NDArray[Any], number: Times, count: int) -> dict[str, Numbers]:
        """Return the components of chains, of which ``number`` says which each of some fragments belongs to."""
        totals: dict[str, Numbers] = {}
        for name, numbers in self.numbers.items():
            component = component_named(name, numbers.dtype)
            totals[name] = empty(component, count)
            merge_into(component, totals[name], number.astype(np.int32), numbers[rows])
        return totals


def merge_fragments(
    buckets: Sequence[Bucket],
    alive: Sequence[npt.NDArray[np.bool_]],
    cells: LineCells | None,
    queries: Sequence[LiveQuery],
    cuts: Sequence[int],
) -> Bucket:
    """Return one bucket for several of one operator and space; fragments that no gap parts become one."""
    common: Cells
    if cells is None:
        common, maps = unite_sets([bucket.cells for bucket in buckets if isinstance(bucket.cells, SetCells)])
    else:
        common = cells
        maps = [bucket.cells.map_to(cells) for bucket in buckets if isinstance(bucket.cells, LineCells)]
    names = {n: t for n, t in component_names(buckets).items() if n not in (FIRST, LAST)}
    joined = _Fragments(buckets, maps, names)
    alive_rows = np.flatnonzero(np.concatenate(list(alive)))
    keys = joined.keys.num_rows
    address = joined.cell[alive_rows].astype(np.int64) * keys + joined.key[alive_rows]
    first, last = joined.first[alive_rows], joined.last[alive_rows]
    number, count = chain(address, first, last, min(gap_of(query) for query in queries), cuts)
    totals = joined.total(alive_rows, number, count) | _ends(number, count, first, last)
    chain_address = np.zeros(count, dtype=np.int64)
    chain_address[number] = address
    cell, key = np.divmod(chain_address, keys)
    newest = buckets[-1]
    return _bucket(
        newest.operator, newest.space, max(bucket.epoch for bucket in buckets), common, cell.astype(np.int32),
        key.astype(np.int32), joined.keys, totals, joined.dictionaries,
    )  # fmt: skip


def fire_sessions(
    buckets: Sequence[Bucket],
    queries: Sequence[LiveQuery],
    predicates: Predicates,
    after: int,
    upto: int,
    failures: dict[str, str],
    distinct: Mapping[str, Sequence[Bucket]] | None = None,
) -> Fired | None:
    """Return the rows of all sessions that end in ``(after, upto]``, or None when there are none; as `firing.fire`."""
    tables: dict[int, tuple[pa.Table, int]] = {}
    for space, members in by_space(queries, predicates).items():
        space_buckets = [bucket for bucket in buckets if bucket.space == space]
        if not space_buckets:
            continue
        runs, cells, maps = SpaceQueries(members, predicates).cells(space_buckets)
        joined = _Fragments(space_buckets, maps, needed_names(space_buckets, measures_of(members)))
        values = _counted_values(distinct or {}, space, members, predicates, joined.keys)
        for query, mask in zip(members, runs.masks(cells), strict=True):
            table = _sessions_of(joined, query, mask, after, upto, values)
            if table is not None:
                latest = int(pc.max(table.column(WINDOW_END)).value) - gap_of(query)
                rows_of_query = apply_having(table, query, failures)
                if rows_of_query.num_rows:
                    tables[query.slot] = rows_of_query, latest
    if not tables:
        return None
    slots = sorted(tables)
    rows = [tables[slot][0] for slot in slots]
    counts, latest_us = [table.num_rows for table in rows], [tables[slot][1] for slot in slots]
    return Fired(WindowRows.of_tables(rows), slots, counts, latest_us)


@dataclass(frozen=True)
class _CountedValues:
    """Fragments that have a counted value as one more key; ``key_of`` is the key without it, -1 where it is NULL."""

    joined: _Fragments
    key_of: Times
    cells: Mapping[str, npt.NDArray[np.bool_]]

    def counts(self, query: LiveQuery, key: Times, first: Times) -> Times:
        """Return how many values there are in each session; ``key`` and ``first`` are in order of both."""
        stream, wide = query.query.streams[0], self.joined
        is_seen = self.cells[query.id][wide.cell] & (wide.cell >= 0) & (wide.first > query.after(stream))
        counted = np.flatnonzero(is_seen & (self.key_of[wide.key] >= 0))
        sessions = len(key)
        keys = np.concatenate([key, self.key_of[wide.key[counted]]])
        firsts = np.concatenate([first, wide.first[counted]])
        # each fragment lies within a session: the last one that began before it
        order = np.lexsort((np.arange(len(keys)), firsts, keys))
        session = np.empty(len(keys), dtype=np.int64)
        session[order] = np.maximum.accumulate(np.where(order < sessions, order, -1))
        pairs = np.unique(session[sessions:] * wide.keys.num_rows + wide.key[counted])
        return np.bincount(pairs // wide.keys.num_rows, minlength=sessions)


def _counted_values(
    distinct: Mapping[str, Sequence[Bucket]],
    space: SpaceKey,
    queries: Sequence[LiveQuery],
    predicates: Predicates,
    keys: pa.Table,
) -> dict[str, _CountedValues]:
    """Return the values of each argument that some of the queries of a cell space count."""
    values = {}
    for argument, buckets in distinct.items():
        space_buckets = [bucket for bucket in buckets if bucket.space == space]
        counting = [query for query in queries if counts_values(aggregation_of(query).measures, argument)]
        if space_buckets and counting:
            runs, cells, maps = SpaceQueries(counting, predicates).cells(space_buckets)
            joined = _Fragments(space_buckets, maps, needed_names(space_buckets, ()))
            masks = dict(zip((query.id for query in counting), runs.masks(cells), strict=True))
            values[argument] = _CountedValues(joined, keys_of_wide(keys, joined.keys), masks)
    return values


def _sessions_of(
    joined: _Fragments,
    query: LiveQuery,
    cells: npt.NDArray[np.bool_],
    after: int,
    upto: int,
    values: Mapping[str, _CountedValues],
) -> pa.Table | None:
    """Return the rows of a query's sessions that end in ``(after, upto]``, None for none; ``cells`` are the query's."""
    stream, gap = query.query.streams[0], gap_of(query)
    upto = min(upto, query.until(stream))
    is_seen = cells[joined.cell] & (joined.cell >= 0) & (joined.first > query.after(stream))
    ending = joined.last + gap
    if not (is_seen & (ending > after) & (ending <= upto)).any():
        return None
    seen_rows = np.flatnonzero(is_seen)
    first, last = joined.first[seen_rows], joined.last[seen_rows]
    number, count = chain(joined.key[seen_rows].astype(np.int64), first, last, gap)
    ends = _ends(number, count, first, last)
    end = ends[LAST] + gap
    due = np.flatnonzero((end > after) & (end <= upto))
    if not len(due):
        return None
    due = due[np.lexsort((ends[FIRST][due], end[due]))]
    key = np.zeros(count, dtype=np.int64)
    key[number] = joined.key[seen_rows]
    totals = joined.total(seen_rows, number, count)
    for measure in aggregation_of(query).measures:
        if measure.function == COUNT_DISTINCT:
            totals[measure.name] = values[str(measure.argument)].counts(query, key, ends[FIRST])
    key_values = joined.keys.take(pa.array(key[due]))
    columns: dict[str, pa.Array] = {
        SLOT: pa.array(np.full(len(due), query.slot, dtype=np.int32)),
        WINDOW_START: pa.array(ends[FIRST][due]).view(pa.timestamp("us")),
        WINDOW_END: pa.array(end[due]).view(pa.timestamp("us")),
        **{name: one_array(key_values.column(name)) for name in key_columns(key_values)},
    }
    for measure in aggregation_of(query).measures:
        columns[measure.name] = _measure_column(measure, totals, due, joined.dictionaries)
    return pa.table(columns)


def _measure_column(
    measure: Measure, totals: Mapping[str, Numbers], due: npt.NDArray[Any], dictionaries: Mapping[str, pa.Array]
) -> pa.Array:
    """Return a measure of the sessions that are due."""
    numbers = {name: totals.get(name, totals[COUNT_NAME])[due] for name in names_of(measure)}
    return components.decode(measure, numbers, dictionaries.get(measure.name))
