"""The demo as a user runs it: a process with a service of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from tests.kit.service import REPOSITORY
from tests.kit.waiting import wait_until

DEADLINE_SECONDS = 240


def demo(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    # what it leaves behind is looked for in a folder of its own
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "braid.bench_driver.demo", *arguments],
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def figure(output: str, pattern: str) -> int:
    match = re.search(pattern, output)
    assert match, output
    return int(match[1].replace(",", ""))


@pytest.mark.service
def test_the_demo_runs_changes_queries_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        watchdog = threading.Timer(DEADLINE_SECONDS, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            lines = []
            interrupted = False
            for line in process.stdout:
                lines.append(line)
                # the line that an interrupt cuts off is printed again
                if "- retiring late-1" in line and not interrupted:
                    interrupted = True
                    process.send_signal(signal.SIGINT)
            output, errors = "".join(lines), process.stderr.read()
        finally:
            watchdog.cancel()
            process.kill()
    assert process.returncode == 0, output + errors
    assert "+ added late-1" in output
    assert "- retiring late-1" in output
    assert "What this demo did" in output
    assert figure(output, r"queries +(\d+) registered, 1 retired") == 56
    assert figure(output, r"rows read +([\d,]+) \(purchases") > 0
    delivered = figure(output, r"rows delivered +([\d,]+) by")
    assert 0 < figure(output, r"the demo read ([\d,]+)") <= delivered
    assert re.search(r"deployment latency  median \d+\.\d\d s, max \d+\.\d\d s", output)
    assert "FAILED" not in output
    assert not list(tmp_path.glob("braid-demo-*"))


@pytest.mark.service
def test_interrupted_while_it_starts_it_takes_the_service_along(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        try:
            service = wait_until(
                lambda: psutil.Process(process.pid).children(), DEADLINE_SECONDS, "the demo has started a service"
            )
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=DEADLINE_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 130, output + errors
    assert "Stopped before the service was ready" in output
    assert not any(child.is_running() for child in service)
    assert not list(tmp_path.glob("braid-demo-*"))


@pytest.mark.service
def test_a_service_that_cannot_start_is_told_with_its_log(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "5") as process:
        try:
            service = wait_until(
                lambda: psutil.Process(process.pid).children(), DEADLINE_SECONDS, "the demo has started a service"
            )
            service[0].kill()
            output, errors = process.communicate(timeout=DEADLINE_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 1, output + errors
    match = re.search(r"braid demo: The service ended by itself with exit status -9\. .* is in (\S+)", errors)
    assert match, errors
    assert Path(match[1]).exists()


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_seconds_must_be_a_number_above_zero(tmp_path: Path, seconds: str) -> None:
    with demo(tmp_path, "--seconds", seconds) as process:
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 2
    assert "--seconds" in errors
