"""A histogram is found in a text of metrics, as the client library writes it."""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from bench_driver.scrape import histogram_of


def test_a_histogram_is_found_by_its_name() -> None:
    registry = CollectorRegistry()
    for name in ("braid_batch_duration_seconds", "braid_batch_duration_seconds_of_others"):
        histogram = Histogram(name, "Duration.", registry=registry, buckets=(0.5, 1.0))
        for value in (0.2, 0.7, 3.0):
            histogram.observe(value)
    scraped = histogram_of(generate_latest(registry).decode(), "braid_batch_duration_seconds")
    assert scraped.bounds == {0.5: 1.0, 1.0: 2.0, math.inf: 3.0}
    assert scraped.total == 3.9


def test_a_histogram_that_is_not_there_has_no_observations() -> None:
    assert histogram_of("", "braid_batch_duration_seconds").count == 0
