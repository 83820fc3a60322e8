"""Which slices due windows are made of, and adding up many windows with few entries at once.

Windows that end together share their slices, so these are best added up once, going back from the end. Where windows
have few entries each, that takes longer to begin than to do; such windows are added up side by side in one array, and
each entry is added to all the windows that it lies in.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braid.operators import kernels
from braid.operators.aggregation.due import WindowsToFire
from braid.operators.aggregation.space_queries import Places
from braid.operators.arrays import Numbers
from braid.operators.state.bucket import Bucket
from braid.operators.state.components import component_named
from braid.operators.state.merging import Renumbered, numbers_of
from braid.operators.state.totals import merge_into
from braid.operators.windowing.slicing import Times

# measured (µs): to begin with windows that end together, to add an entry to a window, to reduce an address
_ENDING_US, _ENTRY_US, _ADDRESS_US = 100.0, 0.02, 0.03
# so many entries, and so many addresses, in one block
_MAX_ENTRIES, _MAX_ADDRESSES = 1 << 20, 1 << 18


class DueSlices:
    """Where in the slices of buckets due windows begin and end; these are ordered by end, then by falling start."""

    def __init__(self, buckets: Sequence[Bucket], due: WindowsToFire) -> None:
        ends, self._end = np.unique(due.end, return_inverse=True)
        starts, self._start = np.unique(due.reads_from, return_inverse=True)
        self.endings = _groups(self._end)
        runs = [(number, *run) for number, bucket in enumerate(buckets) for run in _runs(bucket.slices)]
        self._bucket_numbers = [number for number, _, _ in runs]
        slices = [(low, buckets[number].slices[low:high]) for number, low, high in runs]
        # of each run, the first slice from each start on, and the first that does not lie before each end
        self._firsts = [low + np.searchsorted(run[:, 0], starts) for low, run in slices]
        self._afters = [low + np.searchsorted(run[:, 1], ends, side="right") for low, run in slices]
        self._starts_of_runs = [buckets[number].starts for number in self._bucket_numbers]

    def back_from(self, ending: slice) -> Iterator[tuple[slice, list[tuple[int, int, int]]]]:
        """Yield windows that read the same slices, out of those that end together, with what they read.

        That is the number of a bucket, its first slice and the first behind, without what the windows before them read.
        """
        reached = [int(after[self._end[ending.start]]) for after in self._afters]
        for alike in _groups(self._start[ending], ending.start):
            start = self._start[alike.start]
            spans = []
            for run, number in enumerate(self._bucket_numbers):
                first = int(self._firsts[run][start])
                if first < reached[run]:
                    spans.append((number, first, reached[run]))
                    reached[run] = first
            yield alike, spans

    def blocks(self, cells: int, keys: int) -> list[SliceBlock] | None:
        """Return blocks of windows to be added up at once, None where it is quicker to go ending by ending."""
        if len(self.endings) == 1:
            return None
        is_other = (np.diff(self._end) != 0) | (np.diff(self._start) != 0)
        first_due = np.concatenate([[0], np.flatnonzero(is_other) + 1])
        window_of = np.concatenate([[0], np.cumsum(is_other)])
        first, after = self._spans(first_due)
        entries = np.zeros(len(first_due), dtype=np.int64)
        for run, starts in enumerate(self._starts_of_runs):
            entries += starts[after[run]] - starts[first[run]]
        stride = 1 << (cells - 1).bit_length()  # a power of two: doubles are added up in the same order in any block
        size = stride * keys
        block_us = _ENTRY_US * int(entries.sum()) + _ADDRESS_US * size * len(first_due)
        if size > _MAX_ADDRESSES or block_us > _ENDING_US * len(self.endings):
            return None
        number = np.maximum(np.cumsum(entries) // _MAX_ENTRIES, np.arange(len(first_due)) // (_MAX_ADDRESSES // size))
        bounds = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(first_due)]
        due_bounds = [*first_due.tolist(), len(self._end)]
        return [
            SliceBlock(
                slice(due_bounds[low], due_bounds[high]), stride, keys, high - low, window_of - low,
                self._bucket_numbers, [f[low:high] for f in first], [a[low:high] for a in after],
            )
            for low, high in itertools.pairwise(bounds)
        ]  # fmt: skip

    def _spans(self, due: Places) -> tuple[list[Places], list[Places]]:
        """Return, for each run, the first slice that some due windows read and the first behind."""
        first = [firsts[self._start[due]] for firsts in self._firsts]
        after = [np.maximum(afters[self._end[due]], low) for afters, low in zip(self._afters, first, strict=True)]
        return first, after


@dataclass(frozen=True)
class SliceBlock:
    """The windows of ``due``, added up in arrays of shape (windows · stride, keys): a window has ``stride`` cells.

    ``first`` and ``after`` have the slices that each window reads, for each run of slices; ``buckets`` says which
    bucket each run is of.
    """

    due: slice
    stride: int
    keys: int
    count: int
    window_of: Places
    buckets: Sequence[int]
    first: Sequence[Places]
    after: Sequence[Places]

    @property
    def size(self) -> int:
        """How many numbers its arrays have."""
        return self.count * self.stride * self.keys

    def windows(self, due: slice) -> Places:
        """Return the number in this block of some due windows."""
        numbers: Places = self.window_of[due]
        return numbers

    def add_up(
        self, buckets: Sequence[Bucket], renumbered: Sequence[Renumbered], totals: Mapping[str, Numbers]
    ) -> Times:
        """Add the entries of all windows to ``totals``; return the greatest event time in the slices of each window."""
        newest = np.full(self.count, np.iinfo(np.int64).min)
        for number, first, after in zip(self.buckets, self.first, self.after, strict=True):
            bucket, mapping = buckets[number], renumbered[number]
            slices, window = _expanded(first, after)
            if not len(slices):
                continue
            np.maximum.at(newest, window, bucket.latest[slices])
            entries, nth = _expanded(bucket.starts[slices], bucket.starts[slices + 1])
            at = np.empty(len(entries), dtype=np.int32)
            kernels.place_mapped(
                at, bucket.cell[entries], bucket.key[entries], mapping.cell_map, mapping.key_map, mapping.first,
                mapping.keys,
            )  # fmt: skip
            at = np.where(at < 0, at, at + (window[nth] * (self.stride * self.keys)).astype(np.int32))
            for name, total in totals.items():
                component = component_named(name, total.dtype)
                numbers = numbers_of(bucket, component, entries, mapping.ranks)
                if numbers is not None:
                    merge_into(component, total, at, numbers)
        return newest


def _expanded(first: Places, after: Places) -> tuple[Places, npt.NDArray[np.int64]]:
    """Return the whole numbers of all ranges ``[first, after)``, one range after the other, and the range of each."""
    counts = after - first
    of_range = np.repeat(np.arange(len(counts)), counts)
    numbers = np.arange(len(of_range)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    return numbers, of_range


def _groups(numbers: Places, offset: int = 0) -> list[slice]:
    """Return the stretches of equal numbers, counted from ``offset`` on."""
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    return [slice(offset + low, offset + high) for low, high in itertools.pairwise(bounds)]


def _runs(slices: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the stretches of a bucket's slices in which none overlaps the next: those of different epochs may."""
    breaks = np.flatnonzero(slices[1:, 0] < slices[:-1, 1]) + 1
    return itertools.pairwise([0, *breaks.tolist(), len(slices)])
