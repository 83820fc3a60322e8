"""Draw what the demo sees: a whole screen for a terminal, one line for anything else. Nothing here asks the service."""

from __future__ import annotations

import datetime as dt
from collections import deque
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bench_driver.demo_script import MORE_PREFIX
from bench_driver.demo_watch import QueryLine, Snapshot, StreamLine

STATE_STYLES = {
    "PENDING": "yellow",
    "RUNNING": "green",
    "DRAINING": "magenta",
    "RETIRED": "dim",
    "FAILED": "bold red",
}
WIDE = 96
LEAST_LATEST = 4
MOST_FINISHED = 2


@dataclass(frozen=True)
class Header:
    """What stands on top: where the service is, and how long this goes on."""

    url: str
    elapsed: float
    seconds: float | None


def draw(header: Header, snapshot: Snapshot, news: deque[str], width: int, height: int) -> RenderableType:
    """Return the whole screen, fitted to `width` columns and `height` lines."""
    streams = _streams(snapshot.streams, wide=width >= WIDE)
    listed, similar = grouped(snapshot.queries)
    queries = _queries(listed, similar, wide=width >= WIDE)
    # a table takes a line for its header; one empty line stands between parts
    lines_used = 1 + 1 + (len(snapshot.streams) + 1) + 1 + (len(listed) + bool(similar) + 1) + 1 + 1
    news_lines = min(len(news), 2 if height < 30 else 4)
    latest_height = max(LEAST_LATEST, height - lines_used - news_lines)
    latest = _latest(snapshot.latest, latest_height)
    news_text = Text("\n".join(list(news)[len(news) - news_lines :]), style="cyan", no_wrap=True, overflow="ellipsis")
    return Group(_title(header, snapshot, width), "", streams, "", queries, "", latest, "", news_text)


def grouped(queries: list[QueryLine]) -> tuple[list[QueryLine], list[QueryLine]]:
    """Split queries into those that get a line of their own and those that share one; few finished ones are shown."""
    examples = [query for query in queries if not query.name.startswith(MORE_PREFIX)]
    finished = [query for query in examples if query.state == "RETIRED"]
    hidden = {query.id for query in finished[: max(0, len(finished) - MOST_FINISHED)]}
    similar = [query for query in queries if query.name.startswith(MORE_PREFIX) and query.state != "RETIRED"]
    return [query for query in examples if query.id not in hidden], similar


def cells(row: dict[str, Any]) -> dict[str, Text]:
    """Return a result row as short texts by column: the window's two times become one."""
    texts: dict[str, Text] = {}
    if "window_end" in row:
        window = f"{clock_text(row.get('window_start'), 0)}-{clock_text(row['window_end'], 0)}"
        # a window that began before the query did is partial
        texts["window"] = Text(window, "yellow" if row.get("_partial") else "dim")
    for name, value in row.items():
        if name in ("window_start", "window_end", "_partial"):
            continue
        if name == "time":
            texts[name] = Text(clock_text(value, 3), "dim")
        elif isinstance(value, float):
            texts[name] = Text(f"{value:,.2f}")
        else:
            texts[name] = Text("-" if value is None else str(value))
    return texts


def clock_text(value: str | None, digits: int) -> str:
    """Return the time of day of an RFC 3339 text, with `digits` of the second's fraction; a dash for None."""
    if value is None:
        return "-"
    text = dt.datetime.fromisoformat(value).strftime("%H:%M:%S.%f")
    return text[: 8 + (digits + 1 if digits else 0)]


def seconds_text(value: float | None) -> str:
    """Return seconds with two digits, a dash for None."""
    return "-" if value is None else f"{value:.2f} s"


def plain_line(header: Header, snapshot: Snapshot) -> str:
    """Return one line about one moment, for logs and pipes."""
    streams = ", ".join(f"{s.name} {s.tuples_per_second:,.0f}/s" for s in snapshot.streams)
    running = sum(q.state == "RUNNING" for q in snapshot.queries)
    rows = sum(q.rows for q in snapshot.queries)
    speed = sum(q.rows_per_second for q in snapshot.queries)
    latencies = [q.event_time_latency for q in snapshot.queries if q.event_time_latency is not None]
    worst = seconds_text(max(latencies, default=None))
    return (
        f"{header.elapsed:5.1f} s | {streams} | {running} queries RUNNING, {rows:,} rows ({speed:,.0f}/s),"
        f" event-time latency at most {worst}"
    )


