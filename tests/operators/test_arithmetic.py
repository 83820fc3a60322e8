"""Arithmetic and numeric functions: exact, or NULL where there is no such number."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from braid.operators.evaluation import evaluate
from braid.operators.expressions import Column, Expression, Literal
from braid.operators.functions import call
from braid.operators.functions.coercion import decimal_type
from braid.sources.core.schema import BIGINT, DOUBLE, ColumnType
from tests.operators.evaluated import INTEGERS, MAX, MIN, MONEY, B, D, M, N, lit, values


def truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def exact(name: str, left: int | None, right: int | None) -> int | None:
    """Return what integer arithmetic must give, in Python's unbounded integers."""
    if left is None or right is None or (name in "/%" and right == 0):
        return None
    result = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "/": lambda: truncated(left, right),
        "%": lambda: left - truncated(left, right) * right,
    }[name]()
    return result if MIN <= result <= MAX else None


CENTS = st.integers(-(10**9), 10**9).map(lambda v: v / 100)


@given(st.sampled_from("+-*/%"), st.lists(st.tuples(INTEGERS, INTEGERS), min_size=1, max_size=20))
@settings(max_examples=300)
def test_integer_arithmetic_is_exact_or_null(name: str, pairs: list[tuple[int | None, int | None]]) -> None:
    other = Column("c", BIGINT)
    left, right = zip(*pairs, strict=True)
    arrays = {"b": pa.array(left, pa.int64()), "c": pa.array(right, pa.int64())}
    expected = [exact(name, a, b) for a, b in pairs]
    expression = call(name, B, other)
    assert evaluate(expression, arrays, len(pairs)).to_pylist() == expected


@given(st.sampled_from("+-*/%"), INTEGERS, st.lists(INTEGERS, min_size=1, max_size=9))
def test_integer_arithmetic_with_a_constant(name: str, constant: int | None, column: list[int | None]) -> None:
    assert values(call(name, B, lit(constant)), b=column) == [exact(name, v, constant) for v in column]
    assert values(call(name, lit(constant), B), b=column) == [exact(name, constant, v) for v in column]


def test_int_columns_compute_in_64_bits() -> None:
    assert values(call("*", N, N), i=[2**31 - 1]) == [(2**31 - 1) ** 2]
    assert call("+", N, N).type == BIGINT


def test_doubles_follow_ieee() -> None:
    quotients = values(call("/", D, lit(0)), d=[1.0, -1.0, 0.0, None])
    assert quotients[:2] == [math.inf, -math.inf]
    assert math.isnan(quotients[2])
    assert quotients[3] is None
    assert math.isnan(values(call("%", D, lit(0)), d=[1.0])[0])
    assert values(call("%", D, lit(2)), d=[-7.5, 7.5]) == [-1.5, 1.5]


def test_decimals_are_exact() -> None:
    assert values(call("+", M, lit(Decimal("0.05"))), m=[Decimal("0.10"), None]) == [Decimal("0.15"), None]
    assert values(call("*", M, M), m=[Decimal("99999999.99")]) == [Decimal("9999999998000000.0001")]
    assert values(call("/", M, lit(3)), m=[Decimal("1.00"), Decimal("-2.00")]) == [
        Decimal("0.333333"),
        Decimal("-0.666667"),
    ]
    assert values(call("/", M, lit(0)), m=[Decimal("1.00")]) == [None]
    assert values(call("%", M, lit(0)), m=[Decimal("1.00")]) == [None]
    assert call("*", M, D).type == DOUBLE


def test_constants_have_as_many_digits_as_what_they_stand_beside() -> None:
    wide = Column("w", ColumnType("DECIMAL", 38, 10))
    arrays = {"w": pa.array([Decimal(10**20), Decimal("12345678901234567890.0123456789")], wide.type.arrow)}
    for constant in (Literal(Decimal(10**20), ColumnType("DECIMAL", 21, 0)), lit(Decimal("100000000000000000000.5"))):
        assert evaluate(call("<=", wide, constant), arrays, 2).to_pylist() == [True, True]
    assert evaluate(call("=", wide, lit(Decimal("100000000000000000000.0"))), arrays, 2).to_pylist() == [True, False]


@given(
    st.lists(st.none() | st.decimals(-(10**7), 10**7, places=2), min_size=1, max_size=9),
    st.sampled_from(
        ["1000.0", "1000", "1", "1.0", "0.1", "0.001", "1000000.0", "1e9", "10000000000", "-10", "20", "0.0"]
    ),
)
def test_dividing_by_a_power_of_ten_gives_what_dividing_by_a_column_does(column: list[Any], text: str) -> None:
    divisor = Decimal(text)
    kind = decimal_type(divisor)
    assert kind is not None
    for money in (Column("m", MONEY), Column("n", BIGINT)):
        values = pa.array(column if money.type == MONEY else [v and int(v) for v in column], money.type.arrow)
        by_column = call("/", money, Column("d", kind))
        arrays = {money.name: values, "d": pa.array([divisor] * len(column), kind.arrow)}
        expected = evaluate(by_column, arrays, len(column))
        assert evaluate(call("/", money, Literal(divisor, kind)), arrays, len(column)).equals(expected)


