"""The running service's handling of processes, tried on a small server with a child of its own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.client import Api
from tests.kit.service import RunningService, ServiceFailedError

# answers every GET, and has a child in a process group of its own, as PySpark's daemon is
SERVER = """
import http.server, subprocess, sys
wait = "import os, signal; os.setpgid(0, 0); signal.pause()"
subprocess.Popen([sys.executable, "-c", wait])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{"path": "%s"}' % self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))  # an answer that is cut off must not look whole
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class SmallServer(RunningService):
    """A server that starts in no time."""

    def command(self) -> list[str]:
        """Return the command line of the small server."""
        return [sys.executable, "-c", SERVER, str(self.port)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SmallServer]:
    running = SmallServer(tmp_path / "data", tmp_path / "log")
    yield running
    running.end_everything()


def test_a_kill_leaves_children_and_end_everything_does_not(server: SmallServer) -> None:
    server.start()
    (child,) = server.descendants()
    server.kill()
    assert not server.alive()
    assert child.is_running()
    assert [process.pid for process in server.left_over()] == [child.pid]
    server.restart()
    assert len(server.left_over()) == 3
    server.end_everything()
    assert server.left_over() == []


def test_a_client_revives_the_service_that_is_killed_under_it(server: SmallServer) -> None:
    server.start()
    with Api(server.url, on_unreachable=server.revive) as api:
        for kill in range(3):
            timer = threading.Timer(0.02 * kill, server.kill)
            timer.start()
            for request in range(50):
                assert api.get(f"/{request}") == {"path": f"/{request}"}
            timer.join()
            server.revive()
    assert server.starts == 4
    assert server.stop() != 0  # it has no handler for SIGTERM
    assert not server.alive()


def test_a_service_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    class Broken(RunningService):
        def command(self) -> list[str]:
            return [sys.executable, "-c", "print('no such table'); raise SystemExit(3)"]

    broken = Broken(tmp_path / "data", tmp_path / "log")
    with pytest.raises(ServiceFailedError, match=r"(?s)it exited with 3.*no such table"):
        broken.start()
    assert not broken.alive()
