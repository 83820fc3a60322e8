"""The type of a column, told from its values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from braid.sources.core.schema import Field
from braid.sources.formats.columns import convert_values
from braid.sources.formats.csv_document import convert_texts
from braid.sources.inference.columns import MISSING, column_of_arrow, column_of_json, column_of_texts
from braid.sources.inference.numbers import advice_on_numbers

GAPPED = [f"{number}.0" for number in range(30)]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-2147483648", None], "INT"),
        (["1", "2147483648"], "BIGINT"),
        (["1", "9223372036854775808"], "DECIMAL(38,0)"),
        (["1", "9" * 39], "DOUBLE"),
        (["1", "2.5", "1e3", None], "DOUBLE"),
        (["1.0", "2.0"], "DOUBLE"),
        (["true", "False", None], "BOOLEAN"),
        (["2024-01-31", None], "DATE"),
        (["2024-01-31T12:00:00Z", "2024-01-31 12:00:00.5+02:00"], "TIMESTAMP"),
        (["2024-01-31 12:00", "2024-01-31 13:00"], "VARCHAR"),
        (["01234", "5678"], "VARCHAR"),
        (["+4930123", "+4930124"], "VARCHAR"),
        (["1", "x"], "VARCHAR"),
        (["nan", "inf"], "VARCHAR"),
        ([None, None], "VARCHAR"),
    ],
)
def test_a_column_of_text_has_the_narrowest_type_that_takes_all_of_it(texts: list[str | None], kind: str) -> None:
    column = column_of_texts("c", texts)
    assert str(column.type) == kind
    assert column.nulls == texts.count(None)
    assert column.type is not None
    assert not convert_texts(Field("c", column.type), texts).errors, "a stream with this column takes them"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, -5], "INT"),
        ([1, 2**31], "BIGINT"),
        ([1, 2**63], "DECIMAL(38,0)"),
        ([1, Decimal("2.5"), Decimal("1e3")], "DOUBLE"),
        ([Decimal("1.0"), 2], "DOUBLE"),
        ([True, None], "BOOLEAN"),
        (["2024-01-31T12:00:00Z", None], "TIMESTAMP"),
        (["2024-01-31"], "DATE"),
        (["1", "2"], "VARCHAR"),
        ([None], "VARCHAR"),
        ([{"a": 1}, None, {"b": [{"c": "2024-01-31"}]}], "STRUCT<a INT, b ARRAY<STRUCT<c DATE>>>"),
        ([[1], [], [2**31, None]], "ARRAY<BIGINT>"),
        ([{"a": 1}, {"a": "x"}], "JSON"),
        ([{"a": 1, "A": 1}], "JSON"),
        ([{}], "JSON"),
        ([{"m": {str(n): n for n in range(101)}}], "JSON"),
    ],
)
def test_a_column_of_json_has_the_type_that_takes_all_of_it(values: list[Any], kind: str) -> None:
    column = column_of_json("c", values)
    assert str(column.type) == kind
    assert column.type is not None
    assert not convert_values(Field("c", column.type), values).errors


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([Decimal("1e400")], "numbers beyond DOUBLE"),
        ([10**399], "whole numbers of more than 38 digits"),
    ],
)
def test_json_that_no_type_takes_is_left_out_with_the_reason(values: list[Any], why: str) -> None:
    column = column_of_json("c", values)
    assert (column.type, column.why) == (None, why)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([1, "x"], "numbers and texts: CAST(JSON_VALUE(…, '$') AS DOUBLE) gives NULL for texts that are no number"),
        ([1, Decimal("1.5"), []], "values of several types: arrays, numbers"),
        ([True, 1], "values of several types: numbers, true and false"),
        ([[1], {}], "values of several types: arrays, objects"),
        ([[1], ["x"]], "parts that differ from tuple to tuple"),
        (
            [{"a": 1, "b": 2}, {"a": 1, "b": "ERR"}],
            "its part 'b': numbers and texts: CAST(JSON_VALUE(…, '$.b') AS DOUBLE) gives NULL for texts that are no"
            " number",
        ),
        (
            [{"a b": {"c": 1}}, {"a b": {"c": "ERR"}}],
            "its part 'a b': its part 'c': numbers and texts: CAST(JSON_VALUE(…, '$[\"a b\"].c') AS DOUBLE) gives"
            " NULL for texts that are no number",
        ),
        ([{"a": [1]}, {"a": {}}], "its part 'a': values of several types: arrays, objects"),
    ],
)
def test_values_that_only_json_takes_are_json_with_the_reason(values: list[Any], why: str) -> None:
    column = column_of_json("c", values)
    assert (str(column.type), column.why) == ("JSON", why)
    assert column.type is not None
    assert not convert_values(Field("c", column.type), values).errors


def test_whole_floats_with_gaps_are_integers_and_others_are_not() -> None:
    gapped = column_of_texts("dep_time", [*GAPPED, None])
    assert (str(gapped.type), gapped.nulls) == ("BIGINT", 1)
    assert "517.0" in gapped.why
    assert str(column_of_json("dep_time", [*map(Decimal, GAPPED), None]).type) == "BIGINT"
    for texts in (GAPPED, [*GAPPED, "0.5", None], [*GAPPED[:5], None], ["1.0"] * 30 + [None]):
        assert str(column_of_texts("c", texts).type) == "DOUBLE"


@pytest.mark.parametrize(
    ("texts", "advice"),
    [
        (["1", "2.5", "3", "NA"], "numbers beside 'NA' (row 4): CAST(… AS DOUBLE) gives NULL for these"),
        (["1", "NA", "NA", None, "2.5"], "numbers beside 'NA' (row 2): CAST(… AS DOUBLE) gives NULL for these"),
        (["1", "abc", "2.5"], "numbers beside 'abc' (row 2): CAST(… AS DOUBLE) gives NULL for these"),
        (["9.5", "1,299.00"], "numbers with commas between thousands: CAST(REPLACE(…, ',', '') AS DOUBLE)"),
        (["9", "12,50"], "numbers with a decimal comma: CAST(REPLACE(…, ',', '.') AS DOUBLE)"),
        (
            ["9,5", "12,50", "x"],
            "numbers with a decimal comma beside 'x' (row 3):"
            " CAST(REPLACE(…, ',', '.') AS DOUBLE) gives NULL for these",
        ),
        (
            ["9,5", "1.299,00"],
            "numbers with a decimal comma and points between thousands:"
            " CAST(REPLACE(REPLACE(…, '.', ''), ',', '.') AS DOUBLE)",
        ),
        (["01234", "56789", "56790"], ""),
        (["+4930123", "4930124", "4930125"], ""),
        (["a", "b", "3", "4"], ""),
        (["x"], ""),
    ],
)
def test_numbers_that_double_does_not_take_are_text_with_advice(texts: list[str | None], advice: str) -> None:
    column = column_of_texts("c", texts)
    assert (str(column.type), column.why) == ("VARCHAR", advice)


def test_what_is_shown_of_many_misfits_is_short() -> None:
    texts = [*map(str, range(40)), "x" * 1000, "y", "z"]
    assert advice_on_numbers(texts).startswith(f"numbers beside '{'x' * 40}' (row 41), 'y' (row 42) and others:")


ARROW = [
    (pa.array([True, None]), "BOOLEAN"),
    (pa.array([1], pa.int8()), "INT"),
    (pa.array([1], pa.uint16()), "INT"),
    (pa.array([1], pa.uint32()), "BIGINT"),
    (pa.array([1], pa.int64()), "BIGINT"),
    (pa.array([2**64 - 1], pa.uint64()), "DECIMAL(20,0)"),
    (pa.array([1.0, None], pa.float32()), "DOUBLE"),
    (pa.array([Decimal("1.50")], pa.decimal128(10, 2)), "DECIMAL(10,2)"),
    (pa.array(["x", None]), "VARCHAR"),
    (pa.array(["x", "y"]).dictionary_encode(), "VARCHAR"),
    (pa.array(["2024-01-31T12:00:00Z"], pa.large_string()), "TIMESTAMP"),
    (pa.array([1], pa.date32()), "DATE"),
    (pa.array([86_400_000], pa.date64()), "DATE"),
    (pa.array([1], pa.timestamp("ns", "Europe/Berlin")), "TIMESTAMP"),
]


@pytest.mark.parametrize(("array", "kind"), ARROW, ids=[str(array.type) for array, _ in ARROW])
def test_parquet_says_the_types_of_its_columns(array: pa.Array, kind: str) -> None:
    assert str(column_of_arrow("c", array).type) == kind


@pytest.mark.parametrize("array", [pa.array([1], pa.time64("us")), pa.array([b"x"]), pa.array([1], pa.duration("s"))])
def test_parquet_that_no_type_takes_is_left_out(array: pa.Array) -> None:
    column = column_of_arrow("c", array)
    assert column.type is None
    assert str(array.type) in column.why


def test_nan_is_said_to_be_malformed() -> None:
    assert "NaN" in column_of_arrow("c", pa.array([1.0, np.nan])).why


@pytest.mark.parametrize(
    ("name", "number", "epoch"),
    [
        ("created_at", 1_700_000_000, "epoch-seconds"),
        ("user_id", 1_700_000_000, ""),
        ("x", 1_700_000_000_123, "epoch-millis"),
        ("x", 1_700_000_000_123_456, "epoch-micros"),
        ("eventTs", 1_700_000_000_123_456_789, "epoch-nanos"),
        ("tweet", 1_700_000_000_123_456_789, ""),
        ("ts", 17, ""),
    ],
)
def test_numbers_since_1970_are_known_by_their_size_and_where_need_be_their_name(
    name: str, number: int, epoch: str
) -> None:
    for column in (
        column_of_texts(name, [str(number), None]),
        column_of_json(name, [number, None]),
        column_of_arrow(name, pa.array([number, None], pa.int64())),
    ):
        assert column.time_format == epoch
        if epoch:
            assert column.times is not None
            assert column.times.tolist() == [_us(number), MISSING]
        else:
            assert column.times is None


def test_numbers_since_1970_may_be_fractions_and_few_may_be_wrong() -> None:
    texts = ["1700000000.25", "1700000001", "soon", None]
    for column, kind in (
        (column_of_texts("ts", texts), "VARCHAR"),
        (column_of_texts("ts", texts[:2]), "DOUBLE"),
        (column_of_json("ts", [Decimal("1700000000.25"), 1_700_000_001, "soon", None]), "JSON"),
        (column_of_json("ts", [Decimal("1700000000.25"), 1_700_000_001]), "DOUBLE"),
    ):
        assert (str(column.type), column.time_format) == (kind, "epoch-seconds")
        assert column.times is not None
        assert column.times[:2].tolist() == [1_700_000_000_250_000, 1_700_000_001_000_000]
        assert (column.times[2:] == MISSING).all()
        assert column.misfits == ("" if kind == "DOUBLE" else "'soon' (row 3)")


def _us(number: int) -> int:
    return int(str(number).ljust(16, "0")[:16])


def test_times_are_microseconds_whatever_they_are_written_as() -> None:
    texts = ["1970-01-01T00:00:01Z", None, "1970-01-01T01:00:00+01:00"]
    for column in (
        column_of_texts("t", texts),
        column_of_json("t", texts),
        column_of_arrow("t", pa.array([1000, None, 0], pa.timestamp("ms"))),
    ):
        assert column.times is not None
        assert column.times.tolist() == [10**6, MISSING, 0]
