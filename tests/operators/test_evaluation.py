"""Evaluation of expressions: constants are folded, wrong types refused, and no data makes it raise."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.evaluation import FUNCTIONS, evaluate, fold
from braid.operators.expressions import Expression, Literal
from braid.operators.functions import call
from braid.operators.functions.casts import cast_to
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, BOOLEAN, DATE, DOUBLE, INT, TIMESTAMP, VARCHAR, ColumnType
from tests.kit.examples import examples
from tests.operators.evaluated import COLUMNS, DAY, INTEGERS, MOMENT, MONEY, OK, TYPES, D, N, S, T, lit


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
