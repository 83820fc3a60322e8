"""Every metric family of ``/metrics``: name, type, labels, meaning; ``make metrics`` writes docs/metrics.md of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

GAUGE = "gauge"
COUNTER = "counter"
HISTOGRAM = "histogram"
QUERY_ID = ("query_id",)
STREAM = ("stream",)
STATE = ("state",)


@dataclass(frozen=True)
class Family:
    """A metric family; ``labels`` has ``label_…`` for labels that users choose, and leaves out a histogram's ``le``."""

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in (GAUGE, COUNTER, HISTOGRAM):
            raise ValueError(f"The type of {self.name} must be gauge, counter or histogram; got {self.kind!r}.")
        if self.name.endswith("_total") != (self.kind == COUNTER):
            raise ValueError(f"Names of counters, and no others, end with _total; got {self.name} for a {self.kind}.")

    def sampled(self, values: Mapping[str, float]) -> CounterMetricFamily | GaugeMetricFamily:
        """Return the family for prometheus_client, with a value for each value of its one label."""
        made = self._collected(labels=self.labels)
        for label, value in values.items():
            made.add_metric([label], value)
        return made

    def single(self, value: float) -> CounterMetricFamily | GaugeMetricFamily:
        """Return the family for prometheus_client, with its one value; it has no labels."""
        return self._collected(value=value)

    def _collected(
        self, value: float | None = None, labels: Sequence[str] | None = None
    ) -> CounterMetricFamily | GaugeMetricFamily:
        kind = CounterMetricFamily if self.kind == COUNTER else GaugeMetricFamily
        return kind(self.name, self.meaning, value=value, labels=labels)

    def histogram(self, registry: CollectorRegistry, bounds: Sequence[float]) -> Histogram:
        """Return a histogram of prometheus_client in a registry."""
        return Histogram(self.name, self.meaning, registry=registry, buckets=bounds)


READY = Family("braid_ready", GAUGE, "1 while /readyz says yes, else 0.")
JOB_RESTARTS = Family(
    "braid_job_restarts_total", COUNTER, "How often the job ended without being asked to, and was started anew."
)
JOB_STALLS = Family(
    "braid_job_stalls_total", COUNTER, "How often the job showed no sign of life for stall_seconds after its start."
)
EXECUTORS = Family("braid_executors", GAUGE, "Executors that the job has.")
EXECUTORS_WANTED = Family(
    "braid_executors_wanted", GAUGE, "Executors that the job should have; only where executors_max is not 0."
)
LATENCY_TARGET = Family(
    "braid_latency_target_seconds", GAUGE, "Setting latency_target_seconds, for the alert; not there where that is 0."
)
STATE_BYTES = Family("braid_state_bytes", GAUGE, "State of the shared operators.")
BUCKET_BYTES = Family("braid_bucket_bytes", GAUGE, "Files of buckets.")
RESULT_LOG_BYTES = Family("braid_result_log_bytes", GAUGE, "Files of results and dead letters.")

BATCHES = Family("braid_batches_total", COUNTER, "Batches committed.")
BATCH_DURATION = Family("braid_batch_duration_seconds", HISTOGRAM, "Duration of a batch.")
BATCH_TUPLES = Family("braid_batch_tuples", HISTOGRAM, "Rows in a batch.")
EPOCH = Family("braid_epoch", GAUGE, "Epoch of the last batch.")

QUERIES = Family("braid_queries", GAUGE, "Queries by state.", STATE)
QUERIES_CREATED = Family("braid_queries_created_total", COUNTER, "Queries accepted.")
QUERIES_DELETED = Family("braid_queries_deleted_total", COUNTER, "Queries deleted by a user or by their TTL.")
QUERIES_ENDED = Family("braid_queries_ended_total", COUNTER, "Queries that are over, failed ones included.")
DEPLOYMENT_LATENCY = Family(
    "braid_query_deployment_latency_seconds", HISTOGRAM, "Deployment latency of all queries together."
)
QUERY_INFO = Family(
    "braid_query_info",
    GAUGE,
    "Always 1; its labels are the query's name, tenant and labels.",
    ("query_id", "name", "tenant", "label_…"),
)
QUERY_STREAM_INFO = Family(
    "braid_query_stream_info", GAUGE, "Always 1, once for each stream that the query reads.", ("query_id", "stream")
)
QUERY_RESULTS = Family("braid_query_results_total", COUNTER, "Rows of results.", QUERY_ID)
QUERY_WINDOWS = Family(
    "braid_query_windows_total", COUNTER, "Windows with rows, counted in each batch that brings some.", QUERY_ID
)
EVENT_TIME_LATENCY = Family(
    "braid_query_event_time_latency_seconds",
    HISTOGRAM,
    "Event-time latency, once for each result block with rows of the query.",
    QUERY_ID,
)
PROCESSING_TIME_LATENCY = Family(
    "braid_query_processing_time_latency_seconds",
    HISTOGRAM,
    "Processing-time latency, once for each result block with rows of the query.",
    QUERY_ID,
)
DELIVERY_LATENCY = Family(
    "braid_query_delivery_latency_seconds",
    HISTOGRAM,
    "Delivery latency, once for each batch with rows of the query.",
    QUERY_ID,
)
QUERY_DEPLOYMENT = Family("braid_query_deployment_seconds", GAUGE, "Deployment latency of the query.", QUERY_ID)
COST_SHARE = Family(
    "braid_query_cost_share_ratio",
    GAUGE,
    "Part of the time of all operators that the query takes, 0 to 1; those of all queries add up to about 1.",
    QUERY_ID,
)

