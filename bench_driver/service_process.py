"""Start a service as a process of its own, on a free port and a data directory of its own, and end it without a trace.

Lifecycle: `start` → `wait_ready` → `stop`. The service owns a process session; what it spawns (JVM, Python workers)
stays in that session, so `stop` finds and ends exactly what this service started. Its folder goes with it, except when
it failed: then the logs stay, for whoever wants to know why.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import psutil

from braid.bench_driver.child import end_session, environment, session_processes

READY_SECONDS = 120.0
STOP_SECONDS = 15.0
POLL_SECONDS = 0.05


class ServiceFailedError(Exception):
    """The service did not start, or ended by itself; `log` has its words."""

    def __init__(self, problem: str, log: Path) -> None:
        super().__init__(f"{problem}. What it said is in {log}")
        self.log = log


class ServiceProcess:
    """One `braid serve` process; `environment` is added to this process's own."""

    def __init__(self, name: str = "bench", environment: Mapping[str, str] | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=f"braid-{name}-"))
        self.log = self._folder / "service.log"
        self.data_dir = self._folder / "data"
        self.port = free_port()
        self.started_at = 0.0
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._failed = False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(keep_logs=kind is not None and issubclass(kind, Exception))

    @property
    def url(self) -> str:
        """The base URL of the REST interface."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process that answers REST and keeps the session, 0 when it is not started."""
        return 0 if self._process is None else self._process.pid

    def start(self) -> Self:
        """Start the process; it is not ready yet."""
        command = [sys.executable, "-m", "braid.api.cli.main", "serve", "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--data-dir", str(self.data_dir)]
        with self.log.open("ab") as log, _ends_deferred():
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,  # no braid.toml of somebody else is read there
                env=environment(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us; we end it in order
            )
        self.started_at = time.monotonic()
        return self

    def wait_ready(self, deadline_seconds: float = READY_SECONDS) -> float:
        """Return the seconds from start to `/readyz` 200.

        Raises:
            ServiceFailedError: the process ended, or was not ready in time.
        """
        with httpx.Client(timeout=5, trust_env=False) as http:
            while (waited := time.monotonic() - self.started_at) < deadline_seconds:
                self.check_alive()
                reason = "the process starts"
                with contextlib.suppress(httpx.TransportError):
                    answer = http.get(f"{self.url}/readyz")
                    if answer.status_code == 200:
                        return time.monotonic() - self.started_at
                    reason = _detail(answer)
                time.sleep(min(POLL_SECONDS, max(0.0, deadline_seconds - waited)))
        raise self.failure(f"The service must be ready within {deadline_seconds:g} s, and was not ({reason})")

    def check_alive(self) -> None:
        """Raise ServiceFailedError when the process has ended by itself."""
        status = None if self._process is None else self._process.poll()
        if status is not None:
            raise self.failure(f"The service ended by itself with exit status {status}")

    def data_bytes(self) -> int:
        """Return how many bytes its files have."""
        total = 0
        for folder, _, files in os.walk(self.data_dir):
            for file in files:
                with contextlib.suppress(FileNotFoundError):  # it goes on working
                    total += os.stat(os.path.join(folder, file)).st_size
        return total

    def memory_bytes(self) -> int:
        """Return the resident memory of the service's processes together; a page that they share counts once."""
        return sum(self.memory_by_kind().values())

    def memory_by_kind(self) -> dict[str, int]:
        """Return the same by the kind of process: `java`, or the Python module that it runs."""
        by_kind: dict[str, int] = {}
        for process in session_processes(self.pid):
            with contextlib.suppress(psutil.Error):
                kind, memory = _kind_of(process), process.memory_full_info().pss
                by_kind[kind] = by_kind.get(kind, 0) + memory
        return by_kind

    def processor_seconds(self) -> float:
        """Return how long the processes of the service that run kept processors busy, all together."""
        total = 0.0
        for process in session_processes(self.pid):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def failure(self, problem: str) -> ServiceFailedError:
        """Return the error to raise; the logs are kept for it."""
        self._failed = True
        return ServiceFailedError(problem, self.log)

    def stop(self, keep_logs: bool = False) -> None:
        """End the process and whatever it left behind, and remove its folder; harmless to repeat."""
        process = self._process
        if process is not None:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=STOP_SECONDS)
            end_session(process.pid)
            process.wait()
        self._process = None
        if self._failed or keep_logs:
            for log in (self.data_dir / "logs").glob("*.log"):
                shutil.copy(log, self._folder / log.name)
            shutil.rmtree(self.data_dir, ignore_errors=True)
        else:
            shutil.rmtree(self._folder, ignore_errors=True)


@contextlib.contextmanager
def _ends_deferred() -> Iterator[None]:
    """Let signals that end this process wait: a process that is just being started would be left behind by them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    deferred = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in deferred:
        signal.signal(number, lambda number, _: received.append(number))
    try:
        yield
    finally:
        for number, handler in deferred.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(signal.Signals(received[0]))


def _kind_of(process: psutil.Process) -> str:
    """Return the Python module that a process runs, for one that Spark forks its worker's, else its program."""
    command = process.cmdline()
    if "-m" not in command:
        return process.name()
    modules = command[command.index("-m") + 1 :]
    return modules[1] if modules[0] == "pyspark.daemon" and len(modules) > 1 else modules[0]


def _detail(answer: httpx.Response) -> str:
    with contextlib.suppress(json.JSONDecodeError):
        body = answer.json()
        if isinstance(body, dict):
            return str(body.get("detail") or body.get("title") or answer.status_code)
    return f"it answers {answer.status_code}"


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
