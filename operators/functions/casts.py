"""CAST between all types where a conversion makes sense; what does not convert is NULL.

Fractions cast to integers lose their digits (toward zero), as in Flink SQL. DECIMALs round half away from zero.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from braid.operators.expressions import Call, Expression
from braid.operators.functions.coercion import (
    INT_RANGE,
    as_times,
    describe,
    integer_type,
    parse_date,
    parse_timestamp,
)
from braid.operators.functions.signature import Arguments, Datum, Function, as_type, by_distinct, by_row, kernel
from braid.operators.functions.sql_text import advised_text
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, DATE, INT, NESTED_KINDS, NULL, TIMESTAMP, ColumnType
from braid.sources.formats.coercion import UnfitError, json_text
from braid.sources.formats.json_rows import parse_json
from braid.sources.formats.json_values import json_texts_of

EXACT = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)
_NUMBERS = {"INT", "BIGINT", "DOUBLE", "DECIMAL"}
_TARGETS: dict[str, set[str]] = {
    "BOOLEAN": {"INT", "BIGINT", "DOUBLE", "VARCHAR"},
    "INT": {*_NUMBERS, "BOOLEAN", "VARCHAR"},
    "BIGINT": {*_NUMBERS, "BOOLEAN", "VARCHAR"},
    "DOUBLE": {*_NUMBERS, "BOOLEAN", "VARCHAR"},
    "DECIMAL": {*_NUMBERS, "BOOLEAN", "VARCHAR"},
    "VARCHAR": {*_NUMBERS, "BOOLEAN", "DATE", "TIMESTAMP", "JSON"},
    "DATE": {"TIMESTAMP", "VARCHAR"},
    "TIMESTAMP": {"DATE", "VARCHAR"},
    "JSON": {"VARCHAR"},
    **{key: {"JSON"} for key in NESTED_KINDS},
}
# texts that the Arrow kernel and the Python reader understand alike; only these go to the kernel
_PLAIN = {
    "INT": r"^-?[0-9]{1,9}$",
    "BIGINT": r"^-?[0-9]{1,18}$",
    "DOUBLE": r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$",
    "DATE": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    "TIMESTAMP": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$",
}
_BOOLEANS = {
    "true": True,
    "t": True,
    "1": True,
    "yes": True,
    "false": False,
    "f": False,
    "0": False,
    "no": False,
}


def cast_to(expression: Expression, target: ColumnType) -> Expression:
    """Return ``CAST(expression AS target)``; NotAllowed when such values never convert."""
    kind = expression.type.kind
    is_same = kind in ("NULL", target.kind) and (not target.members or expression.type in (NULL, target))
    if not is_same and target.kind not in _TARGETS[kind]:
        known = ", ".join(sorted(_TARGETS[kind]))
        detail = f"Cannot cast {describe(expression)} to {target}; {kind} casts to {known}."
        raise NotAllowed(detail + _instead_of_cast(expression, target))
    return expression if expression.type == target else Call("cast", (expression,), target)


def _instead_of_cast(expression: Expression, target: ColumnType) -> str:
    """Return what to write where values never convert, nothing where there is no such thing."""
    if expression.type.kind == "JSON":
        return " Write json ->> 'key' for the text of a member, and CAST around that."
    if expression.type.is_numeric and target in (DATE, TIMESTAMP):
        return f" Write {' or '.join(as_times(expression))}."
    if expression.type in (DATE, TIMESTAMP) and target.is_numeric:
        return f" Write EXTRACT(EPOCH FROM {advised_text(expression)}) for seconds since 1970."
    return ""


def _bind_cast(function: Function, _arguments: Arguments) -> Expression:
    raise NotAllowed(f"Write {function.usage}.")


def fit_decimal(value: Decimal, target: ColumnType) -> Decimal | None:
    """Round to the scale of a DECIMAL; None for a result with too many digits."""
    if not value.is_finite():
        return None
    rounded = value.quantize(Decimal(1).scaleb(-target.scale), context=EXACT)
    return rounded if len(rounded.as_tuple().digits) <= target.precision else None


def _cast(call: Call, arguments: Sequence[Datum]) -> Datum:
    value, source, target = arguments[0], call.arguments[0].type, call.type
    if source.kind == "NULL":
        return as_type(value, target.arrow)
    if target.kind == "JSON" and source.members:
        return pa.array(json_texts_of(value), pa.string())
    if source.kind == "VARCHAR":
        return _from_text(value, target)
    match target.kind:
        case "VARCHAR":
            return value if source.kind == "JSON" else _to_text(value, source)
        case "BOOLEAN":
            return kernel.not_equal(as_type(value, pa.float64()), 0.0)
        case "DECIMAL":
            return _to_decimal(value, source, target)
        case "DATE":
            return as_type(value, pa.date32())
        case "INT" | "BIGINT":
            return _to_integer(value, source, target)
    return as_type(value, target.arrow)


def _to_integer(value: Datum, source: ColumnType, target: ColumnType) -> Datum:
    low, high = INT_RANGE
    match source.kind:
        case "DOUBLE":
            bound = 2.0**31 if target == INT else 2.0**63
            whole = kernel.trunc(value)
            inside = kernel.and_(kernel.less(whole, bound), kernel.greater_equal(whole, -bound))
            return as_type(kernel.if_else(inside, whole, pa.scalar(None, pa.float64())), target.arrow)
        case "DECIMAL":
            return by_row(lambda v: _whole(int(v), target), target.arrow, value)
        case "BIGINT" if target == INT:
            inside = kernel.and_(kernel.less_equal(value, high), kernel.greater_equal(value, low))
            return as_type(kernel.if_else(inside, value, pa.scalar(None, pa.int64())), pa.int32())
    return as_type(value, target.arrow)


def _whole(value: int, target: ColumnType) -> int | None:
    kind = integer_type(value)
    return value if kind == INT or kind == target == BIGINT else None


def _to_decimal(value: Datum, source: ColumnType, target: ColumnType) -> Datum:
    # where the target has room for every value of the source, no value need be looked at
    whole_digits = {"INT": 10, "BIGINT": 19, "DECIMAL": source.precision - source.scale}.get(source.kind, 99)
    if whole_digits + target.scale <= target.precision and source.scale <= target.scale:
        if source.kind != "DECIMAL":
            value = kernel.cast(as_type(value, pa.int64()), pa.decimal128(19, 0))
        return kernel.cast(value, target.arrow, safe=False)
    return by_row(
        lambda v: fit_decimal(Decimal(repr(v)) if isinstance(v, float) else Decimal(v), target),
        target.arrow,
        value,
    )


def _to_text(value: Datum, source: ColumnType) -> Datum:
    match source.kind:
        case "DOUBLE":
            # adding zero makes -0.0 plain
            return by_row(lambda v: repr(v + 0.0), pa.string(), value)
        case "DECIMAL":
            return by_row(lambda v: format(v, "f"), pa.string(), value)
        case "TIMESTAMP":
            text = kernel.cast(value, pa.string())
            return kernel.replace_substring_regex(
                kernel.replace_substring_regex(text, r"(\.\d*?)0+$", r"\1"), r"\.$", ""
            )
    return kernel.cast(value, pa.string())


def _from_text(value: Datum, target: ColumnType) -> Datum:
    text = kernel.utf8_trim_whitespace(value)
    pattern, read = _PLAIN.get(target.kind), _readers(target)[target.kind]
    if pattern is None:
        return by_distinct(read, target.arrow, text)
    is_plain, null = kernel.match_substring_regex(text, pattern), pa.scalar(None, pa.string())
    try:
        plain = kernel.cast(kernel.if_else(is_plain, text, null), target.arrow)
    except pa.ArrowInvalid:  # such as month 13
        return by_distinct(read, target.arrow, text)
    if kernel.all(is_plain).as_py() is not False:
        return plain
    return kernel.coalesce(plain, by_distinct(read, target.arrow, kernel.if_else(is_plain, null, text)))


def _readers(target: ColumnType) -> dict[str, Callable[[str], Any]]:
    return {
        "BOOLEAN": lambda text: _BOOLEANS.get(text.lower()),
        "INT": lambda text: _read_integer(text, target),
        "BIGINT": lambda text: _read_integer(text, target),
        "DOUBLE": lambda text: float(_ascii_number(text)),
        "DECIMAL": lambda text: fit_decimal(Decimal(_ascii_number(text)), target),
        "DATE": _read_date,
        "TIMESTAMP": parse_timestamp,
        "JSON": _read_json,
    }


def _read_json(text: str) -> str:
    try:
        return json_text(parse_json(text.encode(), exact=False))
    except UnfitError as problem:
        raise ValueError(str(problem)) from None


def _ascii_number(text: str) -> str:
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return text


def _read_integer(text: str, target: ColumnType) -> int | None:
    """Read a whole number; ``5.7`` gives 5 and ``1e3`` gives 1000, as casting the number would."""
    value = Decimal(_ascii_number(text))
    return _whole(int(value), target) if abs(value) < Decimal(2**64) else None


def _read_date(text: str) -> dt.date | None:
    date = parse_date(text)
    timestamp = parse_timestamp(text) if date is None else None
    return timestamp.date() if timestamp is not None else date


CASTS = (Function("cast", "CAST(value AS type)", _bind_cast, _cast),)
