"""*Streams and sinks*: what comes in, and what goes out."""

from __future__ import annotations

from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard

from helm.dashboards import parts, promql
from helm.dashboards.parts import QUERY_LEGEND, TOP_NOTE, Part, choice, dashboard, row, series, top
from helm.dashboards.promql import DELIVERY, OF_QUERY, OF_STREAM, by, greatest, named, of, quantile, rate


def streams() -> list[Part]:
    """Make the panels on how fast data comes in and how far it is behind."""
    clock = by("stream", of("braid_stream_clock_seconds", OF_STREAM), "max")
    waterline = by("stream", of("braid_stream_waterline_seconds", OF_STREAM), "max")
    return [
        row("Streams"),
        series(
            "Tuples per second",
            {"{{stream}}": by("stream", rate("braid_stream_tuples_total", OF_STREAM))},
            "Tuples read.",
            units.CountsPerSecond,
        ),
        series(
            "Bytes per second",
            {"{{stream}}": by("stream", rate("braid_stream_bytes_total", OF_STREAM))},
            "Bytes read.",
            units.BytesPerSecondSI,
        ),
        series(
            "Backlog",
            {"{{stream}}": by("stream", of("braid_stream_lag_tuples", OF_STREAM))},
            "Tuples that wait at the source. A steady rise means that the service does not keep up.",
            units.Short,
            width=8,
        ),
        series(
            "Age of clocks",
            {"{{stream}}": f"time() - {clock}"},
            "Now minus the stream's clock, the greatest event time read. Rises with every second of a silent stream.",
            units.Seconds,
            width=8,
            from_zero=False,
        ),
        series(
            "Waterline behind the clock",
            {"{{stream}}": f"{clock} - {waterline}"},
            "Normally the stream's LATENESS: how long a window stays open for tuples out of order.",
            units.Seconds,
            width=8,
        ),
        series(
            "Late and malformed tuples per second",
            {
                "{{stream}} late": by("stream", rate("braid_stream_late_total", OF_STREAM)),
                "{{stream}} malformed": by("stream", rate("braid_stream_malformed_total", OF_STREAM)),
            },
            "Tuples below the waterline, and tuples that do not fit the schema. Both go to the dead letters.",
            units.CountsPerSecond,
            width=8,
        ),
        series(
            "Offsets skipped per second",
            {"{{stream}}": by("stream", rate("braid_stream_skipped_total", OF_STREAM))},
            "Offsets that were gone from the source before they were read.",
            units.CountsPerSecond,
            width=8,
        ),
        series(
            "Sharing ratio by stream",
            {
                "{{stream}}": promql.ratio(
                    "braid_stream_query_tuples_total", "braid_stream_operator_tuples_total", "stream", OF_STREAM
                )
            },
            "How many queries a tuple of the stream serves each time that a shared operator evaluates it.",
            units.Short,
            width=8,
        ),
    ]


def sinks() -> list[Part]:
    """Make the panels on deliveries to sinks, and on readers."""

    def each(metric: str) -> str:
        return by("query_id", rate(metric, OF_QUERY))

    lag = by("query_id", of("braid_sink_lag_seconds", OF_QUERY), "max")
    return [
        row("Sinks"),
        series(
            "Deliveries by state",
            {"{{state}}": by("state", of("braid_sinks"))},
            "DELIVERING, RETRYING while a sink is away or refuses, STALLED while no deliverer runs, DONE.",
            units.Short,
            stacked=True,
        ),
        series(
            "Sinks that are down",
            {QUERY_LEGEND: named(greatest(by("query_id", f"1 - {of('braid_sink_up', OF_QUERY)}", "max")))},
            f"1 while rows wait because the sink fails or no deliverer runs. {TOP_NOTE}",
            units.Short,
        ),
        series(
            "Sink lag",
            {QUERY_LEGEND: named(greatest(lag))},
            f"Age of the oldest rows that are not delivered. {TOP_NOTE}",
            units.Seconds,
        ),
        series(
            "Delivery latency p95",
            {QUERY_LEGEND: named(greatest(quantile(DELIVERY, 0.95, OF_QUERY, "query_id")))},
            f"From the commit of a batch until a sink, or the first reader of /results, has its rows. {TOP_NOTE}",
            units.Seconds,
        ),
        series(
            "Rows delivered per second",
            {QUERY_LEGEND: named(greatest(each("braid_sink_rows_total")))},
            f"Rows written to sinks. {TOP_NOTE}",
            units.RowsPerSecond,
            width=8,
        ),
        series(
            "Failed deliveries per second",
            {QUERY_LEGEND: named(greatest(each("braid_sink_errors_total")))},
            f"Attempts that failed and are made again; GET /queries/{{id}} says why. {TOP_NOTE}",
            units.OpsPerSecond,
            width=8,
        ),
        series(
            "Refused rows per second",
            {QUERY_LEGEND: named(greatest(each("braid_sink_refused_total")))},
            f"Rows that sinks refused for good; GET /queries/{{id}}/dead-letters has them. {TOP_NOTE}",
            units.RowsPerSecond,
            width=8,
        ),
    ]


def build() -> Dashboard:
    """Build the dashboard."""
    return dashboard(
        "braid-streams-and-sinks",
        "Braid / Streams and sinks",
        "What comes in: rates, backlogs, clocks and waterlines, dead letters. What goes out: deliveries to sinks.",
        [
            choice("stream", "Stream", f"label_values({of('braid_stream_tuples_total')}, stream)"),
            parts.queries(several=True),
            top(),
        ],
        [*streams(), *sinks()],
    )
