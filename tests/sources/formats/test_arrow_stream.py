"""Arrow bodies: casts that keep values, rows and columns that do not fit, and bytes that are no stream."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.sources.core.errors import MalformedRequest, ServiceError, TooLarge
from braid.sources.core.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    TIMESTAMP,
    VARCHAR,
    ColumnType,
    Field,
    StreamSchema,
)
from braid.sources.formats import Decoded, decode
from braid.sources.formats.arrow_metadata import MAX_BATCHES
from braid.sources.formats.arrow_stream import ROWS_AT_ONCE
from braid.sources.formats.coercion import UnfitError, coerce
from braid.sources.formats.limits import BODY, DecodingLimits
from tests.kit.examples import examples

ARROW = "application/vnd.apache.arrow.stream"
SCHEMA = StreamSchema(
    (
        Field("b", BOOLEAN),
        Field("i", INT),
        Field("n", BIGINT),
        Field("d", DOUBLE),
        Field("m", ColumnType("DECIMAL", 6, 2)),
        Field("s", VARCHAR),
        Field("day", DATE),
        Field("time", TIMESTAMP),
    ),
    "time",
    0,
)
NOON = datetime(2024, 1, 31, 12, 0, 0, 123456)
TIMES = pa.array([NOON, NOON], pa.timestamp("us"))


def to_body(columns: dict[str, Any], **options: Any) -> bytes:
    """Write columns as an Arrow IPC stream."""
    batch = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def decoded(**columns: Any) -> Decoded:
    """Decode two rows that have good times and these columns."""
    return decode(to_body({"time": TIMES, **columns}), ARROW, SCHEMA)


@pytest.mark.parametrize(
    ("name", "given_array", "expected"),
    [
        ("b", pa.array([True, None]), [True, None]),
        ("i", pa.array([1, 2], pa.int8()), [1, 2]),
        ("i", pa.array([1, 2], pa.uint64()), [1, 2]),
        ("i", pa.nulls(2), [None, None]),
        ("i", pa.array([517.0, None]), [517, None]),
        ("i", pa.array([np.nan, -0.0], pa.float32()), [None, 0]),
        ("i", pa.array([Decimal("5"), Decimal("-7")], pa.decimal128(38, 0)), [5, -7]),
        ("n", pa.array([Decimal("5.00"), None], pa.decimal128(12, 2)), [5, None]),
        ("n", pa.array([2.0**62, -(2.0**63)]), [2**62, -(2**63)]),
        ("d", pa.array([1, np.nan]), [1.0, None]),
        ("m", pa.array([np.nan, 1.0]), [None, Decimal(1)]),
        ("n", pa.array([1, None], pa.int32()), [1, None]),
        ("d", pa.array([0.5, None], pa.float32()), [0.5, None]),
        ("d", pa.array([0.5, 2.0], pa.float16()), [0.5, 2.0]),
        ("d", pa.array([2**53 + 1, 1], pa.int64()), [2.0**53, 1.0]),
        ("m", pa.array([Decimal("1.5"), None], pa.decimal128(10, 4)), [Decimal("1.50"), None]),
        ("m", pa.array([7, 8], pa.int8()), [Decimal(7), Decimal(8)]),
        ("m", pa.array([0.25, 1.0]), [Decimal("0.25"), Decimal(1)]),
        ("m", pa.array(["0.25", "1e1"]), [Decimal("0.25"), Decimal(10)]),
        ("s", pa.array(["x", "y"], pa.large_string()), ["x", "y"]),
        ("s", pa.array(["x", "x"]).dictionary_encode(), ["x", "x"]),
        ("s", pa.array(["x", None], pa.large_string()).dictionary_encode(), ["x", None]),
        ("day", pa.array([date(2024, 1, 31), None], pa.date64()), [date(2024, 1, 31), None]),
        ("day", pa.array(["2024-01-31", None]), [date(2024, 1, 31), None]),
        ("time", pa.array([NOON, NOON]).cast(pa.timestamp("ns")), [NOON, NOON]),
        (
            "time",
            pa.array([1, -1], pa.timestamp("s")),
            [datetime(1970, 1, 1, 0, 0, 1), datetime(1969, 12, 31, 23, 59, 59)],
        ),
        (
            "time",
            pa.array([NOON.replace(tzinfo=timezone(timedelta(hours=1)))] * 2, pa.timestamp("ms", "+01:00")),
            [datetime(2024, 1, 31, 11, 0, 0, 123000)] * 2,
        ),
        (
            "time",
            pa.array([1, 1], pa.int64()).view(pa.timestamp("us", "No/Where")),
            [datetime(1970, 1, 1, 0, 0, 0, 1)] * 2,
        ),
        ("time", pa.array(["2024-01-31T12:00:00.123456Z"] * 2), [NOON, NOON]),
    ],
)
def test_columns_are_cast_without_changing_a_value(name: str, given_array: pa.Array, expected: list[Any]) -> None:
    result = decoded(**{name: given_array})
    assert result.malformed == ()
    assert result.tuples.schema == SCHEMA.arrow
    assert result.tuples.column(name).to_pylist() == expected


@pytest.mark.parametrize(
    ("name", "given_array", "part"),
    [
        ("i", pa.array([1, 2**31]), "row 2: column 'i' must be an INT, got 2147483648 (it must lie in"),
        (
            "n",
            pa.array([1, 2**63], pa.uint64()),
            "row 2: column 'n' must be a BIGINT, got 9223372036854775808",
        ),
        ("i", pa.array([517.0, 517.5]), "row 2: column 'i' must be an INT, got 517.5 (it must be whole"),
        ("i", pa.array([1, 2.0**31]), "row 2: column 'i' must be an INT, got 2147483648.0"),
        ("n", pa.array([1, 2.0**63]), "row 2: column 'n' must be a BIGINT, got 9.22337203685477"),
        ("n", pa.array([1, np.inf]), "row 2: column 'n' must be a BIGINT, got inf"),
        ("n", pa.array([Decimal("5.00"), Decimal("5.25")]), "row 2: column 'n' must be a BIGINT, got 5.25 (it must be"),
        ("d", pa.array([1, np.inf]), "row 2: column 'd' must be a DOUBLE, got inf"),
        (
            "m",
            pa.array([Decimal(1), Decimal("0.001")]),
            "row 2: column 'm' must be a DECIMAL(6,2), got 0.001",
        ),
        ("m", pa.array([1.0, np.inf]), "row 2: column 'm' must be a DECIMAL(6,2), got inf"),
        ("time", pa.array([NOON, None]), "row 2: column 'time' is the event time and must not be NULL"),
        (
            "time",
            pa.array([0, 2**62], pa.timestamp("s")),
            "row 2: column 'time' must be a TIMESTAMP of the years 1 to 9999, got",
        ),
        (
            "time",
            pa.array([0, -(2**63)], pa.timestamp("us")),
            "row 2: column 'time' must be a TIMESTAMP of the years 1 to 9999, got",
        ),
        (
            "day",
            pa.array([0, 2**31 - 1], pa.int32()).view(pa.date32()),
            "row 2: column 'day' must be a DATE of the years",
        ),
        (
            "day",
            pa.array([0, 86_400_000 * 10**8], pa.int64()).view(pa.date64()),
            "row 2: column 'day' must be a DATE",
        ),
    ],
)
def test_values_that_do_not_fit_make_their_row_malformed(name: str, given_array: pa.Array, part: str) -> None:
    result = decoded(**{name: given_array})
    assert result.tuples.num_rows == 1
    (malformed,) = result.malformed
    assert malformed.line == 2
    assert malformed.detail.startswith(part)
    assert set(orjson.loads(malformed.raw)) == {name, "time"}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(2), pa.dictionary(pa.int8(), pa.binary())])
def test_bytes_are_texts_in_base_64(kind: pa.DataType) -> None:
    result = decoded(s=pa.array([b"\xff\x00", None], kind), time=TIMES)
    assert result.tuples.column("s").to_pylist() == ["/wA=", None]


@pytest.mark.parametrize(
    ("name", "given_array"),
    [
        ("i", pa.array([True, False])),
        ("m", pa.array([Decimal(100), None], pa.decimal128(3, -2))),
        ("i", pa.array(["1", "2"])),
        ("b", pa.array([1, 0])),
        ("s", pa.array([1, 2])),
        ("s", pa.array([["a"], ["b"]])),
        ("d", pa.array([{"x": 1}, None])),
        ("time", pa.array([1, 2])),
        ("time", pa.array([date(2024, 1, 1)] * 2)),
        ("i", pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([1], pa.int32()))),
        ("s", pa.array([b"a", b"b"], pa.binary_view())),
        ("s", pa.array(["{}", None], pa.json_())),
        ("s", pa.array([b"0" * 16, None], pa.uuid())),
        ("b", pa.array([1, None], pa.bool8())),
        ("n", pa.array([1, 2], pa.duration("s"))),
        ("n", pa.array([[1], [2]], pa.list_view(pa.int64()))),
        ("n", pa.array([[1, 2], None], pa.list_(pa.int64(), 2))),
        ("s", pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64()))),
        ("n", pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])),
        ("n", pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array([1, 2])])),
    ],
)
def test_a_column_of_another_type_refuses_the_body(name: str, given_array: pa.Array) -> None:
    with pytest.raises(MalformedRequest, match=f"Column '{name}' must be castable to .*, got Arrow type "):
        decoded(**{name: given_array})


def test_columns_match_by_name_and_others_are_ignored() -> None:
    result = decoded(I=pa.array([1, 2]), other=pa.array([{"deep": [1]}, None]))
    assert result.tuples.column("i").to_pylist() == [1, 2]
    assert result.tuples.column("n").to_pylist() == [None, None]
    twice = pa.RecordBatch.from_arrays([TIMES, TIMES], names=["time", "time"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, twice.schema) as writer:
        writer.write_batch(twice)
    with pytest.raises(MalformedRequest, match="must have column 'time' once, got it 2 times"):
        decode(sink.getvalue().to_pybytes(), ARROW, SCHEMA)


def test_without_the_event_time_every_row_is_malformed() -> None:
    result = decode(to_body({"i": pa.array([1, 2])}), ARROW, SCHEMA)
    assert result.tuples.num_rows == 0
    assert [m.raw for m in result.malformed] == ['{"i":1}', '{"i":2}']


def test_several_batches_and_none() -> None:
    batch = pa.record_batch({"time": TIMES, "s": pa.array(["a", "b"]).dictionary_encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(3):
            writer.write_batch(batch)
    assert decode(sink.getvalue().to_pybytes(), ARROW, SCHEMA).tuples.column("s").to_pylist() == ["a", "b"] * 3
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, batch.schema).close()
    assert decode(sink.getvalue().to_pybytes(), ARROW, SCHEMA).tuples.num_rows == 0


def test_a_body_with_bytes_after_its_stream_is_refused() -> None:
    body = to_body({"time": TIMES})
    for extra in (body, b"garbage!"):
        with pytest.raises(MalformedRequest, match=f"ends at byte {len(body)} of {len(body + extra)}"):
            decode(body + extra, ARROW, SCHEMA)


def test_texts_may_be_views() -> None:
    body = to_body({"time": TIMES, "s": pa.array(["a", "b" * 50], pa.string_view())})
    assert decode(body, ARROW, SCHEMA).tuples.column("s").to_pylist() == ["a", "b" * 50]


def test_rows_that_nobody_sent_are_refused() -> None:
    most = BODY.rows
    with pytest.raises(TooLarge, match=rf"at most {most} rows \(setting max_body_rows\)"):
        decode(to_body({"x": pa.nulls(most + 1)}), ARROW, SCHEMA)
    endless = to_body({"x": pa.nulls(most)}).replace(most.to_bytes(8, "little"), (2**60).to_bytes(8, "little"))
    with pytest.raises(TooLarge, match=f"at most {most} rows"):
        decode(endless, ARROW, SCHEMA)


def test_more_malformed_rows_than_may_be_refuse_the_body() -> None:
    with pytest.raises(MalformedRequest, match=r"10000 malformed rows \(setting max_body_malformed\).*row 1: column"):
        decode(to_body({"x": pa.nulls(BODY.rows)}), ARROW, SCHEMA)


def test_a_column_that_unpacks_to_much_is_refused() -> None:
    swollen = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), pa.array(["x" * 100_000]))
    with pytest.raises(TooLarge, match="column 's' would take 10000000000"):
        decode(to_body({"s": swollen}), ARROW, SCHEMA)
    views = np.frombuffer(b"".join(struct.pack("<i4sii", 100_000, b"xxxx", 0, 0) for _ in range(100_000)), np.uint8)
    shared = pa.Array.from_buffers(pa.string_view(), 100_000, [None, pa.py_buffer(views), pa.py_buffer(b"x" * 100_000)])
    with pytest.raises(TooLarge, match="column 's' would take 10000000000"):
        decode(to_body({"s": shared}), ARROW, SCHEMA)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("name", ["n", "other"])
def test_a_packed_body_is_refused_before_it_is_unpacked(compression: str, name: str) -> None:
    body = to_body({name: pa.array(np.zeros(1_000_000, np.int64))}, compression=compression)
    swollen = body.replace((8_000_000).to_bytes(8, "little"), (2**50).to_bytes(8, "little"))
    assert swollen != body
    with pytest.raises(TooLarge, match=rf"at most {BODY.unpacked_bytes} bytes \(setting max_body_unp"):
        decode(swollen, ARROW, SCHEMA)


def test_bytes_that_several_columns_share_count_for_each() -> None:
    limits = DecodingLimits(unpacked_bytes=1000)
    names = ("b", "i", "n", "d", "m", "s", "day")
    body = to_body({name: pa.array(["x" * 100]) for name in names})
    with pytest.raises(TooLarge, match="at most 500 bytes"):
        decode(body, ARROW, SCHEMA, replace(limits, unpacked_bytes=500))


def test_rows_that_are_wider_as_columns_of_the_stream_are_counted() -> None:
    body = to_body({"time": pa.array(np.zeros(1000, np.int64)).view(pa.timestamp("us"))})
    with pytest.raises(TooLarge, match="at most 20000 bytes"):
        decode(body, ARROW, SCHEMA, DecodingLimits(unpacked_bytes=20_000))


def test_columns_that_a_body_lacks_are_counted_before_they_are_made() -> None:
    wide = StreamSchema((*(Field(f"c{i}", BIGINT) for i in range(1000)), Field("time", TIMESTAMP)), "time", 0)
    times = pa.array(np.zeros(1_000_000, np.int64)).view(pa.timestamp("us"))
    with pytest.raises(TooLarge, match="the columns of the stream would take 8008000000"):
        decode(to_body({"time": times}, compression="zstd"), ARROW, wide)
    with pytest.raises(TooLarge, match="the columns of the stream would take 8008000000"):
        decode(b"{}\n" * 1_000_000, "application/x-ndjson", wide)


def test_a_null_of_a_view_may_hide_anything() -> None:
    views = struct.pack("<iiii", -65536, 0, 0, 0) + struct.pack("<i12s", 1, b"a")
    hidden = pa.Array.from_buffers(pa.string_view(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(views)])
    assert decoded(s=hidden).tuples.column("s").to_pylist() == [None, "a"]
    as_dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), hidden)
    assert decoded(s=as_dictionary).tuples.column("s").to_pylist() == [None, "a"]
    with pytest.raises(MalformedRequest, match="Column 's' of the Arrow stream is corrupt"):
        decoded(s=pa.Array.from_buffers(pa.string_view(), 2, [None, pa.py_buffer(views)]))


def test_dictionaries_come_as_a_whole() -> None:
    sink = pa.BufferOutputStream()
    batches = [pa.record_batch({"s": pa.array(texts).dictionary_encode()}) for texts in (["a"], ["a", "b"])]
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    with pytest.raises(MalformedRequest, match="must come as a whole, got one in pieces"):
        decode(sink.getvalue().to_pybytes(), ARROW, SCHEMA)


@pytest.mark.parametrize("last", [7, 2**40])
def test_many_rows_are_decoded_as_few_are(last: int) -> None:
    rows = 2 * ROWS_AT_ONCE + 5
    numbers = pa.array([*range(rows - 1), last])
    times = numbers.cast(pa.int64()).view(pa.timestamp("us"))
    texts = (["a", "b", "c"] * 50_000)[:rows]
    body = to_body({"time": times, "i": numbers, "m": pa.array([0.25] * rows), "s": pa.array(texts)})
    result = decode(body, ARROW, SCHEMA)
    fitting = rows if last == 7 else rows - 1
    assert [fault.line for fault in result.malformed] == [rows] * (rows - fitting)
    assert result.tuples.column("i").to_pylist() == numbers.to_pylist()[:fitting]
    assert result.tuples.column("s").to_pylist() == texts[:fitting]
    assert set(result.tuples.column("m").to_pylist()) == {Decimal("0.25")}


def test_a_stream_of_very_many_batches_is_refused() -> None:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"s": pa.array([], pa.string())})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(MAX_BATCHES + 1):
            writer.write_batch(batch)
    with pytest.raises(TooLarge, match=f"at most {MAX_BATCHES} batches"):
        decode(sink.getvalue().to_pybytes(), ARROW, SCHEMA)


def test_a_dictionary_counts_with_each_batch_that_uses_it() -> None:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"s": pa.array(["x" * 1000]).dictionary_encode()})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(20):
            writer.write_batch(batch)
    with pytest.raises(TooLarge, match="at most 10000 bytes"):
        decode(sink.getvalue().to_pybytes(), ARROW, SCHEMA, DecodingLimits(unpacked_bytes=10_000))


def test_columns_that_the_stream_does_not_have_are_not_built() -> None:
    body = to_body({"time": TIMES, "s": pa.array(["a", "b"]), "other": pa.array([["x"], ["y"]])})
    broken = body.replace(struct.pack("<iii", 0, 1, 2), struct.pack("<iii", 0, 1, 1 << 30))
    assert decode(body, ARROW, SCHEMA).tuples.column("s").to_pylist() == ["a", "b"]
    with pytest.raises(MalformedRequest, match="'s' of the Arrow stream is corrupt"):
        decode(broken, ARROW, SCHEMA)
    without = StreamSchema((Field("time", TIMESTAMP),), "time", 0)
    assert decode(broken, ARROW, without).tuples.num_rows == 2


def test_numbers_of_the_other_end_are_refused() -> None:
    body = bytearray(to_body({"time": TIMES}))
    message = 8 + struct.unpack_from("<I", body, 8)[0]
    fields = message - struct.unpack_from("<i", body, message)[0]
    header = message + struct.unpack_from("<H", body, fields + 8)[0]
    schema = header + struct.unpack_from("<I", body, header)[0]
    places = schema - struct.unpack_from("<i", body, schema)[0]
    assert struct.unpack_from("<H", body, places + 4)[0] == 0  # left out: little-endian
    struct.pack_into("<H", body, places + 4, 4)
    with pytest.raises(MalformedRequest, match="must be little-endian"):
        decode(bytes(body), ARROW, SCHEMA)


GOOD = to_body(
    {
        "time": TIMES,
        "i": pa.array([1, 2]),
        "d": pa.array([1.5, None]),
        "s": pa.array(["x", "yy"]).dictionary_encode(),
        "m": pa.array([Decimal("1.5"), None]),
    }
)
WIDE = to_body(
    {
        "time": pa.array([1, None], pa.timestamp("ns", "Europe/Berlin")),
        "b": pa.array([True, None]),
        "n": pa.array([1, 2], pa.uint32()).dictionary_encode(),
        "d": pa.array([1, 2], pa.float16()),
        "m": pa.array([Decimal(1), None], pa.decimal256(50, 10)),
        "s": pa.array(["x", "yy"], pa.large_string()),
        "day": pa.array([date(2024, 1, 31), None], pa.date64()),
        "list": pa.array([["a"], None]),
        "struct": pa.array([{"a": 1}, None]),
        "view": pa.array(["x", None], pa.string_view()),
        "run": pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([1], pa.int32())),
    }
)
PACKED = to_body({"time": TIMES, "s": pa.array(["x" * 99, None])}, compression="zstd")


def survives(body: bytes) -> None:
    """Decode and check that the outcome is one of the allowed ones."""
    try:
        result = decode(body, ARROW, SCHEMA)
    except ServiceError:
        return
    result.tuples.validate(full=True)
    assert result.tuples.column("time").null_count == 0
    for malformed in result.malformed:
        (malformed.detail + malformed.raw).encode()


@pytest.mark.parametrize("body", [GOOD, PACKED, WIDE])
def test_a_body_cut_off_anywhere_is_refused_or_read(body: bytes) -> None:
    for end in range(len(body)):
        survives(body[:end])
    with pytest.raises(MalformedRequest, match="The body must be an Arrow IPC stream"):
        decode(body[: len(body) // 2], ARROW, SCHEMA)
    with pytest.raises(MalformedRequest, match="The body must be an Arrow IPC stream"):
        decode(b"", ARROW, SCHEMA)


@settings(max_examples=examples(400), deadline=None)
@given(
    st.sampled_from([GOOD, PACKED, WIDE]),
    st.lists(
        st.tuples(st.integers(0, 10_000), st.sampled_from([0, 1, 2, 127, 128, 255]) | st.integers(0, 255)),
        max_size=4,
    ),
)
def test_damaged_bodies_raise_nothing_but_braid_errors(body: bytes, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(body)
    for position, byte in changes:
        damaged[position % len(damaged)] = byte
    survives(bytes(damaged))


@given(st.binary())
def test_garbage_raises_nothing_but_braid_errors(body: bytes) -> None:
    survives(body)


@given(
    st.sampled_from(["i", "n", "d", "m", "s"]),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1))
    | st.lists(st.none() | st.floats())
    | st.lists(st.none() | st.decimals(-(10**6), 10**6, places=3))
    | st.lists(st.none() | st.text()),
)
def test_arrow_columns_follow_the_rules_of_json(name: str, values: list[Any]) -> None:
    field = SCHEMA.field(name)
    array = pa.array(values)
    body = to_body({"time": pa.array([NOON] * len(values), pa.timestamp("us")), name: array})
    try:
        result = decode(body, ARROW, SCHEMA)
    except MalformedRequest:
        assert not types_fit(name, array.type)
        return
    expected, wrong = [], []
    for i, value in enumerate(values):
        exact: Any = value
        if isinstance(value, float) and np.isfinite(value) and name != "d":
            exact = Decimal(repr(value)) if name == "m" else Decimal(value)
        try:
            expected.append(None if value != value else coerce(exact, field.type))  # NaN is NULL
        except UnfitError:
            wrong.append(i + 1)
    assert result.tuples.column(name).equals(pa.array(expected, field.type.arrow))
    assert [m.line for m in result.malformed] == wrong


def types_fit(name: str, given_type: pa.DataType) -> bool:
    """Whether a column of this Arrow type may go into column ``name``."""
    if pa.types.is_null(given_type):
        return True
    if pa.types.is_string(given_type):
        return name in ("s", "m")
    return name != "s"
