"""The entries of queries that are added up each alone: where they lie while a chunk is added up, and their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from braid.operators import kernels
from braid.operators.arrays import Numbers, Places, TupleBits
from braid.operators.predicates.query_set import Bools
from braid.operators.query_parts import Measure
from braid.operators.state.components import COUNT_NAME, Component, Encoded, components_of, count_name
from braid.operators.state.sliced_tuples import SlicedTuples
from braid.operators.state.totals import add_up, empty, new_totals
from braid.operators.windows import Window

# entries of a query are numbered first where they could be so many times as many as its tuples
_SPARSE = 16
# so many places have each an address however few the tuples are, or so many for each tuple
_ALWAYS_DENSE, _DENSE_PER_TUPLE = 1 << 16, 4
_NUMBER = Component(COUNT_NAME, "sum", np.dtype(np.int32))
_WAYS = {"sum": kernels.SUM, "min": kernels.LEAST, "max": kernels.GREATEST}

Ends = npt.NDArray[np.int64]


def joined_slices(slices: npt.NDArray[np.int64], window: Window, begin: int) -> Places:
    """Return for each slice the first of those that a query cannot tell from it; shape (slices,).

    It has ``window`` and sees tuples from ``begin`` on (µs). The tuples of such slices are added up together.
    """
    starts, after_start = slices[:, 0], window.offset_us + window.size_us
    numbers = np.stack(
        [(starts - window.offset_us) // window.slide_us, (starts - after_start) // window.slide_us, starts >= begin]
    )
    is_parted = np.any(numbers[:, 1:] != numbers[:, :-1], axis=0)
    first = np.concatenate([[0], np.where(is_parted, np.arange(1, len(starts)), 0)])
    return np.maximum.accumulate(first).astype(np.int32)


class EntryLayout:
    """The places of entries: those of a slice together, of these those of a key group, then by key.

    ``key`` is the key within its group at each place; the places of slice s and group g begin at
    ``edges[s · groups + g]``, which has one end more. ``windows`` are those of queries.
    """

    def __init__(self, sliced: SlicedTuples, windows: Sequence[Window]) -> None:
        keys, slices = sliced.keys, len(sliced.slices)
        starts, self._keys = keys.group_starts[:-1], keys.count
        self.groups = len(starts)
        self._windows, self._sliced = windows, sliced
        self._at: dict[bytes, Places] = {}
        self._joined: dict[tuple[int, int], bytes] = {}
        self._numbered: Places | None = keys.codes if slices == 1 else None
        edges = np.append((np.arange(slices)[:, np.newaxis] * keys.count + starts).ravel(), slices * keys.count)
        occupied = np.arange(edges[-1])
        if slices > 1 and len(occupied) > max(_ALWAYS_DENSE, _DENSE_PER_TUPLE * sliced.length):
            occupied, numbers = np.unique(sliced.slice_of * np.int64(keys.count) + keys.codes, return_inverse=True)
            self._numbered = numbers.astype(np.int32)
        ends = np.searchsorted(occupied, edges)
        most = np.diff(edges).max(initial=0)
        self.key = (occupied - np.repeat(edges[:-1], np.diff(ends))).astype(np.int16 if most < 1 << 15 else np.int32)
        self.edges = ends.astype(np.int32)

    def at(self, window: int, begin: int) -> Places:
        """Return the place of each tuple for a query with a window, by number, that sees tuples from ``begin`` on."""
        if self._numbered is not None:
            return self._numbered
        slices = self._sliced.slices
        key = window, max(begin, int(slices[0, 0]))
        if key not in self._joined:
            joined = joined_slices(slices, self._windows[window], begin)
            name = self._joined[key] = joined.tobytes()
            if name not in self._at:
                codes = self._sliced.keys.codes
                at = self._at[name] = np.empty_like(codes)
                kernels.place_joined(at, codes, self._sliced.slice_of, joined * np.int32(self._keys))
        return self._at[self._joined[key]]

    @property
    def size(self) -> int:
        """How many places there are."""
        return len(self.key)


@dataclass(frozen=True)
class GroupRuns:
    """The entries of one key group, as query runs have them."""

    starts: Ends
    key: Places
    components: Mapping[str, Numbers]
    holders: Mapping[str, Bools]


class _Column:
    """Numbers of entries, one query's after the other's."""

    def __init__(self, kind: npt.DTypeLike, size: int) -> None:
        self.numbers: Numbers = np.empty(size, dtype=kind)
        self.length = 0

    def with_room(self, more: int) -> Numbers:
        """Return the array, which has room for so many numbers more."""
        if self.length + more > len(self.numbers):
            self.numbers = np.concatenate(
                [self.numbers[: self.length], np.empty(self.length + more, self.numbers.dtype)]
            )
        return self.numbers

    def append(self, numbers: Numbers) -> None:
        """Append numbers."""
        self.with_room(len(numbers))[self.length : self.length + len(numbers)] = numbers
        self.length += len(numbers)

    def of_runs(self, first: Ends, last: Ends) -> Numbers:
        """Return the numbers of some runs, which ascend; shape (queries, slices)."""
        size = int((last - first).sum())
        if not size or int(last[-1, -1] - first[0, 0]) == size:
            return self.numbers[first[0, 0] : last[-1, -1]] if size else self.numbers[:0]
        out = np.empty(size, dtype=self.numbers.dtype)
        kernels.join_runs(out, self.numbers, first.ravel(), last.ravel())
        return out


class RunEntries:
    """The entries of queries, one query after the other; tuples add what ``encoded`` has for their measures.

    ``measures`` are the different lists of measures that queries have. ``sizes`` are how many numbers the columns of
    entries had for the chunk before, and then for this one.
    """

    def __init__(
        self,
        layout: EntryLayout,
        encoded: Mapping[Measure, Encoded],
        measures: Sequence[Sequence[Measure]],
        sizes: dict[str, int],
    ) -> None:
        self._layout, self._sizes = layout, sizes
        self._encoded = [{measure: encoded[measure] for measure in of_list} for of_list in measures]
        self._added = [_added_by(of_list) for of_list in self._encoded]
        of_all = {component.name: component for of_list in self._added for component, _ in of_list}
        of_all[COUNT_NAME] = _NUMBER
        self._scratch = {name: empty(component, layout.size) for name, component in of_all.items()}
        room = 2 * layout.size
        self._columns = {name: _Column(each.dtype, sizes.get(name, 0) + room) for name, each in of_all.items()}
        self._key = _Column(layout.key.dtype, sizes.get(COUNT_NAME, 0) + room)
        self._found = np.empty(layout.size + 1, dtype=np.int32)
        self._ends: list[Ends] = []
        self._shifts: list[dict[str, int]] = []

    def add_query(self, bits: TupleBits, measures: int, window: int, begin: int) -> None:
        """Add up the tuples of a query that have their bit in ``bits``; it sees those from ``begin`` on (µs).

        Its list of measures and its window are given by their numbers.
        """
        added, columns, entries = self._added[measures], self._columns, self._key.length
        begins = {component.name: columns[component.name].length - entries for component, _ in added}
        ends = np.empty(len(self._layout.edges), dtype=np.int64)
        tuples, at = kernels.count_set(bits), self._layout.at(window, begin)
        if not tuples:
            ends[:] = entries
        elif tuples * _SPARSE < self._layout.size:
            self._add_numbered(bits, tuples, self._encoded[measures], at, ends)
        else:
            self._add_addressed(bits, added, at, ends)
        self._ends.append(ends)
        self._shifts.append(begins)

    def _add_numbered(
        self, bits: TupleBits, tuples: int, encoded: Mapping[Measure, Encoded], at: Places, ends: Ends
    ) -> None:
        """Add few tuples up: their places are numbered first."""
        rows, codes = np.empty(tuples, dtype=np.int32), np.empty(tuples, dtype=np.int32)
        kernels.list_set(rows, bits)
        places, first = kernels.take(at, rows), np.empty(tuples, dtype=np.int64)
        count = kernels.number(codes, first, self._scratch[COUNT_NAME], places, 0)
        places = places[first[:count]]
        order = np.argsort(places)
        rank = np.empty(count, dtype=np.int32)
        rank[order] = np.arange(count, dtype=np.int32)
        totals, places = new_totals(count, encoded), places[order]
        add_up(totals, kernels.take(rank, codes), encoded, rows)
        np.add(np.searchsorted(places, self._layout.edges), self._key.length, out=ends)
        self._key.append(kernels.take(self._layout.key, places))
        for name, numbers in totals.items():
            self._columns[name].append(numbers)

    def _add_addressed(
        self, bits: TupleBits, added: Sequence[tuple[Component, Numbers]], at: Places, ends: Ends
    ) -> None:
        """Add tuples up in arrays of all places, which are as before afterwards."""
        layout, key, all_counts = self._layout, self._key, self._columns[COUNT_NAME]
        counts, is_counted, pairs = self._scratch[COUNT_NAME], False, list[tuple[Numbers, Numbers]]()
        for component, numbers in added:
            total = self._scratch[component.name]
            if component.dtype.kind == "c":
                pairs.append((total, numbers))
            elif is_counted:
                kernels.merge_at_set(_WAYS[component.merge], total, at, numbers, bits)
            else:
                kernels.count_and_merge_at_set(_WAYS[component.merge], counts, total, at, numbers, bits)
                is_counted = True
        for (a, to_a), (b, to_b), (c, to_c) in zip(pairs[::3], pairs[1::3], pairs[2::3], strict=True):  # a deviation's
            kernels.add_pairs_at_set(a, b, c, at, to_a, to_b, to_c, bits)
        if not is_counted:
            kernels.count_at_set(counts, at, bits)
        found, room = self._found, layout.size + 1
        arrays = key.with_room(room), all_counts.with_room(room)
        count = kernels.take_occupied(found, *arrays, key.length, counts, layout.key, layout.edges, ends)
        key.length += count
        all_counts.length += count
        for component, _ in added:
            column, neutral = self._columns[component.name], component.dtype.type(component.neutral)
            out = column.with_room(count)
            kernels.take_found(out, column.length, self._scratch[component.name], found, count, neutral)
            column.length += count

    def by_group(self) -> Iterator[tuple[int, GroupRuns]]:
        """Yield the runs of each key group, with its number; none without entries."""
        groups, ends = self._layout.groups, np.array(self._ends)
        self._sizes.update({name: column.length for name, column in self._columns.items()})
        for begins in self._shifts:
            begins[COUNT_NAME] = 0
        names = [COUNT_NAME, *sorted(self._columns.keys() - {COUNT_NAME})]
        holders = {name: np.array([name in begins for begins in self._shifts], dtype=np.bool_) for name in names}
        shifts = {name: np.array([[b[name]] for b in self._shifts if name in b], dtype=np.int64) for name in names}
        for group in range(groups):
            first, last = ends[:, group:-1:groups], ends[:, group + 1 :: groups]
            starts = np.concatenate([[0], np.cumsum(last - first)])
            if not starts[-1]:
                continue
            components = {
                name: self._columns[name].of_runs(first[which] + shifts[name], last[which] + shifts[name])
                for name, which in holders.items()
            }
            yield group, GroupRuns(starts, self._key.of_runs(first, last), components, holders)


def _added_by(encoded: Mapping[Measure, Encoded]) -> Sequence[tuple[Component, Numbers]]:
    """Return the components of measures, each once, without the count, and what tuples add to each."""
    by_name: dict[str, tuple[Component, Numbers]] = {}
    for measure, values in encoded.items():
        for component in components_of(measure):
            by_name[component.name] = component, values.numbers[component.name]
        if values.valid is not None:
            name = count_name(measure)
            by_name[name] = replace(_NUMBER, name=name), values.valid
    return list(by_name.values())
