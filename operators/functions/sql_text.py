"""Expressions as SQL writes them, for messages and plans.

``str`` of an expression writes all calls in one form, for identities. Who wrote ``k > 0`` wants to read that.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from braid.operators.expressions import Call, Column, Expression, Literal
from braid.sources.core.schema import BIGINT, TIMESTAMP

# how strongly operators bind, from the weakest
_OR, _AND, _NOT, _PREDICATE, _SUM, _PRODUCT, _SIGN, _OPERAND = range(8)
_OPERATORS = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "is_distinct_from", "is_not_distinct_from"), _PREDICATE),
    **dict.fromkeys(("+", "-", "concat"), _SUM),
    **dict.fromkeys("*/%", _PRODUCT),
    "and": _AND,
    "or": _OR,
}
_SYMBOLS = {
    "is_distinct_from": "IS DISTINCT FROM",
    "is_not_distinct_from": "IS NOT DISTINCT FROM",
    "concat": "||",
    "and": "AND",
    "or": "OR",
}
_NEGATED = {
    "is_null": "IS NOT NULL",
    "in": "NOT IN",
    "between": "NOT BETWEEN",
    "like": "NOT LIKE",
    "ilike": "NOT ILIKE",
}
_PREDICATES = {"is_null": "IS NULL", "in": "IN", "between": "BETWEEN", "like": "LIKE", "ilike": "ILIKE"}
# with an alias, or a member behind the column
_PLAIN_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_UNITS = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000, "MILLISECOND": 1000}


def sql_text(expression: Expression) -> str:
    """Return the expression as SQL; implicit casts are written like others."""
    return _within(expression, _OR)


def advised_text(expression: Expression) -> str:
    """Return the expression as a message advises to write it: a column with its double quotes, where it needs them."""
    if not isinstance(expression, Column) or _PLAIN_NAME.fullmatch(expression.name):
        return sql_text(expression)
    alias, _, column = expression.name.partition(".")
    if column and _PLAIN_NAME.fullmatch(alias):
        return f"{alias}.{_in_quotes(column)}"
    return _in_quotes(expression.name)


def _in_quotes(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _within(expression: Expression, least: int) -> str:
    """Return the expression as an operand of what binds as strongly as ``least``."""
    text, strength = _written(expression)
    return text if strength >= least else f"({text})"


def _written(expression: Expression) -> tuple[str, int]:
    """Return the text of an expression, and how strongly its parts are bound."""
    if isinstance(expression, Column):
        return expression.name, _OPERAND
    if isinstance(expression, Literal):
        return str(expression).upper() if isinstance(expression.value, bool) else str(expression), _OPERAND
    name, arguments = expression.function, expression.arguments
    if name in _OPERATORS and len(arguments) > 1:
        return _operator(expression), _OPERATORS[name]
    if name in _PREDICATES:
        return _predicate(expression, _PREDICATES[name]), _PREDICATE
    if name == "not":
        inner = arguments[0]
        if isinstance(inner, Call) and inner.function in _NEGATED:
            return _predicate(inner, _NEGATED[inner.function]), _PREDICATE
        return f"NOT {_within(inner, _NOT)}", _NOT
    if name == "negate":
        return f"-{_within(arguments[0], _OPERAND)}", _SIGN
    if name in _SHIFTS:
        return _shift(expression), _SUM
    return _SPECIAL.get(name, _function)(expression), _OPERAND


def _operator(call: Call) -> str:
    """Write an operator that leans to the left; predicates beside predicates are told apart by brackets."""
    strength = _OPERATORS[call.function]
    first, *operands = call.arguments
    left = _within(first, strength + (strength == _PREDICATE))
    symbol = _SYMBOLS.get(call.function, call.function)
    return f" {symbol} ".join((left, *(_within(operand, strength + 1) for operand in operands)))


def _predicate(call: Call, words: str) -> str:
    value, *operands = call.arguments
    left = _within(value, _PREDICATE + 1)
    if call.function == "in":
        return f"{left} {words} ({', '.join(map(sql_text, operands))})"
    separator = {"between": " AND ", "like": " ESCAPE ", "ilike": " ESCAPE "}.get(call.function, "")
    return f"{left} {words} {separator.join(_within(operand, _PREDICATE + 1) for operand in operands)}".rstrip()


def _shift(call: Call) -> str:
    moment, amount = call.arguments
    count = amount.value if isinstance(amount, Literal) else None
    if not isinstance(count, int):
        return _function(call)
    unit, size = ("MONTH", 1) if call.function == "add_months" else ("MICROSECOND", 1)
    if call.function == "add_interval":
        whole_units = ((name, length) for name, length in _UNITS.items() if count % length == 0)
        unit, size = next(whole_units, (unit, size))
    sign = "-" if count < 0 else "+"
    return f"{_within(moment, _SUM)} {sign} INTERVAL '{abs(count) // size}' {unit}"


def _case(call: Call) -> str:
    *branches, default = map(sql_text, call.arguments)
    whens = "".join(f" WHEN {when} THEN {then}" for when, then in zip(branches[::2], branches[1::2], strict=True))
    return f"CASE{whens}{'' if default == 'NULL' else f' ELSE {default}'} END"


def _cast(call: Call) -> str:
    return f"CAST({sql_text(call.arguments[0])} AS {call.type})"


def _date_trunc(call: Call) -> str:
    moment, unit = map(sql_text, call.arguments)
    return f"DATE_TRUNC({unit}, {moment})"


def _difference(call: Call) -> str:
    start, end, unit = map(sql_text, call.arguments)
    return f"{call.function.upper()}({unit}, {start}, {end})"


def _member(call: Call) -> str:
    struct, member = call.arguments
    name = str(member.value) if isinstance(member, Literal) else ""
    return f"{_within(struct, _OPERAND)}.{name if _PLAIN_NAME.fullmatch(name) else _in_quotes(name)}"


def _element(call: Call) -> str:
    value, place = call.arguments
    return f"{_within(value, _OPERAND)}[{sql_text(place)}]"


def _arrow(call: Call) -> str:
    value, path = call.arguments
    return f"{_within(value, _OPERAND)} {_ARROWS[call.function]} {_within(path, _OPERAND)}"


def _function(call: Call) -> str:
    arguments = ", ".join(map(sql_text, call.arguments))
    # the functions of one timestamp that return a whole number are its fields
    if call.type == BIGINT and [argument.type for argument in call.arguments] == [TIMESTAMP]:
        return f"EXTRACT({call.function.upper()} FROM {arguments})"
    return f"{call.function.upper()}({arguments})"


_ARROWS = {"json_extract": "->", "json_extract_string": "->>"}
_SHIFTS = ("add_interval", "add_months")
_SPECIAL: dict[str, Callable[[Call], str]] = {
    "case": _case,
    "cast": _cast,
    "date_trunc": _date_trunc,
    "timestampdiff": _difference,
    "datediff": _difference,
    "member": _member,
    "element": _element,
    **dict.fromkeys(_ARROWS, _arrow),
}
