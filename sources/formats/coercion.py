"""Make one JSON value fit a column type, or say why it does not.

========= ==========================================================================
BOOLEAN   ``true``, ``false``
INT       a whole number in range, ``517.0`` included; BIGINT likewise
DOUBLE    any number within the range of doubles
DECIMAL   a number, or a number as text, that fits precision and scale exactly
VARCHAR   text
DATE      ``"YYYY-MM-DD"``
JSON      anything, without the blanks between its parts
TIMESTAMP as in :mod:`braid.sources.formats.time_formats`
========= ==========================================================================

Every type takes ``null``.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import orjson

from braid.sources.core.schema import ColumnType
from braid.sources.formats.temporal import parse_date
from braid.sources.formats.time_formats import parse_time

RANGES = {"INT": (-(2**31), 2**31 - 1), "BIGINT": (-(2**63), 2**63 - 1)}
EXACT_DOUBLES = 2**53
"""Below, a double tells apart all whole numbers; from here on it may stand for another one than was written."""
LONGEST_SHOWN = 100

_EXACT = Context(prec=76, Emin=-999_999, Emax=999_999, traps=[Inexact, InvalidOperation])
_DECIMAL_TEXT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


_NULLS = ("null", "na", "n/a", "none", "nil", "\\n")


class UnfitError(Exception):
    """A value does not fit its column; the text says why, or is empty where that is plain to see."""


def coerce(value: Any, column_type: ColumnType, time_format: str = "") -> Any:
    """Return ``value`` as Arrow takes it for ``column_type``: dates in days, timestamps in microseconds.

    ``value`` is what a JSON parser gave; numbers may be int, float or Decimal. Raises :class:`UnfitError`.
    """
    if value is None:
        return None
    if column_type.kind == "TIMESTAMP":
        return _timestamp(value, time_format)
    return _COERCIONS[column_type.kind](value, column_type)


def complaint(name: str, column_type: ColumnType, value: Any, why: str) -> str:
    """Return the message for a value that does not fit column ``name``."""
    article = "an" if column_type.kind in ("INT", "ARRAY") else "a"
    kind = str(column_type)
    kind = kind if len(kind) <= LONGEST_SHOWN else kind[:LONGEST_SHOWN] + "…"
    text = f"column {name!r} must be {article} {kind}, got {show(value)}"
    if not why and isinstance(value, str) and value.strip().lower() in _NULLS:
        why = "NULL is an empty field in CSV, null in JSON"
    return f"{text} ({why})" if why else text


def show(value: Any) -> str:
    """Return a short text of a JSON value for messages; text in quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if value is None:
        return "null"
    if isinstance(value, str):
        text, shown = value, repr(value[:LONGEST_SHOWN])
    else:  # a fraction is a float or a Decimal, by who has parsed it
        is_float = isinstance(value, float) and math.isfinite(value)
        text = str(Decimal(repr(value)) if is_float else value).replace("E", "e")
        shown = text[:LONGEST_SHOWN]
    return shown + "…" if len(text) > LONGEST_SHOWN else shown


def _boolean(value: Any, _: ColumnType) -> bool:
    if not isinstance(value, bool):
        raise UnfitError
    return value


def _integer(value: Any, column_type: ColumnType) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise UnfitError
    least, greatest = RANGES[column_type.kind]
    is_finite = value.is_finite() if isinstance(value, Decimal) else True
    if not (is_finite and least <= value <= greatest):
        raise UnfitError(f"it must lie in {least}..{greatest}")
    if isinstance(value, int):
        return value
    if value != int(value):
        raise UnfitError("it must be whole")
    if isinstance(value, float) and abs(value) >= EXACT_DOUBLES:
        raise UnfitError(
            f"from {EXACT_DOUBLES} on it must be written without fraction and exponent, to keep its digits"
        )
    return int(value)


def _double(value: Any, _: ColumnType) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise UnfitError
    try:
        number = float(value)
    except (OverflowError, ValueError):  # a huge integer; a signaling NaN
        number = math.inf
    if not math.isfinite(number):
        raise UnfitError("it must be finite and within the range of doubles")
    return number + 0.0  # there is one zero: -0.0 would be a key of its own in GROUP BY


def _decimal(value: Any, column_type: ColumnType) -> Decimal:
    if isinstance(value, str) and _DECIMAL_TEXT.fullmatch(value) is None:
        raise UnfitError
    if isinstance(value, (bool, float)) or not isinstance(value, (int, str, Decimal)):
        raise UnfitError
    try:
        number = _EXACT.quantize(Decimal(value), Decimal((0, (1,), -column_type.scale)))
    except (Inexact, InvalidOperation):
        raise UnfitError("it must fit precision and scale exactly") from None
    whole_digits = column_type.precision - column_type.scale
    if not number.is_finite() or (number and number.adjusted() >= whole_digits):
        raise UnfitError("it must fit precision and scale exactly")
    return number


def _text(value: Any, _: ColumnType) -> str:
    if not isinstance(value, str):
        raise UnfitError
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UnfitError("half of a surrogate pair is no character") from None
    return value


def _date(value: Any, _: ColumnType) -> int:
    if not isinstance(value, str):
        raise UnfitError
    try:
        return parse_date(value)
    except ValueError as problem:
        raise UnfitError(str(problem)) from None


def _timestamp(value: Any, time_format: str) -> int:
    try:
        return parse_time(value, time_format)
    except ValueError as problem:
        raise UnfitError(str(problem)) from None


def json_text(value: Any) -> str:
    """Return the JSON text of what a JSON parser gave; UnfitError for what is no JSON."""
    try:
        try:
            return orjson.dumps(value, default=_as_json).decode()
        except orjson.JSONEncodeError:
            return orjson.dumps(_with_decimals(value), default=_as_json).decode()
    except (orjson.JSONEncodeError, ValueError, RecursionError) as problem:
        raise UnfitError(f"as JSON it must be writable again: {str(problem)[:100]}") from None


def _with_decimals(value: Any) -> Any:
    """Return a value with integers beyond 64 bits, which orjson does not write, as Decimals."""
    if isinstance(value, dict):
        return {name: _with_decimals(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_with_decimals(element) for element in value]
    is_long = isinstance(value, int) and not -(2**63) <= value < 2**64
    return Decimal(value) if is_long else value


def _as_json(value: Any) -> Any:
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(str(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} is no JSON")


_COERCIONS: dict[str, Callable[[Any, ColumnType], Any]] = {
    "BOOLEAN": _boolean,
    "INT": _integer,
    "BIGINT": _integer,
    "DOUBLE": _double,
    "DECIMAL": _decimal,
    "VARCHAR": _text,
    "DATE": _date,
    "JSON": lambda value, _: json_text(value),
}
