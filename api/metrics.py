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
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from api.query_series import OTHER, QuerySeries
from session.deliveries import STATES, lag_seconds
from session.session_state import SlotChange
from session.shared_session import SharedSession
from sources.storage import Storage

CONTENT_TYPE = prometheus_client.exposition.CONTENT_TYPE_PLAIN_0_0_4
DEPLOYMENT_SECONDS = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
DURATION_SECONDS = (0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
BATCH_TUPLES = (0, 1, 10, 100, 1e3, 1e4, 1e5, 3e5, 1e6, 3e6, 1e7)
SIZES_SECONDS = 10.0
_COUNTS = {
    "tuples": "Valid tuples taken in.",
    "bytes": "Bytes taken in.",
    "late": "Tuples late.",
    "malformed": "Tuples malformed.",
    "skipped": "Offsets that were gone before they were read.",
}

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
        self._ready = ready
        self._lag = lag
        self._lock = threading.Lock()
        self._labelled_queries = labelled_queries
        self._queries = QuerySeries(labelled_queries)
        self._knows_slots = False
        self._state_bytes = 0
        self._sizes: dict[str, int] = {}
        self._sizes_due = 0.0
        self._sizing = threading.Lock()
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

    def absorb_slots(self, changes: list[SlotChange]) -> None:
        """Take note of the slots that changed hands with a batch; the session has just applied it."""
        if not self._knows_slots:  # the first batch since the start: it may have told of changes before, too
            self._knows_slots = True
            slots = self._session.slots()
        else:
            slots = changes
        with self._lock:
            for slot, holder in slots:
                if holder is None:
                    self._queries.remove(slot)
                else:
                    self._queries.add(slot, holder.id, holder.name)
        for _, holder in changes:
            if holder is not None:
                self._deployment.observe(holder.latency_us / 1e6)

    def absorb(self, record: dict[str, Any]) -> None:
        """Add a batch; the session has just applied it."""
        with self._lock:
            for block in record["results"]:
                self._queries.absorb(block, record)
        self._state_bytes = record.get("bytes", {}).get("state", 0)
        self._duration.observe(record["duration_us"] / 1e6)
        self._tuples.observe(sum(stream["tuples"] for stream in record["streams"].values()))

    def text(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        with self._lock:
            queries = self._queries.moment()
        return generate_latest(self.registry) + queries.text().encode()

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
        sizes = self._read_sizes()
        yield GaugeMetricFamily("braid_state_bytes", "State of the shared operators.", self._state_bytes)
        yield GaugeMetricFamily("braid_bucket_bytes", "Files of buckets.", sizes["buckets"])
        yield GaugeMetricFamily(
            "braid_result_log_bytes",
            "Files of results and dead letters.",
            sizes["results"] + sizes["dead-letters"],
        )
        yield from self._streams()
        yield from self._sinks()

    def _sinks(self) -> Iterator[Metric]:
        progress = self._session.deliveries.progress()
        states = GaugeMetricFamily("braid_sinks", "Deliveries to sinks by state.", labels=["state"])
        counted = Counter(self._session.deliveries.state_of(*each) for each in progress.items())
        for state in STATES:
            states.add_metric([state], counted[state])
        yield states
        rows = CounterMetricFamily("braid_sink_rows", "Rows delivered to sinks.", labels=["query_id"])
        errors = CounterMetricFamily(
            "braid_sink_errors", "Deliveries that failed and are tried again.", labels=["query_id"]
        )
        lag = GaugeMetricFamily(
            "braid_sink_lag_seconds", "Age of the oldest rows that are not delivered.", labels=["query_id"]
        )
        shown = list(progress.items())
        for query_id, each in shown[: self._labelled_queries]:
            rows.add_metric([query_id], each.rows)
            errors.add_metric([query_id], each.errors)
            lag.add_metric([query_id], lag_seconds(each))
        if others := [each for _, each in shown[self._labelled_queries :]]:
            rows.add_metric([OTHER], sum(each.rows for each in others))
            errors.add_metric([OTHER], sum(each.errors for each in others))
            lag.add_metric([OTHER], max(map(lag_seconds, others)))
        yield from (rows, errors, lag)

    def _streams(self) -> Iterator[Metric]:
        streams = self._session.streams()
        for name, what in _COUNTS.items():
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
        """Return the sizes of folders; after the first time no scrape waits until many files are counted."""
        if not self._sizes:
            self._measure()
        elif time.monotonic() >= self._sizes_due and not self._sizing.locked():
            threading.Thread(target=self._measure, name="sizes", daemon=True).start()
        return self._sizes

    def _measure(self) -> None:
        with self._sizing:
            if time.monotonic() < self._sizes_due:
                return
            self._sizes = {folder: self._storage.size(folder) for folder in ("buckets", "results", "dead-letters")}
            self._sizes_due = time.monotonic() + SIZES_SECONDS


def seconds_of(time_text: str) -> float:
    """Return an RFC 3339 time as seconds since 1970."""
    return dt.datetime.fromisoformat(time_text).timestamp()
