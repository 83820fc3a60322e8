"""Flink SQL as a system under test: what it is asked to run and what becomes of its answers.

The program that runs in Flink's environment is stood in for by one that answers at once; `test_flink_runs.py` has real
runs.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from braid.bench_driver.dialects import flink
from braid.bench_driver.nexmark_query import NexmarkQuery
from braid.bench_driver.query_generator import generate_queries
from braid.bench_driver.query_load.probes import PROBES
from braid.bench_driver.query_spec import ColumnRef, JoinSpec, QuerySpec, WindowSpec
from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.systems import flink_system, peer_system
from braid.bench_driver.systems.flink_system import (
    JOBS,
    STATEMENT_SET,
    UNACKNOWLEDGED,
    FlinkSystem,
    cluster_options,
)
from braid.bench_driver.systems.peer_system import RUNNING
from braid.bench_driver.systems.system import OWN_GENERATOR, SystemFailedError, SystemOutput, UnsupportedError
from braid.bench_driver.workload import Churn, StreamSpec, Workload, load_workload
from tests.bench_driver.sums_of_a_stream import AT_ONCE, aggregation, workload
from tests.kit.waiting import wait_until

SECONDS = 20.0
RATE = 2_000
WORKLOAD = workload(RATE)
GIBIBYTE = 1 << 30

StandIn = Callable[..., None]

# notes what it is told; predicates on these constants make it misbehave
REFUSED, NOT_TAKEN, BREAKS, ENDS, SILENT = 901, 902, 903, 904, 905
PROGRAM = f"""#!{sys.executable}
import json, queue, sys, threading, time

told = queue.SimpleQueue()
def listen():
    for line in sys.stdin:
        told.put(json.loads(line))
    told.put(None)

def say(**value):
    print(json.dumps(value), flush=True)

def note(value):
    print(json.dumps(value), file=journal, flush=True)

journal = open("JOURNAL", "a")
threading.Thread(target=listen, daemon=True).start()
task = told.get()
note(task)
say(ready={{"versions": {{"flink": "9.9"}}}})
held, broken = [], []
while (command := told.get()) is not None:
    note(command)
    if command["do"] == "declare":
        say(declared=command["name"])
    elif command["do"] == "cancel" and command["job"] in broken:
        say(failed=None, reason=f"job {{command['job']}} must go on and is FAILED: out of memory")
    elif command["do"] == "cancel":
        say(stopped=command["job"])
    else:
        job, text = command["job"], command["queries"][0]["sql"]
        if "{REFUSED}" in text:
            say(refused=job, reason="Column 'colour' not found")
        elif "{NOT_TAKEN}" in text:
            say(failed=job, reason="no slots are left")
        elif "{BREAKS}" in text:
            broken.append(job)
            say(running=job)
        elif "{ENDS}" in text:
            sys.exit("the last words of the program")
        elif HOLD:
            held.append(job)
            if len(held) == HOLD:
                try:
                    note({{"more": told.get(timeout=0.2)}})
                except queue.Empty:
                    note({{"waited for": len(held)}})
                for each in held:
                    say(running=each)
                held.clear()
        elif "{SILENT}" not in text:
            say(running=job)
            say(arrived=12.5, latest=[[10.25, 3], [11.25, 1]])
            say(taken=[12.5, 400 + job])
"""


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """What the stand-in was told, one JSON object a line."""
    return tmp_path / "journal"


@pytest.fixture
def stand_in(tmp_path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Install the stand-in instead of Flink's Python; `hold`: it answers submissions when there are so many."""

    def install(hold: int = 0) -> None:
        python = tmp_path / "python"
        python.write_text(PROGRAM.replace("JOURNAL", str(journal)).replace("HOLD", str(hold)))
        python.chmod(0o700)
        monkeypatch.setattr(flink_system, "ensure_environment", lambda _: python)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where the logs of failures stay

    return install


