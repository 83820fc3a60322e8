"""Evaluation of expressions: each function's values, types and NULLs, and that no data makes it raise."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from braid.operators.evaluation import FUNCTIONS, evaluate, fold
from braid.operators.expressions import Call, Column, Expression, Literal
from braid.operators.functions import call
from braid.operators.functions.casts import cast_to
from braid.operators.functions.coercion import decimal_type, integer_type
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, NULL, TIMESTAMP, VARCHAR, ColumnType
from tests.kit.examples import examples

MONEY = ColumnType("DECIMAL", 10, 2)
TYPES = {
    "i": INT,
    "b": BIGINT,
    "d": DOUBLE,
    "m": MONEY,
    "s": VARCHAR,
    "t": TIMESTAMP,
    "day": DATE,
    "ok": BOOLEAN,
}
COLUMNS = {name: Column(name, kind) for name, kind in TYPES.items()}
N, B, D, M, S, T, DAY, OK = COLUMNS.values()
MIN, MAX = -(2**63), 2**63 - 1


def lit(value: Any) -> Literal:
    """Return a literal as the SQL front end types it."""
    if value is None:
        return Literal(None, NULL)
    kinds: dict[type, ColumnType] = {
        bool: BOOLEAN,
        float: DOUBLE,
        str: VARCHAR,
        dt.date: DATE,
        dt.datetime: TIMESTAMP,
    }
    kind = kinds.get(type(value))
    if isinstance(value, Decimal):
        kind = decimal_type(value)
    elif isinstance(value, int) and kind is None:
        kind = integer_type(value)
    assert kind is not None
    return Literal(value, kind)


def values(expression: Expression, **columns: list[Any]) -> list[Any]:
    """Return the values of an expression over columns called as in TYPES."""
    arrays = {name: pa.array(column, TYPES[name].arrow) for name, column in columns.items()}
    length = len(next(iter(columns.values()))) if columns else 1
    result = evaluate(expression, arrays, length)
    assert isinstance(result, pa.Array)
    assert result.type == expression.type.arrow
    assert len(result) == length
    result.validate(full=True)
    return list(result.to_pylist())


# arithmetic


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


EDGES = [0, 1, -1, 2, 7, -7, 2**31, 2**32 + 1, -(2**32), MAX, MAX - 1, MIN, MIN + 1]
INTEGERS = st.none() | st.sampled_from(EDGES) | st.integers(MIN, MAX) | st.integers(-100, 100)


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


# logic and comparison

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


# text


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


# time

MOMENT = dt.datetime(2024, 2, 29, 23, 59, 58, 123456)
BEFORE_1970 = dt.datetime(1969, 12, 31, 23, 59, 59, 999999)


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


# casts


@pytest.mark.parametrize(
    ("column", "target", "given", "expected"),
    [
        (S, INT, ["5", " -7 ", "5.7", "1e3"], [5, -7, 5, 1000]),
        (S, INT, ["abc", "", "2147483648", "0x1F"], [None, None, None, None]),
        (S, BIGINT, [str(MAX), str(MAX + 1)], [MAX, None]),
        (S, DOUBLE, ["1.5", "-2", "1e400", "x", "1_0"], [1.5, -2.0, math.inf, None, None]),
        (S, MONEY, ["1.005", "99999999.995", "x"], [Decimal("1.01"), None, None]),
        (S, BOOLEAN, ["true", "F", "maybe"], [True, False, None]),
        (S, DATE, ["2024-02-29", "2023-02-29"], [dt.date(2024, 2, 29), None]),
        (S, DATE, ["2024-02-29 10:00:00"], [dt.date(2024, 2, 29)]),
        (S, DATE, ["2024-02-29", "2024-2-9", "2024-2-9 1:2:3"], [dt.date(2024, 2, day) for day in (29, 9, 9)]),
        (S, DATE, ["24-2-9", "2024-2-30", "2024-2-009", "2024-2-9x", "2024-2-", "20240-2-9"], [None] * 6),
        (S, TIMESTAMP, ["2024-2-29 23:59:58.123456", "2024-02-29T23:59:58.123456Z"], [MOMENT, MOMENT]),
        (S, TIMESTAMP, ["2024-2-9", "2024-2-9 1:2"], [dt.datetime(2024, 2, 9), dt.datetime(2024, 2, 9, 1, 2)]),
        (S, TIMESTAMP, ["2024-2-9T1:2:3+02:00"], [dt.datetime(2024, 2, 8, 23, 2, 3)]),
        (S, TIMESTAMP, ["2024-2-9 1", "2024-2-9 1:60", "2024-13-9 1:02"], [None] * 3),
        (S, TIMESTAMP, ["2024-02-29 23:59:58.123456", "2024-02-30 00:00:00"], [MOMENT, None]),
        (D, INT, [1.9, -1.9, 2.0**31, math.nan, math.inf], [1, -1, None, None, None]),
        (D, BIGINT, [2.0**63, -(2.0**63)], [None, MIN]),
        (D, MONEY, [1.005, 1e30, math.nan], [Decimal("1.01"), None, None]),
        (D, VARCHAR, [1.0, -0.0, 1e16, 0.1], ["1.0", "0.0", "1e+16", "0.1"]),
        (D, BOOLEAN, [0.0, 0.5], [False, True]),
        (B, INT, [2**31, -(2**31)], [None, -(2**31)]),
        (B, ColumnType("DECIMAL", 3, 1), [99, 100], [Decimal("99.0"), None]),
        (B, DOUBLE, [MAX], [2.0**63]),
        (M, INT, [Decimal("-1.99")], [-1]),
        (M, VARCHAR, [Decimal("1.50")], ["1.50"]),
        (M, ColumnType("DECIMAL", 4, 1), [Decimal("1.25"), Decimal("9999.00")], [Decimal("1.3"), None]),
        (T, DATE, [BEFORE_1970], [dt.date(1969, 12, 31)]),
        (T, VARCHAR, [dt.datetime(2024, 1, 1), MOMENT], ["2024-01-01 00:00:00", "2024-02-29 23:59:58.123456"]),
        (DAY, TIMESTAMP, [dt.date(2024, 1, 1)], [dt.datetime(2024, 1, 1)]),
        (OK, INT, [True, False], [1, 0]),
        (OK, VARCHAR, [True, False], ["true", "false"]),
    ],
)  # fmt: skip
def test_casts(column: Column, target: ColumnType, given: list[Any], expected: list[Any]) -> None:
    expression = cast_to(column, target)
    assert values(expression, **{column.name: [*given, None]}) == [*expected, None]
    # the answer for a value does not depend on its neighbours
    assert [values(expression, **{column.name: [v]})[0] for v in given] == expected


def test_casts_that_make_no_sense_are_refused() -> None:
    with pytest.raises(NotAllowed, match=r"Cannot cast day \(DATE\) to INT"):
        cast_to(DAY, INT)


# constants and refusals


def test_constants_fold_and_repeat() -> None:
    assert fold(call("+", lit(1), lit(2))) == Literal(3, BIGINT)
    assert fold(cast_to(lit("x"), INT)) == Literal(None, INT)
    assert fold(call("date_trunc", lit("day"), lit(MOMENT))) == Literal(dt.datetime(2024, 2, 29), TIMESTAMP)
    assert evaluate(lit("a"), {}, 3).to_pylist() == ["a", "a", "a"]
    assert evaluate(call("+", lit(1), lit(2)), {}, 2).to_pylist() == [3, 3]
    assert evaluate(call("+", N, lit(2)), {"i": pa.array([], pa.int32())}, 0).to_pylist() == []


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("+", (S, lit(1)), "to join texts"),
        ("-", (T, T), "TIMESTAMPDIFF"),
        ("=", (S, lit(1)), "no common type"),
        ("and", (N, OK), "between conditions"),
        ("upper", (N,), "does not fit"),
        ("upper", (S, S), "does not take 2"),
        ("case", (N, N, N), "WHEN"),
        ("coalesce", (N, S), "common type"),
        ("round", (D, N), "whole number of digits"),
        ("date_trunc", (lit("eon"), T), "one of the units"),
        ("like", (S, lit("a!b"), lit("!")), "must precede"),
        ("like", (S, lit("a"), lit("!!")), "one character"),
        ("greatest", (OK, OK), "numbers, texts"),
        ("if", (N, N, N), "WHEN"),
        ("concat_ws", (N, S), "does not fit"),
        ("regexp_extract", (S, lit("a"), lit(-1)), "which has 0"),
        ("to_timestamp", (DAY,), "does not fit"),
    ],
)
def test_wrong_types_are_refused(name: str, arguments: tuple[Expression, ...], message: str) -> None:
    with pytest.raises(NotAllowed, match=message):
        call(name, *arguments)


def test_timestamps_of_seconds() -> None:
    ends = [-62135596800.0, 253402300800.0, -62135596801.0, math.nan, math.inf, None]
    assert values(call("to_timestamp", D), d=ends) == [dt.datetime(1, 1, 1), *[None] * 5]
    assert values(call("to_timestamp", D), d=[1709251198.123456]) == [MOMENT]
    assert values(call("to_timestamp", S), s=["2024-02-29 23:59:58.123456"]) == [MOMENT]


# nothing in the data makes evaluation raise

DATA = {
    "i": st.integers(-(2**31), 2**31 - 1),
    "b": INTEGERS,
    "d": st.floats(),
    "m": st.decimals(Decimal("-99999999.99"), Decimal("99999999.99"), places=2),
    "s": st.text(max_size=12) | st.sampled_from(["1", "-2.5", "2024-01-01", "x%", "\\", "1e999999999", "9" * 50]),
    "t": st.datetimes(),
    "day": st.dates(),
    "ok": st.booleans(),
}  # fmt: skip
TARGETS = [INT, BIGINT, DOUBLE, MONEY, ColumnType("DECIMAL", 38, 20), VARCHAR, DATE, TIMESTAMP, BOOLEAN]
ARGUMENTS: list[Expression] = [
    *COLUMNS.values(),
    *map(lit, [0, -1, 3, Decimal("0.5"), 2.5, "a%", "2024-05-05", "year", None, True]),
]


def every_call() -> list[Expression]:
    """Return every call of at most three columns or constants that types allow."""
    found: list[Expression] = []
    thirds: list[Expression] = [N, S, T, lit(1), lit("b")]
    for name, function in FUNCTIONS.items():
        if name in ("cast", "add_months"):
            continue
        ranges: list[list[Expression]] = [ARGUMENTS] * min(2, function.most or 2)
        if function.least == 3:
            ranges.append(thirds)
        for arguments in itertools.product(*ranges):
            try:
                found.append(function(tuple(arguments)))
            except NotAllowed:
                continue
    for column in COLUMNS.values():
        for target in TARGETS:
            try:
                found.append(cast_to(column, target))
            except NotAllowed:
                continue
    return found


CALLS = every_call()


@given(st.data())
@settings(max_examples=examples(10), deadline=None)
def test_no_data_makes_evaluation_raise(data: st.DataObject) -> None:
    length = data.draw(st.integers(0, 4))
    arrays = {
        name: pa.array([data.draw(st.none() | values) for _ in range(length)], TYPES[name].arrow)
        for name, values in DATA.items()
    }
    assert len(CALLS) > 1000
    for expression in CALLS:
        result = evaluate(expression, arrays, length)
        assert result.type == expression.type.arrow, expression
        assert len(result) == length, expression


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
