"""``/metrics`` in Prometheus' text format.

What the session counts is read when it is scraped; what only a batch record tells (rows and latencies of queries,
durations) is added up as batches come. A query has series of its own while it holds its slot and there is room
(``metrics_labelled_queries``); all others share ``query_id="other"``.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from api.query_series import QuerySeries
from session.query_record import DRAINING, RUNNING
from session.reads import MOST_LISTED
from session.shared_session import SharedSession
from sources.errors import BraidError
from sources.record_log import RecordLog
from sources.storage import Storage

CONTENT_TYPE = prometheus_client.exposition.CONTENT_TYPE_PLAIN_0_0_4
DEPLOYMENT_SECONDS = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
DURATION_SECONDS = (0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
BATCH_TUPLES = (0, 1, 10, 100, 1e3, 1e4, 1e5, 3e5, 1e6, 3e6, 1e7)
SIZES_SECONDS = 10.0
_COUNTS = ("tuples", "bytes", "late", "malformed")

log = logging.getLogger("braid.metrics")


class Metrics:
    """The metrics of one service; its registry holds nothing of the process."""

    def __init__(
        self,
        session: SharedSession,
        storage: Storage,
        labelled_queries: int,
        ready: Callable[[], bool],
        lag: Callable[[], dict[str, int]],
    ) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._session = session
        self._storage = storage
        self._changelogs = RecordLog(storage, "changelogs")
        self._ready = ready
        self._lag = lag
        self._lock = threading.Lock()
        self._queries = QuerySeries(labelled_queries)
        self._epoch: int | None = None
        self._state_bytes = 0
        self._sizes: tuple[float, dict[str, int]] = (-SIZES_SECONDS, {})
        self.registry = CollectorRegistry()
        self._deployment = Histogram(
            "braid_query_deployment_latency_seconds",
            "From the acceptance of a query to the commit of the first batch that runs it.",
            registry=self.registry,
            buckets=DEPLOYMENT_SECONDS,
        )
        self._duration = Histogram(
            "braid_batch_duration_seconds",
            "Duration of batches.",
            registry=self.registry,
            buckets=DURATION_SECONDS,
        )
        self._tuples = Histogram(
            "braid_batch_tuples", "Tuples in a batch.", registry=self.registry, buckets=BATCH_TUPLES
        )
        self.registry.register(self)

    def absorb(self, record: dict[str, Any]) -> None:
        """Add a batch; the session has just applied it."""
        with self._lock:
            if self._epoch is None:
                self._epoch = self._recover(record["previous_epoch"])
            for epoch in range(self._epoch + 1, record["epoch"] + 1):
                self._change(epoch)
            self._epoch = record["epoch"]
            for block in record["results"]:
                self._queries.count(block["slots"], block["counts"])
                self._queries.observe(block["slots"], block["latest_event_us"], record)
            self._state_bytes = record.get("bytes", {}).get("state", 0)
        self._duration.observe(record["duration_us"] / 1e6)
        self._tuples.observe(sum(stream["tuples"] for stream in record["streams"].values()))

    def _recover(self, epoch: int) -> int:
        """Take note of the queries that held slots at ``epoch``, and return it."""
        cursor = None
        while True:
            page = self._session.list_queries(limit=MOST_LISTED, cursor=cursor)
            for query in page["queries"]:
                if query["state"] in (RUNNING, DRAINING) and query["epoch"] <= epoch:
                    self._queries.add(query["slot"], query["id"], query["name"])
            cursor = page["cursor"]
            if cursor is None:
                return epoch

    def _change(self, epoch: int) -> None:
        try:
            changelog = self._changelogs.read(epoch)
        except FileNotFoundError:  # trimmed: its queries count as "other"
            return
        for freed in changelog["freed"]:
            self._queries.remove(freed["slot"])
        for created in changelog["created"]:
            try:
                query = self._session.query(created["id"])
            except BraidError:  # its retention has passed
                continue
            self._queries.add(created["slot"], query["id"], query["name"])
            if query["deployment_latency_seconds"] is not None:
                self._deployment.observe(query["deployment_latency_seconds"])

    def text(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Yield what is read when it is scraped."""
        session = self._session
        states = GaugeMetricFamily("braid_queries", "Queries by state.", labels=["state"])
        for state, count in session.count_by_state().items():
            states.add_metric([state], count)
        yield states
        yield CounterMetricFamily("braid_queries_created", "Queries accepted.", session.queries_created)
        yield CounterMetricFamily("braid_queries_deleted", "Queries deleted.", session.queries_deleted)
        yield CounterMetricFamily("braid_batches", "Batches committed.", session.applied_seq)
        yield GaugeMetricFamily("braid_epoch", "Epoch of the last batch.", session.active_epoch)
        yield GaugeMetricFamily("braid_ready", "1 when queries run at full speed.", float(self._ready()))
        with self._lock:
            yield from self._queries.collect()
            state_bytes = self._state_bytes
        sizes = self._read_sizes()
        yield GaugeMetricFamily("braid_state_bytes", "State of the shared operators.", state_bytes)
        yield GaugeMetricFamily("braid_bucket_bytes", "Files of buckets.", sizes["buckets"])
        yield GaugeMetricFamily(
            "braid_result_log_bytes",
            "Files of results and dead letters.",
            sizes["results"] + sizes["dead-letters"],
        )
        yield from self._streams()

    def _streams(self) -> Iterator[Metric]:
        streams = self._session.streams()
        for name in _COUNTS:
            what = {"tuples": "Valid tuples taken in.", "bytes": "Bytes taken in."}.get(name, f"Tuples {name}.")
            counter = CounterMetricFamily(f"braid_stream_{name}", what, labels=["stream"])
            for stream in streams:
                counter.add_metric([stream["name"]], stream[name])
            yield counter
        for name in ("clock", "waterline"):
            gauge = GaugeMetricFamily(
                f"braid_stream_{name}_seconds", f"The {name}, seconds since 1970.", labels=["stream"]
            )
            for stream in streams:
                if stream[name] is not None:
                    gauge.add_metric([stream["name"]], seconds_of(stream[name]))
            yield gauge
        lag = GaugeMetricFamily("braid_stream_lag_tuples", "Inputs not taken in yet.", labels=["stream"])
        for name, tuples in self._lag().items():
            lag.add_metric([name], tuples)
        yield lag

    def _read_sizes(self) -> dict[str, int]:
        read, sizes = self._sizes
        if time.monotonic() - read >= SIZES_SECONDS:
            sizes = {folder: self._storage.size(folder) for folder in ("buckets", "results", "dead-letters")}
            self._sizes = (time.monotonic(), sizes)
        return sizes


def seconds_of(time_text: str) -> float:
    """Return an RFC 3339 time as seconds since 1970."""
    return dt.datetime.fromisoformat(time_text).timestamp()
