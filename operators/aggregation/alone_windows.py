"""Entries of queries that are added up each alone, brought together in partitions: into rows of windows, or into one
block.

Each window reads its own stretches of entries, and no others. Every entry gets an address by its window and key; the
addresses that occur are the rows, and the numbers of entries are merged into these, one component after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators import kernels
from braid.operators.arrays import Numbers, Places
from braid.operators.predicates.query_set import Bools
from braid.operators.query_parts import Measure
from braid.operators.state import components
from braid.operators.state.components import COUNT_NAME, Component, component_named, names_of
from braid.operators.state.keys import unite_keys
from braid.operators.state.merging import coalesced, common_ranks
from braid.operators.state.query_runs import QueryRuns
from braid.operators.state.totals import empty, merge_into
from braid.operators.windowing.slicing import NeededEdges

# so many entries at once
_MAX_ENTRIES = 1 << 23
# rows are found by addressing windows and keys directly where there are so many addresses, or so many for each entry
_ALWAYS_DENSE, _DENSE_PER_ENTRY = 1 << 20, 16
_WAYS = {"sum": kernels.SUM, "min": kernels.LEAST, "max": kernels.GREATEST}

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Stretches:
    """What windows read: the slices of the query in ``slot`` that lie in ``[start, end)``; shape (windows,) each.

    ``needs`` maps the names of components to the windows that need them.
    """

    slot: npt.NDArray[np.int64]
    start: Times
    end: Times
    needs: Mapping[str, Bools]


@dataclass(frozen=True)
class WindowTotals:
    """The rows of windows, one window's after the other's: ``lengths`` of them each, with the numbers of their keys.

    ``windows`` says which windows these are. ``numbers`` maps components to one number per row, neutral in rows of
    windows that do not need them. ``newest`` is the greatest event time of each window's slices (µs).
    """

    windows: slice
    lengths: npt.NDArray[np.int64]
    key: Places
    keys: pa.Table
    numbers: Mapping[str, Numbers]
    newest: Times
    dictionaries: Mapping[str, pa.Array]


def needs_of(measures: Sequence[Sequence[Measure]], measures_of: npt.NDArray[np.int64]) -> dict[str, Bools]:
    """Return which windows need each component; window w has the ``measures`` number ``measures_of[w]``."""
    lists: dict[str, Bools] = {}
    for number, of_list in enumerate(measures):
        for name in (name for measure in of_list for name in names_of(measure)):
            lists.setdefault(name, np.zeros(len(measures), dtype=np.bool_))[number] = True
    return {name: in_list[measures_of] for name, in_list in lists.items()}


def totals(blocks: Sequence[QueryRuns], windows: Stretches) -> Iterator[WindowTotals]:
    """Yield what windows hold, some windows after the others, in their order; none where no block has any of it."""
    count = len(windows.slot)
    if not count:
        return
    first, last = windows.start.min(), windows.end.max()
    blocks = [b for b in blocks if b.entries and b.slices[-1, 0] >= first and b.slices[0, 1] <= last]
    if not blocks:
        return
    reads = [_Runs.of(block, windows) for block in blocks]
    numbering = _Numbering.of(blocks, windows.needs)
    newest = np.max([of_block.newest(count) for of_block in reads], axis=0)
    for chosen in _portions(np.sum([of_block.entries(count) for of_block in reads], axis=0)):
        needs = {name: needed[chosen] for name, needed in windows.needs.items()}
        rows = numbering.add_up([of_block.take(chosen) for of_block in reads], chosen.stop - chosen.start, needs)
        yield WindowTotals(
            chosen, rows.lengths, rows.key, numbering.keys, rows.numbers, newest[chosen], numbering.dictionaries
        )


def merged(
    blocks: Sequence[QueryRuns], alive: Sequence[Bools], slots: Sequence[int], needed: NeededEdges | None
) -> QueryRuns:
    """Return one block for several of an operator: the queries in ``slots``, and of block i the slices ``alive[i]``.

    Slices between which there is no ``needed`` edge become one.
    """
    first = blocks[0]
    wider = coalesced(blocks, alive, needed)
    slices_of = [[wider.get(s, s) for s in map(tuple, b.slices.tolist())] for b in blocks]
    kept = {
        s for b, mask in zip(slices_of, alive, strict=True) for s, lives in zip(b, mask.tolist(), strict=True) if lives
    }
    number_of = {s: number for number, s in enumerate(sorted(kept))}
    latest = np.full(len(kept), np.iinfo(np.int64).min)
    holders = {name: np.zeros(len(slots), dtype=np.bool_) for block in blocks for name in block.components}
    runs = []
    query_of = {slot: number for number, slot in enumerate(slots)}
    for block, own_slices, mask in zip(blocks, slices_of, alive, strict=True):
        targets = [number_of[s] if lives else -1 for s, lives in zip(own_slices, mask.tolist(), strict=True)]
        target = np.array(targets, dtype=np.int64)
        np.maximum.at(latest, target[mask], block.latest[mask])
        query = np.array([query_of.get(slot, -1) for slot in block.slots.tolist()], dtype=np.int64)
        window = query[:, np.newaxis] * len(kept) + target
        is_kept = ((query[:, np.newaxis] >= 0) & mask).ravel()
        run = np.flatnonzero(is_kept)
        runs.append(_Runs(block, window.ravel()[run], run, run + 1))
        for name in block.components:
            holders[name][query[block.holders[name] & (query >= 0)]] = True
    count = len(slots) * len(kept)
    needs = {name: np.repeat(has, len(kept)) for name, has in holders.items() if name != COUNT_NAME}
    numbering = _Numbering.of(blocks, needs)
    rows = numbering.add_up(runs, count, needs)
    query_of_row = np.repeat(np.arange(count), rows.lengths) // max(1, len(kept))
    numbers = {
        name: values if name == COUNT_NAME else values[holders[name][query_of_row]]
        for name, values in rows.numbers.items()
    }
    return replace(
        first,
        epoch=max(block.epoch for block in blocks),
        slots=np.array(slots, dtype=np.int64),
        slices=np.array(sorted(kept), dtype=np.int64).reshape(-1, 2),
        latest=latest,
        starts=np.concatenate([[0], np.cumsum(rows.lengths)]),
        key=rows.key,
        keys=numbering.keys,
        components=numbers,
        holders={**holders, COUNT_NAME: np.ones(len(slots), dtype=np.bool_)},
        dictionaries=numbering.dictionaries,
    )


def _portions(entries: npt.NDArray[np.int64]) -> Iterator[slice]:
    """Split windows into portions with a bounded number of entries."""
    ends, begin = np.cumsum(entries), 0
    while begin < len(entries):
        before = int(ends[begin - 1]) if begin else 0
        stop = max(int(np.searchsorted(ends, before + _MAX_ENTRIES, side="right")), begin + 1)
        yield slice(begin, stop)
        begin = stop


@dataclass(frozen=True)
class _Runs:
    """Runs ``[first, last)`` of a block, and the window that each of these belongs to."""

    block: QueryRuns
    window: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]

    @classmethod
    def of(cls, block: QueryRuns, windows: Stretches) -> _Runs:
        """Find the runs that windows read, ordered by window."""
        order, slices = np.argsort(block.slots), len(block.slices)
        place = np.searchsorted(block.slots[order], windows.slot)
        query = order[np.minimum(place, len(order) - 1)]
        is_there = block.slots[query] == windows.slot
        starts, ends = block.slices.T
        if np.all(ends[1:] >= ends[:-1]):
            low, high = np.searchsorted(starts, windows.start), np.searchsorted(ends, windows.end, side="right")
            (window,) = np.nonzero(is_there & (low < high))
            first = query[window] * slices
            return cls(block, window, first + low[window], first + high[window])
        # slices of different epochs may overlap, and then those of a window do not follow each other
        is_read = (starts >= windows.start[:, np.newaxis]) & (ends <= windows.end[:, np.newaxis])
        window, number = np.nonzero(is_read & is_there[:, np.newaxis])
        run = query[window] * slices + number
        return cls(block, window, run, run + 1)

    def take(self, windows: slice) -> _Runs:
        """Return those of some windows, which are numbered anew."""
        low, high = np.searchsorted(self.window, [windows.start, windows.stop])
        return _Runs(self.block, self.window[low:high] - windows.start, self.first[low:high], self.last[low:high])

    def entries(self, windows: int) -> npt.NDArray[np.int64]:
        """Return how many entries each of so many windows reads."""
        counts = np.zeros(windows, dtype=np.int64)
        np.add.at(counts, self.window, self.block.starts[self.last] - self.block.starts[self.first])
        return counts

    def newest(self, windows: int) -> Times:
        """Return the newest event time in the slices of each of so many windows, the least number for none."""
        slices = len(self.block.slices)
        low, high = self.first % slices, (self.last - 1) % slices
        newest = np.full(windows, np.iinfo(np.int64).min)
        for number, latest in enumerate(self.block.latest.tolist()):
            np.maximum.at(newest, self.window[(low <= number) & (number <= high)], latest)
        return newest


@dataclass(frozen=True)
class _Rows:
    """Rows of windows, see :class:`WindowTotals`."""

    lengths: npt.NDArray[np.int64]
    key: Places
    numbers: Mapping[str, Numbers]


@dataclass(frozen=True)
class _Numbering:
    """The keys of several blocks in one numbering, and their ranks; ``key_maps`` and ``ranks`` are by block."""

    keys: pa.Table
    key_maps: Sequence[Places]
    dictionaries: Mapping[str, pa.Array]
    ranks: Sequence[Mapping[str, npt.NDArray[np.int64]]]

    @classmethod
    def of(cls, blocks: Sequence[QueryRuns], needs: Mapping[str, Bools]) -> _Numbering:
        """Bring the keys of some blocks together, and the ranks of the components that are needed."""
        keys, key_maps = unite_keys([b.keys for b in blocks], digits=lambda: (b.key_digits for b in blocks))
        return cls(keys, key_maps, *common_ranks(blocks, needs))

    def add_up(self, runs: Sequence[_Runs], windows: int, needs: Mapping[str, Bools]) -> _Rows:
        """Add the runs of all blocks up, by window and key."""
        keys = self.keys.num_rows
        bounds = [(part.block.starts[part.first], part.block.starts[part.last]) for part in runs]
        lengths = [last - first for first, last in bounds]
        ends = np.cumsum([0, *(int(length.sum()) for length in lengths)]).tolist()
        addresses = np.empty(ends[-1], dtype=np.int64)
        for part, (first, last), key_map, (begin, end) in zip(runs, bounds, self.key_maps, pairwise(ends), strict=True):
            kernels.address_runs(addresses[begin:end], part.window, first, last, part.block.key, key_map, keys)
        span = windows * keys
        if span <= max(_ALWAYS_DENSE, _DENSE_PER_ENTRY * len(addresses)):
            at, first = np.empty(len(addresses), dtype=np.int32), np.empty(min(len(addresses), span), dtype=np.int64)
            count = kernels.number_ascending(at, first, np.zeros(max(1, span), dtype=np.int32), addresses, 0, span)
            occupied = addresses[first[:count]]
        else:
            occupied, numbers_of = np.unique(addresses, return_inverse=True)
            at = numbers_of.astype(np.int32)
        at_of_blocks = [at[begin:end] for begin, end in pairwise(ends)]
        numbers: dict[str, Numbers] = {}
        for name in (COUNT_NAME, *(name for name in needs if name != COUNT_NAME)):
            merged_numbers = self._merged(name, needs.get(name), runs, lengths, at_of_blocks, len(occupied))
            if merged_numbers is not None:
                numbers[name] = merged_numbers
        window, key = np.divmod(occupied, max(1, keys))
        return _Rows(np.bincount(window, minlength=windows), key.astype(np.int32), numbers)

    def _merged(
        self,
        name: str,
        is_needed: Bools | None,
        runs: Sequence[_Runs],
        lengths: Sequence[npt.NDArray[np.int64]],
        at_of_blocks: Sequence[Places],
        rows: int,
    ) -> Numbers | None:
        """Return a component of all rows; None where no block has it."""
        total: Numbers | None = None
        for part, length, at, ranks in zip(runs, lengths, at_of_blocks, self.ranks, strict=True):
            block, begin = part.block, np.cumsum(length) - length
            for own_name, is_held in _held_as(name, part):
                numbers, starts = block.components[own_name], block.starts_of(own_name)
                component = component_named(name, numbers.dtype if numbers.dtype.kind in "fc" else np.dtype(np.int64))
                if total is None:
                    total = empty(component, rows)
                if name in ranks:
                    numbers = components.renumber_ranks(numbers, ranks[name], component)
                chosen = is_held if is_needed is None else is_held & is_needed[part.window]
                which = np.flatnonzero(chosen)
                _merge(component, total, at, begin[which], starts[part.first[which]], starts[part.last[which]], numbers)
        return total


def _held_as(name: str, runs: _Runs) -> Iterator[tuple[str, Bools]]:
    """Yield under which names a block has the numbers of a component, and for which of its runs.

    A count that was left out, of all queries or of one, is that of all tuples, as no value was NULL.
    """
    block = runs.block
    everything = np.ones(len(runs.first), dtype=np.bool_)
    if not name.startswith("count(") or name == COUNT_NAME:
        if name in block.components:
            yield name, everything
        return
    is_held = ~everything
    if name in block.components:
        is_held = block.holders[name][runs.first // len(block.slices)]
        yield name, is_held
    if not is_held.all():
        yield COUNT_NAME, ~is_held


def _merge(
    component: Component,
    total: Numbers,
    at: Places,
    begin: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    last: npt.NDArray[np.int64],
    numbers: Numbers,
) -> None:
    """Merge the numbers ``[first, last)`` of runs into the rows that ``at`` has from ``begin`` on."""
    if component.dtype.kind != "c":
        kernels.merge_runs(_WAYS[component.merge], total, at, begin, first, last, numbers)
        return
    lengths = last - first
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows = at[np.repeat(begin, lengths) + within]
    merge_into(component, total, rows, numbers[np.repeat(first, lengths) + within])
