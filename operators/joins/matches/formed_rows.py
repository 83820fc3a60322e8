"""What queries ask of joined rows that are formed when windows fire: to be kept as they are, or to be grouped."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from braid.operators.expressions import Expression
from braid.operators.joins.inputs import join_of
from braid.operators.joins.matches.groups import distinct_counts, merged
from braid.operators.live_queries import LiveQuery
from braid.operators.query_parts import COUNT_DISTINCT, WINDOW_END, WINDOW_START, Measure
from braid.operators.state import components
from braid.operators.state.components import COUNT
from braid.operators.state.keys import KeyCodes, encode_keys, key_columns, key_names
from braid.operators.tuples import Tuples
from braid.operators.windowing.fired_rows import apply_having
from braid.operators.windowing.window_rows import SLOT
from braid.sources.core.columns import one_array

MAX_FORMED = 10_000_000
"""How many rows are formed and tested at most, of a window or of all sessions that end together, in one partition."""
FORMED_AT_ONCE = 500_000

_BOUNDS = (WINDOW_START, WINDOW_END)


class EvaluationFailed(Exception):
    """An expression could not be evaluated; the message says why."""


def rows_or_groups(
    live: LiveQuery, pieces: Iterable[Tuples], max_rows: int, failures: dict[str, str]
) -> pa.Table | None:
    """Return the rows of a query, or their groups; None when there is none.

    ``pieces`` are joined rows, columns ``alias.column`` and the bounds of their windows. Without GROUP BY ``max_rows``
    of them are kept, and ``failures`` says where there were more. Raises EvaluationFailed.
    """
    tested = (_tested(live, piece) for piece in pieces)
    if join_of(live).grouping is None:
        return _rows(live, tested, max_rows, failures)
    groups = _groups(live, tested)
    return None if groups is None else apply_having(groups, live, failures)


def _tested(live: LiveQuery, piece: Tuples) -> Tuples:
    """Return the rows that satisfy the conditions across inputs."""
    where = join_of(live).where
    return piece if where is None else piece.where(np.asarray(value_of(piece, where).fill_null(False)))


def _rows(live: LiveQuery, pieces: Iterable[Tuples], max_rows: int, failures: dict[str, str]) -> pa.Table | None:
    tables, remaining = [], max_rows
    for piece in pieces:
        slot = pa.array(np.full(piece.length, live.slot, dtype=np.int32))
        tables.append(pa.table({SLOT: slot, **piece.columns}).slice(0, remaining))
        if piece.length > remaining:
            failures[live.id] = (
                f"A window has more rows in one partition than the first {max_rows}, which are kept"
                " (setting join_row_limit). Join by more columns, or aggregate."
            )
            break
        remaining -= piece.length
    return pa.concat_tables(tables) if tables else None


def _groups(live: LiveQuery, pieces: Iterable[Tuples]) -> pa.Table | None:
    """Return the groups of rows, those of different windows apart; None when there is no row."""
    grouping = join_of(live).grouping
    assert grouping is not None
    # what is asked of each row, evaluated piece by piece
    expressions = dict.fromkeys(
        (*grouping.keys, *(measure.argument for measure in grouping.measures if measure.argument is not None))
    )
    values: dict[Expression, list[pa.Array]] = {expression: [] for expression in expressions}
    bounds: dict[str, list[pa.Array]] = {name: [] for name in _BOUNDS}
    length = 0
    for piece in pieces:
        length += piece.length
        for name, columns in bounds.items():
            columns.append(piece.columns[name])
        for expression, parts in values.items():
            parts.append(value_of(piece, expression))
    if not length:
        return None
    concatenated = {expression: pa.concat_arrays(parts) for expression, parts in values.items()}
    windows = [pa.concat_arrays(parts) for parts in bounds.values()]
    coded = encode_keys([*windows, *(concatenated[key] for key in grouping.keys)], length, 1, "")
    names = [*_BOUNDS, *key_names(len(grouping.keys))]
    keys = {name: one_array(coded.keys.column(at)) for name, at in zip(names, key_columns(coded.keys), strict=True)}
    measures = {
        m.name: _measure(m, None if m.argument is None else concatenated[m.argument], coded) for m in grouping.measures
    }
    slot = pa.array(np.full(coded.count, live.slot, dtype=np.int32))
    return pa.table({SLOT: slot, **keys, **measures})


def _measure(measure: Measure, values: pa.Array | None, coded: KeyCodes) -> pa.Array:
    """Return a measure of each group of rows."""
    codes, count = coded.codes, coded.count
    if values is None:
        return pa.array(np.bincount(codes, minlength=count))
    if measure.function == COUNT_DISTINCT:
        return pa.array(distinct_counts(values, codes, count))
    encoded = components.encode(measure, values)
    is_counted = np.ones(len(codes), dtype=np.int64) if encoded.valid is None else encoded.valid.astype(np.int64)
    numbers = {components.count_name(measure): merged(COUNT, is_counted, codes, count)}
    for part in components.components_of(measure):
        numbers[part.name] = merged(part, encoded.numbers[part.name], codes, count)
    return components.decode(measure, numbers, encoded.dictionary)


def value_of(rows: Tuples, expression: Expression) -> pa.Array:
    """Return an expression over formed rows; raises EvaluationFailed."""
    values = rows.value(expression)
    if rows.failures:
        raise EvaluationFailed("; ".join(rows.failures.values()))
    return values
