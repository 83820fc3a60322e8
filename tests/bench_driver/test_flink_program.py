"""The program in Flink's environment: what it reads off the jobs, off the rows that are printed, and what it answers.

Flink's REST interface is a small server here with jobs that the test moves from state to state.
"""

from __future__ import annotations

import http.server
import io
import json
import sys
import threading
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from braid.bench_driver.peers.flink_program import NOT_SUBMITTED, PrintedRows, serve
from braid.bench_driver.peers.flink_watch import (
    HOST,
    SEGMENT_SECONDS,
    FlinkWatch,
    SlowestCount,
    counters_of_sources,
    reason_of,
    stream_of,
)
from tests.kit.waiting import wait_until

SECONDS = 20.0
SOURCE, WRITER = "Source__a_1_.numRecordsOut", "Sink__blackhole.numRecordsOut"


# the rows of probe queries


def test_printed_rows_are_counted_by_the_newest_of_their_times() -> None:
    printed = PrintedRows()
    printed.expect("p3.0", ["total", "latest"], ["latest"])
    printed.expect("p4.1", ["time_0", "key", "time_1"], ["time_0", "time_1"])
    read = [
        b"p3.0:1> +I[17, 1970-01-01T00:00:01.500]",
        b"p3.0:2> +I[18, 1970-01-01T00:00:01.500]",
        b"p3.0> +I[19, 1970-01-01T00:00:02]",  # one subtask has no number
        b"p4.1:1> +I[1970-01-01T00:00:03, 7, 1970-01-01T00:00:04.250]",
        b"p4.1:1> +I[1970-01-01T00:00:05, 7, null]",
        b"",
    ]
    assert printed.take(b"\n".join(read)) == [[1.5, 2], [2.0, 1], [4.25, 1], [5.0, 1]]


def test_a_row_may_come_in_pieces() -> None:
    printed = PrintedRows()
    printed.expect("p0.0", ["latest"], ["latest"])
    text = b"p0.0:1> +I[1970-01-01T00:00:01]\n"
    assert [printed.take(text[place : place + 1]) for place in range(len(text))][-1] == [[1.0, 1]]
    assert printed.take(text[:-1]) == []
    assert printed.take(b"\n" + text) == [[1.0, 2]]


def test_what_is_no_row_of_a_probe_is_passed_over() -> None:
    printed = PrintedRows()
    printed.expect("p0.0", ["total", "latest"], ["latest"])
    other_lines = [
        b"WARNING: a word of the JVM",
        b"p0.0:1> -U[1, 1970-01-01T00:00:01]",
        b"p9.9:1> +I[1, 1970-01-01T00:00:01]",
        b"p0.0:1> +I[1, null]",
        b"\xff\xfe",
        b"",
    ]
    assert printed.take(b"\n".join(other_lines)) == []


# what the sources took


def test_the_slowest_job_counts() -> None:
    slowest = SlowestCount()
    assert slowest.add(0.0, {1: 100, 2: 300}) == 0
    assert slowest.add(1.0, {1: 150, 2: 400}) == 50
    assert slowest.add(2.0, {1: 400, 2: 450}) == 150


def test_the_count_goes_on_with_the_jobs_that_come() -> None:
    slowest = SlowestCount()
    slowest.add(0.0, {1: 0, 2: 0})
    assert slowest.add(1.0, {1: 100, 2: 100}) == 100
    # job 3 came for job 1, whose counters are not followed at once
    assert slowest.add(2.0, {2: 200, 3: 10}) == 200
    assert slowest.add(SEGMENT_SECONDS, {2: 300, 3: 50}) == 300
    assert slowest.add(SEGMENT_SECONDS + 1, {2: 400, 3: 80}) == 330
    # all are new: it goes on where it was
    assert slowest.add(SEGMENT_SECONDS + 2, {4: 1000}) == 330
    assert slowest.add(SEGMENT_SECONDS + 3, {4: 1070}) == 400


