"""Join the tuples of a stream with static tables, in the source task, before they reach an operator.

A table is indexed once in a worker. The distinct keys of a chunk are looked up in it, whatever the number of tuples; a
tuple then follows its key. What comes out is a chunk like any other, with more columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from braid.operators import kernels
from braid.operators.expressions import Expression, columns_of
from braid.operators.joins.matches.relations import NO_ROW, picked
from braid.operators.lookup.lookups import SEMI, Lookup, TupleJoin
from braid.operators.lookup.unnest import unnested
from braid.operators.state.keys import as_numbers, encode_keys
from braid.operators.tuples import Tuples
from braid.sources.core.columns import one_array
from braid.sources.core.storage import Storage, not_read_back
from braid.sources.formats.nested import row_bytes

Numbers = npt.NDArray[np.int64]

FOLDER = "tables"
MAX_MATCHES = 1000
"""How many rows of a table a tuple may be joined with."""
MAX_AT_ONCE = 4_000_000
"""How many joined tuples are formed at once, about."""
MAX_BYTES = 1 << 30
"""How many bytes a column of texts gets at most with them."""
MAX_PRODUCT = 10_000_000
"""How many tuples a batch may become by several joins, or MAX_MATCHES for each tuple if that is more."""
MAX_UNNESTED_BYTES = 1 << 32
"""How many bytes UNNEST makes of a batch before columns are dropped, or MAX_MATCHES for each byte if that is more."""


def version_path(version: str) -> str:
    """Return where the rows of a table lie that a query was deployed with."""
    return f"{FOLDER}/{version}.arrow"


def version_of(data: bytes | pa.Buffer) -> str:
    """Return the name of rows in an Arrow IPC file: equal for equal rows."""
    return hashlib.sha256(data).hexdigest()[:16]


def read_rows(storage: Storage, version: str) -> pa.Buffer:
    """Return the file of a version; CorruptData when it is gone, or has other rows."""
    path = version_path(version)
    try:
        data = storage.read(path)
    except FileNotFoundError as error:
        raise not_read_back(path, "it is missing") from error
    if version_of(data) != version:
        raise not_read_back(path, "its checksum is another")
    return data


class LookupFailed(Exception):
    """An expression of a lookup could not be evaluated; the message says why."""


class IndexedTables:
    """The tables that a worker has indexed, for the lookups that it was asked for last."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._rows: dict[str, pa.Table] = {}
        self._indexed: dict[_IndexKey, TableIndex] = {}

    def index(self, lookup: Lookup) -> TableIndex:
        """Return the index of a lookup's table."""
        key = _index_key(lookup)
        table_index = self._indexed.get(key)
        if table_index is None:
            table_index = self._indexed[key] = TableIndex(self._table(lookup.version), key[1])
        return table_index

    def keep(self, lookups: Iterable[TupleJoin]) -> None:
        """Let go of all tables but those of some lookups."""
        index_keys = {_index_key(lookup) for lookup in lookups if isinstance(lookup, Lookup)}
        self._indexed = {key: index for key, index in self._indexed.items() if key in index_keys}
        versions = {version for version, _ in index_keys}
        self._rows = {version: rows for version, rows in self._rows.items() if version in versions}

    def _table(self, version: str) -> pa.Table:
        if version not in self._rows:
            data = read_rows(self._storage, version)
            self._rows[version] = pa.ipc.open_file(data).read_all().combine_chunks()
        return self._rows[version]


_IndexKey = tuple[str, tuple[Expression, ...]]


def _index_key(lookup: Lookup) -> _IndexKey:
    return lookup.version, tuple(table_key for _, table_key in lookup.keys)


