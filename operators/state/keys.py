"""Keys as codes: each distinct combination of GROUP BY values gets a number, so that kernels see numbers only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braid.operators import kernels
from braid.operators.state.key_groups import Hashes, hash_column, hash_rows
from braid.sources.core.columns import one_array

Codes = npt.NDArray[np.int32]

# whole numbers that span no more than this, or than so many times their rows, are looked up in a table, not hashed
_WIDEST, _SPARSE = 1 << 24, 4
# tables of ``_WIDEST`` zeros that are not in use just now: making one would take longer than using it
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


class KeyColumn:
    """A column of keys; its codes are worked out once, however many operators have it among their keys."""

    def __init__(self, column: pa.Array | pa.ChunkedArray) -> None:
        self._column = column

    @cached_property
    def close_keys(self) -> _CloseKeys | None:
        """Its numbers, if they are whole and span no more than there are rows."""
        return _CloseKeys.of(self._column)

    @cached_property
    def digits(self) -> Digits:
        """Numbers that are equal where its values are."""
        return Digits.of(with_one_of_equals(one_array(self._column)))


def encode_keys(
    columns: Sequence[pa.Array | pa.ChunkedArray | KeyColumn],
    rows: int,
    groups: int,
    salt: str,
    hashed: Sequence[int] | None = None,
) -> KeyCodes:
    """Number the distinct keys of some rows, ordered by key group (thesis 5.3.1.1); ``salt`` as in `key_groups`.

    The key group depends on the columns ``hashed``, on all if None.
    """
    if not columns:
        group = int(hash_rows([], 1, salt)[0] % np.uint64(groups))
        starts = (np.arange(groups + 1) > group).astype(np.int64)
        return KeyCodes(np.zeros(rows, dtype=np.int32), no_keys(1), starts)
    wrapped = [column if isinstance(column, KeyColumn) else KeyColumn(column) for column in columns]
    close_keys = wrapped[0].close_keys if len(wrapped) == 1 else None
    if close_keys is None:
        codes, distinct = _encode([column.digits for column in wrapped], rows)
    else:
        distinct = [close_keys.distinct]
    order, starts = _by_group(distinct, groups, salt, range(len(wrapped)) if hashed is None else hashed)
    if order is None:
        order = np.arange(distinct[0].length)
        codes = codes if close_keys is None else close_keys.codes(order.astype(np.int32))
    else:
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        codes = kernels.take(rank, codes) if close_keys is None else close_keys.codes(rank)
    keys = pa.Table.from_arrays([digits.values_at(order) for digits in distinct], names=key_names(len(wrapped)))
    return KeyCodes(codes, keys, starts)


def _by_group(
    distinct: Sequence[Digits], groups: int, salt: str, hashed: Iterable[int]
) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64]]:
    """Return the order of distinct keys by key group, None for that in which they are, and where each group begins."""
    count = distinct[0].length
    if groups == 1:
        return None, np.array([0, count])
    hashes = hash_rows([distinct[column].hashes for column in hashed], count, salt)
    group_of_key = (hashes % np.uint64(groups)).astype(np.int64)
    order, starts = np.empty(count, dtype=np.int64), np.zeros(groups + 1, dtype=np.int64)
    kernels.order_by_code(order, starts, group_of_key)
    return order, starts


class _Dictionary:
    """Values that numbers from 0 on stand for."""

    def __init__(self, values: pa.Array) -> None:
        self.values = values

    @cached_property
    def hashes(self) -> Hashes:
        return hash_column(self.values)


@dataclass(frozen=True)
class Digits:
    """Values as ``numbers`` in ``[low, low + span)``: equal where the values are, NULL included.

    They are of type ``kind``. Without a dictionary a number stands for itself.
    """

    numbers: npt.NDArray[np.integer]
    low: int
    span: int
    kind: pa.DataType
    dictionary: _Dictionary | None = None

    @classmethod
    def of(cls, column: pa.Array) -> Digits:
        """Number the values of a column."""
        close = _close_numbers(column)
        return cls.by_dictionary(column) if close is None else cls(*close, column.type)

    @classmethod
    def by_dictionary(cls, column: pa.Array) -> Digits:
        """Number the values of a column of whatever type."""
        encoded = column.dictionary_encode(null_encoding="encode")
        dictionary = _Dictionary(encoded.dictionary)
        return cls(np.asarray(encoded.indices), 0, len(encoded.dictionary), column.type, dictionary)

    @classmethod
    def joined(cls, parts: Sequence[Digits]) -> Digits:
        """Return the values of columns of one type after each other."""
        parts = [part for part in parts if part.length] or parts[:1]
        kind = parts[0].kind
        if all(part.dictionary is None for part in parts):
            numbers = np.concatenate([part.numbers for part in parts])
            low, after = min(part.low for part in parts), max(part.low + part.span for part in parts)
            if after - low <= _widest(len(numbers)):
                return cls(numbers, low, after - low, kind)
            return cls.by_dictionary(pa.array(numbers).view(kind))
        dictionaries, places, first = [], [], 0
        for part in parts:
            coded = cls.by_dictionary(part.values) if part.dictionary is None else part
            assert coded.dictionary is not None
            dictionaries.append(coded.dictionary.values)
            places.append(coded.numbers + np.int32(first))
            first += coded.span
        united = cls.by_dictionary(pa.concat_arrays(dictionaries))
        return replace(united, numbers=kernels.take(united.numbers, np.concatenate(places)))

    @property
    def length(self) -> int:
        return len(self.numbers)

    @property
    def values(self) -> pa.Array:
        """The values as they were."""
        numbers = pa.array(self.numbers)
        return numbers.view(self.kind) if self.dictionary is None else self.dictionary.values.take(numbers)

    @property
    def hashes(self) -> Hashes:
        """The hash of each value."""
        if self.dictionary is None:
            return hash_column(self.values)
        return self.dictionary.hashes[self.numbers]

    def take(self, rows: npt.NDArray[np.int64]) -> Digits:
        """Return some of the values."""
        return replace(self, numbers=self.numbers[rows])

    def values_at(self, rows: npt.NDArray[np.int64]) -> pa.Array:
        """Return some of the values as they were."""
        return self.take(rows).values


@dataclass(frozen=True)
class _CloseKeys:
    """Whole numbers that span no more than there are rows, in one or more ``pieces``: they are numbered by a table.

    ``present`` are those that occur, ascending, counted from the least; ``distinct`` are the numbers themselves.
    """

    pieces: list[npt.NDArray[np.integer]]
    present: npt.NDArray[np.int64]
    distinct: Digits

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> _CloseKeys | None:
        """Find the numbers that occur in a column; None if it has others, or NULL, or they span more."""
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        if pa.types.is_boolean(column.type) or column.null_count or not len(column):
            return None
        plain = [as_numbers(chunk) for chunk in chunks if len(chunk)]
        if not (pa.types.is_int32(plain[0].type) or pa.types.is_int64(plain[0].type)):
            return None
        pieces = [np.asarray(chunk) for chunk in plain]
        low, high = _extent(pieces)
        span = high - low + 1
        if span > len(column):
            return None
        occurs = np.zeros(span, dtype=np.bool_)
        for values in pieces:
            kernels.mark(occurs, values, low)
        present = np.flatnonzero(occurs)
        distinct = (present + low).astype(pieces[0].dtype)
        return cls(pieces, present, Digits(distinct, low, span, column.type))

    def codes(self, rank: npt.NDArray[np.int32]) -> Codes:
        """Return for each row the rank of its number among ``present``."""
        table = np.zeros(self.distinct.span, dtype=np.int32)
        table[self.present] = rank
        codes = np.empty(sum(map(len, self.pieces)), dtype=np.int32)
        first = 0
        for values in self.pieces:
            kernels.look_up(codes[first : first + len(values)], values, self.distinct.low, table)
            first += len(values)
        return codes


def _extent(pieces: Sequence[npt.NDArray[np.integer]]) -> tuple[int, int]:
    """Return the least and the greatest of some numbers."""
    extents = [kernels.extent(values) for values in pieces]
    return min(low for low, _ in extents), max(high for _, high in extents)


def key_digits(keys: pa.Table) -> list[Digits]:
    """Return the columns of keys as numbers."""
    return [Digits.of(one_array(column)) for column in keys.columns]


def unite_keys(
    tables: Sequence[pa.Table],
    *,
    are_distinct: bool = True,
    digits: Callable[[], Iterable[Sequence[Digits]]] | None = None,
) -> tuple[pa.Table, list[Codes]]:
    """Return the distinct keys of several tables, and for each table the new code of each of its rows.

    ``are_distinct`` says that no table has a key twice; ``digits`` returns the `key_digits` of each table if they are
    known already.
    """
    first = tables[0]
    if not first.num_columns or first.column_names == [_NO_KEY]:
        return first, [np.zeros(table.num_rows, dtype=np.int32) for table in tables]
    if are_distinct and all(table is first or table.equals(first) for table in tables):
        return first, [np.arange(first.num_rows, dtype=np.int32)] * len(tables)
    if digits is None:
        columns = key_digits(pa.concat_tables(tables).combine_chunks())
    else:
        columns = [Digits.joined(parts) for parts in zip(*digits(), strict=True)]
    bounds = np.cumsum([0, *(table.num_rows for table in tables)])
    codes, distinct = _encode(columns, int(bounds[-1]))
    keys = pa.Table.from_arrays([column.values for column in distinct], names=first.column_names)
    return keys, [codes[low:high] for low, high in itertools.pairwise(bounds.tolist())]


_NO_KEY = "no key"


def no_keys(rows: int) -> pa.Table:
    """Return the keys of an operator without GROUP BY; a table of no columns would forget its length."""
    return pa.table({_NO_KEY: pa.nulls(rows)})


def key_columns(keys: pa.Table) -> list[str]:
    """Return the names of the key columns."""
    return [name for name in keys.column_names if name != _NO_KEY]


def with_one_of_equals(column: pa.Array) -> pa.Array:
    """Turn -0.0 into 0.0, and all NaN into the same: SQL groups equal values together, Arrow equal bits."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), math.nan, pc.add(column, 0.0))


