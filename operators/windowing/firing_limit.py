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

import numpy as np
import numpy.typing as npt

from operators.aggregation.operator_queries import OperatorQueries
from operators.joins.firing import JoinOperator
from operators.sessions.sessions import LAST, gap_of
from operators.state.bucket import Bucket
from operators.windowing.slicing import Times, window_numbers
from operators.windows import Window

# what it costs that windows of an operator end together, a query's window, one that counts distinct values, one of a
# join, an entry that a window reads, the end of a session (µs, rough: the planner learns by how much they are wrong)
_END_US, _WINDOW_US, _DISTINCT_US, _JOINED_US, _ENTRY_US, _SESSION_US = 8.0, 1.0, 100.0, 1000.0, 0.02, 2.0
# at how many times it is worked out how much there is to fire, and how often again between two of them
_POINTS, _REFINEMENTS = 512, 3

Reached = Mapping[str, int | None]
Buckets = Mapping[str, Sequence[Bucket]]


@dataclass(frozen=True)
class _Ends:
    """The windows of an operator that are alike: each of their ends costs ``cost_us``."""

    operator: str
    window: Window
    cost_us: float


@dataclass(frozen=True)
class _SessionEnds:
    """The sessions of an operator, which end ``gap_us`` after their last tuple."""

    operator: str
    gap_us: int


class FiringLimit:
    """Counts what it costs to fire the windows of all queries of an epoch, by stream."""

    def __init__(self, aggregations: Mapping[str, OperatorQueries], joins: Iterable[JoinOperator]) -> None:
        self._ends: dict[str, list[_Ends]] = defaultdict(list)
        self._sessions: dict[str, list[_SessionEnds]] = defaultdict(list)
        for name, operator in aggregations.items():
            if operator.is_sessions:
                gap_us = min(gap_of(query) for query in operator.queries)
                self._sessions[operator.stream].append(_SessionEnds(name, gap_us))
                continue
            counted_apart = 1 + len(operator.distinct)
            counting = {query.id for _, counting in operator.distinct.values() for query in counting}
            together: set[tuple[int, int]] = set()
            for window, members in operator.by_window.items():
                comb = window.slide_us, (window.offset_us + window.size_us) % window.slide_us
                end_us = 0.0 if comb in together else _END_US * counted_apart
                together.add(comb)
                distinct = sum(query.id in counting for query in members) if counting else 0
                cost_us = end_us + _WINDOW_US * len(members) + _DISTINCT_US * distinct
                self._ends[operator.stream].append(_Ends(name, window, cost_us))
        for join in joins:
            if not join.is_sessions:
                for window, members_of_window in join.by_window.items():
                    ends = _Ends(join.joins[0][0].operator, window, _JOINED_US * len(members_of_window))
                    for stream in join.streams:
                        self._ends[stream].append(ends)

    def fired(
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
        windows = sum(ends.cost_us * (1 + span_us / ends.window.slide_us) for ends in self._ends.get(stream, ()))
        sessions = sum(_SESSION_US * span_us / ends.gap_us for ends in self._sessions.get(stream, ()))
        return windows + sessions

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
        ranges = [found for ends in self._ends.get(stream, ()) if (found := _ranges(ends, buckets, after, upto))]
        single = np.sort(
            np.concatenate([np.empty(0, np.int64), *(_ends_of(s, buckets) for s in self._sessions.get(stream, ()))])
        )
        single = single[(single > after) & (single <= upto)]
        times = np.concatenate([[upto], single[:1], *(r.first for r in ranges), *(r.last for r in ranges)])
        times.sort()
        low, high = int(times[0]), upto
        points = times[np.linspace(0, len(times) - 1, min(_POINTS, len(times))).astype(np.int64)]
        for _ in range(_REFINEMENTS):
            points = np.unique(np.concatenate([points, np.linspace(low, high, _POINTS).astype(np.int64)]))
            cost = _SESSION_US * np.searchsorted(single, points, side="right").astype(np.float64)
            for found in ranges:
                cost += found.cost_us(points)
            place = max(0, int(np.searchsorted(cost, budget_us, side="right")) - 1)
            low, high = int(points[place]), int(points[min(place + 1, len(points) - 1)])
            points = np.array([low], dtype=np.int64)
        return low


@dataclass(frozen=True)
class _Ranges:
    """Ends of windows that have tuples: those from ``first[i]`` to ``last[i]``, ``slide_us`` apart, for all i (µs)."""

    first: Times
    last: Times
    slide_us: int
    each_us: float

    def cost_us(self, points: Times) -> npt.NDArray[np.float64]:
        """Return what it costs to fire those up to each of some times."""
        counts = (self.last - self.first) // self.slide_us + 1
        before = np.concatenate([[0], np.cumsum(counts)])
        number = np.searchsorted(self.first, points, side="right")
        within = np.maximum(number - 1, 0)
        begun = (np.minimum(points, self.last[within]) - self.first[within]) // self.slide_us + 1
        passed = np.where(number > 0, before[within] + begun, 0)
        cost: npt.NDArray[np.float64] = passed * self.each_us
        return cost


def _ranges(ends: _Ends, buckets: Buckets, after: int, upto: int) -> _Ranges | None:
    """Return the ends in ``(after, upto]`` of the windows that contain a slice; None where there are none."""
    own = buckets.get(ends.operator, ())
    if not own:
        return None
    window, slices = ends.window, np.concatenate([bucket.slices for bucket in own])
    first, last = window_numbers(slices, window, after, upto)
    if not len(first):
        return None
    covered_us = max(1, int((slices[:, 1] - slices[:, 0]).sum()))
    read = sum(bucket.entries for bucket in own) * min(1.0, window.size_us / covered_us)
    to_end, each_us = window.offset_us + window.size_us, ends.cost_us + _ENTRY_US * read
    return _Ranges(first * window.slide_us + to_end, last * window.slide_us + to_end, window.slide_us, each_us)


def _ends_of(sessions: _SessionEnds, buckets: Buckets) -> Times:
    """Return when the sessions end that fragments would be, were each alone."""
    own = buckets.get(sessions.operator, ())
    return np.concatenate([np.empty(0, np.int64), *(bucket.component(LAST) + sessions.gap_us for bucket in own)])
