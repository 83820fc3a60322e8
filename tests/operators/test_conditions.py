"""Conditions as bitmaps against three-valued evaluation of each, for all column types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators import evaluation
from braid.operators.expressions import Call, Column, Expression, Literal
from braid.operators.functions import call
from braid.operators.predicates import conditions
from braid.operators.predicates.analysis import analyse
from braid.operators.predicates.bitmaps import Bitmaps
from braid.operators.predicates.conditions import Conditions
from braid.operators.tuples import Tuples
from braid.sources.core.schema import BIGINT, BOOLEAN, VARCHAR
from tests.kit.examples import examples
from tests.operators.test_predicate_index import predicates, rows, selected_by_evaluation, tuples_of

BITMAPS = Bitmaps()
TEXT, NUMBER = Column("s", VARCHAR), Column("n", BIGINT)


def selected(where: Expression | None, tuples: Tuples, memo: Conditions | None = None) -> list[bool]:
    words = BITMAPS.of(analyse(where)).of(memo or Conditions(tuples))
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    assert not bits[tuples.length :].any(), "there is no tuple beyond the last"
    return [bool(bit) for bit in bits[: tuples.length]]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.one_of(st.none(), predicates), max_size=6), rows, st.integers(1, 30))
def test_bitmaps_say_what_evaluation_says(
    wheres: list[Expression | None], values: list[dict[str, Any]], times: int
) -> None:
    tuples = tuples_of(values * times)
    memo = Conditions(tuples)
    for where in wheres:
        assert selected(where, tuples, memo) == selected_by_evaluation(where, tuples), str(where)
    assert not tuples.failures


TESTS_OF_TEXTS = [
    call("=", TEXT, Literal("text 3", VARCHAR)),
    call("in", TEXT, Literal("text 3", VARCHAR), Literal("text 7", VARCHAR)),
    call(">", TEXT, Literal("text 5", VARCHAR)),
    call("like", TEXT, Literal("%1%", VARCHAR)),
    call(">", call("length", TEXT), Literal(6, BIGINT)),
    call("is_null", TEXT),
    call("not", call("like", TEXT, Literal("text 1%", VARCHAR))),
    call("or", call("=", TEXT, Literal("text 3", VARCHAR)), call(">", NUMBER, Literal(5, BIGINT))),
]


@pytest.mark.parametrize("where", TESTS_OF_TEXTS, ids=str)
@pytest.mark.parametrize("values", [7, 100_000], ids=["repeated", "all different"])
def test_texts_are_compared_by_value_where_they_repeat(where: Expression, values: int) -> None:
    rng = np.random.default_rng(5)
    numbers = rng.integers(0, values, 5000)
    texts = pa.array([None if n % 6 == 5 else f"text {n}" for n in numbers.tolist()])
    tuples = Tuples({"s": texts, "n": pa.array(numbers % 11)}, 5000)
    assert selected(where, tuples) == selected_by_evaluation(where, tuples)


def test_an_equal_expression_is_evaluated_once_for_all_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[str] = []

    def evaluate(expression: Expression, *arguments: Any) -> pa.Array:
        evaluated.append(str(expression))
        return evaluation.evaluate(expression, *arguments)

    monkeypatch.setattr(conditions, "evaluate", evaluate)
    tuples = Tuples({"n": pa.array(range(100))}, 100)
    memo = Conditions(tuples)
    rest = call("mod", NUMBER, Literal(7, BIGINT))
    wheres = [
        Call("or", (call("=", rest, Literal(i, BIGINT)), call(">", NUMBER, Literal(90, BIGINT))), BOOLEAN)
        for i in range(5)
    ]
    running = [BITMAPS.of(analyse(where)) for where in wheres]
    for where in wheres:
        assert selected(where, tuples, memo) == selected_by_evaluation(where, tuples)
    assert len({id(bitmap) for bitmap in running}) == len(wheres)
    assert evaluated.count(str(rest)) == 1


def test_what_cannot_be_evaluated_is_told_of_the_whole_conjunct(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = call("mod", NUMBER, Literal(7, BIGINT))

    def evaluate(expression: Expression, *arguments: Any) -> pa.Array:
        if str(bad) in str(expression):
            raise pa.ArrowInvalid("out of range")
        return evaluation.evaluate(expression, *arguments)

    monkeypatch.setattr(conditions, "evaluate", evaluate)
    monkeypatch.setattr("braid.operators.tuples.evaluate", evaluate)
    tuples = Tuples({"n": pa.array(range(10))}, 10)
    conjunct = Call("or", (call("=", bad, Literal(1, BIGINT)), call("=", NUMBER, Literal(3, BIGINT))), BOOLEAN)
    assert selected(conjunct, tuples) == [False] * 10
    assert tuples.failures == {str(conjunct): "ArrowInvalid: out of range"}
