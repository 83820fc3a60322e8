"""What processes get of the processor time that they want."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest

from braid.engine.recovery.processor_share import MIN_SHARE, ProcessorShare
from tests.kit.waiting import wait_until

BUSY = "while True: pass"
IDLE = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"


@pytest.fixture
def start() -> Iterator[Callable[[str], int]]:
    """Start a process on the first core that this one may use."""
    processes: list[subprocess.Popen[bytes]] = []
    core = min(os.sched_getaffinity(0))

    def started(code: str) -> int:
        process = subprocess.Popen([sys.executable, "-c", code], preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        processes.append(process)
        return process.pid

    yield started
    for process in processes:
        process.kill()
        process.wait()


def wait_used(pid: int, seconds: float) -> None:
    process = psutil.Process(pid)
    first = process.cpu_times().user
    wait_until(lambda: process.cpu_times().user >= first + seconds, 60, f"it uses {seconds} s of the processor")


def test_processes_that_share_a_core_get_a_part(start: Callable[[str], int]) -> None:
    one, other = start(BUSY), start(BUSY)
    for pid in (one, other):
        wait_used(pid, 0.2)
    share = ProcessorShare([one, other])
    wait_used(one, 1.0)
    assert MIN_SHARE <= share.of([one, other]) < 0.8


def test_a_process_that_wants_nothing_gets_all(start: Callable[[str], int]) -> None:
    pid = start(IDLE)
    process = psutil.Process(pid)
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED, 30, "it wants no processor")
    share = ProcessorShare([pid])
    assert share.of([pid]) == 1.0
    assert share.of([]) == 1.0


def test_a_process_that_is_gone_counts_for_nothing() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert ProcessorShare([gone.pid]).of([gone.pid]) == 1.0