def plain_rows(snapshot: Snapshot) -> list[str]:
    """Return a line with the latest row of each watched query, for logs and pipes."""
    return [
        f"          {name}: " + "  ".join(f"{column}={value}" for column, value in cells(rows[-1]).items())
        for name, rows in snapshot.latest.items()
        if rows
    ]


def plain_console() -> Console:
    """Return the console for everything that is printed for good."""
    return Console(highlight=False, soft_wrap=True)


def _title(header: Header, snapshot: Snapshot, width: int) -> RenderableType:
    running = sum(q.state == "RUNNING" for q in snapshot.queries)
    left = Text.assemble(
        ("Braid", "bold"), f"  {running} queries in one Spark job", (f"  {header.url}", "dim"), no_wrap=True
    )
    end = "Ctrl-C ends it" if header.seconds is None else f"of {header.seconds:g} s"
    right = f"{header.elapsed:.0f} s, {end}" if header.seconds is None else f"{header.elapsed:.0f} {end}"
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1)
    grid.add_column(justify="right")
    grid.add_row(left, right)
    grid.width = width
    return grid


def _table(*columns: str, numbers: int) -> Table:
    """Return a table whose first column takes what room is left and whose last `numbers` are right-aligned."""
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold blue")
    for i, column in enumerate(columns):
        number = i >= len(columns) - numbers
        table.add_column(
            column, justify="right" if number else "left", ratio=None if i else 1, no_wrap=True, overflow="ellipsis"
        )
    return table


def _streams(streams: list[StreamLine], wide: bool) -> Table:
    table = _table("stream", "tuples", "tuples/s", "clock", "waterline", numbers=4)
    digits = 3 if wide else 1
    for s in streams:
        table.add_row(
            s.name,
            f"{s.tuples:,}",
            f"{s.tuples_per_second:,.0f}",
            clock_text(s.clock, digits),
            clock_text(s.waterline, digits),
        )
    return table


def _queries(listed: list[QueryLine], similar: list[QueryLine], wide: bool) -> Table:
    latency, deployed = ("event-time latency", "deployed in") if wide else ("latency", "deployed")
    table = _table("query", "state", "rows", "rows/s", latency, deployed, numbers=4)
    for q in listed:
        table.add_row(
            q.name,
            Text(q.state, STATE_STYLES.get(q.state, "")),
            f"{q.rows:,}",
            f"{q.rows_per_second:,.0f}",
            seconds_text(q.event_time_latency),
            seconds_text(q.deployment_latency),
            style="dim" if q.state == "RETIRED" else "",
        )
    if similar:
        states = {q.state for q in similar}
        state = states.pop() if len(states) == 1 else f"{sum(q.state == 'RUNNING' for q in similar)} RUNNING"
        table.add_row(
            f"{len(similar)} more: … WHERE price > 0, 2, 4 …" if wide else f"{len(similar)} more, price > …",
            Text(state, STATE_STYLES.get(state, "green")),
            f"{sum(q.rows for q in similar):,}",
            f"{sum(q.rows_per_second for q in similar):,.0f}",
            seconds_text(
                max((q.event_time_latency for q in similar if q.event_time_latency is not None), default=None)
            ),
            seconds_text(
                max((q.deployment_latency for q in similar if q.deployment_latency is not None), default=None)
            ),
        )
    return table


def _latest(latest: dict[str, list[dict[str, Any]]], height: int) -> Table:
    """Return the latest rows of the watched queries side by side, newest last, in `height` lines."""
    side_by_side = Table(box=None, expand=True, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold blue")
    tables = []
    for name, rows in latest.items():
        side_by_side.add_column(f"latest rows of {name}", ratio=1, no_wrap=True, overflow="ellipsis")
        cell_rows = [cells(row) for row in rows[-max(1, height - 2) :]]
        table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="blue")
        for i, column in enumerate(cell_rows[-1] if cell_rows else ()):
            table.add_column(column, justify="right" if i else "left", no_wrap=True, overflow="ellipsis")
        for row in cell_rows:
            table.add_row(*row.values())
        tables.append(table if cell_rows else Text("none yet", "dim"))
    side_by_side.add_row(*tables)
    return side_by_side
