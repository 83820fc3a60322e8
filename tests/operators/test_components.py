"""Components: numbers of every type merge to what the measure of all values is."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.expressions import Column
from braid.operators.query_parts import COUNT_ALL, Measure
from braid.operators.state.components import (
    COUNT_NAME,
    Component,
    component_named,
    components_of,
    count_name,
    decode,
    encode,
    is_ranked,
    renumber_ranks,
    unite,
)
from braid.operators.state.totals import empty, merge_into
from braid.sources.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, TIMESTAMP, VARCHAR, ColumnType

MONEY = ColumnType("DECIMAL", 38, 4)
ORDERED: dict[ColumnType, st.SearchStrategy[Any]] = {
    INT: st.sampled_from([-(2**31), -1, 0, 5, 2**31 - 1]),
    BIGINT: st.sampled_from([-(2**63) + 1, -1, 0, 2**63 - 2]),
    DOUBLE: st.sampled_from([-math.inf, -1.5, 0.0, 5e-324, math.inf]),
    VARCHAR: st.sampled_from(["", "a", "b", "é", "日本", "\U0001f600"]),
    BOOLEAN: st.booleans(),
    DATE: st.dates(dt.date(1969, 12, 30), dt.date(1970, 1, 2)),
    TIMESTAMP: st.sampled_from([dt.datetime(1, 1, 1), dt.datetime(1970, 1, 1), dt.datetime.max]),
    MONEY: st.sampled_from([Decimal("-0.0001"), Decimal(0), Decimal(10**33), Decimal("1.5000")]),
    ColumnType("DECIMAL", 18, 2): st.sampled_from([Decimal(f"{sign}9999999999999999.99") for sign in "+-"]),
}
EXACT = Context(prec=80)
columns = st.sampled_from(list(ORDERED)).flatmap(
    lambda kind: st.tuples(
        st.just(kind), st.lists(st.lists(st.one_of(st.none(), ORDERED[kind]), max_size=8), min_size=1, max_size=3)
    )
)


def reduced(measure: Measure, chunks: list[list[Any]]) -> Any:
    """Return the measure of values that come in chunks, each of which has its own dictionary."""
    assert measure.argument is not None
    kind = measure.argument.type.arrow
    encoded = [encode(measure, pa.array(values, kind)) for values in chunks]
    dictionaries = [e.dictionary for e in encoded if e.dictionary is not None]
    united, ranks = unite(dictionaries) if dictionaries else (None, [])
    count = component_named(count_name(measure), np.dtype(np.int64))
    totals = {component.name: empty(component, 1) for component in (count, *components_of(measure))}
    for i, (each, values) in enumerate(zip(encoded, chunks, strict=True)):
        at = np.zeros(len(values), dtype=np.int32)
        valid = np.ones(len(values), dtype=np.int32) if each.valid is None else each.valid
        merge_into(count, totals[count.name], at, valid)
        for component in components_of(measure):
            numbers = each.numbers[component.name]
            if is_ranked(measure):
                numbers = renumber_ranks(numbers, ranks[i], component)
            merge_into(component, totals[component.name], at, numbers)
    (value,) = decode(measure, totals, united).to_pylist()
    return value


@given(columns, st.sampled_from(["min", "max"]))
def test_least_and_greatest_of_every_type(column: tuple[ColumnType, list[list[Any]]], function: str) -> None:
    kind, chunks = column
    present = [v for values in chunks for v in values if v is not None]
    expected = {"min": min, "max": max}[function](present) if present else None
    assert reduced(Measure(function, Column("x", kind)), chunks) == expected


@given(columns)
def test_counts_pass_over_null(column: tuple[ColumnType, list[list[Any]]]) -> None:
    kind, chunks = column
    count = sum(v is not None for values in chunks for v in values)
    assert reduced(Measure("count", Column("x", kind)), chunks) == count


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1))), min_size=1, max_size=3))
def test_sums_of_integers(chunks: list[list[int | None]]) -> None:
    present = [v for values in chunks for v in values if v is not None]
    assert reduced(Measure("sum", Column("x", INT)), chunks) == (sum(present) if present else None)


@given(st.lists(st.one_of(st.none(), st.integers(-(10**38) + 1, 10**38 - 1)), min_size=1, max_size=6))
def test_sums_of_decimals_are_exact_to_38_digits_and_null_beyond(units: list[int | None]) -> None:
    values = [None if u is None else Decimal(u).scaleb(-4, EXACT) for u in units]
    total = sum(u for u in units if u is not None)
    expected = Decimal(total).scaleb(-4, EXACT) if abs(total) < 10**38 and set(units) != {None} else None
    assert reduced(Measure("sum", Column("x", MONEY)), [values[:2], values[2:]]) == expected


@pytest.mark.parametrize("digits", [1, 9, 10, 18, 19])
@given(data=st.data())
def test_sums_of_decimals_of_few_digits(digits: int, data: st.DataObject) -> None:
    kind, most = ColumnType("DECIMAL", digits, 1), 10**digits - 1
    units = data.draw(st.lists(st.one_of(st.none(), st.integers(-most, most), st.just(most)), min_size=1, max_size=20))
    values = [None if u is None else Decimal(u).scaleb(-1, EXACT) for u in units]
    expected = None if set(units) == {None} else Decimal(sum(u for u in units if u is not None)).scaleb(-1, EXACT)
    assert reduced(Measure("sum", Column("x", kind)), [values[:2], values[2:]]) == expected


def test_nan_is_greater_than_all_else() -> None:
    least, greatest = (Measure(function, Column("x", DOUBLE)) for function in ("min", "max"))
    for chunks in ([[math.nan, 1.0], [math.nan]], [[1.0], [math.nan, math.inf]], [[math.inf, math.nan], [1.0]]):
        assert reduced(least, chunks) == 1.0
        assert math.isnan(reduced(greatest, chunks))
    for measure in (least, greatest):
        assert math.isnan(reduced(measure, [[math.nan], [math.nan]]))
        assert reduced(measure, [[-math.inf], [None]]) == -math.inf


def test_a_slice_of_decimals_is_read_from_its_place() -> None:
    column = pa.array([Decimal(1), None, Decimal(-3), Decimal(4)], MONEY.arrow).slice(1)
    measure = Measure("sum", Column("x", MONEY))
    numbers = {name: np.array([values.sum()]) for name, values in encode(measure, column).numbers.items()}
    assert decode(measure, {**numbers, "count(x)": np.array([2])}, None).to_pylist() == [Decimal(1)]


def test_the_names_tell_how_components_merge() -> None:
    assert count_name(COUNT_ALL) == COUNT_NAME == "count(*)"
    for function in ("sum", "min", "max"):
        for kind in ORDERED:
            if function == "sum" and kind not in (INT, BIGINT, DOUBLE, MONEY):
                continue
            for component in components_of(Measure(function, Column("x", kind))):
                assert component_named(component.name, component.dtype) == component
                assert component.merge == function


@pytest.mark.parametrize("merge", ["sum", "min", "max"])
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_the_neutral_value_changes_nothing(merge: str, dtype: type) -> None:
    component = Component(f"{merge}(x)", merge, np.dtype(dtype))
    for value in (-5, 0, 7):
        total = empty(component, 1)
        merge_into(component, total, np.zeros(2, dtype=np.int32), np.array([value, component.neutral], dtype=dtype))
        assert total[0] == value
