"""A schema registry for tests: the part of its protocol that readers use, by HTTP on a free port."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RegistryServer:
    """Answers ``schemas`` by id and ``subjects`` by (name, version); ``status`` other than 200 is answered to all.

    ``asked`` are the paths of all requests. Stopped and started again it is at the same place.
    """

    def __init__(self, user_info: str = "") -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[tuple[str, int], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.status = 200
        self._expected = f"Basic {b64encode(user_info.encode()).decode()}" if user_info else None
        self._server = self._listen(0)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, path: str, authorization: str | None) -> tuple[int, dict[str, Any]]:
        """Return status and body for a path."""
        self.asked.append(path)
        if self._expected is not None and authorization != self._expected:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if self.status != 200:
            return self.status, {"error_code": 50001, "message": "the store does not answer"}
        parts = path.strip("/").split("/")
        document = (
            self.schemas.get(int(parts[2])) if parts[0] == "schemas" else self.subjects.get((parts[1], int(parts[3])))
        )
        return (404, {"error_code": 40403, "message": "Schema not found"}) if document is None else (200, document)

    def stop(self) -> None:
        """Answer nothing any more."""
        self._server.shutdown()
        self._server.server_close()

    def start(self) -> None:
        """Answer again."""
        self._server = self._listen(int(self.url.rpartition(":")[2]))

    def _listen(self, port: int) -> ThreadingHTTPServer:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, answer = registry.answer(self.path, self.headers.get("Authorization"))
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server
