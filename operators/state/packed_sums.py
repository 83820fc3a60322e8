"""Packed sums: a count and a sum of whole numbers in one number, so that a tuple is added in one place.

The sum has the lowest bits, the count those above. Numbers are added less the least of them, so a sum is never negative
and lacks the least number once for each tuple that was counted. One number has 64 bits if an entry must have room for
all tuples, whatever they are. With thousands of queries there are millions of entries of few tuples each: then 32 bits
do: half the memory to add up in, to write and to read. What an entry has no room for is lost, but not unnoticed: a sum
that outgrows its bits makes the total of all sums too small, a count that outgrows its own the total of all counts, and
nothing makes up for that. If both totals are those of the tuples, every entry is right; if not, 64 bits are used after
all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from braid.operators import kernels
from braid.operators.arrays import Numbers
from braid.operators.query_parts import Measure
from braid.operators.state import components
from braid.operators.state.addresses import Addresses
from braid.operators.state.components import COUNT_NAME, Encoded

_BITS, _FEW_BITS = 63, 32
# the least number is rounded to so many bits of what numbers differ by
_ROUNDED = 4
_SHORT = np.iinfo(np.int16)

Short = tuple[npt.NDArray[np.uint16], npt.NDArray[np.int16]]


@dataclass(frozen=True)
class Packable:
    """A component that is a sum of ``numbers``, one per tuple; ``extent`` is the least, the greatest and their sum."""

    name: str
    numbers: Numbers
    extent: tuple[int, int, int]

    @classmethod
    def first_of(cls, encoded: Mapping[Measure, Encoded], length: int) -> Packable | None:
        """Return the first sum that fits beside the number of so many tuples, None if there is none."""
        for measure, values in encoded.items():
            for component in components.components_of(measure):
                if component.merge == "sum" and component.dtype.kind == "i":
                    packable = cls(component.name, values.numbers[component.name], values.extent(component.name))
                    if packable._bits_for(length) + length.bit_length() < _BITS:
                        return packable
        return None

    def is_small(self, fullest: float) -> bool:
        """Return whether sums have 32 bits if the fullest entry has about so many tuples."""
        return self._few_bits(fullest) is not None

    @property
    def is_short(self) -> bool:
        """Whether all numbers fit into 16 bits."""
        return _SHORT.min <= self.extent[0] and self.extent[1] <= _SHORT.max

    def add_up(self, addresses: Addresses, fullest: float | None = None, short: Short | None = None) -> PackedSums:
        """Return the sums at all addresses; the fullest entry has about so many tuples, None if that is not known.

        ``short`` are the column of the addresses and the numbers in 16 bits, which are read instead where given.
        """
        tuples = len(addresses.column)
        few_bits = None if fullest is None else self._few_bits(fullest)
        if few_bits is not None:
            empty = PackedSums(self.name, np.zeros(addresses.size, dtype=np.uint32), few_bits, self._round_least)
            sums = self._added(empty, addresses, short)
            if sums.are_of(tuples, self.extent[2]):
                return sums
        bits = self._bits_for(tuples)
        empty = PackedSums(self.name, np.zeros(addresses.size, dtype=np.int64), bits, self.extent[0])
        return self._added(empty, addresses, short)

    def _added(self, sums: PackedSums, addresses: Addresses, short: Short | None) -> PackedSums:
        """Add all numbers to ``sums``, in place."""
        # what counts a tuple, and takes the least number off the one that is added
        one = _wrapped((1 << sums.bits) - sums.least)
        least, offsets = addresses.widened
        for columns, numbers, values in addresses.cell.by_piece(*(short or (addresses.column, self.numbers))):
            kernels.add_packed(sums.numbers, values, least, offsets, columns, numbers, one)
        return sums

    def _bits_for(self, tuples: int) -> int:
        """Return how many bits the sum of so many numbers takes."""
        return (tuples * (self.extent[1] - self.extent[0])).bit_length()

    def _few_bits(self, fullest: float) -> int | None:
        """Return how many of 32 bits a sum should have, None if an entry with a few tuples more would have no room.

        It is the same for all chunks of a stream whose numbers are alike, so that sums of several can be added up.
        """
        bits_of_number = (self.extent[1] - self._round_least).bit_length()
        bits_of_count = (_FEW_BITS - bits_of_number) // 2
        fits = bits_of_count > 0 and fullest + 6 * math.sqrt(fullest) + 16 < 1 << bits_of_count
        return _FEW_BITS - bits_of_count if fits else None

    @cached_property
    def _round_least(self) -> int:
        """The least number or one below it, the same for other chunks if their numbers are not much different."""
        return self.extent[0] & -(1 << max(0, (self.extent[1] - self.extent[0]).bit_length() - _ROUNDED))


@dataclass(frozen=True)
class PackedSums:
    """Entries with their sums in the lowest ``bits``, less ``least`` for each tuple, and their counts above these.

    An entry without tuples is 0. ``numbers`` have 64 bits and a sign that is never set, or 32 bits and none.
    """

    name: str
    numbers: Numbers
    bits: int
    least: int

    @property
    def counts(self) -> Numbers:
        """The counts alone."""
        return self.numbers >> self.bits

    @property
    def is_small(self) -> bool:
        """Whether they have 32 bits."""
        return self.numbers.itemsize == 4

    def are_of(self, tuples: int, total: int) -> bool:
        """Return whether all tuples are in them: so many, with this sum, which may have wrapped at 64 bits."""
        counts, sums = self.totals()
        return counts == tuples and _wrapped(sums + counts * self.least) == total

    def totals(self) -> tuple[int, int]:
        """Return the total of all counts, and that of all sums, which still lack the least number for each tuple."""
        counts, sums = kernels.packed_totals(self.numbers, self.bits)
        return int(counts), int(sums)

    def first(self, count: int) -> PackedSums:
        """Return those of the first ``count`` entries."""
        return replace(self, numbers=self.numbers[:count])

    def at(self, positions: npt.NDArray[np.int32]) -> dict[str, Numbers]:
        """Return the counts and the sums of some entries."""
        return replace(self, numbers=kernels.take(self.numbers, positions)).unpacked()

    def of_keys(self, shape: tuple[int, int, int], first: int, last: int) -> PackedSums:
        """Return those of the keys ``[first, last)``, slice by slice and cell by cell.

        ``shape`` is that of all: cells, slices, keys.
        """
        numbers = self.numbers.reshape(shape)[:, :, first:last].transpose(1, 0, 2).ravel()
        return replace(self, numbers=numbers)

    def beside(self, others: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
        """Return them with other components of the same entries: still packed if of 32 bits, unpacked if of 64."""
        return WithPacked(self, others) if self.is_small else {**self.unpacked(), **others}

    def unpacked(self) -> dict[str, Numbers]:
        """Return counts and sums by name, of 32 bits if that is enough."""
        counts = np.empty(len(self.numbers), dtype=np.int32)
        sums: Numbers = np.empty_like(counts)
        if not kernels.unpack(counts, sums, self.numbers, self.bits, self.least):
            sums = np.empty(len(counts), dtype=np.int64)
            kernels.unpack(counts, sums, self.numbers, self.bits, self.least)
        return {COUNT_NAME: counts, self.name: sums}


class WithPacked(Mapping[str, Numbers]):
    """The components of entries, of which the count and a sum are packed until one of them is asked for by name."""

    def __init__(self, packed: PackedSums, others: Mapping[str, Numbers]) -> None:
        self.packed = packed
        self.others = others

    def __getitem__(self, name: str) -> Numbers:
        return self._unpacked[name] if name in (COUNT_NAME, self.packed.name) else self.others[name]

    def __iter__(self) -> Iterator[str]:
        yield from (COUNT_NAME, self.packed.name, *self.others)

    def __len__(self) -> int:
        return 2 + len(self.others)

    @cached_property
    def _unpacked(self) -> Mapping[str, Numbers]:
        return self.packed.unpacked()


def packed_alike(sums: Sequence[PackedSums]) -> Sequence[PackedSums]:
    """Return those that are packed as the first one is."""
    return [s for s in sums if (s.name, s.bits, s.least) == (sums[0].name, sums[0].bits, sums[0].least)]


def add_blocks(sums: Sequence[PackedSums], places: npt.NDArray[np.int64], size: int) -> PackedSums | None:
    """Add up sums that are packed alike, block by block of ``size`` entries; None if an entry has no room.

    ``places`` says to which block of the result each block of the sums, one after the other, is added.
    """
    numbers = np.zeros((int(places.max()) + 1, size), dtype=sums[0].numbers.dtype)
    blocks = (block for packed in sums for block in packed.numbers.reshape(-1, size))
    for place, block in zip(places.tolist(), blocks, strict=True):
        numbers[place] += block
    added = replace(sums[0], numbers=numbers.ravel())
    totals = [packed.totals() for packed in sums]
    is_exact = added.totals() == tuple(map(sum, zip(*totals, strict=True)))
    return added if is_exact else None


def arrays_of(numbers: Mapping[str, Numbers]) -> list[Numbers]:
    """Return the arrays behind some components, without unpacking any."""
    if isinstance(numbers, WithPacked):
        return [numbers.packed.numbers, *numbers.others.values()]
    return list(numbers.values())


def types_of(numbers: Mapping[str, Numbers]) -> dict[str, np.dtype[Any]]:
    """Return the types of some components, 64 bits for all whole numbers, without unpacking any."""
    whole = np.dtype(np.int64)
    if isinstance(numbers, WithPacked):
        return {COUNT_NAME: whole, numbers.packed.name: whole, **types_of(numbers.others)}
    return {name: whole if array.dtype.kind == "i" else array.dtype for name, array in numbers.items()}


def _wrapped(number: int) -> int:
    """Return a whole number as 64 bits have it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
