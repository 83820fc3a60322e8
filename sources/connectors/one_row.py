"""A stream of one row that has ended: what a query over static tables alone reads, joined with its first table.

Such a stream is hidden, and there for one query, whose id is in its own: ``t-q-17``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from braid.sources.connectors.connector import Chunk, Extent
from braid.sources.core.schema import TIMESTAMP, Field, StreamDefinition, StreamSchema
from braid.sources.core.watermark_options import WatermarkOptions

CONNECTOR = "one_row"
TIME = "row_time"
_PREFIX = "t-"
_SCHEMA = StreamSchema((Field(TIME, TIMESTAMP),), TIME, 0, hidden=(TIME,))
_PARTITION, _FIRST, _ALL = "0", 0, 1


def one_row_id(query_id: str) -> str:
    """Return the id of the stream of one row that a query reads."""
    return _PREFIX + query_id


def is_one_row(stream_id: str) -> bool:
    """Whether a stream has one row."""
    return stream_id.startswith(_PREFIX)


def one_row_stream(stream_id: str) -> StreamDefinition:
    """Return the definition of a stream of one row."""
    return StreamDefinition(
        stream_id, "static tables", _SCHEMA, CONNECTOR, "", {}, watermark=WatermarkOptions(max_future_us=None)
    )


class OneRowConnector:
    """One row, at the beginning of 1970."""

    problem: str | None = None

    def available(self, now_us: int) -> dict[str, Extent]:  # noqa: ARG002 - it is always there
        """Return the row."""
        return {_PARTITION: Extent(_FIRST, _ALL)}

    def bounds(self) -> dict[str, int]:
        """Return that nothing comes after the row."""
        return {_PARTITION: _ALL}

    def oldest(self) -> dict[str, int]:
        """Return the row."""
        return {_PARTITION: _FIRST}

    def read(self, partition: str, start: int, end: int) -> Iterator[Chunk]:  # noqa: ARG002 - there is one
        """Yield the row."""
        if start < end:
            rows = pa.RecordBatch.from_arrays([pa.array([0]).view(pa.timestamp("us"))], schema=_SCHEMA.arrow)
            yield Chunk(rows, (), time.time_ns() // 1000, rows.nbytes)
