"""The orchestration: who is measured when, what is kept, what becomes of failures, and the exit status."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from braid.bench_driver.bench import DONE, FAILED, INTERRUPTED, run_bench
from braid.bench_driver.bench_task import (
    PEERS,
    Measure,
    Options,
    Task,
    Tell,
    make_system,
    plan,
    resolve_peers,
    run_settings,
)
from braid.bench_driver.report.document import read_document
from braid.bench_driver.systems.system import SystemFailedError, UnsupportedError
from braid.bench_driver.workload import load_workload
from tests.bench_driver.report.made_up_rows import made_up_row

OPTIONS = Options(quick=False, rounds=1, seconds=None, seed=4)


class Run:
    """Runs a benchmark whose measurements are made up; `tried` are the tasks that were measured."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.tried: list[tuple[int, int, str]] = []
        self.said = io.StringIO()

    def __call__(
        self, peers: list[str], counts: list[int] | None, rounds: int = 1, measure: Measure | None = None, **fields: Any
    ) -> int:
        def note(task: Task, options: Options, tell: Tell) -> Any:
            self.tried.append((task.queries, task.number, task.system))
            tell("search, step 1", 0.5)
            return (measure or good)(task, options, tell)

        workloads = fields.pop("workloads", ["astream-sc1"])
        options = replace(OPTIONS, rounds=rounds, **fields)
        console = Console(file=self.said, width=200)
        return run_bench(workloads, counts, peers, self.output, options, console, measure=note)

    @property
    def document(self) -> dict[str, Any]:
        return read_document(self.output)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "report")


def good(task: Task, _options: Options, _tell: Tell) -> dict[str, Any]:
    return made_up_row(task.system, task.workload.name, task.queries)


def failing(system: str, queries: int, error: Exception) -> Measure:
    """Return a measurement that raises for a system with so many queries or more."""

    def measure(task: Task, options: Options, tell: Tell) -> dict[str, Any]:
        if task.system == system and task.queries >= queries:
            raise error
        return good(task, options, tell)

    return measure


