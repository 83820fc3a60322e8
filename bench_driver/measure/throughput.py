"""Read throughput at the queues, and tell whether a queue keeps growing (thesis 3.4.2, definition 5; 4.4.3).

A system that works in batches turns its queue into a sawtooth as high as the data of a batch, so that neither single
lengths nor a fitted line say whether it keeps up. What is compared is the same moment of each tooth: the length just
before the system pulls (the peaks) and just after it (the valleys). A system that takes a limited batch at a time and
cannot keep up has valleys that rise; one that always takes all there is has batches, so peaks, that grow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

from braid.bench_driver.measure import statistics
from braid.bench_driver.queues.process import QueueSample

# how fast a queue may grow, as a share of the rate offered: it must be below 2 %, and above the noise of sampling
GROWTH_ALLOWED = 0.01
# how much peaks vary, as a share of a tooth, where there are too few teeth to see it
TOOTH_NOISE = 0.1
# a queue is sampled ten times a second: what comes between two samples is no backlog
NO_BACKLOG_SECONDS = 0.1
# a system that pulls nothing in the last part of a step, while the queue gets longer than ever, has stalled
STALL_SHARE = 0.1
# growth must be beyond so many standard errors of the slope
NOISE_MARGIN = 2.0
# peaks and valleys are thinned to so many, so that the teeth of a system that always pulls do not count by their number
MAX_MARKS = 12
MIN_TEETH = 3

Line = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class QueuePoint:
    """A queue at one moment, as its slowest consumer finds it."""

    at: float
    generated: int
    pulled: int

    @property
    def length(self) -> int:
        """How many tuples wait."""
        return max(0, self.generated - self.pulled)


@dataclass(frozen=True)
class Tooth:
    """A burst of pulls: the queue just before its first and just after its last."""

    before: QueuePoint
    after: QueuePoint


@dataclass(frozen=True)
class Growth:
    """How fast a queue grows, in tuples a second, and whether that is more than fluctuation (definition 5)."""

    tuples_per_second: float
    keeps_growing: bool


def queue_points(
    samples: Iterable[QueueSample], begin: float, end: float, consumers: Collection[str] | None = None
) -> list[QueuePoint]:
    """Return the samples in `[begin, end]` for the slowest of the consumers (all when None); 0 pulled without any."""
    points = []
    for sample in samples:
        if begin <= sample.at <= end:
            pulled = [n for name, n in sample.pulled.items() if consumers is None or name in consumers]
            points.append(QueuePoint(sample.at, sample.generated, min(pulled, default=0)))
    return points


def teeth(points: Sequence[QueuePoint]) -> list[Tooth]:
    """Return the bursts of pulls, in order.

    Pulls belong to one burst when less than a quarter of a typical pause lies between them; the typical pause is the
    one in which half of the time passes.
    """
    rises = [i for i in range(1, len(points)) if points[i].pulled > points[i - 1].pulled]
    # the pauses at both ends count, too: of a long batch there may be nothing else
    pauses = [points[b].at - points[a].at for a, b in pairwise([0, *rises, len(points) - 1])] if rises else []
    typical_pause = statistics.percentile(pauses, 0.5, pauses) or 0.0
    bursts: list[list[int]] = []
    for i in rises:
        if bursts and points[i].at - points[bursts[-1][-1]].at <= typical_pause / 4:
            bursts[-1].append(i)
        else:
            bursts.append([i])
    if len(bursts) > 1 and points[rises[0]].at - points[0].at <= typical_pause / 4:
        bursts = bursts[1:]  # it may have begun before what was looked at
    return [Tooth(points[burst[0] - 1], points[burst[-1]]) for burst in bursts]


def pulled_rate(points: Sequence[QueuePoint]) -> float | None:
    """Return how many tuples a second were pulled and worked off; None when that is unknown.

    Counted from just before a burst of pulls to just before another: what is pulled last has not been worked off yet.
    Batches that grow, because the system cannot keep up, would make the rate too high otherwise. A burst may come late
    by chance, so the middles of the first and of the last third of the bursts are compared.
    """
    marks = [tooth.before for tooth in teeth(points)]
    if len(marks) < 2:
        return statistics.rate([(point.at, point.pulled) for point in points])
    third = max(1, len(marks) // 3)
    return statistics.rate([_middle(marks[:third]), _middle(marks[-third:])])


def _middle(points: Sequence[QueuePoint]) -> tuple[float, float]:
    begin = points[0].at
    at = begin + sum(point.at - begin for point in points) / len(points)
    return at, sum(point.pulled for point in points) / len(points)


def growth(points: Sequence[QueuePoint], offered: float) -> Growth:
    """Tell how fast the queue grows while `offered` tuples a second come, and whether it keeps growing.

    It keeps growing when its peaks or its valleys rise by more than `GROWTH_ALLOWED` of what is offered, beyond what
    their irregularity explains, and still rise in the second half: a pause that the system is catching up with is
    transient backpressure (thesis figure 3.7). It does, too, when the system has stalled at last. With fewer than two
    bursts of pulls only the ends are compared.
    """
    measured = _growth(points, offered)
    if points and max(point.length for point in points) <= NO_BACKLOG_SECONDS * offered:
        return Growth(measured.tuples_per_second, False)
    return measured


def _growth(points: Sequence[QueuePoint], offered: float) -> Growth:
    bursts = teeth(points)
    if len(bursts) < 2:
        slope = statistics.rate([(point.at, point.length) for point in points])
        return Growth(slope or 0.0, slope is None or slope > GROWTH_ALLOWED * offered)
    peaks = [(tooth.before.at, float(tooth.before.length)) for tooth in bursts]
    valleys = [(tooth.after.at, float(tooth.after.length)) for tooth in bursts]
    height = (statistics.median([length for _, length in peaks]) or 0.0) - (
        statistics.median([length for _, length in valleys]) or 0.0
    )
    last, highest = points[-1], max(length for _, length in peaks)
    idle_share = (last.at - bursts[-1].after.at) / (last.at - points[0].at)
    stalled = idle_share > STALL_SHARE and last.length > 2 * highest + NO_BACKLOG_SECONDS * offered
    if last.length > highest:  # a tooth that is not over, yet higher than any before
        peaks.append((last.at, float(last.length)))
    trends = [_trend(_thin(peaks, max), height, offered), _trend(_thin(valleys, min), height, offered)]
    keeps_growing = stalled or any(trend.keeps_growing for trend in trends)
    return Growth(max(trend.tuples_per_second for trend in trends), keeps_growing)


def _trend(marks: Line, height: float, offered: float) -> Growth:
    slope = statistics.theil_sen(marks) or 0.0
    middle = (marks[0][0] + marks[-1][0]) / 2
    late_marks = [mark for mark in marks if mark[0] >= middle]
    late_slope = statistics.theil_sen(late_marks) if len(late_marks) >= MIN_TEETH else None
    rising = slope - NOISE_MARGIN * _noise(marks, slope, height) > GROWTH_ALLOWED * offered
    return Growth(slope, rising and (late_slope is None or late_slope > GROWTH_ALLOWED * offered / 2))


def _noise(marks: Line, slope: float, height: float) -> float:
    """Return the standard error of a slope, from the median deviation of the marks from their line."""
    if len(marks) <= MIN_TEETH:
        return TOOTH_NOISE * max(0.0, height) / max(marks[-1][0] - marks[0][0], 1e-9)
    residuals = [y - slope * x for x, y in marks]
    median_residual = statistics.median(residuals) or 0.0
    deviation = 1.4826 * (statistics.median([abs(residual - median_residual) for residual in residuals]) or 0.0)
    x_mean = sum(x for x, _ in marks) / len(marks)
    return deviation / math.sqrt(sum((x - x_mean) ** 2 for x, _ in marks))


def _thin(marks: Line, extreme: Callable[..., tuple[float, float]]) -> Line:
    """Keep the extreme mark of each of `MAX_MARKS` equal stretches of time."""
    if len(marks) <= MAX_MARKS:
        return marks
    begin, width = marks[0][0], (marks[-1][0] - marks[0][0]) / MAX_MARKS
    stretches: dict[int, list[tuple[float, float]]] = {}
    for mark in marks:
        stretches.setdefault(min(int((mark[0] - begin) / width), MAX_MARKS - 1), []).append(mark)
    return [extreme(stretch, key=itemgetter(1)) for stretch in stretches.values()]


def consumer_rates(samples: Sequence[QueueSample], begin: float, end: float, consumers: Iterable[str]) -> list[float]:
    """Return the rate at which each consumer pulled, in tuples a second; 0 for one that did not."""
    return [pulled_rate(queue_points(samples, begin, end, [name])) or 0.0 for name in sorted(consumers)]


def batches(samples: Sequence[QueueSample], begin: float, end: float, consumers: Iterable[str]) -> int:
    """Return how many batches the consumer with the fewest did within ``[begin, end]``.

    A batch lasts from just before a burst of pulls to just before the next. Of a system that pulls all the time, no
    more are seen than there are samples.
    """
    bursts = [len(teeth(queue_points(samples, begin, end, [name]))) for name in consumers]
    return max(0, min(bursts, default=0) - 1)


def overall_throughput(rates: Sequence[float], queries: int) -> float:
    """Return the sum over all active queries (4.4.3) from the rates of the consumers.

    A consumer that pulls for several queries has each of them at its rate; so many queries fall to each consumer.
    """
    return sum(rates) * queries / len(rates) if rates else 0.0
