"""Joins of which more is asked than counts by key can answer: conditions, keys or measures across inputs.

Their rows are formed when the window fires, some at a time, tested, and kept or aggregated. That costs what the join
gives before it is tested, so a window with too many such rows is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from operators import components
from operators.components import COUNT, COUNT_DISTINCT
from operators.expressions import Expression
from operators.fired_rows import Fired, apply_having
from operators.join_block import JoinBlock, joined_rows
from operators.join_firing import JoinedWindow
from operators.join_groups import distinct_counts, fired_windows, key_arrays, merged, window_table
from operators.join_parts import join_of
from operators.join_rows import WindowRows, form_rows, index_window
from operators.keys import KeyCodes, encode_keys
from operators.queries import Measure
from operators.relations import MANY
from operators.tuple_bucket import TupleBucket
from operators.tuples import Tuples

MOST_FORMED = 10_000_000
"""How many rows of a window are formed and tested at most, in one lane."""
FORMED_AT_ONCE = 500_000


class _Failed(Exception):
    """An expression could not be evaluated; the message says why."""


def fire_tested(
    windows: Sequence[JoinedWindow],
    tuples: Mapping[str, Sequence[TupleBucket]],
    most_rows: int,
    failures: dict[str, str],
) -> Fired | None:
    """Return the rows of windows of one join operator, or their groups; None for no rows.

    Of each window ``most_rows`` are kept that satisfy the conditions. ``tuples`` are the tuple buckets of each part's
    operator; ``failures`` gets messages by query id, also of windows that are left out.
    """
    if not windows:
        return None
    block = joined_rows(windows, tuples, MANY).block
    found = []
    for window in windows:
        live = window.parts[0].live
        if window.joined.total > MOST_FORMED:
            failures[live.id] = (
                f"A window is left out: more than {MOST_FORMED} of its rows in one lane would have to be tested."
                " Join by more columns, or make the window shorter."
            )
            continue
        try:
            if join_of(live).grouping is None:
                found.append((window, _rows(window, block, most_rows, failures)))
            elif (groups := _groups(window, block)) is not None:
                found.append((window, apply_having(groups, live, failures)))
        except _Failed as problem:
            failures[live.id] = str(problem)
    return fired_windows(found)


def _pieces(window: JoinedWindow, block: JoinBlock) -> Iterator[Tuples]:
    """Yield the rows of a window that satisfy the conditions."""
    live = window.parts[0].live
    join = join_of(live)
    index = index_window(join, block, window.start, window.end, live.active_from)
    whole = WindowRows(0, window.start, window.end, index.joined.total)
    for first in range(0, whole.count, FORMED_AT_ONCE):
        rows = form_rows(join, block, index, whole, first, min(FORMED_AT_ONCE, whole.count - first))
        piece = Tuples({name: rows.column(name).combine_chunks() for name in rows.column_names}, rows.num_rows)
        if join.where is not None:
            piece = piece.where(np.asarray(_value(piece, join.where).fill_null(False)))
        yield piece


def _rows(window: JoinedWindow, block: JoinBlock, most: int, failures: dict[str, str]) -> pa.Table:
    tables, left = [], most
    for piece in _pieces(window, block):
        if piece.length > left:
            failures[window.parts[0].live.id] = (
                f"A window has more rows in one lane than the first {most}, which are kept (setting join_row_limit)."
                " Join by more columns, or aggregate."
            )
        columns = {name: column for name, column in piece.columns.items() if "." in name}
        tables.append(window_table(window, columns, piece.length).slice(0, left))
        left -= tables[-1].num_rows
        if not left:
            break
    return pa.concat_tables(tables)


def _groups(window: JoinedWindow, block: JoinBlock) -> pa.Table | None:
    """Return the groups of a window's rows, None when there is no row."""
    join = join_of(window.parts[0].live)
    grouping = join.grouping
    assert grouping is not None
    # what is asked of each row, evaluated piece by piece
    asked = dict.fromkeys(
        (*grouping.keys, *(measure.argument for measure in grouping.measures if measure.argument is not None))
    )
    values: dict[Expression, list[pa.Array]] = {expression: [] for expression in asked}
    length = 0
    for piece in _pieces(window, block):
        length += piece.length
        for expression, found in values.items():
            found.append(_value(piece, expression))
    if not length:
        return None
    whole = {expression: pa.concat_arrays(found) for expression, found in values.items()}
    coded = encode_keys([whole[key] for key in grouping.keys], length, 1, "")
    measures = {
        m.name: _measure(m, None if m.argument is None else whole[m.argument], coded) for m in grouping.measures
    }
    return window_table(window, {**key_arrays(coded), **measures}, coded.count)


def _measure(measure: Measure, values: pa.Array | None, coded: KeyCodes) -> pa.Array:
    """Return a measure of each group of rows."""
    codes, count = coded.codes, coded.count
    if values is None:
        return pa.array(np.bincount(codes, minlength=count))
    if measure.function == COUNT_DISTINCT:
        return pa.array(distinct_counts(values, codes, count))
    encoded = components.encode(measure, values)
    there = np.ones(len(codes), dtype=np.int64) if encoded.valid is None else encoded.valid.astype(np.int64)
    numbers = {components.count_name(measure): merged(COUNT, there, codes, count)}
    for part in components.components_of(measure):
        numbers[part.name] = merged(part, encoded.numbers[part.name], codes, count)
    return components.decode(measure, numbers, encoded.dictionary)


def _value(rows: Tuples, expression: Expression) -> pa.Array:
    found = rows.value(expression)
    if rows.failures:
        raise _Failed("; ".join(rows.failures.values()))
    return found
