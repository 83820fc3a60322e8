"""The series of queries as Prometheus reads them, against counting one by one."""

from __future__ import annotations

import random
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from api.query_series import LATENCY_SECONDS, OTHER, QuerySeries

SECOND = 1_000_000


def samples(series: QuerySeries) -> dict[tuple[str, ...], float]:
    """Return the value of each sample by name and label values."""
    families = list(text_string_to_metric_families(series.moment().text()))
    assert [(family.name, family.type) for family in families] == [
        ("braid_query_results", "counter"),
        ("braid_query_event_time_latency_seconds", "histogram"),
        ("braid_query_processing_time_latency_seconds", "histogram"),
        ("braid_query_info", "gauge"),
    ]
    assert all(family.documentation for family in families)
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def block(slots: list[int], counts: list[int], latest: list[int | None]) -> dict[str, Any]:
    """Return a block of a batch record."""
    return {"slots": slots, "counts": counts, "latest_event_us": latest}


def test_counters_and_histograms_are_those_of_counting_one_by_one() -> None:
    chosen = random.Random(3)
    series = QuerySeries(30)
    for slot in range(40):
        series.add(slot, f"q-{slot}", None)
    rows = dict.fromkeys([f"q-{slot}" for slot in range(30)] + [OTHER], 0)
    latencies: dict[str, list[float]] = {name: [] for name in rows}
    batches = dict.fromkeys(rows, 0)
    for _ in range(20):
        slots = sorted(chosen.sample(range(45), 25))
        counts = [chosen.randrange(1, 9) for _ in slots]
        latest = [None if chosen.random() < 0.2 else chosen.randrange(50) * SECOND // 10 for _ in slots]
        record = {"started_us": 4 * SECOND, "committed_us": 5 * SECOND}
        series.absorb(block(slots, counts, latest), record)
        for slot, count, event in zip(slots, counts, latest, strict=True):
            name = f"q-{slot}" if slot < 30 else OTHER
            rows[name] += count
            batches[name] += 1
            if event is not None:
                latencies[name].append((5 * SECOND - event) / 1e6)
    found = samples(series)
    for name, count in rows.items():
        assert found["braid_query_results_total", name] == count
        histogram = "braid_query_event_time_latency_seconds"
        for bound in LATENCY_SECONDS:
            expected = sum(latency <= bound for latency in latencies[name])
            assert found[f"{histogram}_bucket", name, str(bound)] == expected
        assert found[f"{histogram}_bucket", name, "+Inf"] == found[f"{histogram}_count", name] == len(latencies[name])
        assert abs(found[f"{histogram}_sum", name] - sum(latencies[name])) < 1e-9
        processing = "braid_query_processing_time_latency_seconds"
        assert found[f"{processing}_bucket", name, "0.75"] == 0
        assert found[f"{processing}_bucket", name, "1.0"] == found[f"{processing}_sum", name] == batches[name]


def test_series_go_with_their_query_and_the_number_of_them_is_bounded() -> None:
    series = QuerySeries(2)
    for slot in range(3):
        series.add(slot, f"q-{slot}", None)
    record = {"started_us": 0, "committed_us": SECOND}
    series.absorb(block([0, 1, 2], [1, 2, 4], [0, 0, 0]), record)
    series.remove(0)
    series.remove(0)
    series.add(0, "q-9", None)
    series.absorb(block([0, 7], [8, 16], [0, None]), record)
    found = samples(series)
    counts = {key[1]: value for key, value in found.items() if key[0] == "braid_query_results_total"}
    assert counts == {"q-1": 2, "q-9": 8, OTHER: 4 + 16}
    assert found["braid_query_event_time_latency_seconds_count", "q-9"] == 1, "nothing is left of q-0"


def test_names_may_have_any_character() -> None:
    series = QuerySeries(5)
    names = ['a "quoted" one', "back\\slash", "two\nlines", "100 %d", "ä"]
    for slot, name in enumerate(names):
        series.add(slot, f"q-{slot}", name)
    assert [key[2] for key in samples(series) if key[0] == "braid_query_info"] == names


def test_a_moment_stays_as_it_was() -> None:
    series = QuerySeries(5)
    series.add(0, "q-1", None)
    moment = series.moment()
    before = moment.text()
    series.absorb(block([0], [1], [0]), {"started_us": 0, "committed_us": SECOND})
    series.remove(0)
    assert moment.text() == before
    assert series.moment().text() != before
