"""Slow, large and many requests: each is ended or refused by its limit, and others are answered meanwhile."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from braid.api.http.connections import SLOWEST
from tests.api.rest import STREAM, Rest, open_rest
from tests.kit.waiting import wait_until

PATIENCE = 0.4
LONG = 20.0  # for what must happen at once; the machine may be busy
HEAD = b"POST /streams/purchases/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    folder = tmp_path_factory.mktemp("slow")
    with open_rest(folder, request_timeout_seconds=PATIENCE, max_header_bytes=8192, max_connections=4) as running:
        running.stream(STREAM)
        yield running


@contextmanager
def connected(rest: Rest) -> Iterator[socket.socket]:
    with socket.create_connection((rest.client.base_url.host, rest.client.base_url.port or 0), LONG) as client:
        yield client


def answer(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Return what is answered before the connection ends: status, headers in lower case, body."""
    parts = []
    with suppress(ConnectionResetError):
        while part := client.recv(65536):
            parts.append(part)
    head, _, body = b"".join(parts).partition(b"\r\n\r\n")
    if not head:
        return 0, {}, b""
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(first.split()[1]), headers, body


def trickle(client: socket.socket, piece: bytes) -> None:
    """Send a piece again and again, far more slowly than is allowed, until nobody listens."""
    until = time.monotonic() + LONG
    with suppress(OSError):
        while time.monotonic() < until:
            client.sendall(piece)
            threading.Event().wait(0.05)


@contextmanager
def trickling(client: socket.socket, piece: bytes) -> Iterator[None]:
    sender = threading.Thread(target=trickle, args=(client, piece))
    sender.start()
    try:
        yield
    finally:
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        sender.join()


def check_problem(found: tuple[int, dict[str, str], bytes], status: int, said: str) -> None:
    code, headers, body = found
    assert code == status
    assert headers["content-type"] == "application/problem+json"
    assert headers["connection"] == "close"
    assert headers["x-content-type-options"] == "nosniff"
    document = json.loads(body)
    assert document["status"] == status
    assert said in document["detail"]


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        pytest.param(b"GET /healthz HTTP/1.1\r\n", b"X-A: b\r\n", id="head"),
        pytest.param(HEAD + b"Content-Length: 1000000\r\n\r\n", b"x", id="body"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", id="chunked body"),
    ],
)
def test_a_request_that_trickles_is_ended(rest: Rest, head: bytes, piece: bytes) -> None:
    with connected(rest) as client:
        client.sendall(head)
        with trickling(client, piece):
            check_problem(answer(client), 408, "setting request_timeout_seconds")
    assert rest.get("/streams/purchases")["tuples"] == 0


def test_a_connection_that_says_nothing_is_ended(rest: Rest) -> None:
    with connected(rest) as client:
        assert answer(client) == (0, {}, b"")


def test_a_second_request_is_watched_as_the_first(rest: Rest) -> None:
    with connected(rest) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET /healthz HTTP/1.1\r\n")
        with trickling(client, b"X-A: b\r\n"):
            check_problem(answer(client), 408, "setting request_timeout_seconds")


def test_a_body_that_is_fast_enough_is_waited_for(rest: Rest) -> None:
    """It takes longer than the grace, and comes at the pace that is asked for."""
    body = b"[]\n" + b"\n" * round(4 * PATIENCE * SLOWEST)
    with connected(rest) as client:
        client.sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        began = time.monotonic()
        for low in range(0, len(body), 512):
            client.sendall(body[low : low + 512])
            threading.Event().wait(max(0.0, began + low / SLOWEST - time.monotonic()))
        assert time.monotonic() - began > 2 * PATIENCE
        status, _, said = answer(client)
    assert (status, json.loads(said)["rejected"]) == (200, 1)


def test_a_long_wait_is_no_slow_client(rest: Rest) -> None:
    query = rest.post("/queries", {"sql": "SELECT * FROM purchases"})
    began = time.monotonic()
    assert rest.get(f"/queries/{query['id']}/results?wait={4 * PATIENCE}")["rows"] == []
    assert time.monotonic() - began >= 4 * PATIENCE


def test_who_does_not_take_answers_is_left(rest: Rest) -> None:
    """Answers of 1.5 MB, more of them than systems keep for a connection, must not be kept for ever."""
    with connected(rest) as client:
        client.sendall(b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
        watch = select.poll()
        watch.register(client, 0)
        wait_until(lambda: watch.poll(0), LONG, "the connection is ended")
    assert rest.get("/healthz") == {"alive": True}


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 9000, 431, "at most 8192 bytes"),
        (b"GET /" + b"a" * 9000, 431, "setting max_header_bytes"),
        (b"nonsense\r\n\r\n", 400, "must be HTTP/1.1"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "must be HTTP/1.1"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400, "must be HTTP/1.1"),
    ],
)
def test_what_is_no_request_is_refused_with_a_problem_document(rest: Rest, sent: bytes, status: int, said: str) -> None:
    with connected(rest) as client:
        client.sendall(sent)
        check_problem(answer(client), status, said)


