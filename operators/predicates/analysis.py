"""From the WHERE clause of a query to one truth set per column that it tests.

A conjunct that tests one column against constants (comparisons, IN, IS NULL, and AND, OR, NOT of these) becomes a
truth set of that column; conjuncts over the same column become one. Any other conjunct is a *residual*: it is
evaluated once per distinct text, as a column of its own with the values 0 and 1.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property
from typing import Any

from braid.operators.evaluation import evaluate
from braid.operators.expressions import Call, Column, Expression, Literal, columns_of, conjuncts_of, typed_columns_of
from braid.operators.predicates.truth_set import EVERYTHING, NOTHING, NULL_ONLY, TruthSet, all_of, any_of
from braid.sources.core.decimals import WORD_DIGITS
from braid.sources.core.schema import BIGINT, DATE, DOUBLE, INT, TIMESTAMP, VARCHAR, ColumnType

COMPARISONS = {"=", "<>", "<", "<=", ">", ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_INTEGER_LIKE = ("INT", "BIGINT", "DATE", "TIMESTAMP", "BOOLEAN", "DECIMAL")
_EXACT = Context(prec=100)
_EPOCH = dt.datetime(1970, 1, 1)
_HOLDS = TruthSet((1,), (False, True))


class NotIndexable(Exception):
    """The predicate is not one that a truth set of a column can stand for."""


@dataclass(frozen=True)
class Predicate:
    """A WHERE clause: a tuple satisfies it when all ``truths``, by the name of their dimension, are true.

    ``kinds`` are the kinds of their types, ``residuals`` the expressions behind those dimensions that are no columns.
    """

    truths: Mapping[str, TruthSet]
    kinds: Mapping[str, str]
    residuals: Mapping[str, Expression]

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """The names of what is tested, in order."""
        return tuple(sorted(self.truths))


def analyse(where: Expression | None) -> Predicate:
    """Split a WHERE clause by dimension."""
    truths: dict[str, TruthSet] = {}
    kinds: dict[str, str] = {}
    residuals: dict[str, Expression] = {}
    for conjunct in conjuncts_of(where):
        column = _only_column(conjunct)
        try:
            if column is None:
                raise NotIndexable
            name, kind, truth = column.name, column.type.kind, outcomes(conjunct, column.type)[0]
        except Exception:  # whatever the reason, evaluating it can fail for its query alone, the index for all
            name, kind, truth = f"({conjunct})", "BOOLEAN", _HOLDS
            residuals[name] = conjunct
        kinds[name] = kind
        truths[name] = all_of([truths[name], truth]) if name in truths else truth
    return Predicate(truths, kinds, residuals)


def _only_column(expression: Expression) -> Column | None:
    columns = set(typed_columns_of(expression))
    return columns.pop() if len(columns) == 1 else None


def outcomes(expression: Expression, kind: ColumnType) -> tuple[TruthSet, TruthSet]:
    """Return where the predicate is true and where it is false; on the rest it is unknown (NULL).

    The domain of a DECIMAL is that of its digits, a whole number.
    """
    if isinstance(expression, Column) and expression.type.kind == "BOOLEAN":
        return _compare("=", True, kind)
    if not isinstance(expression, Call):
        raise NotIndexable
    function, arguments = expression.function, expression.arguments
    if function in ("and", "or"):
        parts = [outcomes(argument, kind) for argument in arguments]
        true, false = [true for true, _ in parts], [false for _, false in parts]
        return (all_of(true), any_of(false)) if function == "and" else (any_of(true), all_of(false))
    if function == "not":
        was_true, was_false = outcomes(arguments[0], kind)
        return was_false, was_true
    if function == "is_null" and isinstance(arguments[0], Column):
        return NULL_ONLY, EVERYTHING
    if function in COMPARISONS:
        left, right = arguments
        if _column_of(left) is None:
            left, right, function = right, left, _MIRRORED[function]
        _require_column(left)
        return _compare(function, _constant_of(right), kind)
    if function == "in":
        _require_column(arguments[0])
        fitted = [_fit("=", _constant_of(item), kind) for item in arguments[1:]]
        members = TruthSet.of_values([value for operator, value in fitted if operator == "="])
        return members, members.complement()
    raise NotIndexable


def _compare(operator: str, constant: Any, kind: ColumnType) -> tuple[TruthSet, TruthSet]:
    fitted, value = _fit(operator, constant, kind)
    always = EVERYTHING if fitted == "all" else NOTHING
    true = always if value is None else TruthSet.where(fitted, value)
    return true, true.complement()


def _column_of(expression: Expression) -> str | None:
    """Return the column, also below a cast that keeps every value and its order."""
    if isinstance(expression, Column):
        return expression.name
    if isinstance(expression, Call) and expression.function == "cast":
        inner = expression.arguments[0]
        if isinstance(inner, Column) and keeps_values(inner.type, expression.type):
            return inner.name
    return None


def keeps_values(source: ColumnType, target: ColumnType) -> bool:
    """Return whether a cast keeps every value; one that does not gives NULL for some, or rounds."""
    if source.kind == target.kind == "DECIMAL":
        return target.scale >= source.scale and target.precision - target.scale >= source.precision - source.scale
    if not source.is_integer:
        return False
    if target.kind == "DECIMAL":
        return target.precision - target.scale >= (10 if source == INT else 19)
    return target == BIGINT or (source == INT and target in (INT, DOUBLE))


def _require_column(expression: Expression) -> None:
    if _column_of(expression) is None:
        raise NotIndexable


def _constant_of(expression: Expression) -> Any:
    if next(columns_of(expression), None) is not None:
        raise NotIndexable
    try:
        value = expression.value if isinstance(expression, Literal) else evaluate(expression, {}, 1)[0].as_py()
    except Exception as error:  # such as a date beyond those of Python; the index must not fail for all queries
        raise NotIndexable from error
    if value is None:
        raise NotIndexable
    return value


def _fit(operator: str, constant: Any, kind: ColumnType) -> tuple[str, Any]:
    """Return the same comparison with a constant of the column's own domain.

    ``("all", None)`` and ``("none", None)`` stand for comparisons that hold for every or for no value.
    """
    if kind == VARCHAR:
        if not isinstance(constant, str):
            raise NotIndexable
        return operator, constant
    number = _number(constant, kind)
    if kind == DOUBLE:
        value = float(number)
        if not math.isfinite(value) or Decimal(value) != Decimal(number):
            raise NotIndexable
        return operator, value
    if kind.kind not in _INTEGER_LIKE or kind.precision > WORD_DIGITS or not math.isfinite(number):
        raise NotIndexable
    floor = math.floor(number)
    if not -(2**63) <= floor < 2**63:
        raise NotIndexable
    if floor == number:
        return operator, floor
    if operator in ("=", "<>"):
        return ("none" if operator == "=" else "all"), None
    return (">" if operator in (">", ">=") else "<="), floor


def _number(constant: Any, kind: ColumnType) -> int | float | Decimal:
    if isinstance(constant, dt.datetime) and kind == TIMESTAMP:
        return (constant - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(constant, dt.date) and not isinstance(constant, dt.datetime) and kind == DATE:
        return (constant - _EPOCH.date()).days
    if kind.kind == "DECIMAL" and isinstance(constant, (int, Decimal)):
        return _EXACT.scaleb(Decimal(constant), kind.scale)
    if isinstance(constant, (int, float, Decimal)) and kind not in (TIMESTAMP, DATE):
        return constant
    raise NotIndexable
