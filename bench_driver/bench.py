"""Run a benchmark: every workload, number of queries and round, all systems in alternation, and a report of it.

What is measured is kept at once: `report.json` is written after every measurement, so an interrupted run loses only
the one under way. A system that fails costs its own figures and no others'.
"""

from __future__ import annotations

import datetime as dt
import shlex
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.text import Text

from braid.bench_driver.bench_task import Measure, Options, Task, measure_task, plan, resolve_peers, variant
from braid.bench_driver.machine import machine, versions
from braid.bench_driver.programs.standalone import interruptible
from braid.bench_driver.report.document import FILE_NAME, Document, ReportError, Row
from braid.bench_driver.report.summary import OURS
from braid.bench_driver.report.terminal import one_line, render, seconds
from braid.bench_driver.systems.system import UnsupportedError
from braid.bench_driver.workload import load_workload

NEEDED = ("matplotlib", "jinja2", "locust", "duckdb")

DONE, FAILED, INTERRUPTED = 0, 1, 130


def missing_packages() -> list[str]:
    """Return the packages of the `bench` extra that are not installed."""
    return [name for name in NEEDED if find_spec(name) is None]


def run_bench(
    workloads: Sequence[str],
    counts: Sequence[int] | None,
    peers: Sequence[str],
    output: Path,
    options: Options,
    console: Console,
    measure: Measure = measure_task,
) -> int:
    """Measure, write `report.json` and `report.html` into `output`, print the table; return the exit status.

    0 when all was measured or is listed with its reason, 1 when Braid could not be measured, 130 when interrupted.
    `console` shows the progress; the table goes to standard output.

    Raises:
        ValueError: there is no such workload or peer; nothing was measured, nothing written.
        OSError: `output` cannot be written to.
    """
    systems = [OURS, *dict.fromkeys(map(variant, options.variants)), *resolve_peers(peers)]
    tasks = plan([load_workload(name) for name in dict.fromkeys(workloads)], counts, systems, options)
    output.mkdir(parents=True, exist_ok=True)
    _keep_older(output)
    settings = {
        "workloads": list(dict.fromkeys(workloads)),
        "queries": None if counts is None else list(counts),
        "systems": systems,
        **asdict(options),
    }
    document = Document(shlex.join(["braid", *sys.argv[1:]]), settings, machine(), versions())
    document.write(output)
    bench = _Bench(document, output, options, measure)
    interrupted = False
    try:
        with interruptible(), BenchProgress(console, len(tasks)) as progress:
            bench.run(tasks, progress)
    except KeyboardInterrupt:
        interrupted = True
        console.print("Interrupted; what was measured until now is kept.", markup=False)
    _write_page(document, output, console)
    print(render(document.content))
    print(f"\nReport: {output / FILE_NAME} and {output / 'report.html'}")
    return INTERRUPTED if interrupted else FAILED if bench.braid_failed else DONE


