"""Build the Grafana dashboards of the chart from plain Python.

Run it after a change, and commit what it writes::

    python helm/dashboards.py

It writes ``helm/braid/dashboards/*.json``; a test compares the committed files with what this module builds.
Metrics are selected by `$namespace` and `$job`, which tell several Braid services in one Prometheus apart.
Per-query series get their names from `braid_query_info`.
"""

from __future__ import annotations

import json
from pathlib import Path

from grafana import Json, place, row, series, several, stat, table, variable

DIRECTORY = Path(__file__).resolve().parent / "braid" / "dashboards"

SERVICE = 'namespace=~"$namespace", job=~"$job"'
OF_QUERY = f'{SERVICE}, query_id=~"$query"'
OF_STREAM = f'{SERVICE}, stream=~"$stream"'

EVENT_TIME = "braid_query_event_time_latency_seconds"
PROCESSING_TIME = "braid_query_processing_time_latency_seconds"
# The quantile 1 of a histogram is the upper edge of its highest filled bucket.
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
MAX_NOTE = "“max” is the upper edge of the highest histogram bucket that was hit."
TOP_NOTE = "Shows the “Top” greatest at each moment."
QUERY_LEGEND = "{{name}} ({{query_id}})"


def rate(metric: str, labels: str = SERVICE) -> str:
    """Write the per-second rate of a counter over Grafana's interval."""
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def quantile(metric: str, q: float, labels: str = SERVICE, by: str = "") -> str:
    """Write quantile `q` of a histogram, one series per value of label `by` (none: one for all)."""
    grouping = f"le, {by}" if by else "le"
    return f"histogram_quantile({q:g}, sum by ({grouping}) ({rate(metric + '_bucket', labels)}))"


def named(expression: str) -> str:
    """Add the label `name` to series that have `query_id`; a series without a name stays as it is.

    The right side is 1 for every query: from `braid_query_info` where it lists the query, else from its results.
    """
    info = f"max by (query_id, name) (braid_query_info{{{OF_QUERY}}})"
    unnamed = f"group by (query_id) (braid_query_results_total{{{OF_QUERY}}})"
    return f"({expression}) * on (query_id) group_left (name) ({info} or on (query_id) {unnamed})"


def greatest(expression: str) -> str:
    """Keep the `$top` greatest series of each moment."""
    return f"topk($top, {expression})"


def quantiles(metric: str, labels: str = SERVICE) -> dict[str, str]:
    """Write the usual quantiles of a histogram, legend → expression."""
    return {name: quantile(metric, q, labels) for name, q in QUANTILES.items()}


def total(expression: str) -> str:
    """Sum over everything; 0 while the service is up and the series does not exist yet."""
    return f"sum({expression}) or 0 * max(braid_ready{{{SERVICE}}})"


def figures() -> list[Json]:
    """Make the line of single figures on top."""
    up = {"0": {"text": "no", "color": "red", "index": 0}, "1": {"text": "yes", "color": "green", "index": 1}}
    return [
        stat(
            "Running queries",
            total(f'braid_queries{{{SERVICE}, state=~"(?i)running"}}'),
            "Queries in state RUNNING.",
        ),
        stat(
            "Created per second",
            total(rate("braid_queries_created_total")),
            "Queries accepted per second.",
            "ops",
        ),
        stat(
            "Retired per second",
            total(rate("braid_queries_deleted_total")),
            "Queries deleted per second, by a user or by their time to live.",
            "ops",
        ),
        stat(
            "Results per second",
            total(rate("braid_query_results_total")),
            "Result rows of all queries per second.",
            "rowsps",
        ),
        stat(
            "Tuples per second",
            total(rate("braid_stream_tuples_total")),
            "Tuples read from all streams per second. Each is read once, however many queries see it.",
            "cps",
        ),
        stat(
            "Event-time latency p99",
            quantile(EVENT_TIME, 0.99, OF_QUERY),
            "99th percentile over the results of the selected queries: now minus the greatest event time in it.",
            "s",
        ),
        stat(
            "Epoch",
            f"max(braid_epoch{{{SERVICE}}})",
            "Number of the newest changelog: each batch of query creations and deletions makes one.",
            "none",
        ),
        stat(
            "Ready",
            f"min(braid_ready{{{SERVICE}}})",
            "Whether /readyz says yes: ready to take queries and run them at full speed.",
            mappings=[{"type": "value", "options": up}],
        ),
    ]


