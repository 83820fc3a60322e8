"""Typed scalar expressions: what a query computes from the columns of a tuple.

A tree of three frozen node classes. The SQL front end builds it with all types resolved; source tasks and the router
evaluate it over Arrow arrays (:mod:`braid.operators.evaluation`). NULL follows standard SQL (three-valued logic).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from braid.sources.core.schema import BOOLEAN, ColumnType

Value = bool | int | float | str | Decimal | dt.date | dt.datetime | None

# of a column, and of its input and table before dots; or of a measure, and no function is called as measures are
_PLAIN_NAME = re.compile(
    r"[^\W\d]\w*(?:[.#]\w+)*|(?:count|sum|min|max|count_distinct|stddev_samp|var_samp)\(.*\)", re.DOTALL
)
_CONSTANTS = ("NULL", "True", "False")


@dataclass(frozen=True)
class Column:
    """A column of the input, by name; the text of a name that could be another expression's has quotes around it."""

    name: str
    type: ColumnType

    @cached_property
    def _text(self) -> str:
        if _PLAIN_NAME.fullmatch(self.name) and self.name not in _CONSTANTS:
            return self.name
        return '"' + self.name.replace('"', '""') + '"'

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True)
class Literal:
    """A constant; dates are ``date``, timestamps naive UTC ``datetime``, DECIMAL ``Decimal``."""

    value: Value
    type: ColumnType

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        if isinstance(self.value, (dt.date, dt.datetime)):
            return f"{self.type.kind} '{self.value.isoformat()}'"
        return "NULL" if self.value is None else str(self.value)


@dataclass(frozen=True)
class Call:
    """A function or operator applied to arguments; the names are the keys of ``braid.operators.evaluation.FUNCTIONS``.

    ``case`` takes condition, value, condition, value, …, else; ``cast`` casts its argument to ``type``.
    """

    function: str
    arguments: tuple[Expression, ...]
    type: ColumnType

    @cached_property
    def _text(self) -> str:
        inner = ", ".join(str(a) for a in self.arguments)
        return f"cast({inner} as {self.type})" if self.function == "cast" else f"{self.function}({inner})"

    def __str__(self) -> str:
        return self._text


Expression = Column | Literal | Call


def typed_columns_of(expression: Expression) -> Iterator[Column]:
    """Yield all columns in the expression, repeated as they occur."""
    if isinstance(expression, Column):
        yield expression
    elif isinstance(expression, Call):
        for argument in expression.arguments:
            yield from typed_columns_of(argument)


def columns_of(expression: Expression) -> Iterator[str]:
    """Yield the names of all columns in the expression, repeated as they occur."""
    return (column.name for column in typed_columns_of(expression))


def text_of(expression: Expression) -> str:
    """Return the text of an expression, with its type where the text alone could be of several types.

    1.5 may be a DECIMAL or a DOUBLE, and how many digits a computed DECIMAL has depends on the constants in it.
    Expressions with equal texts are computed once, whoever asks for them.
    """
    return str(expression) if _tells_type(expression) else f"{expression} as {expression.type}"


def _tells_type(expression: Expression) -> bool:
    """Return whether expressions with the text of this one all have its type."""
    if isinstance(expression, Literal):
        return expression.type.is_integer
    if isinstance(expression, Column) or expression.function == "cast":
        return True
    if expression.type.kind == "DECIMAL":
        return False
    values = expression.arguments
    if expression.function == "case":
        values = (*values[1:-1:2], values[-1])
    return any(map(_tells_type, values))


def substituted(expression: Expression, columns: Mapping[str, Expression]) -> Expression:
    """Return an expression with others in the place of some columns."""
    if isinstance(expression, Column):
        return columns.get(expression.name, expression)
    if isinstance(expression, Call):
        return replace(expression, arguments=tuple(substituted(each, columns) for each in expression.arguments))
    return expression


def conjuncts_of(expression: Expression | None) -> tuple[Expression, ...]:
    """Return the parts of the top-level AND; none for no expression."""
    if expression is None:
        return ()
    if isinstance(expression, Call) and expression.function == "and":
        return tuple(part for argument in expression.arguments for part in conjuncts_of(argument))
    return (expression,)


def all_of(conditions: Iterable[Expression]) -> Expression | None:
    """Return the AND of some conditions, each once; None for none."""
    distinct = tuple(dict.fromkeys(conditions))
    if len(distinct) <= 1:
        return distinct[0] if distinct else None
    return Call("and", distinct, BOOLEAN)


def to_json(expression: Expression) -> list[Any]:
    """Return the expression as nested JSON lists."""
    if isinstance(expression, Column):
        return ["column", expression.name, expression.type.to_json()]
    if isinstance(expression, Literal):
        value = expression.value
        plain = value if value is None or isinstance(value, (bool, int, str)) else str(value)
        if isinstance(value, (dt.date, dt.datetime)):
            plain = value.isoformat()
        if isinstance(value, float):
            plain = value.hex()
        return ["literal", plain, expression.type.to_json()]
    return [
        "call",
        expression.function,
        [to_json(argument) for argument in expression.arguments],
        expression.type.to_json(),
    ]


def from_json(value: list[Any]) -> Expression:
    """Read what :func:`to_json` wrote."""
    if value[0] == "column":
        return Column(value[1], ColumnType.from_json(value[2]))
    if value[0] == "call":
        return Call(value[1], tuple(from_json(v) for v in value[2]), ColumnType.from_json(value[3]))
    kind = ColumnType.from_json(value[2])
    return Literal(_read_literal(value[1], kind.kind), kind)


def _read_literal(plain: Any, kind: str) -> Value:
    if plain is None:
        return None
    match kind:
        case "DOUBLE":
            return float.fromhex(plain) if isinstance(plain, str) else float(plain)
        case "DECIMAL":
            return Decimal(plain)
        case "DATE":
            return dt.date.fromisoformat(plain)
        case "TIMESTAMP":
            return dt.datetime.fromisoformat(plain)
        case _:
            value: Value = plain
            return value
