"""What a connector offers to the composite source.

A stream has partitions; a partition is a sequence of tuples (and malformed inputs) with offsets 0, 1, 2, …, and reading
``[start, end)`` always gives the same. The planner asks what is available; source tasks read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import pyarrow as pa

from braid.sources.core.schema import StreamSchema


@dataclass(frozen=True)
class Malformed:
    """An input that does not fit the schema: what was wrong, and the input as text."""

    detail: str
    raw: str


@dataclass(frozen=True)
class Chunk:
    """Consecutive offsets of one partition: well-formed tuples, and malformed inputs among them.

    ``tuples`` has the stream's Arrow schema; ``received_us`` is when the service got them (microseconds since 1970);
    ``bytes`` is their size as received.
    """

    tuples: pa.RecordBatch
    malformed: tuple[Malformed, ...]
    received_us: int
    bytes: int


def with_arrival(tuples: pa.RecordBatch, schema: StreamSchema, received_us: int) -> pa.RecordBatch:
    """Return tuples of ``schema.stored`` with the time at which they came in the columns for it."""
    if schema.stored is schema:
        return tuples
    moment = pa.repeat(pa.scalar(received_us, pa.timestamp("us")), tuples.num_rows)
    columns = [moment if f.arrival else tuples.column(f.name) for f in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


class Extent(NamedTuple):
    """The offsets of a partition that can be read now, ``[start, end)``; whoever is beyond ``start`` stays there."""

    start: int
    end: int

    @property
    def skip_to(self) -> int:
        """The least offset at which reading goes on, where the stream does without what is gone; else 0."""
        return 0


class GappedExtent(Extent):
    """An extent of a stream that does without what is gone before ``oldest``; that is counted as skipped."""

    _oldest: int

    def __new__(cls, start: int, end: int, oldest: int) -> Self:
        """Return the extent; it equals any other from ``start`` to ``end``."""
        extent = super().__new__(cls, start, end)
        extent._oldest = oldest
        return extent

    @property
    def skip_to(self) -> int:
        """The oldest offset that there is."""
        return self._oldest


class Connector(Protocol):
    """A source of one stream."""

    @property
    def problem(self) -> str | None:
        """Why nothing is available, None while all is well."""

    def available(self, now_us: int) -> dict[str, Extent]:
        """Return what can be read now of each partition; a partition that does not answer is left out."""

    def bounds(self) -> Mapping[str, int] | None:
        """Return the offset after the last one that each partition will ever have; None where nobody knows."""

    def oldest(self) -> dict[str, int]:
        """Return the oldest offset that can be read of each partition, as of the last :meth:`available`."""

    def read(self, partition: str, start: int, end: int) -> Iterator[Chunk]:
        """Yield everything in ``[start, end)`` in order of offsets; the same at every call.

        An error says why it cannot be read now. It costs only this stream's share of the batch, which is read later;
        but a batch waits for its slowest stream, so patience is a matter of seconds.
        """
