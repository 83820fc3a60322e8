"""Firing windows: from partial aggregates in slices and cells to each query's rows.

A window's rows are due in the first batch after which the waterline has reached its end (CONTRACT section 3.5). Slices
are added up once for all queries with that window; each query then reduces over its cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators import query_set
from operators.aggregation import CELL, SLICE_END, SLICE_START, aggregation_of, key_columns, measure_functions, renumber
from operators.bucket import Bucket
from operators.live_queries import LiveQueries, LiveQuery
from operators.measure_values import MeasureValues, encode_measure
from operators.queries import COUNT_ALL, WINDOW_END, WINDOW_START, Window
from operators.query_set import Bools, Words
from operators.range_reduction import UFUNCS, RangeReduction, identity_of
from operators.slicing import due_windows
from operators.tuples import Tuples

SLOT = "_slot"
_DENSE_ENTRIES = 1 << 22

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _CellGroup:
    """Rows that share a numbering of cells: ``bits[c, q]`` says whether cell c belongs to due query q."""

    bits: Bools
    rows: pa.Table


def fire(
    buckets: Sequence[Bucket],
    queries: Sequence[LiveQuery],
    live: LiveQueries,
    after: int,
    upto: int,
    failures: dict[str, str] | None = None,
) -> pa.Table | None:
    """Return the rows of all windows that end in ``(after, upto]``, or None when there are none.

    ``buckets`` and ``queries`` are those of one operator. The result has the columns ``_slot``, ``window_start``,
    ``window_end``, keys and measures, sorted by the first three; groups without tuples and groups that HAVING excludes
    are left out. A query whose HAVING raises gets no rows, and ``failures`` its id and the message.
    """
    if not buckets:
        return None
    slices = np.unique(np.concatenate([b.slices for b in buckets]), axis=0)
    by_window: dict[Window, list[LiveQuery]] = {}
    for query in queries:
        by_window.setdefault(aggregation_of(query).window, []).append(query)
    tables: list[pa.Table] = []
    for window, members in by_window.items():
        for start, end in due_windows(slices, window, after, upto).tolist():
            due = [q for q in members if q.until(q.query.streams[0]) >= end]
            table = _rows_of_window(buckets, due, live, start, end) if due else None
            if table is not None:
                tables.append(table)
    if not tables:
        return None
    rows = pa.concat_tables(tables, promote_options="default")
    rows = rows.sort_by([(SLOT, "ascending"), (WINDOW_END, "ascending"), (WINDOW_START, "ascending")])
    return _apply_having(rows.combine_chunks(), queries, {} if failures is None else failures)


def _rows_of_window(
    buckets: Sequence[Bucket], due: Sequence[LiveQuery], live: LiveQueries, start: int, end: int
) -> pa.Table | None:
    groups = list(_cell_groups(buckets, due, live, start, end))
    if not groups:
        return None
    table = pa.concat_tables([g.rows for g in groups], promote_options="default").combine_chunks()
    group_starts = np.cumsum([0, *(g.rows.num_rows for g in groups)])
    key_code, keys = _encode_keys(table)
    cell = np.asarray(table.column(CELL)).astype(np.int64)
    values = {
        name: encode_measure(function, table.column(name).combine_chunks())
        for name, function in measure_functions(table).items()
    }
    cells = max(len(g.bits) for g in groups)
    per_pass = max(1, _DENSE_ENTRIES // max(cells, len(due)))
    parts: list[pa.Table] = []
    for first in range(0, keys.num_rows, per_pass):
        count = min(per_pass, keys.num_rows - first)
        inside: Numbers | slice = slice(None)
        bounds = group_starts
        if count < keys.num_rows:
            inside = np.flatnonzero((key_code >= first) & (key_code < first + count))
            bounds = np.searchsorted(inside, group_starts)
        part = _reduce_keys(groups, bounds, cell[inside], key_code[inside] - first, values, inside, count)
        parts.append(_rows_of_queries(part, due, keys.slice(first, count), values))
    rows = pa.concat_tables(parts)
    if not rows.num_rows:
        return None
    times = [pa.array(np.full(rows.num_rows, t)).view(pa.timestamp("us")) for t in (start, end)]
    return rows.add_column(1, WINDOW_START, times[0]).add_column(2, WINDOW_END, times[1])


def _cell_groups(
    buckets: Sequence[Bucket], due: Sequence[LiveQuery], live: LiveQueries, start: int, end: int
) -> Iterator[_CellGroup]:
    """Select the rows of the window, and bring together buckets whose cells mean the same.

    Query-sets are ANDed with the changelog-set between the bucket's epoch and now, so that a refilled slot does not
    see its predecessor's tuples (thesis 4.2.1.2).
    """
    slots = np.array([q.slot for q in due], dtype=np.int64)
    ordered: dict[tuple[int, bytes], tuple[Words, list[pa.Table]]] = {}
    scattered: dict[tuple[str, ...], list[tuple[Words, pa.Table]]] = {}
    for bucket in buckets:
        rows = _inside(bucket, start, end)
        if rows is None:
            continue
        unchanged = live.changelog_set_since(bucket.epoch)
        words = min(unchanged.shape[1], bucket.query_sets.shape[1])
        if len(bucket.dimensions) > 1:
            masked = bucket.query_sets[:, :words] & unchanged[:, :words]
            scattered.setdefault(bucket.dimensions, []).append((masked, rows))
            continue
        identity = (bucket.epoch, "\n".join(bucket.dimensions).encode() + b"\0" + bucket.query_sets.tobytes())
        if identity not in ordered:
            ordered[identity] = (bucket.query_sets[:, :words] & unchanged[:, :words], [])
        ordered[identity][1].append(rows)
    for query_sets, tables in ordered.values():
        yield from _wanted(query_set.unpack(query_sets, slots), tables)
    for members in scattered.values():
        bits = [query_set.unpack(query_sets, slots) for query_sets, _ in members]
        distinct, inverse = np.unique(np.concatenate(bits), axis=0, return_inverse=True)
        starts = np.cumsum([0, *(len(b) for b in bits)])
        tables = [renumber(rows, inverse.reshape(-1)[starts[i] :]) for i, (_, rows) in enumerate(members)]
        yield from _wanted(distinct, tables)


def _inside(bucket: Bucket, start: int, end: int) -> pa.Table | None:
    """Return the bucket's rows whose slice lies in the window."""
    slices = bucket.slices
    inside = (slices[:, 0] >= start) & (slices[:, 1] <= end)
    if not inside.any():
        return None
    if inside.all():
        return bucket.partials
    starts, ends = np.asarray(bucket.partials.column(SLICE_START)), np.asarray(bucket.partials.column(SLICE_END))
    return bucket.partials.filter(pa.array((starts >= start) & (ends <= end)))


