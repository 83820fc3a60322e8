"""Turns at planning: few at a time, and none for a client that is gone."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import orjson

from tests.api.rest import Rest, open_rest
from tests.kit.waiting import wait_until

_VALUES = ", ".join(map(str, range(2000)))
LARGE = {"sql": f"SELECT user_id FROM purchases WHERE user_id IN ({_VALUES})"}


def _send(rest: Rest, body: bytes) -> socket.socket:
    """Send a request and do not wait for its answer."""
    url = urlsplit(str(rest.client.base_url))
    sender = socket.create_connection((str(url.hostname), url.port or 80))
    head = f"POST /queries/validate HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
    sender.sendall(head.encode() + body)
    return sender


def _is_planning(rest: Rest) -> bool:
    return rest.service.turns.under_way > 0


def test_large_requests_beyond_those_that_may_wait_are_told_to_come_again(tmp_path: Path) -> None:
    with open_rest(tmp_path, max_planning=1, max_planning_waiting=1, max_body_bytes=1 << 30) as rest:
        rest.stream()
        endless = orjson.dumps([LARGE] * 10_000)
        with _send(rest, endless):
            wait_until(lambda: _is_planning(rest), 30, "the first has its turn")
            with _send(rest, endless):
                wait_until(lambda: rest.service.turns.waiting == 1, 30, "the second waits")
                refused = rest.client.post("/queries/validate", json=LARGE)
                assert refused.status_code == 429
                assert (
                    "at a time (setting max_planning), and 1 may wait for that (setting max_planning_waiting)"
                    in (refused.json()["detail"])
                )
                assert refused.headers["retry-after"] == "2"
                assert rest.client.post("/queries/validate", json={"sql": "SELECT user_id FROM purchases"}).is_success
        # both clients are gone: neither is planned any further
        wait_until(lambda: not _is_planning(rest) and not rest.service.turns.waiting, 60, "the turns are free")
        assert rest.client.post("/queries/validate", json=LARGE).is_success


def test_planning_ends_when_its_time_is_up(tmp_path: Path) -> None:
    with open_rest(tmp_path, planning_seconds=1e-6) as rest:
        rest.stream()
        for method, path in (("POST", "/queries"), ("POST", "/queries/validate"), ("POST", "/sql")):
            refused = rest.client.request(method, path, json=LARGE)
            assert refused.status_code == 429
            assert "within 1e-06 seconds (setting planning_seconds)" in refused.json()["detail"]


def test_planning_ends_when_the_service_stops(tmp_path: Path) -> None:
    answers: list[httpx.Response] = []
    with open_rest(tmp_path, max_body_bytes=1 << 30) as rest:
        rest.stream()
        body = orjson.dumps([LARGE] * 10_000)

        def validate() -> None:
            answers.append(httpx.post(f"{rest.client.base_url}/queries/validate", content=body, timeout=120))

        waiting = threading.Thread(target=validate)
        waiting.start()
        wait_until(lambda: _is_planning(rest), 30, "it is planned")
        rest.service.notifier.stop()
        waiting.join(60)
    assert answers[0].status_code == 503
