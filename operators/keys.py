"""Keys as codes: each distinct combination of GROUP BY values gets a number, so that kernels see numbers only."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators import kernels
from operators.key_groups import key_groups
from sources.columns import one_array

Codes = npt.NDArray[np.int32]

# whole numbers that span no more than this, or so many times their rows, are looked up in a table instead of hashed
_WIDEST, _SPARSE = 1 << 24, 4
# tables of the first length, all zeros, that nobody uses just now: making one would take longer than using it
_free_tables: list[npt.NDArray[np.int32]] = []


@dataclass(frozen=True)
class KeyCodes:
    """``codes[i]`` is the row of ``keys`` (columns key0, key1, …) that holds the key of row i.

    Without GROUP BY there is one key of no columns. Keys of one key group are next to each other: group g has the codes
    ``[group_starts[g], group_starts[g + 1])``.
    """

    codes: Codes
    keys: pa.Table
    group_starts: npt.NDArray[np.int64]

    @property
    def count(self) -> int:
        """How many distinct keys there are."""
        return int(self.group_starts[-1])

    def of_group(self, group: int) -> pa.Table:
        """Return the keys of one key group."""
        first, after = self.group_starts[group : group + 2].tolist()
        return self.keys.slice(first, after - first)


def key_names(count: int) -> list[str]:
    """Return the names of so many key columns."""
    return [f"key{i}" for i in range(count)]


def encode_keys(
    columns: Sequence[pa.Array | pa.ChunkedArray],
    rows: int,
    groups: int,
    salt: str,
    hashed: Sequence[int] | None = None,
) -> KeyCodes:
    """Number the distinct keys of some rows, ordered by key group (thesis 5.3.1.1); ``salt`` as in `key_groups`.

    The key group depends on the columns ``hashed``, on all without it.
    """
    close = _CloseKeys.of(columns[0], rows) if len(columns) == 1 else None
    if close is None:
        codes, distinct = _encode([one_zero(one_array(column)) for column in columns], rows)
    else:
        distinct = [close.distinct]
    if not len(columns):
        keys = no_keys(1)
        share = key_groups([], 1, groups, salt)
    else:
        keys = pa.Table.from_arrays(distinct, names=key_names(len(columns)))
        deciding = distinct if hashed is None else [distinct[column] for column in hashed]
        share = key_groups(deciding, keys.num_rows, groups, salt)
    order, starts = np.empty(len(share), dtype=np.int64), np.zeros(groups + 1, dtype=np.int64)
    kernels.order_by_code(order, starts, share)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    is_ordered = groups == 1 or keys.num_rows < 2
    if not is_ordered:
        keys = keys.take(pa.array(order))
    if close is not None:
        codes = close.codes(rank)
    elif not is_ordered:
        codes = kernels.taken(rank, codes)
    return KeyCodes(codes, keys.combine_chunks(), starts)


@dataclass(frozen=True)
class _CloseKeys:
    """Whole numbers that span no more than there are rows, in one or more ``pieces``: they are numbered by a table.

    ``present`` are those that occur, ascending, counted from the ``least``; ``distinct`` are they in their own type.
    """

    pieces: list[npt.NDArray[np.integer]]
    least: int
    span: int
    present: npt.NDArray[np.int64]
    distinct: pa.Array

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray, rows: int) -> _CloseKeys | None:
        """Find those that occur; None if the column is not like that."""
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        if pa.types.is_boolean(column.type) or column.null_count or not len(column):
            return None
        plain = [as_numbers(chunk) for chunk in chunks if len(chunk)]
        if not (pa.types.is_int32(plain[0].type) or pa.types.is_int64(plain[0].type)):
            return None
        pieces = [np.asarray(chunk) for chunk in plain]
        low, high = _extent(pieces)
        span = high - low + 1
        if span > rows:
            return None
        occurs = np.zeros(span, dtype=np.bool_)
        for values in pieces:
            kernels.mark(occurs, values, low)
        present = np.flatnonzero(occurs)
        distinct = (present + low).astype(pieces[0].dtype)
        return cls(pieces, low, span, present, pa.array(distinct).view(column.type))

    def codes(self, rank: npt.NDArray[np.int32]) -> Codes:
        """Return for each row the rank of its number among ``present``."""
        table = np.zeros(self.span, dtype=np.int32)
        table[self.present] = rank
        codes = np.empty(sum(map(len, self.pieces)), dtype=np.int32)
        first = 0
        for values in self.pieces:
            kernels.look_up(codes[first : first + len(values)], values, self.least, table)
            first += len(values)
        return codes


def _extent(pieces: Sequence[npt.NDArray[np.integer]]) -> tuple[int, int]:
    """Return the least and the greatest of some numbers."""
    extents = [kernels.extent(values) for values in pieces]
    return min(low for low, _ in extents), max(high for _, high in extents)


def unite_keys(tables: Sequence[pa.Table], *, are_distinct: bool = True) -> tuple[pa.Table, list[Codes]]:
    """Return the distinct keys of several tables, and for each table the new code of each of its rows.

    ``are_distinct`` says that no table has a key twice.
    """
    first = tables[0]
    if not first.num_columns or first.column_names == [_NONE]:
        return first, [np.zeros(table.num_rows, dtype=np.int32) for table in tables]
    if are_distinct and all(table is first or table.equals(first) for table in tables):
        return first, [np.arange(first.num_rows, dtype=np.int32)] * len(tables)
    together = pa.concat_tables(tables).combine_chunks()
    columns = [one_array(column) for column in together.columns]
    codes, distinct = _encode(columns, together.num_rows)
    bounds = np.cumsum([0, *(table.num_rows for table in tables)])
    return pa.Table.from_arrays(distinct, names=first.column_names), [
        codes[low:high] for low, high in itertools.pairwise(bounds.tolist())
    ]


_NONE = "no key"


def no_keys(rows: int) -> pa.Table:
    """Return the keys of an operator without GROUP BY; a table of no columns would forget its length."""
    return pa.table({_NONE: pa.nulls(rows)})


def key_columns(keys: pa.Table) -> list[str]:
    """Return the names of the key columns."""
    return [name for name in keys.column_names if name != _NONE]


def one_zero(column: pa.Array) -> pa.Array:
    """Turn -0.0 into 0.0, which SQL groups together and Arrow does not."""
    return pc.add(column, 0.0) if pa.types.is_floating(column.type) else column


def _encode(columns: Sequence[pa.Array], rows: int) -> tuple[Codes, list[pa.Array]]:
    """Return a code for each row, and the distinct values of each column in the order of the codes."""
    if not columns:
        return np.zeros(rows, dtype=np.int32), []
    if len(columns) == 1:
        codes, values = encode_column(columns[0])
        return codes, [values]
    # the columns of a row are the digits of a number
    code, size = np.zeros(rows, dtype=np.int64), 1
    for column in columns:
        digits, low, span = _close_numbers(column) or _dictionary_digits(column)
        if size * span > _widest(rows):  # keep codes dense, so that they never overflow
            code, size = _dense(code, size)
        kernels.append_digit(code, digits, low, span)
        size *= span
    codes, first = _number(code, 0, size)
    return codes, [column.take(pa.array(first)) for column in columns]


def _dense(code: npt.NDArray[np.int64], size: int) -> tuple[npt.NDArray[np.int64], int]:
    codes, first = _number(code, 0, size)
    return codes.astype(np.int64), len(first)


def _close_numbers(column: pa.Array) -> tuple[npt.NDArray[np.integer], int, int] | None:
    """Return whole numbers, the least of them and how far they span, if they are close together; else None."""
    plain = column if pa.types.is_boolean(column.type) else as_numbers(column)
    if not len(column) or column.null_count or not (pa.types.is_int32(plain.type) or pa.types.is_int64(plain.type)):
        return None
    numbers = np.asarray(plain)
    low, high = kernels.extent(numbers)
    return (numbers, low, high - low + 1) if high - low < _widest(len(numbers)) else None


def _dictionary_digits(column: pa.Array) -> tuple[npt.NDArray[np.integer], int, int]:
    encoded = column.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices), 0, len(encoded.dictionary)


def _widest(rows: int) -> int:
    return max(_SPARSE * rows, _WIDEST)


def _number(numbers: npt.NDArray[np.integer], low: int, span: int) -> tuple[Codes, npt.NDArray[np.int64]]:
    """Number what is different; return the codes, and for each of them where it occurs first."""
    rows = len(numbers)
    if span <= _widest(rows):
        codes, first = np.empty(rows, dtype=np.int32), np.empty(min(rows, span), dtype=np.int64)
        is_short = span <= _WIDEST
        table = _free_tables.pop() if is_short and _free_tables else np.zeros(max(span, _WIDEST), dtype=np.int32)
        if span <= rows:  # so that tables with the same keys are equal, whatever came first
            found = kernels.number_ascending(codes, first, table, numbers, low, span)
        else:
            found = kernels.number(codes, first, table, numbers, low)
        if is_short:
            _free_tables.append(table)
        return codes, first[:found]
    encoded = pa.array(numbers).dictionary_encode()
    codes = np.asarray(encoded.indices)
    first = np.empty(len(encoded.dictionary), dtype=np.int64)
    first[codes[::-1]] = np.arange(rows)[::-1]
    return codes, first


def as_numbers(column: pa.Array) -> pa.Array:
    """Return dates as days, timestamps as microseconds, truth values as 0 and 1, other columns as they are."""
    kind = column.type
    if pa.types.is_date32(kind):
        return column.view(pa.int32())
    if pa.types.is_timestamp(kind):
        return column.view(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_boolean(kind) else column


def encode_column(column: pa.Array) -> tuple[Codes, pa.Array]:
    """Return a code for each value, equal where they are, NULL included, and what the codes stand for."""
    close = _close_numbers(column)
    if close is None:
        encoded = column.dictionary_encode(null_encoding="encode")
        return np.asarray(encoded.indices), encoded.dictionary
    numbers, low, span = close
    codes, first = _number(numbers, low, span)
    return codes, pa.array(numbers[first]).view(column.type)
