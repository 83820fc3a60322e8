"""Messages that come one by one, each an Arrow IPC stream with any number of tuples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from braid.sources.core.errors import MalformedRequest, TooLarge
from braid.sources.core.schema import Schema
from braid.sources.formats.arrow_metadata import check_stream
from braid.sources.formats.arrow_stream import decode_arrow_stream
from braid.sources.formats.binary import show_bytes
from braid.sources.formats.decoded import Decoded, MalformedLine, row_bytes
from braid.sources.formats.limits import MESSAGE


def unpacked_bytes(value: bytes | None, schema: Schema) -> int:
    """Return about how many bytes a stream takes once it is decoded; those that it has where it cannot be read."""
    try:
        rows, size = check_stream(value or b"", MESSAGE)
    except Exception:  # what garbage makes the library raise is not documented
        return len(value or b"")
    return size + rows * row_bytes(schema)


def decode_arrow_messages(values: Sequence[bytes | None], schema: Schema) -> Decoded:
    """Decode streams; they are numbered from 1. One that cannot be read is malformed as a whole, else rows alone."""
    batches: list[pa.RecordBatch] = []
    malformed: list[MalformedLine] = []
    counts = np.zeros(len(values), dtype=np.int64)
    for i, value in enumerate(values):
        number = i + 1
        if value is None:
            malformed.append(MalformedLine(number, f"line {number} must be an Arrow IPC stream, got no value", ""))
            continue
        try:
            decoded = decode_arrow_stream(value, schema, MESSAGE)
        except (MalformedRequest, TooLarge) as problem:
            malformed.append(MalformedLine(number, f"line {number}: {problem.detail}", show_bytes(value)))
            continue
        malformed += [MalformedLine(number, f"line {number}, {fault.detail}", fault.raw) for fault in decoded.malformed]
        batches.append(decoded.tuples)
        counts[i] = decoded.tuples.num_rows
    tuples = pa.concat_batches([pa.RecordBatch.from_pylist([], schema=schema.arrow), *batches])
    return Decoded(tuples, tuple(malformed), np.repeat(np.arange(len(values)), counts))
