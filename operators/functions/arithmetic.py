"""``+ - * / %`` and unary minus.

Integers compute in 64 bits and are NULL beyond; integer ``/`` truncates toward zero, as in Flink SQL. Division and
modulo by zero are NULL for integers and DECIMALs and IEEE 754 for DOUBLE. DECIMAL results have Flink's precision and
scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from braid.operators import kernels
from braid.operators.expressions import Call, Expression
from braid.operators.functions.casts import EXACT, fit_decimal
from braid.operators.functions.coercion import BIGINT_RANGE, MAX_PRECISION, MAX_SHOWN, as_decimal, coerce
from braid.operators.functions.signature import Arguments, Datum, Function, as_type, by_row, kernel
from braid.operators.functions.sql_text import advised_text
from braid.sources.core.schema import BIGINT, DOUBLE, NULL, VARCHAR, ColumnType

_UNCHECKED = {"+": kernel.add, "-": kernel.subtract, "*": kernel.multiply}
_CHECKED = {"+": kernel.add_checked, "-": kernel.subtract_checked, "*": kernel.multiply_checked}
_DECIMAL: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": EXACT.add,
    "-": EXACT.subtract,
    "*": EXACT.multiply,
    "/": EXACT.divide,
    "%": EXACT.remainder,
}
_MIN = BIGINT_RANGE[0]
# whole numbers below it are exact as doubles
_EXACT = 1 << 53


def _bind_arithmetic(function: Function, arguments: Arguments) -> Expression:
    for argument in arguments:
        if not argument.type.is_numeric and argument.type != NULL:
            raise function.refuse(arguments, _hint(arguments))
    kinds = {a.type for a in arguments if a.type != NULL}
    if DOUBLE in kinds:
        return Call(function.name, tuple(coerce(a, DOUBLE) for a in arguments), DOUBLE)
    if all(kind.is_integer for kind in kinds):
        return Call(function.name, tuple(coerce(a, BIGINT) for a in arguments), BIGINT)
    left, right = (as_decimal(a) for a in arguments)
    converted = (coerce(a, kind) for a, kind in zip(arguments, (left, right), strict=True))
    return Call(function.name, tuple(converted), _decimal_result(function.name, left, right))


def _hint(arguments: Arguments) -> str:
    kinds = {a.type.kind for a in arguments}
    if kinds <= {"DATE", "TIMESTAMP"}:
        return "Write TIMESTAMPDIFF(SECOND, start, end) for the seconds between."
    if kinds & {"DATE", "TIMESTAMP"}:
        return "Write INTERVAL '1' DAY to add a duration."
    text = next((a for a in arguments if a.type == VARCHAR), None)
    if text is None:
        return "Arithmetic needs numbers."
    shown = advised_text(text)
    return f"Write CAST({shown if len(shown) <= MAX_SHOWN else 'text'} AS DOUBLE) for its number, or || to join texts."


def _decimal_result(name: str, left: ColumnType, right: ColumnType) -> ColumnType:
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    match name:
        case "*":
            scale, whole = (
                left.scale + right.scale,
                left.precision + right.precision + 1 - left.scale - right.scale,
            )
        case "/":
            scale = max(6, left.scale + right.precision + 1)
            whole = left.precision - left.scale + right.scale
        case "%":
            whole = min(left.precision - left.scale, right.precision - right.scale)
        case _:
            whole += 1
    if whole + scale > MAX_PRECISION:
        # keep the whole digits and at least six of the fraction, as Flink and Spark do
        scale = max(MAX_PRECISION - whole, min(scale, 6))
        whole = MAX_PRECISION - scale
    return ColumnType("DECIMAL", max(whole + scale, 1), scale)


def _arithmetic(call: Call, arguments: Sequence[Datum]) -> Datum:
    left, right = arguments
    match call.type.kind:
        case "DOUBLE":
            return _double(call.function, as_type(left, pa.float64()), as_type(right, pa.float64()))
        case "BIGINT":
            return _integer(call.function, as_type(left, pa.int64()), as_type(right, pa.int64()))
    return _decimal(call, left, right)


def _double(name: str, left: Datum, right: Datum) -> Datum:
    if name == "/":
        return kernel.divide(left, right)
    if name == "%":
        return _by_numpy(np.fmod, left, right)
    return _UNCHECKED[name](left, right)


def _by_numpy(function: Callable[[Any, Any], Any], left: Datum, right: Datum) -> Datum:
    with np.errstate(all="ignore"):
        result = function(_numpy(left), _numpy(right))
    return _with_nulls(pa.array(result), left, right)


def _numpy(value: Datum) -> Any:
    if isinstance(value, pa.Scalar):
        return np.asarray(value.as_py() if value.is_valid else 0, value.type.to_pandas_dtype())
    return (kernel.fill_null(value, 0) if value.null_count else value).to_numpy(zero_copy_only=False)


def _with_nulls(result: pa.Array, *arguments: Datum) -> Datum:
    for argument in arguments:
        if argument.null_count if isinstance(argument, pa.Array) else not argument.is_valid:
            result = kernel.if_else(kernel.is_valid(argument), result, pa.scalar(None, result.type))
    return result


def _integer(name: str, left: Datum, right: Datum) -> Datum:
    null = pa.scalar(None, pa.int64())
    if name in _CHECKED:
        try:
            return _CHECKED[name](left, right)
        except pa.ArrowInvalid:
            overflows = _by_numpy(_OVERFLOWS[name], left, right)
            return kernel.if_else(kernel.fill_null(overflows, True), null, _UNCHECKED[name](left, right))
    if name == "%" and (remainders := _quick_remainders(left, right)) is not None:
        return remainders
    # the smallest integer divided by -1 has no result in 64 bits, its remainder is 0
    by_minus_one = kernel.equal(right, -1)
    divisor = kernel.if_else(kernel.or_(kernel.equal(right, 0), by_minus_one), null, right)
    quotient = kernel.divide(left, divisor)
    if name == "/":
        negatable = kernel.if_else(kernel.equal(left, _MIN), null, left)
        return kernel.if_else(kernel.fill_null(by_minus_one, False), kernel.negate(negatable), quotient)
    remainder = kernel.subtract(left, kernel.multiply(quotient, divisor))
    return kernel.if_else(kernel.fill_null(by_minus_one, False), kernel.multiply(left, 0), remainder)


def _quick_remainders(left: Datum, right: Datum) -> pa.Array | None:
    """Return the remainders of a column by a constant; None where these are not what the kernel takes."""
    if not (isinstance(left, pa.Array) and len(left) and isinstance(right, pa.Scalar) and right.is_valid):
        return None
    divisor, dividends = right.as_py(), _numpy(left)
    low, high = kernels.extent(dividends)
    if not (0 < divisor < _EXACT and low > -_EXACT and high < _EXACT):
        return None
    remainders = np.empty_like(dividends)
    kernels.remainders(remainders, dividends, divisor)
    return _with_nulls(pa.array(remainders), left)


def _add_overflows(left: Any, right: Any) -> Any:
    total = left + right
    return ((left ^ total) & (right ^ total)) < 0


def _subtract_overflows(left: Any, right: Any) -> Any:
    return ((left ^ right) & (left ^ (left - right))) < 0


def _multiply_overflows(left: Any, right: Any) -> Any:
    product = left * right
    divisor = np.where(left == 0, 1, left)
    is_wrong = (left != 0) & (product // divisor != right)
    return is_wrong | ((left == -1) & (right == _MIN)) | ((right == -1) & (left == _MIN))


_OVERFLOWS = {"+": _add_overflows, "-": _subtract_overflows, "*": _multiply_overflows}


def _decimal(call: Call, left: Datum, right: Datum) -> Datum:
    target, compute = call.type, _DECIMAL[call.function]
    if call.function in _UNCHECKED and target.precision < MAX_PRECISION:
        return kernel.cast(_UNCHECKED[call.function](left, right), target.arrow)
    quotient = _with_point_moved(left, right, target) if call.function == "/" else None
    if quotient is not None:
        return quotient
    return by_row(lambda a, b: fit_decimal(compute(Decimal(a), Decimal(b)), target), target.arrow, left, right)


def _with_point_moved(value: Datum, divisor: Datum, target: ColumnType) -> Datum | None:
    """Divide by a constant power of ten, as in ``ms / 1000.0``; None for others, and where digits could be lost."""
    if not (isinstance(value, pa.Array) and isinstance(divisor, pa.Scalar) and divisor.is_valid):
        return None
    sign, digits, places = Decimal(divisor.as_py()).normalize().as_tuple()
    if sign or digits != (1,) or not isinstance(places, int):
        return None
    factor_type = pa.decimal128(abs(places) + 1, max(places, 0))
    precision = value.type.precision + factor_type.precision + 1
    if max(precision, target.precision) >= MAX_PRECISION or value.type.scale + factor_type.scale > target.scale:
        return None
    factor = pa.scalar(Decimal((0, (1,), -places)), factor_type)
    return kernel.cast(kernel.multiply(value, factor), target.arrow)


def _bind_negate(function: Function, arguments: Arguments) -> Expression:
    kind = arguments[0].type
    if not kind.is_numeric and kind != NULL:
        raise function.refuse(arguments)
    result = BIGINT if kind.is_integer or kind == NULL else kind
    return Call(function.name, (coerce(arguments[0], result),), result)


def _negate(call: Call, arguments: Sequence[Datum]) -> Datum:
    value = as_type(arguments[0], call.type.arrow)
    if call.type == BIGINT:
        return _integer("-", pa.scalar(0, pa.int64()), value)
    return kernel.negate(value)


ARITHMETIC = (
    *(Function(n, f"number {n} number", _bind_arithmetic, _arithmetic, 2, 2) for n in _DECIMAL),
    Function("negate", "- number", _bind_negate, _negate),
)
