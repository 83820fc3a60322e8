"""Percentiles, slopes and histograms: by hand where that is easy, against numpy where it is not."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.bench_driver.measure.statistics import Histogram, median, percentile, rate, theil_sen

finite = st.floats(-1e6, 1e6)


@given(st.lists(finite, min_size=1), st.floats(0, 1))
def test_a_percentile_is_the_nearest_rank_of_numpy(values: list[float], share: float) -> None:
    assert percentile(values, share) in values
    quarter = round(share * 4) / 4  # where both round alike
    assert percentile(values, quarter) == np.quantile(values, quarter, method="inverted_cdf")


@given(st.lists(st.tuples(finite, st.integers(0, 5)), min_size=1), st.sampled_from([0.5, 0.95, 1.0]))
def test_a_weight_is_so_many_equal_values(pairs: list[tuple[float, int]], share: float) -> None:
    repeated = [value for value, times in pairs for _ in range(times)]
    weighted = percentile([v for v, _ in pairs], share, [float(w) for _, w in pairs])
    assert weighted == percentile(repeated, share)


def test_without_values_there_is_no_percentile_and_no_median() -> None:
    assert percentile([], 0.5) is None
    assert percentile([1.0], 0.5, [0.0]) is None
    assert median([]) is None


def test_a_share_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"from 0 to 1, got 95"):
        percentile([1.0], 95)


@given(st.lists(finite, min_size=1))
def test_the_median_is_that_of_numpy(values: list[float]) -> None:
    assert median(values) == pytest.approx(float(np.median(values)))


def test_no_points_have_no_rate() -> None:
    assert rate([]) is None
    assert rate([(1.0, 5.0)]) is None
    assert rate([(1.0, 5.0), (1.0, 6.0)]) is None


def test_the_rate_is_over_the_first_and_last_point() -> None:
    assert rate([(10.0, 100.0), (11.0, 100.0), (14.0, 500.0)]) == 100.0


def test_a_histogram_interpolates_within_a_bucket_as_prometheus_does() -> None:
    histogram = Histogram({0.5: 0.0, 1.0: 10.0, 2.0: 10.0, math.inf: 10.0}, 7.5)
    assert histogram.quantile(0.5) == pytest.approx(0.75)
    assert histogram.mean == 0.75


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    assert Histogram({1.0: 1.0, math.inf: 4.0}, 30.0).quantile(0.9) == 1.0


def test_a_histogram_counts_what_came_since_an_earlier_one() -> None:
    earlier = Histogram({1.0: 4.0, math.inf: 5.0}, 9.0)
    later = Histogram({1.0: 4.0, math.inf: 7.0}, 15.0)
    since = later.since(earlier)
    assert (since.count, since.mean) == (2.0, 3.0)
    assert later.since(Histogram({}, 0.0)) == later
    assert Histogram({}, 0.0).quantile(0.5) is None
    assert Histogram({}, 0.0).mean is None


@given(st.floats(-100, 100), st.integers(4, 30), st.randoms(use_true_random=False))
def test_theil_sen_ignores_outliers_that_bend_the_least_squares(gradient: float, count: int, random: Random) -> None:
    points = [(float(x), gradient * x) for x in range(count)]
    outlier = random.randrange(count)
    points[outlier] = (float(outlier), 1e6)
    assert theil_sen(points) == pytest.approx(gradient, abs=1e-6) or count == 4
    assert theil_sen(points[:outlier] + points[outlier + 1 :]) == pytest.approx(gradient, abs=1e-6)


def test_theil_sen_needs_two_different_x() -> None:
    assert theil_sen([]) is None
    assert theil_sen([(1.0, 2.0), (1.0, 5.0)]) is None
    assert theil_sen([(1.0, 2.0), (3.0, 6.0)]) == 2.0
