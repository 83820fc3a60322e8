"""Slices: the disjoint stretches of event time between neighbouring window edges and changelog times.

Thesis 4.3.1.3. Every window of every query is a union of slices, so a tuple is added to one slice and each slice is
shared by all windows over it. Times are int64 microseconds; slices and windows are half-open, ``[start, end)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braid.operators import kernels
from braid.operators.arrays import Places
from braid.operators.windows import Window

Times = npt.NDArray[np.int64]

FIRST_EDGE = -(2**62)
LAST_EDGE = 2**62

_FEW_COMBS = 256
# times are compared with so many edges one by one
_FEW_EDGES = 10
# edges are listed one by one up to so many for each time, and so many more
_LISTED_EACH = 4
_LISTED_ALWAYS = 1000


@dataclass(frozen=True)
class PeriodicEdges:
    """The edges of some windows: at ``phases[i] + k * slides[i]`` for all whole k and every comb i.

    A comb is an arithmetic progression, such as the starts of the windows of one size and slide.
    """

    slides: Times
    phases: Times

    @classmethod
    def of(cls, windows: Iterable[Window]) -> PeriodicEdges:
        """Return the combs of the starts and ends of windows; if they are few, without those that others contain."""
        combs = set()
        for window in windows:
            combs.add((window.slide_us, window.offset_us % window.slide_us))
            combs.add((window.slide_us, (window.offset_us + window.size_us) % window.slide_us))
        pairs = sorted(combs)
        if len(pairs) <= _FEW_COMBS:
            pairs = []
            for slide, phase in sorted(combs):
                if not any(slide % fine == 0 and phase % fine == fine_phase for fine, fine_phase in pairs):
                    pairs.append((slide, phase))
        slides, phases = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return cls(slides, phases)

    def before(self, time: int) -> Times:
        """Return the last edge of each comb at or before a time, shape (combs,)."""
        edges: Times = time - (time - self.phases) % self.slides
        return edges

    def count(self, first: int, last: int) -> float:
        """Return about how many edges there are from one time to another."""
        return float(((last - first) / self.slides + 3).sum())

    def between(self, first: int, last: int) -> Times:
        """Return the edges in ``(first, last]``, in no order; one may be there more than once."""
        return _edges(np.full(len(self.slides), first + 1), last, self.slides, self.phases)


def _edges(first: Times, last: int, slides: Times, phases: Times) -> Times:
    """Return the edges ``phases[i] + k * slides[i]`` in ``[first[i], last]`` for all i."""
    start = first + (phases - first) % slides
    counts = np.maximum(0, (last - start) // slides + 1)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    edges: Times = np.repeat(start, counts) + number * np.repeat(slides, counts)
    return edges


def cut_slices(times: Times, combs: PeriodicEdges, cuts: Sequence[int]) -> tuple[Times, Places]:
    """Assign each time to its slice.

    ``cuts`` are further edges: the changelog times. Returns the edges of the slices that occur, shape (slices, 2),
    ascending, and for each time the index of its slice.
    """
    first, last = kernels.extent(times)
    if combs.count(first, last) <= _LISTED_EACH * len(times) + _LISTED_ALWAYS:
        edges = _edges_around(first, last, combs, cuts)
        if len(edges) == 2:
            return edges.reshape(1, 2), np.zeros(len(times), dtype=np.int32)
        index, counts = np.zeros(len(times), dtype=np.int32), np.zeros(len(edges), dtype=np.int64)
        if len(edges) <= _FEW_EDGES:
            kernels.count_few_boundaries(index, edges[1:-1], times)
        else:
            index[:] = np.searchsorted(edges, times, side="right") - 1
        kernels.count(counts, index)
        present, inverse = _compact(index, counts)
        return np.stack([edges[present], edges[present + 1]], axis=1), inverse
    return _slices_of_scattered(times, combs, cuts)


def _edges_around(first: int, last: int, combs: PeriodicEdges, cuts: Sequence[int]) -> Times:
    """Return all edges around ``[first, last]``, from one at or before ``first`` to one after ``last``."""
    low = max((c for c in cuts if c <= first), default=FIRST_EDGE)
    high = min((c for c in cuts if c > last), default=LAST_EDGE)
    low = max(low, int(combs.before(first).max(initial=low)))
    high = min(high, int((combs.before(last) + combs.slides).min(initial=high)))
    cuts_inside = [c for c in cuts if first < c <= last]
    return np.unique(np.concatenate([combs.between(first, last), np.array([low, *cuts_inside, high], dtype=np.int64)]))


def _compact(index: Places, counts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Places]:
    """Return the distinct values of ``index``, ascending, and each value's rank among them."""
    present = np.flatnonzero(counts)
    if len(present) == present[-1] - present[0] + 1:
        return present, index if present[0] == 0 else index - np.int32(present[0])
    rank = np.zeros(len(counts), dtype=np.int32)
    rank[present] = np.arange(len(present), dtype=np.int32)
    return present, kernels.take(rank, index)


