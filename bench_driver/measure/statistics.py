"""What the measurements are boiled down to: percentiles, rates, slopes. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations


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


def theil_sen(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the median of the slopes of all pairs of `(x, y)` points; None when there are not two different x.

    Unlike a least-squares slope it is not moved by outliers, as long as they are fewer than three in ten.
    """
    return median([(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if a[0] != b[0]])


def rate(points: Sequence[tuple[float, float]]) -> float | None:
    """Return how fast a counter rose between the first and the last `(seconds, count)`; None when unknown."""
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return None
    return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])


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
        counts = {bound: count - earlier.bounds.get(bound, 0.0) for bound, count in self.bounds.items()}
        return Histogram(counts, self.total - earlier.total)

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