class TableIndex:
    """The rows of a table by keys, expressions over its columns; a row with a NULL key is found by nothing.

    Raises LookupFailed.
    """

    def __init__(self, table: pa.Table, keys: Sequence[Expression]) -> None:
        self._table = table
        rows = Tuples({name: one_array(table.column(name)) for name in table.column_names}, table.num_rows)
        self._columns = [_KeyIndex(rows.value(key)) for key in keys]
        _check(rows)
        self._known: list[Numbers] = []
        codes = self._columns[0].codes
        for column in self._columns[1:]:
            codes = _combined(codes, column.codes, column.size)
            self._known.append(np.unique(codes[codes >= 0]))
            codes = _position(self._known[-1], codes)  # dense again, so that codes never overflow
        has_key = codes >= 0
        self._order = np.argsort(codes, kind="stable")[len(codes) - int(has_key.sum()) :]
        self._counts = np.bincount(codes[has_key])
        self._starts = np.cumsum(self._counts) - self._counts

    @property
    def max_matches(self) -> int:
        """How many rows the most frequent key has."""
        return int(self._counts.max(initial=0))

    def find(self, columns: Sequence[pa.Array], length: int) -> tuple[Numbers, Numbers]:
        """Return where the rows for keys, given as columns, begin, and how many there are; see ``row_at``."""
        coded = encode_keys(columns, length, 1, "")
        keys = [one_array(coded.keys.column(name)) for name in coded.keys.column_names]
        codes = self._columns[0].find(keys[0])
        for column, key, known_codes in zip(self._columns[1:], keys[1:], self._known, strict=True):
            codes = _position(known_codes, _combined(codes, column.find(key), column.size))
        starts, counts = picked(self._starts, codes, 0), picked(self._counts, codes, 0)
        return kernels.take(starts, coded.codes), kernels.take(counts, coded.codes)

    def row_at(self, places: Numbers) -> Numbers:
        """Return the row at each place."""
        return picked(self._order, places, NO_ROW)

    def columns(self, rows: Numbers, names: Mapping[str, str]) -> dict[str, pa.Array]:
        """Return columns of some rows, by the names that they get; NULL at ``NO_ROW``."""
        missing = rows == NO_ROW
        at = pa.array(rows, mask=missing) if missing.any() else pa.array(rows)
        return {name: one_array(self._table.column(column)).take(at) for name, column in names.items()}

    @property
    def column_names(self) -> Sequence[str]:
        """The columns of the table."""
        names: list[str] = self._table.column_names
        return names

    def widest(self, names: Iterable[str]) -> int:
        """Return how many bytes the longest text in some columns has."""
        return max((_longest(one_array(self._table.column(name))) for name in names), default=0)


class _KeyIndex:
    """The distinct values of one key column: ``codes`` of the rows, dense, -1 for NULL."""

    def __init__(self, column: pa.Array) -> None:
        values, is_null = _plain(column)
        self._index = pd.Index(pd.unique(values[~is_null]))
        self.size = max(1, len(self._index))
        self.codes = self.find(column)

    def find(self, column: pa.Array) -> Numbers:
        """Return the codes of values, -1 for those that no row has."""
        values, is_null = _plain(column)
        codes = self._index.get_indexer(pd.Index(values)).astype(np.int64)
        codes[is_null] = -1
        return codes


def _plain(column: pa.Array) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.bool_]]:
    """Return values as numpy has them, and which are NULL; those are something else."""
    is_null = np.asarray(column.is_null())
    column = as_numbers(column)
    if pa.types.is_primitive(column.type):
        return np.asarray(column.fill_null(0)), is_null
    return column.to_numpy(zero_copy_only=False), is_null


def _combined(codes: Numbers, digits: Numbers, size: int) -> Numbers:
    """Return codes with one more digit of base ``size`` each; -1 where either is -1."""
    return np.where((codes < 0) | (digits < 0), -1, codes * size + digits)


def _position(known_codes: Numbers, codes: Numbers) -> Numbers:
    """Return where codes are among the known ones, -1 for those that are not."""
    if not len(known_codes):
        return np.full(len(codes), -1)
    at = np.minimum(np.searchsorted(known_codes, codes), len(known_codes) - 1)
    return np.where(known_codes[at] == codes, at, -1)