def _slices_of_scattered(times: Times, combs: PeriodicEdges, cuts: Sequence[int]) -> tuple[Times, Places]:
    """Do what :func:`cut_slices` does for few tuples far apart, without listing the edges between them."""
    start = np.full(len(times), FIRST_EDGE, dtype=np.int64)
    end = np.full(len(times), LAST_EDGE, dtype=np.int64)
    for slide, phase in zip(combs.slides.tolist(), combs.phases.tolist(), strict=True):
        edge = times - (times - phase) % slide
        np.maximum(start, edge, out=start)
        np.minimum(end, edge + slide, out=end)
    if cuts:
        bounds = np.array([FIRST_EDGE, *sorted(cuts), LAST_EDGE], dtype=np.int64)
        at = np.searchsorted(bounds, times, side="right")
        np.maximum(start, bounds[at - 1], out=start)
        np.minimum(end, bounds[at], out=end)
    starts, first, inverse = np.unique(start, return_index=True, return_inverse=True)
    return np.stack([starts, end[first]], axis=1), inverse.astype(np.int32)


def due_windows(slices: Times, window: Window, after: int, upto: int) -> Times:
    """Return the windows that contain one of the slices and end in ``(after, upto]``.

    Slices have shape (slices, 2); the result has shape (windows, 2), ascending.
    """
    first, last = window_numbers(slices, window, after, upto)
    counts = last - first + 1
    before = np.cumsum(counts) - counts
    numbers = np.repeat(first - before, counts) + np.arange(counts.sum())
    begin = numbers * window.slide_us + window.offset_us
    return np.stack([begin, begin + window.size_us], axis=1)


