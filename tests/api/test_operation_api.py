"""Health, readiness, metrics, logs, and what the service says of itself."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from braid.api import logs
from braid.api.metrics.families import HISTOGRAM, SECTIONS
from braid.engine.spark.executors import Registered, write_registered
from braid.router.delivery.progress import PARTS, DeliveryProgress, part_of, write_alive, write_progress
from tests.api.rest import ALL, Rest, open_rest, tuple_at
from tests.kit.waiting import wait_until
from tests.router.batches import SECOND

CHART = Path(__file__).parents[2] / "helm" / "braid"
LINE = b'{"user_id": 1, "time": "2026-01-01T00:00:01Z"}\n'
NAMES = {
    f"{family.name}_bucket" if family.kind == HISTOGRAM else family.name
    for families in SECTIONS.values()
    for family in families
}


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A service with the test stream that has room for the series of two queries."""
    with open_rest(tmp_path, metrics_labelled_queries=2, executors_min=2, executors_max=3) as running:
        running.stream()
        yield running


def samples(rest: Rest) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the value of each sample by name and label values, which are in order of label names."""
    response = rest.client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def test_health_and_readiness(tmp_path: Path) -> None:
    with open_rest(tmp_path, why_not_ready="The Spark job is starting.") as rest:
        assert rest.get("/healthz") == {"alive": True}
        problem = rest.get("/readyz", 503)
        assert problem["detail"] == "The Spark job is starting."
        rest.stream()
        assert rest.post("/queries", {"sql": ALL})["state"] == "PENDING", "the session takes it already"
        assert samples(rest)["braid_ready", ()] == 0
    with open_rest(tmp_path) as rest:
        assert rest.get("/readyz") == {"ready": True}
        assert samples(rest)["braid_ready", ()] == 1


def test_head_is_get_without_a_body(rest: Rest) -> None:
    query = rest.query()["id"]
    for path in ("/healthz", "/queries", f"/queries/{query}", f"/queries/{query}/results"):
        head, full_answer = rest.client.head(path), rest.client.get(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == full_answer.headers["content-length"]
    assert rest.client.head(f"/queries/{query}/results/stream").status_code == 200, "it does not wait for rows"
    assert rest.client.head("/queries/q-99").status_code == 404


def test_every_metric_is_there_and_right(rest: Rest) -> None:
    query = rest.query(name="all")
    rest.client.post("/streams/purchases/events", content=LINE * 3, headers={"Content-Type": "application/x-ndjson"})
    stream = rest.service.session.streams.definition("purchases").id
    rest.commit(
        streams={stream: {"tuples": 2, "late": 1, "malformed": 4, "bytes": 99, "offsets": {"0": 2}}},
        clocks={stream: 5 * SECOND},
        watermarks={stream: 3 * SECOND},
        bytes={"state": 12},
    )
    work = {"busy_us": {query["operator"]: 1000}, "keys": {}}
    rest.commit(report={"sources": work, "partitions": work, "samples": {}})
    rest.commit(report={"sources": work, "partitions": work, "samples": {}})
    rest.select([tuple_at(1, user_id=1)] * 3, [query["slot"]])
    sinks = {
        f"q-{n}": DeliveryProgress(state="RETRYING", rows=n, errors=n, waiting_since_us=n * SECOND) for n in (2, 3, 4)
    }
    for query_id, progress in sinks.items():
        write_progress(rest.service.storage, part_of(query_id), {query_id: progress})
    write_alive(rest.service.storage, "1-1", range(PARTS), time.time_ns() // 1000)
    write_registered(rest.service.storage, Registered(1, 4, idle=False))
    values = samples(rest)
    assert {name for name, _ in values} >= NAMES
    assert values["braid_sinks", ("RETRYING",)] == 3
    assert values["braid_sink_rows_total", ("other",)] > 0
    assert sum(value for (name, _), value in values.items() if name == "braid_sink_rows_total") == 9
    assert len([name for name, _ in values if name == "braid_sink_errors_total"]) == 3, "two have room, one is other"
    assert values["braid_sink_lag_seconds", ("other",)] > 1e9
    assert not [name for name, _ in values if name.endswith("_created")]
    assert values["braid_queries", ("RUNNING",)] == 1
    assert values["braid_queries_created_total", ()] == 1
    assert values["braid_query_results_total", (query["id"],)] == 3
    assert values["braid_query_info", ("all", query["id"])] == 1
    assert values["braid_query_deployment_latency_seconds_count", ()] == 1
    assert values["braid_query_processing_time_latency_seconds_count", (query["id"],)] == 1
    assert values["braid_query_processing_time_latency_seconds_sum", (query["id"],)] == 0.5
    assert values["braid_stream_tuples_total", ("purchases",)] == 2
    assert values["braid_stream_late_total", ("purchases",)] == 1
    assert values["braid_stream_malformed_total", ("purchases",)] == 4
    assert values["braid_stream_bytes_total", ("purchases",)] == 99
    assert values["braid_stream_clock_seconds", ("purchases",)] == 5
    assert values["braid_stream_watermark_seconds", ("purchases",)] == 3
    assert values["braid_stream_lag_tuples", ("purchases",)] == 1
    assert values["braid_batches_total", ()] == rest.batches.seq
    assert (values["braid_executors", ()], values["braid_executors_wanted", ()]) == (1, 2)
    assert values["braid_batch_duration_seconds_count", ()] == rest.batches.seq
    assert values["braid_batch_tuples_sum", ()] == 2
    assert values["braid_queries_ended_total", ()] == 0
    assert values["braid_query_cost_share_ratio", (query["id"],)] == pytest.approx(1, rel=0.01)
    assert values["braid_query_stream_info", (query["id"], "purchases")] == 1
    assert values["braid_stream_query_tuples_total", ("purchases",)] == 2
    assert values["braid_stream_operator_tuples_total", ("purchases",)] == 2
    assert values["braid_latency_target_seconds", ()] == 10
    assert values["braid_sink_up", ("other",)] == 0
    assert values["braid_epoch", ()] == rest.service.session.epoch
    assert values["braid_result_log_bytes", ()] > 0


@pytest.mark.parametrize("asking", sorted(p for f in ("dashboards", "rules") for p in (CHART / f).iterdir()), ids=str)
def test_dashboards_and_rules_ask_for_metrics_that_are_served(asking: Path) -> None:
    metrics_named = set(re.findall(r"\bbraid_[a-z_]+", asking.read_text(encoding="utf-8")))
    assert metrics_named <= NAMES, "NAMES is what the test above finds at /metrics"


def test_event_time_latency_is_commit_minus_event_time(rest: Rest) -> None:
    query = rest.query()
    record = {"started_us": 9 * SECOND, "committed_us": 10 * SECOND}
    block = {"path": "results/none.arrow", "kind": "selection", "slots": [query["slot"]], "counts": [1]}
    rest.commit(results=[{**block, "latest_event_us": [8 * SECOND]}], **record)
    rest.commit(results=[{**block, "latest_event_us": [None]}], **record)
    values = samples(rest)
    name = "braid_query_event_time_latency_seconds"
    assert values[f"{name}_sum", (query["id"],)] == 2
    assert values[f"{name}_count", (query["id"],)] == 1
    assert values[f"{name}_bucket", ("1.0", query["id"])] == 0
    assert values[f"{name}_bucket", ("2.0", query["id"])] == 1
    assert values["braid_query_processing_time_latency_seconds_count", (query["id"],)] == 2


def test_delivery_latency_is_from_the_commit_of_rows_until_a_reader_has_them(rest: Rest) -> None:
    query = rest.query()
    path = f"/queries/{query['id']}/results"
    name = "braid_query_delivery_latency_seconds"
    rest.select([tuple_at(1, user_id=1)] * 3, [query["slot"]])
    cursor = rest.get(path)["cursor"]
    assert not [key for key in samples(rest) if key[0] == f"{name}_count"], "nobody read when this was committed"
    rest.select([tuple_at(2, user_id=1)] * 3, [query["slot"]])
    cursor = rest.get(path, params={"after": cursor, "limit": 2})["cursor"]
    assert not [key for key in samples(rest) if key[0] == f"{name}_count"], "a row of the batch is left"
    rest.get(path, params={"after": cursor})
    rest.get(path)
    values = samples(rest)
    assert values[f"{name}_count", (query["id"],)] == 1
    assert 0 < values[f"{name}_sum", (query["id"],)] < 30
    rest.select([tuple_at(3, user_id=1)], [query["slot"]])
    with rest.client.stream("GET", f"{path}/stream", params={"after": cursor}) as events:
        row_count = 0
        for line in events.iter_lines():
            row_count += line.startswith("data:")
            if row_count == 2:
                break
    assert samples(rest)[f"{name}_count", (query["id"],)] == 2
    rest.retire(query["id"])
    assert not [key for key in samples(rest) if key[0] == f"{name}_count"]


def test_queries_that_are_over_are_counted(rest: Rest) -> None:
    for query in [rest.query() for _ in range(2)]:
        rest.retire(query["id"])
    rest.query()
    values = samples(rest)
    assert values["braid_queries_ended_total", ()] == values["braid_queries_deleted_total", ()] == 2


def test_no_latency_target_is_no_series(tmp_path: Path) -> None:
    with open_rest(tmp_path, latency_target_seconds=0) as running:
        assert not [name for name, _ in samples(running) if name.startswith("braid_latency_target")]


def test_series_of_queries_are_bounded_and_go_with_the_query(rest: Rest) -> None:
    queries = [rest.query() for _ in range(4)]
    slots = [query["slot"] for query in queries]
    rest.select([tuple_at(1, user_id=1)], slots)

    def labelled() -> dict[str, float]:
        return {
            labels[0]: value for (name, labels), value in samples(rest).items() if name == "braid_query_results_total"
        }

    assert labelled() == {queries[0]["id"]: 1, queries[1]["id"]: 1, "other": 2}
    rest.retire(queries[0]["id"])
    assert labelled() == {queries[1]["id"]: 1, "other": 2}
    last = rest.query()
    assert last["slot"] == queries[0]["slot"]
    rest.select([tuple_at(2, user_id=1)], [last["slot"]])
    assert labelled() == {queries[1]["id"]: 1, last["id"]: 1, "other": 2}


def test_metrics_know_the_running_queries_after_a_restart(tmp_path: Path) -> None:
    with open_rest(tmp_path) as rest:
        rest.stream()
        query = rest.query(name="kept")
    with open_rest(tmp_path) as rest:
        rest.select([tuple_at(1, user_id=1)], [query["slot"]])
        values = samples(rest)
        assert values["braid_query_results_total", (query["id"],)] == 1
        assert values["braid_query_info", ("kept", query["id"])] == 1
        assert values["braid_queries_created_total", ()] == 1


def test_openapi_describes_every_call(rest: Rest) -> None:
    schema = rest.get("/openapi.json")
    assert schema["info"]["title"] == "Braid"
    calls = {(method.upper(), path) for path, operations in schema["paths"].items() for method in operations}
    assert calls == {
        ("POST", "/streams"),
        ("POST", "/streams/infer"),
        ("GET", "/streams"),
        ("GET", "/streams/{name}"),
        ("DELETE", "/streams/{name}"),
        ("POST", "/streams/{name}/events"),
        ("GET", "/streams/{name}/dead-letters"),
        ("POST", "/streams/{name}/watermark"),
        ("POST", "/tables"),
        ("GET", "/tables"),
        ("GET", "/tables/{name}"),
        ("DELETE", "/tables/{name}"),
        ("POST", "/tables/{name}/refresh"),
        ("POST", "/queries"),
        ("POST", "/queries/validate"),
        ("POST", "/queries/retire"),
        ("GET", "/queries"),
        ("GET", "/queries/{id}"),
        ("PUT", "/queries/{id}"),
        ("DELETE", "/queries/{id}"),
        ("POST", "/queries/{id}/pause"),
        ("POST", "/queries/{id}/resume"),
        ("GET", "/queries/{id}/results"),
        ("GET", "/queries/{id}/results/stream"),
        ("GET", "/queries/{id}/dead-letters"),
        ("GET", "/queries/{id}/plan"),
        ("GET", "/plan"),
        ("GET", "/changelogs"),
        ("POST", "/sql"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
        ("GET", "/whoami"),
        ("GET", "/keys"),
        ("POST", "/keys"),
        ("DELETE", "/keys/{id}"),
        ("GET", "/tenants"),
        ("GET", "/tenants/{name}"),
        ("PUT", "/tenants/{name}"),
        ("DELETE", "/tenants/{name}"),
    }
    for path, operations in schema["paths"].items():
        for method, call in operations.items():
            assert call["description"], (method, path)
            assert "ValidationError" not in str(call["responses"])
            if method in ("post", "put") and path != "/keys":  # whose answer is told once
                assert ("requestBody" in call) == (not path.endswith(("/pause", "/resume", "/refresh"))), path
                assert "Idempotency-Key" in [p["name"] for p in call["parameters"]]
    assert rest.client.get("/docs").status_code == 200


def test_examples_of_the_documentation_work(rest: Rest) -> None:
    from braid.api.routes.documents import CREATE_STREAM, EVENTS, SELECT

    assert rest.client.delete("/streams/purchases").status_code == 204
    rest.stream(CREATE_STREAM)
    rest.post("/queries", {"sql": SELECT})
    headers = {"Content-Type": "application/x-ndjson"}
    answer = rest.client.post("/streams/purchases/events", content=EVENTS, headers=headers)
    assert rest.read(answer, 200) == {"accepted": 1, "rejected": 0, "errors": []}


def test_a_log_line_is_one_json_object() -> None:
    formatter = logs.JsonFormatter()
    try:
        raise ValueError("a\nb")
    except ValueError:
        record = logging.LogRecord("braid.x", logging.INFO, "", 0, "it %s", ("broke",), sys.exc_info())
    record.fields = {"query_id": "q-1", "epoch": None}
    line = formatter.format(record)
    assert "\n" not in line
    event = orjson.loads(line)
    assert (event["event"], event["level"], event["query_id"]) == ("it broke", "info", "q-1")
    assert "epoch" not in event
    assert "ValueError" in event["exception"]


def test_a_log_line_in_a_terminal_is_for_people() -> None:
    formatter = logs.TextFormatter()
    record = logging.LogRecord("braid.x", logging.WARNING, "", 0, "it %s", ("broke",), None)
    record.created = 1_700_000_000.9
    record.fields = {"query_id": "q-1", "epoch": None, "error": "two\nlines", "queries": [1, 2]}
    assert formatter.format(record) == '22:13:20 warning it broke  query_id=q-1  error="two\\nlines"  queries=[1,2]'
    try:
        raise ValueError("a")
    except ValueError:
        record.exc_info = sys.exc_info()
    assert formatter.format(record).splitlines()[-1] == "ValueError: a"


def test_requests_are_logged_at_debug_level(rest: Rest, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "braid.requests"):
        rest.get("/queries/q-9", 404)
        wait_until(lambda: caplog.records, 5, "the line is there")
    fields = caplog.records[0].fields  # type: ignore[attr-defined]
    assert (fields["method"], fields["path"], fields["status"]) == ("GET", "/queries/q-9", 404)