def latency(title: str, metric: str, meaning: str) -> list[Json]:
    """Make the panels of one per-query latency: over all selected queries, then each query by quantile."""
    panels = [
        row(f"{title} per query"),
        series(
            f"{title}, selected queries together",
            quantiles(metric, OF_QUERY),
            f"{meaning} Over all results of the selected queries. {MAX_NOTE}",
            "s",
        ),
    ]
    for name, q in sorted(QUANTILES.items(), key=lambda item: item[1] != 0.99):
        panels.append(
            series(
                f"{title} per query, {name}",
                {QUERY_LEGEND: named(greatest(quantile(metric, q, OF_QUERY, by="query_id")))},
                f"{meaning} {TOP_NOTE}" + (f" {MAX_NOTE}" if name == "max" else ""),
                "s",
                width=12 if name == "p99" else 8,
            )
        )
    return panels


def query_throughput() -> list[Json]:
    """Make the panels on what queries put out, and on how many come and go."""
    results = f"sum by (query_id) ({rate('braid_query_results_total', OF_QUERY)})"
    columns = {
        "p50": quantile(EVENT_TIME, 0.5, OF_QUERY, by="query_id"),
        "p99": quantile(EVENT_TIME, 0.99, OF_QUERY, by="query_id"),
        "max": quantile(EVENT_TIME, 1.0, OF_QUERY, by="query_id"),
        "processing p99": quantile(PROCESSING_TIME, 0.99, OF_QUERY, by="query_id"),
        "results/s": results,
    }
    return [
        row("Query throughput"),
        series(
            "Results per second per query",
            {QUERY_LEGEND: named(greatest(results))},
            f"Result rows per second of each query. {TOP_NOTE}",
            "rowsps",
        ),
        series(
            "Query throughput",
            {
                "created": f"sum({rate('braid_queries_created_total')})",
                "deleted": f"sum({rate('braid_queries_deleted_total')})",
                "created + deleted": f"sum({rate('braid_queries_created_total')})"
                f" + sum({rate('braid_queries_deleted_total')})",
            },
            "Queries created and deleted per second, without a restart of anything.",
            "ops",
        ),
        series(
            "Queries by state",
            {"{{state}}": f"sum by (state) (braid_queries{{{SERVICE}}})"},
            "PENDING → RUNNING → DRAINING → RETIRED, or FAILED.",
            "short",
            stacked=True,
        ),
        series(
            "Deployment latency",
            quantiles("braid_query_deployment_latency_seconds"),
            f"From the request that creates a query to the first batch that runs it. {MAX_NOTE}",
            "s",
        ),
        table(
            "Queries now",
            {name: named(expression) for name, expression in columns.items()},
            {"query_id": "query", "name": "name"},
            f"The selected queries, slowest first: event-time latency, processing-time latency and results. {MAX_NOTE}",
            units={"results/s": "rowsps"},
            default_unit="s",
            sort_by="p99",
        ),
    ]


def streams() -> list[Json]:
    """Make the panels on the data that comes in."""

    def each(metric: str) -> str:
        return f"sum by (stream) ({rate(metric, OF_STREAM)})"

    clock = f"max by (stream) (braid_stream_clock_seconds{{{OF_STREAM}}})"
    waterline = f"max by (stream) (braid_stream_waterline_seconds{{{OF_STREAM}}})"
    return [
        row("Data throughput"),
        series(
            "Tuples per second by stream",
            {"{{stream}}": each("braid_stream_tuples_total")},
            "Tuples read.",
            "cps",
        ),
        series(
            "Bytes per second by stream",
            {"{{stream}}": each("braid_stream_bytes_total")},
            "Bytes read.",
            "Bps",
        ),
        series(
            "Late and malformed tuples per second",
            {
                "{{stream}} late": each("braid_stream_late_total"),
                "{{stream}} malformed": each("braid_stream_malformed_total"),
            },
            "Tuples below the waterline, and tuples that do not fit the schema. Both go to the dead letters.",
            "cps",
        ),
        series(
            "Backlog by stream",
            {"{{stream}}": f"sum by (stream) (braid_stream_lag_tuples{{{OF_STREAM}}})"},
            "Tuples that wait at the source. A steady rise means that the service does not keep up.",
            "short",
        ),
        series(
            "Clock lag by stream",
            {"{{stream}}": f"time() - {clock}"},
            "Now minus the stream's clock, the greatest event time read. Rises with every second of a silent stream.",
            "s",
            from_zero=False,
        ),
        series(
            "Waterline behind the clock by stream",
            {"{{stream}}": f"{clock} - {waterline}"},
            "Normally the stream's LATENESS: how long a window stays open for tuples out of order.",
            "s",
        ),
    ]