def window_numbers(slices: Times, window: Window, after: int, upto: int) -> tuple[Times, Times]:
    """Return which windows contain one of the slices and end in ``(after, upto]``, as ranges of their numbers.

    Window k starts at ``k · slide + offset``. The ranges have a first and a last number each; they ascend and do not
    overlap: neighbouring slices share nearly all their windows.
    """
    size, slide, offset = window.size_us, window.slide_us, window.offset_us
    starts, ends = slices[:, 0], slices[:, 1]
    lowest = np.maximum(-((offset + size - ends) // slide), (after - offset - size) // slide + 1)
    highest = np.minimum((starts - offset) // slide, (upto - offset - size) // slide)
    is_range = lowest <= highest
    lowest, highest = lowest[is_range], highest[is_range]
    if not len(lowest):
        return lowest, highest
    order = np.argsort(lowest)
    lowest, reached = lowest[order], np.maximum.accumulate(highest[order])
    gaps = np.flatnonzero(lowest[1:] > reached[:-1])
    return lowest[np.concatenate([[0], gaps + 1])], reached[np.concatenate([gaps, [len(reached) - 1]])]


def with_ends_in(windows: Sequence[Window], after: int, upto: int) -> list[Window]:
    """Return those windows of which one ends in ``(after, upto]``."""
    if not windows:
        return []
    size, slide, offset = np.array([w.to_json() for w in windows], dtype=np.int64).T
    has_end = (after - offset - size) // slide < (upto - offset - size) // slide
    return [windows[i] for i in np.flatnonzero(has_end).tolist()]


def is_needed(slices: Times, windows: Sequence[Window], reached: int) -> npt.NDArray[np.bool_]:
    """Return whether each slice lies in a window that ends after ``reached``, shape (slices,).

    ``windows`` come by their size, the longest first.
    """
    starts = slices[:, 0]
    needed = np.zeros(len(slices), dtype=np.bool_)
    undecided = np.arange(len(slices))
    for window in windows:
        if not len(undecided) or int(starts[undecided].max()) + window.size_us <= reached:
            break  # no window from here on is as long
        last = (starts[undecided] - window.offset_us) // window.slide_us * window.slide_us + window.offset_us
        ends_later = last + window.size_us > reached
        needed[undecided[ends_later]] = True
        undecided = undecided[~ends_later]
    return needed


@dataclass(frozen=True)
class NeededEdges:
    """Which edges some window can still need once the watermark has reached ``reached``.

    ``windows`` are those of all queries, ``begins`` for each changelog time the size of the longest window of the
    queries that begin to see tuples there.
    """

    windows: Sequence[Window]
    begins: Mapping[int, int]
    reached: int

    def between(self, slices: Times) -> npt.NDArray[np.bool_]:
        """Return whether such an edge parts each slice from the next, shape (slices - 1,).

        A changelog time may also lie inside a slice, of an earlier epoch: who begins there reads only the next one.
        """
        low, high = slices[:-1, 1], slices[1:, 0]
        is_parted = self._with_edge(low, high)
        for begin, size in self.begins.items():
            if begin + size > self.reached:
                is_parted |= (slices[:-1, 0] < begin) & (begin <= high)
        return is_parted

    def _with_edge(self, low: Times, high: Times) -> npt.NDArray[np.bool_]:
        """Return whether an edge that is needed lies in each range ``low..high``, both included; ranges ascend.

        An edge is needed until the window that begins or ends there has fired.
        """
        has_edge = np.zeros(len(low), dtype=np.bool_)
        if not len(low) or not self.windows:
            return has_edge
        size, slide, offset = np.array([w.to_json() for w in self.windows], dtype=np.int64).T
        slides, phases = np.concatenate([slide, slide]), np.concatenate([offset, offset + size])
        needed_for = np.concatenate([size, np.zeros_like(size)])
        first, last = np.maximum(low[0], self.reached - needed_for + 1), int(high[-1])
        if float(np.maximum(0.0, (last - first) / slides).sum()) <= _LISTED_EACH * len(low) + _LISTED_ALWAYS:
            edges = np.sort(_edges(first, last, slides, phases))
            return np.searchsorted(edges, high, side="right") > np.searchsorted(edges, low)
        for each_slide, phase, each_first in zip(slides.tolist(), phases.tolist(), first.tolist(), strict=True):
            edge = high - (high - phase) % each_slide
            has_edge |= (edge >= low) & (edge >= each_first)
        return has_edge


def coalesce(slices: Times, needed: NeededEdges) -> tuple[Times, npt.NDArray[np.int64]]:
    """Join neighbouring slices that no window can tell apart any more.

    ``slices`` ascend and do not overlap. Returns the joined slices, and for each old one the number of the new one.
    """
    is_parted = needed.between(slices)
    number = np.concatenate([[0], np.cumsum(is_parted)]).astype(np.int64)
    first = np.concatenate([[0], np.flatnonzero(is_parted) + 1])
    last = np.concatenate([np.flatnonzero(is_parted), [len(slices) - 1]])
    return np.stack([slices[first, 0], slices[last, 1]], axis=1), number
