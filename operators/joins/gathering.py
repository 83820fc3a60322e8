"""Rows picked out of columns, several times faster than Arrow's ``take`` where a column is plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from braid.operators import kernels
from braid.operators.arrays import Numbers, Places, plain_numbers
from braid.sources.core.columns import one_array

Column: TypeAlias = pa.Array | pa.ChunkedArray


def take(column: Column, rows: Places) -> pa.Array:
    """Return some rows of a column, in that order."""
    array = one_array(column)
    numbers = plain_numbers(array)
    if numbers is None:
        return array.take(pa.array(rows))
    return pa.array(kernels.take(numbers, rows)).view(array.type)


def gather(pieces: Sequence[tuple[Column, Places]], places: Places | None) -> pa.Array:
    """Return some rows of several columns of one type, one after the other, or each at its place among them all."""
    arrays = [(one_array(column), rows) for column, rows in pieces]
    plain = [numbers for array, _ in arrays if (numbers := plain_numbers(array)) is not None]
    if len(plain) < len(arrays):
        gathered = pa.concat_arrays([array.take(pa.array(rows)) for array, rows in arrays])
        return gathered if places is None else gathered.take(pa.array(inverse(places)))
    numbers = gather_numbers(list(zip(plain, (rows for _, rows in arrays), strict=True)), places)
    return pa.array(numbers).view(arrays[0][0].type)


def gather_numbers(pieces: Sequence[tuple[Numbers, Places]], places: Places | None) -> Numbers:
    """Return some of several arrays of numbers in the same way."""
    if places is None:
        return np.concatenate([kernels.take(numbers, rows) for numbers, rows in pieces])
    out, filled = np.empty(len(places), dtype=pieces[0][0].dtype), 0
    for numbers, rows in pieces:
        kernels.scatter(out, places[filled : filled + len(rows)], numbers, rows)
        filled += len(rows)
    return out


def inverse(order: Places) -> Places:
    """Return where each row comes to lie in an order."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=order.dtype)
    return places
