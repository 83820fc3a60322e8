"""Functions of texts, and LIKE."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.evaluation import evaluate
from braid.operators.expressions import Column, Expression
from braid.operators.functions import call
from braid.operators.functions.casts import cast_to
from braid.sources.core.schema import DOUBLE, VARCHAR, ColumnType
from tests.operators.evaluated import OK, B, N, S, lit, values


@pytest.mark.parametrize(
    ("pattern", "escape", "matching", "other"),
    [
        ("a%", None, "abc", "bca"),
        ("_b%", None, "ab\n", "b"),
        ("%", None, "", None),
        ("a\\%", None, "a\\x", "a%"),
        ("50!%", "!", "50%", "501"),
        ("!!_", "!", "!x", "x!"),
        (".*", None, ".*", "abc"),
        ("é_", None, "éa", "e_a"),
    ],
)
def test_like(pattern: str, escape: str | None, matching: str, other: str | None) -> None:
    extra = [] if escape is None else [lit(escape)]
    column = [matching, other]
    expected = [True, None if other is None else False]
    assert values(call("like", S, lit(pattern), *extra), s=column) == expected
    # a pattern that comes from a column takes another road to the same answer
    by_row = call("like", S, Column("p", VARCHAR), *extra)
    arrays = {"s": pa.array(column, pa.string()), "p": pa.array([pattern] * 2)}
    assert evaluate(by_row, arrays, 2).to_pylist() == expected


def test_ilike_ignores_case() -> None:
    assert values(call("ilike", S, lit("ÀB%")), s=["àbc", "ab"]) == [True, False]


@given(st.lists(st.tuples(st.text("aB\n", max_size=8), st.text("aAB%_", max_size=7)), min_size=1), st.booleans())
def test_patterns_of_a_column_mean_what_constant_ones_do(pairs: list[tuple[str, str]], insensitive: bool) -> None:
    name = "ilike" if insensitive else "like"
    texts, patterns = (list(column) for column in zip(*pairs, strict=True))
    arrays = {"s": pa.array(texts), "p": pa.array(patterns)}
    found = evaluate(call(name, S, Column("p", VARCHAR)), arrays, len(pairs)).to_pylist()
    assert found == [values(call(name, S, lit(pattern)), s=[text])[0] for text, pattern in pairs]


def test_a_pattern_of_a_column_with_many_wildcards_takes_no_time() -> None:
    arrays = {"s": pa.array(["a" * 60]), "p": pa.array(["%a" * 30 + "%b"])}
    assert evaluate(call("like", S, Column("p", VARCHAR)), arrays, 1).to_pylist() == [False]


def test_decimals_equal_the_doubles_that_look_like_them() -> None:
    texts = ["0.35", "0.57", "1.15", "0.07"]
    column = pa.array([Decimal(text) for text in texts], pa.decimal128(10, 2))
    cast = cast_to(Column("d", ColumnType("DECIMAL", 10, 2)), DOUBLE)
    assert evaluate(cast, {"d": column}, 4).to_pylist() == [float(text) for text in texts]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (call("upper", S), ["HÉLLO", "", None]),
        (call("length", S), [5, 0, None]),
        (call("substring", S, lit(2)), ["éllo", "", None]),
        (call("substring", S, lit(2), lit(2)), ["él", "", None]),
        (call("substring", S, lit(0), lit(2)), ["h", "", None]),
        (call("substring", S, lit(-3), lit(2)), ["ll", "", None]),
        (call("substring", S, lit(2), lit(-1)), ["", "", None]),
        (call("substring", S, lit(-(2**40))), ["héllo", "", None]),
        (call("strpos", S, lit("l")), [3, 0, None]),
        (call("replace", S, lit("l"), lit("")), ["héo", "", None]),
        (call("replace", S, lit(""), lit("x")), ["héllo", "", None]),
        (call("starts_with", S, lit("hé")), [True, False, None]),
        (call("trim", S, lit("ho")), ["éll", "", None]),
        (call("concat", S, lit("!"), lit(1)), ["héllo!1", "!1", None]),
        (call("concat", S, lit(None)), [None, None, None]),
        (call("concat_ws", lit("-"), S, lit(None), S), ["héllo-héllo", "-", ""]),
        (call("concat_ws", lit("-"), S), ["héllo", "", ""]),
        (call("concat_ws", S, lit("a"), lit(1)), ["ahéllo1", "a1", None]),
        (call("ends_with", S, lit("lo")), [True, False, None]),
        (call("ends_with", S, S), [True, True, None]),
        (call("contains", S, lit("él")), [True, False, None]),
        (call("contains", lit("a héllo"), S), [True, True, None]),
        (call("left", S, lit(2)), ["hé", "", None]),
        (call("left", S, lit(-2)), ["hél", "", None]),
        (call("right", S, lit(2)), ["lo", "", None]),
        (call("right", S, lit(-2)), ["llo", "", None]),
        (call("right", S, lit(0)), ["", "", None]),
        (call("lpad", S, lit(7), lit("*é")), ["*éhéllo", "*é*é*é*", None]),
        (call("rpad", S, lit(3)), ["hél", "   ", None]),
        (call("rpad", S, lit(7), lit("")), ["héllo", "", None]),
        (call("reverse", S), ["olléh", "", None]),
        (call("initcap", lit("it's e\u0301T_2nd, ok")), ["It'S E\u0301t_2nd, Ok"] * 3),
        (call("split_part", S, lit("l"), lit(1)), ["hé", "", None]),
        (call("split_part", S, lit("l"), lit(-1)), ["o", "", None]),
        (call("split_part", S, lit("l"), lit(4)), ["", "", None]),
        (call("split_part", S, lit(""), lit(1)), ["héllo", "", None]),
        (call("split_part", S, lit("l"), lit(0)), [None, None, None]),
        (call("regexp_like", S, lit("^H|é.*o$")), [True, False, None]),
        (call("regexp_like", S, lit("(?i)^HÉ")), [True, False, None]),
        (call("regexp_extract", S, lit("l+")), ["ll", None, None]),
        (call("regexp_extract", S, lit("(.)(l)?(o)"), lit(2)), ["l", None, None]),
        (call("regexp_extract", S, lit("$")), ["", "", None]),
        (call("regexp_replace", S, lit("[lé]"), lit("_")), ["h___o", "", None]),
        (call("regexp_replace", S, lit("(.)(l)"), lit(r"<\2\1\0\\>"), lit("g")), [r"h<léél\>lo", "", None]),
        (call("regexp_replace", S, lit("x*"), lit("-")), ["-h-é-l-l-o-", "-", None]),
        (call("regexp_replace", lit(None), lit("x"), lit("-")), [None, None, None]),
    ],
)
def test_text_functions(expression: Expression, expected: list[Any]) -> None:
    assert values(expression, s=["héllo", "", None]) == expected


@given(st.text(max_size=8), st.integers(-10, 10), st.integers(-3, 10))
def test_substring_by_constant_and_by_column_agree(text: str, start: int, length: int) -> None:
    constant = values(call("substring", S, lit(start), lit(length)), s=[text])
    assert constant == values(call("substring", S, B, N), s=[text], b=[start], i=[length])


def test_if() -> None:
    assert values(call("if", OK, N, lit(None)), ok=[True, False, None], i=[1, 2, 3]) == [1, None, None]
