"""A webhook for tests: a real HTTP server that notes what is posted to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver(ThreadingHTTPServer):
    """Answers with ``answer``, a status and headers; ``posted`` are headers (in lower case) and bodies.

    A body that has a row which ``refuses`` says True of is answered ``refusal``.
    """

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer: tuple[int, dict[str, str]] = (204, {})
        self.refusal = 422
        self.refuses: Callable[[dict[str, Any]], bool] = lambda _: False
        self.posted: list[tuple[dict[str, str], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/rows"

    @property
    def rows(self) -> list[tuple[str, dict[str, Any]]]:
        """The rows that came, each with its id, as often as it came."""
        bodies = [json.loads(body) for _, body in self.posted]
        return [row for body in bodies for row in zip(body["ids"], body["rows"], strict=True)]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        receiver = self.server
        assert isinstance(receiver, Receiver)
        status, headers = receiver.answer
        if status < 300 and any(map(receiver.refuses, json.loads(body).get("rows", ()))):
            status = receiver.refusal
        if status < 300:
            receiver.posted.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """Run a receiver."""
    with Receiver(port) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
