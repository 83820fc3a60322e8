"""Braid as a system under test, over the session's service: queues, deployment, probes, churn."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from braid.bench_driver.nexmark_query import BRAID, texts
from braid.bench_driver.query_generator import generate_queries
from braid.bench_driver.query_spec import ColumnRef, Comparison, QuerySpec, WindowSpec
from braid.bench_driver.queues.process import QueueProcess
from braid.bench_driver.service_process import ServiceProcess
from braid.bench_driver.systems.braid_system import BraidSystem, outputs_of
from braid.bench_driver.systems.system import SystemFailedError, SystemOutput, UnsupportedError
from braid.bench_driver.workload import Churn, StreamSpec, Workload, load_workload
from tests.kit.client import Api
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until


class BorrowedService(ServiceProcess):
    """The session's service instead of one of its own, which would take most of a minute to start."""

    running: RunningService

    def start(self) -> BorrowedService:
        """Borrow it."""
        self.port = self.running.port
        self.started_at = time.monotonic()
        return self


@pytest.fixture
def workload() -> Workload:
    stream = StreamSpec(f"a_{uuid.uuid4().hex[:8]}", "astream", {"keys": 10, "fields_max": 100})
    return Workload("small", "", "", (stream,), "aggregation", {}, (8,), 1000)


@pytest.fixture
def queue(workload: Workload) -> Iterator[QueueProcess]:
    (stream,) = workload.streams
    with QueueProcess(stream.name, stream.dataset, stream.options, seed=1) as process:
        yield process


@pytest.fixture
def braid(service: RunningService, api: Api, workload: Workload) -> Iterator[BraidSystem]:
    BorrowedService.running = service
    system = BraidSystem(make_service=BorrowedService)
    yield system
    system.stop()
    streams = {stream.name for stream in workload.streams}
    subqueries = {f"subquery {query['id']}" for query in api.queries() if query["subquery"]}
    own_queries = [query for query in api.queries() if (streams | subqueries) & query["active_from"].keys()]
    for query in own_queries:
        if not query["subquery"]:
            api.delete_query(query["id"], drain=False)
    for query in own_queries:
        api.wait_state(query["id"], "RETIRED", "FAILED")
    for stream in streams:
        api.request("DELETE", f"/streams/{stream}")
    for table in workload.tables:
        api.request("DELETE", f"/tables/{table}")


def queries_of(workload: Workload, count: int) -> list[QuerySpec]:
    (stream,) = workload.streams
    return [
        QuerySpec(
            (stream.name,),
            WindowSpec(1000, 1000),
            (Comparison(stream.name, "field1", ">", number),),
            keys=(ColumnRef(stream.name, "key"),),
            measure=ColumnRef(stream.name, "field0"),
        )
        for number in range(count)
    ]


@pytest.mark.service
def test_braid_pulls_from_the_queue_and_its_probes_tell_how_late_rows_come(
    braid: BraidSystem, api: Api, workload: Workload, queue: QueueProcess
) -> None:
    (stream,) = workload.streams
    braid.start(workload, {stream.name: queue.location})
    queue.run(int(time.time() * 1e6), [(None, 2000)])
    deployment = braid.deploy(queries_of(workload, 8), 100.0)
    assert (deployment.queries, len(deployment.latencies)) == (8, 8)
    assert 0 < max(deployment.latencies) <= deployment.seconds + 0.1
    running = [query for query in api.queries() if stream.name in query["active_from"]]
    assert [query["state"] for query in running] == ["RUNNING"] * 8
    probes = [query for query in running if query["labels"]]
    assert [query["sql"].count("latest") for query in probes] == [1] * 4

    wait_until(lambda: sum(output.rows for output in braid.outputs()) >= 80, 60, "probes give two windows of ten keys")
    outputs = braid.outputs()
    assert all(0 < output.arrived - output.event_time < 60 for output in outputs)
    assert queue.samples()[-1].pulled
    assert braid.taken() == []

    braid.begin_churn(queries_of(workload, 8), Churn(8, 5.0))
    with pytest.raises(SystemFailedError, match="end_churn"):
        braid.begin_churn(queries_of(workload, 8), Churn(8, 5.0))
    wait_until(
        lambda: all(api.query(query["id"])["state"] != "RUNNING" for query in running), 60, "the first round is retired"
    )
    churned = braid.end_churn()
    assert churned.queries == len(churned.latencies) == len(churned.deletions) >= 8
    running = [query for query in api.queries() if stream.name in query["active_from"] and query["state"] == "RUNNING"]
    assert len(running) == 8
    assert sum(bool(query["labels"]) for query in running) == 4
    retired = [query for query in api.queries() if stream.name in query["active_from"] and query["state"] != "RUNNING"]
    assert len(retired) == len(churned.deletions)
    assert all(query["state"] == "RETIRED" or query["active_to"][stream.name] for query in retired)
    assert braid.settings()["memory_bytes"] > 0


