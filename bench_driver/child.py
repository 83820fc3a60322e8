"""Processes that the driver starts: a module of its own with one line of JSON in and lines out, and whole sessions."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

PROJECT = Path(__file__).resolve().parents[1]
END_SECONDS = 5.0
KILL_SECONDS = 5.0
POLL_SECONDS = 0.02
TAIL_BYTES = 2000


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


class ChildFailedError(Exception):
    """The process ended early or did not answer in time; the text has its last words."""


class ChildProcess:
    """`python -m MODULE`, given `first_line`; what it writes is kept until it is asked for.

    It ends when its input closes: on `stop`, and also when this process dies.
    """

    def __init__(self, module: str, first_line: str) -> None:
        self._module = module
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment(),
            start_new_session=True,  # Ctrl-C is for the driver; it closes our input
        )
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._collect, name=f"lines-of-{module}", daemon=True).start()
        self.say(first_line)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status, None while it runs."""
        return self._process.poll()

    def say(self, line: str) -> None:
        """Write a line to its input."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then the next line that is asked for says what happened
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def next_line(self, seconds: float) -> bytes:
        """Return the next line; ChildFailedError when there is none within `seconds`."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise ChildFailedError(f"{self._module} must answer within {seconds:g} s. {self.last_words()}") from None
        if line is None:
            self._lines.put(None)
            status = self._process.wait()
            raise ChildFailedError(f"{self._module} ended with exit status {status}. {self.last_words()}")
        return line

    def lines_so_far(self) -> list[bytes]:
        """Return the lines that came since the last call; ChildFailedError when it ended by itself."""
        lines = []
        while not self._lines.empty():
            lines.append(self.next_line(0))
        return lines

    def stop(self) -> None:
        """End it; harmless to repeat."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()

    def last_words(self) -> str:
        """Return the end of what it said on its standard error."""
        if self._stderr.closed:
            return "It was told to end."
        # not read(): the process writes at the same position
        size = os.fstat(self._stderr.fileno()).st_size
        tail = os.pread(self._stderr.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES))
        return "It said: " + (tail.decode(errors="replace").strip() or "nothing")

    def _collect(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                self._lines.put(line)
        self._lines.put(None)
