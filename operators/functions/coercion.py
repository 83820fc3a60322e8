"""Implicit conversions between SQL types, as Flink SQL and DuckDB both allow them.

Numbers widen INT → BIGINT → DECIMAL → DOUBLE, DATE widens to TIMESTAMP, and a text *literal* beside a DATE or TIMESTAMP
is read as one. Nothing else converts by itself: the user writes CAST.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal

from braid.operators.expressions import Call, Column, Expression, Literal, Value
from braid.operators.functions.sql_text import advised_text, sql_text
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, DATE, DOUBLE, INT, NULL, TIMESTAMP, VARCHAR, ColumnType

INT_RANGE = (-(2**31), 2**31 - 1)
BIGINT_RANGE = (-(2**63), 2**63 - 1)
MAX_PRECISION = 38
MAX_SHOWN = 60
"""Characters of an expression that a message shows."""
_EXACT = Context(prec=MAX_PRECISION)
# the end of the year 9999, in seconds since 1970
_LAST_SECOND = 253_402_300_799
# the rest is a fraction of a second, or an offset
_DATE_AND_TIME = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:([ T])([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2}))?)?((?![0-9]).*)",
    re.DOTALL,
)
# takes whatever type the expression around it needs
UNTYPED_NULL = Literal(None, NULL)


_PARTS = {
    "STRUCT": "Name a member, as in a.b.",
    "ARRAY": "Name an element, as in a[1], or write ARRAY_CONTAINS(a, value).",
    "MAP": "Name a value, as in m['key'].",
    "JSON": "Write JSON_VALUE(json, '$.key') for what is in it.",
}


def check_plain(expressions: Iterable[Expression], verb: str) -> None:
    """Raise NotAllowed for a value with parts, which cannot be compared and so cannot be what ``verb`` says."""
    for expression in expressions:
        if not expression.type.is_plain:
            raise NotAllowed(f"{describe(expression)} cannot be {verb}: it has parts. {_PARTS[expression.type.kind]}")


def describe(expression: Expression) -> str:
    """Return the expression as SQL and its type for an error message, shortened."""
    text = sql_text(expression)
    return f"{text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + '...'} ({expression.type})"


def as_times(number: Expression) -> list[str]:
    """Return how a number is read as a time: in the unit that a literal must have, else in either of two."""
    text = advised_text(number)
    text = text if len(text) <= MAX_SHOWN else "number"
    part = text if isinstance(number, Column | Literal) else f"({text})"
    seconds = f"TO_TIMESTAMP({text}) for seconds since 1970"
    milliseconds = f"TO_TIMESTAMP({part} / 1000.0) for milliseconds since 1970"
    if not isinstance(number, Literal) or number.value is None:
        return [seconds, milliseconds]
    return [seconds if abs(float(str(number.value))) <= _LAST_SECOND else milliseconds]


def integer_type(value: int) -> ColumnType | None:
    """Return the narrowest integer type that holds ``value``, None beyond 64 bits."""
    if INT_RANGE[0] <= value <= INT_RANGE[1]:
        return INT
    return BIGINT if BIGINT_RANGE[0] <= value <= BIGINT_RANGE[1] else None


def decimal_type(value: Decimal) -> ColumnType | None:
    """Return the narrowest DECIMAL that holds ``value`` exactly, None beyond 38 digits."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return None
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    return ColumnType("DECIMAL", precision, scale) if precision <= MAX_PRECISION else None


def as_decimal(expression: Expression) -> ColumnType:
    """Return the DECIMAL type that a DECIMAL or integer expression fits; an integer literal counts its digits."""
    kind = expression.type
    if kind.kind == "DECIMAL":
        return kind
    if isinstance(expression, Literal) and isinstance(expression.value, int):
        return ColumnType("DECIMAL", len(str(abs(expression.value))), 0)
    return ColumnType("DECIMAL", 10 if kind == INT else 19, 0)


def common_type(expressions: Sequence[Expression]) -> ColumnType | None:
    """Return the type that all widen to; None when there is none, NULL when all are NULL."""
    typed = [e for e in expressions if e.type != NULL]
    kinds = {e.type for e in typed}
    if not kinds:
        return NULL
    if len(kinds) == 1:
        return typed[0].type
    if all(kind.is_numeric for kind in kinds):
        return _common_number(typed)
    temporal = {kind for kind in kinds if kind in (DATE, TIMESTAMP)}
    if temporal and all(e.type in temporal or _is_text_literal(e) for e in typed):
        return TIMESTAMP if TIMESTAMP in temporal else DATE
    return None


