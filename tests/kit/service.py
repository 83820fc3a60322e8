"""Run the service as a real process.

Lifecycle: `start` → (`kill` → `start` | `restart`)* → `stop` → `end_everything`. A service owns a process
session of its own; whatever it spawns (JVM, Python workers) stays in that session, also when it outlives the
main process, so `end_everything` finds and ends exactly what this service started and nothing else.
`BRAID_TEST_MASTER` has all of them run on another Spark master than the service's default.
`kill` and `revive` exclude each other: a timer may kill while a client that noticed revives.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import psutil

from tests.kit.waiting import DeadlineExceededError, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = "braid.api.cli.main"
READY_SECONDS = 300.0
STOP_SECONDS = 10.0
TAIL_LINES = 60


class ServiceFailedError(AssertionError):
    """The service did not start, stop or recover as it must."""


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RunningService:
    """One `braid serve` process on a data directory, with a log file beside it."""

    def __init__(
        self, data_dir: Path, log: Path, environment: Mapping[str, str] | None = None, program: str = PROGRAM
    ) -> None:
        self.data_dir = data_dir
        self.log = log
        self.port = free_port()
        self.starts = 0
        self._environment = dict(environment or {})
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: list[int] = []
        self._life = threading.Lock()  # held while killing and while reviving

    @property
    def url(self) -> str:
        """The base URL of the REST interface."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the main process."""
        if self._process is None:
            raise ServiceFailedError("the service must be started before its pid is asked: call start()")
        return self._process.pid

    def alive(self) -> bool:
        """Tell whether the main process runs."""
        return self._process is not None and self._process.poll() is None

    def command(self) -> list[str]:
        """Return the command line of the main process."""
        serve = [sys.executable, "-m", self._program, "serve"]
        master = os.environ.get("BRAID_TEST_MASTER")
        on_master = ["--master", master] if master else []
        return [*serve, "--port", str(self.port), "--data-dir", str(self.data_dir), *on_master]

    def start(self) -> RunningService:
        """Start the process and wait until `/readyz` says yes."""
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        """Start the process."""
        if self.alive():
            raise ServiceFailedError(f"a service can be started only once at a time, pid {self.pid} runs")
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = self.command()
        with self.log.open("ab") as log:
            log.write(f"--- start {self.starts + 1}: {' '.join(command)}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._sessions.append(self._process.pid)
        self.starts += 1

    def wait_ready(self, deadline_seconds: float = READY_SECONDS) -> None:
        """Wait until `/readyz` answers 200; fail at once when the process ends before."""

        def ready() -> bool:
            if not self.alive():
                code = None if self._process is None else self._process.returncode
                raise ServiceFailedError(self._with_tail(f"the service must start, it exited with {code}"))
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200
            return False

        try:
            wait_until(ready, deadline_seconds, f"GET {self.url}/readyz answers 200")
        except DeadlineExceededError as error:
            raise ServiceFailedError(self._with_tail(str(error))) from error

    def refusal(self) -> str:
        """Start on a damaged data folder, and end again; return why the service does not start, or is not ready.

        AssertionError where it becomes ready.
        """
        began = self.log.stat().st_size
        self.launch()

        def told() -> str:
            if not self.alive():
                return self.log.read_bytes()[began:].decode(errors="replace")
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(f"{self.url}/readyz", timeout=5)
                assert answer.status_code != 200, "a service without what it needs to go on must not be ready"
                return answer.text if "from a backup" in answer.text else ""
            return ""

        text = wait_until(told, READY_SECONDS, "the service says without which file it cannot go on")
        self.kill()
        wait_until(lambda: not self.left_over(), READY_SECONDS, "what the service started is gone")
        assert "from a backup" in text, text
        assert "Traceback" not in text, text
        return text

    def kill(self) -> None:
        """SIGKILL the main process alone: its JVM and workers are left to notice by themselves."""
        with self._life:
            if self._process is None:
                return
            if self._process.poll() is None:
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self) -> int:
        """SIGTERM the main process, check that it exits in time, and return its exit status."""
        if self._process is None:
            raise ServiceFailedError("the service must be started before it is stopped")
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self._process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            message = f"after SIGTERM the service must exit within {STOP_SECONDS:g} s"
            raise ServiceFailedError(self._with_tail(message)) from error

    def restart(self) -> RunningService:
        """Stop the service if it runs and start it again on the same data directory and port."""
        if self.alive():
            self.stop()
        return self.start()

    def revive(self) -> None:
        """Start the service again if its main process is gone, else wait until it is ready."""
        with self._life:
            if self.alive():
                self.wait_ready()
            else:
                self.start()

    def descendants(self, matches: Callable[[psutil.Process], bool] = lambda _: True) -> list[psutil.Process]:
        """List the running processes below the main process for which `matches` holds."""
        processes = []
        for process in psutil.Process(self.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                if process.status() != psutil.STATUS_ZOMBIE and matches(process):
                    processes.append(process)
        return processes

    def left_over(self) -> list[psutil.Process]:
        """List every running process of the sessions this service ever started."""
        processes = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
                if os.getsid(process.pid) in self._sessions and process.status() != psutil.STATUS_ZOMBIE:
                    processes.append(process)
        return processes

    def end_everything(self) -> None:
        """End the main process and whatever it left behind, however it ended."""
        self.kill()
        for process in self.left_over():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        wait_until(lambda: not self.left_over(), 10, "no process of the service is left")
        self._sessions.clear()

    def log_tail(self, lines: int = TAIL_LINES) -> str:
        """Return the last lines of the service's log and of its job's."""
        return "\n".join(
            line
            for log in (self.log, self.data_dir / "logs" / "job.log")
            for line in (
                log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else [f"(no {log.name})"]
            )
        )

    def _with_tail(self, message: str) -> str:
        return f"{message}\n--- last lines of {self.log}\n{self.log_tail()}"
