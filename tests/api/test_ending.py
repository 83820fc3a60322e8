"""Ending in time, whatever goes on."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import psutil

from tests.kit.service import RunningService
from tests.kit.waiting import wait_until

STREAM = "CREATE STREAM s (v INT, time TIMESTAMP LATENESS INTERVAL '1' SECOND) WITH (connector = 'push')"
DEAF = """
import sys, time
from pathlib import Path
from api import serve
from session.supervisor import Supervisor

serve.END_SECONDS = 0.1
child = Supervisor("child", [sys.executable, "-c", "import signal, time; time.sleep(1000)"], Path(sys.argv[1]))
child.start()
print(child.pid, flush=True)
serve._end_in_time([child])
while True:
    time.sleep(1)
"""


def test_what_does_not_stop_is_killed_with_its_children(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DEAF, str(tmp_path / "child.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as deaf:
        assert deaf.stdout is not None
        child = psutil.Process(int(deaf.stdout.readline()))
        assert deaf.wait(60) == 0
        with contextlib.suppress(psutil.NoSuchProcess):
            child.wait(60)
        assert not child.is_running()


def test_a_service_ends_while_its_job_is_stopped_and_clients_wait(tmp_path: Path) -> None:
    service = RunningService(tmp_path / "data", tmp_path / "service.log").start()
    with contextlib.ExitStack() as stack:
        stack.callback(service.end_everything)
        client = stack.enter_context(httpx.Client(base_url=service.url, timeout=60))
        assert client.post("/streams", json={"sql": STREAM}).is_success
        query = client.post("/queries?wait=60", json={"sql": "SELECT v FROM s"}).json()["id"]
        pushed = client.post("/streams/s/events", json=[{"v": 1, "time": "2026-01-01T00:00:00Z"}])
        assert pushed.json()["accepted"] == 1
        waiting = f"GET /queries/{query}/results/stream", f"GET /queries/{query}/results?wait=60&after="
        for head in (*waiting, "POST /streams/s/events"):
            client_socket = stack.enter_context(socket.create_connection(("127.0.0.1", service.port)))
            length = "Content-Length: 100\r\n" if head.startswith("POST") else ""
            client_socket.sendall(f"{head} HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\n{length}\r\n".encode())
        children = psutil.Process(service.pid).children(recursive=True)
        for child in children:
            child.suspend()
        service.stop()
        wait_until(lambda: not any(map(_runs, children)), 10, "the children are gone")
        service.start()
        wait_until(lambda: client.get("/streams/s").json()["tuples"] == 1, 60, "what was accepted is read")
        service.stop()


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