@pytest.mark.service
@pytest.mark.parametrize("workload", [load_workload("mixed-trips:table_joins=0.5:selections=0.3:sessions=0.2")])
def test_braid_runs_mixed_queries_and_their_static_table(
    braid: BraidSystem, api: Api, workload: Workload, queue: QueueProcess
) -> None:
    braid.start(workload, {"trips": queue.location})
    assert [table["name"] for table in api.request("GET", "/tables").json()["tables"]] == ["zones"]
    queue.run(int(time.time() * 1e6), [(None, 2000)])
    queries = generate_queries(workload, 12, 3)
    assert braid.deploy(queries, 100.0).queries == 12
    wait_until(lambda: len({output.arrived for output in braid.outputs()}) >= 3, 60, "probes give rows")
    assert braid.left_out() is None


@pytest.mark.service
@pytest.mark.long
@pytest.mark.parametrize("workload", [load_workload(f"nexmark:queries={list(texts(BRAID))}")])
def test_braid_runs_all_queries_of_nexmark_over_streams_that_keep_step(
    braid: BraidSystem, api: Api, workload: Workload
) -> None:
    with contextlib.ExitStack() as stack:
        queues = {
            stream.name: stack.enter_context(QueueProcess(stream.name, stream.dataset, {}, 1, stream.share))
            for stream in workload.streams
        }
        braid.start(workload, {name: queue.location for name, queue in queues.items()})
        at_us = int(time.time() * 1e6)
        for queue in queues.values():
            queue.run(at_us, [(None, 5000)])
        queries = generate_queries(workload, *workload.counts, 1)
        assert braid.deploy(queries, 100.0).queries == 21
        running = [query for query in api.queries() if query["state"] == "RUNNING" and not query["subquery"]]
        assert len(running) == 21
        of_a_minute = [query["id"] for query in running if "MINUTE" in query["sql"] or "DAY" in query["sql"]]
        others = [query["id"] for query in running if query["id"] not in of_a_minute]
        assert len(others) == 13
        wait_until(lambda: all(api.query(query)["rows_out"] for query in others), 90, "windows of ten seconds end")
        wait_until(lambda: bool(braid.outputs()), 30, "probes tell event times")
        assert braid.left_out() is None


@pytest.mark.service
def test_what_braid_cannot_run_is_unsupported_in_its_own_words(
    braid: BraidSystem, workload: Workload, queue: QueueProcess
) -> None:
    (stream,) = workload.streams
    braid.start(workload, {stream.name: queue.location})
    (query,) = queries_of(workload, 1)
    unsupported = replace(query, keys=(ColumnRef(stream.name, "colour"),))
    with pytest.raises(UnsupportedError, match="colour"):
        braid.deploy([unsupported], 1.0)
    with pytest.raises(UnsupportedError, match="colour"):  # only the first is tried out, but none is passed over
        braid.deploy([query, unsupported], 100.0)


@pytest.mark.service
def test_a_query_that_leaves_rows_out_is_told(
    braid: BraidSystem, api: Api, workload: Workload, queue: QueueProcess
) -> None:
    (stream,) = workload.streams
    braid.start(workload, {stream.name: queue.location})
    windows = f"{stream.name} [RANGE 1 SECONDS]"
    joined = f"{windows} AS l JOIN {windows} AS r ON l.key = r.key WHERE l.field0 < r.field1"
    (query,) = api.create_queries([{"sql": f"SELECT l.key, COUNT(*) AS n FROM {joined} GROUP BY l.key"}])
    api.wait_state(query["id"], "RUNNING")
    assert braid.left_out() is None
    queue.run(int(time.time() * 1e6), [(None, 20_000)])  # 40 million combinations of the ten keys
    api.wait_state(query["id"], "FAILED")
    for _ in range(2):  # it has failed, and stays so
        assert "A window is left out" in (braid.left_out() or "")


def test_braid_must_be_started_first() -> None:
    system = BraidSystem()
    with pytest.raises(SystemFailedError, match="call start"):
        system.deploy([], 1.0)
    with pytest.raises(SystemFailedError, match="begin_churn"):
        system.end_churn()
    assert system.outputs() == []
    system.stop()


def test_a_line_of_the_consumer_becomes_outputs_or_an_error() -> None:
    page = {"query": "q-1", "arrived": 12.5, "count": 5, "event_ms": [10000, 11001], "rows": [3, 1]}
    assert outputs_of(page) == [SystemOutput(12.5, 10.0, 3), SystemOutput(12.5, 11.001, 1)]
    assert outputs_of(page | {"event_ms": None, "rows": None}) == []
    with pytest.raises(SystemFailedError, match=r"q-1.*410"):
        outputs_of({"query": "q-1", "error": "410: gone"})
