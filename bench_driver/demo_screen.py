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
    shown, more = grouped(snapshot.queries)
    queries = _queries(shown, more, wide=width >= WIDE)
    # a table takes a line for its header; one empty line stands between parts
    used = 1 + 1 + (len(snapshot.streams) + 1) + 1 + (len(shown) + bool(more) + 1) + 1 + 1
    said = min(len(news), 2 if height < 30 else 4)
    left = max(LEAST_LATEST, height - used - said)
    latest = _latest(snapshot.latest, left)
    lines = Text("\n".join(list(news)[len(news) - said :]), style="cyan", no_wrap=True, overflow="ellipsis")
    return Group(_title(header, snapshot, width), "", streams, "", queries, "", latest, "", lines)


def grouped(queries: list[QueryLine]) -> tuple[list[QueryLine], list[QueryLine]]:
    """Split queries into those that get a line of their own and those that share one; few finished ones are shown."""
    own = [q for q in queries if not q.name.startswith(MORE_PREFIX)]
    finished = [q for q in own if q.state == "RETIRED"]
    hidden = {q.id for q in finished[: max(0, len(finished) - MOST_FINISHED)]}
    more = [q for q in queries if q.name.startswith(MORE_PREFIX) and q.state != "RETIRED"]
    return [q for q in own if q.id not in hidden], more


def cells(row: dict[str, Any]) -> dict[str, Text]:
    """Return a result row as short texts by column: the window's two times become one."""
    shown: dict[str, Text] = {}
    if "window_end" in row:
        window = f"{clock_text(row.get('window_start'), 0)}-{clock_text(row['window_end'], 0)}"
        # a window that began before the query did is partial
        shown["window"] = Text(window, "yellow" if row.get("_partial") else "dim")
    for name, value in row.items():
        if name in ("window_start", "window_end", "_partial"):
            continue
        if name == "time":
            shown[name] = Text(clock_text(value, 3), "dim")
        elif isinstance(value, float):
            shown[name] = Text(f"{value:,.2f}")
        else:
            shown[name] = Text("-" if value is None else str(value))
    return shown


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


def _queries(shown: list[QueryLine], more: list[QueryLine], wide: bool) -> Table:
    latency, deployed = ("event-time latency", "deployed in") if wide else ("latency", "deployed")
    table = _table("query", "state", "rows", "rows/s", latency, deployed, numbers=4)
    for q in shown:
        table.add_row(
            q.name,
            Text(q.state, STATE_STYLES.get(q.state, "")),
            f"{q.rows:,}",
            f"{q.rows_per_second:,.0f}",
            seconds_text(q.event_time_latency),
            seconds_text(q.deployment_latency),
            style="dim" if q.state == "RETIRED" else "",
        )
    if more:
        states = {q.state for q in more}
        state = states.pop() if len(states) == 1 else f"{sum(q.state == 'RUNNING' for q in more)} RUNNING"
        table.add_row(
            f"{len(more)} more: … WHERE price > 0, 2, 4 …" if wide else f"{len(more)} more, price > …",
            Text(state, STATE_STYLES.get(state, "green")),
            f"{sum(q.rows for q in more):,}",
            f"{sum(q.rows_per_second for q in more):,.0f}",
            seconds_text(max((q.event_time_latency for q in more if q.event_time_latency is not None), default=None)),
            seconds_text(max((q.deployment_latency for q in more if q.deployment_latency is not None), default=None)),
        )
    return table


def _latest(latest: dict[str, list[dict[str, Any]]], height: int) -> Table:
    """Return the latest rows of the watched queries side by side, newest last, in `height` lines."""
    beside = Table(box=None, expand=True, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold blue")
    tables = []
    for name, rows in latest.items():
        beside.add_column(f"latest rows of {name}", ratio=1, no_wrap=True, overflow="ellipsis")
        shown = [cells(row) for row in rows[-max(1, height - 2) :]]
        table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="blue")
        for i, column in enumerate(shown[-1] if shown else ()):
            table.add_column(column, justify="right" if i else "left", no_wrap=True, overflow="ellipsis")
        for row in shown:
            table.add_row(*row.values())
        tables.append(table if shown else Text("none yet", "dim"))
    beside.add_row(*tables)
    return beside
