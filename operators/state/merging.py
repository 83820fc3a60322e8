"""Bringing buckets together: entries of several buckets added up in a common numbering of cells and keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators import kernels
from braid.operators.aggregation.slice_tree import Itemized
from braid.operators.arrays import Numbers
from braid.operators.predicates.cells import CellMap, Cells, LineCells, SetCells, unite_sets
from braid.operators.state import components
from braid.operators.state.bucket import Bucket
from braid.operators.state.components import COUNT_NAME, Component, component_named
from braid.operators.state.dense_totals import FULL
from braid.operators.state.keys import Codes, unite_keys
from braid.operators.state.packed_sums import WithPacked, types_of
from braid.operators.state.query_runs import Partials
from braid.operators.state.totals import empty, merge_into
from braid.operators.windowing.slicing import NeededEdges, coalesce

# entries addressed directly at once; more are merged key range by key range
DENSE_ENTRIES = 1 << 22
# a slice is merged in an array with so many addresses for each entry at most
_DENSE_PER_ENTRY = 8
_WAYS = {"sum": kernels.SUM, "min": kernels.LEAST, "max": kernels.GREATEST}


def component_names(buckets: Iterable[Bucket]) -> dict[str, np.dtype[Any]]:
    """Return the names of all components of some buckets, with their types, the count of tuples first."""
    return {COUNT_NAME: np.dtype(np.int64)} | {
        name: dtype for bucket in buckets for name, dtype in types_of(bucket.components).items()
    }


def common_keys(buckets: Sequence[Bucket]) -> tuple[pa.Table, list[Codes]]:
    """Return the distinct keys of buckets, and for each bucket the new number of each of its keys."""
    digits = (bucket.key_digits for bucket in buckets)
    return unite_keys([bucket.keys for bucket in buckets], digits=lambda: digits)


def common_ranks(
    buckets: Sequence[Partials], names: Iterable[str]
) -> tuple[dict[str, pa.Array], list[dict[str, npt.NDArray[np.int64]]]]:
    """Return one dictionary for each ranked measure among ``names``, and each bucket's new ranks."""
    united: dict[str, pa.Array] = {}
    new_ranks: list[dict[str, npt.NDArray[np.int64]]] = [{} for _ in buckets]
    for name in names:
        holders = [i for i, bucket in enumerate(buckets) if name in bucket.dictionaries]
        if holders:
            united[name], ranks_of_holders = components.unite([buckets[i].dictionaries[name] for i in holders])
            for i, ranks in zip(holders, ranks_of_holders, strict=True):
                new_ranks[i][name] = ranks
    return united, new_ranks


def numbers_of(
    entries: Itemized,
    component: Component,
    which: slice | npt.NDArray[np.int64],
    ranks: Mapping[str, npt.NDArray[np.int64]],
) -> Numbers | None:
    """Return a component of some entries of a bucket; None when it does not have the component.

    A count that was left out is that of all tuples, since no value was NULL. (A bucket older than all queries with this
    measure lacks the count, too; no query with the measure reads its slices.)
    """
    numbers = entries.components.get(component.name)
    if numbers is None:
        if not component.name.startswith("count("):
            return None
        numbers = entries.components[COUNT_NAME]
    picked = numbers[which]
    if component.name in ranks:
        picked = components.renumber_ranks(picked, ranks[component.name], component)
    return picked


