"""Numeric functions: abs, sign, rounding, mod, pi, and those of a DOUBLE, such as sqrt, ln and sin."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from braid.operators.expressions import Call, Expression, Literal
from braid.operators.functions.arithmetic import ARITHMETIC
from braid.operators.functions.casts import fit_decimal
from braid.operators.functions.coercion import BIGINT_RANGE, MAX_PRECISION, coerce
from braid.operators.functions.signature import Arguments, Datum, Function, as_type, by_row, kernel, typed
from braid.operators.functions.sql_text import sql_text
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import BIGINT, DOUBLE, INT, NULL, ColumnType

_MAX_DIGITS = 300
# Arrow's powers of ten are exact up to here
_KERNEL_DIGITS = 10
# as doubles, powers of ten are exact up to here, and so are the digits of a number below
_EXACT_POWER, _EXACT_COUNT = 22, 2.0**50
_ROUNDINGS = {"floor": decimal.ROUND_FLOOR, "ceil": decimal.ROUND_CEILING}
_MODULO = next(f for f in ARITHMETIC if f.name == "%")


def _cbrt(value: pa.Array) -> pa.Array:
    # in 64 bits the root of 27 is 3 or 3.0000000000000004, as the machine's mathematics library has it
    roots = np.cbrt(value.to_numpy(zero_copy_only=False).astype(np.longdouble)).astype(np.float64)
    return pa.array(roots, mask=value.is_null().to_numpy(zero_copy_only=False))


_OF_DOUBLES = {
    "sqrt": kernel.sqrt,
    "cbrt": _cbrt,
    "exp": kernel.exp,
    "ln": kernel.ln,
    "log10": kernel.log10,
    "log2": kernel.log2,
    "sin": kernel.sin,
    "cos": kernel.cos,
    "tan": kernel.tan,
    "asin": kernel.asin,
    "acos": kernel.acos,
    "atan": kernel.atan,
    "radians": lambda degrees: kernel.multiply(degrees, math.pi / 180),
    "degrees": lambda radians: kernel.multiply(radians, 180 / math.pi),
}


def _number(function: Function, arguments: Arguments) -> ColumnType:
    kind = arguments[0].type
    if not kind.is_numeric and kind != NULL:
        raise function.refuse(arguments)
    return BIGINT if kind.is_integer or kind == NULL else kind


def _bind_same(function: Function, arguments: Arguments) -> Expression:
    result = _number(function, arguments)
    return Call(function.name, (coerce(arguments[0], result),), result)


def _bind_sign(function: Function, arguments: Arguments) -> Expression:
    result = _number(function, arguments)
    return Call(function.name, (coerce(arguments[0], result),), DOUBLE if result == DOUBLE else BIGINT)


def _absolute(call: Call, arguments: Sequence[Datum]) -> Datum:
    value = as_type(arguments[0], call.type.arrow)
    if call.type == BIGINT:
        value = kernel.if_else(kernel.equal(value, BIGINT_RANGE[0]), pa.scalar(None, pa.int64()), value)
    return kernel.abs(value)


def _sign(call: Call, arguments: Sequence[Datum]) -> Datum:
    return as_type(kernel.sign(arguments[0]), call.type.arrow)


def _bind_whole(function: Function, arguments: Arguments) -> Expression:
    result = _number(function, arguments)
    argument = coerce(arguments[0], result)
    if result.kind == "DECIMAL":
        result = ColumnType("DECIMAL", min(MAX_PRECISION, result.precision - result.scale + 1), 0)
    return Call(function.name, (argument,), result)


def _whole(call: Call, arguments: Sequence[Datum]) -> Datum:
    value, kind = arguments[0], call.type
    if kind == DOUBLE:
        return kernel.floor(value) if call.function == "floor" else kernel.ceil(value)
    if kind == BIGINT:
        return as_type(value, pa.int64())
    rounding = _ROUNDINGS[call.function]
    return by_row(lambda v: fit_decimal(v.to_integral_value(rounding), kind), kind.arrow, value)


def _bind_round(function: Function, arguments: Arguments) -> Expression:
    result = _number(function, arguments)
    digits = _digits(function, arguments)
    argument = coerce(arguments[0], result)
    if result.kind == "DECIMAL":
        scale = min(max(digits, 0), result.scale)
        # 9.9 rounds to 10, with a digit more
        longer = 1 if function.name == "round" else 0
        whole = min(MAX_PRECISION - scale, max(result.precision - result.scale + longer, 1 - scale))
        result = ColumnType("DECIMAL", whole + scale, scale)
    return Call(function.name, (argument, Literal(digits, INT)), result)


def _digits(function: Function, arguments: Arguments) -> int:
    if len(arguments) == 1:
        return 0
    digits = arguments[1]
    value = digits.value if isinstance(digits, Literal) and digits.type.is_integer else None
    if isinstance(value, int) and abs(value) <= _MAX_DIGITS:
        return value
    raise NotAllowed(
        f"{function.usage} needs a whole number of digits from -{_MAX_DIGITS} to {_MAX_DIGITS}; got {sql_text(digits)}."
    )


def _round(call: Call, arguments: Sequence[Datum]) -> Datum:
    value, kind, digits = arguments[0], call.type, arguments[1].as_py()
    if kind.kind == "DECIMAL":
        return by_row(lambda v: fit_decimal(_half_up(v, digits), kind), kind.arrow, value)
    if kind == BIGINT:
        value = as_type(value, pa.int64())
        return value if digits >= 0 else by_row(lambda v: _in_64_bits(int(_half_up(v, digits))), pa.int64(), value)
    if abs(digits) <= _KERNEL_DIGITS:
        with suppress(pa.ArrowInvalid):
            return kernel.round(value, ndigits=digits, round_mode="half_towards_infinity")
    return by_row(lambda v: float(_half_up(v, digits)), pa.float64(), value)


def _half_up(value: Any, digits: int) -> Decimal:
    return _to_digits(value, digits, decimal.ROUND_HALF_UP)


def _to_digits(value: Any, digits: int, rounding: str) -> Decimal:
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not exact.is_finite():
        return exact
    context = decimal.Context(prec=1000, rounding=rounding)
    return exact.quantize(Decimal(1).scaleb(-digits), context=context)


def _in_64_bits(value: int) -> int | None:
    return value if BIGINT_RANGE[0] <= value <= BIGINT_RANGE[1] else None


def _truncate(call: Call, arguments: Sequence[Datum]) -> Datum:
    """Cut digits off, toward zero."""
    value, kind, digits = arguments[0], call.type, arguments[1].as_py()
    if kind == DOUBLE:
        # adding zero makes -0.0 plain
        return kernel.add(_truncated_doubles(value, digits), 0.0)
    if kind == BIGINT:
        value = as_type(value, pa.int64())
        size = 10 ** min(max(-digits, 0), 19)
        return kernel.multiply(kernel.divide(value, size), size) if size < 10**19 else kernel.multiply(value, 0)
    if value.type.precision - value.type.scale <= -digits:
        return kernel.if_else(kernel.is_valid(value), pa.scalar(Decimal(0), kind.arrow), pa.scalar(None, kind.arrow))
    return kernel.cast(kernel.round(value, ndigits=digits, round_mode="towards_zero"), kind.arrow)


def _truncated_doubles(value: pa.Array, digits: int) -> pa.Array:
    """Cut off digits of the shortest decimals that read as these doubles.

    0.29 stays 0.29, though the product 0.29 * 100 of doubles is below 29.
    """
    if digits == 0:
        return kernel.trunc(value)
    if abs(digits) <= _EXACT_POWER:
        numbers, power = value.to_numpy(zero_copy_only=False), 10.0 ** abs(digits)
        lengths = np.abs(numbers)
        with np.errstate(all="ignore"):
            scaled = lengths * power if digits > 0 else lengths / power
            if not (scaled >= _EXACT_COUNT).any():
                count = np.rint(scaled)
                count -= (count / power if digits > 0 else count * power) > lengths
                result = np.copysign(count / power if digits > 0 else count * power, numbers)
                return pa.array(result, mask=value.is_null().to_numpy(zero_copy_only=False))
    return by_row(lambda v: float(_to_digits(v, digits, decimal.ROUND_DOWN)), pa.float64(), value)


def _bind_pi(_function: Function, _arguments: Arguments) -> Expression:
    return Literal(math.pi, DOUBLE)


def _double(compute: Callable[..., Datum]) -> Callable[[Call, Sequence[Datum]], Datum]:
    return lambda _, arguments: compute(*arguments)


def _bind_modulo(_function: Function, arguments: Arguments) -> Expression:
    return _MODULO(arguments)


def _never(call: Call, _arguments: Sequence[Datum]) -> Datum:
    raise NotImplementedError(f"{call.function} is rewritten when it is bound")


NUMBERS = (
    Function("abs", "ABS(number)", _bind_same, _absolute),
    Function("sign", "SIGN(number)", _bind_sign, _sign),
    Function("floor", "FLOOR(number)", _bind_whole, _whole),
    Function("ceil", "CEIL(number)", _bind_whole, _whole),
    Function("round", "ROUND(number[, digits])", _bind_round, _round, 1, 2),
    Function("trunc", "TRUNC(number[, digits])", _bind_round, _truncate, 1, 2),
    Function("pi", "PI()", _bind_pi, _never, 0, 0),
    *(Function(n, f"{n.upper()}(number)", typed(DOUBLE, DOUBLE), _double(k)) for n, k in _OF_DOUBLES.items()),
    Function("power", "POWER(number, number)", typed(DOUBLE, DOUBLE, DOUBLE), _double(kernel.power), 2, 2),
    Function("atan2", "ATAN2(y, x)", typed(DOUBLE, DOUBLE, DOUBLE), _double(kernel.atan2), 2, 2),
    Function("mod", "MOD(number, number)", _bind_modulo, _never, 2, 2),
)
