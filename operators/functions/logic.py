"""Three-valued logic and the functions that choose between values."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from braid.operators.expressions import Call, Expression, Literal
from braid.operators.functions.coercion import UNTYPED_NULL, check_plain, common_type, describe, unify, widest
from braid.operators.functions.comparison import compared
from braid.operators.functions.signature import Arguments, Datum, Function, as_type, is_true, kernel, typed
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BOOLEAN, NULL


def _bind_connective(function: Function, arguments: Arguments) -> Expression:
    """Flatten: ``a AND (b AND c)`` is one call with three arguments."""
    parts: list[Expression] = []
    for argument in arguments:
        if argument.type not in (BOOLEAN, NULL):
            raise NotAllowed(f"{function.name.upper()} must stand between conditions; got {describe(argument)}.")
        if isinstance(argument, Call) and argument.function == function.name:
            parts.extend(argument.arguments)
        else:
            parts.append(argument)
    return Call(function.name, tuple(parts), BOOLEAN)


def _boolean(value: Datum) -> Datum:
    return as_type(value, pa.bool_())


def _and(_call: Call, arguments: Sequence[Datum]) -> Datum:
    result = _boolean(arguments[0])
    for argument in arguments[1:]:
        result = kernel.and_kleene(result, _boolean(argument))
    return result


def _or(_call: Call, arguments: Sequence[Datum]) -> Datum:
    result = _boolean(arguments[0])
    for argument in arguments[1:]:
        result = kernel.or_kleene(result, _boolean(argument))
    return result


def _bind_is_null(function: Function, arguments: Arguments) -> Expression:
    return Call(function.name, arguments, BOOLEAN)


def _bind_case(function: Function, arguments: Arguments) -> Expression:
    """Check ``condition, value, …, else``: conditions are BOOLEAN, values of one type. NULL if all values are."""
    conditions = arguments[:-1:2]
    values = (*arguments[1:-1:2], arguments[-1])
    for condition in conditions:
        if condition.type not in (BOOLEAN, NULL):
            raise NotAllowed(f"WHEN must be followed by a condition; got {describe(condition)}.")
    unified = unify(values)
    if unified is None:
        raise NotAllowed(
            "The values of CASE must have a common type; got "
            + ", ".join(str(v.type) for v in values)
            + ". Write CAST around the odd one."
        )
    if common_type(values) == NULL:
        return UNTYPED_NULL
    if all(isinstance(value, Literal) and value.value is None for value in unified):
        return unified[-1]
    pairs = [part for pair in zip(conditions, unified[:-1], strict=True) for part in pair]
    return Call(function.name, (*pairs, unified[-1]), widest(unified))


def _case(call: Call, arguments: Sequence[Datum]) -> Datum:
    target = call.type.arrow
    result = as_type(arguments[-1], target)
    for number in range(len(arguments) - 3, -1, -2):
        condition = is_true(_boolean(arguments[number]))
        result = kernel.if_else(condition, as_type(arguments[number + 1], target), result)
    return result


def _bind_coalesce(function: Function, arguments: Arguments) -> Expression:
    unified = unify(arguments)
    if unified is None:
        raise function.refuse(arguments, "Its arguments must have a common type.")
    if common_type(arguments) == NULL:
        return UNTYPED_NULL
    return Call(function.name, unified, widest(unified))


def _coalesce(call: Call, arguments: Sequence[Datum]) -> Datum:
    return kernel.coalesce(*(as_type(a, call.type.arrow) for a in arguments))


def _bind_nullif(function: Function, arguments: Arguments) -> Expression:
    check_plain(arguments, "compared")
    unified = unify(arguments)
    if unified is None:
        raise function.refuse(arguments, "Its arguments must have a common type.")
    if common_type(arguments) == NULL:
        return UNTYPED_NULL
    return Call(function.name, unified, unified[0].type)


def _nullif(call: Call, arguments: Sequence[Datum]) -> Datum:
    equal = is_true(compared("=", arguments[0], arguments[1]))
    target = call.type.arrow
    return kernel.if_else(equal, pa.scalar(None, target), as_type(arguments[0], target))


def _bind_if(_function: Function, arguments: Arguments) -> Expression:
    return _CASE(arguments)


def _never(call: Call, _arguments: Sequence[Datum]) -> Datum:
    raise NotImplementedError(f"{call.function} is rewritten when it is bound")


_CASE = Function("case", "CASE WHEN condition THEN value … END", _bind_case, _case, 3, None)

LOGIC = (
    Function("and", "condition AND condition", _bind_connective, _and, 1, None),
    Function("or", "condition OR condition", _bind_connective, _or, 1, None),
    Function("not", "NOT condition", typed(BOOLEAN, BOOLEAN), lambda _, a: kernel.invert(_boolean(a[0]))),
    Function("is_null", "value IS NULL", _bind_is_null, lambda _, a: kernel.is_null(a[0])),
    _CASE,
    Function("if", "IF(condition, value, else)", _bind_if, _never, 3, 3),
    Function("coalesce", "COALESCE(value, …)", _bind_coalesce, _coalesce, 1, None),
    Function("nullif", "NULLIF(value, value)", _bind_nullif, _nullif, 2, 2),
)