def _encode(columns: Sequence[Digits], rows: int) -> tuple[Codes, list[Digits]]:
    """Return a code for each row, and the columns of the distinct keys, in the order of the codes."""
    if len(columns) == 1:
        digits = columns[0]
        if digits.dictionary is not None:
            return digits.numbers.astype(np.int32, copy=False), [replace(digits, numbers=np.arange(digits.span))]
        codes, first = _number(digits.numbers, digits.low, digits.span)
        return codes, [digits.take(first)]
    # the columns of a row are the digits of a number
    code, size = np.zeros(rows, dtype=np.int64), 1
    for digits in columns:
        if size * digits.span > _widest(rows):  # keep codes dense, so that they never overflow
            code, size = _dense(code, size)
        kernels.append_digit(code, digits.numbers, digits.low, digits.span)
        size *= digits.span
    codes, first = _number(code, 0, size)
    return codes, [digits.take(first) for digits in columns]


def _dense(code: npt.NDArray[np.int64], size: int) -> tuple[npt.NDArray[np.int64], int]:
    """Renumber codes without gaps; return the new ones, and how many there are."""
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


def _widest(rows: int) -> int:
    return max(_SPARSE * rows, _WIDEST)


def _number(numbers: npt.NDArray[np.integer], low: int, span: int) -> tuple[Codes, npt.NDArray[np.int64]]:
    """Give each distinct number a code; return the code of each row, and the first row that has each code."""
    rows = len(numbers)
    if span <= _widest(rows):
        codes, first = np.empty(rows, dtype=np.int32), np.empty(min(rows, span), dtype=np.int64)
        is_short = span <= _WIDEST
        table = _free_tables.pop() if is_short and _free_tables else np.zeros(max(span, _WIDEST), dtype=np.int32)
        if span <= rows:  # so that tables with the same keys are equal, whatever came first
            count = kernels.number_ascending(codes, first, table, numbers, low, span)
        else:
            count = kernels.number(codes, first, table, numbers, low)
        if is_short:
            _free_tables.append(table)
        return codes, first[:count]
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
    """Return a code for each value, equal where the values are, NULL included, and the value of each code."""
    codes, (distinct,) = _encode([Digits.of(column)], len(column))
    return codes, distinct.values
