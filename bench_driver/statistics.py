"""What the measurements are boiled down to: percentiles, rates, and whether a lag grows. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

# what a lag may grow a second and still count as "keeps up": 2 % of the rate, above the noise of whole batches
GROWTH_ALLOWED = 0.02
# the counter of tuples rises by whole batches, so its rate is rougher
MISSING_ALLOWED = 0.05


def percentile(values: Sequence[float], share: float, weights: Sequence[float] | None = None) -> float | None:
    """Return the least value that at least `share` (0 to 1) of the weight does not exceed; None without values.

    It is always one of the values (nearest rank): nothing is interpolated.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must be from 0 to 1, got {share!r}")
    weights = [1.0] * len(values) if weights is None else weights
    pairs = sorted((v, w) for v, w in zip(values, weights, strict=True) if w > 0)
    if not pairs:
        return None
    needed, reached = share * sum(weight for _, weight in pairs), 0.0
    for value, weight in pairs:
        reached += weight
        if reached >= needed - 1e-9:
            return value
    return pairs[-1][0]


def median(values: Sequence[float]) -> float | None:
    """Return the middle value, the mean of the middle two for an even number; None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the least-squares slope of `(x, y)` points; None when there are not two different x."""
    if not points:
        return None
    x_mean = sum(x for x, _ in points) / len(points)
    y_mean = sum(y for _, y in points) / len(points)
    spread = sum((x - x_mean) ** 2 for x, _ in points)
    if spread == 0:
        return None
    return sum((x - x_mean) * (y - y_mean) for x, y in points) / spread


def theil_sen(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the median of the slopes of all pairs of `(x, y)` points; None when there are not two different x.

    Unlike `slope` it is not moved by outliers, as long as they are fewer than three in ten.
    """
    return median([(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if a[0] != b[0]])


def after_warm_up(points: Sequence[tuple[float, float]], share: float = 0.25) -> list[tuple[float, float]]:
    """Drop the points in the first `share` of the x range."""
    if not points:
        return []
    first, last = points[0][0], points[-1][0]
    return [point for point in points if point[0] >= first + share * (last - first)]


def rate(points: Sequence[tuple[float, float]]) -> float | None:
    """Return how fast a counter rose between the first and the last `(seconds, count)`; None when unknown."""
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return None
    return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])


def step_rate(points: Sequence[tuple[float, float]]) -> float | None:
    """Return how fast a counter rose that rises in steps, such as one step a batch; None below two steps.

    Measured from just after one step to just after another: what lies before the first and after the last is part of a
    step, and would make the rate too low or too high.
    """
    return rate([after for before, after in pairwise(points) if after[1] > before[1]])


def keeps_up(lag_growth: float | None, tuples_per_second: float | None, offered: float) -> bool:
    """Tell whether what was offered was worked off: the lag does not grow and nothing is missing.

    `lag_growth` is in seconds of lag a second.
    """
    if lag_growth is None or tuples_per_second is None:
        return False
    return lag_growth <= GROWTH_ALLOWED and tuples_per_second >= (1 - MISSING_ALLOWED) * offered


@dataclass(frozen=True)
class Histogram:
    """A Prometheus histogram at one moment: cumulative counts by upper bound, the last bound is infinity."""

    bounds: Mapping[float, float]
    total: float

    @property
    def count(self) -> float:
        """How many observations there are."""
        return self.bounds.get(math.inf, 0.0)

    def since(self, earlier: Histogram) -> Histogram:
        """Return the observations made after `earlier`."""
        left = {bound: count - earlier.bounds.get(bound, 0.0) for bound, count in self.bounds.items()}
        return Histogram(left, self.total - earlier.total)

    @property
    def mean(self) -> float | None:
        """The mean of the observations, which a histogram knows exactly."""
        return self.total / self.count if self.count else None

    def quantile(self, share: float) -> float | None:
        """Return the quantile, interpolated within its bucket as Prometheus does; None without observations."""
        if not self.count:
            return None
        needed, lower, below = share * self.count, 0.0, 0.0
        for bound, count in sorted(self.bounds.items()):
            if count >= needed and count > below:
                if math.isinf(bound):
                    return lower
                return lower + (bound - lower) * (needed - below) / (count - below)
            lower, below = bound, count
        return lower
