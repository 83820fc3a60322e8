"""A module of the driver in a process of its own: one line of JSON in, lines out, and it ends when its input closes."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
END_SECONDS = 5.0
TAIL_BYTES = 2000


class ChildFailedError(Exception):
    """The process ended early or did not answer in time; the text has its last words."""


class ChildProcess:
    """`python -m MODULE`, given `first_line`; what it writes is kept until it is asked for."""

    def __init__(self, module: str, first_line: str) -> None:
        self._module = module
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        search = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, "PYTHONPATH": search},
            start_new_session=True,  # Ctrl-C is for the driver; it closes our input
        )
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._collect, name=f"lines-of-{module}", daemon=True).start()
        self.say(first_line)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

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
            raise ChildFailedError(f"{self._module} must answer within {seconds:g} s. {self._last_words()}") from None
        if line is None:
            self._lines.put(None)
            status = self._process.wait()
            raise ChildFailedError(f"{self._module} ended with exit status {status}. {self._last_words()}")
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

    def _collect(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                self._lines.put(line)
        self._lines.put(None)

    def _last_words(self) -> str:
        if self._stderr.closed:
            return "It was told to end."
        # not read(): the process writes at the same position
        size = os.fstat(self._stderr.fileno()).st_size
        tail = os.pread(self._stderr.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES))
        return "It said: " + (tail.decode(errors="replace").strip() or "nothing")
