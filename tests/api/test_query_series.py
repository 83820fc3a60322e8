"""The series of queries as Prometheus reads them, against counting one by one."""

from __future__ import annotations

import random
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from braid.api.metrics.query_series import OTHER, QuerySeries
from braid.operators.windows import SessionWindow
from braid.router.delivery.progress import LATENCY_SECONDS
from tests.session.queries import aggregation
from tests.session.records import record as query_record

SECOND = 1_000_000
EVENT_TIME = "braid_query_event_time_latency_seconds"


def samples(series: QuerySeries) -> dict[tuple[str, ...], float]:
    """Return the value of each sample by name and label values."""
    families = list(text_string_to_metric_families(series.moment().text({"q-1": 0.25})))
    assert [(family.name, family.type) for family in families] == [
        ("braid_query_results", "counter"),
        ("braid_query_windows", "counter"),
        (EVENT_TIME, "histogram"),
        ("braid_query_processing_time_latency_seconds", "histogram"),
        ("braid_query_cost_share_ratio", "gauge"),
        ("braid_query_deployment_seconds", "gauge"),
        ("braid_query_info", "gauge"),
        ("braid_query_stream_info", "gauge"),
    ]
    assert all(family.documentation for family in families)
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def batch(slots: list[int], counts: list[int], latest: list[int | None], **times: int) -> dict[str, Any]:
    """Return what a batch record says of results."""
    block = {"slots": slots, "counts": counts, "latest_event_us": latest}
    return {"started_us": 0, "committed_us": SECOND, **times, "results": [block]}


def test_counters_and_histograms_are_those_of_counting_one_by_one() -> None:
    rng = random.Random(3)
    series = QuerySeries(30)
    for slot in range(40):
        series.add(slot, query_record(slot))
    rows = dict.fromkeys([f"q-{slot}" for slot in range(30)] + [OTHER], 0)
    latencies: dict[str, list[float]] = {name: [] for name in rows}
    batches = dict.fromkeys(rows, 0)
    for _ in range(20):
        slots = sorted(rng.sample(range(45), 25))
        counts = [rng.randrange(1, 9) for _ in slots]
        latest = [None if rng.random() < 0.2 else rng.randrange(50) * SECOND // 10 for _ in slots]
        series.absorb(batch(slots, counts, latest, started_us=4 * SECOND, committed_us=5 * SECOND))
        for slot, count, event in zip(slots, counts, latest, strict=True):
            name = f"q-{slot}" if slot < 30 else OTHER
            rows[name] += count
            batches[name] += 1
            if event is not None:
                latencies[name].append((5 * SECOND - event) / 1e6)
    values = samples(series)
    for name, count in rows.items():
        assert values["braid_query_results_total", name] == count
        for bound in LATENCY_SECONDS:
            expected = sum(latency <= bound for latency in latencies[name])
            assert values[f"{EVENT_TIME}_bucket", name, str(bound)] == expected
        assert (
            values[f"{EVENT_TIME}_bucket", name, "+Inf"] == values[f"{EVENT_TIME}_count", name] == len(latencies[name])
        )
        assert abs(values[f"{EVENT_TIME}_sum", name] - sum(latencies[name])) < 1e-9
        processing = "braid_query_processing_time_latency_seconds"
        assert values[f"{processing}_bucket", name, "0.5"] == 0
        assert values[f"{processing}_bucket", name, "1.0"] == values[f"{processing}_sum", name] == batches[name]


def test_series_go_with_their_query_and_the_number_of_them_is_bounded() -> None:
    series = QuerySeries(2)
    for slot in range(3):
        series.add(slot, query_record(slot))
    series.absorb(batch([0, 1, 2], [1, 2, 4], [0, 0, 0]))
    series.remove(0)
    series.remove(0)
    series.add(0, query_record(9))
    series.absorb(batch([0, 7], [8, 16], [0, None]))
    values = samples(series)
    counts = {key[1]: value for key, value in values.items() if key[0] == "braid_query_results_total"}
    assert counts == {"q-1": 2, "q-9": 8, OTHER: 4 + 16}
    assert values[f"{EVENT_TIME}_count", "q-9"] == 1, "nothing is left of q-0"


def test_names_may_have_any_character() -> None:
    series = QuerySeries(5)
    names = ['a "quoted" one', "back\\slash", "two\nlines", "100 %d", "ä"]
    for slot, name in enumerate(names):
        series.add(slot, query_record(slot, name=name, labels={}))
    assert [key[2] for key in samples(series) if key[0] == "braid_query_info"] == names


def test_labels_streams_and_deployment_of_a_query_are_told() -> None:
    series = QuerySeries(5)
    labels = {"team": "fraud", "cost-center": "7", "cost.center": "8", "cost_center": "ä"}
    streams = {"s-1": "purchases", "s-2": "ads"}
    query = query_record(
        1, name="whales", tenant="shop", labels=labels, stream_names=streams, deployed_us=1 + SECOND // 4
    )
    series.add(0, query)
    families = {f.name: f for f in text_string_to_metric_families(series.moment().text({}))}
    (info,) = families["braid_query_info"].samples
    assert info.labels == {
        "query_id": "q-1",
        "name": "whales",
        "tenant": "shop",
        "label_cost_center": "7",
        "label_cost_center_2": "8",
        "label_cost_center_3": "ä",
        "label_team": "fraud",
    }
    reads = [s.labels for s in families["braid_query_stream_info"].samples]
    assert reads == [{"query_id": "q-1", "stream": name} for name in ("purchases", "ads")]
    assert [s.value for s in families["braid_query_deployment_seconds"].samples] == [0.25]
    assert samples(series)["braid_query_cost_share_ratio", "q-1"] == 0.25


def test_a_window_in_several_partitions_is_one_and_a_session_is_in_one_partition() -> None:
    series = QuerySeries(2)
    series.add(0, query_record(0))
    series.add(1, query_record(2, query=aggregation(window=SessionWindow(SECOND))))
    series.add(2, query_record(4))
    partitions = [
        {"slots": [0, 1, 2], "counts": [9, 4, 1], "latest_event_us": [None] * 3, "windows": [2, 4, 1]},
        {"slots": [0, 1], "counts": [5, 3], "latest_event_us": [None] * 2, "windows": [3, 3]},
        {"slots": [2], "counts": [6], "latest_event_us": [None]},  # of a selection
    ]
    for _ in range(2):
        series.absorb({"started_us": 0, "committed_us": SECOND, "results": partitions})
    window_counts = {key[1]: value for key, value in samples(series).items() if key[0] == "braid_query_windows_total"}
    assert window_counts == {"q-0": 2 * 3, "q-2": 2 * (4 + 3), OTHER: 2}


def test_a_moment_stays_as_it_was() -> None:
    series = QuerySeries(5)
    series.add(0, query_record(1))
    moment = series.moment()
    before = moment.text({})
    series.absorb(batch([0], [1], [0]))
    series.remove(0)
    assert moment.text({}) == before
    assert series.moment().text({}) != before
