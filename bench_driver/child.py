"""Processes that the driver starts: sessions of processes, and programs that are spoken to in lines of JSON.

A program gets JSON objects, one a line, by its stdin, and gives some by its stdout. Lifecycle of a
:class:`ChildProcess`: `start` → any number of `send`, `lines`, `take`, `wait_for` → `stop`. The child owns a process
session; what it spawns (JVM, Python workers) stays in that session, so `stop` ends exactly what this child started. It
also ends when its input closes, so when the driver dies. Its stderr, and what it writes to stdout that is not a JSON
object, go to a log; the folder of both is removed, except when it failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

import braid
from braid.bench_driver.systems.system import SystemFailedError

PROJECT = Path(braid.__file__).parents[1]
KILL_SECONDS = 5.0
POLL_SECONDS = 0.02
TAIL_LINES = 15
STOP_SECONDS = 10.0
ALIVE_SECONDS = 0.25
LAST_WORDS_SECONDS = 1.0


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment, with the project on PYTHONPATH and what else is given."""
    search = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": search, **(more or {})}


def session_processes(session: int) -> list[psutil.Process]:
    """Return the living processes of a session."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def end_session(session: int) -> None:
    """Kill every process of a session and wait until they are gone, those that they start meanwhile too."""
    deadline = time.monotonic() + KILL_SECONDS
    while (processes := session_processes(session)) and time.monotonic() < deadline:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(POLL_SECONDS)


class ChildFailedError(SystemFailedError):
    """The process ended early, did not answer in time, or reads no more; the text has the end of its log."""


def module_command(module: str) -> list[str]:
    """Return the command that runs a module with this Python."""
    return [sys.executable, "-m", module]


@dataclass(frozen=True)
class OutputLine:
    """A JSON object from the program, and when it was read here, in seconds since 1970."""

    arrived: float
    value: dict[str, Any]


class ChildProcess:
    """One program, which has this process's environment and the project on its PYTHONPATH."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self._name = name
        self._command = list(command)
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[OutputLine] = []
        self._news = threading.Condition()
        self._ended = False
        self._failed = False
        self._reader: threading.Thread | None = None
        self._sending = threading.Lock()
        self.folder = Path()
        self.log = Path()

    @property
    def is_started(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._process is not None

    @property
    def pid(self) -> int | None:
        """Its process id, None when it is not started."""
        return None if self._process is None else self._process.pid

    def start(self) -> Self:
        """Start the program in a new folder of its own, which is also its working directory.

        Raises ChildFailedError when there is no such program.
        """
        self.folder = Path(tempfile.mkdtemp(prefix=f"braid-{self._name}-"))
        self.log = self.folder / "child.log"
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command,
                    cwd=self.folder,
                    env=environment(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,  # Ctrl-C is for the driver, which ends the program in order
                )
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise ChildFailedError(f"{self._name} must start, and {self._command[0]!r} does not: {error}") from error
        self._reader = threading.Thread(
            target=self._read, args=(self._process,), name=f"{self._name}-lines", daemon=True
        )
        self._reader.start()
        return self

    def send(self, value: Mapping[str, Any]) -> None:
        """Write one JSON object; raises ChildFailedError when the program does not read any more."""
        process = self._process
        if process is None or process.stdin is None:
            raise ChildFailedError(f"{self._name} must be started before it is told anything, got {value!r}")
        try:
            with self._sending:
                process.stdin.write(json.dumps(value) + "\n")
                process.stdin.flush()
        except (OSError, ValueError):
            raise self.failure(f"{self._name} must read its commands, and has closed its input") from None

    def lines(self, after: int = 0) -> list[OutputLine]:
        """Return the objects that came so far, without the first `after`."""
        with self._news:
            return self._lines[after:]

    def take(self) -> list[OutputLine]:
        """Return the objects that came since this was asked before, and keep them no longer."""
        with self._news:
            taken, self._lines = self._lines, []
            return taken

    def wait_for(
        self, is_wanted: Callable[[dict[str, Any]], bool], seconds: float, awaited: str, after: int = 0
    ) -> OutputLine:
        """Return the first object that is wanted, of those after the first `after`.

        Raises ChildFailedError, which says `awaited` was waited for, at the deadline or when the program ends.
        """
        deadline = time.monotonic() + seconds
        seen_count = after
        with self._news:
            while True:
                # asked first: what it said before it ended is still looked at
                ended = self._ended or self._process is None or self._process.poll() is not None
                if ended:  # what it started may hold its output open
                    self._news.wait_for(lambda: self._ended, LAST_WORDS_SECONDS)
                for line in self._lines[seen_count:]:
                    if is_wanted(line.value):
                        return line
                seen_count = max(seen_count, len(self._lines))
                if ended:
                    break
                seconds_left = deadline - time.monotonic()
                if seconds_left <= 0:
                    raise self.failure(f"{self._name}: {awaited} must come within {seconds:g} s, and did not")
                self._news.wait(min(seconds_left, ALIVE_SECONDS))
        self.check_alive()
        raise self.failure(f"{self._name}: {awaited} must come, and it closed its output")

    def check_alive(self, seconds: float = 0.0) -> None:
        """Raise ChildFailedError when the program has ended by itself, does within `seconds`, or never was started."""
        process = self._process
        if process is None:
            raise ChildFailedError(f"{self._name} must be running, and is not started")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_SECONDS if self._ended else seconds)
        if (status := process.poll()) is not None:
            raise self.failure(f"{self._name} ended by itself with exit status {status}")

    def failure(self, problem: str) -> ChildFailedError:
        """Return the error to raise: what happened, and the end of the log, which is kept."""
        self._failed = True
        with contextlib.suppress(OSError):
            tail = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
            return ChildFailedError("\n".join([f"{problem}. Its log is {self.log} and ends:", *tail]))
        return ChildFailedError(f"{problem}. It left no log")

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
        if self._reader is not None:
            self._reader.join(KILL_SECONDS)
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
                    self._lines.append(OutputLine(time.time(), value))
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
