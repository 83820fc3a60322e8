"""A service as a process of its own, which ends with whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import psutil
import pytest

from braid.bench_driver.service_process import ServiceProcess

DEADLINE_SECONDS = 30


def test_what_is_just_being_started_is_not_left_behind_by_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[psutil.Process] = []

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    class Interrupted(subprocess.Popen[bytes]):
        """Is asked to end when the process is there and nobody knows it yet."""

        def __init__(self, _: list[str], **options: Any) -> None:
            super().__init__([sys.executable, "-c", "import time; time.sleep(600)"], **options)
            started.append(psutil.Process(self.pid))
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("braid.bench_driver.service_process.subprocess.Popen", Interrupted)
    previous_handler = signal.signal(signal.SIGTERM, interrupt)
    service = ServiceProcess("test")
    try:
        with pytest.raises(KeyboardInterrupt):
            service.start()
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
        service.stop()
    ended, alive = psutil.wait_procs(started, timeout=DEADLINE_SECONDS)
    assert (len(ended), alive) == (1, [])
