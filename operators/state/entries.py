"""Entries: what buckets hold of tuples, per slice, cell and key, in the form that costs least.

Entries are addressed by number: slice, cell and key of a tuple make its address.

- *dense*: the addresses are an array, where that is not much larger than the tuples are many; where most of it has
  tuples the bucket is this array, and full;
- *sparse*: the addresses that occur are numbered first;
- *list*: each tuple is an entry of its own, where hardly two have the same address (thesis 4.3.1.4, where a list takes
  the place of groups of equal query-sets as these get small);
- *alone*: queries with predicates on several columns are added up query by query, where hardly two tuples have the same
  query-set.

What dense entries of finer cells over the same column hold already is not added up tuple by tuple a second time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators import kernels
from braid.operators.arrays import Numbers
from braid.operators.predicates.dimension import CellLookup
from braid.operators.predicates.query_set import QuerySets
from braid.operators.query_parts import Measure
from braid.operators.state import components
from braid.operators.state.addresses import Addresses
from braid.operators.state.components import COUNT_NAME, Encoded
from braid.operators.state.dense_totals import DenseTotals, Entries, FinerTotals
from braid.operators.state.packed_sums import Packable
from braid.operators.state.sliced_tuples import SlicedTuples
from braid.operators.state.totals import Run, accumulate, add_looked_up, add_up, entry_components, new_totals

# up to so many entries are addressed directly however few the tuples are, and up to so many for each tuple
_ALWAYS_DENSE = 1 << 16
_DENSE_PER_TUPLE = 4
# tuples are added up where on average so many have the same address, which a sample of them tells
_MIN_GROUP = 2.0
_SMALL_GROUP = 0.6  # so many times as many are enough where sums have 32 bits
_MANY_ALIKE = 4  # so many tuples of a sample in one entry are no accident
# queries are added up alone in so many entries at most, and with so many queries per tuple at most
_MAX_ALONE = 1 << 24
_MAX_QUERIES_ALONE = 2000
_PLACES_AT_ONCE = 1 << 20


def cell_by_cell(
    sliced: SlicedTuples,
    cell: CellLookup,
    cells: int,
    encoded: Mapping[Measure, Encoded],
    finer: FinerTotals | None = None,
) -> tuple[Iterator[Entries], DenseTotals | None]:
    """Return the entries of tuples of which each belongs to one cell, -1 for none; and their totals, if dense."""
    length, keys = sliced.length, sliced.keys
    shape = (cells, len(sliced.slices), keys.count)
    entries = math.prod(shape)
    if not entries:
        return iter(()), None
    is_addressable = entries <= _max_entries(length)
    by_name, from_finer = entry_components(encoded), {}
    if finer is not None and is_addressable:
        from_finer = finer.added_up(by_name, cells)
    packable, fullest = None if from_finer else Packable.first_of(encoded, length), None
    # with sums of 32 bits, possible where no entry has very many tuples, smaller groups are worth adding up
    min_group = _MIN_GROUP
    if packable is not None and is_addressable and entries > _ALWAYS_DENSE:
        fullest = _fullest(sliced, cell)
        min_group *= _SMALL_GROUP if packable.is_small(fullest) else 1
    if not from_finer and entries > _ALWAYS_DENSE and _group_size(length, entries) < min_group:
        cell_of_tuple = cell.cells()
        if _is_list(sliced, cell_of_tuple, min_group):
            return _list_entries(sliced, cell_of_tuple, encoded), None
        cell = CellLookup.of(cell_of_tuple, cells)
    if not is_addressable:
        return _sparse_entries(sliced, cell.cells(), shape, encoded), None
    addresses = Addresses.of(cell, sliced.column, shape)
    totals = new_totals(addresses.size, encoded, from_finer if packable is None else (COUNT_NAME, packable.name))
    packed = None
    if packable is not None:
        packed = packable.add_up(addresses, fullest, sliced.short(packable)).first(entries)
    runs = None
    if any(component.merge != "sum" for component in by_name.values()):
        counts = from_finer.get(COUNT_NAME) if packed is None else packed.counts
        runs = None if counts is None else _runs(sliced, counts.reshape(shape))
    add_looked_up(totals, addresses, encoded, runs)
    dense = DenseTotals(shape, from_finer | {name: total[:entries] for name, total in totals.items()}, packed)
    return dense.entries(keys.group_starts), dense


def _runs(sliced: SlicedTuples, counts: Numbers) -> list[Run] | None:
    """Return the tuples of each slice, if they follow each other; ``counts`` are those of entries."""
    bounds = sliced.bounds
    if bounds is None:
        return None
    tuples_of, entries_of = counts.sum(axis=(0, 2)).tolist(), np.count_nonzero(counts, axis=(0, 2)).tolist()
    spans = pairwise(bounds.tolist())
    return [Run(*span, tuples, entries) for span, tuples, entries in zip(spans, tuples_of, entries_of, strict=True)]


def _fullest(sliced: SlicedTuples, cell: CellLookup) -> float:
    """Return about how many tuples the fullest entry has.

    Cells and keys are taken to be independent of each other, unless a sample shows entries with far more.
    """
    positions, column = sliced.sample
    cells = cell.cells_at(positions)
    if_independent = float(np.bincount(cells + 1).max()) / len(cells) * sliced.fullest_column
    addresses = cells.astype(np.int64) * (len(sliced.slices) * sliced.keys.count) + column
    max_alike = int(np.unique(addresses, return_counts=True)[1].max())
    if max_alike < _MANY_ALIKE:
        return if_independent
    return max(if_independent, max_alike / len(cells) * sliced.length)


def _is_list(sliced: SlicedTuples, cell: npt.NDArray[np.int32], min_group: float) -> bool:
    """Return whether hardly two tuples have the same address: fewer than ``min_group`` on average.

    Tuples are spread over the addresses evenly or less so; how much less, pairs with equal addresses in a sample tell.
    """
    positions, column = sliced.sample
    has_cell = cell[positions] >= 0
    sample = np.sort(
        cell[positions[has_cell]].astype(np.int64) * (len(sliced.slices) * sliced.keys.count) + column[has_cell]
    )
    if len(sample) < 2:
        return True
    changes = np.flatnonzero(np.concatenate([[True], sample[1:] != sample[:-1], [True]]))
    group_sizes = np.diff(changes)
    pairs = max(float((group_sizes * (group_sizes - 1)).sum()) / 2, 0.5)
    addresses = len(sample) * (len(sample) - 1) / 2 / pairs
    return _group_size(sliced.length * len(sample) / len(positions), addresses) < min_group


def _group_size(length: float, addresses: float) -> float:
    """Return how many of so many tuples have the same address on average, if all addresses are equally likely."""
    return length / (addresses * -math.expm1(-length / addresses))


def tuples_alone(
    sliced: SlicedTuples, cell: npt.NDArray[np.int32], query_sets: QuerySets, queries: int
) -> npt.NDArray[np.int64] | None:
    """Return how many queries each tuple goes to if queries had better be added up alone; None if not.

    Where tuples have very many queries each, they are not.
    """
    length, places = sliced.length, len(sliced.slices) * sliced.keys.count
    if not better_alone(length, len(query_sets) * places, queries * places):
        return None
    queries_per_tuple = kernels.take(kernels.set_bits(query_sets), cell)
    return queries_per_tuple if queries_per_tuple.sum() <= _MAX_QUERIES_ALONE * length else None


def better_alone(tuples: float, entries: float, alone: float) -> bool:
    """Return whether queries had better be added up one by one, in ``alone`` entries, than tuples by query-set.

    Grouping tuples by query-set pays as long as groups are large (thesis 4.3.1.4, where a list takes their place). With
    about one tuple per group nothing is shared, and there are more entries than the queries alone have.
    """
    return entries > _max_entries(tuples) and alone <= _MAX_ALONE


def query_by_query(
    sliced: SlicedTuples,
    cell: npt.NDArray[np.int32],
    query_sets: QuerySets,
    queries: int,
    encoded: Mapping[Measure, Encoded],
    queries_per_tuple: npt.NDArray[np.int64],
) -> Iterator[Entries]:
    """Add each tuple to an entry of every query that selects it; the cells are the queries.

    While they are added up, the entries of one slice and key lie next to each other, and so do their tuples: memory is
    written from one end to the other.
    """
    keys = sliced.keys
    shape = (queries, len(sliced.slices), keys.count)
    totals = new_totals(math.prod(shape), encoded)
    order, starts = np.empty(len(cell), dtype=np.int32), np.zeros(shape[1] * shape[2] + 1, dtype=np.int64)
    kernels.order_by_code(order, starts, sliced.column)
    ends = np.cumsum(kernels.take(queries_per_tuple, order))
    first = 0
    while first < len(cell):
        places_before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, places_before + _PLACES_AT_ONCE, side="right")))
        at = np.empty(int(ends[last - 1]) - places_before, dtype=np.int32)
        source = np.empty_like(at)
        kernels.place_each(at, source, order[first:last], cell, sliced.column, query_sets, queries)
        add_up(totals, at, encoded, source)
        first = last
    by_query = {name: total.reshape(-1, queries).T.ravel() for name, total in totals.items()}
    yield from DenseTotals(shape, by_query).entries(keys.group_starts)


def _max_entries(length: float) -> float:
    """Return how many entries are addressed directly for so many tuples."""
    return max(_ALWAYS_DENSE, _DENSE_PER_TUPLE * length)


def _sparse_entries(
    sliced: SlicedTuples,
    cell: npt.NDArray[np.int32],
    shape: tuple[int, int, int],
    encoded: Mapping[Measure, Encoded],
) -> Iterator[Entries]:
    """Return the entries where addresses are far apart: those that occur are numbered by key group and slice."""
    cells, slices, keys = shape
    group_of_key = np.repeat(np.arange(len(sliced.keys.group_starts) - 1), np.diff(sliced.keys.group_starts))
    address = (group_of_key[sliced.keys.codes] * slices + sliced.slice_of) * cells + cell
    address = address * keys + sliced.keys.codes
    address[cell < 0] = -1
    encoded_addresses = pa.array(address).dictionary_encode()
    distinct = np.asarray(encoded_addresses.dictionary)
    order = np.argsort(distinct)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    distinct = distinct[order]
    without_cell = int(np.searchsorted(distinct, 0))  # the address -1, if it occurs, is the first
    at = rank[np.asarray(encoded_addresses.indices)] - np.int32(without_cell)
    distinct = distinct[without_cell:]
    totals = accumulate(at, len(distinct), encoded)
    group_slice_cell, entry_key = np.divmod(distinct, keys)
    group_slice, entry_cell = np.divmod(group_slice_cell, cells)
    bounds = np.searchsorted(group_slice, np.arange(slices * (len(sliced.keys.group_starts) - 1) + 1))
    for group, first_key in enumerate(sliced.keys.group_starts[:-1].tolist()):
        starts = bounds[group * slices : (group + 1) * slices + 1]
        low, high = int(starts[0]), int(starts[-1])
        if low < high:
            numbers = {name: total[low:high] for name, total in totals.items()}
            places = entry_cell[low:high].astype(np.int32), (entry_key[low:high] - first_key).astype(np.int32)
            yield group, starts - low, places, numbers


def _list_entries(
    sliced: SlicedTuples, cell: npt.NDArray[np.int32], encoded: Mapping[Measure, Encoded]
) -> Iterator[Entries]:
    """Make each tuple an entry, ordered by key group and slice."""
    order, bounds = sliced.by_group
    entry_cell, entry_key = kernels.take(cell, order), sliced.ordered("", sliced.keys.codes)
    numbers: dict[str, Numbers] = {COUNT_NAME: np.ones(len(order), dtype=np.int32)}
    for measure, values in encoded.items():
        count_name = components.count_name(measure)
        if values.valid is not None:
            numbers[count_name] = sliced.ordered(count_name, values.valid)
        for component in components.components_of(measure):
            numbers[component.name] = sliced.ordered(component.name, values.numbers[component.name])
    has_cell = entry_cell >= 0
    if not has_cell.all():
        bounds = np.concatenate([[0], np.cumsum(has_cell)])[bounds]
        entry_cell, entry_key = entry_cell[has_cell], entry_key[has_cell]
        numbers = {name: column[has_cell] for name, column in numbers.items()}
    slices = len(sliced.slices)
    for group, first_key in enumerate(sliced.keys.group_starts[:-1].tolist()):
        starts = bounds[group * slices : (group + 1) * slices + 1]
        low, high = int(starts[0]), int(starts[-1])
        if low < high:
            places = entry_cell[low:high], entry_key[low:high] - np.int32(first_key)
            yield group, starts - low, places, {name: column[low:high] for name, column in numbers.items()}
