"""What a function is: a rule that types a call, and an evaluator over Arrow data.

Evaluators never raise because of data: what has no result is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute

from braid.operators.expressions import Call, Expression
from braid.operators.functions.coercion import coerce, describe
from braid.sources.core.decimals import nearest_doubles
from braid.sources.core.errors import NotAllowed
from braid.sources.core.schema import NULL, ColumnType

# Any, because the stubs of pyarrow.compute know no "array or scalar"
Datum: TypeAlias = Any
"""A ``pa.Array``, or a ``pa.Scalar`` that stands for all rows; at least one argument of an evaluation is an array."""

kernel: Any = pyarrow.compute
"""The Arrow kernels."""

Arguments = tuple[Expression, ...]
Bind = Callable[["Function", Arguments], Expression]
Evaluate = Callable[[Call, Sequence[Datum]], Datum]


@dataclass(frozen=True)
class Function:
    """A scalar function; ``usage`` is what error messages show, ``most`` is None for any number of arguments."""

    name: str
    usage: str
    bind: Bind
    evaluate: Evaluate
    least: int = 1
    most: int | None = 1

    def __call__(self, arguments: Arguments) -> Expression:
        """Return the typed call; NotAllowed when number or types of arguments do not fit."""
        if len(arguments) < self.least or (self.most is not None and len(arguments) > self.most):
            raise NotAllowed(f"{self.usage} does not take {len(arguments)} argument(s).")
        return self.bind(self, arguments)

    def refuse(self, arguments: Arguments, hint: str = "") -> NotAllowed:
        """Return the error that the types of the arguments do not fit."""
        described = ", ".join(describe(a) for a in arguments)
        return NotAllowed(f"{self.usage} does not fit {described}.{' ' + hint if hint else ''}")


def typed(result: ColumnType, *parameters: ColumnType) -> Bind:
    """Return a rule for fixed parameter types; numbers and dates widen to them, optional ones may be missing."""

    def bind(function: Function, arguments: Arguments) -> Expression:
        for argument, parameter in zip(arguments, parameters, strict=False):
            if not _fits(argument.type, parameter):
                raise function.refuse(arguments)
        converted = (coerce(a, p) for a, p in zip(arguments, parameters, strict=False))
        return Call(function.name, tuple(converted), result)

    return bind


def _fits(argument: ColumnType, parameter: ColumnType) -> bool:
    if argument in (parameter, NULL):
        return True
    if parameter.kind == "DOUBLE":
        return argument.is_numeric
    if parameter.kind == "BIGINT":
        return argument.is_integer
    return parameter.kind == "TIMESTAMP" and argument.kind == "DATE"


def as_type(value: Datum, target: pa.DataType) -> Datum:
    """Convert between Arrow types that lose at most digits (numbers to double, narrow to wide integers)."""
    if value.type == target:
        return value
    if pa.types.is_decimal(value.type) and pa.types.is_float64(target):
        return nearest_doubles(value) if isinstance(value, pa.Array) else nearest_doubles(pa.array([value]))[0]
    return kernel.cast(value, target, safe=False)


def is_true(value: Datum) -> Datum:
    """Return a mask without nulls."""
    return kernel.fill_null(value, False)


def rows_of(arguments: Sequence[Datum]) -> list[tuple[Any, ...]]:
    """Return the arguments as Python rows, scalars repeated."""
    length = max(len(a) for a in arguments if isinstance(a, pa.Array))
    columns = [a.to_pylist() if isinstance(a, pa.Array) else [a.as_py()] * length for a in arguments]
    return list(zip(*columns, strict=True))


def by_row(function: Callable[..., Any], target: pa.DataType, *arguments: Datum) -> pa.Array:
    """Apply a Python function to each distinct row, where Arrow has no kernel.

    A row with NULL gives NULL, and so does one that has no result.
    """
    result_of: dict[tuple[Any, ...], Any] = {}
    results = []
    for row in rows_of(arguments):
        if row not in result_of:
            result_of[row] = None if None in row else _attempt(function, row)
        results.append(result_of[row])
    return pa.array(results, target)


def by_distinct(function: Callable[[Any], Any], target: pa.DataType, value: pa.Array) -> pa.Array:
    """Apply a Python function to each distinct value of an array; NULL stays NULL, as in :func:`by_row`."""
    encoded = kernel.dictionary_encode(value)
    results = pa.array([_attempt(function, (v,)) for v in encoded.dictionary.to_pylist()], target)
    return results.take(encoded.indices)


def _attempt(function: Callable[..., Any], row: tuple[Any, ...]) -> Any:
    try:
        return function(*row)
    except (ArithmeticError, ValueError):
        return None


def constant(value: Datum) -> Any:
    """Return the Python value of an argument that is one value for all rows and not NULL; None otherwise."""
    return value.as_py() if isinstance(value, pa.Scalar) else None
