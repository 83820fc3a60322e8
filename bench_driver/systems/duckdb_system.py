"""DuckDB over micro-batches as a system under test: what a user may write who has mixed queries and a day.

It pulls from the driver's queue, a batch a second, runs each query by itself, and uses all cores
(`peers/duckdb_program.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from braid.bench_driver.child import ChildProcess, module_command
from braid.bench_driver.mixed_query import MixedQuery, Query
from braid.bench_driver.query_load.probes import choose_probes
from braid.bench_driver.systems.peer_system import PeerAnswers, PeerSystem
from braid.bench_driver.systems.system import QUEUE, SystemDeployment, UnsupportedError
from braid.bench_driver.workload import Churn, Workload

BATCHES = "duckdb-batches"
READY_SECONDS = 60.0
# beyond the time that posting them takes; a query is a statement or two
DEPLOY_SECONDS = 120.0


class DuckdbSystem(PeerSystem):
    """One process with a database for each core."""

    source = QUEUE
    product = "DuckDB"

    def __init__(self, name: str = BATCHES) -> None:
        if name != BATCHES:
            raise ValueError(f"DuckDB's name must be {BATCHES!r}, got {name!r}")
        super().__init__(name)
        self._workload: Workload | None = None
        self._settings: dict[str, Any] = {}

    def start(self, workload: Workload, locations: Mapping[str, str]) -> None:
        """Start the process and tell it of the stream."""
        if len(workload.streams) != 1:
            raise UnsupportedError(f"the script reads one stream, and {workload.name!r} has {len(workload.streams)}")
        (stream,) = workload.streams
        self._workload, self._answers = workload, PeerAnswers()
        peer = ChildProcess(self.name, module_command("braid.bench_driver.peers.duckdb_program"))
        task = {"stream": stream.name, "location": locations[stream.name], "tables": workload.tables}
        self._settings = dict(self._open(peer, {**task, "cores": os.cpu_count() or 1}, READY_SECONDS))

    def deploy(self, queries: Sequence[Query], per_second: float) -> SystemDeployment:
        """Have the queries run, `per_second` of them a second, and wait until all do."""
        peer = self._started()
        assert self._workload is not None
        specs = [query for query in queries if isinstance(query, MixedQuery)]
        if len(specs) < len(queries):
            raise UnsupportedError("the script is written for queries of the mixed workloads only")
        peer.send({"do": "prepare", "queries": len(specs)})
        prepared = peer.wait_for(lambda line: "prepared" in line, READY_SECONDS, "word that DuckDB is prepared")
        self._settings |= prepared.value["prepared"]
        probes = set(choose_probes(specs, self._workload.streams))
        began = time.time()
        deadline = began + DEPLOY_SECONDS + len(specs) / per_second

        def run(number: int) -> int:
            peer.send({"do": "run", "query": number, "spec": specs[number].to_json(), "probe": number in probes})
            return number

        requests = [partial(run, number) for number in range(len(specs))]
        requirement = f"{len(specs)} queries must run within {DEPLOY_SECONDS:g} s"
        latencies = self._run(requests, per_second, deadline, requirement)
        return SystemDeployment(len(specs), latencies, time.time() - began)

    def begin_churn(self, queries: Sequence[Query], churn: Churn) -> None:  # noqa: ARG002 - none come or go
        """Refuse it: no mixed workload has one."""
        raise UnsupportedError("the script is written for queries that stay")

    def processor_seconds(self) -> float | None:
        """Return what the process had taken when its last batch was done."""
        batches = [line.value["batch"] for line in self._started().lines() if "batch" in line.value]
        return float(batches[-1][2]) if batches else None

    def settings(self) -> dict[str, Any]:
        """Return how it runs, and what to know of its figures."""
        return {
            **self._settings,
            "trigger": "a second after the batch before began, or when that is done",
            "source": self.source,
            "sinks": "rows of all queries as Arrow tables; the event times of the probe queries' are looked at",
            "durable": "nothing: a crash loses all",
        }

    def _problem(self, number: int | None, reason: str) -> str:  # noqa: ARG002 - it fails as a whole
        return reason
