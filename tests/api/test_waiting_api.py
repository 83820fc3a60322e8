"""`waiting_for` and `open_window` over REST: where they are shown, and that one goes once there are rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.rest import ALL, SUMS, Rest, open_rest, tuple_at
from tests.kit.waiting import wait_until
from tests.router.batches import SECOND


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A service with the test stream."""
    with open_rest(tmp_path) as running:
        running.stream()
        yield running


def reason(rest: Rest, query_id: str) -> str | None:
    """Return why a query has no row, which lists and look-ups say alike."""
    waiting_for = rest.get(f"/queries/{query_id}")["waiting_for"]
    (listed,) = [query for query in rest.get("/queries")["queries"] if query["id"] == query_id]
    assert listed["waiting_for"] == waiting_for
    return None if waiting_for is None else str(waiting_for["reason"])


def read(rest: Rest, second: int, **counts: int) -> None:
    """Commit a batch that read tuples up to a second of event time."""
    stream = rest.service.session.streams.definition("purchases").id
    counted = {stream: {"tuples": 1, "late": 0, "malformed": 0, "bytes": 1, **counts}}
    times = {"clocks": {stream: second * SECOND}, "watermarks": {stream: (second - 2) * SECOND}}
    rest.commit(streams=counted, **times, fired=times["watermarks"])


def test_a_query_says_what_it_waits_for_until_it_has_rows(rest: Rest) -> None:
    accepted = rest.post("/queries", {"sql": SUMS})
    assert accepted["waiting_for"]["reason"] == "pending"
    query = rest.run(accepted["id"])
    assert reason(rest, query["id"]) == "no_tuple"
    stream = rest.service.session.streams.definition("purchases").id
    rest.commit(streams={stream: {"tuples": 0, "late": 0, "malformed": 3, "bytes": 1}})
    assert reason(rest, query["id"]) == "malformed"
    read(rest, 3)
    waiting_for = rest.get(f"/queries/{query['id']}")["waiting_for"]
    assert waiting_for == {
        "reason": "watermark",
        "detail": "The watermark of stream purchases is 1970-01-01T00:00:01.000000Z, before"
        " 1970-01-01T00:00:04.000000Z, where the window ends. A row with a time from 1970-01-01T00:00:06.000000Z on"
        " moves it there; braid push purchases --end (POST /streams/purchases/watermark"
        ' {"end": true}) says that no more rows come. Windows before that had no row, or WHERE and HAVING let none'
        " through.",
        "stream": "purchases",
        "watermark": "1970-01-01T00:00:01.000000Z",
        "window_end": "1970-01-01T00:00:04.000000Z",
    }
    rest.read(rest.client.post(f"/queries/{query['id']}/pause"), 202)
    assert reason(rest, query["id"]) == "paused"


def test_a_query_with_rows_says_which_window_is_open(rest: Rest) -> None:
    query = rest.query(SUMS)
    stream = rest.service.session.streams.definition("purchases").id
    assert rest.get(f"/queries/{query['id']}")["open_window"] is None
    block = {"path": "results/none.arrow", "kind": "aggregation", "slots": [query["slot"]], "counts": [1]}
    times = {"clocks": {stream: 9 * SECOND}, "watermarks": {stream: 7 * SECOND}}
    rest.commit(results=[{**block, "latest_event_us": [7 * SECOND]}], **times)
    shown = rest.get(f"/queries/{query['id']}")
    assert shown["waiting_for"] is None
    detail = shown["open_window"].pop("detail")
    assert detail.startswith(
        "The watermark of stream purchases is 1970-01-01T00:00:07.000000Z, before 1970-01-01T00:00:08"
    )
    assert shown["open_window"] == {
        "stream": "purchases",
        "watermark": "1970-01-01T00:00:07.000000Z",
        "window_end": "1970-01-01T00:00:08.000000Z",
    }


def test_what_came_before_a_query_is_counted(rest: Rest) -> None:
    read(rest, 5, tuples=7)
    stream = rest.service.session.streams.definition("purchases").id
    query = rest.post("/queries", {"sql": ALL})
    wait_until(lambda: rest.get(f"/queries/{query['id']}")["epoch"], 10, "the query has an epoch")
    rest.commit(clocks_at_start={stream: 5 * SECOND})
    waiting_for = rest.get(f"/queries/{query['id']}")["waiting_for"]
    assert "7 were read, none later than 1970-01-01T00:00:05.000000Z" in waiting_for["detail"]
    read(rest, 6)
    assert reason(rest, query["id"]) == "filtered"
    rest.select([tuple_at(6, user_id=1)], [rest.get(f"/queries/{query['id']}")["slot"]])
    assert reason(rest, query["id"]) is None


def test_a_query_that_is_over_without_rows_says_so(rest: Rest) -> None:
    query = rest.query()
    rest.retire(query["id"])
    assert reason(rest, query["id"]) == "ended"
    rest.service.session.write_snapshot()  # it is in the archive now
    assert reason(rest, query["id"]) == "ended"


def test_recorded_data_has_no_latency(rest: Rest) -> None:
    query = rest.query()
    block = {"path": "results/none.arrow", "kind": "selection", "slots": [query["slot"]], "counts": [1]}
    day = 86_400 * SECOND
    for event_us, latency in ((0, None), (5 * day + 1, 86_399.999999), (6 * day + SECOND, -1.0), (7 * day, None)):
        rest.commit(results=[{**block, "latest_event_us": [event_us]}], committed_us=6 * day)
        assert rest.get(f"/queries/{query['id']}")["event_time_latency_seconds"] == latency
    metrics = rest.client.get("/metrics").text
    assert f'braid_query_event_time_latency_seconds_count{{query_id="{query["id"]}"}} 2' in metrics
    assert f'braid_query_results_total{{query_id="{query["id"]}"}} 4' in metrics
