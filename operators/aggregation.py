"""Shared aggregation in the source (thesis 4.3.1.5): from the tuples of a chunk to buckets of partial aggregates.

Every tuple is added to one entry per cell space: that of its slice, its cell and its key. Entries are addressed by
number; where the addressed range is not much larger than the chunk it is an array (dense), else the addresses that
occur are numbered first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators import components, double_double, kernels
from operators.bucket import Bucket
from operators.cell_space import CellSpace
from operators.cells import Cells
from operators.components import COUNT_DISTINCT, COUNT_NAME, Component, Encoded
from operators.expressions import Expression
from operators.keys import KeyCodes, encode_keys
from operators.live_queries import EARLIEST, LiveQuery
from operators.queries import Aggregation, Measure, Window
from operators.tuples import Tuples

Numbers = npt.NDArray[Any]

# so many entries are addressed directly however few the tuples are, else at most so many for each tuple
_ALWAYS_DENSE = 1 << 16
_DENSE_PER_TUPLE = 4


def aggregation_of(live: LiveQuery) -> Aggregation:
    """Return the query of a live aggregation."""
    assert isinstance(live.query, Aggregation)
    return live.query


def changelog_times(queries: Sequence[LiveQuery]) -> list[int]:
    """Return the event times at which queries begin to see tuples, ascending."""
    begins = {live.after(live.query.streams[0]) + 1 for live in queries}
    return sorted(begins - {EARLIEST + 1})


def sliding_window(live: LiveQuery) -> Window:
    """Return the window of an aggregation that is not over sessions."""
    window = aggregation_of(live).window
    assert isinstance(window, Window)
    return window


def measures_of(queries: Sequence[LiveQuery]) -> tuple[Measure, ...]:
    """Return the distinct measures with components that the queries need."""
    wanted = {m.name: m for live in queries for m in aggregation_of(live).measures if m.argument is not None}
    return tuple(measure for measure in wanted.values() if measure.function != COUNT_DISTINCT)


def distinct_arguments(queries: Sequence[LiveQuery]) -> dict[str, tuple[Expression, list[LiveQuery]]]:
    """Return what the queries count distinct values of, by its text, and who does."""
    found: dict[str, tuple[Expression, list[LiveQuery]]] = {}
    for live in queries:
        for measure in aggregation_of(live).measures:
            if measure.function == COUNT_DISTINCT:
                argument = _argument(measure)
                found.setdefault(str(argument), (argument, []))[1].append(live)
    return found


def distinct_operator(operator: str, argument: str) -> str:
    """Return the name of the operator that has ``argument`` as one more key, for COUNT(DISTINCT argument)."""
    return f"{operator} distinct {argument}"


@dataclass(frozen=True)
class SlicedTuples:
    """Tuples of one operator with their slices and keys; ``latest`` is the greatest event time of each slice (µs)."""

    tuples: Tuples
    slices: npt.NDArray[np.int64]
    slice_of: npt.NDArray[np.int64]
    latest: npt.NDArray[np.int64]
    keys: KeyCodes

    @classmethod
    def of(
        cls,
        tuples: Tuples,
        times: npt.NDArray[np.int64],
        slices: npt.NDArray[np.int64],
        slice_of: npt.NDArray[np.int64],
        keys: Sequence[Expression],
        distinct: Expression | None,
        groups: int,
        salt: str,
    ) -> SlicedTuples:
        """Number the keys of tuples whose slices are known; ``distinct`` is one more key, but for the key group."""
        latest = np.full(len(slices), np.iinfo(np.int64).min)
        if len(slices) == 1:
            latest[0] = times.max()
        else:
            kernels.greatest(latest, slice_of.astype(np.int32), times)
        columns = [tuples.value(key) for key in (*keys, *([] if distinct is None else [distinct]))]
        codes = encode_keys(columns, tuples.length, groups, salt, len(keys))
        return cls(tuples, slices, slice_of, latest, codes)


def aggregate(
    sliced: SlicedTuples,
    space: CellSpace,
    cell: npt.NDArray[np.int32],
    cells: Cells,
    measures: Sequence[Measure],
    operator: str,
    epoch: int,
) -> Iterator[tuple[int, Bucket]]:
    """Add tuples up in the cells of a space; yield a bucket for each key group that has any, with its number."""
    length, keys = sliced.tuples.length, sliced.keys
    shape = (len(sliced.slices), cells.count, keys.count)
    encoded = encode_measures(measures, sliced.tuples)
    at = np.empty(length, dtype=np.int32)
    size = shape[0] * shape[1] * shape[2]
    if size <= max(_ALWAYS_DENSE, _DENSE_PER_TUPLE * length):
        kernels.place(at, sliced.slice_of, cell, keys.codes, shape[1], shape[2])
        totals = accumulate(at, size, encoded)
        entries = list(_dense_entries(totals, shape, keys.group_starts))
    else:
        entries = list(_sparse_entries(sliced, cell, shape, at, encoded))
    dictionaries = {m.name: e.dictionary for m, e in encoded.items() if e.dictionary is not None}
    for group, starts, in_cell, in_key, numbers in entries:
        some = np.diff(starts) > 0
        yield (
            group,
            Bucket(
                operator=operator,
                dimensions=space.dimensions,
                epoch=epoch,
                cells=cells,
                slices=sliced.slices[some],
                starts=np.concatenate([[0], np.cumsum(np.diff(starts)[some])]),
                latest=sliced.latest[some],
                cell=in_cell,
                key=in_key,
                keys=keys.of_group(group),
                components=numbers,
                dictionaries=dictionaries,
            ),
        )


def encode_measures(measures: Sequence[Measure], tuples: Tuples) -> dict[Measure, Encoded]:
    """Return the numbers that tuples add to each measure."""
    return {measure: components.encode(measure, tuples.value(_argument(measure))) for measure in measures}


def _argument(measure: Measure) -> Expression:
    assert measure.argument is not None
    return measure.argument


def accumulate(at: npt.NDArray[np.int32], size: int, encoded: dict[Measure, Encoded]) -> dict[str, Numbers]:
    """Return the components of ``size`` entries; counts that equal that of all tuples are left out."""
    totals: dict[str, Numbers] = {COUNT_NAME: np.zeros(size, dtype=np.int64)}
    counted = False
    for measure, values in encoded.items():
        if values.valid is not None and components.count_name(measure) not in totals:
            valid = totals[components.count_name(measure)] = np.zeros(size, dtype=np.int64)
            kernels.add(valid, at, values.valid)
        for component in components.components_of(measure):
            numbers = values.numbers[component.name]
            total = totals[component.name] = empty(component, size)
            if component.merge == "sum" and not counted and total.dtype.kind != "c":
                kernels.count_and_add(totals[COUNT_NAME], total, at, numbers)
                counted = True
            else:
                merge_into(component, total, at, numbers)
    if not counted:
        kernels.count(totals[COUNT_NAME], at)
    return totals


def empty(component: Component, size: int) -> Numbers:
    """Return so many neutral values."""
    if component.neutral == 0:
        return np.zeros(size, dtype=component.dtype)
    return np.full(size, component.neutral, dtype=component.dtype)


def merge_into(component: Component, total: Numbers, at: npt.NDArray[np.int32], numbers: Numbers) -> None:
    """Merge numbers into the entries at which they belong."""
    if total.dtype.kind == "c":
        double_double.add_at(total, at, numbers)
        return
    kernel = {"sum": kernels.add, "min": kernels.least, "max": kernels.greatest}[component.merge]
    kernel(total, at, numbers)


Entries = tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32], dict[str, Numbers]]


def _dense_entries(
    totals: dict[str, Numbers], shape: tuple[int, int, int], group_starts: npt.NDArray[np.int64]
) -> Iterator[Entries]:
    """Yield, for each key group, where its slices start, and the cell, key and numbers of its entries."""
    counts = totals[COUNT_NAME].reshape(shape)
    found = kernels.occupied_per_group(counts, group_starts)
    for group, count in enumerate(found.tolist()):
        if not count:
            continue
        position, cell, key = (np.empty(count, dtype=np.int32) for _ in range(3))
        starts = np.empty(shape[0] + 1, dtype=np.int64)
        first, last = group_starts[group : group + 2].tolist()
        kernels.pick_group(counts, first, last, position, cell, key, starts)
        yield group, starts, cell, key, {name: numbers[position] for name, numbers in totals.items()}


def _sparse_entries(
    sliced: SlicedTuples,
    cell: npt.NDArray[np.int32],
    shape: tuple[int, int, int],
    at: npt.NDArray[np.int32],
    encoded: dict[Measure, Encoded],
) -> Iterator[Entries]:
    """Do the same for addresses that are far apart: number those that occur, ordered by key group and slice."""
    slices, cells, keys = shape
    group_of_key = np.repeat(np.arange(len(sliced.keys.group_starts) - 1), np.diff(sliced.keys.group_starts))
    address = (group_of_key[sliced.keys.codes] * slices + sliced.slice_of) * cells + cell
    address = address * keys + sliced.keys.codes
    address[cell < 0] = -1
    found = pa.array(address).dictionary_encode()
    distinct = np.asarray(found.dictionary)
    order = np.argsort(distinct)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    distinct = distinct[order]
    unwanted = int(np.searchsorted(distinct, 0))  # the address -1, if it occurs, is the first
    np.subtract(rank[np.asarray(found.indices)], unwanted, out=at)
    distinct = distinct[unwanted:]
    totals = accumulate(at, len(distinct), encoded)
    rest, key = np.divmod(distinct, keys)
    rest, in_cell = np.divmod(rest, cells)
    bounds = np.searchsorted(rest, np.arange(slices * (len(sliced.keys.group_starts) - 1) + 1))
    for group, first_key in enumerate(sliced.keys.group_starts[:-1].tolist()):
        starts = bounds[group * slices : (group + 1) * slices + 1]
        low, high = int(starts[0]), int(starts[-1])
        if low < high:
            numbers = {name: total[low:high] for name, total in totals.items()}
            mine = in_cell[low:high].astype(np.int32), (key[low:high] - first_key).astype(np.int32)
            yield group, starts - low, *mine, numbers
