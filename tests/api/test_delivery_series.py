"""Delivery latency and sinks as Prometheus reads them, against what readers and deliverers tell."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from braid.api.metrics.delivery_series import DeliverySeries
from braid.api.metrics.query_series import OTHER
from braid.router.delivery.progress import DELIVERING, DONE, RETRYING, DeliveryProgress
from braid.session.upkeep.deliveries import STALLED
from tests.session.records import record

SECOND = 1_000_000
LATENCY = "braid_query_delivery_latency_seconds"
SINK = {"connector": "file", "path": "rows"}


def samples(series: DeliverySeries, states: dict[str, str] | None = None) -> dict[tuple[str, ...], float]:
    """Return the value of each sample by name and label values."""
    families = list(text_string_to_metric_families(series.text(states or {})))
    assert [(family.name, family.type) for family in families] == [
        (LATENCY, "histogram"),
        ("braid_sink_rows", "counter"),
        ("braid_sink_errors", "counter"),
        ("braid_sink_refused", "counter"),
        ("braid_sink_lag_seconds", "gauge"),
        ("braid_sink_up", "gauge"),
    ]
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def sink(
    rows: int = 0, latencies: tuple[int, ...] = (), errors: int = 0, refused: int = 0, state: str = DELIVERING
) -> DeliveryProgress:
    """Return what a deliverer tells that has delivered batches after some seconds each."""
    progress = DeliveryProgress(state=state, rows=rows, errors=errors, refused=refused)
    for seconds in latencies:
        progress.count_latency(seconds * SECOND)
    return progress


def test_a_batch_counts_once_for_who_reads_it_first() -> None:
    series, query = DeliverySeries(5), record(1)
    series.read(query, 7, {5: 0, 7: 0}, now_us=900 * SECOND)
    assert not samples(series), "what was there before anybody read says nothing of delivery"
    series.read(query, 9, {8: 0, 9: SECOND}, now_us=3 * SECOND)
    series.read(query, 9, {8: 0, 9: SECOND}, now_us=50 * SECOND)
    series.read(query, 10, {9: SECOND, 10: 2 * SECOND}, now_us=6 * SECOND)
    values = samples(series)
    assert values[f"{LATENCY}_count", "q-1"] == 3
    assert values[f"{LATENCY}_sum", "q-1"] == 3 + 2 + 4
    assert [values[f"{LATENCY}_bucket", "q-1", bound] for bound in ("1.0", "2.0", "5.0", "+Inf")] == [0, 1, 3, 3]
    series.leave("q-1")
    assert not samples(series)
    series.read(query, 11, {11: 0}, now_us=SECOND)
    assert not samples(series), "it begins anew"


def test_readers_of_a_query_with_a_sink_do_not_count() -> None:
    series, query = DeliverySeries(5), record(1, sink=SINK)
    series.read(query, 7, {}, now_us=0)
    series.read(query, 8, {8: 0}, now_us=SECOND)
    assert not samples(series)
    logged = record(2, sink="log")
    series.read(logged, 7, {}, now_us=0)
    series.read(logged, 8, {8: 0}, now_us=SECOND)
    assert samples(series)[f"{LATENCY}_count", "q-2"] == 1


def test_sinks_are_told_as_deliverers_tell_them_until_all_is_delivered() -> None:
    series = DeliverySeries(5)
    series.follow({"q-1": sink(), "q-2": sink(rows=9, state=DONE)})
    assert samples(series, {"q-1": DELIVERING})["braid_sink_up", "q-1"] == 1
    series.follow({"q-1": sink(rows=7, latencies=(1, 4), errors=2, refused=4, state=RETRYING)})
    series.leave("q-1")
    values = samples(series, {"q-1": RETRYING})
    assert {
        name[0]: value for name, value in values.items() if name[0].startswith("braid_sink") and name[1] == "q-1"
    } == {
        "braid_sink_rows_total": 7,
        "braid_sink_errors_total": 2,
        "braid_sink_refused_total": 4,
        "braid_sink_lag_seconds": 0,
        "braid_sink_up": 0,
    }
    assert (values[f"{LATENCY}_count", "q-1"], values[f"{LATENCY}_sum", "q-1"]) == (2, 5)
    series.follow({"q-1": sink(rows=8, latencies=(1, 4, 9), errors=2, state=DONE)})
    assert not samples(series)
    series.follow({"q-1": sink(rows=8, latencies=(1, 4, 9), errors=2, state=DONE)})
    assert not samples(series)


def test_series_are_bounded_and_those_of_all_others_never_fall() -> None:
    series = DeliverySeries(1)
    progress = {"q-1": sink(rows=1), "q-2": sink(rows=10, latencies=(1,)), "q-3": sink(rows=100, errors=3)}
    states = {"q-1": DELIVERING, "q-2": STALLED, "q-3": DELIVERING}
    series.follow(progress)
    series.follow(progress)
    values = samples(series, states)
    rows = "braid_sink_rows_total"
    assert (values[rows, "q-1"], values[rows, OTHER], values["braid_sink_up", OTHER]) == (1, 110, 0)
    series.follow({"q-1": progress["q-1"], "q-2": sink(rows=15, latencies=(1, 1), state=DONE), "q-3": progress["q-3"]})
    values = samples(series, states)
    assert (values[rows, OTHER], values["braid_sink_up", OTHER], values[f"{LATENCY}_count", OTHER]) == (115, 1, 2)
    series.follow({"q-3": progress["q-3"]})
    assert (rows, "q-1") not in samples(series, states), "the log of deliveries has forgotten it"
    series.follow({"q-3": progress["q-3"], "q-4": sink(rows=2)})
    values = samples(series, {**states, "q-4": DELIVERING})
    assert (values[rows, "q-4"], values[rows, OTHER]) == (2, 115)