@dataclass
class _Left:
    """How many tuples each lookup may still make of a batch, and how many bytes UNNEST until columns are dropped."""

    tuples: list[int]
    bytes: int
    dropped: set[str]


@dataclass(frozen=True)
class LookupJoin:
    """The lookups of an input of queries; ``needed`` are the columns that somebody reads after them."""

    lookups: Sequence[TupleJoin]
    needed: frozenset[str]

    @property
    def reads(self) -> frozenset[str]:
        """The columns that somebody reads before or after the lookups, those of tables included."""
        return self.needed.union(*(lookup.reads for lookup in self.lookups))

    def batches(
        self, batch: pa.Table, tables: IndexedTables, dropped: set[str] | None = None
    ) -> Iterator[pa.RecordBatch | pa.Table]:
        """Yield the tuples of a batch after the lookups, in pieces of about `MAX_AT_ONCE` at most.

        Where UNNEST would make too many bytes, columns of texts and of values with parts are all NULL from then on:
        whoever reads one of the ``dropped``, which are known at the end, has not read all. Raises LookupFailed, also
        where arrays multiplied by each other make too many tuples.
        """
        max_tuples = max(MAX_PRODUCT, MAX_MATCHES * batch.num_rows)
        max_bytes = max(MAX_UNNESTED_BYTES, MAX_MATCHES * batch.nbytes)
        yield from self._after(
            batch, 0, tables, _Left([max_tuples] * len(self.lookups), max_bytes, set() if dropped is None else dropped)
        )

    def _after(
        self, batch: pa.RecordBatch | pa.Table, number: int, tables: IndexedTables, left: _Left
    ) -> Iterator[pa.RecordBatch | pa.Table]:
        """Yield the tuples of a batch after the lookups from ``number`` on, which may make what is ``left``."""
        if number == len(self.lookups):
            yield batch
            return
        lookup, tuples = self.lookups[number], Tuples.of(batch)
        needed = set(self.needed).union(*(later.reads for later in self.lookups[number + 1 :]))
        if isinstance(lookup, Lookup):
            pieces = _joined(tuples, tables.index(lookup), lookup, needed)
        else:
            array = tuples.value(lookup.array)
            _check(tuples)
            pieces = unnested(tuples, array, lookup, needed, left.dropped)
        for piece in pieces:
            left.tuples[number] -= piece.num_rows
            left.bytes -= 0 if isinstance(lookup, Lookup) else piece.nbytes
            if number and left.tuples[number] < 0:  # the first one makes no more than its input has elements
                raise LookupFailed(
                    f"the joins of a row with tables and UNNEST must make at most {MAX_PRODUCT} rows of a batch, or"
                    f" {MAX_MATCHES} of each; got more. Unnest fewer arrays, or in queries of their own."
                )
            if left.bytes < 0:
                later = set[str]().union(*(each.reads for each in self.lookups))
                left.dropped |= {name for name in tuples.columns if name in needed and _is_long(tuples, name)} - later
            yield from self._after(piece, number + 1, tables, left)


def _is_long(tuples: Tuples, name: str) -> bool:
    kind = tuples.columns[name].type
    return pa.types.is_string(kind) or pa.types.is_nested(kind)


def _check(tuples: Tuples) -> None:
    for text, message in tuples.failures.items():
        raise LookupFailed(f"{text}: {message}")


def _joined(tuples: Tuples, table: TableIndex, lookup: Lookup, needed: set[str]) -> Iterator[pa.RecordBatch]:
    """Yield tuples joined with a table, with the columns that are needed; or those tuples that it keeps."""
    columns = [tuples.value(stream_key) for stream_key, _ in lookup.keys]
    _check(tuples)
    starts, matches = table.find(columns, tuples.length)
    tested = set() if lookup.on is None else set(columns_of(lookup.on))
    if not lookup.keeps:
        pairs = _Pairs(tuples, table, lookup, tested | needed)
        for tuple_rows, table_rows in pairs.of(starts, matches):
            yield pa.RecordBatch.from_pydict(pairs.columns(tuple_rows, table_rows, needed))
        return
    has_row = matches > 0
    if lookup.on is not None:
        has_row[:] = False
        for tuple_rows, _ in _Pairs(tuples, table, lookup, tested).of(starts, matches):
            has_row[tuple_rows] = True
    rows = np.flatnonzero(has_row == (lookup.keeps == SEMI))
    yield pa.RecordBatch.from_pydict(_rows_of(tuples, rows, needed))