def _wanted(bits: Bools, tables: Sequence[pa.Table]) -> Iterator[_CellGroup]:
    """Drop the rows of cells that no due query has."""
    rows = pa.concat_tables(tables, promote_options="default")
    wanted = query_set.not_empty(bits)
    if not wanted.all():
        rows = rows.filter(pa.array(wanted[np.asarray(rows.column(CELL))]))
    if rows.num_rows:
        yield _CellGroup(bits, rows)


def _encode_keys(table: pa.Table) -> tuple[npt.NDArray[np.int64], pa.Table]:
    """Return a code for each row's key, and the table of distinct keys in the order of their codes."""
    names = key_columns(table)
    code, distinct = np.zeros(table.num_rows, dtype=np.int64), 1
    for name in names:
        encoded = table.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        code = code * len(encoded.dictionary) + np.asarray(encoded.indices)
        if distinct > 1:  # keep codes dense, so that they never overflow
            encoded = pa.array(code).dictionary_encode()
            code = np.asarray(encoded.indices).astype(np.int64)
        distinct = len(encoded.dictionary)
    some_row = np.zeros(distinct, dtype=np.int64)
    some_row[code] = np.arange(len(code))
    keys = table.select(names).take(pa.array(some_row)) if names else pa.table({"": pa.nulls(1)})
    return code, keys.combine_chunks()


@dataclass(frozen=True)
class _Reduced:
    """Per measure, numbers and validity of shape (queries, keys)."""

    numbers: dict[str, npt.NDArray[np.generic]]
    valid: dict[str, Bools]


