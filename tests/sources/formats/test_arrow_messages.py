"""Arrow streams message by message: every row knows its message, and no bytes are fatal."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.sources.core.schema import INT, TIMESTAMP, Field, StreamSchema
from braid.sources.formats.arrow_messages import decode_arrow_messages, unpacked_bytes

SCHEMA = StreamSchema((Field("k", INT), Field("t", TIMESTAMP)), "t", 0)


def stream_of(rows: list[dict[str, Any]]) -> bytes:
    """Return rows as an Arrow IPC stream; ``t`` is microseconds."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us"))])
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
    return sink.getvalue().to_pybytes()


GOOD = stream_of([{"k": 1, "t": 10}, {"k": 2, "t": 20}])


def test_rows_of_many_messages() -> None:
    values = [GOOD, None, stream_of([]), b"x", stream_of([{"k": 3, "t": 5}, {"k": 4, "t": None}]), GOOD]
    decoded = decode_arrow_messages(values, SCHEMA)
    assert decoded.tuples.column("k").to_pylist() == [1, 2, 3, 1, 2]
    assert decoded.origins_of(len(values)).tolist() == [0, 0, 4, 5, 5]
    assert [fault.line for fault in decoded.malformed] == [2, 4, 5]
    assert "must be an Arrow IPC stream" in decoded.malformed[1].detail
    assert decoded.malformed[1].raw == "eA=="
    assert decoded.malformed[2].detail.startswith("line 5, row 2: column 't' is the event time")


def test_a_message_says_what_it_takes_before_it_is_decoded() -> None:
    assert unpacked_bytes(stream_of([{"k": i, "t": i} for i in range(1000)]), SCHEMA) == 1000 * (8 + 8 + 4 + 8)
    assert unpacked_bytes(b"garbage", SCHEMA) == 7
    assert unpacked_bytes(None, SCHEMA) == 0


def test_a_message_that_brings_too_much_is_malformed_alone() -> None:
    sink = pa.BufferOutputStream()
    many = pa.record_batch({"other": pa.nulls(10_000_000)})
    with pa.ipc.new_stream(sink, many.schema) as writer:
        writer.write_batch(many)
    decoded = decode_arrow_messages([GOOD, sink.getvalue().to_pybytes(), GOOD], SCHEMA)
    assert decoded.tuples.column("k").to_pylist() == [1, 2, 1, 2]
    (fault,) = decoded.malformed
    assert fault.detail.startswith("line 2: A message must have at most 2000000 rows, got 10000000")


def test_nothing_readable_is_no_tuples() -> None:
    decoded = decode_arrow_messages([b"", None], SCHEMA)
    assert decoded.tuples.num_rows == 0
    assert decoded.tuples.schema == SCHEMA.arrow
    assert len(decoded.malformed) == 2


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=4), st.binary(max_size=20))
def test_no_bytes_are_fatal(at: int, patch: bytes, noise: bytes) -> None:
    values = [GOOD, GOOD[:at] + patch + GOOD[at + len(patch) :], noise, GOOD[:at], GOOD]
    decoded = decode_arrow_messages(values, SCHEMA)
    assert decoded.tuples.num_rows == len(decoded.origins_of(len(values)))
    assert decoded.tuples.column("k").to_pylist()[:2] == decoded.tuples.column("k").to_pylist()[-2:] == [1, 2]
