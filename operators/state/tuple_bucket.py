"""Tuple buckets: which tuples of one input of joins a key group has, by reference (thesis 5.3.1.1, 5.3.2).

A chunk of tuples is written once, and indexed by each operator that joins compare it by: a bucket has rows of the file,
and their keys. How many joined rows there are is known without the tuples. Only those that some join wants are there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from braid.operators import kernels
from braid.operators.arrays import Places
from braid.operators.joins.gathering import take
from braid.operators.predicates.query_set import Bools
from braid.operators.state.keys import KeyCodes
from braid.operators.state.narrowing import narrow, widen
from braid.operators.state.tuple_files import TIME, TupleFile, TupleFiles
from braid.operators.tuples import Tuples
from braid.sources.core.columns import one_array

_HEADER = b"tuples"
WORTH_TAKING = 0.8
"""Tuples that no join wants are left out where less than this share remains."""


@dataclass(frozen=True)
class TupleIndex:
    """Rows of a file of tuples, ascending, that lie in one key group; ``key`` numbers the rows of ``keys``.

    ``span`` is the stretch of event time that they lie in: from the least to just above the greatest (µs). ``share`` is
    how many rows of the file have keys of the key group, wanted or not.
    """

    operator: str
    rows: Places
    key: Places
    keys: pa.Table
    span: tuple[int, int]
    share: int

    def serialize(self, path: str) -> bytes:
        """Return the index of the file at ``path`` as Arrow IPC streams after each other: rows, distinct keys."""
        first, distances = as_distances(self.rows)
        places = pa.table({"row": pa.array(distances), "key": pa.array(self.key)})
        return self._streams({"path": path, "first": first}, places)

    def serialize_with(self, tuples: pa.Table) -> bytes:
        """Return the index and its rows of ``tuples``: what is so small that a file would cost more."""
        indexed = pa.table({name: take(tuples.column(name), self.rows) for name in tuples.column_names})
        return self._streams({}, pa.table({"key": pa.array(self.key)}), narrow(indexed))

    def _streams(self, fields: dict[str, Any], places: pa.Table, *tuples: pa.Table) -> bytes:
        header = {**fields, "operator": self.operator, "span": self.span, "share": self.share}
        places = places.replace_schema_metadata({_HEADER: orjson.dumps(header)})
        sink = pa.BufferOutputStream()
        for table in (narrow(places), self.keys, *tuples):
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        return sink.getvalue().to_pybytes()


@dataclass(frozen=True)
class TupleBucket:
    """An index, and the file that it is of."""

    index: TupleIndex
    file: TupleFile

    @property
    def operator(self) -> str:
        """The name of the operator that made it."""
        return self.index.operator

    @property
    def keys(self) -> pa.Table:
        """The attributes that tuples are joined by, distinct."""
        return self.index.keys

    @property
    def key(self) -> Places:
        """Which of the ``keys`` each tuple has."""
        return self.index.key

    @property
    def times(self) -> npt.NDArray[np.int64]:
        """The event time of each tuple (µs)."""
        times: npt.NDArray[np.int64] = kernels.take(self.file.times, self.index.rows)
        return times

    @property
    def span(self) -> tuple[int, int]:
        """The stretch of event time that they lie in (µs)."""
        return self.index.span

    @property
    def nbytes(self) -> int:
        """The size of the index in memory."""
        return int(self.index.rows.nbytes + self.key.nbytes + self.keys.nbytes)

    def take(self, positions: npt.NDArray[np.integer], names: Iterable[str]) -> pa.Table:
        """Return columns of some of the tuples, those that the file has."""
        rows = kernels.take(self.index.rows, positions)
        columns = {name: self.file.column(name) for name in names}
        arrays = {name: take(column, rows) for name, column in columns.items() if column is not None}
        return pa.table(arrays) if arrays else pa.table({"_": pa.nulls(len(rows))})

    @classmethod
    def deserialize(cls, data: bytes | pa.Buffer, files: TupleFiles) -> TupleBucket:
        """Read what :meth:`TupleIndex.serialize` wrote."""
        source = pa.BufferReader(data)
        places, keys = (widen(pa.ipc.open_stream(source).read_all()) for _ in range(2))
        header = orjson.loads(places.schema.metadata[_HEADER])
        key = np.asarray(one_array(places.column("key")))
        if "path" in header:
            rows = from_distances(header["first"], np.asarray(one_array(places.column("row"))))
            file = files.at(header["path"])
        else:
            rows = np.arange(len(key), dtype=np.int32)
            file = TupleFile.in_memory(widen(pa.ipc.open_stream(source).read_all()))
        return cls(TupleIndex(header["operator"], rows, key, keys, tuple(header["span"]), header["share"]), file)


def as_distances(rows: Places) -> tuple[int, Places]:
    """Return the first of ascending rows, 0 for none, and how far each is from the one before, 0 for the first."""
    return int(rows[0]) if len(rows) else 0, np.diff(rows, prepend=rows[:1])


def from_distances(first: int, distances: Places) -> Places:
    """Return what :func:`as_distances` was given."""
    return np.cumsum(distances, dtype=np.int32) + np.int32(first)


def between(buckets: Iterable[TupleBucket], first: int, last: int) -> Iterator[TupleBucket]:
    """Yield the buckets that may have tuples with event times in ``[first, last)`` (µs)."""
    return (bucket for bucket in buckets if bucket.span[0] < last and bucket.span[1] > first)


def is_tuple_bucket(data: bytes | pa.Buffer) -> bool:
    """Return whether bytes are those of a tuple bucket."""
    metadata = pa.ipc.open_stream(pa.BufferReader(data)).schema.metadata
    return metadata is not None and _HEADER in metadata


@dataclass(frozen=True)
class Wanted:
    """What joins of an operator want of a chunk: which tuples, shape (tuples,), their keys, and those ``columns``.

    What key group g has goes to partition g + l for each l of ``partitions``. It is asked of the tuples ``among`` only,
    of all if None.
    """

    operator: str
    tuples: Bools
    keys: KeyCodes
    columns: Sequence[str]
    partitions: range
    among: Bools | None = None

    def among_all(self, rows: Places, length: int) -> Wanted:
        """Return the same of a chunk of so many tuples, given what is wanted of its ``rows``."""
        tuples, among = (np.zeros(length, dtype=np.bool_) for _ in range(2))
        codes = np.zeros(length, dtype=np.int32)
        tuples[rows], among[rows], codes[rows] = self.tuples, True, self.keys.codes
        return replace(self, tuples=tuples, keys=replace(self.keys, codes=codes), among=among)


@dataclass(frozen=True)
class IndexedTuples:
    """Tuples of a chunk that joins want, as a :class:`~braid.operators.state.tuple_files.TupleFile` has them.

    Each of their indexes comes with the number of its partition.
    """

    table: pa.Table
    indexes: Sequence[tuple[int, TupleIndex]]

    @property
    def partitions(self) -> list[int]:
        """The partitions that have an index."""
        return list(dict.fromkeys(partition for partition, _ in self.indexes))


def index_tuples(tuples: Tuples, times: npt.NDArray[np.int64], requests: Sequence[Wanted]) -> IndexedTuples | None:
    """Return the tuples that some operator wants, and the indexes of them all; None if nobody wants any."""
    is_wanted = requests[0].tuples.copy()
    for request in requests[1:]:
        is_wanted |= request.tuples
    count = int(np.count_nonzero(is_wanted))
    if not count:
        return None
    kept_rows = np.flatnonzero(is_wanted).astype(np.int32) if count < WORTH_TAKING * len(is_wanted) else None
    new_row = None if kept_rows is None else np.cumsum(is_wanted, dtype=np.int32) - np.int32(1)
    indexes = []
    for request in requests:
        among = is_wanted if kept_rows is not None else None
        if request.among is not None:
            among = request.among if among is None else among & request.among
        shares = _shares(request.keys, among)
        for group, rows in enumerate(_rows_of_groups(request)):
            if len(rows):
                first = np.int32(request.keys.group_starts[group])
                key, row_times = kernels.take(request.keys.codes, rows) - first, kernels.take(times, rows)
                index = TupleIndex(
                    request.operator,
                    rows if new_row is None else kernels.take(new_row, rows),
                    key,
                    request.keys.of_group(group),
                    (int(row_times.min()), int(row_times.max()) + 1),
                    int(shares[group]),
                )
                indexes += [(group + partition, index) for partition in request.partitions]
    names = sorted({name for request in requests for name in request.columns})
    columns = {TIME: pa.array(times), **{name: tuples.columns[name] for name in names}}
    if kept_rows is not None:
        columns = {name: take(column, kept_rows) for name, column in columns.items()}
    return IndexedTuples(pa.table(columns), indexes)


def _groups(keys: KeyCodes) -> Places:
    """Return the key group of each tuple."""
    starts = keys.group_starts
    return kernels.take(np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts)), keys.codes)


def _shares(keys: KeyCodes, among: Bools | None) -> npt.NDArray[np.int64]:
    """Return how many of all tuples, or of some, are in each key group."""
    group = _groups(keys)
    return np.bincount(group if among is None else group[among], minlength=len(keys.group_starts) - 1)


def _rows_of_groups(request: Wanted) -> list[Places]:
    """Return the wanted tuples of each key group."""
    starts = request.keys.group_starts
    if len(starts) == 2:
        return [np.flatnonzero(request.tuples).astype(np.int32)]
    group = np.where(request.tuples, _groups(request.keys), np.int32(-1))
    order, bounds = np.empty(len(group), dtype=np.int32), np.zeros(len(starts), dtype=np.int64)
    kernels.order_by_code(order, bounds, group)
    return [order[first:after] for first, after in itertools.pairwise(bounds.tolist())]
