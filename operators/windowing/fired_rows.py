"""From what due windows hold to the rows of their queries: the keys that have tuples, measures as values, HAVING."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braid.operators.aggregation.alone_windows import WindowTotals
from braid.operators.aggregation.due import WindowsToFire
from braid.operators.arrays import Numbers
from braid.operators.live_queries import LiveQuery
from braid.operators.predicates.query_set import Bools
from braid.operators.query_parts import Measure
from braid.operators.state import components
from braid.operators.state.components import COUNT_NAME, component_named, names_of
from braid.operators.state.keys import key_columns
from braid.operators.state.totals import empty
from braid.operators.tuples import Tuples
from braid.operators.windowing.value_counts import ValueCounts
from braid.operators.windowing.window_cells import WindowCells
from braid.operators.windowing.window_contents import Reductions, WindowContents
from braid.operators.windowing.window_rows import WindowRows
from braid.sources.core.columns import arrays_of
from braid.sources.core.schema import BIGINT

Places = npt.NDArray[np.int64]

# rows are copied together where the parts that they come in are shorter than this
_MIN_CHUNK = 4096
# rows of windows are formed when they are read where they are so many, and so many for each entry, and where the query
# with most of them reads so many entries for a row at most: 256 take half as long as making a row JSON
_MIN_FORMED_LATER, _ROWS_PER_ENTRY, _MAX_ENTRIES_PER_ROW = 1 << 16, 4, 256


@dataclass(frozen=True)
class Fired:
    """Rows of due windows: keys and measures.

    ``slots`` ascend; for each of them there is the number of its rows, and the greatest event time (µs) of the slices
    that its windows are made of, where known.
    """

    rows: WindowRows
    slots: list[int]
    counts: list[int]
    latest_us: Sequence[int | None]

    @property
    def windows(self) -> list[int]:
        """In how many windows each slot has rows."""
        return self.rows.windows(self.slots)

    @cached_property
    def table(self) -> pa.Table:
        """The rows with the columns ``_slot``, ``window_start``, ``window_end``, keys and measures."""
        return self.rows.table()


@dataclass(frozen=True)
class _Part:
    """Rows of several windows with the same measures: ``lengths`` of them each, one window's after the other's."""

    due: WindowsToFire
    lengths: Places
    values: pa.Table
    newest: Places


class FiredRows:
    """Collects the rows of all queries of one operator; ``failures`` gets the messages of HAVING clauses that raise."""

    def __init__(self, failures: dict[str, str], may_form_later: bool = False) -> None:
        self._failures = failures
        self._may_form_later = may_form_later
        self._by_measures: dict[tuple[str, ...], list[_Part]] = {}
        self._cells: list[tuple[WindowCells, Places]] = []

    def add(self, contents: WindowContents, value_counts: ValueCounts) -> None:
        """Take the rows of windows: one for each key that has tuples."""
        cells = _cells(contents) if self._may_form_later else None
        if cells is not None:
            self._cells.append((cells, contents.newest))
            return
        counts = contents.counts(contents.runs)
        space, due = contents.due.space, contents.due
        lists = space.measures_of[due.query]
        for number in np.unique(lists).tolist():
            in_list = np.flatnonzero(lists == number)
            measures = space.measures[number]
            if len(in_list) == len(due):
                part = _part(contents, counts, measures, value_counts)
            else:
                part = _part(contents.take(in_list), counts[in_list], measures, value_counts)
            if part.lengths.any():
                self._by_measures.setdefault(tuple(measure.name for measure in measures), []).append(part)

    def add_totals(self, due: WindowsToFire, totals: WindowTotals, value_counts: ValueCounts) -> None:
        """Take the rows of windows of queries that are added up alone, ordered by their measures."""
        lists = due.space.measures_of[due.query]
        ends = np.cumsum(totals.lengths)
        bounds = [0, *(np.flatnonzero(np.diff(lists)) + 1).tolist(), len(lists)]
        for low, high in pairwise(bounds):
            rows = slice(int(ends[low - 1]) if low else 0, int(ends[high - 1]))
            if rows.start == rows.stop:
                continue
            measures, alike, lengths = (
                due.space.measures[int(lists[low])],
                due.take(slice(low, high)),
                totals.lengths[low:high],
            )
            numbers: dict[str, Numbers | pa.Array] = {name: column[rows] for name, column in totals.numbers.items()}
            key = totals.key[rows]
            for measure in measures:
                if measure.by_value:
                    at = np.repeat(np.arange(len(lengths)), lengths) * totals.keys.num_rows + key
                    numbers[measure.name] = value_counts.of(measure, list(alike.listed()), totals.keys, at)
                    continue
                for name in names_of(measure):
                    if name not in numbers:  # a count is left out where it is that of all tuples, a sum without values
                        is_count = name.startswith("count(")
                        neutral = component_named(name, np.dtype(np.int64))
                        numbers[name] = numbers[COUNT_NAME] if is_count else empty(neutral, len(key))
            values = _values(measures, numbers, totals.keys, totals.dictionaries, key)
            part = _Part(alike, lengths, values, totals.newest[low:high])
            self._by_measures.setdefault(tuple(measure.name for measure in measures), []).append(part)

    def fired(self) -> Fired | None:
        """Return everything that was taken."""
        window_rows: list[WindowRows] = []
        by_slot: dict[int, tuple[int, int]] = {}
        for parts in self._by_measures.values():
            rows = _rows(parts, by_slot, self._failures)
            if len(rows):
                window_rows.append(rows)
        if self._cells:
            window_rows.append(WindowRows.of_cells([cells for cells, _ in self._cells]))
            columns = zip(*((cells.slot, cells.count, newest) for cells, newest in self._cells), strict=True)
            _take_note(by_slot, *(np.concatenate(column) for column in columns))
        if not window_rows:
            return None
        slots = sorted(by_slot)
        counts, latest = [by_slot[slot][0] for slot in slots], [by_slot[slot][1] for slot in slots]
        return Fired(WindowRows.concat(window_rows), slots, counts, latest)


def _cells(contents: WindowContents) -> WindowCells | None:
    """Return windows whose rows are to be formed when they are read; None where these are few, or more than sums."""
    due, totals, space = contents.due, contents.totals, contents.due.space
    if len(due) * totals.keys < _MIN_FORMED_LATER or space.having[due.query].any():
        return None
    measures = {
        m.name: m for number in np.unique(space.measures_of[due.query]).tolist() for m in space.measures[number]
    }
    if any(_is_more_than_a_sum(measure, totals) for measure in measures.values()):
        return None
    lengths, entries = totals.lengths(contents.runs), totals.occupied
    if lengths.sum() < max(_MIN_FORMED_LATER, _ROWS_PER_ENTRY * entries):
        return None
    if entries > _MAX_ENTRIES_PER_ROW * lengths.max():
        return None
    components_of = {name: names_of(measure)[-1] for name, measure in measures.items()}
    found = totals.entries(list(components_of.values()))
    return WindowCells.of(
        found.key + np.int32(contents.first_key),
        {name: found.numbers[component] for name, component in components_of.items()},
        contents.keys.select(key_columns(contents.keys)),
        (space.slots[due.query], due.start, due.end, lengths),
        (contents.runs.query, found.starts[contents.runs.low], found.starts[contents.runs.high]),
    )


def _is_more_than_a_sum(measure: Measure, totals: Reductions) -> bool:
    """Return whether a measure is more than a sum of whole numbers, or NULL where there was no value."""
    if measure.function == "count":
        return False
    count, *components = names_of(measure)
    return (
        measure.function != "sum"
        or measure.type != BIGINT
        or count in totals.names
        or not totals.names >= set(components)
    )


def _take_note(by_slot: dict[int, tuple[int, int]], slots: Places, counts: Places, newest: Places) -> None:
    """Add to what each slot has the rows of windows, and their newest event time."""
    has_rows = counts > 0
    present, number = np.unique(slots[has_rows], return_inverse=True)
    rows, latest = np.zeros(len(present), dtype=np.int64), np.full(len(present), np.iinfo(np.int64).min)
    np.add.at(rows, number, counts[has_rows])
    np.maximum.at(latest, number, newest[has_rows])
    for slot, count, us in zip(present.tolist(), rows.tolist(), latest.tolist(), strict=True):
        before, newest_before = by_slot.get(slot, (0, us))
        by_slot[slot] = before + count, max(newest_before, us)


def _part(contents: WindowContents, counts: Numbers, measures: tuple[Measure, ...], value_counts: ValueCounts) -> _Part:
    """Return the rows of windows whose queries have the same measures; ``counts`` has their tuples."""
    due, runs = contents.due, contents.runs
    at = np.flatnonzero(counts)
    query, key = np.divmod(at, counts.shape[1])
    numbers: dict[str, Numbers | pa.Array] = {COUNT_NAME: counts.reshape(-1)[at]}
    for measure in measures:
        if measure.by_value:
            of_keys = query * contents.keys.num_rows + key + contents.first_key
            numbers[measure.name] = value_counts.of(measure, list(due.listed()), contents.keys, of_keys)
            continue
        for name in names_of(measure):
            if name not in numbers:
                component = contents.over(name, runs)
                if component is not None:
                    numbers[name] = component.reshape(-1)[at]
                elif name.startswith("count("):  # left out where it is that of all tuples
                    numbers[name] = numbers[COUNT_NAME]
                else:
                    numbers[name] = empty(component_named(name, np.dtype(np.int64)), len(at))
    values = _values(measures, numbers, contents.keys, contents.dictionaries, key + contents.first_key)
    return _Part(due, np.bincount(query, minlength=len(due)), values, contents.newest)


def _values(
    measures: Sequence[Measure],
    numbers: Mapping[str, Numbers | pa.Array],
    keys: pa.Table,
    dictionaries: Mapping[str, pa.Array],
    key_rows: Numbers,
) -> pa.Table:
    """Return keys and measures of rows, given the components of which they are made and where their keys are."""
    names = key_columns(keys)
    columns = dict(zip(names, keys.select(names).take(pa.array(key_rows)).columns, strict=True))
    for measure in measures:
        measure_numbers = {name: numbers[name] for name in names_of(measure)}
        columns[measure.name] = components.decode(measure, measure_numbers, dictionaries.get(measure.name))
    return pa.table(columns)


def _rows(parts: Sequence[_Part], by_slot: dict[int, tuple[int, int]], failures: dict[str, str]) -> WindowRows:
    """Return rows in the order of the parts; ``by_slot`` gets how many each slot has, and its newest event time."""
    columns = zip(*((p.due.space.slots[p.due.query], p.due.start, p.due.end) for p in parts), strict=True)
    slots, starts, ends = (np.concatenate(column) for column in columns)
    lengths = np.concatenate([part.lengths for part in parts])
    newest = np.concatenate([part.newest for part in parts])
    values = pa.concat_tables([part.values for part in parts])
    if values.num_rows < _MIN_CHUNK * len(parts):
        values = values.combine_chunks()
    rows = _having(WindowRows.of_one_table(values, slots, starts, ends, lengths), parts, failures)
    _take_note(by_slot, slots, rows.count, newest)
    return rows


def _having(rows: WindowRows, parts: Sequence[_Part], failures: dict[str, str]) -> WindowRows:
    """Return the rows that satisfy their query's HAVING; a run may be left without any."""
    tested = np.flatnonzero(np.concatenate([part.due.space.having[part.due.query] for part in parts]))
    if not len(tested):
        return rows
    queries = [part.due.space.queries[number] for part in parts for number in part.due.query.tolist()]
    table, count = rows.table(), rows.count.copy()
    first = np.cumsum(rows.count) - rows.count
    keep = np.ones(table.num_rows, dtype=np.bool_)
    runs_of: dict[str, list[int]] = {}
    for run in tested.tolist():
        runs_of.setdefault(queries[run].id, []).append(run)
    for runs in runs_of.values():
        lengths = rows.count[runs]
        run_of = np.repeat(np.arange(len(runs)), lengths)
        at = np.arange(len(run_of)) + np.repeat(first[runs] - (np.cumsum(lengths) - lengths), lengths)
        own = table.slice(first[runs[0]], lengths[0]) if len(runs) == 1 else table.take(pa.array(at))
        keep[at] = satisfied = _satisfies_having(own, queries[runs[0]], failures)
        count[runs] = np.bincount(run_of[satisfied], minlength=len(runs))
    (values,) = rows.tables
    if values.num_columns:  # a table without columns has no rows, either
        values = values.filter(pa.array(keep))
    return replace(rows, tables=(values,), count=count)


def apply_having(rows: pa.Table, query: LiveQuery, failures: dict[str, str]) -> pa.Table:
    """Return the rows of a query that satisfy its HAVING."""
    if query.query.having is None:
        return rows
    return rows.filter(pa.array(_satisfies_having(rows, query, failures)))


def _satisfies_having(rows: pa.Table, query: LiveQuery, failures: dict[str, str]) -> Bools:
    having = query.query.having
    assert having is not None
    tuples = Tuples(arrays_of(rows), rows.num_rows)
    satisfied: Bools = np.asarray(pc.fill_null(tuples.value(having), False))
    if tuples.failures:
        failures[query.id] = "; ".join(tuples.failures.values())
    return satisfied
