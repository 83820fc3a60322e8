"""Conditions: three-valued logic, comparisons, IN, BETWEEN and CASE."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.evaluation import evaluate
from braid.operators.expressions import Call, Column, Literal
from braid.operators.functions import call
from braid.sources.core.schema import BIGINT, BOOLEAN, DOUBLE
from tests.operators.evaluated import MAX, OK, B, D, N, S, lit, values

BOOLEANS: list[bool | None] = [True, False, None]


@pytest.mark.parametrize("left", BOOLEANS)
@pytest.mark.parametrize("right", BOOLEANS)
def test_three_valued_logic(left: bool | None, right: bool | None) -> None:
    known_and = False if False in (left, right) else None if None in (left, right) else True
    known_or = True if True in (left, right) else None if None in (left, right) else False
    right_literal = Literal(right, BOOLEAN)
    assert values(call("and", OK, right_literal), ok=[left]) == [known_and]
    assert values(call("or", OK, right_literal), ok=[left]) == [known_or]
    assert values(call("not", OK), ok=[left]) == [None if left is None else not left]


def test_ands_are_flattened() -> None:
    inner = call("and", OK, OK)
    assert call("and", inner, OK) == Call("and", (OK, OK, OK), BOOLEAN)


def test_a_lone_literal_stands_on_the_right() -> None:
    assert call("<", lit(5), D) == Call(">", (D, Literal(5.0, DOUBLE)), BOOLEAN)
    assert call("=", lit(5), B) == Call("=", (B, Literal(5, BIGINT)), BOOLEAN)


@pytest.mark.parametrize("name", ["<", "<=", ">", ">=", "=", "<>"])
@given(st.decimals(-20, 20, places=1), st.lists(st.integers(-21, 21), min_size=1, max_size=9))
def test_integers_compare_exactly_with_fractions(name: str, constant: Decimal, column: list[int]) -> None:
    compare = {
        "<": lambda a: a < constant,
        "<=": lambda a: a <= constant,
        ">": lambda a: a > constant,
        ">=": lambda a: a >= constant,
        "=": lambda a: a == constant,
        "<>": lambda a: a != constant,
    }[name]
    assert values(call(name, B, lit(constant)), b=column) == [compare(v) for v in column]


def test_big_integers_compare_exactly_with_decimals_and_as_double_with_doubles() -> None:
    column = [MAX, MAX - 1]
    assert values(call("=", B, lit(Decimal(f"{MAX}.0"))), b=column) == [True, False]
    assert values(call("=", B, lit(float(MAX))), b=column) == [True, True]


def test_nan_is_equal_to_itself_and_greater_than_all_else() -> None:
    others = [None, math.nan, math.inf, -1.0]
    nan = Literal(math.nan, DOUBLE)
    wanted = {
        "=": [None, True, False, False],
        "<>": [None, False, True, True],
        "<": [None, False, False, False],
        "<=": [None, True, False, False],
        ">": [None, False, True, True],
        ">=": [None, True, True, True],
        "is_distinct_from": [True, False, True, True],
        "is_not_distinct_from": [False, True, False, False],
    }
    for name, expected in wanted.items():
        arrays = {"nan": pa.array([math.nan] * 4), "d": pa.array(others)}
        assert evaluate(call(name, Column("nan", DOUBLE), D), arrays, 4).to_pylist() == expected, name
        mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(name, name)
        assert values(call(mirrored, D, nan), d=others) == expected, name
    assert values(call("least", D, lit(2.0)), d=[math.nan, 1.0]) == [2.0, 1.0]
    assert str(values(call("greatest", D, lit(2.0)), d=[math.nan, 1.0, None])) == "[nan, 2.0, None]"
    assert values(call("between", call("+", D, D), D, nan), d=[math.nan, 1.0, -1.0]) == [True, True, False]


def test_distinct_treats_null_as_a_value() -> None:
    assert values(call("is_distinct_from", N, lit(None)), i=[1, None]) == [True, False]
    assert values(call("is_not_distinct_from", N, lit(1)), i=[1, 2, None]) == [True, False, False]


@pytest.mark.parametrize(
    ("members", "expected"),
    [([1, 2], [True, False, None]), ([1, None], [True, None, None]), ([1, 2**40], [True, False, None])],
)
def test_in_knows_nulls(members: list[Any], expected: list[Any]) -> None:
    assert values(call("in", N, *map(lit, members)), i=[1, 3, None]) == expected


def test_in_with_columns_and_between_with_an_expression() -> None:
    assert values(call("in", N, B, lit(9)), i=[1, 9, 2, None], b=[1, 2, 3, 4]) == [True, True, False, None]
    summed = call("between", call("+", N, B), lit(2), lit(5))
    assert values(summed, i=[1, 9, None], b=[1, 2, 3]) == [True, False, None]


def test_between_of_a_column_becomes_two_comparisons() -> None:
    expected = call("and", call(">=", N, lit(1)), call("<=", N, lit(5)))
    assert call("between", N, lit(1), lit(5)) == expected


def test_choice() -> None:
    case = call("case", call(">", N, lit(1)), B, call("=", N, lit(1)), lit(7), lit(None))
    assert values(case, i=[2, 1, 0, None], b=[10, 10, 10, 10]) == [10, 7, None, None]
    assert values(call("coalesce", N, B, lit(0)), i=[None, None, 3], b=[2, None, 4]) == [2, 0, 3]
    assert values(call("nullif", N, lit(1)), i=[1, 2, None]) == [None, 2, None]
    assert values(call("nullif", D, lit(math.nan)), d=[math.nan, 2.0, None]) == [None, 2.0, None]
    assert values(call("greatest", N, B), i=[1, 5, None], b=[2, 3, 4]) == [2, 5, None]
    assert values(call("least", S, lit("m")), s=["a", "z", None]) == ["a", "m", None]
