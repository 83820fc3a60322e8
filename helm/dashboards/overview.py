"""*Overview*: whether the service keeps up, and what all its queries have in common."""

from __future__ import annotations

from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard, ValueMap, ValueMappingResult

from helm.dashboards import promql
from helm.dashboards.parts import MAX_NOTE, QUERY_LEGEND, TOP_NOTE, Part, dashboard, figure, listing, row, series, top
from helm.dashboards.promql import DELIVERY, EVENT_TIME, PROCESSING_TIME, by, of, quantile, quantiles, rate, total

SHARING = promql.ratio("braid_stream_query_tuples_total", "braid_stream_operator_tuples_total")
READY = ValueMap({"0": ValueMappingResult("no", "red", index=0), "1": ValueMappingResult("yes", "green", index=1)})


def figures() -> list[Part]:
    """Make the line of numbers on top."""
    running = of("braid_queries", f'{promql.SERVICE}, state="RUNNING"')
    return [
        figure("Ready", f"min({of('braid_ready')})", "Whether /readyz says yes.", mappings=[READY]),
        figure("Running queries", total(running), "Queries in state RUNNING."),
        figure(
            "Created per second",
            total(rate("braid_queries_created_total")),
            "Queries accepted per second.",
            units.OpsPerSecond,
        ),
        figure(
            "Retired per second",
            total(rate("braid_queries_retired_total")),
            "Queries per second that came to their end: deleted, out of their time to live, or failed.",
            units.OpsPerSecond,
        ),
        figure(
            "Tuples per second",
            total(rate("braid_stream_tuples_total")),
            "Tuples read from all streams per second. Each is read once, however many queries see it.",
            units.CountsPerSecond,
        ),
        figure(
            "Results per second",
            total(rate("braid_query_results_total")),
            "Result rows of all queries per second.",
            units.RowsPerSecond,
        ),
        figure(
            "Event-time latency p95",
            quantile(EVENT_TIME, 0.95),
            "95th percentile over the results of all queries: now minus the greatest event time that contributed.",
            units.Seconds,
        ),
        figure(
            "Sharing ratio",
            SHARING,
            "How many queries a tuple serves each time that a shared operator evaluates it.",
        ),
    ]


def queries() -> list[Part]:
    """Make the panels on queries coming and going, and on those that run."""
    slowest = f"topk($top, {quantile(EVENT_TIME, 0.95, label='query_id')})"
    columns = {
        "event-time p95": quantile(EVENT_TIME, 0.95, label="query_id"),
        "processing-time p95": quantile(PROCESSING_TIME, 0.95, label="query_id"),
        "rows/s": by("query_id", rate("braid_query_results_total")),
        "windows/s": by("query_id", rate("braid_query_windows_total")),
        "cost share": by("query_id", of("braid_query_cost_share_ratio"), "max"),
    }
    return [
        row("Queries"),
        series(
            "Queries by state",
            {"{{state}}": by("state", of("braid_queries"))},
            "PENDING → RUNNING → DRAINING → RETIRED, or FAILED; PAUSED until it is resumed.",
            units.Short,
            stacked=True,
        ),
        series(
            "Query throughput",
            {
                "created": total(rate("braid_queries_created_total")),
                "deleted": total(rate("braid_queries_deleted_total")),
                "retired": total(rate("braid_queries_retired_total")),
            },
            "Queries accepted, deletions accepted, and queries that are over, per second.",
            units.OpsPerSecond,
        ),
        series(
            "Deployment latency",
            quantiles("braid_query_deployment_latency_seconds"),
            f"From the request that creates a query to the first batch that runs it. {MAX_NOTE}",
            units.Seconds,
        ),
        series(
            "Cost share of queries",
            {QUERY_LEGEND: promql.named(promql.greatest(columns["cost share"]))},
            f"Which part of the time of all operators each query takes; what is shared is divided equally. {TOP_NOTE}",
            units.PercentUnit,
            stacked=True,
        ),
        series(
            "Event-time latency of queries, p95",
            {QUERY_LEGEND: promql.named(slowest)},
            f"Now minus the greatest event time that contributed to a result. {TOP_NOTE}",
            units.Seconds,
            width=24,
        ),
        listing(
            "Queries now",
            {name: promql.named(expression) for name, expression in columns.items()},
            {"query_id": "query", "name": "name"},
            "All queries with series of their own, slowest first. An id leads to the dashboard of that query.",
            units_of={
                "rows/s": units.RowsPerSecond,
                "windows/s": units.OpsPerSecond,
                "cost share": units.PercentUnit,
            },
            sort_by="event-time p95",
        ),
    ]


