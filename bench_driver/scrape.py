"""Read `/metrics` as Prometheus would."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from bench_driver.statistics import Histogram


def histogram_of(text: str, name: str) -> Histogram:
    """Return the histogram `name` in a text of metrics; without observations when it is not there."""
    bounds: dict[float, float] = {}
    total = 0.0
    for family in text_string_to_metric_families(text):
        if family.name != name:
            continue
        for sample in family.samples:
            if sample.name == f"{name}_bucket":
                bounds[float(sample.labels["le"])] = sample.value
            elif sample.name == f"{name}_sum":
                total = sample.value
    return Histogram(bounds, total)


def scrape_histogram(url: str, name: str) -> Histogram:
    """Return the histogram `name` of the service at `url`, now."""
    answer = httpx.get(f"{url}/metrics", timeout=10, trust_env=False)
    answer.raise_for_status()
    return histogram_of(answer.text, name)
