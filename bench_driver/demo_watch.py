"""Look at a running service again and again: counters become rates, pages of results become the latest rows."""

from __future__ import annotations

import datetime as dt
import time
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from braid.bench_driver.measure import statistics
from braid.bench_driver.report.text import two_decimals
from braid.client import Client

Object = dict[str, Any]

RATE_SECONDS = 4.0
PAGE = 10_000
MAX_PAGES = 20


class RateMeter:
    """Turns counters into rates over the last few seconds; batches make single steps too rough."""

    def __init__(self, seconds: float = RATE_SECONDS) -> None:
        self._seconds = seconds
        self._points: dict[Hashable, deque[tuple[float, float]]] = {}

    def add(self, key: Hashable, now: float, count: float) -> float:
        """Note a counter's value and return its rate a second; 0 while there is one value only."""
        points = self._points.setdefault(key, deque())
        points.append((now, count))
        while len(points) > 2 and points[1][0] <= now - self._seconds:
            points.popleft()
        return statistics.rate(points) or 0.0


@dataclass(frozen=True)
class DemoMoment:
    """What the demo shows of one moment: tuples a second by stream, queries as REST has them, the latest rows."""

    tuples_per_second: Mapping[str, float]
    queries: list[Object]
    rows_per_second: float
    latest: Mapping[str, Object]

    def text(self) -> str:
        """Return a line about all of it, and one for the latest row of each watched query."""
        streams = ", ".join(f"{name} {rate:,.0f}/s" for name, rate in self.tuples_per_second.items())
        running = sum(query["state"] == "RUNNING" for query in self.queries)
        rows = sum(query["rows_out"] for query in self.queries)
        if not rows:
            return f"{running} queries RUNNING, the first windows are not over yet"
        latencies = (query["event_time_latency_seconds"] for query in self.queries)
        worst = two_decimals(max((latency for latency in latencies if latency is not None), default=None))
        lines = [
            f"{streams} | {running} queries RUNNING, {rows:,} rows ({self.rows_per_second:,.0f}/s),"
            f" event-time latency at most {worst}"
        ]
        for name, row in self.latest.items():
            lines.append(f"          {name}: " + "  ".join(f"{column}={text}" for column, text in cells(row).items()))
        return "\n".join(lines)


def cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Return a result row as short texts by column: the window's two times become one."""
    texts = {}
    if "window_end" in row:
        texts["window"] = f"{clock_text(row.get('window_start'), 0)}-{clock_text(row['window_end'], 0)}"
    for name, value in row.items():
        if name == "time":
            texts[name] = clock_text(value, 3)
        elif name not in ("window_start", "window_end", "_partial"):
            texts[name] = "-" if value is None else f"{value:,.2f}" if isinstance(value, float) else str(value)
    return texts


def clock_text(value: str | None, digits: int) -> str:
    """Return the time of day of an RFC 3339 text, with `digits` of the second's fraction; a dash for None."""
    if value is None:
        return "-"
    text = dt.datetime.fromisoformat(value).strftime("%H:%M:%S.%f")
    return text[: 8 + (digits + 1 if digits else 0)]


@dataclass
class Totals:
    """What was seen over all, for the summary at the end."""

    tuples: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    rows_read: int = 0
    deployment_latency: dict[str, float] = field(default_factory=dict)
    event_time_latency: list[float] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


class DemoWatch:
    """Looks at one service; `watched` are the ids of the queries whose rows are read, by name."""

    def __init__(self, client: Client, watched: dict[str, str]) -> None:
        self._client = client
        self._watched = watched
        self._cursors: dict[str, str | None] = dict.fromkeys(watched)
        self._latest: dict[str, Object] = {}
        self._meter = RateMeter()
        self._last_result: dict[str, str] = {}
        self.totals = Totals()

    def look(self) -> DemoMoment:
        """Ask the service once; ServiceError when it does not answer."""
        self.totals.tuples |= {stream["name"]: stream["tuples"] for stream in self._client.streams()}
        now = time.monotonic()
        rates = {name: self._meter.add(name, now, tuples) for name, tuples in self.totals.tuples.items()}
        queries = list(self._client.queries(limit=1000))
        for query in queries:
            self._count(query)
        rows_per_second = self._meter.add(None, time.monotonic(), sum(self.totals.rows.values()))
        for name in self._watched:
            self._read(name)
        return DemoMoment(rates, queries, rows_per_second, dict(self._latest))

    def _count(self, query: Object) -> None:
        query_id, totals = query["id"], self.totals
        totals.rows[query_id] = query["rows_out"]
        if query["deployment_latency_seconds"] is not None:
            totals.deployment_latency[query_id] = query["deployment_latency_seconds"]
        latency, result_at = query["event_time_latency_seconds"], query["last_result_at"]
        if latency is not None and self._last_result.get(query_id) != result_at:
            self._last_result[query_id] = result_at
            totals.event_time_latency.append(latency)
        if query["state"] == "FAILED":
            totals.failed[query_id] = str(query["error"])

    def _read(self, name: str) -> None:
        for _ in range(MAX_PAGES):
            page = self._client.results(self._watched[name], self._cursors[name], limit=PAGE)
            self._cursors[name] = page.cursor
            self.totals.rows_read += len(page.rows)
            if page.rows:
                self._latest[name] = page.rows[-1]
            if len(page.rows) < PAGE:
                return
