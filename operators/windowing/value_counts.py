"""Aggregates that are computed of values: how many distinct ones a window has, and all that values can leave again.

The tuples of each value are counted, with the value as one more key. Of rows that change, insertions and retractions
are counted apart; the values of a window are those that were inserted more often, as often as that is the case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braid.operators.aggregation.alone_windows import WindowTotals
from braid.operators.aggregation.due import Due, WindowsToFire
from braid.operators.arrays import Numbers
from braid.operators.query_parts import COUNT_DISTINCT, Measure
from braid.operators.state.components import COUNT_NAME
from braid.operators.state.keys import key_columns, unite_keys
from braid.operators.windowing.window_contents import WindowContents
from braid.sources.core.columns import one_array

Places = npt.NDArray[np.int64]


class ValueCounts:
    """How many tuples each value has in each window of each query, by key."""

    def __init__(self) -> None:
        self._present: dict[tuple[str, int, int, str], list[tuple[pa.Table, Places, Numbers]]] = {}
        self._key_of: dict[tuple[int, int], Places] = {}

    def add(self, argument: str, contents: WindowContents) -> None:
        """Note which keys and values windows have, and how often."""
        for due, counts in zip(contents.due.listed(), contents.counts(contents.runs), strict=True):
            at = np.flatnonzero(counts)
            self._note(argument, due, contents.keys, at + contents.first_key, counts[at])

    def add_totals(self, argument: str, due: WindowsToFire, totals: WindowTotals) -> None:
        """Note the same of windows of queries that are added up alone."""
        ends = np.cumsum(totals.lengths)
        counts = totals.numbers[COUNT_NAME]
        for window, begin, end in zip(due.listed(), (ends - totals.lengths).tolist(), ends.tolist(), strict=True):
            self._note(argument, window, totals.keys, totals.key[begin:end].astype(np.int64), counts[begin:end])

    def _note(self, argument: str, due: Due, keys: pa.Table, present: Places, counts: Numbers) -> None:
        self._present.setdefault((due.query.id, due.start, due.end, argument), []).append((keys, present, counts))

    def of(self, measure: Measure, windows: Sequence[Due], keys: pa.Table, at: Places) -> Numbers | pa.Array:
        """Return an aggregate of rows of some windows: row ``at`` is key ``at % keys`` of window ``at // keys``."""
        if measure.retracted is None:
            return np.concatenate([self._distinct(str(measure.argument), window, keys) for window in windows])[at]
        return pa.concat_arrays([self._of_what_is_left(measure, window, keys) for window in windows]).take(pa.array(at))

    def _distinct(self, argument: str, due: Due, keys: pa.Table) -> Places:
        """Return the number of distinct values that are not NULL, for each of the keys."""
        totals = np.zeros(keys.num_rows, dtype=np.int64)
        for key, _, _ in self._values(argument, due, keys):
            totals += np.bincount(key, minlength=keys.num_rows)
        return totals

    def _values(
        self, argument: str, due: Due, keys: pa.Table
    ) -> Iterator[tuple[Places, pa.Array, npt.NDArray[np.int64]]]:
        """Yield keys, values that are not NULL, and how many tuples have them."""
        for wide, present, counts in self._present.get((due.query.id, due.start, due.end, argument), ()):
            key_of = self._key_of.get((id(keys), id(wide)))
            if key_of is None:
                key_of = self._key_of[id(keys), id(wide)] = keys_of_wide(keys, wide)
            has_value = key_of[present] >= 0
            rows = present[has_value]
            yield key_of[rows], one_array(wide.column(wide.num_columns - 1)).take(pa.array(rows)), counts[has_value]

    def _of_what_is_left(self, measure: Measure, due: Due, keys: pa.Table) -> pa.Array:
        """Return an aggregate of the values that were inserted more often than retracted, for each of the keys."""
        inserted, retracted = (list(self._values(str(each), due, keys)) for each in measure.by_value)
        parts = [*inserted, *((key, values, -counts) for key, values, counts in retracted)]
        assert measure.argument is not None
        kind = measure.argument.type.arrow
        ordered = pa.concat_arrays([pa.array([], kind), *(values.cast(kind) for _, values, _ in parts)])
        ordered = ordered.dictionary_encode()
        place = np.empty(len(ordered.dictionary), dtype=np.int64)
        order = pc.sort_indices(ordered.dictionary)
        place[np.asarray(order)] = np.arange(len(order))
        values = ordered.dictionary.take(order)
        key = np.concatenate([np.empty(0, np.int64), *(key for key, _, _ in parts)])
        weight = np.concatenate([np.empty(0, np.int64), *(counts for _, _, counts in parts)])
        address = key * max(1, len(values)) + place[np.asarray(ordered.indices)]
        occupied, number = np.unique(address, return_inverse=True)
        count = np.zeros(len(occupied), dtype=np.int64)
        np.add.at(count, number, weight)
        is_left = count > 0
        key, place = np.divmod(occupied[is_left], max(1, len(values)))
        return _aggregate(measure, key, values, place, count[is_left], keys.num_rows)


def _aggregate(measure: Measure, key: Places, values: pa.Array, place: Places, count: Places, keys: int) -> pa.Array:
    """Return an aggregate by key of ``values[place]``, each ``count`` times; ``key``, then ``place``, ascend."""
    distinct = np.bincount(key, minlength=keys)
    if measure.function == COUNT_DISTINCT:
        return pa.array(distinct)
    if measure.function in ("min", "max"):
        ends = np.cumsum(distinct)
        at = ends - distinct if measure.function == "min" else ends - 1
        has_value = distinct > 0
        return values.take(pa.array(place[at[has_value]])).take(pa.array(np.cumsum(has_value) - 1, mask=~has_value))
    numbers = np.asarray(values.cast(pa.float64()))[place]
    total = np.bincount(key, count, keys)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(key, count * numbers, keys) / total
        variance = np.bincount(key, count * (numbers - mean[key]) ** 2, keys) / (total - 1)
    deviation = np.sqrt(variance) if measure.function == "stddev_samp" else variance
    return pa.array(deviation, mask=total < 2)


def counts_values(measures: Iterable[Measure], argument: str) -> bool:
    """Return whether one of the measures needs an expression, a text, counted by its values."""
    return any(argument == str(each) for measure in measures for each in measure.by_value)


def keys_of_wide(keys: pa.Table, wide: pa.Table) -> npt.NDArray[np.int64]:
    """Return, for each key with a value as last column, the row of the key without it; -1 where the value is NULL."""
    *names, value = key_columns(wide)
    if names:
        united, (key_codes, wide_codes) = unite_keys([keys, wide.select(names)])
        row = np.full(united.num_rows, -1, dtype=np.int64)
        row[key_codes] = np.arange(keys.num_rows)
        key_of = row[wide_codes]
    else:
        key_of = np.zeros(wide.num_rows, dtype=np.int64)
    key_of[np.asarray(one_array(wide.column(value)).is_null())] = -1
    return key_of
