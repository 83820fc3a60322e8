"""*Query*: how one query does."""

from __future__ import annotations

from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard

from helm.dashboards import parts, promql
from helm.dashboards.parts import MAX_NOTE, Part, dashboard, figure, listing, row, series
from helm.dashboards.promql import DELIVERY, EVENT_TIME, OF_QUERY, PROCESSING_TIME, by, of, quantile, quantiles, rate


def of_its_streams(expression: str) -> str:
    """Keep the series of the streams that the query reads."""
    return f"{expression} and on (stream) {of('braid_query_stream_info', OF_QUERY)}"


def figures() -> list[Part]:
    """Make the line of numbers on top."""
    return [
        figure(
            "Event-time latency p95",
            quantile(EVENT_TIME, 0.95, OF_QUERY),
            "Now minus the greatest event time that contributed to a result, 95th percentile.",
            units.Seconds,
            width=4,
        ),
        figure(
            "Delivery latency p95",
            quantile(DELIVERY, 0.95, OF_QUERY),
            "From the commit of a batch until the sink, or the first reader of /results, has its rows.",
            units.Seconds,
            width=4,
        ),
        figure(
            "Rows per second",
            f"sum({rate('braid_query_results_total', OF_QUERY)})",
            "Result rows.",
            units.RowsPerSecond,
            width=4,
        ),
        figure(
            "Cost share",
            f"max({of('braid_query_cost_share_ratio', OF_QUERY)})",
            "Which part of the time of all operators the query takes; what is shared is divided equally.",
            units.PercentUnit,
            width=4,
        ),
        figure(
            "Sink lag",
            f"max({of('braid_sink_lag_seconds', OF_QUERY)})",
            "Age of the oldest rows that are not delivered. Without a sink there is none.",
            units.Seconds,
            width=4,
        ),
        figure(
            "Deployment",
            f"max({of('braid_query_deployment_seconds', OF_QUERY)})",
            "From the request that created the query to the first batch that ran it.",
            units.Seconds,
            width=4,
        ),
    ]


def latency() -> list[Part]:
    """Make the panels on latency."""
    return [
        row("Latency"),
        *(
            series(title, quantiles(metric, OF_QUERY), f"{what} {MAX_NOTE}", units.Seconds, width=8)
            for title, metric, what in (
                ("Event-time latency", EVENT_TIME, "Now minus the greatest event time that contributed to a result."),
                ("Processing-time latency", PROCESSING_TIME, "From the start of the batch to its commit."),
                ("Delivery latency", DELIVERY, "From the commit of a batch until its rows have left the result log."),
            )
        ),
    ]


def results() -> list[Part]:
    """Make the panels on what the query puts out, and at which cost."""
    return [
        row("Results"),
        series(
            "Rows per second by query",
            {parts.QUERY_LEGEND: promql.named(by("query_id", rate("braid_query_results_total", OF_QUERY)))},
            "Result rows.",
            units.RowsPerSecond,
            width=8,
        ),
        series(
            "Windows per second",
            {"windows": f"sum({rate('braid_query_windows_total', OF_QUERY)})"},
            "Windows with rows, counted in each batch that brings some. A selection has none.",
            units.OpsPerSecond,
            width=8,
        ),
        series(
            "Cost share over time",
            {"cost share": f"max({of('braid_query_cost_share_ratio', OF_QUERY)})"},
            "Which part of the time of all operators the query takes.",
            units.PercentUnit,
            width=8,
        ),
    ]


def streams() -> list[Part]:
    """Make the panels on the streams that the query reads."""
    waterline = by("stream", of("braid_stream_waterline_seconds"), "max")
    return [
        row("Its streams"),
        series(
            "Tuples per second",
            {"{{stream}}": of_its_streams(by("stream", rate("braid_stream_tuples_total")))},
            "Tuples of the streams that the query reads, whether it selects them or not.",
            units.CountsPerSecond,
            width=8,
        ),
        series(
            "Late tuples per second",
            {"{{stream}}": of_its_streams(by("stream", rate("braid_stream_late_total")))},
            "Tuples below the waterline of their stream, which no query sees.",
            units.CountsPerSecond,
            width=8,
        ),
        series(
            "Age of waterlines",
            {"{{stream}}": of_its_streams(f"(time() - {waterline})")},
            "Now minus the stream's waterline. A window is final once the waterlines of all its streams have passed.",
            units.Seconds,
            width=8,
            from_zero=False,
        ),
    ]


def sink() -> list[Part]:
    """Make the panels on the query's sink."""
    return [
        row("Its sink"),
        series(
            "Sink lag over time",
            {"lag": f"max({of('braid_sink_lag_seconds', OF_QUERY)})"},
            "Age of the oldest rows that are not delivered.",
            units.Seconds,
            width=6,
        ),
        series(
            "Rows delivered per second",
            {"rows": f"sum({rate('braid_sink_rows_total', OF_QUERY)})"},
            "Rows written to the sink.",
            units.RowsPerSecond,
            width=6,
        ),
        series(
            "Failed deliveries per second",
            {"failed": f"sum({rate('braid_sink_errors_total', OF_QUERY)})"},
            "Attempts that failed and are made again; GET /queries/{id} says why.",
            units.OpsPerSecond,
            width=6,
        ),
        series(
            "Refused rows per second",
            {"refused": f"sum({rate('braid_sink_refused_total', OF_QUERY)})"},
            "Rows that the sink refused for good; GET /queries/{id}/dead-letters has them.",
            units.RowsPerSecond,
            width=6,
        ),
        listing(
            "What the query is",
            {"running": f"max by (query_id, name, stream) ({promql.named(of('braid_query_stream_info', OF_QUERY))})"},
            {"query_id": "id", "name": "name", "stream": "stream"},
            "Its id, its name and the streams that it reads.",
            units_of={},
            sort_by="stream",
            unit=units.Short,
        ),
    ]


def build() -> Dashboard:
    """Build the dashboard."""
    return dashboard(
        parts.QUERY_DASHBOARD,
        "Braid / Query",
        "One query: its latency, its rows and windows, its streams, its sink, and what it costs.",
        [parts.queries(several=False)],
        [*figures(), *latency(), *results(), *streams(), *sink()],
    )
