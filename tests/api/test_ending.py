"""Ending in time, whatever goes on."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from braid.engine.data_layout import BATCHES
from braid.engine.recovery.checkpoint import newest_offset
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until

STREAM = "CREATE STREAM s (v INT, time TIMESTAMP LATENESS INTERVAL '1' SECOND) WITH (connector = 'push')"
DEAF = """
import sys, time
from pathlib import Path
from braid.api import serve
from braid.session.upkeep.supervisor import Supervisor

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


@pytest.mark.long
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


@pytest.mark.long
def test_what_is_deleted_without_draining_is_retired_while_a_batch_hangs(tmp_path: Path) -> None:
    patience = {"BRAID_STALL_SECONDS": "600", "BRAID_BATCH_LIMIT_SECONDS": "600"}  # nobody ends what hangs
    service = RunningService(tmp_path / "data", tmp_path / "service.log", patience).start()
    with contextlib.ExitStack() as stack:
        stack.callback(service.end_everything)
        client = stack.enter_context(httpx.Client(base_url=service.url, timeout=60))
        assert client.post("/streams", json={"sql": STREAM}).is_success
        sql = {"sql": "SELECT v FROM s"}
        deleted, kept = (client.post("/queries?wait=60", json=sql).json()["id"] for _ in range(2))

        def push(value: int) -> None:
            row = {"v": value, "time": f"2026-01-01T00:00:{value:02d}Z"}
            assert client.post("/streams/s/events", json=[row]).json()["accepted"] == 1

        def rows(query: str) -> list[dict[str, int]]:
            return list(client.get(f"/queries/{query}/results").json()["rows"])

        push(1)
        wait_until(lambda: rows(kept) == [{"v": 1}], 60, "a row is there")
        workers = service.descendants(lambda process: "pyspark.worker" in process.cmdline())
        for worker in workers:
            worker.suspend()
        push(2)
        wait_until(lambda: _has_begun_a_batch(service), 60, "a batch has begun")
        answer = client.delete(f"/queries/{deleted}?drain=false")
        assert (answer.status_code, answer.json()["state"]) == (202, "RETIRED")
        assert client.get(f"/queries/{deleted}").json()["state"] == "RETIRED"
        assert client.get(f"/queries/{kept}").json()["state"] == "RUNNING"
        assert _has_begun_a_batch(service), "it hangs still"
        assert {worker.status() for worker in workers} == {psutil.STATUS_STOPPED}
        for worker in workers:
            worker.resume()
        wait_until(lambda: rows(kept) == [{"v": 1}, {"v": 2}], 60, "the batch has ended")
        wait_until(lambda: client.get(f"/queries/{deleted}/results").json()["end"], 60, "its rows have an end")
        assert rows(deleted)[0] == {"v": 1}
        service.stop()


def _has_begun_a_batch(service: RunningService) -> bool:
    """Tell whether Spark has logged a batch that is not published."""
    storage = Storage(str(service.data_dir))
    return newest_offset(storage) > RecordLog(storage, BATCHES).latest()


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