STREAM_TUPLES = Family("braid_stream_tuples_total", COUNTER, "Rows taken in, late ones included.", STREAM)
STREAM_BYTES = Family("braid_stream_bytes_total", COUNTER, "Bytes taken in.", STREAM)
STREAM_LATE = Family("braid_stream_late_total", COUNTER, "Rows below the watermark, now dead letters.", STREAM)
STREAM_MALFORMED = Family(
    "braid_stream_malformed_total", COUNTER, "Inputs that do not fit the stream, now dead letters.", STREAM
)
STREAM_SKIPPED = Family("braid_stream_skipped_total", COUNTER, "Offsets that were gone before they were read.", STREAM)
STREAM_LAG = Family("braid_stream_lag_tuples", GAUGE, "Inputs that wait at the source.", STREAM)
STREAM_CLOCK = Family("braid_stream_clock_seconds", GAUGE, "Clock of the stream, seconds since 1970.", STREAM)
STREAM_WATERMARK = Family(
    "braid_stream_watermark_seconds", GAUGE, "Watermark of the stream, seconds since 1970.", STREAM
)
STREAM_QUERY_TUPLES = Family(
    "braid_stream_query_tuples_total", COUNTER, "Rows, counted once for each query that reads them.", STREAM
)
STREAM_OPERATOR_TUPLES = Family(
    "braid_stream_operator_tuples_total",
    COUNTER,
    "Rows, counted once for each shared operator that evaluates them.",
    STREAM,
)

SINKS = Family("braid_sinks", GAUGE, "Deliveries to sinks by state: DELIVERING, RETRYING, STALLED, DONE.", STATE)
SINK_UP = Family(
    "braid_sink_up", GAUGE, "0 while rows wait because the sink fails or no deliverer runs, else 1.", QUERY_ID
)
SINK_LAG = Family("braid_sink_lag_seconds", GAUGE, "Age of the oldest row that is not delivered.", QUERY_ID)
SINK_ROWS = Family("braid_sink_rows_total", COUNTER, "Rows delivered.", QUERY_ID)
SINK_ERRORS = Family("braid_sink_errors_total", COUNTER, "Deliveries that failed, and are tried again.", QUERY_ID)
SINK_REFUSED = Family(
    "braid_sink_refused_total", COUNTER, "Rows that the sink refused for good, now dead letters of the query.", QUERY_ID
)

SECTIONS: Mapping[str, tuple[Family, ...]] = {
    "Service": (
        READY,
        JOB_RESTARTS,
        JOB_STALLS,
        EXECUTORS,
        EXECUTORS_WANTED,
        LATENCY_TARGET,
        STATE_BYTES,
        BUCKET_BYTES,
        RESULT_LOG_BYTES,
    ),
    "Batches": (BATCHES, BATCH_DURATION, BATCH_TUPLES, EPOCH),
    "Queries": (
        QUERIES,
        QUERIES_CREATED,
        QUERIES_DELETED,
        QUERIES_ENDED,
        DEPLOYMENT_LATENCY,
        QUERY_INFO,
        QUERY_STREAM_INFO,
        QUERY_RESULTS,
        QUERY_WINDOWS,
        EVENT_TIME_LATENCY,
        PROCESSING_TIME_LATENCY,
        DELIVERY_LATENCY,
        QUERY_DEPLOYMENT,
        COST_SHARE,
    ),
    "Streams": (
        STREAM_TUPLES,
        STREAM_BYTES,
        STREAM_LATE,
        STREAM_MALFORMED,
        STREAM_SKIPPED,
        STREAM_LAG,
        STREAM_CLOCK,
        STREAM_WATERMARK,
        STREAM_QUERY_TUPLES,
        STREAM_OPERATOR_TUPLES,
    ),
    "Sinks": (SINKS, SINK_UP, SINK_LAG, SINK_ROWS, SINK_ERRORS, SINK_REFUSED),
}
"""All families, by the part of the service that they tell of."""
