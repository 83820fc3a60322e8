"""Totals of dense entries: arrays over all cells, slices and keys, and what of them has tuples."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braid.operators import kernels
from braid.operators.arrays import Numbers
from braid.operators.state import components
from braid.operators.state.components import COUNT_NAME
from braid.operators.state.packed_sums import PackedSums

# of one key group: its number, where its slices start, the cell and key of each entry (None where each cell and key has
# one), and the components of each
Entries = tuple[int, npt.NDArray[np.int64], tuple[Numbers, Numbers] | None, Mapping[str, Numbers]]

# where more than this share of the addresses is occupied, to say which costs more than to keep the empty ones
FULL = 0.5
# packed sums of 32 bits take a third of the room of entries that say which they are, so fewer need to be occupied
_SMALL = 2 / 3


@dataclass(frozen=True)
class DenseTotals:
    """Components of entries in arrays of the ``shape`` (cells, slices, keys), flat; the count and a sum may be packed.

    Entries without tuples have a count of 0, or are 0 in what is ``packed``.
    """

    shape: tuple[int, int, int]
    totals: Mapping[str, Numbers]
    packed: PackedSums | None = None

    def entries(self, group_starts: npt.NDArray[np.int64]) -> Iterator[Entries]:
        """Yield, for each key group, where its slices start, and the cell, key and numbers of its entries."""
        totals, packed, shape = self.totals, self.packed, self.shape
        counts = (totals[COUNT_NAME] if packed is None else packed.numbers).reshape(shape)
        cells, slices, _ = shape
        occupied = kernels.occupied_per_group(counts, group_starts)
        min_share = FULL if packed is None or not packed.is_small else FULL * _SMALL
        for group, count in enumerate(occupied.tolist()):
            if not count:
                continue
            first, last = group_starts[group : group + 2].tolist()
            if count > min_share * cells * slices * (last - first):
                starts = np.arange(slices + 1, dtype=np.int64) * (cells * (last - first))
                others = {n: t.reshape(shape)[:, :, first:last].transpose(1, 0, 2).ravel() for n, t in totals.items()}
                yield (
                    group,
                    starts,
                    None,
                    others if packed is None else packed.of_keys(shape, first, last).beside(others),
                )
                continue
            position, cell, key = (np.empty(count, dtype=np.int32) for _ in range(3))
            starts = np.empty(slices + 1, dtype=np.int64)
            kernels.pick_group(counts, first, last, position, cell, key, starts)
            numbers = {} if packed is None else packed.at(position)
            numbers |= {name: kernels.take(total, position) for name, total in totals.items()}
            yield group, starts, (cell, key), numbers


@dataclass(frozen=True)
class FinerTotals:
    """Totals of the same tuples in finer cells, and which of the coarser cells each is a part of, -1 for none."""

    totals: DenseTotals
    cell_map: npt.NDArray[np.int32]

    def added_up(self, names: Collection[str], cells: int) -> dict[str, Numbers]:
        """Return the components among those of some ``names`` that are sums, added up in so many coarser cells."""
        _, slices, keys = self.totals.shape
        width, packed = slices * keys, self.totals.packed
        size = cells * width
        mapping = (self.cell_map, np.arange(width, dtype=np.int32), 0, width, width)
        sums_by_name: dict[str, Numbers] = {}
        if packed is not None:
            counts, sums = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
            kernels.merge_packed(counts, sums, packed.numbers, packed.bits, packed.least, *mapping)
            sums_by_name = {COUNT_NAME: counts, packed.name: sums}
        for name, total in self.totals.totals.items():
            component = components.component_named(name, total.dtype)
            if component.merge == "sum" and total.dtype.kind != "c":
                sums_by_name[name] = np.zeros(size, dtype=total.dtype)
                kernels.merge_full(kernels.SUM, sums_by_name[name], total, *mapping)
        return {name: total for name, total in sums_by_name.items() if name in names}
