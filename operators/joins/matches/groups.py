"""GROUP BY over joins, from the factorised form: each combination of keys counts as often as it has joined rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators.arrays import Numbers, Places
from braid.operators.expressions import Expression
from braid.operators.joins.inputs import input_of, join_of, measure_of_input
from braid.operators.joins.matches.firing import JoinedWindow, beyond_combinations, product
from braid.operators.joins.matches.relations import NO_ROW, Rows, TooManyCombinations, picked
from braid.operators.kernels import double_double
from braid.operators.query_parts import COUNT_DISTINCT, WINDOW_END, WINDOW_START, Measure
from braid.operators.state import components
from braid.operators.state.components import COUNT, COUNT_NAME, LIMB_BITS, MAX_LIMBS, Component
from braid.operators.state.keys import KeyCodes, encode_keys, key_columns, with_one_of_equals
from braid.operators.state.totals import empty, merge_into
from braid.operators.windowing.fired_rows import Fired, apply_having
from braid.operators.windowing.window_rows import SLOT, WindowRows
from braid.sources.core.columns import one_array

_FAR = 2**62


def fire_groups(windows: Iterable[JoinedWindow], failures: dict[str, str]) -> Fired | None:
    """Return the rows of grouped joins, None for no rows; ``failures`` gets messages by query id."""
    tables = []
    for window in windows:
        live = window.live_inputs[0].live
        try:
            tables.append((window, apply_having(_groups(window), live, failures)))
        except TooManyCombinations as error:
            failures[live.id] = beyond_combinations(error)
    return fired_windows(tables)


def fired_windows(rows: Iterable[tuple[JoinedWindow, pa.Table]]) -> Fired | None:
    """Return what is fired, given the rows of each window as `window_table` makes them; None for no rows."""
    by_slot: dict[int, list[tuple[JoinedWindow, pa.Table]]] = {}
    for window, table in rows:
        if table.num_rows:
            by_slot.setdefault(window.live_inputs[0].live.slot, []).append((window, table))
    if not by_slot:
        return None
    slots = sorted(by_slot)
    ordered = [
        sorted(by_slot[slot], key=lambda window_and_rows: (window_and_rows[0].end, window_and_rows[0].start))
        for slot in slots
    ]
    tables = [table for windows in ordered for _, table in windows]
    return Fired(
        WindowRows.of_tables(tables),
        slots,
        [sum(table.num_rows for _, table in windows) for windows in ordered],
        [max(window.newest for window, _ in windows) for windows in ordered],
    )


def window_table(window: JoinedWindow, columns: Mapping[str, pa.Array], rows: int) -> pa.Table:
    """Return so many rows of a window: their columns, their slot and the window."""
    of_all = {
        SLOT: np.full(rows, window.live_inputs[0].live.slot, dtype=np.int32),
        WINDOW_START: np.full(rows, window.start).view("datetime64[us]"),
        WINDOW_END: np.full(rows, window.end).view("datetime64[us]"),
    }
    return pa.table({**{name: pa.array(values) for name, values in of_all.items()}, **columns})


def _groups(window: JoinedWindow) -> pa.Table:
    """Return a row for each group of a window."""
    grouping = join_of(window.live_inputs[0].live).grouping
    assert grouping is not None
    columns = [_column(window, key) for key in grouping.keys]
    coded = encode_keys(columns, len(window.combinations[0]), 1, "")
    measures = {m.name: _measure(window, m, coded.codes, coded.count) for m in grouping.measures}
    return window_table(window, {**key_arrays(coded), **measures}, coded.count)


def key_arrays(coded: KeyCodes) -> dict[str, pa.Array]:
    """Return the columns of distinct keys by their names."""
    return {name: one_array(coded.keys.column(name)) for name in key_columns(coded.keys)}


def _column(window: JoinedWindow, extra: Expression) -> pa.Array:
    """Return the values of an extra key for each combination; NULL where an outer input has no tuple."""
    number = input_of(join_of(window.live_inputs[0].live), extra) or 0
    live_input, contents, at = window.live_inputs[number], window.contents[number], window.combinations[number]
    kind = extra.type.arrow
    if not len(contents.rows):
        return pa.nulls(len(at), kind)
    column = one_array(contents.keys.distinct.column(len(live_input.attributes) + live_input.extras.index(extra)))
    rows = picked(contents.rows, at, 0)
    return column.take(pa.array(rows, mask=at == NO_ROW)).cast(kind)


def _measure(window: JoinedWindow, measure: Measure, at: Places, count: int) -> pa.Array:
    """Return a measure of each group; ``at`` is the group of each combination."""
    of_input = measure_of_input(join_of(window.live_inputs[0].live), measure)
    if of_input is None:
        return pa.array(_sums(window.rows(), at, count))
    if measure.function == COUNT_DISTINCT:
        assert measure.argument is not None
        return pa.array(distinct_counts(_column(window, measure.argument), at, count))
    number, input_measure = of_input
    contents, rows = window.contents[number], window.combinations[number]

    def numbers_of(component: Component) -> Numbers:
        by_key = contents.numbers.get(component.name)
        if by_key is None:  # an input without tuples
            return np.full(len(rows), component.neutral, component.dtype)
        return picked(by_key, rows, component.neutral)

    repeats = product((m for other, m in enumerate(window.multiplicities) if other != number), len(rows))
    name, parts = components.count_name(input_measure), components.components_of(input_measure)
    counted = picked(contents.numbers.get(name, contents.numbers[COUNT_NAME]), rows, 0)
    numbers = {name: _sums(counted * repeats, at, count)}
    dictionary = None
    if components.is_ranked(input_measure):
        encoded = components.encode(input_measure, _values(input_measure, contents.numbers.get(parts[0].name), rows))
        dictionary = encoded.dictionary
        numbers[parts[0].name] = merged(parts[0], encoded.numbers[parts[0].name].astype(np.int64), at, count)
    elif components.has_limbs(input_measure):
        limbs = _decimal_sums([numbers_of(part) for part in parts], repeats, at, count)
        return components.decimals(limbs, numbers[name] > 0, input_measure.type.arrow)
    else:
        for part in parts:
            part_numbers = numbers_of(part)
            if part.merge == "sum":
                part_numbers = _repeated(part_numbers, repeats)
            numbers[part.name] = merged(part, part_numbers, at, count)
    return components.decode(input_measure, numbers, dictionary)


def _repeated(numbers: Numbers, repeats: npt.NDArray[np.int64]) -> Numbers:
    """Return what each number adds up to when it comes so many times."""
    return double_double.times(numbers, repeats.astype(np.float64)) if numbers.dtype.kind == "c" else numbers * repeats


def distinct_counts(values: pa.Array, at: Places, count: int) -> Numbers:
    """Return how many different values there are in each group; NULL is none."""
    encoded = with_one_of_equals(values).dictionary_encode()
    is_valid = np.asarray(encoded.indices.is_valid())
    codes = np.asarray(encoded.indices.fill_null(0)).astype(np.int64)[is_valid]
    pairs = np.unique(at[is_valid].astype(np.int64) * max(1, len(encoded.dictionary)) + codes)
    return np.bincount(pairs // max(1, len(encoded.dictionary)), minlength=count)


def _values(measure: Measure, values: Numbers | None, rows: Rows) -> pa.Array:
    """Return the values of a minimum or maximum that are no numbers."""
    assert measure.argument is not None
    picked_values = [None] * len(rows) if values is None else picked(values, rows, None).tolist()
    return pa.array(picked_values, measure.argument.type.arrow)


def _sums(numbers: Numbers, at: Places, count: int) -> Numbers:
    return merged(COUNT, numbers, at, count)


def merged(component: Component, numbers: Numbers, at: Places, count: int) -> Numbers:
    total = empty(component, count)
    merge_into(component, total, at, numbers)
    return total


def _decimal_sums(limbs: list[Numbers], repeats: Numbers, at: Places, count: int) -> list[Numbers]:
    """Return the limbs of sums of decimals, each so many times; as Python integers: exact, and rare enough.

    A sum far beyond all digits that a decimal has stays beyond them.
    """
    totals = [0] * count
    for group, weight, *parts in zip(at.tolist(), repeats.tolist(), *(limb.tolist() for limb in limbs), strict=True):
        totals[group] += weight * sum(part << (LIMB_BITS * place) for place, part in enumerate(parts))
    mask = 2**LIMB_BITS - 1
    lower = [[total >> (LIMB_BITS * place) & mask for total in totals] for place in range(MAX_LIMBS - 1)]
    last = [max(-_FAR, min(_FAR, total >> (LIMB_BITS * (MAX_LIMBS - 1)))) for total in totals]
    return [np.array(limb, dtype=np.int64) for limb in (*lower, last)]
