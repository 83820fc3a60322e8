"""The comparison of rows, the check of late tuples, and the encoding of values, by example."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.kit.client import parse
from tests.oracle.compare import Pushed, check_late, check_window_order, match_rows
from tests.oracle.model import SECOND, Column, Kind, Row, StreamSchema
from tests.oracle.test_recompute import SCHEMA, at, purchase
from tests.oracle.wire import WireError, decode_row, decode_value, encode

OUTPUT = {"key": Kind.INT, "total": Kind.DOUBLE}


def test_rows_match_in_any_order_and_doubles_within_the_tolerance() -> None:
    expected: list[Row] = [{"key": 1, "total": 10.0}, {"key": 1, "total": 20.0}, {"key": None, "total": None}]
    actual: list[Row] = [
        {"key": None, "total": None},
        {"key": 1, "total": 20.0 + 1e-8},
        {"key": 1, "total": 10.0},
    ]
    assert match_rows(OUTPUT, expected, actual) is None


@pytest.mark.parametrize(
    "actual",
    [
        [{"key": 1, "total": 10.0}],
        [{"key": 1, "total": 10.0}, {"key": 1, "total": 10.0}, {"key": 1, "total": 10.0}],
        [{"key": 1, "total": 10.0}, {"key": 2, "total": 10.0}],
        [{"key": 1, "total": 10.0}, {"key": 1, "total": 10.0000001}],
        [{"key": 1, "total": 10.0}, {"key": 1, "total": None}],
    ],
    ids=["lost", "doubled", "other key", "other sum", "null sum"],
)
def test_rows_that_are_lost_doubled_or_changed_are_told(actual: list[Row]) -> None:
    expected: list[Row] = [{"key": 1, "total": 10.0}, {"key": 1, "total": 10.0}]
    complaint = match_rows(OUTPUT, expected, actual)
    assert complaint is not None
    assert "2 rows must come" in complaint
    assert match_rows(OUTPUT, actual, expected) is not None


def test_zero_is_not_close_to_a_rounding_error() -> None:
    assert match_rows(OUTPUT, [{"key": 1, "total": 0.0}], [{"key": 1, "total": 1e-13}]) is not None


def test_windows_must_come_in_order() -> None:
    first: Row = {"window_start": at(0), "window_end": at(4)}
    second: Row = {"window_start": at(4), "window_end": at(8)}
    assert check_window_order([first, first, second]) is None
    complaint = check_window_order([second, first])
    assert complaint is not None
    assert "row 1" in complaint


def test_late_tuples_that_the_contract_decides() -> None:
    # lateness 2 s: whatever the batches, the watermark is at most 8 s when the last three are looked at
    tuples = (purchase(0, 10), purchase(1, 8), purchase(2, 7.999999), purchase(3, 11))
    assert check_late(SCHEMA, [Pushed(tuples)], {2}) is None
    assert check_late(SCHEMA, [Pushed(tuples)], set()) is None  # all in one batch: nothing is late
    for never in (0, 1, 3):
        complaint = check_late(SCHEMA, [Pushed(tuples)], {never})
        assert complaint is not None
        assert "must not be late" in complaint
    after = [Pushed(tuples), Pushed((purchase(4, 8.999999), purchase(5, 9)), watermark_before=at(9))]
    assert check_late(SCHEMA, after, {4}) is None
    complaint = check_late(SCHEMA, after, set())
    assert complaint is not None
    assert "must be late" in complaint


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BIGINT, "9223372036854775807", 9223372036854775807),
        (Kind.DOUBLE, "5", 5.0),
        (Kind.DOUBLE, "0.1", 0.1),
        (Kind.DECIMAL, "12.30", Decimal("12.3")),
        (Kind.DECIMAL, '"12.30"', Decimal("12.3")),
        (Kind.DECIMAL, "0.1", Decimal("0.1")),
        (Kind.BOOLEAN, "false", False),
        (Kind.VARCHAR, '"漢"', "漢"),
        (Kind.DATE, '"2024-02-29"', dt.date(2024, 2, 29)),
        (Kind.TIMESTAMP, '"1970-01-01T00:00:00.500000Z"', at(0.5)),
        (Kind.INT, "null", None),
    ],
)
def test_values_are_decoded_exactly(kind: Kind, text: str, value: object) -> None:
    decoded = decode_value(kind, parse(text))
    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.BIGINT, "1.0"),
        (Kind.BIGINT, '"1"'),
        (Kind.BIGINT, "true"),
        (Kind.DOUBLE, '"1"'),
        (Kind.BOOLEAN, "1"),
        (Kind.DECIMAL, '"many"'),
        (Kind.DATE, '"29.02.2024"'),
        (Kind.TIMESTAMP, '"1970-01-01T00:00:00Z"'),
        (Kind.TIMESTAMP, '"1970-01-01 00:00:00.000000Z"'),
        (Kind.TIMESTAMP, '"1970-01-01T02:00:00.000000+02:00"'),
        (Kind.TIMESTAMP, "0"),
    ],
)
def test_values_of_another_form_are_refused(kind: Kind, text: str) -> None:
    with pytest.raises(WireError, match=r"expected|must be"):
        decode_value(kind, parse(text))


def test_a_row_must_have_exactly_its_columns() -> None:
    assert decode_row(OUTPUT, {"total": 1, "key": 2}) == {"key": 2, "total": 1.0}
    with pytest.raises(WireError, match="must have the columns"):
        decode_row(OUTPUT, {"key": 2})
    with pytest.raises(WireError, match="must have the columns"):
        decode_row(OUTPUT, {"key": 2, "total": 1, "_slot": 3})


def test_all_push_formats_carry_the_same_tuples() -> None:
    schema = StreamSchema(
        (
            Column("seq", Kind.BIGINT),
            Column("time", Kind.TIMESTAMP),
            Column("fee", Kind.DECIMAL),
            Column("day", Kind.DATE),
        ),
        "time",
        SECOND,
        at(0),
    )
    rows: list[Row] = [
        {"seq": 1, "time": at(1.5), "fee": Decimal("1.10"), "day": dt.date(2024, 2, 29)},
        {"seq": 2, "time": at(2), "fee": None, "day": None},
    ]
    assert json.loads(encode(schema, rows, "json")) == [
        {"seq": 1, "time": "1970-01-01T00:00:01.500000Z", "fee": 1.1, "day": "2024-02-29"},
        {"seq": 2, "time": "1970-01-01T00:00:02.000000", "fee": None, "day": None},
    ]
    lines = encode(schema, rows, "ndjson").decode().splitlines()
    assert [json.loads(line) for line in lines] == json.loads(encode(schema, rows, "json"))
    output = {column.name: column.kind for column in schema.columns}
    with pa.ipc.open_stream(encode(schema, rows, "arrow")) as reader:
        assert [decode_row(output, row) for row in reader.read_all().to_pylist()] == rows