def test_all_systems_take_turns_in_every_round(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spark-fused", "flink-jobs"], [20, 1, 20], rounds=2) == DONE
    systems = ["braid", "spark-fused", "flink-jobs"]
    assert run.tried == [(n, number, system) for n in (1, 20) for number in (1, 2) for system in systems]
    document = run.document
    assert [(row["queries"], row["round"], row["system"]) for row in document["results"]] == run.tried
    assert document["failures"] == document["unsupported"] == []
    assert document["settings"]["systems"] == systems
    assert document["machine"]["cores"] == os.cpu_count()
    assert (run.output / "report.html").read_text().startswith("<!doctype html>")
    output = capsys.readouterr().out
    assert sum(line.startswith("astream-sc1") for line in output.splitlines()) == 2 * 3 + 2 * 2
    assert str(run.output / "report.json") in output


def test_a_peer_that_failed_is_not_tried_with_more_and_is_listed(run: Run) -> None:
    measure = failing("spark-queries", 20, SystemFailedError("it must deploy within 120 s"))
    assert run(["spark-queries"], [1, 20, 100], rounds=2, measure=measure) == DONE
    assert [task for task in run.tried if task[2] == "spark-queries"] == [
        (1, 1, "spark-queries"),
        (1, 2, "spark-queries"),
        (20, 1, "spark-queries"),
    ]
    assert [(f["queries"], f["round"], f["reason"]) for f in run.document["failures"]] == [
        (20, 1, "it must deploy within 120 s"),
        (20, 2, "not tried again: it failed with 20 queries: it must deploy within 120 s"),
        (100, 1, "not tried: it failed with 20 queries: it must deploy within 120 s"),
        (100, 2, "not tried: it failed with 20 queries: it must deploy within 120 s"),
    ]
    assert len([row for row in run.document["results"] if row["system"] == "braid"]) == 6


def test_a_row_with_an_error_is_kept_and_counts_as_a_failure(run: Run) -> None:
    def measure(task: Task, _options: Options, _tell: Tell) -> dict[str, Any]:
        row = made_up_row(task.system, task.workload.name, task.queries)
        return row | {"error": "ended by itself", "sustainable_tuples_per_second": None, "sustained": False}

    assert run([], [1], measure=measure) == FAILED
    assert [row["error"] for row in run.document["results"]] == ["ended by itself"]
    assert [failure["reason"] for failure in run.document["failures"]] == ["ended by itself"]


def test_braid_that_fails_is_tried_in_every_round_and_is_status_1(run: Run) -> None:
    assert run([], [1, 20], rounds=2, measure=failing("braid", 1, RuntimeError("what is that"))) == FAILED
    assert run.tried == [(1, 1, "braid"), (1, 2, "braid")]
    assert [failure["queries"] for failure in run.document["failures"]] == [1, 1, 20, 20]
    assert "Traceback" in (run.output / "failures.log").read_text()


def test_what_is_unsupported_is_listed_for_every_number_and_no_failure(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    measure = failing("braid", 20, UnsupportedError("joins of five streams are not supported"))
    assert run(["spark-fused"], [1, 20, 100], rounds=2, measure=measure) == DONE
    reason = "joins of five streams are not supported"
    assert run.document["unsupported"] == [
        {"workload": "astream-sc1", "queries": queries, "system": "braid", "reason": reason} for queries in (20, 100)
    ]
    assert run.document["failures"] == []
    assert (20, 2, "braid") not in run.tried
    assert f"astream-sc1 with 20, 100 queries on braid: {reason}" in capsys.readouterr().out


def test_a_row_that_cannot_be_kept_is_a_failure(run: Run) -> None:
    def measure(task: Task, options: Options, tell: Tell) -> dict[str, Any]:
        return good(task, options, tell) | {"queries": "many"}

    assert run([], [1], measure=measure) == FAILED
    assert "'queries' must be int, got 'many'" in run.document["failures"][0]["reason"]


@pytest.mark.parametrize(
    "interrupt", [lambda: signal.raise_signal(signal.SIGINT), lambda: signal.raise_signal(signal.SIGTERM)]
)
def test_an_interrupted_run_keeps_what_it_has(run: Run, interrupt: Callable[[], None]) -> None:
    def measure(task: Task, options: Options, tell: Tell) -> dict[str, Any]:
        if task.system == "spark-fused":
            # everything before this one is on disk already
            assert [row["system"] for row in run.document["results"]] == ["braid"]
            interrupt()
        return good(task, options, tell)

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert run(["spark-fused"], [1, 20], measure=measure) == INTERRUPTED
    assert [row["system"] for row in run.document["results"]] == ["braid"]
    assert "astream-sc1" in (run.output / "report.html").read_text()
    assert "kept" in run.said.getvalue()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_run_in_the_background_can_be_interrupted(run: Run) -> None:
    def measure(task: Task, options: Options, tell: Tell) -> dict[str, Any]:
        signal.raise_signal(signal.SIGINT)
        return good(task, options, tell)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as shells do
    try:
        assert run([], [1], measure=measure) == INTERRUPTED
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_older_report_is_kept_beside_the_new_one(run: Run) -> None:
    run([], [1])
    first = (run.output / "report.json").read_text()
    run([], [20])
    (older,) = run.output.glob("report-*.json")
    assert older.read_text() == first
    assert len(list(run.output.glob("report-*.html"))) == 1
    assert run.document["results"][0]["queries"] == 20


def test_wrong_names_measure_and_write_nothing(run: Run) -> None:
    with pytest.raises(ValueError, match=r"there is no workload 'nope'; there are .*rovio-join"):
        run([], [1], workloads=["astream-sc1", "nope"])
    with pytest.raises(ValueError, match=r"there is no peer 'storm'; there are spark .*flink-jobs"):
        run(["storm"], [1])
    assert run.tried == []
    assert not run.output.exists()


def test_plain_lines_say_how_far_it_is(run: Run) -> None:
    run(["spark-fused"], [20], measure=failing("spark-fused", 1, SystemFailedError("[red]too slow[/red]")))
    lines = [line.split(" s  ", 1)[1] for line in run.said.getvalue().splitlines()]
    assert lines == [
        "[1/2] astream-sc1, 20 queries, braid, round 1",
        "    search, step 1",
        "astream-sc1, 20 queries, braid, round 1: 2,045,931 tuples/s, event-time latency p50 0.90 s",
        "[2/2] astream-sc1, 20 queries, spark-fused, round 1",
        "    search, step 1",
        "astream-sc1, 20 queries, spark-fused, round 1: FAILED: [red]too slow[/red]",
    ]


def test_a_terminal_gets_bars(tmp_path: Path) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=120)
    status = run_bench(["one-key"], [1], [], tmp_path, OPTIONS, console, measure=good)
    assert status == DONE
    assert "1/1" in output.getvalue()
    assert "one-key, 1 query, braid, round 1" in output.getvalue()


def test_families_and_systems_are_peers() -> None:
    other_names = [name for name in PEERS["spark"] if name != "spark-fused"]
    assert resolve_peers(["spark-fused", "spark"]) == ["spark-fused", *other_names]
    assert resolve_peers(["duckdb"]) == ["duckdb-batches"]
    assert resolve_peers([]) == []


def test_braid_with_other_settings_is_a_system_of_its_own(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(task: Task, options: Options, tell: Tell) -> dict[str, Any]:
        return good(replace(task, system="braid"), options, tell) | {"system": task.system}

    variants = ("query_groups=off", " Partitions = 1 ,query_groups=off", "query_groups=off")
    assert run([], [1], measure=measure, variants=variants) == DONE
    rows = json.loads((run.output / "report.json").read_text())["results"]
    names = ["braid", "braid query_groups=off", "braid partitions=1,query_groups=off"]
    assert [row["system"] for row in rows] == names
    monkeypatch.delenv("BRAID_PARTITIONS", raising=False)
    settings = [make_system(name).settings()["environment"] for name in names]
    assert [environment.get("BRAID_PARTITIONS") for environment in settings] == [None, None, "1"]
    assert [environment.get("BRAID_QUERY_GROUPS") for environment in settings[1:]] == ["off", "off"]


@pytest.mark.parametrize("name", ["braid", "braid partitions=1", *PEERS["spark"], *PEERS["flink"]])
def test_every_system_can_be_made(name: str) -> None:
    system = make_system(name)
    assert system.name == name
    system.stop()


def test_counts_are_the_commands_or_the_workloads_or_few() -> None:
    workload = load_workload("astream-sc1")
    queries = {task.queries for task in plan([workload], None, ["braid"], OPTIONS)}
    assert queries == set(workload.counts)
    quick = Options(quick=True, rounds=1, seconds=None, seed=4)
    assert [task.queries for task in plan([workload], None, ["braid"], quick)] == [20]
    assert [task.queries for task in plan([load_workload("astream-sc2")], None, ["braid"], quick)] == [10]
    assert [task.queries for task in plan([workload], [5, 3], ["braid"], quick)] == [3, 5]


def test_a_given_rate_is_offered_once_and_latency_looked_at_there() -> None:
    searched, at_given_rate = run_settings(OPTIONS), run_settings(replace(OPTIONS, seconds=9.0, rate=5000))
    assert (searched.plan.max_steps, searched.latency_load) == (9, 0.9)
    assert (
        at_given_rate.plan.max_steps,
        at_given_rate.latency_load,
        at_given_rate.step_seconds,
        at_given_rate.seed,
    ) == (1, 1.0, 9.0, 4)


def test_the_report_is_json_for_others(run: Run) -> None:
    run([], [1])
    (row,) = json.loads((run.output / "report.json").read_text())["results"]
    assert row["system"] == "braid"
    assert set(row["event_time_latency_seconds"]) == {"p50", "p95", "p99", "max"}
