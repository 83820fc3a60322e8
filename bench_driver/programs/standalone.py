"""What programs of the driver have in common: how they are interrupted, measure, print figures and write them."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from braid.bench_driver.machine import machine, versions
from braid.bench_driver.measure.statistics import Histogram
from braid.bench_driver.queues.process import QueueFailedError
from braid.bench_driver.report.text import BUSY, figures
from braid.bench_driver.service_process import ServiceFailedError
from braid.client import BraidError, Client

_POLL_SECONDS = 0.05

Report = dict[str, Any]


def say(text: str) -> None:
    """Tell on standard error how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let the signals that end a program end this one in order: as Ctrl-C does, also where a shell has it ignored.

    Only in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        # what follows is cleaning up, which a second Ctrl-C must not tear apart
        for number in previous_handlers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous_handlers = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def command(module: str, documentation: str | None) -> argparse.ArgumentParser:
    """Return a parser for `python -m module`, described by the first line of its documentation, with `--output`."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=(documentation or "").splitlines()[0])
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="where to write all figures")
    return parser


def report_on(measure: Callable[[], Report], output: Path | None, render: Callable[[Report], str] = figures) -> int:
    """Measure, print what `render` makes of the figures, write them as JSON; return the exit status.

    The figures get the machine as it was before, versions and time. The status is 1 when a part under test failed, 130
    when someone interrupted or ended it.
    """
    circumstances = {
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "versions": versions(),
    }
    try:
        with interruptible():
            measured = measure()
    except (ServiceFailedError, QueueFailedError, BraidError, httpx.HTTPError, TimeoutError) as error:
        say(f"failed: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted: nothing is reported")
        return 130
    report = {**circumstances, **measured}
    print(f"{describe(report['machine'])}\n\n{render(measured)}")
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def describe(facts: Mapping[str, Any]) -> str:
    """Return what :func:`braid.bench_driver.machine.machine` found as text, with a warning when it was busy."""
    load = ", ".join(f"{value:g}" for value in facts["load_before"])
    text = (
        f"Machine: {facts['processor']}, {facts['cores']} cores, {facts['memory_gib']} GiB, {facts['system']};"
        f" load before {load}"
    )
    if facts["load_before"][0] > BUSY * facts["cores"]:
        text += "\nThe machine was busy with something else before this began: the figures are too high."
    return text


class BatchDurations:
    """The service's micro-batches, a stretch after the other; the first one begins now."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._before = self._scrape()

    def take(self) -> Histogram:
        """Return how long the batches took that ended since this was asked before."""
        before, self._before = self._before, self._scrape()
        return self._before.since(before)

    def _scrape(self) -> Histogram:
        return histogram_of(scrape(self._url), "braid_batch_duration_seconds")


def scrape(url: str) -> str:
    """Return the metrics of the service at `url` as Prometheus would read them."""
    answer = httpx.get(f"{url}/metrics", timeout=10, trust_env=False)
    answer.raise_for_status()
    return answer.text


def histogram_of(text: str, name: str) -> Histogram:
    """Return the histogram `name` in a text of metrics; without observations when it is not there."""
    bounds: dict[float, float] = {}
    total = 0.0
    for family in text_string_to_metric_families(text):
        if family.name != name:
            continue
        for sample in family.samples:
            if sample.name == f"{name}_bucket":
                bounds[float(sample.labels["le"])] = sample.value
            elif sample.name == f"{name}_sum":
                total = sample.value
    return Histogram(bounds, total)


def wait_running(client: Client, seconds: float) -> None:
    """Return once no query is PENDING.

    Raises:
        TimeoutError: some still were after so long.
    """
    wait_until(
        lambda: next(client.queries(state="PENDING", limit=1), None) is None,
        seconds,
        lambda: f"all queries must be RUNNING within {seconds:g} s",
    )


def wait_until(condition: Callable[[], bool], seconds: float, requirement: Callable[[], str]) -> None:
    """Return once a condition holds, which is asked again and again.

    Raises:
        TimeoutError: the requirement, because it does not after so many seconds.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(requirement())
        time.sleep(_POLL_SECONDS)