@dataclass(frozen=True)
class _Pairs:
    """Pairs of tuples and rows of a table, given as the numbers of both, `NO_ROW` for no row."""

    tuples: Tuples
    table: TableIndex
    lookup: Lookup
    read: set[str]

    @property
    def at_once(self) -> int:
        """How many are formed at once: texts of a column must not be more than 2 GB."""
        of_tuples = (self.tuples.columns[name] for name in self.read if name in self.tuples.columns)
        widest = max(self.table.widest(self._of_table(self.read).values()), *map(_longest, of_tuples), 1)
        return max(1, min(MAX_AT_ONCE, MAX_BYTES // widest))

    def of(self, starts: Numbers, matches: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield the pairs of each tuple, given where its rows begin and how many there are, in pieces."""
        counts = np.maximum(matches, 1) if self.lookup.left else matches
        ends = np.cumsum(counts)
        first = 0
        while first < self.tuples.length:
            before = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + self.at_once, side="right")))
            tuple_rows = np.repeat(np.arange(first, last), counts[first:last])
            nth = np.arange(before, before + len(tuple_rows)) - (ends - counts)[tuple_rows]
            table_rows = self.table.row_at(np.where(matches[tuple_rows] > 0, starts[tuple_rows] + nth, NO_ROW))
            if self.lookup.on is not None:
                tuple_rows, table_rows = self.where_on(self.lookup.on, tuple_rows, table_rows)
            yield tuple_rows, table_rows
            first = last

    def columns(self, tuple_rows: Numbers, table_rows: Numbers, names: set[str]) -> dict[str, pa.Array]:
        """Return columns of pairs."""
        return {**_rows_of(self.tuples, tuple_rows, names), **self.table.columns(table_rows, self._of_table(names))}

    def _of_table(self, names: Iterable[str]) -> dict[str, str]:
        table_columns = {f"{self.lookup.name}.{name}": name for name in self.table.column_names}
        return {name: table_columns[name] for name in names if name in table_columns}

    def where_on(self, on: Expression, tuple_rows: Numbers, table_rows: Numbers) -> tuple[Numbers, Numbers]:
        """Return the pairs for which ON holds; in a left join a tuple without one has `NO_ROW`."""
        pairs = Tuples(self.columns(tuple_rows, table_rows, set(columns_of(on))), len(tuple_rows))
        holds = np.asarray(pairs.value(on).fill_null(False)) & (table_rows != NO_ROW)
        _check(pairs)
        if not self.lookup.left:
            return tuple_rows[holds], table_rows[holds]
        unmatched = np.setdiff1d(tuple_rows, tuple_rows[holds])
        tuple_rows = np.concatenate([tuple_rows[holds], unmatched])
        table_rows = np.concatenate([table_rows[holds], np.full(len(unmatched), NO_ROW)])
        order = np.argsort(tuple_rows, kind="stable")
        return tuple_rows[order], table_rows[order]


def _longest(column: pa.Array) -> int:
    """Return how many bytes the longest text of a column has, or the largest value with parts; 0 for other types."""
    return int(row_bytes(column).max(initial=0))


def _rows_of(tuples: Tuples, rows: Numbers, names: Iterable[str]) -> Mapping[str, pa.Array]:
    present = [name for name in names if name in tuples.columns]
    if len(rows) == tuples.length and np.array_equal(rows, np.arange(len(rows))):
        return {name: tuples.columns[name] for name in present}
    at = pa.array(rows)
    return {name: tuples.columns[name].take(at) for name in present}
