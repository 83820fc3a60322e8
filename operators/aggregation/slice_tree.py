"""Neighbouring slices of a bucket added up ahead of time, so that windows with many slices read few numbers.

Where windows share hardly an edge, slices are as many as tuples, and each window would add all of its slices up alone.
A bucket therefore has *levels*: an item of one level is a stretch of neighbouring items of the level below, long enough
that many of their entries fall together. A window is made of few long stretches and the slices left at its two ends,
as in aggregate trees over slices (beyond the thesis, whose windows add up slices one by one: 4.3.1.5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from braid.operators import kernels
from braid.operators.arrays import Numbers
from braid.operators.state.components import COUNT_NAME, component_named
from braid.operators.state.totals import empty, merge_into

# a stretch has this many times as many entries as can be left of them once they are added up
_FEWER = 4
# entries are addressed directly; a bucket of more cells and keys has no stretches
_MAX_ADDRESSES = 1 << 20


class Itemized(Protocol):
    """Entries ordered by item: those of item i, a slice or a stretch, are ``[starts[i], starts[i + 1])``."""

    @property
    def starts(self) -> npt.NDArray[np.int64]: ...

    @property
    def cell(self) -> Numbers: ...

    @property
    def key(self) -> Numbers: ...

    @property
    def components(self) -> Mapping[str, Numbers]: ...

    @property
    def is_full(self) -> bool: ...


@dataclass(frozen=True)
class Level:
    """Stretches: number i has the items ``[bounds[i], bounds[i + 1])`` of the entries below, added up.

    Cells and keys are numbered as below; there are ``cells`` and ``keys`` of them.
    """

    bounds: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    cell: npt.NDArray[np.int32]
    key: npt.NDArray[np.int32]
    components: Mapping[str, Numbers]
    cells: int
    keys: int
    is_full: bool = False

    @cached_property
    def above(self) -> Level | None:
        """The next level, None where it would not have fewer entries."""
        return level_above(self, self.cells, self.keys)


def level_above(below: Itemized, cells: int, keys: int) -> Level | None:
    """Return the level above some entries, None where it would not have several times fewer."""
    size = cells * keys
    if size > _MAX_ADDRESSES or below.starts[-1] < 2 * _FEWER * size:
        return None
    bounds = _bounds(below.starts, _FEWER * size)
    if len(bounds) < 3 or _FEWER * (len(bounds) - 1) > len(below.starts) - 1:
        return None
    address = np.empty(len(below.cell), dtype=np.int32)
    identity = np.arange(max(cells, keys), dtype=np.int32)
    kernels.place_mapped(address, below.cell, below.key, identity, identity, 0, keys)
    occupied = []
    totals: dict[str, list[Numbers]] = {name: [] for name in below.components}
    for low, high in zip(below.starts[bounds[:-1]].tolist(), below.starts[bounds[1:]].tolist(), strict=True):
        stretch_totals = {
            name: _total_of(name, numbers[low:high], address[low:high], size)
            for name, numbers in below.components.items()
        }
        addresses = np.flatnonzero(stretch_totals[COUNT_NAME])
        occupied.append(addresses)
        for name, total in stretch_totals.items():
            totals[name].append(total[addresses])
    cell, key = np.divmod(np.concatenate(occupied).astype(np.int32), np.int32(keys))
    components = {name: np.concatenate(parts) for name, parts in totals.items()}
    return Level(bounds, np.cumsum([0, *map(len, occupied)]), cell, key, components, cells, keys)


def _bounds(starts: npt.NDArray[np.int64], min_entries: int) -> npt.NDArray[np.int64]:
    """Return where stretches of at least ``min_entries`` begin, and where the last ends; no other is as long."""
    bounds = [0]
    while True:
        after = int(np.searchsorted(starts, starts[bounds[-1]] + min_entries))
        if after >= len(starts):
            return np.array(bounds, dtype=np.int64)
        bounds.append(after)


def _total_of(name: str, numbers: Numbers, address: npt.NDArray[np.int32], size: int) -> Numbers:
    """Return a component of entries added up by their addresses."""
    component = component_named(name, np.dtype(np.int64) if numbers.dtype.kind == "i" else numbers.dtype)
    total = empty(component, size)
    merge_into(component, total, address, numbers)
    return total


def stretches(entries: Itemized, above: Level | None, first: int, after: int) -> Iterator[tuple[Itemized, int, int]]:
    """Yield what the items ``[first, after)`` consist of: entries of a level, the first, the one after the last."""
    if above is not None:
        low = int(np.searchsorted(above.bounds, first))
        high = int(np.searchsorted(above.bounds, after, side="right")) - 1
        if low < high:
            yield from stretches(entries, None, first, int(above.bounds[low]))
            yield from stretches(above, above.above, low, high)
            yield from stretches(entries, None, int(above.bounds[high]), after)
            return
    if first < after:
        yield entries, int(entries.starts[first]), int(entries.starts[after])
