"""Ctrl-C at any moment of a command's life."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.api.cli.playback import DEADLINE_SECONDS, Playback, Start


@pytest.mark.parametrize("module", ["click", "httpx", "rich.console", "braid.api.cli.streams", "prompt_toolkit"])
def test_an_interrupt_while_importing_gives_no_traceback(module: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "braid.api.cli.start", "--url", "http://127.0.0.1:1", "queries"],
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.rsplit(b"|", 1)[-1].strip() == module.encode():
            break
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode in (-signal.SIGINT, 1, 3, 130)
    assert b"Traceback" not in rest


def test_interrupts_in_a_request_give_no_traceback(service: Playback, start: Start) -> None:
    service.hold_registrations = True
    process = start("query", "SELECT 1 FROM s", "--detach")
    service.wait_until(lambda: service.queries)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert b"Traceback" not in err
    assert process.returncode != 0
