"""The coercion rules, value by value, and that whole columns give the same."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.sources.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, TIMESTAMP, VARCHAR, ColumnType, Field
from braid.sources.formats.coercion import UnfitError, coerce, complaint
from braid.sources.formats.columns import convert_values

DECIMAL = ColumnType("DECIMAL", 5, 2)
TYPES = [BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL, VARCHAR, DATE, TIMESTAMP]


@pytest.mark.parametrize(
    ("column_type", "value", "expected"),
    [
        (BOOLEAN, True, True),
        (INT, -(2**31), -(2**31)),
        (INT, 517.0, 517),
        (INT, -0.0, 0),
        (BIGINT, Decimal("5"), 5),
        (BIGINT, Decimal("51.7e1"), 517),
        (BIGINT, Decimal("9223372036854775807.0"), 2**63 - 1),
        (BIGINT, 2.0**53 - 1, 2**53 - 1),
        (BIGINT, 2**63 - 1, 2**63 - 1),
        (DOUBLE, 5, 5.0),
        (DOUBLE, Decimal("0.1"), 0.1),
        (DECIMAL, 999, Decimal("999.00")),
        (DECIMAL, "-12.30", Decimal("-12.30")),
        (DECIMAL, "1e2", Decimal("100.00")),
        (DECIMAL, Decimal("1.2300"), Decimal("1.23")),
        (VARCHAR, "", ""),
        (DATE, "1970-01-02", 1),
        (DATE, "0001-01-01", -719_162),
        (TIMESTAMP, "1970-01-01T00:00:01Z", 1_000_000),
        (TIMESTAMP, "1970-01-01 00:00:01", 1_000_000),
        (TIMESTAMP, "1970-01-01t00:00:00.5z", 500_000),
        (TIMESTAMP, "1970-01-01T01:00:00.000001+01:00", 1),
        (TIMESTAMP, "1969-12-31T23:59:59.9999999Z", -1),
        (TIMESTAMP, "9999-12-31T23:59:59.999999999Z", 253_402_300_799_999_999),
    ],
)
def test_values_that_fit(column_type: ColumnType, value: Any, expected: Any) -> None:
    assert coerce(value, column_type) == expected


@pytest.mark.parametrize(
    ("column_type", "value"),
    [
        (BOOLEAN, 1),
        (BOOLEAN, "true"),
        (INT, 517.5),
        (INT, 2.0**31),
        (INT, Decimal("1e-9")),
        (INT, True),
        (INT, "5"),
        (INT, 2**31),
        (BIGINT, 2**63),
        (BIGINT, Decimal("9223372036854775808.0")),
        (BIGINT, Decimal("1e999999")),
        (BIGINT, 2.0**53),
        (DOUBLE, "5"),
        (DOUBLE, True),
        (DOUBLE, float("inf")),
        (DOUBLE, 10**400),
        (DECIMAL, "1000"),
        (DECIMAL, Decimal("0.001")),
        (DECIMAL, Decimal("1e999999")),
        (DECIMAL, "1e99999999999999999999"),
        (DECIMAL, "NaN"),
        (DECIMAL, " 1"),
        (DECIMAL, "1_0"),
        (DECIMAL, "٣"),
        (VARCHAR, 5),
        (VARCHAR, "\ud800"),
        (DATE, "2024-02-30"),
        (DATE, "0000-01-01"),
        (DATE, "2024-1-1"),
        (DATE, 20240101),
        (TIMESTAMP, "2024-01-01"),
        (TIMESTAMP, "2024-01-01T00:00Z"),
        (TIMESTAMP, "2024-01-01T00+00:00"),
        (TIMESTAMP, "2024-01-01T00:00:00."),
        (TIMESTAMP, "2024-01-01T24:00:00"),
        (TIMESTAMP, "2024-01-01T00:00:60Z"),
        (TIMESTAMP, "2024-01-01T00:00:00+24:00"),
        (TIMESTAMP, "0001-01-01T00:00:00+00:01"),
        (TIMESTAMP, "9999-12-31T23:59:59-00:01"),
        (TIMESTAMP, "٢٠٢٤-01-01T00:00:00Z"),
        (TIMESTAMP, 1_700_000_000),
    ],
)
def test_values_that_do_not_fit(column_type: ColumnType, value: Any) -> None:
    with pytest.raises(UnfitError):
        coerce(value, column_type)


def test_messages_name_the_column_its_type_and_the_value() -> None:
    assert complaint("price", DOUBLE, "abc", "") == "column 'price' must be a DOUBLE, got 'abc'"
    assert complaint("price", DOUBLE, "NULL", "").endswith("got 'NULL' (NULL is an empty field in CSV, null in JSON)")
    assert complaint("n", INT, True, "why") == "column 'n' must be an INT, got true (why)"
    assert complaint("n", INT, {"a": 1}, "").endswith("got an object")
    assert len(complaint("n", INT, "x" * 10_000, "")) < 200


def timestamp_texts() -> st.SearchStrategy[str]:
    """Texts in, near and far from the forms of a timestamp."""
    digits = st.integers(0, 9999).map(lambda n: f"{n:04d}")
    two = st.integers(0, 61).map(lambda n: f"{n:02d}")
    month = st.integers(0, 13).map(lambda n: f"{n:02d}")
    fraction = st.sampled_from(["", ".", ".5", ".123456", ".1234567", ".000000999"])
    zone = st.sampled_from(["", "Z", "z", "+01:00", "-0130", "+01", "+1", "+24:00", "-00:60", " Z", "Zulu"])
    seconds = st.one_of(two.map(lambda s: f":{s}"), st.just(""))
    return st.builds(
        lambda y, m, d, sep, h, mi, s, f, z: f"{y}-{m}-{d}{sep}{h}:{mi}{s}{f}{z}",
        *(digits, month, two, st.sampled_from(["T", " ", "t", "_"]), two, two, seconds, fraction, zone),
    )


def good_timestamp_texts() -> st.SearchStrategy[str]:
    """Timestamps of one form, so that the quick way takes them."""
    return st.datetimes().map(lambda t: t.isoformat(timespec="microseconds") + "Z")


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**31), 2**31),
    st.floats(),
    st.decimals(),
    st.text(),
    st.sampled_from(["\ud800", "-0", "2024-01-01", 2**63, 2**64, -(2**63) - 1, -0.0, 2**53 + 1]),
    st.dates().map(str),
    timestamp_texts(),
    st.lists(st.integers()),
)
COLUMNS = st.one_of(
    st.lists(VALUES),
    st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.none() | st.floats(allow_nan=False)),
    st.lists(st.none() | st.booleans()),
    st.lists(st.none() | st.text()),
    st.lists(st.none() | st.dates().map(str)),
    st.lists(st.none() | timestamp_texts()),
    st.lists(st.none() | good_timestamp_texts()),
)


@given(st.sampled_from(TYPES), COLUMNS)
def test_a_whole_column_converts_as_its_values_do(column_type: ColumnType, values: list[Any]) -> None:
    column = convert_values(Field("c", column_type), values)
    expected: list[Any] = []
    for i, value in enumerate(values):
        try:
            expected.append(coerce(value, column_type))
        except UnfitError:
            assert i in column.errors
            expected.append(None)
        else:
            assert i not in column.errors
    assert column.values.equals(pa.array(expected, column_type.arrow))
    column.values.validate(full=True)
    if column_type == DOUBLE:
        assert "-0.0" not in map(repr, column.values.to_pylist())
