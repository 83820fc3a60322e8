"""Functions of dates and timestamps."""

from __future__ import annotations

import datetime as dt
import math

import pytest

from braid.operators.evaluation import fold
from braid.operators.expressions import Expression, Literal
from braid.operators.functions import call
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import TIMESTAMP
from tests.operators.evaluated import BEFORE_1970, DAY, MAX, MOMENT, D, S, T, lit, values


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("year", [2024, 1969]),
        ("quarter", [1, 4]),
        ("week", [9, 1]),
        ("doy", [60, 365]),
        ("dow", [4, 3]),
        ("isodow", [4, 3]),
        ("second", [58, 59]),
        ("millisecond", [58123, 59999]),
        ("microsecond", [58123456, 59999999]),
        ("epoch", [1709251198, -1]),
    ],
)
def test_fields_of_time(field: str, expected: list[int]) -> None:
    assert values(call(field, T), t=[MOMENT, BEFORE_1970, None]) == [*expected, None]


def test_date_trunc_and_intervals() -> None:
    assert values(call("date_trunc", lit("WEEK"), T), t=[MOMENT]) == [dt.datetime(2024, 2, 26)]
    assert values(call("add_months", T, lit(-12)), t=[MOMENT]) == [MOMENT.replace(year=2023, day=28)]
    assert values(call("add_interval", DAY, lit(-1)), day=[dt.date(1970, 1, 1)]) == [BEFORE_1970]


def test_names_of_days_and_months() -> None:
    moments = [MOMENT, BEFORE_1970, dt.datetime.min, dt.datetime.max, None]
    days = [dt.date(2024, 2, 29), dt.date(1969, 12, 31), dt.date(1, 1, 31), dt.date(9999, 12, 31), None]
    assert values(call("last_day", T), t=moments) == days
    assert values(call("last_day", DAY), day=[dt.date(2023, 2, 1)]) == [dt.date(2023, 2, 28)]
    assert values(call("dayname", T), t=moments) == ["Thursday", "Wednesday", "Monday", "Friday", None]
    assert values(call("monthname", T), t=moments) == ["February", "December", "January", "December", None]


FIRST, LAST = dt.datetime.min, dt.datetime.max


@pytest.mark.parametrize(
    ("name", "amount", "expected"),
    [
        ("add_interval", 0, [FIRST, MOMENT, LAST]),
        ("add_interval", 1, [FIRST.replace(microsecond=1), MOMENT.replace(microsecond=123457), None]),
        ("add_interval", -1, [None, MOMENT.replace(microsecond=123455), LAST.replace(microsecond=999998)]),
        ("add_interval", MAX, [None, None, None]),
        ("add_months", 1, [FIRST.replace(month=2), dt.datetime(2024, 3, 29, 23, 59, 58, 123456), None]),
        ("add_months", -1, [None, dt.datetime(2024, 1, 29, 23, 59, 58, 123456), LAST.replace(month=11, day=30)]),
        # as many as it takes to come round in 64 bits of microseconds
        ("add_months", round(2**64 / 1e6 / 86400 / 365.2425 * 12), [None, None, None]),
    ],
)
def test_timestamps_overflow_to_null(name: str, amount: int, expected: list[dt.datetime | None]) -> None:
    assert values(call(name, T, lit(amount)), t=[FIRST, MOMENT, LAST, None]) == [*expected, None]
    folded = [fold(call(name, lit(moment), lit(amount))) for moment in (FIRST, MOMENT, LAST)]
    assert folded == [Literal(value, TIMESTAMP) for value in expected]


def test_dates_and_timestamps_compare_with_texts() -> None:
    assert values(call(">=", DAY, lit("2024-02-29")), day=[MOMENT.date()]) == [True]
    assert values(call("<", T, lit("2024-03-01T01:00:00+02:00")), t=[MOMENT]) == [False]
    assert values(call("=", T, DAY), t=[dt.datetime(2024, 2, 29)], day=[MOMENT.date()]) == [True]
    with pytest.raises(NotAllowed, match="must read like"):
        call("=", DAY, lit("soon"))


def test_timestamps_of_seconds() -> None:
    ends = [-62135596800.0, 253402300800.0, -62135596801.0, math.nan, math.inf, None]
    assert values(call("to_timestamp", D), d=ends) == [dt.datetime(1, 1, 1), *[None] * 5]
    assert values(call("to_timestamp", D), d=[1709251198.123456]) == [MOMENT]
    assert values(call("to_timestamp", S), s=["2024-02-29 23:59:58.123456"]) == [MOMENT]


@pytest.mark.parametrize(
    ("pattern", "text"), [("dd.MM.yyyy HH:mm:ss", "29.02.2024 23:59:58"), ("d/M/yy h:mm[:ss] a", "29/2/24 11:59:58 pm")]
)
def test_texts_in_a_pattern(pattern: str, text: str) -> None:
    """Of a fixed width and not; what does not fit is NULL, and hides nothing beside it."""
    moment = MOMENT.replace(microsecond=0)
    read = call("to_timestamp", S, lit(pattern))
    assert values(read, s=[text, None, text]) == [moment, None, moment]
    assert values(read, s=[text, "31.02.2024 10:00:00", "", text]) == [moment, None, None, moment]
    assert fold(call("to_timestamp", lit(text), lit(pattern))) == Literal(moment, TIMESTAMP)
    assert fold(call("to_timestamp", lit("no time"), lit(pattern))) == Literal(None, TIMESTAMP)


@pytest.mark.parametrize(
    ("pattern", "why"), [(S, "in quotes"), (lit("HH:mm"), "year, month and day"), (lit("%Y"), "%")]
)
def test_a_pattern_must_be_one(pattern: Expression, why: str) -> None:
    with pytest.raises(NotAllowed, match=why):
        call("to_timestamp", S, pattern)
