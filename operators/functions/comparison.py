"""Comparisons: of two values, of a value with a range or a list, and the greatest or least of some."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal

import pyarrow as pa

from braid.operators.expressions import Call, Column, Expression, Literal
from braid.operators.functions.coercion import (
    MAX_SHOWN,
    UNTYPED_NULL,
    as_times,
    check_plain,
    common_type,
    describe,
    integer_type,
    unify,
    widest,
)
from braid.operators.functions.signature import Arguments, Datum, Function, as_type, kernel
from braid.operators.functions.sql_text import advised_text, sql_text
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BOOLEAN, DATE, NULL, TIMESTAMP, VARCHAR

MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_KERNELS = {
    "=": kernel.equal,
    "<>": kernel.not_equal,
    "<": kernel.less,
    "<=": kernel.less_equal,
    ">": kernel.greater,
    ">=": kernel.greater_equal,
}
_OPPOSITE = {"<>": "=", "<=": ">", ">=": "<"}


def compare(name: str, left: Expression, right: Expression) -> Expression:
    """Return the comparison with a lone literal on the right and both sides of one type.

    An integer beside a fraction stays exact: ``n > 5.5`` becomes ``n > 5``.
    """
    if isinstance(left, Literal) and not isinstance(right, Literal):
        left, right, name = right, left, MIRRORED[name]
    name, right = _whole(name, left, right)
    return Call(name, _comparable((left, right)), BOOLEAN)


def _whole(name: str, left: Expression, right: Expression) -> tuple[str, Expression]:
    if not (left.type.is_integer and isinstance(right, Literal) and isinstance(right.value, Decimal)):
        return name, right
    whole = int(right.value.to_integral_value(ROUND_FLOOR))
    kind = integer_type(whole)
    if kind is None:
        return name, right
    if whole == right.value:
        return name, Literal(whole, kind)
    bounds = {">": ">", ">=": ">", "<": "<=", "<=": "<="}
    return (bounds[name], Literal(whole, kind)) if name in bounds else (name, right)


def _comparable(arguments: Arguments) -> Arguments:
    check_plain(arguments, "compared")
    unified = unify(arguments)
    if unified is None:
        pair = _odd_pair(arguments)
        sides = " with ".join(map(describe, pair))
        raise NotAllowed(f"Cannot compare {sides}: they have no common type. {_hint(pair)}.")
    return unified


def _hint(pair: tuple[Expression, Expression]) -> str:
    """Return what to write instead of a comparison of two values without a common type."""
    number = next((side for side in pair if side.type.is_numeric), None)
    if number is not None and any(side.type in (DATE, TIMESTAMP) for side in pair):
        return f"Write {' or '.join(as_times(number))}"
    if any(isinstance(side, Literal) and side.type == VARCHAR for side in pair):
        return "Write numbers and booleans without quotes"
    text = next((side for side in pair if side.type == VARCHAR), None)
    if number is not None and text is not None:
        quoted = f"Write '{sql_text(number)}' to compare texts, or" if isinstance(number, Literal) else "Write"
        shown = advised_text(text)
        return f"{quoted} CAST({shown if len(shown) <= MAX_SHOWN else 'text'} AS DOUBLE) to compare numbers"
    return "Write CAST around one side"


def _odd_pair(arguments: Arguments) -> tuple[Expression, Expression]:
    """Return the first argument that has no common type with those before it, preceded by one that it does not fit."""
    number = next(n for n in range(1, len(arguments)) if common_type(arguments[: n + 1]) is None)
    odd, before = arguments[number], arguments[:number]
    return next((argument for argument in before if common_type((argument, odd)) is None), before[0]), odd


def _bind_comparison(function: Function, arguments: Arguments) -> Expression:
    return compare(function.name, *arguments)


def _comparison(call: Call, arguments: Sequence[Datum]) -> Datum:
    return compared(call.function, *arguments)


def compared(name: str, left: Datum, right: Datum) -> Datum:
    """Compare values of one type; NaN is equal to itself and greater than all else, as it is for cells."""
    if not pa.types.is_floating(left.type):
        return _KERNELS[name](left, right)
    left_nan, right_nan = kernel.is_nan(left), kernel.is_nan(right)
    if not (_any(left_nan) or _any(right_nan)):
        return _KERNELS[name](left, right)
    match name:
        case "=":
            return kernel.or_kleene(kernel.equal(left, right), kernel.and_kleene(left_nan, right_nan))
        case "<":
            return kernel.or_kleene(kernel.less(left, right), kernel.and_not_kleene(right_nan, left_nan))
        case ">":
            return compared("<", right, left)
    return kernel.invert(compared(_OPPOSITE[name], left, right))


def _any(mask: Datum) -> bool:
    return bool((kernel.any(mask) if isinstance(mask, pa.Array) else mask).as_py())


def _bind_distinct(function: Function, arguments: Arguments) -> Expression:
    return Call(function.name, _comparable(arguments), BOOLEAN)


def _is_distinct(_call: Call, arguments: Sequence[Datum]) -> Datum:
    left, right = arguments
    differ = kernel.fill_null(compared("<>", left, right), True)
    return kernel.and_not(differ, kernel.and_(kernel.is_null(left), kernel.is_null(right)))


def _is_not_distinct(call: Call, arguments: Sequence[Datum]) -> Datum:
    return kernel.invert(_is_distinct(call, arguments))


def _bind_between(function: Function, arguments: Arguments) -> Expression:
    """Write a range of a column as two comparisons; anything longer is computed once."""
    value, low, high = arguments
    if isinstance(value, Column):
        return Call("and", (compare(">=", value, low), compare("<=", value, high)), BOOLEAN)
    return Call(function.name, _comparable(arguments), BOOLEAN)


def _between(_call: Call, arguments: Sequence[Datum]) -> Datum:
    value, low, high = arguments
    return kernel.and_kleene(compared(">=", value, low), compared("<=", value, high))


def _bind_in(function: Function, arguments: Arguments) -> Expression:
    """Keep a list of literals as ``in``; a list with anything else becomes comparisons."""
    value, *members = arguments
    if len(members) == 1:
        return compare("=", value, members[0])
    if isinstance(value, Column) and not all(isinstance(m, Literal) for m in members):
        return Call("or", tuple(compare("=", value, m) for m in members), BOOLEAN)
    return Call(function.name, _comparable(arguments), BOOLEAN)


def _in(call: Call, arguments: Sequence[Datum]) -> Datum:
    value, *members = arguments
    if not all(isinstance(m, pa.Scalar) for m in members):
        result = compared("=", value, members[0])
        for member in members[1:]:
            result = kernel.or_kleene(result, compared("=", value, member))
        return result
    # the widest type among them: an INT column may stand beside BIGINT members
    target = members[0].type
    value = as_type(value, target)
    literals = [a.value for a in call.arguments[1:] if isinstance(a, Literal)]
    value_set = pa.array([v for v in literals if v is not None], target)
    if pa.types.is_floating(target):  # Arrow looks values up by their bits, and -0.0 equals 0.0
        value, value_set = kernel.add(value, 0.0), kernel.add(value_set, 0.0)
    is_member = kernel.is_in(value, value_set=value_set)
    unknown = pa.scalar(None, pa.bool_())
    if None in literals:
        return kernel.if_else(is_member, True, unknown)
    return kernel.if_else(kernel.is_null(value), unknown, is_member)


def _bind_extreme(function: Function, arguments: Arguments) -> Expression:
    check_plain(arguments, "compared")
    unified = unify(arguments)
    if unified is None or unified[0].type == BOOLEAN:
        raise function.refuse(arguments, "Its arguments must be numbers, texts, dates or timestamps.")
    if common_type(arguments) == NULL:
        return UNTYPED_NULL
    return Call(function.name, unified, widest(unified))


def _extreme(call: Call, arguments: Sequence[Datum]) -> Datum:
    values = [as_type(a, call.type.arrow) for a in arguments]
    if call.function == "least":
        return kernel.min_element_wise(*values, skip_nulls=False)
    greatest = kernel.max_element_wise(*values, skip_nulls=False)
    if pa.types.is_floating(call.type.arrow):  # Arrow passes NaN over
        for value in values:
            greatest = kernel.if_else(kernel.is_nan(value), kernel.add(value, greatest), greatest)
    return greatest


COMPARISON = (
    *(Function(n, f"value {n} value", _bind_comparison, _comparison, 2, 2) for n in _KERNELS),
    Function("is_distinct_from", "value IS DISTINCT FROM value", _bind_distinct, _is_distinct, 2, 2),
    Function("is_not_distinct_from", "value IS NOT DISTINCT FROM value", _bind_distinct, _is_not_distinct, 2, 2),
    Function("between", "value BETWEEN low AND high", _bind_between, _between, 3, 3),
    Function("in", "value IN (value, …)", _bind_in, _in, 2, None),
    Function("greatest", "GREATEST(value, …)", _bind_extreme, _extreme, 1, None),
    Function("least", "LEAST(value, …)", _bind_extreme, _extreme, 1, None),
)