def test_decimal_overflow_is_null() -> None:
    wide = Column("w", ColumnType("DECIMAL", 38, 0))
    arrays = {"w": pa.array([Decimal(10**37), Decimal(5)], pa.decimal128(38, 0))}
    assert evaluate(call("*", wide, wide), arrays, 2).to_pylist() == [None, Decimal(25)]


@pytest.mark.parametrize(
    ("expression", "columns", "expected"),
    [
        (call("negate", B), {"b": [1, MIN, None]}, [-1, None, None]),
        (call("abs", B), {"b": [-5, MIN, None]}, [5, None, None]),
        (call("abs", M), {"m": [Decimal("-1.50")]}, [Decimal("1.50")]),
        (call("sign", N), {"i": [-9, 0, 4]}, [-1, 0, 1]),
        (call("floor", D), {"d": [-1.5, 1.5]}, [-2.0, 1.0]),
        (call("ceil", M), {"m": [Decimal("1.01"), Decimal("-1.99")]}, [Decimal(2), Decimal(-1)]),
        (call("round", D), {"d": [2.5, -2.5, 0.4]}, [3.0, -3.0, 0.0]),
        (call("round", D, lit(1)), {"d": [2.25, 1e300]}, [2.3, 1e300]),
        (call("round", D, lit(11)), {"d": [0.000007649025048203374, float("inf")]}, [0.00000764903, float("inf")]),
        (call("round", D, lit(-18)), {"d": [2.0**63, 4.75e18]}, [9e18, 5e18]),
        (call("round", N, lit(-1)), {"i": [25, -25, 14]}, [30, -30, 10]),
        (call("round", B, lit(-19)), {"b": [MAX, 1]}, [None, 0]),
        (call("round", M, lit(1)), {"m": [Decimal("1.25")]}, [Decimal("1.3")]),
        (call("round", M, lit(1)), {"m": [Decimal("99999999.99")]}, [Decimal("100000000.0")]),
        (call("cbrt", D), {"d": [-27.0, math.inf, 0.001, None]}, [-3.0, math.inf, 0.1, None]),
        (call("sqrt", N), {"i": [9, None]}, [3.0, None]),
        (call("power", N, lit(2)), {"i": [3]}, [9.0]),
        (call("mod", N, lit(3)), {"i": [-7]}, [-1]),
    ],
)  # fmt: skip
def test_numeric_functions(expression: Expression, columns: dict[str, list[Any]], expected: list[Any]) -> None:
    assert values(expression, **columns) == expected


@given(st.integers(-25, 25), st.lists(st.floats() | st.floats(-1e6, 1e6) | CENTS, min_size=1, max_size=9))
@settings(max_examples=300)
@example(2, [0.29, -0.29, 0.28999999999999998, 0.2899999999999999, 1.15, 2.675])
@example(-2, [99.99999999999999, -700.0, 1e300])
def test_doubles_are_truncated_by_their_decimals(digits: int, column: list[float]) -> None:
    context = decimal.Context(prec=1000, rounding=decimal.ROUND_DOWN)
    unit = Decimal(1).scaleb(-digits)
    expected = [
        float(Decimal(repr(v)).quantize(unit, context=context)) + 0.0 if math.isfinite(v) else v for v in column
    ]
    assert str(values(call("trunc", D, lit(digits)), d=[*column, None])) == str([*expected, None])
    # the answer for a value does not depend on its neighbours
    assert str(values(call("trunc", D, lit(digits)), d=column[:1])) == str(expected[:1])


@given(st.integers(-20, 20), st.lists(INTEGERS, min_size=1, max_size=9))
def test_integers_are_truncated_exactly(digits: int, column: list[int | None]) -> None:
    size = 10 ** max(-digits, 0)
    assert values(call("trunc", B, lit(digits)), b=column) == [
        None if v is None else truncated(v, size) * size for v in column
    ]


@given(st.integers(-20, 20), st.lists(st.decimals(-99999999, 99999999, places=2), min_size=1, max_size=9))
def test_decimals_are_truncated_exactly(digits: int, column: list[Decimal]) -> None:
    expected = [v.quantize(Decimal(1).scaleb(-min(digits, 2)), rounding=decimal.ROUND_DOWN) for v in column]
    assert values(call("trunc", M, lit(digits)), m=[*column, None]) == [*expected, None]


@given(
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**53), 2**53), st.integers(-9, 9))),
    st.one_of(st.integers(1, 30), st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**53 - 1, 2**53, 2**53 + 1])),
)
def test_remainders_have_the_sign_of_the_dividend(dividends: list[int | None], divisor: int) -> None:
    remainder = call("mod", Column("n", BIGINT), Literal(divisor, BIGINT))
    expected = [
        None if n is None or divisor == 0 else int(math.copysign(1, n)) * (abs(n) % abs(divisor)) for n in dividends
    ]
    values = evaluate(remainder, {"n": pa.array(dividends, pa.int64())}, len(dividends))
    assert values.to_pylist() == expected
