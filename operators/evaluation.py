"""Vectorised evaluation of expressions over Arrow arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import pyarrow as pa

from braid.operators.expressions import Call, Column, Expression, Literal
from braid.operators.functions import FUNCTIONS
from braid.operators.functions.signature import Datum
from braid.operators.functions.text_size import check_call, check_size, size_of
from braid.sources.core.columns import one_array

__all__ = ["FUNCTIONS", "evaluate", "fold", "holds_for_nulls", "is_null_for_nulls"]

_CONNECTIVES = ("and", "or")
# results may be longer than what they are made from
_GROWING = ("concat", "concat_ws", "replace", "regexp_replace")


def evaluate(expression: Expression, columns: Mapping[str, pa.Array], length: int) -> pa.Array:
    """Return the values of an expression, one per row, in the Arrow type of ``expression.type``.

    ``columns`` are the input columns by name, each of ``length`` rows. Never raises because of data, but TooLarge where
    texts become so much longer that there is no room for them.
    """
    value = _evaluate(expression, columns)
    if isinstance(value, pa.Scalar):
        check_size("A constant", size_of(value, length), length)
        value = pa.repeat(value, length)
    target = expression.type.arrow
    return value if value.type == target else value.cast(target, safe=False)


def _evaluate(expression: Expression, columns: Mapping[str, pa.Array]) -> Datum:
    if isinstance(expression, Column):
        return one_array(columns[expression.name])
    if isinstance(expression, Literal):
        return pa.scalar(expression.value, expression.type.arrow)
    arguments = (_evaluate(argument, columns) for argument in expression.arguments)
    if expression.function in _CONNECTIVES:
        # two at a time: of thousands of conditions no more are in memory
        return reduce(lambda left, right: _called(expression, [left, right]), arguments)
    return _called(expression, list(arguments))


def _called(expression: Call, arguments: Sequence[Datum]) -> Datum:
    function = FUNCTIONS[expression.function]
    if any(isinstance(argument, pa.Array) for argument in arguments):
        check_call(function.usage, expression, arguments)
        return function.evaluate(expression, arguments)
    # constants only: one row, whose first argument stands for the column
    rows = [pa.repeat(arguments[0], 1), *arguments[1:]]
    check_call(function.usage, expression, rows)
    return _first(function.evaluate(expression, rows))


def _first(value: Datum) -> Datum:
    return value[0] if isinstance(value, pa.Array) else value


def is_null_for_nulls(expression: Expression) -> bool:
    """Return whether an expression is NULL where all its columns are, whatever else it says."""
    value = fold(_with_nulls(expression))
    return isinstance(value, Literal) and value.value is None


def holds_for_nulls(condition: Expression) -> bool:
    """Return whether a condition may hold where all its columns are NULL."""
    value = fold(_with_nulls(condition))
    return not isinstance(value, Literal) or value.value is True


def _with_nulls(expression: Expression) -> Expression:
    if isinstance(expression, Column):
        return Literal(None, expression.type)
    if isinstance(expression, Call):
        return fold(Call(expression.function, tuple(map(_with_nulls, expression.arguments)), expression.type))
    return expression


def fold(expression: Expression) -> Expression:
    """Return a call of literals as the literal it evaluates to, and casts of literals in a call likewise."""
    if not isinstance(expression, Call):
        return expression
    if any(isinstance(a, Call) and a.function == "cast" for a in expression.arguments):
        folded = tuple(fold(a) if isinstance(a, Call) and a.function == "cast" else a for a in expression.arguments)
        expression = replace(expression, arguments=folded)
    if expression.function in _GROWING or not all(isinstance(a, Literal) for a in expression.arguments):
        return expression
    try:
        value = evaluate(expression, {}, 1)[0].as_py()
    except (OverflowError, ValueError):  # a date beyond what Python's dates hold
        return expression
    return Literal(value, expression.type)