def test_more_requests_than_are_allowed_come_again_later_and_probes_do_not(rest: Rest) -> None:
    query = rest.post("/queries", {"sql": "SELECT * FROM purchases WHERE price < 0"})
    waits = f"GET /queries/{query['id']}/results?wait=30 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with ExitStack() as stack:

        def one_more() -> Any:
            stack.enter_context(connected(rest)).sendall(waits)
            return is_refused(rest)

        refused = wait_until(one_more, LONG, "requests are refused")
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["type"] == "urn:braid:problem:overloaded"
        assert rest.client.get("/healthz").status_code == 200
    wait_until(lambda: not is_refused(rest), LONG, "those that wait have left")


def is_refused(rest: Rest) -> Any:
    answered = rest.client.get("/streams")
    return answered if answered.status_code == 429 else None


def test_more_connections_than_are_allowed_are_ended(tmp_path: Path) -> None:
    with open_rest(tmp_path, max_connections=4) as patient, ExitStack() as stack:
        for _ in range(8):  # as many, and as many to spare
            stack.enter_context(connected(patient))
        status, headers, body = answer(stack.enter_context(connected(patient)))
        assert (status, headers["retry-after"]) == (503, "1")
        assert "At most 8 connections may be open" in json.loads(body)["detail"]


def test_a_client_that_leaves_in_the_middle_is_no_defect(rest: Rest, caplog: pytest.LogCaptureFixture) -> None:
    with connected(rest) as client:
        client.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
        client.shutdown(socket.SHUT_RDWR)
    assert rest.get("/healthz") == {"alive": True}
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/streams/purchases/events", b"Transfer-Encoding: chunked\r\n", 413),
        ("/streams/purchases/events", b"Content-Length: 10000000000\r\n", 413),
        ("/streams/nobodys/events", b"Content-Length: 10000000000\r\n", 404),
        ("/streams/purchases/events", b"Content-Length: 10000000000\r\nContent-Encoding: gzip\r\n", 413),
    ],
)
def test_who_goes_on_sending_after_the_answer_is_cut_off(
    tmp_path: Path, path: str, headers: bytes, status: int
) -> None:
    with open_rest(tmp_path, max_body_bytes=1000) as small, connected(small) as client:
        small.stream(STREAM)
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n".encode() + headers + b"\r\n")
        piece = b"800\r\n" + b"x" * 0x800 + b"\r\n" if b"chunked" in headers else b"x" * 2048
        client.sendall(piece)
        code, answered, _ = answer(client)
        assert code == status
        assert answered["connection"] == "close"
        wait_until(lambda: is_cut_off(client, piece), LONG, "nobody listens any more")
        assert small.get("/healthz") == {"alive": True}


def test_bodies_have_so_much_room_together(tmp_path: Path) -> None:
    with open_rest(tmp_path, max_body_bytes=100_000, body_memory_bytes=150_000) as small, connected(small) as client:
        small.stream(STREAM)
        client.sendall(HEAD + b"Content-Length: 90000\r\n\r\n" + b" " * 80_000)
        body = b" " * 80_000
        headers = {"Content-Type": "application/x-ndjson"}

        def status() -> int:
            return small.client.post("/streams/purchases/events", content=body, headers=headers).status_code

        wait_until(lambda: status() == 429, LONG, "the first body has come")
        refused = small.client.post("/streams/purchases/events", content=body, headers=headers)
        assert "at most 150000 bytes together (setting body_memory_bytes)" in refused.json()["detail"]
        assert refused.headers["retry-after"] == "1"
        client.sendall(b" " * 10_000)
        wait_until(lambda: status() == 200, LONG, "the first body is answered")


def is_cut_off(client: socket.socket, piece: bytes) -> bool:
    """Send a piece; whether the other end refuses it."""
    try:
        client.sendall(piece)
    except OSError:
        return True
    return False


def test_a_socket_is_not_upgraded(rest: Rest) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x"}
    assert rest.client.get("/healthz", headers=upgrade).status_code == 200


def test_limits_are_of_the_settings(tmp_path: Path) -> None:
    with open_rest(tmp_path, max_body_bytes=100, max_queries=2) as small:
        assert small.post("/queries", {"sql": "SELECT 1" + " " * 100}, 413)["status"] == 413
        assert small.post("/queries/retire", {"ids": ["a", "b", "c"]}, 413)["status"] == 413
