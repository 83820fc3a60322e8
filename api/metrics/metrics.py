"""``/metrics`` in Prometheus' text format.

What the session counts is read when it is scraped; what only a batch record tells (rows and latencies of queries,
durations) is added up as batches come. A query has series of its own while it holds its slot and there is room
(``metrics_labelled_queries``); all others share ``query_id="other"``.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

from braid.api.metrics import families
from braid.api.metrics.delivery_series import DeliverySeries
from braid.api.metrics.histograms import family_text
from braid.api.metrics.query_series import OTHER, QuerySeries
from braid.api.metrics.stream_series import SharingSeries, stream_families
from braid.operators.state.bucket_store import BUCKETS
from braid.router.page import Page
from braid.session.commands.query_lookup import RunningQuery
from braid.session.settings import Settings
from braid.session.shared_session import SharedSession
from braid.session.state.applied_epoch import SlotChange
from braid.session.state.query_record import QueryRecord
from braid.session.upkeep.deliveries import STATES
from braid.sources.core.storage import Storage

CONTENT_TYPE = prometheus_client.exposition.CONTENT_TYPE_PLAIN_0_0_4
DEPLOYMENT_SECONDS = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
DURATION_SECONDS = (0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
BATCH_TUPLES = (0, 1, 10, 100, 1e3, 1e4, 1e5, 3e5, 1e6, 3e6, 1e7)
SIZES_SECONDS = 10.0
JOB_COUNTS = {"restarts": families.JOB_RESTARTS, "stalls": families.JOB_STALLS}


class Metrics:
    """The metrics of one service; its registry holds nothing of the process."""

    def __init__(
        self,
        session: SharedSession,
        storage: Storage,
        settings: Settings,
        ready: Callable[[], bool],
        lag: Callable[[], dict[str, int]],
        result_bytes: Callable[[], int],
        job_counts: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._session = session
        self._storage = storage
        self._settings = settings
        self._ready = ready
        self._lag = lag
        self._result_bytes = result_bytes
        self._job_counts = job_counts
        self._lock = threading.Lock()
        # by slot, the query that holds it
        self._holders: dict[int, QueryRecord] = {}
        self._queries = QuerySeries(settings.metrics_labelled_queries)
        self._deliveries = DeliverySeries(settings.metrics_labelled_queries)
        self._sharing = SharingSeries()
        self._knows_slots = False
        self._state_bytes = 0
        self._sizes: dict[str, int] = {}
        self._sizes_due = 0.0
        self._sizing = threading.Lock()
        self.registry = CollectorRegistry()
        self._deployment = families.DEPLOYMENT_LATENCY.histogram(self.registry, DEPLOYMENT_SECONDS)
        self._duration = families.BATCH_DURATION.histogram(self.registry, DURATION_SECONDS)
        self._tuples = families.BATCH_TUPLES.histogram(self.registry, BATCH_TUPLES)
        self.registry.register(self)

    def absorb_slots(self, changes: list[SlotChange]) -> None:
        """Take note of the slots that changed hands with a batch; the session has just applied it."""
        if not self._knows_slots:  # the first batch since the start: it may have shown changes before, too
            self._knows_slots = True
            slots = self._session.lookup.slots()
        else:
            slots = changes
        with self._lock:
            for slot, holder in slots:
                self._replace(slot, holder)
        for _, holder in changes:
            if holder is not None:
                self._deployment.observe((holder.deployment_latency_us or 0) / 1e6)

    def _replace(self, slot: int, holder: QueryRecord | None) -> None:
        previous = self._holders.pop(slot, None)
        if previous is not None:
            self._queries.remove(slot)
            self._deliveries.leave(previous.id)
            self._sharing.remove(previous)
        if holder is not None:
            self._holders[slot] = holder
            self._queries.add(slot, holder)
            self._sharing.add(holder)

    def absorb(self, record: dict[str, Any]) -> None:
        """Add a batch; the session has just applied it."""
        with self._lock:
            self._queries.absorb(record)
            self._sharing.absorb(record)
        self._state_bytes = record.get("bytes", {}).get("state", 0)
        self._duration.observe(record["duration_us"] / 1e6)
        self._tuples.observe(sum(stream["tuples"] for stream in record["streams"].values()))

    def absorb_page(self, deployed: RunningQuery, page: Page, latest: int) -> None:
        """Take note of a page that a reader of a query is about to have; ``latest`` is the newest batch visible."""
        with self._lock:
            holder = None if deployed.slot is None else self._holders.get(deployed.slot)
            if holder is not None and holder.id == deployed.id:
                self._deliveries.read(holder, latest, page.completed, time.time_ns() // 1000)

    def text(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        deliveries = self._session.deliveries
        progress = deliveries.progress()
        states = {query_id: deliveries.state_of(query_id, delivery) for query_id, delivery in progress.items()}
        with self._lock:
            self._deliveries.follow(progress)
            queries, delivered = self._queries.moment(), self._deliveries.text(states)
            are_all_labelled = len(queries.ids) == len(self._holders)
        shares = self._session.plans.cost_shares(queries.ids)
        if shares and not are_all_labelled:
            shares[OTHER] = max(0.0, 1.0 - sum(shares.values()))
        count_by_state = Counter(states.values())
        labels = [f'state="{state}"' for state in STATES]
        sinks = family_text(families.SINKS, labels, [count_by_state[state] for state in STATES])
        return generate_latest(self.registry) + (queries.text(shares) + sinks + delivered).encode()

    def collect(self) -> Iterator[Metric]:
        """Yield what is read when it is scraped."""
        session = self._session
        yield families.QUERIES.sampled(session.lookup.count_by_state())
        created, unfinished = session.lookup.created, session.lookup.unfinished
        yield families.QUERIES_CREATED.single(created)
        yield families.QUERIES_DELETED.single(session.lookup.deleted)
        yield families.QUERIES_ENDED.single(created - unfinished)
        yield families.BATCHES.single(session.applied_seq)
        yield families.EPOCH.single(session.active_epoch)
        yield families.READY.single(float(self._ready()))
        job_counts = self._job_counts()
        for name, family in JOB_COUNTS.items():
            yield family.single(job_counts.get(name, 0))
        executors, executors_wanted = session.scaling.now, session.scaling.wanted
        if executors is not None:
            yield families.EXECUTORS.single(executors)
        if executors_wanted is not None:
            yield families.EXECUTORS_WANTED.single(executors_wanted)
        if self._settings.latency_target_seconds:
            yield families.LATENCY_TARGET.single(self._settings.latency_target_seconds)
        sizes = self._read_sizes()
        yield families.STATE_BYTES.single(self._state_bytes)
        yield families.BUCKET_BYTES.single(sizes["buckets"])
        yield families.RESULT_LOG_BYTES.single(sizes["results"])
        streams = session.streams.describe_all()
        yield from stream_families(streams, self._lag())
        with self._lock:
            yield from self._sharing.families({stream["id"]: stream["name"] for stream in streams})

    def _read_sizes(self) -> dict[str, int]:
        """Return what files take; after the first time no scrape waits until many files are counted."""
        if not self._sizes:
            self._measure()
        elif time.monotonic() >= self._sizes_due and not self._sizing.locked():
            threading.Thread(target=self._measure, name="sizes", daemon=True).start()
        return self._sizes

    def _measure(self) -> None:
        with self._sizing:
            if time.monotonic() < self._sizes_due:
                return
            self._sizes = {"buckets": self._storage.size(BUCKETS), "results": self._result_bytes()}
            self._sizes_due = time.monotonic() + SIZES_SECONDS
