"""Keep child processes running, and leave nothing of them behind.

Lifecycle of a child: leftovers of an earlier service are ended → spawn → (dies → the processes that it started are
ended → pause → spawn)* → stop. Its standard input is a pipe that nobody writes to: its end tells the child that the
service died. Its process group is its own, so that Ctrl-C in a terminal reaches the service alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO

import psutil

LOG_BYTES = 16 << 20
LOG_FILES = 4
HEALTHY_SECONDS = 60.0
REAP_SECONDS = 5.0
POLL_SECONDS = 0.02

log = logging.getLogger("braid.supervisor")


class Supervisor:
    """Runs ``command``, again and again until :meth:`stop`; logs call it ``name``."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_file: Path,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        first_pause: float = 0.5,
        longest_pause: float = 30.0,
    ) -> None:
        self._name = name
        self._command = list(command)
        self._environment = {**os.environ, **(environment or {})}
        self._folder = folder
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self.log_file = log_file
        self._sink: RotatingFileHandler | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._pump: threading.Thread | None = None
        self.deaths = 0
        """How often the child ended without being asked to."""
        self._last_end = ""

    def start(self) -> None:
        """End what an earlier service left behind, start the child and watch over it."""
        self._end_leftovers()
        self._sink = _open_log(self.log_file)
        self._spawn()
        self._thread = threading.Thread(target=self._watch, name=f"{self._name}-supervisor", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The process id of the child, None while none runs."""
        process = self._process
        return None if process is None or _has_ended(process) else process.pid

    def stop(self, deadline: float) -> None:
        """Ask the child to end, and after ``deadline`` seconds make it and all it started end."""
        until = time.monotonic() + deadline
        self._stopping.set()
        with self._lock:
            process = self._process
        if process is not None and process.returncode is None:
            family = family_of(process.pid)
            _close_input(process)
            if not self._ended_within(deadline / 2):
                _signal(process, signal.SIGTERM)
                self._ended_within(until - time.monotonic())
            if process.returncode is None:
                family = family_of(process.pid)
                _signal(process, signal.SIGKILL)
            descendants = [member for member in family if member.pid != process.pid]
            kill_all(wait_gone(descendants, max(0.1, until - time.monotonic())))
        self._end_leftovers()
        for thread in (self._thread, self._pump):
            if thread is not None:
                thread.join(REAP_SECONDS)
        if self._sink is not None:
            self._sink.close()

    def kill(self) -> None:
        """Make the child and all it started end at once; it is not started again."""
        self._stopping.set()
        process = self._process
        if process is not None and process.returncode is None:
            for member in family_of(process.pid):
                with contextlib.suppress(psutil.Error):
                    member.kill()
        self._end_leftovers()

    def _ended_within(self, seconds: float) -> bool:
        assert self._thread is not None
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    def _spawn(self) -> None:
        self._before_spawn()
        with self._lock:
            if self._stopping.is_set():
                return
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self._folder,
                process_group=0,
            )
        assert self._process.stdout is not None
        assert self._sink is not None
        self._pump = threading.Thread(
            target=_pump, args=(self._process.stdout, self._sink), name=f"{self._name}-log", daemon=True
        )
        self._pump.start()
        log.info(f"{self._name} started", extra={"fields": {"pid": self._process.pid}})

    def _watch(self) -> None:
        pause = self._first_pause
        while True:
            process, began = self._process, time.monotonic()
            assert process is not None
            # wait without reaping: while the child is a zombie, its process group id cannot be given to another
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            if not self._stopping.is_set():
                self._try_steps(self._end_leftovers)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # also what it started after it was asked to end
            status = process.wait()
            _close_input(process)
            if self._stopping.is_set():
                return
            self.deaths += 1
            self._last_end = f"signal {-status}" if status < 0 else f"exit status {status}"
            if time.monotonic() - began > HEALTHY_SECONDS:
                pause = self._first_pause
            fields: dict[str, object] = {"exit": self._last_end, "log": str(self.log_file)}
            if not self._may_start_again():
                log.error(f"{self._name} died", extra={"fields": fields})
                return
            fields["restart_seconds"] = pause
            log.error(f"{self._name} died; it is started again", extra={"fields": fields})
            while not self._stopping.wait(pause):
                pause = min(self._longest_pause, pause * 2)
                if self._try_steps(self._end_leftovers, self._spawn):
                    break
            if self._stopping.is_set() and self._process is process:
                return

    def _try_steps(self, *steps: Callable[[], None]) -> bool:
        """Take steps to start the child; return False when one fails, for example while the disk is full or away."""
        try:
            for step in steps:
                step()
        except (OSError, psutil.Error) as error:
            log.error(f"{self._name} could not be started; it is tried again", extra={"fields": {"error": str(error)}})
            return False
        return True

    def _before_spawn(self) -> None:
        """Do what must be done before the child starts."""

    def _may_start_again(self) -> bool:
        """Whether it makes sense to start a child that has ended again."""
        return True

    def _end_leftovers(self) -> None:
        """End what the child, or that of an earlier service, left running."""


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill processes and wait until they are gone."""
    killed = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
            killed.append(process)
    wait_gone(killed, REAP_SECONDS)


def wait_gone(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Return the processes that still run after at most ``seconds``.

    A zombie is gone: whoever started it reaps it. ``psutil.wait_procs`` would reap children of ours itself.
    """
    until = time.monotonic() + seconds
    while (running := [p for p in processes if not is_gone(p)]) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    return running


def _close_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a child has ended, be it reaped or not."""
    try:
        return process.returncode is not None or (
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        )
    except ChildProcessError:  # reaped just now
        return True


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    # not Popen.send_signal: that would reap the child under the watching thread
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def family_of(pid: int) -> list[psutil.Process]:
    """Return a process that runs and all that it started, nothing when it has ended."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.Error:
        return []


def is_gone(process: psutil.Process) -> bool:
    """Whether a process has ended, be it reaped or not."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def _open_log(path: Path) -> RotatingFileHandler:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES - 1, errors="backslashreplace")
    handler.setFormatter(logging.Formatter("%(message)s"))
    return handler


def _pump(output: IO[bytes], sink: RotatingFileHandler) -> None:
    # the child's lines are data: not a logger's, so that no level or configuration can drop them
    with output:
        for line in output:
            text = line.decode(errors="replace").rstrip("\n")
            sink.handle(logging.makeLogRecord({"msg": text}))
