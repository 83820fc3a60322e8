"""A peer's program as a child process: JSON objects, one a line, go in by its stdin and come back by its stdout.

Lifecycle: `start` → any number of `send`, `lines`, `wait_for` → `stop`. The child owns a process session; what it
spawns (JVM, Python workers) stays in that session, so `stop` ends exactly what this child started. Its stderr, and what
it writes to stdout that is not a JSON object, go to a log; the folder of both is removed, except when it failed.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bench_driver.child import KILL_SECONDS, end_session, environment
from bench_driver.systems.system import SystemFailedError

TAIL_LINES = 15
STOP_SECONDS = 10.0
ALIVE_SECONDS = 0.25


@dataclass(frozen=True)
class Line:
    """A JSON object from the program, and when it was read here, in seconds since 1970."""

    arrived: float
    value: dict[str, Any]


class PeerProcess:
    """One program; `environment` is added to this process's own, and the project is on its PYTHONPATH."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._command = list(command)
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[Line] = []
        self._news = threading.Condition()
        self._ended = False
        self._failed = False
        self._readers: list[threading.Thread] = []
        self._sending = threading.Lock()
        self.folder = Path()
        self.log = Path()

    @property
    def is_started(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._process is not None

    def start(self) -> Self:
        """Start the program in a new folder of its own, which is also its working directory.

        Raises SystemFailedError when there is no such program.
        """
        self.folder = Path(tempfile.mkdtemp(prefix=f"braid-{self._name}-"))
        self.log = self.folder / "peer.log"
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command,
                    cwd=self.folder,
                    env=environment(self._environment),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,  # Ctrl-C is for the driver, which ends the program in order
                )
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise SystemFailedError(f"{self._name} must start, and {self._command[0]!r} does not: {error}") from error
        reader = threading.Thread(target=self._read, args=(self._process,), name=f"{self._name}-lines", daemon=True)
        reader.start()
        self._readers.append(reader)
        return self

    def send(self, value: Mapping[str, Any]) -> None:
        """Write one JSON object; raises SystemFailedError when the program does not read any more."""
        process = self._process
        if process is None or process.stdin is None:
            raise SystemFailedError(f"{self._name} must be started before it is told anything, got {value!r}")
        try:
            with self._sending:
                process.stdin.write(json.dumps(value) + "\n")
                process.stdin.flush()
        except (OSError, ValueError):
            raise self.failure(f"{self._name} must read its commands, and has closed its input") from None

    def lines(self, after: int = 0) -> list[Line]:
        """Return the objects that came so far, without the first `after`."""
        with self._news:
            return self._lines[after:]

    def wait_for(
        self, is_wanted: Callable[[dict[str, Any]], bool], seconds: float, awaited: str, after: int = 0
    ) -> Line:
        """Return the first object that is wanted, of those after the first `after`.

        Raises SystemFailedError, which says `awaited` was waited for, at the deadline or when the program ends.
        """
        deadline = time.monotonic() + seconds
        seen_count = after
        with self._news:
            while True:
                # asked first: what it said before it ended is still looked at
                ended = self._ended or self._process is None or self._process.poll() is not None
                for line in self._lines[seen_count:]:
                    if is_wanted(line.value):
                        return line
                seen_count = max(seen_count, len(self._lines))
                if ended:
                    break
                seconds_left = deadline - time.monotonic()
                if seconds_left <= 0:
                    raise self.failure(f"{self._name}: {awaited} must come within {seconds:g} s, and did not")
                # what it started may hold its output open after it ended
                self._news.wait(min(seconds_left, ALIVE_SECONDS))
        self.check_alive()
        raise self.failure(f"{self._name}: {awaited} must come, and it closed its output")

    def check_alive(self) -> None:
        """Raise SystemFailedError when the program has ended by itself, or never was started."""
        process = self._process
        if process is None:
            raise SystemFailedError(f"{self._name} must be running, and is not started")
        if self._ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(KILL_SECONDS)
        if (status := process.poll()) is not None:
            raise self.failure(f"{self._name} ended by itself with exit status {status}")

    def failure(self, problem: str) -> SystemFailedError:
        """Return the error to raise: what happened, and the end of the log, which is kept."""
        self._failed = True
        with contextlib.suppress(OSError):
            tail = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
            return SystemFailedError("\n".join([f"{problem}. Its log is {self.log} and ends:", *tail]))
        return SystemFailedError(f"{problem}. It left no log")

    def stop(self) -> None:
        """End the program and everything in its session; harmless to repeat.

        It is told by the end of its input, and killed when it has not ended after `STOP_SECONDS`.
        """
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError, ValueError):
            if process.stdin is not None:
                process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        end_session(process.pid)
        process.wait()
        for reader in self._readers:
            reader.join(KILL_SECONDS)
        if not self._failed:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        for file in self.folder.iterdir():  # the log stays for whoever wants to know why
            if file != self.log:
                shutil.rmtree(file, ignore_errors=True)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout, self.log.open("a", encoding="utf-8") as log:
            for text in process.stdout:
                value = _object(text)
                if value is None:
                    log.write(text)
                    log.flush()
                    continue
                with self._news:
                    self._lines.append(Line(time.time(), value))
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


def _object(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
