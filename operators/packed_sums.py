"""Packed sums: a count and a sum of whole numbers in one number of 64 bits, so that a tuple is added in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators import components, kernels
from operators.arrays import Numbers
from operators.components import COUNT_NAME, Encoded
from operators.predicates.dimension import CellLookup
from operators.queries import Measure

_BITS = 63


@dataclass(frozen=True)
class Packable:
    """A component that is a sum of ``numbers``, one per tuple; with its sign it takes so many ``bits``."""

    name: str
    numbers: Numbers
    bits: int

    @classmethod
    def first_of(cls, encoded: Mapping[Measure, Encoded], length: int) -> Packable | None:
        """Return the first sum that fits beside the number of so many tuples, None if there is none."""
        for measure, values in encoded.items():
            for component in components.components_of(measure):
                if component.merge == "sum" and component.dtype.kind == "i":
                    bits = (length * values.greatest).bit_length() + 1
                    if bits + length.bit_length() < _BITS:
                        return cls(component.name, values.numbers[component.name], bits)
        return None

    def add_up(
        self,
        cell: CellLookup,
        offsets: npt.NDArray[np.int32],
        column: npt.NDArray[np.int32],
        size: int,
    ) -> PackedSums:
        """Return the sums of ``size`` entries; where a tuple is added say its cell's offset and its column."""
        packed = np.zeros(size, dtype=np.int64)
        for columns, numbers, values in cell.with_their(column, self.numbers):
            kernels.add_packed(packed, values, cell.least, offsets, columns, numbers, 1 << self.bits)
        return PackedSums(self.name, packed, self.bits)


@dataclass(frozen=True)
class PackedSums:
    """Entries with their counts above the lowest ``bits``; those without tuples are 0, all others above."""

    name: str
    numbers: npt.NDArray[np.int64]
    bits: int

    def first(self, count: int) -> PackedSums:
        """Return those of the first ``count`` entries."""
        return PackedSums(self.name, self.numbers[:count], self.bits)

    def at(self, positions: npt.NDArray[np.int32]) -> dict[str, Numbers]:
        """Return the counts and the sums of some entries."""
        some = kernels.taken(self.numbers, positions)
        return self._taken_apart(some.reshape(-1, 1, 1), 0, 1)

    def of_keys(self, shape: tuple[int, int, int], first: int, last: int) -> dict[str, Numbers]:
        """Return those of the keys ``[first, last)``, slice by slice and cell by cell.

        ``shape`` is that of all: cells, slices, keys.
        """
        return self._taken_apart(self.numbers.reshape(shape), first, last)

    def _taken_apart(self, numbers: npt.NDArray[np.int64], first: int, last: int) -> dict[str, Numbers]:
        cells, slices, _ = numbers.shape
        counts = np.empty(cells * slices * (last - first), dtype=np.int32)
        sums: Numbers = np.empty_like(counts)
        if not kernels.unpack(counts, sums, numbers, first, last, self.bits):
            sums = np.empty(len(counts), dtype=np.int64)
            kernels.unpack(counts, sums, numbers, first, last, self.bits)
        return {COUNT_NAME: counts, self.name: sums}