@np.errstate(over="ignore", invalid="ignore")
def _reduce_keys(
    groups: Sequence[_CellGroup],
    bounds: Numbers,
    cell: Numbers,
    key_code: Numbers,
    values: dict[str, MeasureValues],
    inside: Numbers | slice,
    keys: int,
) -> _Reduced:
    """Reduce every measure over each query's cells, for some of the keys.

    The rows of group i are those at ``bounds[i]:bounds[i + 1]`` of ``inside``, ``cell`` and ``key_code``.
    """
    queries = groups[0].bits.shape[1]
    numbers: dict[str, npt.NDArray[np.generic]] = {}
    valid: dict[str, Bools] = {}
    at = cell * keys + key_code
    for name, measure in values.items():
        picked = measure.numbers[inside]
        neutral = identity_of(measure.function, picked.dtype)
        if measure.valid is not None:
            picked = np.where(measure.valid[inside], picked, neutral)
            valid[name] = np.zeros((queries, keys), dtype=np.bool_)
        total = np.full((queries, keys), neutral, dtype=picked.dtype)
        for i, cells in enumerate(groups):
            mine = slice(bounds[i], bounds[i + 1])
            if mine.start == mine.stop:
                continue
            dense = _scatter(at[mine], picked[mine], measure.function, len(cells.bits), keys)
            _reduce_queries(total, RangeReduction(dense, measure.function), cells.bits, UFUNCS[measure.function])
            if measure.valid is not None:
                seen = _scatter(at[mine], measure.valid[inside][mine].astype(np.int8), "max", len(cells.bits), keys)
                found = np.zeros((queries, keys), dtype=np.int8)
                _reduce_queries(found, RangeReduction(np.maximum(seen, 0), "max"), cells.bits, np.fmax)
                valid[name] |= found > 0
        numbers[name] = total
    return _Reduced(numbers, valid)


def _scatter(
    at: Numbers, numbers: npt.NDArray[np.generic], function: str, cells: int, keys: int
) -> npt.NDArray[np.generic]:
    dense = np.full(cells * keys, identity_of(function, numbers.dtype), dtype=numbers.dtype)
    UFUNCS[function].at(dense, at, numbers)
    return dense.reshape(cells, keys)


def _reduce_queries(total: npt.NDArray[np.generic], reduction: RangeReduction, bits: Bools, ufunc: np.ufunc) -> None:
    for row in np.flatnonzero(bits.any(axis=0)).tolist():
        ufunc(total[row], reduction.over(bits[:, row]), out=total[row])


def _rows_of_queries(
    reduced: _Reduced, due: Sequence[LiveQuery], keys: pa.Table, values: dict[str, MeasureValues]
) -> pa.Table:
    """Return one row per query and key that has tuples."""
    query, key = np.nonzero(reduced.numbers[COUNT_ALL.name])
    slots = np.array([q.slot for q in due], dtype=np.int32)
    columns = {SLOT: pa.array(slots[query])}
    if key_columns(keys):
        taken = keys.take(pa.array(key))
        columns.update((name, taken.column(name)) for name in taken.column_names)
    for name, numbers in reduced.numbers.items():
        decoded = values[name].decode(numbers[query, key])
        if name in reduced.valid:
            decoded = pc.if_else(pa.array(reduced.valid[name][query, key]), decoded, pa.scalar(None, decoded.type))
        columns[name] = decoded
    return pa.table(columns)


def _apply_having(rows: pa.Table, queries: Sequence[LiveQuery], failures: dict[str, str]) -> pa.Table | None:
    """Keep the rows that satisfy their query's HAVING."""
    slots = np.asarray(rows.column(SLOT))
    keep = np.ones(len(slots), dtype=np.bool_)
    for query in queries:
        having = aggregation_of(query).having
        low, high = np.searchsorted(slots, [query.slot, query.slot + 1])
        if having is None or low == high:
            continue
        mine = rows.slice(low, high - low)
        tuples = Tuples({name: mine.column(name).combine_chunks() for name in mine.column_names}, high - low)
        keep[low:high] = np.asarray(pc.fill_null(tuples.value(having), False))
        failures.update(dict.fromkeys([query.id] if tuples.failures else [], "; ".join(tuples.failures.values())))
    kept = rows if keep.all() else rows.filter(pa.array(keep))
    return kept if kept.num_rows else None
