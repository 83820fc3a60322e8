"""TIMESTAMPDIFF and DATEDIFF over all years, as DuckDB's DATE_SUB and DATE_DIFF count them."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.evaluation import evaluate, fold
from braid.operators.expressions import Column, Literal
from braid.operators.functions import call
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, TIMESTAMP, VARCHAR
from tests.kit.duck import connected
from tests.kit.examples import examples

UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
DUCK_NAMES = {"timestampdiff": "date_sub", "datediff": "date_diff"}
COLUMN_TYPES = [("a", pa.timestamp("us")), ("b", pa.timestamp("us"))]
START, END = Column("a", TIMESTAMP), Column("b", TIMESTAMP)
MONTH_ENDS = [dt.datetime(2024, month, day, hour) for month, day in ((1, 31), (2, 29), (3, 30)) for hour in (0, 12)]
MOMENTS = st.datetimes() | st.sampled_from([dt.datetime.min, dt.datetime.max, *MONTH_ENDS])


def unit_of(name: str) -> Literal:
    return Literal(name, VARCHAR)


@given(
    pairs=st.lists(st.tuples(st.none() | MOMENTS, st.none() | MOMENTS), min_size=1, max_size=8),
    name=st.sampled_from(sorted(DUCK_NAMES)),
    unit=st.sampled_from(UNITS),
)
@settings(max_examples=examples(300), deadline=None)
def test_differences_are_those_of_duckdb(
    pairs: list[tuple[dt.datetime | None, dt.datetime | None]], name: str, unit: str
) -> None:
    tuples = pa.table({"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}, pa.schema(COLUMN_TYPES))
    columns = {column: tuples[column].combine_chunks() for column in ("a", "b")}
    found = evaluate(call(name, unit_of(unit), START, END), columns, len(pairs))
    with connected() as duck:
        duck.register("t", tuples)
        expected = duck.execute(f"SELECT {DUCK_NAMES[name]}('{unit}', a, b) FROM t").fetchall()
    assert found.to_pylist() == [value for (value,) in expected]


@pytest.mark.parametrize("unit", UNITS)
def test_the_longest_differences_are_whole_numbers(unit: str) -> None:
    ends = (Literal(dt.datetime.min, TIMESTAMP), Literal(dt.datetime.max, TIMESTAMP))
    years = {"month": 12 * 9999 - 1, "quarter": 4 * 9999 - 1, "year": 9998}
    for name in DUCK_NAMES:
        forth, back = (fold(call(name, unit_of(unit), *pair)) for pair in (ends, ends[::-1]))
        assert isinstance(forth, Literal)
        assert isinstance(forth.value, int)
        assert forth.value == years.get(unit, forth.value) > 0
        assert back == Literal(-forth.value, BIGINT)


def test_a_month_is_whole_at_the_last_day_of_a_shorter_one() -> None:
    ends = (Literal(dt.datetime(2024, 1, 31), TIMESTAMP), Literal(dt.datetime(2024, 2, 29), TIMESTAMP))
    for unit, whole in (("month", 1), ("months", 1), ("DAY", 29), ("year", 0)):
        assert fold(call("timestampdiff", unit_of(unit), *ends)) == Literal(whole, BIGINT)


def test_units_that_do_not_exist_are_refused() -> None:
    with pytest.raises(NotAllowed, match=r"needs one of the units microsecond, .*got 'eon'"):
        call("datediff", unit_of("eon"), START, END)
    with pytest.raises(NotAllowed, match=r"needs one of the units .*got a\."):
        call("timestampdiff", START, START, END)