def sinks() -> list[Json]:
    """Make the panels on deliveries to sinks."""

    def each(metric: str) -> str:
        return f"sum by (query_id) ({rate(metric, OF_QUERY)})"

    return [
        row("Sinks"),
        series(
            "Deliveries by state",
            {"{{state}}": f"sum by (state) (braid_sinks{{{SERVICE}}})"},
            "DELIVERING, RETRYING while a sink is away or refuses, STALLED while no deliverer runs, DONE.",
            "short",
            stacked=True,
        ),
        series(
            "Sink lag per query",
            {QUERY_LEGEND: named(greatest(f"max by (query_id) (braid_sink_lag_seconds{{{OF_QUERY}}})"))},
            f"Age of the oldest rows that are not delivered. {TOP_NOTE}",
            "s",
        ),
        series(
            "Rows delivered per second per query",
            {QUERY_LEGEND: named(greatest(each("braid_sink_rows_total")))},
            f"Rows written to sinks. {TOP_NOTE}",
            "rowsps",
        ),
        series(
            "Failed deliveries per second per query",
            {QUERY_LEGEND: named(greatest(each("braid_sink_errors_total")))},
            f"Attempts that failed and are made again; GET /queries/{{id}} says why. {TOP_NOTE}",
            "ops",
        ),
    ]


def batches() -> list[Json]:
    """Make the panels on micro-batches and on what is kept."""
    return [
        row("Batches and storage"),
        series(
            "Batch duration",
            quantiles("braid_batch_duration_seconds"),
            f"Duration of a micro-batch, the floor of every latency above. {MAX_NOTE}",
            "s",
        ),
        series("Batch size", quantiles("braid_batch_tuples"), f"Tuples in a micro-batch. {MAX_NOTE}", "short"),
        series(
            "Batches per second",
            {"batches": f"sum({rate('braid_batches_total')})"},
            "Micro-batches committed.",
            "ops",
        ),
        series(
            "Bytes kept",
            {
                "state": f"sum(braid_state_bytes{{{SERVICE}}})",
                "buckets": f"sum(braid_bucket_bytes{{{SERVICE}}})",
                "result log": f"sum(braid_result_log_bytes{{{SERVICE}}})",
            },
            "Follows open windows, running queries and the retention of results, not the time since start.",
            "bytes",
        ),
    ]


def variables() -> list[Json]:
    """Make the choices at the top of the dashboard."""
    # The name, where there is one, is shown, and the id is put into the expressions.
    name_and_id = r"""/(?:[{,]name="(?<text>[^"]*)".*)?query_id="(?<value>[^"]+)"/"""
    return [
        {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus"},
        variable("namespace", "Namespace", "label_values(braid_ready, namespace)", **several()),
        variable("job", "Job", 'label_values(braid_ready{namespace=~"$namespace"}, job)'),
        variable("query", "Query", f"query_result(braid_query_info{{{SERVICE}}})", **several(regex=name_and_id)),
        variable("stream", "Stream", f"label_values(braid_stream_tuples_total{{{SERVICE}}}, stream)", **several()),
        {
            "type": "custom",
            "name": "top",
            "label": "Top",
            "description": "How many queries a per-query panel shows at each moment",
            "query": "10,25,50,100,1000",
            "options": [{"selected": n == "25", "text": n, "value": n} for n in ("10", "25", "50", "100", "1000")],
            "current": {"selected": True, "text": "25", "value": "25"},
        },
    ]


def braid_queries() -> Json:
    """Build the dashboard on query latency and query throughput."""
    return {
        "uid": "braid-queries",
        "title": "Braid / Queries",
        "description": "Latency and throughput of every query, and of the shared job that runs them all.",
        "tags": ["braid"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": variables()},
        "panels": place(
            [
                *figures(),
                *latency(
                    "Event-time latency",
                    EVENT_TIME,
                    "Now minus the greatest event time that contributed to a result.",
                ),
                *latency(
                    "Processing-time latency",
                    PROCESSING_TIME,
                    "From reading the last tuple that contributed to a result to publishing the result.",
                ),
                *query_throughput(),
                *streams(),
                *sinks(),
                *batches(),
            ]
        ),
    }


def build() -> dict[str, str]:
    """Build every dashboard: file name → JSON text."""
    return {"braid-queries.json": json.dumps(braid_queries(), indent=2, ensure_ascii=False) + "\n"}


def main() -> None:
    """Write every dashboard into the chart."""
    for name, text in build().items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