def test_the_count_never_falls() -> None:
    slowest = SlowestCount()
    counts = [{1: 0, 2: 0}, {1: 90, 2: 100}, {1: 90}, {}, {1: 95, 2: 100}, {2: 5}, {2: 6}]
    reached = [slowest.add(at * SEGMENT_SECONDS, counts_by_job) for at, counts_by_job in enumerate(counts)]
    assert reached == sorted(reached)
    assert reached[:2] == [0, 90]


def test_the_counters_of_sources_are_told_from_others() -> None:
    names = [f"0.{SOURCE}", f"1.{SOURCE}", f"0.{WRITER}", "0.Source__a_1_.numRecordsIn", "0.numRecordsOut", SOURCE]
    assert counters_of_sources(names) == {SOURCE: [f"0.{SOURCE}", f"1.{SOURCE}"]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no reason given"),
        ("it broke", "it broke"),
        (
            "An error occurred while calling o7.sqlQuery.\n"
            ": org.apache.flink.table.api.ValidationException: SQL validation failed\n"
            "\tat org.apache.Some.method(Some.java:7)\n"
            "Caused by: org.apache.calcite.Outer: outer\n\tat org.x\n"
            "Caused by: org.apache.calcite.Inner: Column 'colour' not found\n\t... 13 more\n",
            ": org.apache.flink.table.api.ValidationException: SQL validation failed"
            " Caused by: org.apache.calcite.Inner: Column 'colour' not found",
        ),
    ],
)
def test_the_reason_of_an_exception_is_its_first_line_and_its_last_cause(text: str, reason: str) -> None:
    assert reason_of(text) == reason


# the watch


@dataclass
class Job:
    state: str = "RUNNING"
    running: int = 2
    total: int = 2
    cause: str = ""
    # of each subtask of its one source, how much it took; None: not known
    taken: list[int] | None = field(default_factory=lambda: [0, 0])


class FlinkServer(http.server.ThreadingHTTPServer):
    """What Flink's REST interface says of `jobs`; while `busy` it answers with nothing that can be read."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Handler)
        self.jobs: dict[str, Job] = {}
        self.busy = False
        self.asked = 0

    def answer(self, method: str, path: str, query: dict[str, list[str]]) -> Any:
        match path.strip("/").split("/"):
            case ["jobs", "overview"]:
                return {"jobs": [self._described(flink_id, job) for flink_id, job in self.jobs.items()]}
            case ["jobs", flink_id, "exceptions"]:
                return {"exceptionHistory": {"entries": [{"stacktrace": self.jobs[flink_id].cause}]}}
            case ["jobs", flink_id] if method == "PATCH":
                assert query == {"mode": ["cancel"]}
                self.jobs[flink_id].state = "CANCELED"
                return None
            case ["jobs", _]:
                vertices = [("v1", "Source: a[1] -> Calc[2]"), ("v2", "Sink: blackhole")]
                return {"vertices": [{"id": i, "name": name, "parallelism": 2} for i, name in vertices]}
            case ["jobs", flink_id, "vertices", "v1", "metrics"]:
                taken = self.jobs[flink_id].taken or []
                names = [f"{subtask}.{SOURCE}" for subtask in range(len(taken))]
                if "get" not in query:
                    return [{"id": name} for name in [*names, "0.numRecordsOut"]]
                assert query["get"] == [",".join(names)]
                return [{"id": name, "value": f"{n}"} for name, n in zip(names, taken, strict=True)]
            case ["jobs", _, "vertices", "v2", "metrics"]:
                return [{"id": f"0.{WRITER}"}, {"id": f"1.{WRITER}"}]
        raise AssertionError(f"{method} {path} must be one of Flink's")

    def _described(self, flink_id: str, job: Job) -> dict[str, Any]:
        return {"jid": flink_id, "state": job.state, "tasks": {"running": job.running, "total": job.total}}


class _Handler(http.server.BaseHTTPRequestHandler):
    server: FlinkServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked += 1
        if self.server.busy:
            self.close_connection = True
            return
        address = urllib.parse.urlsplit(self.path)
        answer = self.server.answer(self.command, address.path, urllib.parse.parse_qs(address.query))
        body = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(202 if answer is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PATCH = do_GET  # noqa: N815 - the library's name

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def flink() -> Iterator[FlinkServer]:
    with FlinkServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Cluster:
    """Whether the cluster is there, as the watch asks."""

    ended = False

    def check(self) -> None:
        if self.ended:
            raise RuntimeError("the TaskManager ended by itself with exit status 1")


@dataclass
class Watching:
    watch: FlinkWatch
    cluster: Cluster
    said: list[dict[str, Any]]

    def has_said(self, *lines: dict[str, Any]) -> None:
        """Wait until it has said this, in that order among what it says of states."""
        wait_until(lambda: self.states() == list(lines), SECONDS, lambda: f"it says {lines}, it said {self.states()}")

    def states(self) -> list[dict[str, Any]]:
        return [line for line in self.said if "taken" not in line]

    def taken(self) -> list[int]:
        return [line["taken"][1] for line in self.said if "taken" in line]


@pytest.fixture
def watching(flink: FlinkServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watching]:
    monkeypatch.setattr("braid.bench_driver.peers.flink_watch.LOOK_SECONDS", 0.005)
    monkeypatch.setattr("braid.bench_driver.peers.flink_watch.TAKEN_SECONDS", 0.01)
    monkeypatch.setattr("braid.bench_driver.peers.flink_watch.MAX_REST_SECONDS", 0.01)
    lines: list[dict[str, Any]] = []
    cluster = Cluster()
    watch = FlinkWatch(flink.server_port, cluster.check, lambda line: lines.append(dict(line)), {"a": 1.0})
    watch.start()
    yield Watching(watch, cluster, lines)
    cluster.ended = True
    watch.join(SECONDS)
    assert not watch.is_alive()


def test_a_job_runs_when_all_its_tasks_do_and_is_stopped_when_it_has_ended(
    flink: FlinkServer, watching: Watching
) -> None:
    flink.jobs["f0"] = Job(state="CREATED", running=0)
    watching.watch.tell("starting", 0, "f0")
    flink.jobs["f0"].state = "RUNNING"
    flink.jobs["f0"].running = 1
    looks = flink.asked + 4
    wait_until(lambda: flink.asked > looks, SECONDS, "it looked")
    assert watching.said == []
    flink.jobs["f0"].running = 2
    watching.has_said({"running": 0})
    watching.watch.tell("stopping", 0, "f0")
    watching.has_said({"running": 0}, {"stopped": 0})
    assert flink.jobs["f0"].state == "CANCELED"


def test_a_job_that_ended_by_itself_is_told_with_its_cause(flink: FlinkServer, watching: Watching) -> None:
    flink.jobs["f5"] = Job()
    watching.watch.tell("starting", 5, "f5")
    watching.has_said({"running": 5})
    flink.jobs["f5"].cause = "java.lang.RuntimeException: it broke\n\tat org.x\nCaused by: java.lang.OutOfMemoryError"
    flink.jobs["f5"].state = "FAILED"
    reason = (
        "job 5 must go on and is FAILED: java.lang.RuntimeException: it broke Caused by: java.lang.OutOfMemoryError"
    )
    watching.has_said({"running": 5}, {"failed": None, "reason": reason})
    watching.watch.join(SECONDS)
    assert not watching.watch.is_alive()


def test_the_end_of_the_cluster_is_told(watching: Watching) -> None:
    watching.cluster.ended = True
    watching.has_said({"failed": None, "reason": "the TaskManager ended by itself with exit status 1"})


def test_what_the_sources_took_is_told_once_it_is_known(flink: FlinkServer, watching: Watching) -> None:
    flink.jobs["f0"] = Job(taken=None)
    flink.jobs["f1"] = Job(taken=[5, 5])
    for job, flink_id in enumerate(flink.jobs):
        watching.watch.tell("starting", job, flink_id)
    wait_until(lambda: watching.taken(), SECONDS, "the job that is known is told")
    flink.jobs["f1"].taken = [10, 15]
    wait_until(lambda: watching.taken()[-1] == 15, SECONDS, "both subtasks are added up")
    assert watching.taken() == sorted(watching.taken())
    assert set(watching.taken()) <= {0, 5, 10, 15}


def test_what_a_share_of_the_workload_took_counts_as_all_of_it(flink: FlinkServer) -> None:
    lines: list[dict[str, Any]] = []
    cluster = Cluster()
    watch = FlinkWatch(flink.server_port, cluster.check, lambda line: lines.append(dict(line)), {"a": 12.5})
    flink.jobs["f0"] = Job(taken=[0, 0])
    watch.start()
    watch.tell("starting", 0, "f0")
    wait_until(lambda: any("taken" in line for line in lines), SECONDS, "it counts")
    flink.jobs["f0"].taken = [10, 30]
    wait_until(lambda: lines[-1]["taken"][1] == 500, SECONDS, "forty are a share of five hundred")
    cluster.ended = True
    watch.join(SECONDS)


@pytest.mark.parametrize("counter", ["Source__bid[12].numRecordsOut", "Source__bid_12_.numRecordsOut"])
def test_a_source_s_counter_names_its_stream(counter: str) -> None:
    assert stream_of(counter) == "bid"
    with pytest.raises(RuntimeError, match=r"must name the table that it reads, got 'Source__odd\.numRecordsOut'"):
        stream_of("Source__odd.numRecordsOut")


def test_a_busy_flink_is_asked_again(
    flink: FlinkServer, watching: Watching, capsys: pytest.CaptureFixture[str]
) -> None:
    flink.busy = True
    flink.jobs["f0"] = Job()
    watching.watch.tell("starting", 0, "f0")
    wait_until(lambda: flink.asked >= 3, SECONDS, "it asked in vain")
    watching.watch.tell("stopping", 0, "f0")
    flink.busy = False
    wait_until(lambda: watching.states()[-1:] == [{"stopped": 0}], SECONDS, "it was asked again")
    assert "watch: RemoteDisconnected" in capsys.readouterr().err


# the commands


class Client:
    """Takes any SQL but two."""

    def __init__(self) -> None:
        self.declared: dict[str, str] = {}

    def declare(self, name: str, sql: str) -> None:
        self.declared[name] = sql

    def submit(self, job: int, queries: Sequence[dict[str, Any]], together: bool) -> str:
        if queries[0]["sql"] == "wrong":
            raise ValueError("org.apache.flink.ValidationException: Column 'colour' not found")
        if queries[0]["sql"] == "too many":
            raise ValueError(f"org.apache.flink.TableException: {NOT_SUBMITTED}\nCaused by: no slots are left")
        return f"f{job}-{len(queries)}-{together}"


class Noted:
    """A watch that takes note of what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, str]] = []

    def tell(self, kind: str, job: int, flink_id: str) -> None:
        self.told.append((kind, job, flink_id))


def test_commands_are_done_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(job: int, *sql: str) -> dict[str, Any]:
        return {"do": "submit", "job": job, "queries": [{"sql": s} for s in sql], "together": len(sql) > 1}

    commands = [
        {"do": "declare", "name": "a", "sql": "CREATE TABLE a"},
        submit(0, "good"),
        submit(1, "wrong"),
        submit(2, "too many"),
        submit(3, "good", "good"),
        {"do": "cancel", "job": 0},
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(command) + "\n" for command in commands)))
    client, watch, answers = Client(), Noted(), []
    serve(client, watch, answers.append)  # type: ignore[arg-type]
    assert client.declared == {"a": "CREATE TABLE a"}
    assert watch.told == [("starting", 0, "f0-1-False"), ("starting", 3, "f3-2-True"), ("stopping", 0, "f0-1-False")]
    assert answers == [
        {"declared": "a"},
        {"refused": 1, "reason": "org.apache.flink.ValidationException: Column 'colour' not found"},
        {
            "failed": 2,
            "reason": f"org.apache.flink.TableException: {NOT_SUBMITTED} Caused by: no slots are left",
        },
    ]
