"""Times as numbers and in patterns: in every format, value by value as column by column, and what is refused."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.evaluation import evaluate
from braid.operators.expressions import Column, Literal
from braid.operators.functions import call
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, TIMESTAMP, VARCHAR, Field, StreamSchema
from braid.sources.formats import decode
from braid.sources.formats.columns import convert_values
from braid.sources.formats.time_formats import EPOCHS, check_time_format, parse_time, times_of
from braid.sources.formats.time_patterns import read_pattern
from tests.kit.duck import connected
from tests.sources.formats.every_format import ARROW_FORMATS, FORMATS, JSON_FORMATS, NDJSON, Decode

EPOCH = datetime(1970, 1, 1)
TIME = datetime(2026, 2, 28, 1, 2, 3, 456789)
US = (TIME - EPOCH) // timedelta(microseconds=1)
PATTERNS = (
    "yyyy-MM-dd HH:mm:ss",
    "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dd.MM.yyyy HH:mm",
    "yyyyMMddHHmmssSSS",
    "d/M/yyyy h:mm:ss a",
    "EEE, dd MMM yyyy HH:mm:ss",
    "MMMM d, uuuu",
    "yyyy DDD",
    "yy-MM-dd",
    "'on' yyyy-MM-dd 'o''clock' H",
)


def schema_of(time_format: str) -> StreamSchema:
    schema = StreamSchema((Field("k", BIGINT), Field("t", TIMESTAMP)), "t", 0)
    return schema.with_time_format(check_time_format(time_format))


@pytest.mark.parametrize("decode", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("unit", EPOCHS)
def test_whole_numbers_since_1970(unit: str, decode: Decode) -> None:
    number = US * EPOCHS[unit] // 10**6
    decoded = decode([{"k": 1, "t": number}, {"k": 2, "t": None}, {"k": 3, "t": -1}], schema_of(unit))
    assert decoded.tuples.column("k").to_pylist() == [1, 3]
    with connected() as duck:
        query = "SELECT make_timestamp(?::BIGINT), make_timestamp(?::BIGINT)"
        expected = duck.execute(query, [number * 10**6 // EPOCHS[unit], -(10**6) // EPOCHS[unit]]).fetchone()
    assert tuple(decoded.tuples.column("t").to_pylist()) == expected
    assert "column 't' is the event time" in decoded.malformed[0].detail


@pytest.mark.parametrize("decode", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize(("unit", "number"), [("epoch-seconds", US / 1e6), ("epoch-millis", US / 1e3)])
def test_fractions_keep_microseconds(unit: str, number: float, decode: Decode) -> None:
    decoded = decode([{"k": 1, "t": number}, {"k": 2, "t": -0.5}], schema_of(unit))
    assert decoded.malformed == ()
    half = timedelta(seconds=0.5) * 1 / (1 if unit == "epoch-seconds" else 1000)
    assert decoded.tuples.column("t").to_pylist() == [TIME, EPOCH - half]


@pytest.mark.parametrize("decode", {**JSON_FORMATS, **ARROW_FORMATS}.values(), ids={**JSON_FORMATS, **ARROW_FORMATS})
def test_numbers_in_texts_are_numbers(decode: Decode) -> None:
    rows = [{"k": 1, "t": str(US // 1000)}, {"k": 2, "t": f"{US / 1000:.3f}"}, {"k": 3, "t": "soon"}]
    decoded = decode(rows, schema_of("epoch-millis"))
    assert decoded.tuples.column("t").to_pylist() == [TIME.replace(microsecond=456000), TIME]
    assert "must be a TIMESTAMP, got 'soon' (expected millis since 1970)" in decoded.malformed[0].detail


@pytest.mark.parametrize("decode", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("yyyy-MM-dd HH:mm:ss", "2026-02-28 01:02:03", TIME.replace(microsecond=0)),
        ("yyyy-MM-dd HH:mm:ss[.SSS]", "2026-02-28 01:02:03.456", TIME.replace(microsecond=456000)),
        ("yyyy-MM-dd HH:mm:ss[.SSS]", "2026-02-28 01:02:03", TIME.replace(microsecond=0)),
        ("dd/MMM/yyyy:HH:mm:ss Z", "28/Feb/2026:02:02:03 +0100", TIME.replace(microsecond=0)),
        ("M/d/yyyy h:mm a", "2/28/2026 1:02 PM", datetime(2026, 2, 28, 13, 2)),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSSSSSSSXXX", "2026-02-28T01:02:03.456789999Z", TIME),
        ("yyyyMMdd", "20260228", datetime(2026, 2, 28)),
    ],
)
def test_patterns(pattern: str, text: str, expected: datetime, decode: Decode) -> None:
    decoded = decode([{"k": 1, "t": text}, {"k": 2, "t": "28 February"}, {"k": 3, "t": text}], schema_of(pattern))
    assert decoded.tuples.column("t").to_pylist() == [expected, expected]
    (fault,) = decoded.malformed
    assert f"got '28 February' (expected a time in the pattern {pattern})" in fault.detail


@given(st.lists(st.datetimes(datetime(1970, 1, 1), datetime(2069, 12, 31)), min_size=1), st.sampled_from(PATTERNS))
def test_what_date_format_writes_is_read(times: list[datetime], pattern: str) -> None:
    written = call("date_format", Column("t", TIMESTAMP), Literal(pattern, VARCHAR))
    column = pa.array(times, pa.timestamp("us"))
    texts = evaluate(written, {"t": column}, len(times))
    field = Field("t", TIMESTAMP, time_format=pattern)
    read = convert_values(field, texts.to_pylist())
    assert not read.errors
    assert evaluate(written, {"t": read.values}, len(times)).equals(texts)
    at_once = times_of(texts, field)
    assert at_once is not None
    assert at_once.equals(read.values)


SPELLED = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-(10**12), 10**12),
    st.floats(-1e13, 1e13),
    st.sampled_from([math.inf, -0.0, 0.5, 1e300, None]),
)


@given(st.lists(SPELLED, min_size=1), st.sampled_from(list(EPOCHS)))
def test_columns_of_numbers_give_what_each_number_gives(values: list[int | float | None], unit: str) -> None:
    field = Field("t", TIMESTAMP, time_format=unit)
    column = convert_values(field, values)
    for i, value in enumerate(values):
        alone = convert_values(field, [value])
        assert alone.values[0].equals(column.values[i])
        assert (0 in alone.errors) == (i in column.errors)
        if isinstance(value, float) and math.isfinite(value):
            exact = convert_values(field, [Decimal(value)])
            assert exact.values.equals(alone.values)


@given(st.lists(st.text("0123456789-: ", min_size=17, max_size=20), min_size=1, max_size=4))
def test_no_text_is_read_at_once_that_is_none_alone(texts: list[str]) -> None:
    pattern = read_pattern("yyyy-MM-dd HH:mm:ss")
    at_once = pattern.parse_all(pa.array(texts))
    if at_once is not None:
        assert at_once.cast(pa.int64()).to_pylist() == [pattern.parse(text) for text in texts]


@pytest.mark.parametrize(
    "text",
    ["2026-02-29 00:00:00", "2026-13-01 00:00:00", "2026-00-01 00:00:00", "2026-01-00 00:00:00", "0000-01-01 00:00:00",
     "2026-01-01 24:00:00", "2026-01-01 00:60:00", "2026-01-01 00:00:60", "2026-01-01T00:00:00", "2026-01-01 00:00:0a"],
)  # fmt: skip
def test_texts_that_are_no_times(text: str) -> None:
    pattern = read_pattern("yyyy-MM-dd HH:mm:ss")
    assert pattern.parse_all(pa.array(["2026-01-01 00:00:00", text])) is None
    with pytest.raises(ValueError, match=r"pattern|must be in|hours end|day is out|year 0"):
        pattern.parse(text)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("%Y-%m-%d", "write the letters of Java: it has y, yyyy"),
        ("yyyy-MM-dd HH:mm:ss n", "has no 'n'; it has y, yyyy"),
        ("HH:mm:ss", "must have year, month and day"),
        ("yyyy-MM-dd hh:mm", "goes with a (AM or PM)"),
        ("yyyy-MM-dd yyyy", "has the year twice"),
        ("yyyy-MM-dd 'T", "must be closed"),
        ("yyyy-MM-dd [HH", "must be closed as they are opened"),
        ("yyyy-MM-dd]", "must be closed as they are opened"),
        ("epoch-days", "Times can be 'epoch-seconds'"),
        ("yyyy-MM-dd" + " " * 100, "at most 100 characters"),
    ],
)
def test_refused_formats(pattern: str, says: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        check_time_format(pattern)
    assert says in caught.value.detail


def test_rfc_3339_is_what_is_read_where_nothing_is_said() -> None:
    assert check_time_format("rfc3339") == check_time_format("RFC-3339") == check_time_format("ISO-8601") == ""
    assert check_time_format("EPOCH_MILLIS") == "epoch-millis"


@pytest.mark.parametrize(
    ("number", "unit"),
    [
        (1_700_000_000, "seconds"),
        (1_700_000_000_000, "millis"),
        (US, "micros"),
        (US * 1000, "nanos"),
        (1.7e9, "seconds"),
        ("1700000000000", "millis"),
    ],
)
def test_numbers_that_are_not_declared_are_refused_with_the_option_to_write(number: Any, unit: str) -> None:
    with pytest.raises(ValueError, match=f"'timestamp.format' = 'epoch-{unit}'"):
        parse_time(number, "")


def test_a_time_with_a_zone_in_a_column_of_arrow_needs_no_format() -> None:
    table = pa.table({"k": [1], "t": pa.array([TIME.replace(tzinfo=UTC)])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    for time_format in ("epoch-seconds", "yyyy-MM-dd"):
        body = sink.getvalue().to_pybytes()
        decoded = decode(body, "application/vnd.apache.arrow.stream", schema_of(time_format))
        assert decoded.tuples.column("t").to_pylist() == [TIME]


def test_columns_keep_their_format() -> None:
    schema = schema_of("epoch-millis")
    assert StreamSchema.from_json(schema.to_json()) == schema
    assert [f.describe().get("time_format") for f in schema.fields] == [None, "epoch-millis"]
    assert decode(b'{"k": 1, "t": 0.5}', NDJSON, schema).tuples.column("t").to_pylist() == [
        EPOCH + timedelta(microseconds=500)
    ]
