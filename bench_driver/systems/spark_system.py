"""Stock Spark as a system under test: one streaming query per query, or queries fused by hand.

Four forms, by name: `spark-queries` runs one streaming query per query; `spark-fused` fuses all queries of one window
into one streaming query by `SUM(CASE WHEN …)`, which cannot change while it runs; both pull from the driver's queues.
With `-own` behind the name they make up their tuples with Spark's own generator in the JVM, which favours them.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from braid.bench_driver.child import ChildProcess, module_command
from braid.bench_driver.dialects import spark
from braid.bench_driver.mixed_query import Query
from braid.bench_driver.query_spec import QuerySpec
from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.systems.peer_system import RUNNING, PeerSystem
from braid.bench_driver.systems.system import (
    OWN_GENERATOR,
    QUEUE,
    SystemDeployment,
    UnsupportedError,
    queries_of_templates,
)
from braid.bench_driver.workload import Churn, Workload

SPARK_SYSTEMS = ("spark-queries", "spark-fused", "spark-queries-own", "spark-fused-own")
PROBES = 4
READY_SECONDS = 120.0
# The driver waits for acknowledgements before it sends more (thesis 4.4.1). Each query starts a Python process, which
# Spark gives up on after 10 s: more at once than there are cores only makes them late.
UNACKNOWLEDGED = os.cpu_count() or 1
UNACKNOWLEDGED_OWN = 32  # the generator in the JVM needs no such process
# What all streaming queries together may read of a stream in one batch each, and the least for one of them. It matters
# only while there is a backlog. Twenty queries on two busy cores took 24 k tuples/s each with 4 M, 60 k with 20 M; but
# without a bound a batch grows with the backlog until it takes minutes.
ROWS_PER_BATCH = 16_000_000
MIN_ROWS_PER_BATCH = 100_000
# Of the own generator without a rate all queries together make as many in a batch each, too: the larger a batch, the
# more Spark takes in a second. A batch is a second of event time, so joins get no more than the workload's first rate.


@dataclass(frozen=True)
class SparkStatement:
    """One streaming query: its SQL, the streams it reads, and whether its rows go to the consumer."""

    sql: str
    streams: tuple[str, ...]
    probe: bool


@dataclass(frozen=True)
class _Live:
    query: int
    slot: int  # names the consumer at the queue; the query that takes another's place takes its slot
    probe: bool


class SparkSystem(PeerSystem):
    """One form of stock Spark."""

    product = "Spark"

    def __init__(self, name: str) -> None:
        if name not in SPARK_SYSTEMS:
            raise ValueError(f"stock Spark's name must be one of {SPARK_SYSTEMS}, got {name!r}")
        super().__init__(name)
        self.source = OWN_GENERATOR if name.endswith("-own") else QUEUE
        self._fused = name.startswith("spark-fused")
        self._rows_per_batch: int | None = None
        self._own_rows = 1
        self._start_rate = 1
        self._settings: dict[str, Any] = {}
        self._live: deque[_Live] = deque()  # oldest first
        self._next_query = 0
        self._rate: int | None = None

    def start(self, workload: Workload, locations: Mapping[str, str]) -> None:
        """Start the JVM and tell it of the streams, which become temporary views of each streaming query."""
        peer = ChildProcess(self.name, module_command("braid.bench_driver.peers.spark_program"))
        self._start_rate = workload.start_rate
        task = {
            "streams": _stream_descriptions(workload, locations),
            "cores": os.cpu_count() or 1,
            "own_generator": self.source == OWN_GENERATOR,
        }
        self._settings = dict(self._open(peer, task, READY_SECONDS))

    def deploy(self, queries: Sequence[Query], per_second: float) -> SystemDeployment:
        """Start the streaming queries, `per_second` of them a second, and wait until each has done a batch.

        With nothing to read yet, looking for it counts as a batch. What does not run within `deploy_seconds` has
        failed; then nothing is left running.
        """
        specs = queries_of_templates(queries, self.product)
        to_start = statements(specs, self._fused)
        began = time.time()
        deadline = began + deploy_seconds(len(to_start)) + len(to_start) / per_second
        try:
            self._rows_per_batch = bound_batch(len(to_start))
            if self.source == OWN_GENERATOR:
                self._own_rows = own_rows(specs, len(to_start), self._start_rate)
                self._started().send({"do": "offer", "rate": self._rate, "rows": self._own_rows})
            unacknowledged_limit = UNACKNOWLEDGED if self.source == QUEUE else UNACKNOWLEDGED_OWN
            requests = [partial(self._request, statement, slot) for slot, statement in enumerate(to_start)]
            latencies = self._run(requests, per_second, deadline, _requirement(len(to_start)), unacknowledged_limit)
        except BaseException:
            self.stop()
            raise
        return SystemDeployment(len(queries), () if self._fused else latencies, time.time() - began)

    def begin_churn(self, queries: Sequence[Query], churn: Churn) -> None:
        """Go on making and retiring streaming queries; a new one takes the place of the oldest."""
        if self._fused:
            raise UnsupportedError("a hand-fused streaming query is static: no query can come or go while it runs")
        specs = queries_of_templates(queries, self.product)
        variants = [statements([query], fused=False, probes=probes)[0] for query in specs for probes in (0, 1)]

        def replace_oldest(number: int) -> tuple[int, int]:
            oldest = self._live.popleft()
            index = number % len(queries)
            query = self._request(variants[2 * index + oldest.probe], oldest.slot)
            self._started().send({"do": "stop", "query": oldest.query})
            return query, oldest.query

        self._start_churn(churn, replace_oldest)

    def offer(self, tuples_per_second: int | None) -> None:
        """Give Spark's own generator a rate: all streaming queries start again, for a source cannot change it."""
        self._rate = tuples_per_second
        if self.source == QUEUE or not self._live:
            return
        with self._reading:
            restarting = len(self._live)
            self._answers.acknowledged_at = {
                key: at for key, at in self._answers.acknowledged_at.items() if key[0] != RUNNING
            }
        self._started().send({"do": "offer", "rate": tuples_per_second, "rows": self._own_rows})
        deadline = time.time() + deploy_seconds(restarting)
        self._wait_running([live.query for live in self._live], deadline, _requirement(restarting))

    def settings(self) -> dict[str, Any]:
        """Return Spark's settings, and how it reads and writes."""
        reading: dict[str, Any] = {
            "trigger": "as soon as the batch before is done",
            "watermark": "0 seconds",
            "source": self.source,
        }
        if self.source == OWN_GENERATOR:
            reading["source"] += ": rate-micro-batch without a rate, else rate"
            reading |= {"rate": self._rate, "rows_per_batch_without_a_rate": self._own_rows}
        else:
            reading |= {"rows_per_batch_of_a_query": self._rows_per_batch, "starts at": "latest"}
        sinks = "foreachBatch with toArrow for the probe queries, noop for the others"
        return {
            **self._settings,
            **reading,
            "output_mode": "append",
            "sinks": sinks,
            "streaming_queries": len(self._live),
        }

    def _problem(self, number: int | None, reason: str) -> str:
        return f"a streaming query ended by itself: number {number}: {reason}"

    def _request(self, statement: SparkStatement, slot: int) -> int:
        query, self._next_query = self._next_query, self._next_query + 1
        command = {"do": "start", "query": query, "sql": statement.sql, "streams": statement.streams, "slot": slot}
        self._started().send({**command, "probe": statement.probe, "most": self._rows_per_batch})
        self._live.append(_Live(query, slot, statement.probe))
        return query


