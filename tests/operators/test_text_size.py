"""How large texts may become: no function makes more than is said, and what there is no room for fails alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.evaluation import evaluate
from braid.operators.expressions import Call, Column, Expression, Literal
from braid.operators.functions import FUNCTIONS, call
from braid.operators.functions.text_size import _MAX_BYTES, MAX_BYTES, constant_bytes, size_of
from braid.operators.tuples import Tuples
from braid.sources.core.errors import TooLarge
from braid.sources.core.schema import BIGINT, BOOLEAN, INT, VARCHAR

S, T, N, OK = Column("s", VARCHAR), Column("t", VARCHAR), Column("n", BIGINT), Column("ok", BOOLEAN)
A = Literal("a", VARCHAR)
TEN, HUNDRED = Literal("a" * 10, VARCHAR), Literal("a" * 100, VARCHAR)
LONG = call("replace", S, A, HUNDRED)

texts = st.text(alphabet="abé-", max_size=6)
rows_of_columns = st.tuples(st.none() | texts, st.none() | texts, st.none() | st.integers(-2, 8), st.booleans())
constants = texts.map(lambda text: Literal(text, VARCHAR))


@st.composite
def calls(draw: st.DrawFn) -> Expression:
    """Return a call of a function whose texts may be more than those of its arguments."""
    name = draw(st.sampled_from(sorted(_MAX_BYTES)))
    text, other, third = (draw(st.sampled_from([S, T]) | constants) for _ in range(3))
    arguments: dict[str, Sequence[Expression]] = {
        "case": (OK, text, other),
        "regexp_replace": (
            S,
            Literal(draw(st.sampled_from(["(a)", ".", "(b*)", "a|é"])), VARCHAR),
            Literal(draw(st.sampled_from(["", "xyz", r"\0\0", r"é\0-", r"\\0"])), VARCHAR),
        ),
        "lpad": (text, Literal(draw(st.integers(0, 9)), INT), other),
        "repeat": (text, draw(st.sampled_from([N, Literal(3, INT)]))),
        "nullif": (text, other),
    }
    arguments["rpad"] = arguments["lpad"]
    return call(name, *arguments.get(name, (text, other, third)))


@given(st.lists(rows_of_columns, min_size=1, max_size=8), calls())
def test_a_function_makes_no_more_than_is_said(rows: list[tuple[Any, ...]], made: Expression) -> None:
    kinds = (pa.string(), pa.string(), pa.int64(), pa.bool_())
    columns = {
        name: pa.array(values, kind) for name, values, kind in zip("stnk", zip(*rows, strict=True), kinds, strict=True)
    }
    columns["ok"] = columns.pop("k")
    length = len(rows)
    assert isinstance(made, Call)
    arguments = [evaluate(argument, columns, length) for argument in made.arguments]
    constants_kept = [
        pa.scalar(argument.value, argument.type.arrow) if isinstance(argument, Literal) else value
        for argument, value in zip(made.arguments, arguments, strict=True)
    ]
    if not any(isinstance(argument, pa.Array) for argument in constants_kept):
        constants_kept[0] = arguments[0]
    most = _MAX_BYTES[made.function](constants_kept, length)
    assert size_of(evaluate(made, columns, length), length) <= most <= MAX_BYTES


def nested(name: str, times: int, *rest: Expression) -> Expression:
    made: Expression = S
    for _ in range(times):
        made = call(name, made, *rest)
    return made


@pytest.mark.parametrize(
    "made",
    [
        nested("replace", 3, A, HUNDRED),
        nested("replace", 3, A, call("concat", TEN, TEN, TEN, TEN, TEN, TEN, TEN, TEN, TEN, TEN)),
        call("regexp_replace", LONG, Literal("(a+)", VARCHAR), Literal(r"\1" * 50, VARCHAR)),
        call("concat", *[LONG] * 40),
        call("concat_ws", HUNDRED, *[S] * 2000),
        call("case", OK, call("replace", HUNDRED, A, Literal("é" * 10_000, VARCHAR)), S),
        call("greatest", call("replace", HUNDRED, A, Literal("é" * 10_000, VARCHAR)), S),
        call("coalesce", call("nullif", S, S), call("replace", HUNDRED, A, Literal("é" * 10_000, VARCHAR))),
        call("replace", HUNDRED, A, Literal("é" * 10_000, VARCHAR)),
    ],
    ids=lambda made: made.function,
)
def test_what_there_is_no_room_for_fails_alone(made: Expression) -> None:
    length = 20_000
    columns = {"s": pa.array(["a" * 10] * length), "ok": pa.array([True] * length)}
    tuples = Tuples(columns, length)
    assert tuples.value(made).null_count == length
    assert tuples.value(call("concat", S, A)).to_pylist() == ["a" * 11] * length
    ((text, why),) = tuples.failures.items()
    assert text == str(made)
    assert "MB of texts of 20000 rows at once, and may make 512 MB" in why
    with pytest.raises(TooLarge, match="make shorter texts"):
        evaluate(made, columns, length)


def test_columns_that_are_replaced_by_columns_are_counted_row_by_row() -> None:
    length = 4000
    columns = {"s": pa.array(["ab" * 500] * length), "t": pa.array(["x" * 1000] * length)}
    unchanged = evaluate(call("replace", S, T, T), columns, length)
    assert unchanged.equals(columns["s"]), "nothing is found, however much it could be"
    with pytest.raises(TooLarge, match="REPLACE"):
        evaluate(call("replace", S, call("left", S, Literal(1, INT)), T), columns, length)


def test_texts_are_as_large_as_what_is_constant_in_them_at_least() -> None:
    assert constant_bytes(S) == constant_bytes(N) == 0
    assert constant_bytes(Literal("é", VARCHAR)) == 2
    assert constant_bytes(call("concat", S, Literal("é", VARCHAR), TEN)) == 12
    assert constant_bytes(call("case", OK, TEN, HUNDRED)) == 100
    assert constant_bytes(call("rpad", S, Literal(30, INT))) == 30
    assert set(_MAX_BYTES) <= set(FUNCTIONS)
