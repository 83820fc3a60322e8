"""The query load: its plan, its patience with a busy service, and latencies from the schedule on.

A real service is what `test_braid_system.py` loads.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest

from braid.bench_driver.child import ChildFailedError, ChildProcess, module_command
from braid.bench_driver.query_load.consume import event_times
from braid.bench_driver.query_load.plan import LoadPlan, users_for
from braid.bench_driver.query_load.probes import choose_probes, share_of
from braid.bench_driver.query_load.process import MODULE, QueryLoad, run_load
from braid.bench_driver.query_load.results import CREATE, DELETE, LoadRequest, LoadResult, refused, unanswered
from braid.bench_driver.query_spec import ColumnRef, Comparison, QuerySpec, WindowSpec
from braid.bench_driver.workload import StreamSpec
from tests.kit.waiting import wait_until

BODY = {"sql": "SELECT 1"}


class SmallService(ThreadingHTTPServer):
    """Speaks as much of the REST interface as the load needs, and misbehaves as a test wants.

    `answers` gives, by how often a body's key was seen before, what a POST gets: a status, or "drop" to close the
    connection without a word. `seconds` is how long a POST takes, and it waits until the service is `answering`;
    `drain_seconds` how long a deletion is undecided.
    """

    daemon_threads = True
    request_queue_size = 512

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[int, int | str] = {}
        self.retry_after = "0"
        self.seconds = 0.0
        self.answering = threading.Event()
        self.answering.set()
        self.drain_seconds = 0.0
        self.lock = threading.Lock()
        self.keys: Counter[str] = Counter()
        self.posts: list[float] = []
        self.ids: dict[str, str] = {}
        self.deleted: dict[str, float] = {}
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SmallService

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        small, key = self.server, self.headers["Idempotency-Key"]
        with small.lock:
            small.posts.append(time.time())
            answer = small.answers.get(small.keys[key], 201)
            small.keys[key] += 1
            query_id = small.ids.setdefault(key, f"q-{len(small.ids) + 1}")
        time.sleep(small.seconds)
        small.answering.wait()
        if answer == "drop":
            self.close_connection = True
        elif answer == "PENDING":
            self.reply(201, {"id": query_id, "state": "PENDING", "error": None})
        elif answer == 201:
            self.reply(201, {"id": query_id, "state": "RUNNING", "error": None})
        else:
            assert isinstance(answer, int)
            self.reply(
                answer, {"title": "Not allowed", "detail": "no such column"}, **{"Retry-After": small.retry_after}
            )

    def do_DELETE(self) -> None:
        query_id = self.path.rpartition("/")[2]
        self.server.deleted[query_id] = time.time()
        self.reply(202, {"id": query_id, "state": "DRAINING"})

    def do_GET(self) -> None:
        if not self.path.startswith("/queries?state=DRAINING"):
            return self.reply(200, {"rows": [], "cursor": "c", "end": False}, **{"Braid-Cursor": "c"})
        undecided = time.time() - self.server.drain_seconds
        draining = [
            {"id": q, "active_to": {"a": None}} for q, at in dict(self.server.deleted).items() if at > undecided
        ]
        return self.reply(200, {"queries": draining, "cursor": None})

    def reply(self, status: int, body: Any, **headers: str) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def small() -> Iterator[SmallService]:
    server = SmallService()
    yield server
    server.shutdown()
    server.server_close()


def test_a_plan_is_a_ramp_or_a_churn_and_comes_through_json() -> None:
    ramp = LoadPlan("http://x", (BODY,) * 3, per_second=2.0)
    assert LoadPlan.from_json(json.loads(json.dumps(ramp.to_json()))) == ramp
    assert list(ramp.ticks()) == [(0.0, 1), (0.5, 1), (1.0, 1)]
    churn = LoadPlan("http://x", (BODY,), churn_queries=5, churn_seconds=10.0, live=("q-1",))
    assert LoadPlan.from_json(json.loads(json.dumps(churn.to_json()))) == churn
    ticks = churn.ticks()
    assert [next(ticks) for _ in range(3)] == [(0.0, 5), (10.0, 5), (20.0, 5)]
    assert [users_for(rate) for rate in (0.1, 20, 100, 5000)] == [10, 60, 300, 300]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "either a ramp"),
        ({"per_second": 1.0, "churn_seconds": 1.0, "churn_queries": 1}, "either a ramp"),
        ({"per_second": 0}, "positive"),
        ({"per_second": float("nan")}, "positive"),
        ({"churn_seconds": 1.0}, "churn_queries"),
        ({"per_second": 1.0, "bodies": ()}, "bodies"),
        ({"per_second": 1.0, "bodies": ("SELECT 1",)}, "bodies"),
        ({"per_second": 1.0, "users": 0}, "users"),
    ],
)
def test_a_plan_that_cannot_be_kept_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LoadPlan(**{"url": "http://x", "bodies": (BODY,), **values})


def test_requests_that_still_wait_count_with_the_time_they_waited() -> None:
    requests = (
        LoadRequest(CREATE, 10.0, acknowledged=11.0),
        LoadRequest(CREATE, 10.0),
        LoadRequest(CREATE, 10.0, error="422"),
        LoadRequest(DELETE, 12.0, acknowledged=12.5),
    )
    result = LoadResult(10.0, 30.0, requests, ("q-1",))
    assert LoadResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    assert result.latencies(CREATE) == (1.0, 20.0)
    assert result.latencies(DELETE) == (0.5,)
    assert refused(requests) == [requests[2]]
    assert unanswered(requests) == [requests[1]]


def test_a_busy_service_is_asked_again_with_the_same_key(small: SmallService) -> None:
    small.answers = {0: 503, 1: "drop", 2: 429, 3: "PENDING"}
    small.retry_after = "1"
    result = run_load(LoadPlan(small.url, (BODY,) * 4, per_second=40.0))
    assert sorted(small.keys.values()) == [5] * 4
    assert [r.attempts for r in result.requests] == [5] * 4
    assert all(r.error is None and r.status == 201 for r in result.requests)
    assert {r.query_id for r in result.requests} == set(result.live) == set(small.ids.values())
    # two waits of the second that was asked for, and a short one after the lost connection
    assert all(latency >= 2.2 for latency in result.latencies(CREATE))


def test_a_refusal_is_not_repeated_and_tells_why(small: SmallService) -> None:
    small.answers = {0: 422}
    result = run_load(LoadPlan(small.url, (BODY,) * 2, per_second=100.0))
    assert [(r.attempts, r.status, r.error) for r in result.requests] == [
        (1, 422, "422 Not allowed: no such column")
    ] * 2
    assert result.live == ()


def test_latency_counts_from_the_schedule_when_all_users_wait(small: SmallService) -> None:
    small.seconds = 0.3
    result = run_load(LoadPlan(small.url, (BODY,) * 6, per_second=20.0, users=1, reads_per_second=0))
    latencies = result.latencies(CREATE)
    # the n-th is due at 0.05 n and served at 0.3 (n + 1): a driver that waits before it schedules would see 0.3 always
    assert all(latency >= 0.3 + 0.25 * n - 0.02 for n, latency in enumerate(latencies))
    assert [r.number for r in result.requests] == list(range(6))
    sent_at = [r.sent or 0.0 for r in result.requests]
    assert sent_at == sorted(sent_at)


def test_creations_are_sent_without_waiting_for_the_answers_to_others(small: SmallService) -> None:
    users = users_for(100.0)
    small.answering.clear()
    with QueryLoad(LoadPlan(small.url, (BODY,) * users, per_second=100.0, users=users)) as load:
        load.wait_started()
        wait_until(lambda: len(small.posts) == users, 60, lambda: f"{users} are under way; {len(small.posts)} are")
        small.answering.set()
        result = load.result()
    assert [r.attempts for r in result.requests] == [1] * users
    scheduled = [r.scheduled - result.started_at for r in result.requests]
    assert scheduled == pytest.approx([n / 100 for n in range(users)], abs=1e-3), "a hundred a second"


def test_a_churn_retires_the_oldest_and_ends_when_told(small: SmallService) -> None:
    small.drain_seconds = 0.3
    old_ids = tuple(f"old-{n}" for n in range(3))
    plan = LoadPlan(small.url, (BODY, BODY), churn_queries=2, churn_seconds=0.6, live=old_ids)
    with QueryLoad(plan) as load:
        load.wait_started()
        wait_until(lambda: len(small.deleted) >= 4, 20, "two rounds have retired queries")
        result = load.result()
    created, deleted = result.of(CREATE), result.of(DELETE)
    assert len(created) == len(deleted) >= 4
    assert [r.query_id for r in deleted][:3] == list(old_ids)
    assert len(result.live) == 3
    assert set(result.live) == {r.query_id for r in created} - {r.query_id for r in deleted}
    assert [r.number for r in created] == [0, 1] * (len(created) // 2)
    assert min(result.latencies(DELETE)) >= 0.3
    assert {round(r.scheduled - result.started_at, 3) for r in created[:4]} == {0.0, 0.6}


def test_a_load_ends_when_the_driver_is_gone(small: SmallService) -> None:
    small.answers = dict.fromkeys(range(1000), 503)
    child = ChildProcess("load", module_command(MODULE)).start()
    child.send(LoadPlan(small.url, (BODY,), per_second=1.0).to_json())
    child.wait_for(lambda value: "started_at" in value, 30, "word that it has started")
    wait_until(lambda: len(small.posts) >= 2, 10, "the load asks again")
    child.stop()
    _, last = child.lines()
    result = LoadResult.from_json(last.value)
    assert unanswered(result.requests) == list(result.requests)


def test_a_load_without_a_plan_says_what_is_wrong() -> None:
    child = ChildProcess("load", module_command(MODULE)).start()
    child.send({"url": "http://x", "bodies": [{"sql": ""}]})
    with pytest.raises(ChildFailedError, match=re.compile("exit status 2.*either a ramp", re.DOTALL)):
        child.wait_for(lambda value: "started_at" in value, 30, "word that it has started")
    child.stop()
    shutil.rmtree(child.folder)


def test_event_times_are_the_greatest_of_a_row_counted_by_the_millisecond() -> None:
    times = pa.array([1_000_100, 1_000_900, 2_000_000, None], pa.timestamp("us"))
    assert event_times(pa.table({"key": [1, 2, 3, 4], "latest": times})) == ([1000, 2000], [2, 1])
    other_times = pa.array([5_000_000, 10, 2_000_000, None], pa.timestamp("us"))
    assert event_times(pa.table({"time_0": times, "time_1": other_times})) == ([1000, 2000, 5000], [1, 1, 1])
    assert event_times(pa.table({"time": times})) == (None, None)


def _query(operator: str, constant: int, slide_ms: int = 1000) -> QuerySpec:
    return QuerySpec(
        ("a",),
        WindowSpec(10_000, slide_ms),
        (Comparison("a", "field1", operator, constant),),
        keys=(ColumnRef("a", "key"),),
        measure=ColumnRef("a", "field0"),
    )


def test_shares_follow_the_datasets_range() -> None:
    streams = {"a": StreamSpec("a", "astream", {"fields_max": 100})}
    shares = {op: share_of(_query(op, 25), streams) for op in ("=", "<", "<=", ">", ">=")}
    assert shares == pytest.approx({"=": 0.01, "<": 0.25, "<=": 0.26, ">": 0.74, ">=": 0.75})
    assert share_of(_query("=", 100), streams) == 0
    assert share_of(_query(">", 0), {"a": StreamSpec("a", "purchases")}) == 0.5


def test_probes_are_spread_and_give_rows_often() -> None:
    streams = (StreamSpec("a", "astream"),)
    queries = [_query("=", n) for n in range(40)]
    queries[13], queries[17] = _query(">", 500, slide_ms=9000), _query(">", 500)
    queries[24], queries[29] = _query("<", 150), _query("<", 100)
    assert choose_probes(queries, streams) == [0, 17, 24, 30]
    assert choose_probes(queries[:3], streams) == [0, 1, 2]
