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


def utf8_of(array: pa.Array) -> tuple[Places, npt.NDArray[np.uint8]]:
    """Return where each text of a column begins, and the last one ends, among the bytes of all in UTF-8; no copy.

    What NULL is does not matter. Neither is to be written to.
    """
    texts = array.cast(pa.string())
    _, starts, values = texts.buffers()
    places = np.frombuffer(starts or bytes(4), dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    both = places, np.frombuffer(values or b"", dtype=np.uint8)
    for each in both:
        each.flags.writeable = False  # buffers that Arrow has just made may be written to
    return both


def read_only(array: Numbers) -> Numbers:
    """Return a copy that is not to be written to, as arrays that come from Arrow are: another type to numba."""
    fixed = array.copy()
    fixed.flags.writeable = False
    return fixed
