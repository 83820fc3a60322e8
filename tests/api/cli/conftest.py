"""Fixtures of the command line's tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from braid.api.cli.main import cli
from tests.api.cli.playback import DEADLINE_SECONDS, Braid, Playback, Start, running


@pytest.fixture
def service() -> Iterator[Playback]:
    """Run a service that plays back answers."""
    with running() as playback:
        yield playback


@pytest.fixture
def braid(monkeypatch: pytest.MonkeyPatch) -> Braid:
    """Run a command in this process; its result keeps stdout and stderr apart."""
    monkeypatch.delenv("BRAID_URL", raising=False)

    def run(*words: str, **options: Any) -> Result:
        result = CliRunner().invoke(cli, words, prog_name="braid", **options)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def start(service: Playback) -> Iterator[Start]:
    """Start a command as a process of its own; whatever still runs after the test is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*words: str, **options: Any) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "COLUMNS")}
        streams: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "stdin": subprocess.DEVNULL,
        }
        process: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-m", "braid.api.cli.start", *words],
            env=environment | {"BRAID_URL": service.url, "TERM": "xterm-256color"},
            # the tests may run below nohup
            **(streams | {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)} | options),
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=DEADLINE_SECONDS)