@dataclass(frozen=True)
class Renumbered:
    """Where the entries of a bucket go in arrays of shape (cells, keys), flat.

    Cells and keys get new numbers, and the ranks of measures new ``ranks``. What is mapped to cell -1 goes nowhere, and
    so does any key but the ``keys`` ones from ``first`` on.
    """

    cell_map: CellMap
    key_map: npt.NDArray[np.int32]
    ranks: Mapping[str, npt.NDArray[np.int64]]
    first: int
    keys: int

    def add(self, totals: Mapping[str, Numbers], entries: Itemized, low: int, high: int) -> None:
        """Add the entries ``[low, high)`` of the bucket, or of a level of it, to the components in ``totals``."""
        at: npt.NDArray[np.int32] | None = None
        packed = self._add_packed(totals, entries, low, high)
        for name, total in totals.items():
            if name in packed:
                continue
            component = component_named(name, total.dtype)
            numbers = numbers_of(entries, component, slice(low, high), self.ranks)
            if numbers is None:
                continue
            if entries.is_full and total.dtype.kind != "c":
                way, own_keys = _WAYS[component.merge], len(self.key_map)
                kernels.merge_full(way, total, numbers, self.cell_map, self.key_map, self.first, self.keys, own_keys)
                continue
            if at is None:
                at = np.empty(high - low, dtype=np.int32)
                cell, key = entries.cell[low:high], entries.key[low:high]
                kernels.place_mapped(at, cell, key, self.cell_map, self.key_map, self.first, self.keys)
            merge_into(component, total, at, numbers)

    def _add_packed(self, totals: Mapping[str, Numbers], entries: Itemized, low: int, high: int) -> tuple[str, ...]:
        """Add the count and the sum that are packed, if any are and ``totals`` has both; return their names."""
        if not isinstance(entries.components, WithPacked):
            return ()
        packed = entries.components.packed
        names = COUNT_NAME, packed.name
        if not totals.keys() >= set(names):
            return ()
        counts, sums = (totals[name] for name in names)
        mapping = self.cell_map, self.key_map, self.first, self.keys, len(self.key_map)
        kernels.merge_packed(counts, sums, packed.numbers[low:high], packed.bits, packed.least, *mapping)
        return names


def merge_buckets(
    buckets: Sequence[Bucket],
    alive: Sequence[npt.NDArray[np.bool_]],
    cells: LineCells | None,
    needed: NeededEdges | None = None,
) -> Bucket:
    """Return one bucket for several of one operator and space; ``alive[i]`` are the slices to keep of bucket i.

    Line cells become ``cells``; set cells with equal query-sets become one. Slices between which there is no ``needed``
    edge become one, so that a long window does not keep the fine slices of a short one.
    """
    first = buckets[0]
    maps: list[CellMap]
    common: Cells
    if cells is None:
        common, maps = unite_sets([_sets(bucket.cells) for bucket in buckets])
    else:
        common, maps = cells, [_line(bucket.cells).map_to(cells) for bucket in buckets]
    keys, key_maps = common_keys(buckets)
    names = component_names(buckets)
    dictionaries, ranks = common_ranks(buckets, names)
    parts: dict[tuple[int, int], list[tuple[int, int]]] = {}
    latest: dict[tuple[int, int], int] = {}
    wider = coalesced(buckets, alive, needed)
    for i, bucket in enumerate(buckets):
        for j in np.flatnonzero(alive[i]).tolist():
            slice_ = (int(bucket.slices[j, 0]), int(bucket.slices[j, 1]))
            slice_ = wider.get(slice_, slice_)
            parts.setdefault(slice_, []).append((i, j))
            latest[slice_] = max(latest.get(slice_, np.iinfo(np.int64).min), int(bucket.latest[j]))
    slices = sorted(parts)
    renumbered = [Renumbered(*mapping, 0, keys.num_rows) for mapping in zip(maps, key_maps, ranks, strict=True)]
    merged = [_merge_slice(buckets, parts[slice_], renumbered, names, common.count) for slice_ in slices]
    if merged and all(entries.places is None for entries in merged):
        places = None
    else:
        merged = [entries.listed(keys.num_rows) for entries in merged]
        pairs = [entries.places for entries in merged if entries.places is not None]
        cell, key = (_joined([pair[i] for pair in pairs], np.dtype(np.int32)) for i in range(2))
        places = cell, key
    return Bucket(
        operator=first.operator,
        space=first.space,
        epoch=max(bucket.epoch for bucket in buckets),
        cells=common,
        slices=np.array(slices, dtype=np.int64).reshape(-1, 2),
        starts=np.cumsum([0, *(len(entries.numbers[COUNT_NAME]) for entries in merged)]),
        latest=np.array([latest[slice_] for slice_ in slices], dtype=np.int64),
        places=places,
        keys=keys,
        components={name: _joined([e.numbers[name] for e in merged], dtype) for name, dtype in names.items()},
        dictionaries=dictionaries,
    )


