"""A service that several measurements use: given again when it is empty, ended when it cannot be emptied or failed.

The process is real; the program in it answers REST calls from memory and starts in no time.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from bench_driver import reused_service
from bench_driver.reused_service import ReusedServices
from bench_driver.service_process import ServiceProcess
from tests.kit.waiting import wait_until

SECONDS = 20.0

# `POST /queries`, `/streams` and `/tables` take what is posted as it is; STUBBORN: queries are not retired. A changelog
# is active when `/metrics` was asked for once after it
PROGRAM = f"""#!{sys.executable}
import http.server, json, os, sys, urllib.parse

queries, streams, tables, changelogs, active = {{}}, {{}}, {{}}, [], [0]
kinds = {{"queries": (queries, "id"), "streams": (streams, "name"), "tables": (tables, "name")}}

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, body):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def do_GET(self):
        address = urllib.parse.urlsplit(self.path)
        wanted = dict(urllib.parse.parse_qsl(address.query)).get("state")
        if address.path == "/metrics":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"# HELP braid_epoch E\\nbraid_epoch {{active[0]:.1f}}\\nbraid_epochs 9.0\\n".encode())
            active[0] = len(changelogs)
            return
        if address.path == "/changelogs":
            after = int(dict(urllib.parse.parse_qsl(address.query))["after"])
            return self.answer({{"changelogs": changelogs[after:]}})
        if address.path == "/streams":
            return self.answer({{"streams": list(streams.values())}})
        if address.path == "/tables":
            return self.answer({{"tables": list(tables.values())}})
        self.answer({{"queries": [q for q in queries.values() if wanted in (None, q["state"])]}})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind, key = kinds[self.path.strip("/")]
        kind[body[key]] = body
        self.answer(body)

    def do_DELETE(self):
        address = urllib.parse.urlsplit(self.path)
        kind, name = address.path.strip("/").split("/")
        if kind == "streams" and any(query["state"] != "RETIRED" for query in queries.values()):
            return self.send_error(409)
        if kind == "streams":
            del streams[name]
            changelogs.append({{"epoch": len(changelogs) + 1}})
        elif kind == "tables":
            del tables[name]
        elif not os.environ.get("STUBBORN"):
            queries[name]["state"] = "RETIRED"
            queries[name]["drain"] = address.query
        self.answer(None)

    def log_message(self, *_):
        pass

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the program above instead of Braid; folders are below the test's own."""
    path = tmp_path / "python"
    path.write_text(PROGRAM)
    path.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def services() -> Iterator[ReusedServices]:
    with ReusedServices() as reused:
        yield reused


def use(service: ServiceProcess) -> None:
    """Start a service and leave something in it."""
    service.start()
    service.wait_ready()
    for query, state in enumerate(("PENDING", "RUNNING", "DRAINING", "RETIRED")):
        post(service, "/queries", {"id": f"q-{query}", "state": state})
    post(service, "/streams", {"name": "purchases"})
    post(service, "/tables", {"name": "packs"})


def post(service: ServiceProcess, path: str, body: dict[str, str]) -> None:
    httpx.post(service.url + path, json=body, trust_env=False).raise_for_status()


def get(service: ServiceProcess, path: str) -> Any:
    return httpx.get(service.url + path, trust_env=False).json()


def active_epoch(service: ServiceProcess) -> int:
    text = httpx.get(f"{service.url}/metrics", trust_env=False).text
    return int(float(text.split("\nbraid_epoch ")[1].split()[0]))


def folders(tmp_path: Path) -> list[Path]:
    return list(tmp_path.glob("braid-*"))


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def pid_of(service: ServiceProcess) -> int:
    """Return the process that listens at the service's port."""
    (pid,) = {c.pid for c in psutil.net_connections("tcp4") if c.laddr.port == service.port and c.status == "LISTEN"}
    assert pid is not None
    return int(pid)


def test_a_service_is_emptied_and_given_again(services: ReusedServices) -> None:
    first = services.make("bench", {"A": "1"})
    use(first)
    pid = pid_of(first)
    first.stop()
    queries = get(first, "/queries")["queries"]
    assert [query["state"] for query in queries] == ["RETIRED"] * 4
    assert [query.get("drain") for query in queries] == ["drain=false"] * 3 + [None]
    assert get(first, "/streams") == {"streams": []}
    assert get(first, "/tables") == {"tables": []}
    assert active_epoch(first) == 1, "the job must have done without the stream before its source may go"
    second = services.make("other", {"A": "1"})
    assert second is first
    second.start()
    assert second.wait_ready() > 0
    assert pid_of(second) == pid


def test_a_service_that_runs_for_long_is_ready_again(services: ReusedServices) -> None:
    first = services.make("bench", {})
    use(first)
    first.stop()
    first.started_at -= 3600
    assert services.make("bench", {}).start().wait_ready(SECONDS) < SECONDS


def test_another_environment_needs_another_service(services: ReusedServices, tmp_path: Path) -> None:
    first = services.make("bench", {"A": "1"})
    use(first)
    pid = pid_of(first)
    first.stop()
    second = services.make("bench", {"A": "2"})
    assert second is not first
    assert gone(pid)
    assert len(folders(tmp_path)) == 1
    use(second)


@pytest.mark.parametrize("killed", [True, False])
def test_a_service_that_failed_is_not_given_again(services: ReusedServices, tmp_path: Path, killed: bool) -> None:
    first = services.make("bench", {})
    use(first)
    pid = pid_of(first)
    if killed:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: gone(pid), SECONDS, "it is killed")
    first.stop(keep_logs=not killed)
    assert first.log.exists()
    assert gone(pid)
    second = services.make("bench", {})
    assert second is not first
    use(second)
    assert len(folders(tmp_path)) == 2  # the first one's log stays


def test_a_service_that_cannot_be_emptied_is_ended(
    services: ReusedServices, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reused_service, "EMPTY_SECONDS", 0.2)
    first = services.make("bench", {"STUBBORN": "1"})
    use(first)
    pid = pid_of(first)
    first.stop()
    assert gone(pid)
    assert folders(tmp_path) == []
    assert services.make("bench", {"STUBBORN": "1"}) is not first


def test_leaving_the_context_ends_the_service(tmp_path: Path) -> None:
    with ReusedServices() as services:
        service = services.make("bench", {})
        use(service)
        pid = pid_of(service)
        service.stop()
        assert not gone(pid)
    assert gone(pid)
    assert folders(tmp_path) == []
    service.stop()  # harmless


def test_nothing_is_started_that_nobody_wants(tmp_path: Path) -> None:
    with ReusedServices():
        pass
    assert folders(tmp_path) == []
