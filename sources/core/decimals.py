"""Decimals as words of 64 bits, and as doubles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

WORD_DIGITS = 18
"""How many digits a decimal may have to fit into a word."""

# Up to which whole number and power of ten all are exact as doubles, and how many digits of a whole number always are.
_WHOLE, _POWER, _DIGITS = 2**53, 22, 15


def words_of(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the lower and the higher word of each decimal of 128 bits, shape (rows, 2); of NULL any."""
    words = np.frombuffer(column.buffers()[1] or b"", dtype=np.int64)
    return words.reshape(-1, 2)[column.offset : column.offset + len(column)]


def nearest_doubles(column: pa.Array) -> pa.Array:
    """Return the double nearest to each decimal, NULL for NULL.

    Arrow's own cast multiplies by a power of ten below 1, which is no double, and is often off by the last bit. A
    whole number divided by a power of ten, where both are doubles, is rounded once and right; other decimals are read
    from their text.
    """
    scale = column.type.scale
    wide = column.cast(pa.decimal128(38, scale)) if pa.types.is_decimal128(column.type) else None
    if wide is None or not 0 <= scale <= _POWER:
        return column.cast(pa.string()).cast(pa.float64())
    low, high = words_of(wide).T
    nulls = np.asarray(column.is_null()) if column.null_count else None
    doubles = pa.array(low / 10.0**scale, mask=nulls)
    if column.type.precision <= _DIGITS:
        return doubles
    is_beyond = (high != low >> 63) | (low < -_WHOLE) | (low > _WHOLE)
    if nulls is not None:
        is_beyond &= ~nulls
    if not is_beyond.any():
        return doubles
    mask = pa.array(is_beyond)
    return pc.replace_with_mask(doubles, mask, column.filter(mask).cast(pa.string()).cast(pa.float64()))
