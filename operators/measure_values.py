"""Measures as numpy arrays: how each Arrow type becomes numbers that add up or compare, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[Any]
_EXACT = Context(prec=80)


@dataclass(frozen=True)
class MeasureValues:
    """One measure of some rows.

    ``numbers`` holds the neutral value's stand-in at NULLs; ``valid`` is None when there is no NULL. ``decode`` turns
    numbers back into the measure's Arrow type; it does not look at validity.
    """

    function: str
    numbers: Numbers
    valid: npt.NDArray[np.bool_] | None
    decode: Callable[[Numbers], pa.Array]


def encode_measure(function: str, column: pa.Array) -> MeasureValues:
    """Return the values of a measure column as numbers."""
    valid = None if not column.null_count else np.asarray(pc.is_valid(column))
    kind = column.type
    if function in ("sum", "count") and pa.types.is_decimal(kind):
        return _decimal_sums(function, column, valid)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return MeasureValues(function, _filled(column), valid, lambda n: pa.array(n, type=kind, from_pandas=False))
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        plain = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return MeasureValues(function, _filled(column.view(plain)), valid, lambda n: pa.array(n, type=plain).view(kind))
    return _ranked(function, column, valid)


def _filled(column: pa.Array) -> Numbers:
    return np.asarray(pc.fill_null(column, 0) if column.null_count else column)


def _decimal_sums(function: str, column: pa.Array, valid: npt.NDArray[np.bool_] | None) -> MeasureValues:
    """Add decimals as Python integers: exact, and rare enough. A sum beyond 38 digits is NULL."""
    scale = column.type.scale
    beyond = 10**38
    numbers = np.array([0 if v is None else int(_EXACT.scaleb(v, scale)) for v in column.to_pylist()], dtype=object)

    def decode(values: Numbers) -> pa.Array:
        sums = [_EXACT.scaleb(Decimal(int(v)), -scale) if abs(v) < beyond else None for v in values]
        return pa.array(sums, type=pa.decimal128(38, scale))

    return MeasureValues(function, numbers, valid, decode)


def _ranked(function: str, column: pa.Array, valid: npt.NDArray[np.bool_] | None) -> MeasureValues:
    """Compare strings, decimals and booleans by their rank among the values that occur."""
    encoded = column.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[np.asarray(order)] = np.arange(len(order))
    ordered = encoded.dictionary.take(order)
    codes = np.asarray(pc.fill_null(encoded.indices, 0))
    numbers = ranks[codes] if len(ranks) else np.zeros(len(codes), dtype=np.int64)

    def decode(values: Numbers) -> pa.Array:
        if not len(ordered):
            return pa.nulls(len(values), column.type)
        return ordered.take(pa.array(np.clip(values, 0, len(ordered) - 1)))

    return MeasureValues(function, numbers, valid, decode)
