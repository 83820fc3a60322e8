"""Addresses: which entry of an array each tuple belongs to, looked up by the loop that adds it there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from braid.operators import kernels
from braid.operators.predicates.dimension import CellLookup

# a table of so many values stays in the cache
_MAX_VALUES = 1 << 13
# tables have room for values beyond those of the first piece: at each end, for this part of what these span
_BEYOND = 8


@dataclass(frozen=True)
class Addresses:
    """The address of a tuple is the offset of its cell plus its ``column``.

    The offset is looked up in ``offsets`` as the cell is in the table of ``cell``. Addresses from ``entries`` on are of
    no entry: tuples that no query wants go there, so that no loop asks whether a tuple is wanted. An array has ``size``
    numbers for all addresses.
    """

    cell: CellLookup
    offsets: npt.NDArray[np.int32]
    column: npt.NDArray[np.int32]
    entries: int
    size: int

    @classmethod
    def of(cls, cell: CellLookup, column: npt.NDArray[np.int32], shape: tuple[int, int, int]) -> Addresses:
        """Address entries of the shape (cells, slices, keys); a column is a slice and a key, cell -1 is of no query."""
        cells, slices, keys = shape
        width = slices * keys
        entries = cells * width
        offsets = np.where(cell.table >= 0, cell.table * np.int32(width), entries).astype(np.int32)
        return cls(cell, offsets, column, entries, entries + width)

    @cached_property
    def widened(self) -> tuple[int, npt.NDArray[np.int32]]:
        """The least value and the offsets of a table that has all values, most likely, if they are close together.

        It has those of the first piece and some beyond at each end: a loop over values that are all in the table need
        not check for its ends, which saves an eighth of the time.
        """
        least, greatest = self.cell.least, self.cell.least + len(self.offsets) - 1
        first_piece = next((values for values in self.cell.pieces if len(values)), None)
        if first_piece is None:
            return least, self.offsets
        low, high = kernels.extent(first_piece)
        margin = (high - low) // _BEYOND
        low, high = min(least, low - margin), max(greatest, high + margin)
        if high - low >= _MAX_VALUES:
            return least, self.offsets
        return low, np.pad(self.offsets, (least - low, high - greatest), mode="edge")

    def of_tuples(self) -> npt.NDArray[np.int32]:
        """Return the address of each tuple, shape (tuples,)."""
        addresses = np.empty(len(self.column), dtype=np.int32)
        for part, columns, values in self.cell.by_piece(addresses, self.column):
            kernels.place_looked_up(part, values, self.cell.least, self.offsets, columns)
        return addresses
