"""A stream whose tuples and malformed inputs tell their number: what the tests of the push log share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from braid.sources.connectors.connector import Chunk, Malformed
from braid.sources.connectors.push import PushConnector
from braid.sources.core.schema import BIGINT, TIMESTAMP, VARCHAR, Field, StreamDefinition, StreamSchema
from braid.sources.core.storage import Storage

SCHEMA = StreamSchema((Field("n", BIGINT), Field("s", VARCHAR), Field("time", TIMESTAMP)), "time", 0)
DEFINITION = StreamDefinition("s1", "pushed", SCHEMA, "push", "json")


def tuples(*numbers: int) -> pa.RecordBatch:
    """Make tuples that tell their number in two columns."""
    rows = [{"n": n, "s": f"text {n}", "time": n} for n in numbers]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA.arrow)


def bad(*numbers: int) -> list[Malformed]:
    """Make malformed inputs that tell their number."""
    return [Malformed(f"detail {n}", f"raw {n}") for n in numbers]


def everything(chunks: list[Chunk]) -> list[Any]:
    """Return what chunks hold in order of offsets: numbers of tuples, texts of malformed inputs."""
    return [item for c in chunks for item in (*c.tuples.column("n").to_pylist(), *(m.raw for m in c.malformed))]


def read(storage: Storage, start: int, end: int) -> list[Any]:
    """Read offsets with a new connector."""
    return everything(list(PushConnector(storage, DEFINITION).read("0", start, end)))


def folder_of(storage: Storage) -> Path:
    """Return where the segments are."""
    return storage.local_path("streams/s1/segments")