@pytest.fixture
def jobs(stand_in: StandIn) -> Iterator[FlinkSystem]:
    stand_in()
    yield from started(JOBS)


@pytest.fixture
def statement_set(stand_in: StandIn) -> Iterator[FlinkSystem]:
    stand_in()
    yield from started(STATEMENT_SET)


def started(name: str) -> Iterator[FlinkSystem]:
    system = FlinkSystem(name)
    system.start(WORKLOAD, {})
    yield system
    system.stop()


def commands(journal: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """Return what the stand-in was told, or its commands of one kind."""
    received = [json.loads(line) for line in journal.read_text().splitlines()]
    return [command for command in received if kind is None or command.get("do") == kind]


def test_names_tell_the_form() -> None:
    assert {FlinkSystem(name).source for name in (JOBS, STATEMENT_SET)} == {OWN_GENERATOR}
    with pytest.raises(ValueError, match=r"must be one of .*'flink-statement-set'.*, got 'flink'"):
        FlinkSystem("flink")


def test_each_query_is_a_job_of_a_cluster_made_for_them(jobs: FlinkSystem, journal: Path) -> None:
    queries = [aggregation(constant) for constant in range(300, 310)]
    deployed = jobs.deploy(queries, AT_ONCE)
    assert deployed.queries == len(deployed.latencies) == 10
    assert 0 < min(deployed.latencies) <= max(deployed.latencies) <= deployed.seconds
    task, declared, *submitted = commands(journal)
    assert task["options"] == {name: json.loads(json.dumps(v)) for name, v in cluster_options(10, False).items()}
    assert task["slots"] == task["options"]["taskmanager.numberOfTaskSlots"]
    sql = flink.source_sql(WORKLOAD.streams[0], find_dataset("astream").columns, None)
    assert declared == {"do": "declare", "name": "a", "sql": sql}
    assert [(submission["do"], submission["job"], submission["together"]) for submission in submitted] == [
        ("submit", job, False) for job in range(10)
    ]
    submitted_queries = [query for submission in submitted for query in submission["queries"]]
    probes = [query["times"] is not None for query in submitted_queries]
    assert sum(probes) == PROBES
    assert [query["sql"] for query in submitted_queries] == [
        flink.query_sql(query, probe) for query, probe in zip(queries, probes, strict=True)
    ]
    assert {tuple(query["times"]) for query in submitted_queries if query["times"]} == {("latest",)}


def test_a_statement_set_is_one_job(statement_set: FlinkSystem, journal: Path) -> None:
    queries = [aggregation(constant) for constant in range(300, 310)]
    deployed = statement_set.deploy(queries, AT_ONCE)
    assert (deployed.queries, deployed.latencies) == (10, ())
    (submitted,) = commands(journal, "submit")
    assert submitted["together"] is True
    assert len(submitted["queries"]) == 10
    assert commands(journal)[0]["options"]["taskmanager.numberOfTaskSlots"] == os.cpu_count()
    assert statement_set.settings()["jobs"] == 1


def test_the_times_of_a_join_are_those_of_both_streams(stand_in: StandIn, journal: Path) -> None:
    stand_in()
    streams = (StreamSpec("a", "astream"), StreamSpec("b", "astream"))
    join = QuerySpec(
        streams=("a", "b"),
        window=WindowSpec(1000, 1000),
        joins=(JoinSpec(ColumnRef("a", "key"), ColumnRef("b", "key")),),
        columns=(ColumnRef("a", "key"),),
    )
    system = FlinkSystem(JOBS)
    try:
        system.start(Workload("test", "", "", streams, "join", {}, (1,), RATE), {})
        system.deploy([join], AT_ONCE)
    finally:
        system.stop()
    assert [order["name"] for order in commands(journal, "declare")] == ["a", "b"]
    ((submitted,),) = (order["queries"] for order in commands(journal, "submit"))
    assert submitted["times"] == ["time_0", "time_1"]


def test_nexmark_s_streams_have_their_shares_and_its_queries_their_event_times(
    stand_in: StandIn, journal: Path
) -> None:
    stand_in()
    workload = load_workload("nexmark:queries=[0,8,15]")
    system = FlinkSystem(JOBS)
    try:
        system.start(workload, {})
        system.offer(100_000)
        system.deploy(generate_queries(workload, 3, 1), AT_ONCE)
    finally:
        system.stop()
    assert commands(journal)[0]["of_workload"] == {"person": 50.0, "auction": 50 / 3, "bid": 50 / 46}
    declared = {order["name"]: order["sql"] for order in commands(journal, "declare")}
    rates = {name: re.search(r"'rows-per-second' = '(\d+)'", sql) for name, sql in declared.items()}
    assert {name: rate and rate[1] for name, rate in rates.items()} == {
        "person": "2000",
        "auction": "6000",
        "bid": "92000",
    }
    for stream in workload.streams:
        for column, _ in find_dataset(stream.dataset).columns:
            assert f"`{column}`" in declared[stream.name]
    queries = [query for order in commands(journal, "submit") for query in order["queries"]]
    assert [query["times"] for query in queries] == [None, ["time_0", "time_1"], None]
    assert queries[0]["sql"] == "SELECT auction, bidder, price, `dateTime`, extra FROM bid"
    assert queries[1]["sql"].count("MAX(`dateTime`) AS latest") == 2


def test_a_query_of_nexmark_that_looks_up_rows_is_unsupported(jobs: FlinkSystem) -> None:
    with pytest.raises(UnsupportedError, match="Flink is not asked q13"):
        jobs.deploy([NexmarkQuery(0), NexmarkQuery(13)], AT_ONCE)


def test_rows_and_tuples_taken_are_what_the_program_says(jobs: FlinkSystem) -> None:
    assert jobs.outputs() == jobs.taken() == []
    jobs.deploy([aggregation(1), aggregation(2)], AT_ONCE)
    wait_until(lambda: len(jobs.taken()) == 2, SECONDS, "both jobs took tuples")
    assert jobs.taken() == [(12.5, 400), (12.5, 401)]
    assert jobs.outputs() == 2 * [SystemOutput(12.5, 10.25, 3), SystemOutput(12.5, 11.25, 1)]


def test_no_more_is_sent_while_so_many_are_not_acknowledged(stand_in: StandIn, journal: Path) -> None:
    stand_in(UNACKNOWLEDGED)
    for system in started(JOBS):
        system.deploy([aggregation(constant) for constant in range(2 * UNACKNOWLEDGED)], AT_ONCE)
    assert [line for line in commands(journal) if "more" in line] == []
    assert [line for line in commands(journal) if "waited for" in line] == 2 * [{"waited for": UNACKNOWLEDGED}]


def test_queries_come_as_fast_as_they_are_asked_for(jobs: FlinkSystem) -> None:
    assert jobs.deploy([aggregation(constant) for constant in range(4)], per_second=10).seconds >= 0.3


def test_the_oldest_jobs_go_when_new_ones_come(jobs: FlinkSystem, journal: Path) -> None:
    jobs.deploy([aggregation(1), aggregation(2)], AT_ONCE)
    jobs.begin_churn([aggregation(3), aggregation(4)], Churn(2, 3600.0))
    with pytest.raises(SystemFailedError, match="must be ended before another"):
        jobs.begin_churn([aggregation(3)], Churn(1, 3600.0))
    churned = jobs.end_churn()
    assert churned.queries == len(churned.latencies) == len(churned.deletions) == 2
    assert min(*churned.latencies, *churned.deletions) > 0
    assert [order["job"] for order in commands(journal, "cancel")] == [0, 1]
    assert [order["job"] for order in commands(journal, "submit")] == [0, 1, 2, 3]
    assert ["< 3" in commands(journal, "submit")[2]["queries"][0]["sql"], jobs.settings()["jobs"]] == [True, 2]


def test_a_cluster_has_slots_for_jobs_that_come_before_others_have_gone(stand_in: StandIn, journal: Path) -> None:
    stand_in()
    churning = Workload(
        "test", "", "", WORKLOAD.streams, "aggregation", {}, (5,), RATE, shape="churn", churns=(Churn(5, 10.0),)
    )
    for name in (JOBS, STATEMENT_SET):
        system = FlinkSystem(name)
        try:
            system.start(churning, {})
            system.deploy([aggregation(constant) for constant in range(5)], AT_ONCE)
        finally:
            system.stop()
    of_jobs, of_set = (line["options"] for line in commands(journal) if "options" in line)
    assert of_jobs["taskmanager.numberOfTaskSlots"] == cluster_options(5, False, 5)["taskmanager.numberOfTaskSlots"]
    assert of_set["taskmanager.numberOfTaskSlots"] == os.cpu_count()


def test_a_churn_that_flink_does_not_keep_up_with_has_failed(
    jobs: FlinkSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_system, "CHURN_SECONDS", 0.2)
    jobs.deploy([aggregation(1)], AT_ONCE)
    jobs.begin_churn([aggregation(SILENT)], Churn(1, 3600.0))
    with pytest.raises(SystemFailedError, match="does not sustain the churn: 1 of 1 must be made and retired"):
        jobs.end_churn()


def test_a_query_of_the_churn_that_is_refused_is_unsupported(jobs: FlinkSystem) -> None:
    jobs.deploy([aggregation(1)], AT_ONCE)
    jobs.begin_churn([aggregation(REFUSED)], Churn(1, 3600.0))
    with pytest.raises(UnsupportedError, match="Flink: Column 'colour' not found"):
        jobs.end_churn()


def test_another_rate_needs_other_jobs(jobs: FlinkSystem, journal: Path) -> None:
    jobs.offer(RATE)
    jobs.deploy([aggregation(1), aggregation(2)], AT_ONCE)
    jobs.offer(RATE)  # no other
    assert [order["job"] for order in commands(journal, "submit")] == [0, 1]
    jobs.offer(None)
    slow, fast = commands(journal, "declare")
    assert f"'rows-per-second' = '{RATE}'" in slow["sql"]
    assert f"'rows-per-second' = '{flink.UNLIMITED}'" in fast["sql"]
    assert [order["job"] for order in commands(journal, "cancel")] == [0, 1]
    before, after = commands(journal, "submit")[:2], commands(journal, "submit")[2:]
    assert [order["job"] for order in after] == [2, 3]
    assert [order["queries"] for order in after] == [order["queries"] for order in before]
    assert jobs.settings()["tuples_per_second_asked"] is None


@pytest.mark.parametrize(
    ("constant", "kind", "words"),
    [
        (REFUSED, UnsupportedError, "Flink: Column 'colour' not found"),
        (NOT_TAKEN, SystemFailedError, "flink-jobs: job 0 was not submitted: no slots are left"),
        (ENDS, SystemFailedError, r"(?s)ended by itself with exit status 1.*the last words of the program"),
    ],
)
def test_what_does_not_run_is_told_and_nothing_is_left_running(
    jobs: FlinkSystem, constant: int, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        jobs.deploy([aggregation(constant)], AT_ONCE)
    with pytest.raises(SystemFailedError, match="must be started before"):
        jobs.deploy([aggregation(1)], AT_ONCE)


def test_a_job_that_fails_later_is_told(jobs: FlinkSystem) -> None:
    jobs.deploy([aggregation(BREAKS)], AT_ONCE)

    with pytest.raises(SystemFailedError, match="job 0 must go on and is FAILED: out of memory"):
        jobs.offer(RATE)


def test_jobs_that_do_not_run_in_time_have_failed(jobs: FlinkSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    late = 0.0

    def sleep_until_late(seconds: float) -> None:
        nonlocal late
        time.sleep(seconds)
        late = flink_system.DEPLOY_SECONDS if (RUNNING, 0) in jobs._answers.acknowledged_at else 0.0

    clock = SimpleNamespace(time=lambda: time.time() + late, sleep=sleep_until_late)
    monkeypatch.setattr(peer_system, "time", clock)
    with pytest.raises(SystemFailedError, match=r"2 jobs must run within 300 s, got 1 of them running"):
        jobs.deploy([aggregation(1), aggregation(SILENT)], AT_ONCE)


def test_a_cluster_is_as_large_as_its_queries_need(jobs: FlinkSystem) -> None:
    jobs.deploy([aggregation(1)], AT_ONCE)
    with pytest.raises(SystemFailedError, match="they are deployed once"):
        jobs.deploy([aggregation(2)], AT_ONCE)


def test_what_was_not_begun_cannot_be_used() -> None:
    with pytest.raises(UnsupportedError, match="a statement set is one job"):
        FlinkSystem(STATEMENT_SET).begin_churn([aggregation(1)], Churn(1, 1.0))
    system = FlinkSystem(JOBS)
    for use in (
        lambda: system.deploy([aggregation(1)], AT_ONCE),
        lambda: system.begin_churn([aggregation(1)], Churn(1, 1.0)),
        system.end_churn,
    ):
        with pytest.raises(SystemFailedError, match="must be started before"):
            use()
    assert system.outputs() == system.taken() == []
    system.stop()
    system.stop()


def test_a_churn_must_be_begun_before_it_is_ended(jobs: FlinkSystem) -> None:
    with pytest.raises(SystemFailedError, match="must be begun before"):
        jobs.end_churn()


# settings


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=16 * GIBIBYTE))


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(
    ("queries", "together", "spare", "parallelism", "slots"),
    [
        (1, False, 0, 4, 4),
        (2, False, 0, 2, 4),
        (3, False, 0, 1, 3),
        (20, False, 0, 1, 20),
        (20, False, 5, 1, 25),
        (2, False, 1, 2, 6),
        (20, True, 0, 4, 4),
    ],
)
def test_jobs_share_the_cores(queries: int, together: bool, spare: int, parallelism: int, slots: int) -> None:
    options = cluster_options(queries, together, spare)
    assert options["parallelism.default"] == parallelism
    assert options["taskmanager.numberOfTaskSlots"] == slots


@pytest.mark.usefixtures("four_cores")
def test_memory_grows_with_the_queries_up_to_a_share_of_the_machine() -> None:
    names = ("taskmanager.memory.task.heap.size", "taskmanager.memory.managed.size", "jobmanager.memory.heap.size")
    of_one, of_hundred, of_many = (
        [int(cluster_options(queries, False)[name].removesuffix("m")) for name in names] for queries in (1, 100, 10_000)
    )
    assert of_one == [3072 + 16, 512, 1024 + 8]
    assert of_hundred == [3072 + 400, 1600, 1024 + 200]
    assert of_many == [4096, 2457, 2048]


def test_flink_has_the_guarantee_and_what_its_documentation_advises() -> None:
    options = cluster_options(1, False)
    assert options["execution.checkpointing.mode"] == "EXACTLY_ONCE"
    assert options["pipeline.object-reuse"] is True
    assert options["table.optimizer.agg-phase-strategy"] == "TWO_PHASE"
    assert options["restart-strategy.type"] == "disable"


def test_settings_tell_how_it_ran(jobs: FlinkSystem) -> None:
    jobs.offer(RATE)
    jobs.deploy([aggregation(1), aggregation(2)], AT_ONCE)
    settings = jobs.settings()
    assert settings.items() >= cluster_options(2, False).items()
    assert (settings["version"], settings["jobs"], settings["tuples_per_second_asked"]) == ("9.9", 2, RATE)
    assert settings["source"] == "own generator: datagen"
    assert any("latency" in note for note in settings["notes"])
    json.dumps(settings)