def statements(queries: Sequence[QuerySpec], fused: bool, probes: int = PROBES) -> list[SparkStatement]:
    """Return the streaming queries for `queries`, of which up to `probes`, spread over all, are probe queries.

    Raises UnsupportedError when they cannot be fused by hand.
    """
    groups: dict[Any, list[QuerySpec]] = {}
    for number, query in enumerate(queries):
        group_key = (query.streams, query.window, query.joins, query.keys) if fused else number
        groups.setdefault(group_key, []).append(query)
    probe_groups = {probe * len(groups) // probes for probe in range(probes)}
    result = []
    for number, group in enumerate(groups.values()):
        probe = number in probe_groups
        try:
            sql = spark.fused_sql(group, probe) if fused else spark.query_sql(group[0], probe)
        except ValueError as error:
            raise UnsupportedError(f"the queries cannot be fused by hand: {error}") from error
        result.append(SparkStatement(sql, group[0].streams, probe))
    return result


def _requirement(queries: int) -> str:
    return f"{queries} streaming queries must run within {deploy_seconds(queries):g} s"


def deploy_seconds(queries: int) -> float:
    """Return how long `queries` streaming queries may take until all run, after the last of them is posted."""
    return min(120.0 + 24.0 * queries, 600.0)


def bound_batch(queries: int) -> int:
    """Return how many rows of a stream a batch of one of `queries` streaming queries may have.

    They share `ROWS_PER_BATCH`, a few seconds' worth.
    """
    return max(MIN_ROWS_PER_BATCH, ROWS_PER_BATCH // max(1, queries))


def own_rows(queries: Sequence[QuerySpec], streaming: int, start_rate: int) -> int:
    """Return how many rows each of `streaming` queries makes in a batch when its generator has no rate."""
    rows = bound_batch(streaming)
    return min(rows, start_rate) if any(query.is_join for query in queries) else rows


def _stream_descriptions(workload: Workload, locations: Mapping[str, str]) -> list[dict[str, Any]]:
    descriptions = []
    for stream in workload.streams:
        dataset = find_dataset(stream.dataset)
        description = {"name": stream.name, "dataset": stream.dataset, "location": locations.get(stream.name, "")}
        descriptions.append({**description, "columns": dataset.columns, "options": dataset.options(stream.options)})
    return descriptions
