"""Expression trees: their JSON form, their parts, their text."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    conjuncts_of,
    from_json,
    text_of,
    to_json,
)
from braid.sources.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, NULL, TIMESTAMP, VARCHAR, ColumnType

MONEY = ColumnType("DECIMAL", 12, 2)
LITERALS = st.one_of(
    st.booleans().map(lambda v: Literal(v, BOOLEAN)),
    st.integers(-(2**31), 2**31 - 1).map(lambda v: Literal(v, INT)),
    st.integers(-(2**63), 2**63 - 1).map(lambda v: Literal(v, BIGINT)),
    st.floats(allow_nan=False).map(lambda v: Literal(v, DOUBLE)),
    st.text().map(lambda v: Literal(v, VARCHAR)),
    st.dates().map(lambda v: Literal(v, DATE)),
    st.datetimes().map(lambda v: Literal(v, TIMESTAMP)),
    st.decimals(-(10**9), 10**9, places=2).map(lambda v: Literal(v, MONEY)),
    st.sampled_from([INT, VARCHAR, NULL, MONEY]).map(lambda kind: Literal(None, kind)),
)
COLUMNS = st.builds(Column, st.sampled_from(["price", "user_id"]), st.sampled_from([DOUBLE, BIGINT]))
EXPRESSIONS = st.recursive(
    LITERALS | COLUMNS,
    lambda inner: st.builds(
        Call,
        st.sampled_from(["and", "+", "cast", "coalesce"]),
        st.lists(inner, min_size=1, max_size=3).map(tuple),
        st.sampled_from([BOOLEAN, BIGINT, MONEY]),
    ),
    max_leaves=12,
)


@given(EXPRESSIONS)
def test_the_json_form_reads_back_as_the_same_tree(expression: Expression) -> None:
    assert from_json(json.loads(json.dumps(to_json(expression)))) == expression


@pytest.mark.parametrize("value", [math.inf, -math.inf, 5e-324, 1 / 3, -0.0])
def test_doubles_keep_every_bit_in_json(value: float) -> None:
    read = from_json(json.loads(json.dumps(to_json(Literal(value, DOUBLE)))))
    assert isinstance(read, Literal)
    assert isinstance(read.value, float)
    assert read.value.hex() == value.hex()


def test_conjuncts_are_those_of_nested_ands() -> None:
    a, b, c = (Column(name, BOOLEAN) for name in "abc")
    tree = Call("and", (a, Call("and", (b, c), BOOLEAN)), BOOLEAN)
    assert conjuncts_of(tree) == (a, b, c)
    assert conjuncts_of(Call("or", (a, b), BOOLEAN)) == (Call("or", (a, b), BOOLEAN),)
    assert conjuncts_of(None) == ()


def test_columns_are_named_as_they_occur() -> None:
    a, b = Column("a", INT), Column("b", INT)
    assert list(columns_of(Call("+", (a, Call("*", (b, a), BIGINT)), BIGINT))) == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (Literal("it's", VARCHAR), "'it''s'"),
        (Literal(dt.date(2026, 1, 31), DATE), "DATE '2026-01-31'"),
        (Literal(None, INT), "NULL"),
        (Literal(Decimal("5.50"), MONEY), "5.50"),
        (Call("cast", (Column("a", INT),), MONEY), "cast(a as DECIMAL(12,2))"),
        (Call("<", (Column("a", INT), Literal(3, INT)), BOOLEAN), "<(a, 3)"),
    ],
)
def test_text_of_expressions(expression: Expression, text: str) -> None:
    assert str(expression) == text


def test_text_of_constants_tells_their_type() -> None:
    ok, half = Column("ok", BOOLEAN), ColumnType("DECIMAL", 2, 1)
    cases = [
        Call("case", (ok, Literal(v, kind), Literal(None, kind)), kind)
        for v, kind in ((Decimal("0.5"), half), (0.5, DOUBLE))
    ]
    assert list(map(text_of, cases)) == ["case(ok, 0.5, NULL) as DECIMAL(2,1)", "case(ok, 0.5, NULL) as DOUBLE"]
    assert text_of(Call("negate", (cases[1],), DOUBLE)) == "negate(case(ok, 0.5, NULL)) as DOUBLE"
    assert text_of(Call("+", (Column("price", DOUBLE), cases[1]), DOUBLE)) == "+(price, case(ok, 0.5, NULL))"
    assert text_of(Literal(0.5, DOUBLE)) == "0.5 as DOUBLE"
    assert text_of(Literal(1, INT)) == "1"
    price, two = Column("price", half), Literal(2, INT)
    assert text_of(Call("*", (price, two), ColumnType("DECIMAL", 12, 1))) == "*(price, 2) as DECIMAL(12,1)"
    assert text_of(price) == "price"
