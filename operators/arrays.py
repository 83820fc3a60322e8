"""Numpy arrays: the types that many modules name, and columns as arrays of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[Any]
# positions in another array: of rows, of entries
Places = npt.NDArray[np.int32]


def plain_numbers(array: pa.Array) -> Numbers | None:
    """Return a column as numbers of 32 or 64 bits without a copy; None where it is not that, or has NULL."""
    kind = array.type
    if array.null_count or not (pa.types.is_primitive(kind) and kind.bit_width in (32, 64)):
        return None
    if pa.types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return np.asarray(array)


def read_only(array: Numbers) -> Numbers:
    """Return a copy that is not to be written to, as arrays that come from Arrow are: another type to numba."""
    fixed = array.copy()
    fixed.flags.writeable = False
    return fixed
