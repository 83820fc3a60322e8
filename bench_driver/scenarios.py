"""The scenarios of the first marks. Each has a service process of its own and is measured through REST."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from dataclasses import dataclass

from api.client import BraidClient, query_body
from bench_driver import statistics
from bench_driver.first_mark_workload import QUIET_STREAM, purchases_stream, random_predicates, revenue_query
from bench_driver.reader import LongPollReader
from bench_driver.scrape import scrape_histogram
from bench_driver.service_process import ServiceProcess
from bench_driver.statistics import Histogram

BATCH_DURATION = "braid_batch_duration_seconds"
SAMPLE_SECONDS = 0.25
DEPLOY_SECONDS = 60.0
READERS = 4
WARM_UP_SHARE = 0.25
# a sampled query must match enough for its rows to tell something
LEAST_SELECTIVITY = 0.1

Say = Callable[[str], None]


@dataclass(frozen=True)
class Starts:
    """Seconds from the start of the process to `/readyz` 200, one figure a start."""

    seconds: list[float]
    median_seconds: float | None


@dataclass(frozen=True)
class Deployments:
    """Queries posted one by one while no stream has tuples; all in seconds.

    `batch_*` are of the batches in that time: the median is interpolated in Prometheus' buckets, the mean exact.
    `posted_*` is what the poster waits for, `reported_*` what the service says of the same queries.
    """

    posts: int
    batches: int
    batch_median: float | None
    batch_mean: float | None
    posted_p50: float | None
    posted_p95: float | None
    reported_p50: float | None
    reported_p95: float | None


@dataclass(frozen=True)
class Load:
    """Queries on a generated stream; the first quarter is discarded as warm-up. Times in seconds.

    `lag` is now less the stream's clock, `lag_growth` its slope in seconds a second. `latency_*` is the arrival of a
    row at a long-polling reader less the end of its window, over the rows of the queries that were read.
    """

    queries: int
    offered_per_second: int
    seconds: float
    tuples_per_second: float | None
    keeps_up: bool
    lag_growth: float | None
    lag_p50: float | None
    lag_max: float | None
    latency_p50: float | None
    latency_p95: float | None
    latency_max: float | None
    rows_per_second: float | None
    readers: int
    rows_read: int
    batch_mean: float | None
    deployed_in: float | None
    failed_queries: int
    memory_gib: float


def measure_starts(count: int, say: Say) -> Starts:
    """Start and stop a service `count` times."""
    seconds = []
    for i in range(count):
        with ServiceProcess("starts") as service:
            seconds.append(service.wait_ready())
        say(f"start {i + 1} of {count}: ready after {seconds[-1]:.1f} s")
    return Starts(seconds, statistics.median(seconds))


def measure_deployments(posts: int, say: Say) -> Deployments:
    """Post `posts` queries, each after the one before is RUNNING."""
    posted, reported = [], []
    with ServiceProcess("deployments") as service, BraidClient(service.url, timeout=30) as client:
        service.wait_ready()
        client.create_stream(QUIET_STREAM)
        before = scrape_histogram(service.url, BATCH_DURATION)
        for i in range(posts):
            began = time.monotonic()
            sql = f"SELECT user_id, SUM(price) AS total FROM quiet [RANGE 1 SECONDS] WHERE price > {i} GROUP BY user_id"
            query = client.create_query(sql, wait=DEPLOY_SECONDS)
            if query["state"] == "RUNNING":
                posted.append(time.monotonic() - began)
                reported.append(query["deployment_latency_seconds"])
        batches = scrape_histogram(service.url, BATCH_DURATION).since(before)
    say(f"{len(posted)} of {posts} queries deployed one by one")
    return Deployments(
        posts=len(posted),
        batches=round(batches.count),
        batch_median=batches.quantile(0.5),
        batch_mean=batches.mean,
        posted_p50=statistics.percentile(posted, 0.5),
        posted_p95=statistics.percentile(posted, 0.95),
        reported_p50=statistics.percentile(reported, 0.5),
        reported_p95=statistics.percentile(reported, 0.95),
    )


def measure_load(queries: int, offered: int, seconds: float, say: Say, filtered: bool = True) -> Load:
    """Run `queries` queries on `offered` tuples a second for `seconds`, a few of them read by long poll.

    Without `filtered` the queries have no predicate.
    """
    predicates = random_predicates(queries)
    bodies = [query_body(revenue_query(predicate if filtered else None)) for predicate in predicates]
    readable = [i for i, p in enumerate(predicates) if not filtered or p.selectivity >= LEAST_SELECTIVITY]
    with ServiceProcess("load") as service, BraidClient(service.url, timeout=60) as client:
        service.wait_ready()
        client.create_stream(purchases_stream(offered))
        began = time.monotonic()
        created = client.create_queries(bodies, wait=DEPLOY_SECONDS)
        say(f"{queries} queries RUNNING after {time.monotonic() - began:.1f} s; measuring for {seconds:g} s")
        readers = [LongPollReader(service.url, created[i]["id"]) for i in readable[:READERS]]
        for reader in readers:
            reader.start()
        samples = _Samples(service, client)
        samples.take(seconds)
        for reader in readers:
            reader.stop()
        for error in (reader.error for reader in readers if reader.error is not None):
            raise error
        deployed = [q["deployment_latency_seconds"] for q in client.queries(limit=1000)]
        failed = sum(1 for _ in client.queries(state="FAILED", limit=1000))
        memory = service.memory_bytes() / 2**30
    arrivals = [a for reader in readers for a in reader.arrivals if a.at >= samples.measured_from]
    latencies, rows = [a.latency for a in arrivals], [float(a.rows) for a in arrivals]
    tuples = statistics.after_warm_up(samples.tuples, WARM_UP_SHARE)
    lags = statistics.after_warm_up(samples.lags, WARM_UP_SHARE)
    speed, growth = statistics.step_rate(tuples), statistics.slope(lags)
    return Load(
        queries=queries,
        offered_per_second=offered,
        seconds=tuples[-1][0] - tuples[0][0] if tuples else 0.0,
        tuples_per_second=speed,
        keeps_up=statistics.keeps_up(growth, speed, offered),
        lag_growth=growth,
        lag_p50=statistics.percentile([lag for _, lag in lags], 0.5),
        lag_max=max((lag for _, lag in lags), default=None),
        latency_p50=statistics.percentile(latencies, 0.5, rows),
        latency_p95=statistics.percentile(latencies, 0.95, rows),
        latency_max=max(latencies, default=None),
        rows_per_second=statistics.rate(samples.rows),
        readers=len(readers),
        rows_read=round(sum(rows)),
        batch_mean=samples.batch_mean,
        deployed_in=max((seconds for seconds in deployed if seconds is not None), default=None),
        failed_queries=failed,
        memory_gib=memory,
    )


class _Samples:
    """What the service says of itself while a load runs, as `(seconds, value)`."""

    def __init__(self, service: ServiceProcess, client: BraidClient) -> None:
        self._service, self._client = service, client
        self.tuples: list[tuple[float, float]] = []
        self.lags: list[tuple[float, float]] = []
        self.rows: list[tuple[float, float]] = []
        self.batch_mean: float | None = None
        self.measured_from = 0.0

    def take(self, seconds: float) -> None:
        """Sample for `seconds`; what comes before `measured_from` (seconds since 1970) is warm-up."""
        began = time.monotonic()
        self.measured_from = time.time() + WARM_UP_SHARE * seconds
        batches = Histogram({}, 0.0)
        while (now := time.monotonic()) < began + seconds:
            self._service.check_alive()
            if not self.rows and now >= began + WARM_UP_SHARE * seconds:
                self._count_rows()
                batches = scrape_histogram(self._service.url, BATCH_DURATION)
            self._sample()
            time.sleep(max(0.0, min(began + seconds, now + SAMPLE_SECONDS) - time.monotonic()))
        self._count_rows()
        self.batch_mean = scrape_histogram(self._service.url, BATCH_DURATION).since(batches).mean

    def _sample(self) -> None:
        stream = self._client.stream("purchases")
        at, now = time.monotonic(), time.time()
        if stream["clock"] is not None:
            self.tuples.append((at, stream["tuples"]))
            self.lags.append((at, now - dt.datetime.fromisoformat(stream["clock"]).timestamp()))

    def _count_rows(self) -> None:
        rows = sum(query["rows_out"] for query in self._client.queries(limit=1000))
        self.rows.append((time.monotonic(), rows))
