"""Tuple buckets: read-only tuples of one input of joins, one chunk and one key group (thesis 5.3.1.1).

They hold what making rows takes, once for all joins that compare the stream by the same attributes; how many rows there
are is known without them. Only tuples that some join wants are in them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from operators import kernels
from operators.entries import SlicedTuples
from operators.query_set import Bools
from operators.tuples import Tuples
from sources.columns import one_array

_HEADER = b"tuples"


@dataclass(frozen=True)
class TupleBucket:
    """``columns`` of the tuples in order of their arrival, with their event ``times`` (µs).

    ``key`` numbers the rows of ``keys``: the attributes that they are joined by.
    """

    operator: str
    times: npt.NDArray[np.int64]
    key: npt.NDArray[np.int32]
    keys: pa.Table
    columns: pa.Table

    @property
    def span(self) -> tuple[int, int]:
        """The stretch of event time that they lie in: from the least to just above the greatest (µs)."""
        return int(self.times.min()), int(self.times.max()) + 1

    @property
    def nbytes(self) -> int:
        """The size of the data in memory."""
        return int(self.times.nbytes + self.key.nbytes + self.keys.nbytes + self.columns.nbytes)

    def serialize(self) -> bytes:
        """Return the bucket as Arrow IPC streams after each other: times and keys, the distinct keys, columns."""
        places = pa.table({"time": pa.array(self.times), "key": pa.array(self.key)})
        header = orjson.dumps({"operator": self.operator})
        sink = pa.BufferOutputStream()
        for table in (places.replace_schema_metadata({_HEADER: header}), self.keys, self.columns):
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        return sink.getvalue().to_pybytes()

    @classmethod
    def deserialize(cls, data: bytes | pa.Buffer) -> TupleBucket:
        """Read what :meth:`serialize` wrote; numbers are not copied."""
        source = pa.BufferReader(data)
        places, keys, columns = (pa.ipc.open_stream(source).read_all() for _ in range(3))
        header = orjson.loads(places.schema.metadata[_HEADER])
        times, key = (np.asarray(one_array(places.column(name))) for name in ("time", "key"))
        return cls(header["operator"], times, key, keys, columns)


def between(buckets: Iterable[TupleBucket], first: int, last: int) -> Iterator[TupleBucket]:
    """Yield the buckets that may have tuples with event times in ``[first, last)`` (µs)."""
    return (bucket for bucket in buckets if bucket.span[0] < last and bucket.span[1] > first)


def is_tuple_bucket(data: bytes | pa.Buffer) -> bool:
    """Return whether bytes are those of a tuple bucket."""
    metadata = pa.ipc.open_stream(pa.BufferReader(data)).schema.metadata
    return metadata is not None and _HEADER in metadata


def tuple_buckets(
    tuples: Tuples,
    sliced: SlicedTuples,
    times: npt.NDArray[np.int64],
    wanted: Bools,
    columns: Sequence[str],
    operator: str,
) -> Iterator[tuple[int, TupleBucket]]:
    """Yield the wanted tuples of each key group that has any, with its number; ``wanted`` has shape (tuples,)."""
    for number, (first, after) in enumerate(itertools.pairwise(sliced.keys.group_starts.tolist())):
        rows = np.flatnonzero(wanted & (sliced.keys.codes >= first) & (sliced.keys.codes < after))
        if len(rows):
            key = kernels.taken(sliced.keys.codes, rows) - np.int32(first)
            mine = _taken(tuples, columns, rows)
            yield number, TupleBucket(operator, times[rows], key, sliced.keys.of_group(number), mine)


def _taken(tuples: Tuples, columns: Sequence[str], rows: npt.NDArray[np.int64]) -> pa.Table:
    at = pa.array(rows)
    taken: Mapping[str, pa.Array] = {name: tuples.columns[name].take(at) for name in columns}
    return pa.table(taken) if taken else pa.table({"_": pa.nulls(len(rows))})