def in_one_type(expressions: Sequence[Expression]) -> tuple[Expression, ...]:
    """Return expressions that can be compared in one type: with casts to their common type where they differ."""
    if len({expression.type for expression in expressions}) <= 1:
        return tuple(expressions)
    target = common_type(expressions)
    assert target is not None, "what is compared has a common type"
    return tuple(e if e.type == target else Call("cast", (e,), target) for e in expressions)


def _is_text_literal(expression: Expression) -> bool:
    return isinstance(expression, Literal) and expression.type == VARCHAR


def _common_number(expressions: Sequence[Expression]) -> ColumnType:
    kinds = {e.type for e in expressions}
    if DOUBLE in kinds:
        return DOUBLE
    if all(kind.is_integer for kind in kinds):
        return BIGINT
    decimals = [as_decimal(e) for e in expressions]
    scale = max(d.scale for d in decimals)
    precision = max(d.precision - d.scale for d in decimals) + scale
    # what no DECIMAL holds is compared as DOUBLE
    return ColumnType("DECIMAL", precision, scale) if precision <= MAX_PRECISION else DOUBLE


def unify(arguments: Sequence[Expression]) -> tuple[Expression, ...] | None:
    """Return the arguments converted to their common type (VARCHAR when all are NULL); None when there is none."""
    kind = common_type(arguments)
    if kind is None:
        return None
    kind = VARCHAR if kind == NULL else kind
    return tuple(coerce(a, kind) for a in arguments)


def widest(unified: Sequence[Expression]) -> ColumnType:
    """Return the one type of unified expressions, among which INT may stand beside BIGINT."""
    return next((e.type for e in unified if e.type != INT), INT)


def coerce(expression: Expression, target: ColumnType) -> Expression:
    """Convert implicitly to a type that :func:`common_type` gave; literals at once, the rest by a cast.

    INT stays INT where BIGINT is asked for: the kernels widen it, and plans stay readable.
    Raises NotAllowed for a text literal that is no date or timestamp.
    """
    if expression.type == target:
        return expression
    if isinstance(expression, Literal):
        return Literal(_convert(expression.value, target), target)
    if expression.type.is_integer and target.is_integer:
        return expression
    return Call("cast", (expression,), target)


def _convert(value: Value, target: ColumnType) -> Value:
    if value is None:
        return None
    match target.kind:
        case "DOUBLE" if isinstance(value, (int, Decimal)):
            return float(value)
        case "DECIMAL" if isinstance(value, (int, Decimal)):
            return _EXACT.quantize(Decimal(value), Decimal(1).scaleb(-target.scale))
        case "TIMESTAMP" if isinstance(value, str):
            return _required(parse_timestamp(value), value, "TIMESTAMP", "2026-01-31 12:00:00")
        case "TIMESTAMP" if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return dt.datetime(value.year, value.month, value.day)
        case "DATE" if isinstance(value, str):
            return _required(parse_date(value), value, "DATE", "2026-01-31")
    return value


def _required(parsed: Value, text: str, kind: str, example: str) -> Value:
    if parsed is None:
        raise NotAllowed(f"A text beside a {kind} must read like {example!r}; got {text!r}.")
    return parsed


def parse_timestamp(text: str) -> dt.datetime | None:
    """Read an ISO 8601 timestamp or date as naive UTC; None when it is neither. Without offset it is UTC.

    Months, days, hours, minutes and seconds may have one digit, as in DuckDB.
    """
    try:
        value = dt.datetime.fromisoformat(_with_two_digits(text.strip()))
        return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo is not None else value
    except (ValueError, OverflowError):
        return None


def _with_two_digits(text: str) -> str:
    """Return the text of a date or timestamp with months, days and times of two digits; any other as it is."""
    match = _DATE_AND_TIME.fullmatch(text)
    if match is None:
        return text
    year, month, day, separator, hour, minute, second, rest = match.groups()
    time = "" if hour is None else f"{separator}{hour:0>2}:{minute:0>2}"
    return f"{year}-{month:0>2}-{day:0>2}{time}{'' if second is None else f':{second:0>2}'}{rest}"


def parse_date(text: str) -> dt.date | None:
    """Read ``YYYY-MM-DD`` or ``YYYY-M-D``; None when it is none."""
    text = _with_two_digits(text.strip())
    try:
        return dt.date.fromisoformat(text) if len(text) == 10 else None
    except ValueError:
        return None