def coalesced(
    buckets: Sequence[Partials], alive: Sequence[npt.NDArray[np.bool_]], needed: NeededEdges | None
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the wider slice of which each becomes a part; none if slices, being of different epochs, overlap."""
    slices = np.unique(np.concatenate([b.slices[mask] for b, mask in zip(buckets, alive, strict=True)]), axis=0)
    if needed is None or len(slices) < 2 or (slices[1:, 0] < slices[:-1, 1]).any():
        return {}
    joined, number = coalesce(slices, needed)
    wider = [(start, end) for start, end in joined.tolist()]
    return {(start, end): wider[number[i]] for i, (start, end) in enumerate(slices.tolist())}


@dataclass(frozen=True)
class _Slice:
    """The entries of one slice as a bucket has them; ``places`` is None where each cell and key has one."""

    places: tuple[Numbers, Numbers] | None
    numbers: Mapping[str, Numbers]

    def listed(self, keys: int) -> _Slice:
        """Return the entries that have tuples, and say which they are."""
        if self.places is not None:
            return self
        occupied = np.flatnonzero(self.numbers[COUNT_NAME]).astype(np.int32)
        cell, key = np.divmod(occupied, np.int32(keys))
        return _Slice((cell, key), {name: kernels.take(numbers, occupied) for name, numbers in self.numbers.items()})


def _merge_slice(
    buckets: Sequence[Bucket],
    parts: Sequence[tuple[int, int]],
    renumbered: Sequence[Renumbered],
    names: Mapping[str, np.dtype[Any]],
    cells: int,
) -> _Slice:
    """Merge one slice's entries: their cells, keys and numbers."""
    spans = [(i, int(buckets[i].starts[j]), int(buckets[i].starts[j + 1])) for i, j in parts]
    entries, addresses = sum(high - low for _, low, high in spans), cells * renumbered[0].keys
    if addresses > min(DENSE_ENTRIES, _DENSE_PER_ENTRY * entries):
        return _merge_few(buckets, spans, renumbered, names)
    totals = {name: empty(component_named(name, dtype), addresses) for name, dtype in names.items()}
    for i, low, high in spans:
        renumbered[i].add(totals, buckets[i], low, high)
    merged = _Slice(None, totals)
    is_full = np.count_nonzero(totals[COUNT_NAME]) > FULL * addresses
    return merged if is_full else merged.listed(renumbered[0].keys)


def _merge_few(
    buckets: Sequence[Bucket],
    spans: Sequence[tuple[int, int, int]],
    renumbered: Sequence[Renumbered],
    names: Mapping[str, np.dtype[Any]],
) -> _Slice:
    """Merge one slice whose entries lie far apart: those that occur are numbered first."""
    keys = renumbered[0].keys
    address = np.concatenate(
        [
            kernels.take(renumbered[i].cell_map, buckets[i].cell[low:high]).astype(np.int64) * keys
            + kernels.take(renumbered[i].key_map, buckets[i].key[low:high])
            for i, low, high in spans
        ]
    )
    distinct, inverse = np.unique(address, return_inverse=True)
    at = inverse.astype(np.int32)
    totals: dict[str, Numbers] = {}
    for name, dtype in names.items():
        component = component_named(name, dtype)
        totals[name] = empty(component, len(distinct))
        first = 0
        for i, low, high in spans:
            numbers = numbers_of(buckets[i], component, slice(low, high), renumbered[i].ranks)
            if numbers is not None:
                merge_into(component, totals[name], at[first : first + high - low], numbers)
            first += high - low
    occupied = np.flatnonzero(totals[COUNT_NAME])
    cell, key = np.divmod(distinct[occupied], keys)
    places = cell.astype(np.int32), key.astype(np.int32)
    return _Slice(places, {name: total[occupied] for name, total in totals.items()})


def _joined(parts: Sequence[Numbers], dtype: np.dtype[Any]) -> Numbers:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)


def _line(cells: Cells) -> LineCells:
    assert isinstance(cells, LineCells)
    return cells


def _sets(cells: Cells) -> SetCells:
    assert isinstance(cells, SetCells)
    return cells
