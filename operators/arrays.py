"""Numpy arrays: the types that many modules name, and columns as arrays of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[Any]
# positions in another array: of rows, of entries
Places = npt.NDArray[np.int32]
# a bitmap of tuples, 64 a word; bits beyond the last tuple are 0
TupleBits = npt.NDArray[np.uint64]


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

    A NULL may have any text. Neither array is to be written to.
    """
    texts = array.cast(pa.string())
    _, offsets, data = texts.buffers()
    starts = np.frombuffer(offsets or bytes(4), dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    characters = np.frombuffer(data or b"", dtype=np.uint8)
    for view in (starts, characters):
        view.flags.writeable = False  # buffers that Arrow has just made may be written to
    return starts, characters


def read_only(array: Numbers) -> Numbers:
    """Return a copy that cannot be written to, like arrays that come from Arrow: to numba that is a type of its own."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy
