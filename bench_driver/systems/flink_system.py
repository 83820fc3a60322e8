"""Apache Flink SQL as a system under test: one job per query, or all queries in one statement set.

Two forms, by name: `flink-jobs` submits one job per query to a session cluster; `flink-statement-set` plans all queries
as one job that reads its stream once, and which cannot change while it runs. Flink cannot read the driver's queues, so
its own generator makes up the tuples in the JVM, without a network or a format in between, which favours it.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil

from braid.bench_driver.child import ChildProcess
from braid.bench_driver.dialects import common, flink, flink_nexmark
from braid.bench_driver.mixed_query import Query
from braid.bench_driver.nexmark_query import FLINK, NexmarkQuery
from braid.bench_driver.peers.flink_environment import ensure_environment
from braid.bench_driver.programs.standalone import say
from braid.bench_driver.query_load.probes import choose_probes
from braid.bench_driver.query_spec import QuerySpec
from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.systems.peer_system import STOPPED, PeerAnswers, PeerSystem
from braid.bench_driver.systems.system import (
    OWN_GENERATOR,
    SystemDeployment,
    SystemFailedError,
    UnsupportedError,
    queries_of_templates,
)
from braid.bench_driver.workload import Churn, Workload

JOBS, STATEMENT_SET = "flink-jobs", "flink-statement-set"
FLINK_SYSTEMS = (JOBS, STATEMENT_SET)
READY_SECONDS = 150.0
DEPLOY_SECONDS = 300.0
# the driver sends more when this many are not acknowledged yet, no sooner (thesis 4.4.1)
UNACKNOWLEDGED = 16
HEAP_SHARE, MANAGED_SHARE = 0.25, 0.15
MEBIBYTE = 1 << 20
# of NEXMark's queries
LOOKUP = 13

DECLARED = "declared"
NOTES = (
    "datagen gives the tuples of a second at once where it has a rate: windows wait up to a second for the next ones",
    "datagen waits for the jobs, and a tuple's event time is when it was made: latency while tuples wait is not seen",
    "the event times of NEXMark's tuples are spread over the second before: rows come up to two seconds late",
    "jobs are planned and submitted one after the other by one client",
    "another rate needs other jobs: all are cancelled and submitted again",
)


class FlinkSystem(PeerSystem):
    """One form of Flink SQL."""

    source = OWN_GENERATOR
    product = "Flink"

    def __init__(self, name: str) -> None:
        if name not in FLINK_SYSTEMS:
            raise ValueError(f"Flink's name must be one of {FLINK_SYSTEMS}, got {name!r}")
        super().__init__(name)
        self._together = name == STATEMENT_SET
        self._workload: Workload | None = None
        self._rate: int | None = None
        self._live: deque[_Live] = deque()  # oldest first
        self._next_job = 0
        self._options: dict[str, Any] = {}

    def start(self, workload: Workload, locations: Mapping[str, str]) -> None:  # noqa: ARG002 - no queue is read
        """See that there is a Flink to start: how large its cluster must be is known when the queries are."""
        self.stop()
        python = ensure_environment(say)
        self._workload, self._answers, self._live, self._options = workload, PeerAnswers(), deque(), {}
        self._peer = ChildProcess(self.name, [str(python), "-m", "braid.bench_driver.peers.flink_program"])

    def deploy(self, queries: Sequence[Query], per_second: float) -> SystemDeployment:
        """Start a cluster for so many queries, then submit them, `per_second` a second, and wait until all run.

        What does not run within `DEPLOY_SECONDS` has failed; then nothing is left running.
        """
        specs = _answerable(queries)
        peer, workload = self._started(), self._declared()
        if self._live:
            raise SystemFailedError(f"{self.name}: its cluster is as large as its queries need, they are deployed once")
        try:
            churn = workload.churn(len(queries))
            spare = 0 if self._together or churn is None else churn.queries
            self._options = cluster_options(len(queries), self._together, spare)
            task = {
                "options": self._options,
                "slots": self._options["taskmanager.numberOfTaskSlots"],
                "of_workload": {stream.name: stream.share.of_workload(1) for stream in workload.streams},
            }
            self._options["version"] = self._open(peer, task, READY_SECONDS)["versions"]["flink"]
            self._declare()
            began = time.time()
            latencies = self._submit(self._jobs(specs, len(specs)), per_second, began + DEPLOY_SECONDS)
        except BaseException:
            self.stop()
            raise
        return SystemDeployment(len(queries), () if self._together else latencies, time.time() - began)

    def begin_churn(self, queries: Sequence[Query], churn: Churn) -> None:
        """Go on submitting jobs and cancelling as many of the oldest."""
        if self._together:
            raise UnsupportedError("a statement set is one job: no query can come or go while it runs")
        self._started()
        jobs = self._jobs(_answerable(queries), churn.queries)

        def replace_oldest(number: int) -> tuple[int, int]:
            oldest = self._live.popleft()
            job = self._request(jobs[number % len(jobs)])
            self._cancel(oldest.job)
            return job, oldest.job

        self._start_churn(churn, replace_oldest)

    def end_churn(self) -> SystemDeployment:
        """Ask for no more, wait for what was asked for, and tell of it."""
        self._started()
        return super().end_churn()

    def offer(self, tuples_per_second: int | None) -> None:
        """Give the generator a rate: all jobs are cancelled and submitted again, for a source cannot change it."""
        if tuples_per_second == self._rate:
            return
        self._rate = tuples_per_second
        if not self._live:
            return
        deadline = time.time() + DEPLOY_SECONDS
        replaced = list(self._live)
        self._live.clear()
        for live in replaced:
            self._cancel(live.job)
        while any((STOPPED, live.job) not in self._answers.acknowledged_at for live in replaced):
            self._pause(deadline, f"{len(replaced)} jobs must be cancelled to change the rate")
        self._declare()
        self._submit([live.queries for live in replaced], float("inf"), deadline)

    def settings(self) -> dict[str, Any]:
        """Return Flink's settings, how it reads and writes, and what to know of its figures."""
        return {
            **self._options,
            "source": f"{self.source}: datagen",
            "tuples_per_second_asked": self._rate,
            "sinks": "print for the probe queries, blackhole for the others",
            "jobs": len(self._live),
            "notes": list(NOTES),
        }

    def _problem(self, number: int | None, reason: str) -> str:
        return reason if number is None else f"job {number} was not submitted: {reason}"

    def _declared(self) -> Workload:
        assert self._workload is not None
        return self._workload

    def _declare(self) -> None:
        """Declare the streams with the rate that is asked for."""
        peer, workload = self._started(), self._declared()
        line_count, began = len(peer.lines()), int(time.time()) - 2
        for stream in workload.streams:
            if stream.dataset in flink_nexmark.SOURCES:
                sql = flink_nexmark.source_sql(stream, self._rate or workload.start_rate, began)
            else:
                sql = flink.source_sql(stream, find_dataset(stream.dataset).columns, self._rate)
            peer.send({"do": "declare", "name": stream.name, "sql": sql})
            peer.wait_for(
                lambda line, name=stream.name: line.get(DECLARED) == name,  # type: ignore[misc]
                READY_SECONDS,
                f"the declaration of stream {stream.name!r}",
                line_count,
            )

    def _jobs(self, queries: Sequence[QuerySpec | NexmarkQuery], together_count: int) -> list[_Queries]:
        """Return the queries of each job; a few of each `together_count` in a row, which run together, are probes."""
        probes = {
            first + place
            for first in range(0, len(queries), together_count)
            for place in choose_probes(queries[first : first + together_count], self._declared().streams)
        }
        descriptions = [_query_command(query, place in probes) for place, query in enumerate(queries)]
        return [tuple(descriptions)] if self._together else [(query,) for query in descriptions]

    def _submit(self, jobs: Sequence[_Queries], per_second: float, deadline: float) -> tuple[float, ...]:
        """Submit jobs and wait until all run; return how long that took of each."""
        requests = [partial(self._request, queries) for queries in jobs]
        requirement = f"{len(jobs)} jobs must run within {DEPLOY_SECONDS:g} s"
        return self._run(requests, per_second, deadline, requirement, UNACKNOWLEDGED)

    def _request(self, queries: _Queries) -> int:
        job, self._next_job = self._next_job, self._next_job + 1
        self._started().send({"do": "submit", "job": job, "queries": queries, "together": self._together})
        self._live.append(_Live(job, queries))
        return job

    def _cancel(self, job: int) -> None:
        self._started().send({"do": "cancel", "job": job})


_Queries = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class _Live:
    job: int
    queries: _Queries


def cluster_options(queries: int, together: bool, spare: int = 0) -> dict[str, Any]:
    """Return Flink's configuration for so many queries on this machine; everything else is its default.

    One query, and a statement set, has all cores; of more jobs, each has its share, one at least. `spare` more jobs
    find a slot, because what comes is submitted before what goes has ended. Memory grows with the queries.
    """
    cores = os.cpu_count() or 1
    jobs = 1 if together else queries
    parallelism = max(1, cores // jobs)
    slots = (jobs + spare) * parallelism
    operators = (queries + spare) * parallelism
    memory = psutil.virtual_memory().total / MEBIBYTE
    heap, managed = int(memory * HEAP_SHARE), int(memory * MANAGED_SHARE)
    return {
        "parallelism.default": parallelism,
        "taskmanager.numberOfTaskSlots": slots,
        "taskmanager.memory.task.heap.size": f"{min(3072 + 4 * operators, heap)}m",
        "taskmanager.memory.managed.size": f"{min(max(512, 16 * operators), managed)}m",
        "taskmanager.memory.network.min": f"{128 + operators}m",
        "taskmanager.memory.network.max": f"{128 + operators}m",
        "taskmanager.memory.jvm-metaspace.size": f"{256 + 2 * operators}m",
        "jobmanager.memory.heap.size": f"{min(1024 + 2 * operators, heap // 2)}m",
        "jobmanager.memory.jvm-metaspace.size": "512m",
        # what its documentation advises for throughput: no copies between chained operators, aggregation in two phases
        "pipeline.object-reuse": True,
        "table.optimizer.agg-phase-strategy": "TWO_PHASE",
        "table.local-time-zone": "UTC",
        # exactly once, as the others: state on the heap, written every 10 s; a checkpoint that fails ends no job
        "state.backend.type": "hashmap",
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.tolerable-failed-checkpoints": 1_000_000,
        # a job that fails is seen, not run again
        "restart-strategy.type": "disable",
        # many jobs on few cores answer late and are alive all the same
        "heartbeat.timeout": "180 s",
        "pekko.ask.timeout": "120 s",
        "client.timeout": "300 s",
        "metrics.fetcher.update-interval": 500 + 5 * operators,
    }


def _answerable(queries: Sequence[Query]) -> Sequence[QuerySpec | NexmarkQuery]:
    """Return the queries that Flink can be asked.

    Raises:
        UnsupportedError: there are others among them.
    """
    of_nexmark = [query for query in queries if isinstance(query, NexmarkQuery)]
    if not of_nexmark:
        return queries_of_templates(queries, "Flink")
    if any(query.number == LOOKUP for query in of_nexmark):
        raise UnsupportedError(f"Flink is not asked q{LOOKUP}: none of its own connectors looks up rows of a file")
    return of_nexmark


def _query_command(query: QuerySpec | NexmarkQuery, probe: bool) -> dict[str, Any]:
    if isinstance(query, NexmarkQuery):
        return {"sql": query.sql(FLINK, probe), "times": list(query.event_times) if probe else None}
    times = list(common.event_time_columns(query)) if probe else None
    return {"sql": flink.query_sql(query, probe), "times": times}