class _Bench:
    """Goes through the tasks; remembers who failed where, so that it is not tried with more."""

    def __init__(self, document: Document, output: Path, options: Options, measure: Measure) -> None:
        self.braid_failed = False
        self._document = document
        self._output = output
        self._options = options
        self._measure = measure
        # by workload and system: the number of queries that was too many, and why
        self._failed: dict[tuple[str, str], tuple[int, str]] = {}
        self._unsupported: dict[tuple[str, str], tuple[int, str]] = {}

    def run(self, tasks: Sequence[Task], progress: BenchProgress) -> None:
        """Measure every task that has a chance, and list the others with their reason."""
        for task in tasks:
            progress.begin(task.label)
            outcome = self._listed(task) or self._measured(task, progress)
            self._document.write(self._output)
            progress.end(f"{task.label}: {outcome}")

    def _listed(self, task: Task) -> str | None:
        """List a task that is not tried, and return why; None when it is to be tried."""
        key = (task.workload.name, task.system)
        if key in self._unsupported:
            queries, reason = self._unsupported[key]
            if task.queries > queries:
                self._list_unsupported(task, reason)
            return f"unsupported: {one_line(reason)}"
        if key not in self._failed:
            return None
        queries, reason = self._failed[key]
        # another round may tell a failure of Braid from a mishap; of a peer it costs more than it tells
        if task.queries == queries and task.system == OURS:
            return None
        verdict = "not tried again" if task.queries == queries else "not tried"
        count_text = "1 query" if queries == 1 else f"{queries:,} queries"
        self._fail(task, f"{verdict}: it failed with {count_text}: {reason}", remember=False)
        return f"{verdict}, it failed with {count_text}"

    def _measured(self, task: Task, progress: BenchProgress) -> str:
        try:
            row = {**self._measure(task, self._options, progress.step), "round": task.number}
            self._document.add_row(row)
        except UnsupportedError as error:
            self._unsupported[task.workload.name, task.system] = task.queries, str(error)
            self._list_unsupported(task, str(error))
            return f"unsupported: {one_line(str(error))}"
        except ReportError as error:
            return self._fail(task, f"the measurement gave no row that can be kept: {error}")
        except Exception as error:  # whatever a peer does, the others are measured
            with (self._output / "failures.log").open("a", encoding="utf-8") as log:
                log.write(f"{task.label}\n{traceback.format_exc()}\n")
            return self._fail(task, str(error) or type(error).__name__)
        if row["error"] is not None:
            return self._fail(task, row["error"])
        return _outcome(row)

    def _list_unsupported(self, task: Task, reason: str) -> None:
        entry = {"workload": task.workload.name, "queries": task.queries, "system": task.system, "reason": reason}
        if entry not in self._document.content["unsupported"]:
            self._document.add_unsupported(task.workload.name, task.queries, task.system, reason)

    def _fail(self, task: Task, reason: str, remember: bool = True) -> str:
        self._document.add_failure(task.workload.name, task.queries, task.system, task.number, reason)
        if remember:
            self._failed[task.workload.name, task.system] = task.queries, one_line(reason, 300)
        self.braid_failed |= task.system == OURS
        return one_line(reason) if reason.startswith("not measured") else f"FAILED: {one_line(reason)}"


def _outcome(row: Row) -> str:
    rate, latency = row["sustainable_tuples_per_second"], row["event_time_latency_seconds"]
    words = f"{rate:,.0f} tuples/s" + ("" if row["sustained"] else " taken, but no rate that was tried sustained")
    return words + (f", event-time latency p50 {seconds(latency['p50'])}" if latency else "")


def _keep_older(output: Path) -> None:
    """Move a report that is there already aside, named by when it was last written."""
    for name in (FILE_NAME, "report.html", "failures.log"):
        older = output / name
        if older.exists():
            stamp = dt.datetime.fromtimestamp(older.stat().st_mtime, dt.UTC).strftime("%Y%m%dT%H%M%SZ")
            older.rename(older.with_stem(f"{older.stem}-{stamp}"))


def _write_page(document: Document, output: Path, console: Console) -> None:
    try:
        from braid.bench_driver.report.html import write_page

        write_page(document.content, output)
    except Exception as error:  # the figures are in report.json, and must be shown whatever becomes of the page
        console.print(f"report.html could not be written ({error!r}); {FILE_NAME} has all figures.", markup=False)


class BenchProgress:
    """Tells of so many measurements; a context manager.

    Texts are printed as they are: nothing in them is taken for markup.
    """

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._label = self._last_text = ""
        self._status = console.status("") if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._status is not None:
            self._status.stop()

    def begin(self, label: str) -> None:
        """Say which measurement begins."""
        self._label, self._last_text = f"[{self._done + 1}/{self._total}] {label}", ""
        if self._status is None:
            self._line(self._label)
        else:
            self._status.update(Text(self._label))

    def step(self, text: str, share: float | None) -> None:
        """Say what the measurement does now, and what share of it (0 to 1) is done, None when that is not known."""
        if self._status is not None:
            self._status.update(Text(f"{self._label}: {text}" + ("" if share is None else f", {share:.0%}")))
        elif text != self._last_text:
            self._line(f"    {text}")
        self._last_text = text

    def end(self, outcome: str) -> None:
        """Say what came of the measurement, in a line that stays."""
        self._done += 1
        self._line(outcome)

    def _line(self, text: str) -> None:
        elapsed = time.monotonic() - self._began
        self._console.print(f"{elapsed:7.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)
