"""Slices: the disjoint stretches of event time between neighbouring window edges and changelog times.

Thesis 4.3.1.3. Every window of every query is a union of slices, so a tuple is added to one slice and each slice is
shared by all windows over it. Times are int64 microseconds; slices and windows are half-open, ``[start, end)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.queries import Window

Times = npt.NDArray[np.int64]

FIRST_EDGE = -(2**62)
LAST_EDGE = 2**62


def _combs(windows: Iterable[Window]) -> list[tuple[int, int]]:
    """Return the distinct combs of edges, ``(slide, phase)``: edges at ``phase + k·slide``.

    A comb whose edges another comb has all of is left out.
    """
    combs = set()
    for window in windows:
        combs.add((window.slide_us, window.offset_us % window.slide_us))
        combs.add((window.slide_us, (window.offset_us + window.size_us) % window.slide_us))
    kept: list[tuple[int, int]] = []
    for slide, phase in sorted(combs):
        if not any(slide % fine == 0 and phase % fine == fine_phase for fine, fine_phase in kept):
            kept.append((slide, phase))
    return kept


def cut_slices(times: Times, windows: Sequence[Window], cuts: Sequence[int]) -> tuple[Times, npt.NDArray[np.int64]]:
    """Assign each time to its slice.

    ``cuts`` are further edges: the changelog times. Returns the edges of the slices that occur, shape (slices, 2),
    ascending, and for each time the index of its slice.
    """
    combs = _combs(windows)
    first, last = int(times.min()), int(times.max())
    expected = sum((last - first) // slide + 3 for slide, _ in combs)
    if expected <= 4 * len(times) + 1000:
        edges = _edges_between(first, last, combs, cuts)
        if len(edges) == 2:
            return edges.reshape(1, 2), np.zeros(len(times), dtype=np.int64)
        index = np.searchsorted(edges, times, side="right") - 1
        present, inverse = _compact(index, len(edges))
        return np.stack([edges[present], edges[present + 1]], axis=1), inverse
    return _slices_of_scattered(times, combs, cuts)


def _edges_between(first: int, last: int, combs: Sequence[tuple[int, int]], cuts: Sequence[int]) -> Times:
    """Return all edges around ``[first, last]``, from one at or before ``first`` to one after ``last``."""
    parts = [np.array([c for c in cuts if first < c <= last], dtype=np.int64)]
    low = max((c for c in cuts if c <= first), default=FIRST_EDGE)
    high = min((c for c in cuts if c > last), default=LAST_EDGE)
    for slide, phase in combs:
        start = first - (first - phase) % slide
        parts.append(np.arange(start + slide, last + 1, slide, dtype=np.int64))
        low = max(low, start)
        high = min(high, last - (last - phase) % slide + slide)
    return np.unique(np.concatenate([*parts, np.array([low, high], dtype=np.int64)]))


def _compact(index: npt.NDArray[np.int64], count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the distinct values of ``index``, ascending, and each value's rank among them."""
    present = np.flatnonzero(np.bincount(index, minlength=count))
    if len(present) == present[-1] - present[0] + 1:
        return present, index - present[0]
    rank = np.zeros(count, dtype=np.int64)
    rank[present] = np.arange(len(present))
    return present, rank[index]


def _slices_of_scattered(
    times: Times, combs: Sequence[tuple[int, int]], cuts: Sequence[int]
) -> tuple[Times, npt.NDArray[np.int64]]:
    """Do the same for few tuples far apart, without listing the edges between them."""
    start = np.full(len(times), FIRST_EDGE, dtype=np.int64)
    end = np.full(len(times), LAST_EDGE, dtype=np.int64)
    for slide, phase in combs:
        edge = times - (times - phase) % slide
        np.maximum(start, edge, out=start)
        np.minimum(end, edge + slide, out=end)
    if cuts:
        bounds = np.array([FIRST_EDGE, *sorted(cuts), LAST_EDGE], dtype=np.int64)
        at = np.searchsorted(bounds, times, side="right")
        np.maximum(start, bounds[at - 1], out=start)
        np.minimum(end, bounds[at], out=end)
    starts, first, inverse = np.unique(start, return_index=True, return_inverse=True)
    return np.stack([starts, end[first]], axis=1), inverse


def due_windows(slices: Times, window: Window, after: int, upto: int) -> Times:
    """Return the windows that contain one of the slices and end in ``(after, upto]``.

    Slices have shape (slices, 2); the result has shape (windows, 2), ascending.
    """
    size, slide, offset = window.size_us, window.slide_us, window.offset_us
    if not len(slices):
        return np.empty((0, 2), dtype=np.int64)
    starts, ends = slices[:, 0], slices[:, 1]
    lowest = np.maximum(-((offset + size - ends) // slide), (after - offset - size) // slide + 1)
    highest = np.minimum((starts - offset) // slide, (upto - offset - size) // slide)
    begin = _union(lowest, highest) * slide + offset
    return np.stack([begin, begin + size], axis=1)


def _union(lowest: Times, highest: Times) -> Times:
    """Return the distinct whole numbers in the ranges ``lowest..highest``, both included, ascending.

    Ranges may be empty. They are joined before they are listed: neighbouring slices share nearly all their windows.
    """
    some = lowest <= highest
    lowest, highest = lowest[some], highest[some]
    if not len(lowest):
        return np.empty(0, dtype=np.int64)
    order = np.argsort(lowest)
    lowest, reached = lowest[order], np.maximum.accumulate(highest[order])
    apart = np.flatnonzero(lowest[1:] > reached[:-1])
    first, last = lowest[np.concatenate([[0], apart + 1])], reached[np.concatenate([apart, [len(reached) - 1]])]
    counts = last - first + 1
    skipped = np.cumsum(counts) - counts
    listed: Times = np.repeat(first - skipped, counts) + np.arange(counts.sum())
    return listed


def needed_until(slices: Times, windows: Sequence[Window]) -> Times:
    """Return, for each slice, the end of the last window that contains it; shape (slices,)."""
    latest = np.full(len(slices), FIRST_EDGE, dtype=np.int64)
    for window in windows:
        last = (slices[:, 0] - window.offset_us) // window.slide_us
        np.maximum(latest, last * window.slide_us + window.offset_us + window.size_us, out=latest)
    return latest


@dataclass(frozen=True)
class NeededEdges:
    """Which edges some window can still need once the waterline has reached ``reached``.

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
        found = np.zeros(len(low), dtype=np.bool_)
        for window in self.windows:
            # the later an edge, the longer it is needed: until the window that begins or ends there has fired
            for phase, needed_for in ((window.offset_us, window.size_us), (window.offset_us + window.size_us, 0)):
                edge = high - (high - phase) % window.slide_us
                found |= (edge >= low) & (edge + needed_for > self.reached)
        for begin, size in self.begins.items():
            if begin + size > self.reached:
                found |= (slices[:-1, 0] < begin) & (begin <= high)
        return found


def coalesce(slices: Times, needed: NeededEdges) -> tuple[Times, npt.NDArray[np.int64]]:
    """Join neighbouring slices that no window can tell apart any more.

    ``slices`` ascend and do not overlap. Returns the joined slices, and for each old one the number of the new one.
    """
    apart = needed.between(slices)
    number = np.concatenate([[0], np.cumsum(apart)]).astype(np.int64)
    first = np.concatenate([[0], np.flatnonzero(apart) + 1])
    last = np.concatenate([np.flatnonzero(apart), [len(slices) - 1]])
    return np.stack([slices[first, 0], slices[last, 1]], axis=1), number
