"""How far windows fire in one batch: work that a leap of a watermark makes due is done in pieces, batch after batch.

Up to where the windows of a stream have *fired* trails its watermark while there is more to fire than fits a batch. All
partitions must fire up to the same time, or rows would leave out of order. So the limit follows from what they all
know: how far the watermark moved, and which windows there are. That counts windows as if each had tuples; where this
says too much, each partition counts what it really holds and tells the planner up to where it can fire in the next
batch, and the least of these times is the limit then. Tuples that come meanwhile are not late for windows that have
not fired, and lie behind all of them: they have reached the watermark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from braid.operators.state.query_runs import Partials
from braid.operators.windowing.slicing import Times, window_numbers
from braid.operators.windows import Window

# what it costs to read an entry of a window (µs, rough: the planner learns by how much it is wrong)
_ENTRY_US = 0.02
# at how many times it is worked out how much there is to fire, and how often again between two of them
_POINTS, _REFINEMENTS = 512, 3

Reached = Mapping[str, int | None]
Buckets = Mapping[str, Sequence[Partials]]
Costs = npt.NDArray[np.float64]


class CostOfEnds(Protocol):
    """What it costs to fire windows that have tuples."""

    @property
    def times(self) -> Times:
        """Some times at which it changes (µs), one at least."""

    def upto(self, points: Times) -> Costs:
        """Return what it costs to fire those that end up to each of some times (µs, costs too)."""


class Ends(Protocol):
    """Ends of windows of an operator that are alike."""

    def dense_us(self, span_us: int) -> float:
        """Return what it costs at most to fire those that end within a span of event time, as if each had tuples."""

    def cost(self, buckets: Buckets, after: int, upto: int) -> CostOfEnds | None:
        """Return what it costs to fire those that end in ``(after, upto]`` and have tuples; None where there are none.

        ``buckets`` are those that a partition holds, by operator.
        """


@dataclass(frozen=True)
class WindowEnds:
    """The windows of an operator that are alike: each of their ends costs ``cost_us``."""

    operator: str
    window: Window
    cost_us: float

    def dense_us(self, span_us: int) -> float:
        """Return what a span costs at most."""
        return self.cost_us * (1 + span_us / self.window.slide_us)

    def cost(self, buckets: Buckets, after: int, upto: int) -> CostOfEnds | None:
        """Return what the windows cost that contain a slice."""
        own = buckets.get(self.operator, ())
        if not own:
            return None
        window, slices = self.window, np.concatenate([bucket.slices for bucket in own])
        first, last = window_numbers(slices, window, after, upto)
        if not len(first):
            return None
        covered_us = max(1, int((slices[:, 1] - slices[:, 0]).sum()))
        read = sum(bucket.entries for bucket in own) * min(1.0, window.size_us / covered_us)
        to_end, each_us = window.offset_us + window.size_us, self.cost_us + _ENTRY_US * read
        return _Ranges(first * window.slide_us + to_end, last * window.slide_us + to_end, window.slide_us, each_us)


@dataclass(frozen=True)
class _Ranges:
    """Ends of windows that have tuples: those from ``first[i]`` to ``last[i]``, ``slide_us`` apart, for all i (µs)."""

    first: Times
    last: Times
    slide_us: int
    each_us: float

    @property
    def times(self) -> Times:
        """The bounds of the ranges."""
        return np.concatenate([self.first, self.last])

    def upto(self, points: Times) -> Costs:
        """Return what it costs to fire those up to each of some times."""
        counts = (self.last - self.first) // self.slide_us + 1
        before = np.concatenate([[0], np.cumsum(counts)])
        number = np.searchsorted(self.first, points, side="right")
        within = np.maximum(number - 1, 0)
        begun = (np.minimum(points, self.last[within]) - self.first[within]) // self.slide_us + 1
        passed = np.where(number > 0, before[within] + begun, 0)
        cost: Costs = passed * self.each_us
        return cost


class FiringLimit:
    """Counts what it costs to fire the windows of all queries of an epoch, by the stream that brings them."""

    def __init__(self, ends: Iterable[tuple[str, Ends]] = ()) -> None:
        self._ends: dict[str, list[Ends]] = defaultdict(list)
        for stream, alike in ends:
            self._ends[stream].append(alike)

    def fired_after(
        self, before: Reached, watermarks: Reached, earliest: Reached, fire_to: Mapping[str, int], budget_us: float
    ) -> dict[str, int | None]:
        """Return up to where the windows of each stream fire in a batch: to the watermark, or less far.

        ``before`` is up to where they had fired, ``watermarks`` are those after the batch, ``earliest`` its first event
        times. ``fire_to`` has the streams with more to fire than fits a batch, and up to where the partitions can fire
        them (all µs). The windows of the others cost ``budget_us`` at most, counted as if each had tuples.
        """
        fired, costs = dict(watermarks), {}
        for stream, watermark in watermarks.items():
            start = before.get(stream)
            start = earliest.get(stream) if start is None else start
            if watermark is None or start is None or start >= watermark:
                continue
            if stream in fire_to:
                fired[stream] = min(watermark, max(start, fire_to[stream]))
            else:
                costs[stream] = self._dense_us(stream, watermark - start)
        if sum(costs.values()) > budget_us:
            share_us = budget_us / sum(cost > 0 for cost in costs.values())
            for stream, cost_us in costs.items():
                if cost_us > share_us:
                    start, watermark = before.get(stream), watermarks[stream]
                    start = earliest[stream] if start is None else start
                    assert start is not None
                    assert watermark is not None
                    fired[stream] = start + int((watermark - start) * share_us / cost_us)
        return fired

    def _dense_us(self, stream: str, span_us: int) -> float:
        """Return what it costs at most to fire all windows that end within a span of event time (µs)."""
        return sum(ends.dense_us(span_us) for ends in self._ends.get(stream, ()))

    def affordable(
        self, buckets: Callable[[], Buckets], fired: Reached, watermarks: Reached, budget_us: float
    ) -> dict[str, int]:
        """Return up to where windows can fire in the next batch, of each stream that has more to fire.

        ``buckets`` returns those that a partition holds, by operator. The next windows fire whatever they cost.
        """
        behind = {
            stream: (before, watermark)
            for stream, watermark in watermarks.items()
            if watermark is not None and (before := fired.get(stream)) is not None and before < watermark
        }
        if not behind:
            return {}
        held, share_us = buckets(), budget_us / len(behind)
        return {stream: self._affordable(stream, held, *span, share_us) for stream, span in behind.items()}

    def _affordable(self, stream: str, buckets: Buckets, after: int, upto: int, budget_us: float) -> int:
        costs = [cost for ends in self._ends.get(stream, ()) if (cost := ends.cost(buckets, after, upto)) is not None]
        times = np.concatenate([[upto], *(cost.times for cost in costs)])
        times.sort()
        low, high = int(times[0]), upto
        points = times[np.linspace(0, len(times) - 1, min(_POINTS, len(times))).astype(np.int64)]
        for _ in range(_REFINEMENTS):
            points = np.unique(np.concatenate([points, np.linspace(low, high, _POINTS).astype(np.int64)]))
            total_us = np.zeros(len(points))
            for cost in costs:
                total_us += cost.upto(points)
            place = max(0, int(np.searchsorted(total_us, budget_us, side="right")) - 1)
            low, high = int(points[place]), int(points[min(place + 1, len(points) - 1)])
            points = np.array([low], dtype=np.int64)
        return low
