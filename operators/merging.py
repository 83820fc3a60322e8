"""Bringing buckets together: entries of several buckets added up in a common numbering of cells and keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators import components, kernels
from operators.arrays import Numbers
from operators.bucket import Bucket
from operators.components import COUNT_NAME, Component, component_named
from operators.entries import empty, merge_into
from operators.keys import unite_keys
from operators.predicates.cells import CellMap, Cells, LineCells, SetCells, unite_sets
from operators.windowing.slice_tree import Entries
from operators.windowing.slicing import NeededEdges, coalesce

# entries addressed directly at once; more are merged key range by key range
DENSE_ENTRIES = 1 << 22


def component_names(buckets: Iterable[Bucket]) -> dict[str, np.dtype[Any]]:
    """Return the names of all components of some buckets, with their types, the count of tuples first."""
    return {COUNT_NAME: np.dtype(np.int64)} | {
        name: np.dtype(np.int64) if numbers.dtype.kind == "i" else numbers.dtype
        for bucket in buckets
        for name, numbers in bucket.components.items()
    }


def common_ranks(
    buckets: Sequence[Bucket], names: Iterable[str]
) -> tuple[dict[str, pa.Array], list[dict[str, npt.NDArray[np.int64]]]]:
    """Return one dictionary for each ranked measure among ``names``, and each bucket's new ranks."""
    united: dict[str, pa.Array] = {}
    new: list[dict[str, npt.NDArray[np.int64]]] = [{} for _ in buckets]
    for name in names:
        having = [i for i, bucket in enumerate(buckets) if name in bucket.dictionaries]
        if having:
            united[name], ranks = components.unite([buckets[i].dictionaries[name] for i in having])
            for i, each in zip(having, ranks, strict=True):
                new[i][name] = each
    return united, new


def numbers_of(
    entries: Entries, component: Component, low: int, high: int, ranks: Mapping[str, npt.NDArray[np.int64]]
) -> Numbers | None:
    """Return a component of the entries ``[low, high)`` of a bucket; None when it does not have the component.

    A count that was left out is that of all tuples, since no value was NULL. (A bucket older than all queries with this
    measure lacks it too; no query reads its slices.)
    """
    numbers = entries.components.get(component.name)
    if numbers is None:
        if not component.name.startswith("count("):
            return None
        numbers = entries.components[COUNT_NAME]
    picked = numbers[low:high]
    if component.name in ranks:
        picked = components.renumber_ranks(picked, ranks[component.name], component)
    return picked


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
    keys, key_maps = unite_keys([bucket.keys for bucket in buckets])
    names = component_names(buckets)
    dictionaries, ranks = common_ranks(buckets, names)
    parts: dict[tuple[int, int], list[tuple[int, int]]] = {}
    latest: dict[tuple[int, int], int] = {}
    becomes = _coalesced(buckets, alive, needed)
    for i, bucket in enumerate(buckets):
        for j in np.flatnonzero(alive[i]).tolist():
            slice_ = (int(bucket.slices[j, 0]), int(bucket.slices[j, 1]))
            slice_ = becomes.get(slice_, slice_)
            parts.setdefault(slice_, []).append((i, j))
            latest[slice_] = max(latest.get(slice_, np.iinfo(np.int64).min), int(bucket.latest[j]))
    slices = sorted(parts)
    merged = [
        _merge_slice(buckets, parts[each], maps, key_maps, ranks, names, common.count, keys.num_rows) for each in slices
    ]
    return Bucket(
        operator=first.operator,
        dimensions=first.dimensions,
        epoch=max(bucket.epoch for bucket in buckets),
        cells=common,
        slices=np.array(slices, dtype=np.int64).reshape(-1, 2),
        starts=np.cumsum([0, *(len(cell) for cell, _, _ in merged)]),
        latest=np.array([latest[each] for each in slices], dtype=np.int64),
        cell=_joined([cell for cell, _, _ in merged], np.dtype(np.int32)),
        key=_joined([key for _, key, _ in merged], np.dtype(np.int32)),
        keys=keys,
        components={name: _joined([n[name] for _, _, n in merged], dtype) for name, dtype in names.items()},
        dictionaries=dictionaries,
    )


def _coalesced(
    buckets: Sequence[Bucket], alive: Sequence[npt.NDArray[np.bool_]], needed: NeededEdges | None
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return what each slice becomes part of. Slices of different epochs may overlap: then all stay as they are."""
    slices = np.unique(np.concatenate([b.slices[some] for b, some in zip(buckets, alive, strict=True)]), axis=0)
    if needed is None or len(slices) < 2 or (slices[1:, 0] < slices[:-1, 1]).any():
        return {}
    joined, number = coalesce(slices, needed)
    wider = [(start, end) for start, end in joined.tolist()]
    return {(start, end): wider[number[i]] for i, (start, end) in enumerate(slices.tolist())}


def _merge_slice(
    buckets: Sequence[Bucket],
    parts: Sequence[tuple[int, int]],
    maps: Sequence[CellMap],
    key_maps: Sequence[npt.NDArray[np.int32]],
    ranks: Sequence[Mapping[str, npt.NDArray[np.int64]]],
    names: Mapping[str, np.dtype[Any]],
    cells: int,
    keys: int,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], dict[str, Numbers]]:
    """Merge one slice's entries: their cells, keys and numbers."""
    spans = [(i, int(buckets[i].starts[j]), int(buckets[i].starts[j + 1])) for i, j in parts]
    address = np.concatenate(
        [
            kernels.taken(maps[i], buckets[i].cell[low:high]).astype(np.int64) * keys
            + kernels.taken(key_maps[i], buckets[i].key[low:high])
            for i, low, high in spans
        ]
    )
    if cells * keys <= DENSE_ENTRIES:
        occurs = np.zeros(cells * keys, dtype=np.bool_)
        occurs[address] = True
        distinct = np.flatnonzero(occurs)
        at = (np.cumsum(occurs, dtype=np.int32) - 1)[address].astype(np.int32)
    else:
        distinct, inverse = np.unique(address, return_inverse=True)
        at = inverse.astype(np.int32)
    numbers: dict[str, Numbers] = {}
    for name, dtype in names.items():
        component = component_named(name, dtype)
        total = numbers[name] = empty(component, len(distinct))
        done = 0
        for i, low, high in spans:
            picked = numbers_of(buckets[i], component, low, high, ranks[i])
            if picked is not None:
                merge_into(component, total, at[done : done + high - low], picked)
            done += high - low
    cell, key = np.divmod(distinct, keys)
    return cell.astype(np.int32), key.astype(np.int32), numbers


def _joined(parts: Sequence[Numbers], dtype: np.dtype[Any]) -> Numbers:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)


def _line(cells: Cells) -> LineCells:
    assert isinstance(cells, LineCells)
    return cells


def _sets(cells: Cells) -> SetCells:
    assert isinstance(cells, SetCells)
    return cells
