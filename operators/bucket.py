"""Buckets: read-only blocks of partial aggregates that source tasks make and operators keep (thesis 5.3.1.1).

A bucket belongs to one operator, one cell space, one epoch and one key group; its rows are ordered by slice, so it is
the buckets of several slices side by side. It explains itself: beside the partial table it carries the query-set of
every cell, in the slots of its epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from operators.aggregation import SLICE_END, SLICE_START
from operators.query_set import Words


@dataclass(frozen=True)
class Bucket:
    """``partials`` is a partial table; ``query_sets[c]`` is the query-set of cell c.

    ``dimensions`` names the columns that the space tests. With one of them at most, cells are numbered in the order of
    its values.
    """

    operator: str
    dimensions: tuple[str, ...]
    epoch: int
    query_sets: Words
    partials: pa.Table

    @cached_property
    def slices(self) -> npt.NDArray[np.int64]:
        """The slices that occur, shape (slices, 2)."""
        pairs = np.stack([self.partials.column(SLICE_START), self.partials.column(SLICE_END)], axis=1)
        return np.unique(pairs, axis=0)

    @property
    def nbytes(self) -> int:
        """The size of the data in memory."""
        return int(self.partials.nbytes + self.query_sets.nbytes)

    def serialize(self) -> bytes:
        """Return the bucket as an Arrow IPC stream."""
        metadata = {
            b"operator": self.operator.encode(),
            b"dimensions": orjson.dumps(self.dimensions),
            b"epoch": str(self.epoch).encode(),
            b"words": str(self.query_sets.shape[1]).encode(),
            b"query_sets": self.query_sets.tobytes(),
        }
        sink = pa.BufferOutputStream()
        schema = self.partials.schema.with_metadata(metadata)
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_table(self.partials.replace_schema_metadata(metadata))
        return sink.getvalue().to_pybytes()

    @classmethod
    def deserialize(cls, data: bytes | pa.Buffer) -> Bucket:
        """Read what :meth:`serialize` wrote."""
        table = pa.ipc.open_stream(data).read_all()
        metadata = table.schema.metadata
        words = int(metadata[b"words"])
        return cls(
            operator=metadata[b"operator"].decode(),
            dimensions=tuple(orjson.loads(metadata[b"dimensions"])),
            epoch=int(metadata[b"epoch"]),
            query_sets=np.frombuffer(metadata[b"query_sets"], dtype=np.uint64).reshape(-1, words),
            partials=table.replace_schema_metadata(None),
        )