def latency() -> list[Part]:
    """Make the panels on the latency of all results."""
    event_time = quantiles(EVENT_TIME) | {"target": f"max({of('braid_latency_target_seconds')})"}
    return [
        row("Latency of all results"),
        series(
            "Event-time latency",
            event_time,
            f"Now minus the greatest event time that contributed; “target” is what the service is set to. {MAX_NOTE}",
            units.Seconds,
            width=8,
        ),
        series(
            "Processing-time latency",
            quantiles(PROCESSING_TIME),
            f"From the start of a batch to its commit, for each result. {MAX_NOTE}",
            units.Seconds,
            width=8,
        ),
        series(
            "Delivery latency",
            quantiles(DELIVERY),
            f"From the commit of a batch until a sink, or the first reader of /results, has its rows. {MAX_NOTE}",
            units.Seconds,
            width=8,
        ),
    ]


def data() -> list[Part]:
    """Make the panels on the data that comes in."""
    waterline = by("stream", of("braid_stream_waterline_seconds"), "max")
    return [
        row("Data"),
        series(
            "Tuples per second by stream",
            {"{{stream}}": by("stream", rate("braid_stream_tuples_total"))},
            "Tuples read.",
            units.CountsPerSecond,
            width=8,
        ),
        series(
            "Age of waterlines",
            {"{{stream}}": f"time() - {waterline}"},
            "Now minus the stream's waterline. A window is final once the waterline has passed its end.",
            units.Seconds,
            width=8,
            from_zero=False,
        ),
        series(
            "Sharing ratio over time",
            {"all": SHARING},
            "Tuples times the queries that read them, over tuples times the shared operators that evaluate them.",
            units.Short,
            width=8,
        ),
    ]


def job() -> list[Part]:
    """Make the panels on micro-batches and on what is kept."""
    return [
        row("Batches and storage"),
        series(
            "Batch duration",
            quantiles("braid_batch_duration_seconds"),
            f"Duration of a micro-batch, the floor of every latency above. {MAX_NOTE}",
            units.Seconds,
            width=8,
        ),
        series(
            "Batch size",
            quantiles("braid_batch_tuples"),
            f"Tuples in a micro-batch. {MAX_NOTE}",
            units.Short,
            width=8,
        ),
        series(
            "Batches and changelogs per second",
            {
                "batches": f"sum({rate('braid_batches_total')})",
                "epochs": f"sum(deriv({of('braid_epoch')}[$__rate_interval]))",
            },
            "Micro-batches committed, and changelogs that came into force with them.",
            units.OpsPerSecond,
            width=8,
        ),
        series(
            "Bytes kept",
            {
                "state": f"sum({of('braid_state_bytes')})",
                "buckets": f"sum({of('braid_bucket_bytes')})",
                "result log": f"sum({of('braid_result_log_bytes')})",
            },
            "Follows open windows, running queries and the retention of results, not the time since start.",
            units.BytesIEC,
            width=12,
        ),
        series(
            "Stalls and restarts of the job",
            {
                "stalls": f"sum(increase({of('braid_job_stalls_total')}[$__rate_interval]))",
                "restarts": f"sum(increase({of('braid_job_restarts_total')}[$__rate_interval]))",
            },
            "How often the job showed no sign of life for stall_seconds, and how often it ended unasked.",
            units.Short,
            width=12,
        ),
    ]


def build() -> Dashboard:
    """Build the dashboard."""
    return dashboard(
        "braid-overview",
        "Braid / Overview",
        "Whether the service keeps up: its queries, their latency, the data, and the shared job that runs them all.",
        [top()],
        [*figures(), *queries(), *latency(), *data(), *job()],
    )
