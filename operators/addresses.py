"""Addresses: which entry of an array each tuple belongs to, looked up by the loop that adds it there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from operators import kernels
from operators.predicates.dimension import CellLookup

# a table of so many values stays in the cache
_MOST_VALUES = 1 << 13
# other pieces have values beyond those of the first by this part of what they span, if by that
_BEYOND = 8


@dataclass(frozen=True)
class Addresses:
    """The address of a tuple is the offset of its cell, by its place in the lookup, and its ``column``.

    Those from ``entries`` on are of no entry: tuples that no query wants go there, so that nothing asks whether a tuple
    is wanted. An array has ``size`` numbers for both.
    """

    cell: CellLookup
    offsets: npt.NDArray[np.int32]
    column: npt.NDArray[np.int32]
    entries: int
    size: int

    @classmethod
    def of(cls, cell: CellLookup, column: npt.NDArray[np.int32], shape: tuple[int, int, int]) -> Addresses:
        """Address entries of the shape (cells, slices, keys); a column is a slice and a key, cell -1 is not wanted."""
        cells, slices, keys = shape
        width = slices * keys
        entries = cells * width
        offsets = np.where(cell.table >= 0, cell.table * np.int32(width), entries).astype(np.int32)
        return cls(cell, offsets, column, entries, entries + width)

    @cached_property
    def widened(self) -> tuple[int, npt.NDArray[np.int32]]:
        """The least value and the offsets of a table that is likely to have all values, if they are close.

        It has those of the first piece and some beyond: a loop that needs not look whether a value is beyond an end of
        the table has an eighth less to do.
        """
        least, greatest = self.cell.least, self.cell.least + len(self.offsets) - 1
        first = next((values for values in self.cell.pieces if len(values)), None)
        if first is None:
            return least, self.offsets
        low, high = kernels.extent(first)
        beyond = (high - low) // _BEYOND
        low, high = min(least, low - beyond), max(greatest, high + beyond)
        if high - low >= _MOST_VALUES:
            return least, self.offsets
        return low, np.pad(self.offsets, (least - low, high - greatest), mode="edge")

    def each(self) -> npt.NDArray[np.int32]:
        """Return the address of each tuple, shape (tuples,)."""
        at = np.empty(len(self.column), dtype=np.int32)
        for some, columns, of_cell in self.cell.with_their(at, self.column):
            kernels.place_looked_up(some, of_cell, self.cell.least, self.offsets, columns)
        return at
