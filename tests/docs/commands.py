"""Run the commands of pages, and compare what they print with what the pages show below them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.docs.pages import PrintedCommand
from tests.kit.waiting import wait_until

SECONDS = 180.0
# their numbers and times differ from run to run: rows of a generator, lists of queries, and times of arrival
OF_ROWS_THAT_COME = re.compile(
    r"braid ((query|queries|results) .*(purchases|whales|RUNNING)|streams .*--dead-letters)", re.DOTALL
)


def comparable(line: str) -> str:
    """Return a printed line without durations, cursors and ids of queries, which differ from run to run."""
    line = re.sub(r"\d+\.\d+ s\b", "# s", line)
    line = re.sub(r"^cursor: \S+", "cursor: #", line)
    line = re.sub(r"path = '[^']*/", "path = '", line)
    line = re.sub(r"\bq-\d+", "q-#", line)
    line = line.replace("is CATCHING_UP, deployed", "is RUNNING, deployed")
    return line.replace("is RETIRED", "is DRAINING").rstrip()  # a batch may come in between


def shape(line: str) -> str:
    """Return a printed line without its numbers, times and spaces."""
    return " ".join(re.sub(r"\d[\d.,:TZe+-]*", "#", comparable(line)).split())


def run(command: str, environment: dict[str, str], folder: Path) -> list[str]:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    # a busy machine takes its time, and the command says why there is no row yet
    return [line for line in done.stdout.splitlines() if not line.startswith("no row yet: ")]


def follow_and_interrupt(command: PrintedCommand, environment: dict[str, str], folder: Path) -> None:
    """Run a command until each kind of line before its ^C has come, send it SIGINT, and check what it says then."""
    at = command.output.index("^C")
    before, after = {shape(line) for line in command.output[:at]}, list(command.output[at + 1 :])
    log = folder / "followed"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command.text}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until(
                lambda: before <= {shape(line) for line in log.read_text().splitlines()},
                SECONDS,
                lambda: f"the lines of {command} come; there are {log.read_text()}",
            )
            process.send_signal(signal.SIGINT)
            process.wait(SECONDS)
        finally:
            process.kill()
            process.wait()
    lines = log.read_text().splitlines()
    assert lines[-len(after) :] == after
    assert {shape(line) for line in lines[: -len(after)]} == before


def check(command: PrintedCommand, environment: dict[str, str], folder: Path) -> None:
    if "^C" in command.output:
        follow_and_interrupt(command, environment, folder)
        return
    form = shape if OF_ROWS_THAT_COME.match(command.text) else comparable

    def forms(lines: Iterable[str]) -> Sequence[str]:
        return [form(line) for line in lines]

    shown = forms(command.output)
    if re.match(r"braid (queries|results) ", command.text):  # asks only, and what is asked for may be on its way
        seen: list[list[str]] = []

        def is_shown() -> bool:
            seen.append(run(command.text, environment, folder))
            return forms(seen[-1]) == shown

        wait_until(is_shown, SECONDS, lambda: f"{command.text!r} prints {shown}; it printed {forms(seen[-1])}")
    else:
        assert forms(run(command.text, environment, folder)) == shown, command.text


def environment_of(url: str) -> dict[str, str]:
    """Return the environment in which `braid` finds the service at a URL, on a terminal that is wide enough."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "BRAID_URL": url, "COLUMNS": "200"}
