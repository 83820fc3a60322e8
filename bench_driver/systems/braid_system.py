"""Braid as a system under test: a service of its own, spoken to by REST only.

Three processes beside the service: the query load makes and retires queries, the consumer reads the probes, and the
driver, which only asks both. Probes are the queries that :func:`choose_probes` picks; they carry a label, by which the
consumer finds them. In a churn each round has probes of its own, which are retired like any other query.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from braid.bench_driver.child import ChildFailedError, ChildProcess, module_command
from braid.bench_driver.dialects.braid import query_sql, stream_sql, table_sql
from braid.bench_driver.mixed_query import Query
from braid.bench_driver.query_load.plan import LoadPlan, users_for
from braid.bench_driver.query_load.probes import PROBES, READ_ALL, READ_NONE, READ_PROBES, choose_probes
from braid.bench_driver.query_load.process import QueryLoad, run_load
from braid.bench_driver.query_load.results import CREATE, DELETE, LoadRequest, LoadResult, refused, unanswered
from braid.bench_driver.queues.datasets import find_dataset
from braid.bench_driver.queues.mixed_datasets import TABLE_COLUMNS, static_table
from braid.bench_driver.service_process import ServiceFailedError, ServiceProcess
from braid.bench_driver.systems.system import (
    QUEUE,
    System,
    SystemDeployment,
    SystemFailedError,
    SystemOutput,
    UnsupportedError,
)
from braid.bench_driver.workload import Churn, Workload
from braid.client import BraidError, Client, Refused

READY_SECONDS = 240.0
CONSUMER = "braid.bench_driver.query_load.consume"
CONSUMER_SECONDS = 60.0
LOOK_SECONDS = 0.1
LABEL = "probe"
PAGE = 1000
# twice as long as it takes until a plan is on trial, with the settings as they are
ADAPTED_SECONDS = 25.0
NOT_ALLOWED = 422


class BraidSystem(System):
    """One service; see :class:`~braid.bench_driver.systems.system.System`.

    `environment` is added to the service's own; `make_service` makes what starts and ends it. `reading` says whose rows
    the consumer reads: of the probes, of all queries, or of none. `name` is what reports call it.
    """

    source = QUEUE

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        make_service: Callable[[str, Mapping[str, str]], ServiceProcess] = ServiceProcess,
        reading: str = READ_PROBES,
        name: str = "braid",
    ) -> None:
        self.name = name
        self._environment = dict(environment or {})
        self._reading = reading
        self._make_service = make_service
        self._service: ServiceProcess | None = None
        self._client: Client | None = None
        self._workload: Workload | None = None
        self._consumer: ChildProcess | None = None
        self._files: tempfile.TemporaryDirectory[str] | None = None
        self._churn: QueryLoad | None = None
        self._live: tuple[str, ...] = ()
        self._outputs: list[SystemOutput] = []
        self._rows_read: Counter[str] = Counter()
        self._errors: dict[str, str] = {}
        self._memory_bytes = 0
        self._newest_change: tuple[str | None, float] = (None, 0.0)
        self._failed = False

    def start(self, workload: Workload, locations: Mapping[str, str]) -> None:
        """Start a service, wait until it is ready, and declare the streams, each pulled from its queue."""
        self.stop()
        self._workload, self._live, self._failed = workload, (), False
        self._outputs, self._rows_read, self._errors = [], Counter(), {}
        self._newest_change = None, time.monotonic()
        with self._translated():
            self._service = self._make_service("bench", self._environment).start()
            self._service.wait_ready(READY_SECONDS)
            self._client = Client(self._service.url, timeout=60)
            for stream in workload.streams:
                columns = find_dataset(stream.dataset).columns
                self._client.create_stream(stream_sql(stream.name, columns, locations[stream.name], stream.name))
            self._create_tables(workload.tables)
            order = {"url": self._service.url, "label": None if self._reading == READ_ALL else LABEL}
            self._consumer = ChildProcess("consumer", module_command(CONSUMER)).start()
            self._consumer.send(order)
            self._consumer.wait_for(lambda value: "started" in value, CONSUMER_SECONDS, "word that it has started")
            self._consumer.take()

    def _create_tables(self, names: Sequence[str]) -> None:
        """Declare static tables; their files stay as long as the service."""
        if not names:
            return
        assert self._client is not None
        self._files = tempfile.TemporaryDirectory(prefix="braid-bench-tables-")
        for name in names:
            path = Path(self._files.name) / f"{name}.parquet"
            pq.write_table(static_table(name), path)
            self._client.create_table(table_sql(name, TABLE_COLUMNS[name], str(path)))

    def deploy(self, queries: Sequence[Query], per_second: float) -> SystemDeployment:
        """Register the queries at that rate and return once all are RUNNING; UnsupportedError if one is refused."""
        with self._translated():
            service, client = self._running()
            try:
                client.validate(query_sql(queries[0], probe=False))
            except Refused as error:
                if error.status != NOT_ALLOWED:
                    raise
                raise UnsupportedError(error.detail) from error
            bodies = self._bodies(queries, len(queries))
            result = run_load(LoadPlan(service.url, bodies, per_second=per_second, users=users_for(per_second)))
            self._check(result)
            waiting = unanswered(result.requests)
            if waiting:
                raise self._failure(
                    f"all {len(queries)} queries must run {result.ended_at - result.started_at:.0f} s after the first "
                    f"was asked for, {len(waiting)} do not; the last status was {waiting[0].status}"
                )
            self._live += result.live
        last = max(request.acknowledged or 0.0 for request in result.requests)
        return SystemDeployment(len(queries), result.latencies(CREATE), last - result.started_at)

    def begin_churn(self, queries: Sequence[Query], churn: Churn) -> None:
        """Go on making and retiring queries in the load's own process; the first round is at once."""
        with self._translated():
            service, _ = self._running()
            if self._churn is not None:
                raise SystemFailedError("a churn must end before the next begins: call end_churn")
            plan = LoadPlan(
                service.url,
                self._bodies(queries, churn.queries),
                churn_queries=churn.queries,
                churn_seconds=churn.every_seconds,
                live=self._live,
                users=users_for(2 * churn.queries),
            )
            self._churn = QueryLoad(plan)
            self._churn.wait_started()

    def end_churn(self) -> SystemDeployment:
        """Make and retire no more, wait for what is under way, and tell of all.

        A request that was still waiting counts with the time it had waited, so latencies that grow are seen.
        """
        if self._churn is None:
            raise SystemFailedError("there is no churn to end: call begin_churn")
        with self._translated():
            result = self._churn.result()
            self._churn.stop()
            self._churn = None
            self._check(result)
        self._live = result.live
        acknowledged = [request for request in result.of(CREATE) if request.acknowledged is not None]
        seconds = result.ended_at - result.started_at
        return SystemDeployment(len(acknowledged), result.latencies(CREATE), seconds, result.latencies(DELETE))

    def outputs(self) -> list[SystemOutput]:
        """Return what the consumer read of the probes so far."""
        with self._translated():
            if self._consumer is not None:
                for line in self._consumer.take():
                    self._outputs += outputs_of(line.value)
                    self._rows_read[line.value["query"]] += line.value["count"]
                self._consumer.check_alive()
        return list(self._outputs)

    def left_out(self) -> str | None:
        """Return why a query has failed, which leaves out all that follows, else a new error: windows left out."""
        failed_queries = self._queries("FAILED")
        if failed_queries:
            return str(failed_queries[0]["error"])
        errors = {query["id"]: query["error"] for query in self._queries("RUNNING") if query["error"] is not None}
        new_errors = [error for query, error in errors.items() if self._errors.get(query) != error]
        self._errors = errors
        return new_errors[0] if new_errors else None

    def missing(self, max_seconds: float) -> str | None:
        """Wait until all rows are read that were there when asked, where all are."""
        if self._reading != READ_ALL:
            return None
        queries = [query for query in self._queries("RUNNING") if not query["subquery"]]
        deadline = time.monotonic() + max_seconds
        while True:
            self.outputs()
            unread = sum(max(0, query["rows_out"] - self._rows_read[query["id"]]) for query in queries)
            if not unread:
                return None
            if time.monotonic() > deadline:
                return f"{unread} rows were not read within {max_seconds:g} s"
            time.sleep(LOOK_SECONDS)

    def memory_bytes(self) -> int:
        """Return the resident memory of the service's processes now, or when it was stopped."""
        if self._service is not None:
            self._memory_bytes = self._service.memory_bytes()
        return self._memory_bytes

    def has_adapted(self) -> bool:
        """Whether the optimizer has changed no plan for :data:`ADAPTED_SECONDS`, nor is likely to."""
        with self._translated():
            _, client = self._running()
            changes = client.plan()["changes"]
        newest = changes[-1]["at"] if changes else None
        if newest != self._newest_change[0]:
            self._newest_change = newest, time.monotonic()
        return time.monotonic() - self._newest_change[1] > ADAPTED_SECONDS

    def processor_seconds(self) -> float:
        """Return what the service's processes took."""
        service, _ = self._running()
        return service.processor_seconds()

    def settings(self) -> dict[str, Any]:
        """Return the service's settings that differ from the defaults, and its memory."""
        inherited = {name: value for name, value in os.environ.items() if name.startswith("BRAID_")}
        return {
            "environment": {**inherited, **self._environment},
            "reading": self._reading,
            "probes": 0 if self._reading == READ_NONE else PROBES,
            "memory_bytes": self.memory_bytes(),
        }

    def stop(self) -> None:
        """End the load, the consumer and the service; the service's logs stay when something failed."""
        if self._churn is not None:
            self._churn.stop()
            self._churn = None
        if self._consumer is not None:
            self._consumer.stop()
            self._consumer = None
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._service is not None:
            self._memory_bytes = self._service.memory_bytes() or self._memory_bytes
            self._service.stop(keep_logs=self._failed)
            self._service = None
        if self._files is not None:
            self._files.cleanup()
            self._files = None

    def _bodies(self, queries: Sequence[Query], together: int) -> tuple[dict[str, Any], ...]:
        """Return what to POST; of each `together` queries in a row, those that run together, a few are probes."""
        assert self._workload is not None
        firsts = () if self._reading == READ_NONE else range(0, len(queries), together)
        probes = {
            first + place
            for first in firsts
            for place in choose_probes(queries[first : first + together], self._workload.streams)
        }
        return tuple(
            {"sql": query_sql(query, probe=True), "labels": {LABEL: "yes"}}
            if place in probes
            else {"sql": query_sql(query, probe=False)}
            for place, query in enumerate(queries)
        )

    def _queries(self, state: str) -> list[dict[str, Any]]:
        """Return the queries over the workload's streams, or over subqueries, that are in a state."""
        assert self._workload is not None
        streams = {stream.name for stream in self._workload.streams}
        with self._translated():
            _, client = self._running()
            return [
                query
                for query in client.queries(state=state, limit=PAGE)
                if any(name in streams or name.startswith("subquery ") for name in query["active_from"])
            ]

    def _running(self) -> tuple[ServiceProcess, Client]:
        if self._service is None or self._client is None:
            raise SystemFailedError("Braid must be started before it can do this: call start")
        self._service.check_alive()
        return self._service, self._client

    def _check(self, result: LoadResult) -> None:
        """Raise when the service refused or failed any request."""
        failed_requests = refused(result.requests)
        unsupported = [request for request in failed_requests if request.status == NOT_ALLOWED]
        if unsupported:
            raise UnsupportedError(str(unsupported[0].error))
        if failed_requests:
            raise self._failure(
                f"{len(failed_requests)} of {len(result.requests)} requests failed; {_describe_first(failed_requests)}"
            )

    def _failure(self, problem: str) -> SystemFailedError:
        self._failed = True
        log_hint = f" Its log is {self._service.log}." if self._service is not None else ""
        return SystemFailedError(f"Braid: {problem}.{log_hint}")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn every error of the parts into SystemFailedError; a dead service is the first thing to tell of."""
        try:
            yield
        except (ServiceFailedError, BraidError, ChildFailedError) as error:
            if self._service is not None and not isinstance(error, ServiceFailedError):
                try:
                    self._service.check_alive()
                except ServiceFailedError as dead:
                    raise self._failure(str(dead)) from error
            raise self._failure(str(error)) from error


def outputs_of(page: Mapping[str, Any]) -> list[SystemOutput]:
    """Return the outputs that the consumer told; SystemFailedError when it could not read a probe on."""
    if "error" in page:
        raise SystemFailedError(f"Braid: the results of probe {page['query']} cannot be read: {page['error']}")
    if page["event_ms"] is None:
        return []
    return [
        SystemOutput(page["arrived"], ms / 1000, rows) for ms, rows in zip(page["event_ms"], page["rows"], strict=True)
    ]


def _describe_first(requests: Sequence[LoadRequest]) -> str:
    first = requests[0]
    subject = f"query {first.query_id}" if first.query_id is not None else f"query number {first.number}"
    return f"the first, to {first.kind} {subject}: {first.error}"
