"""Look at a running service again and again: counters become rates, pages of results become the latest rows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from api.client import BraidClient
from bench_driver import statistics

Object = dict[str, Any]

RATE_SECONDS = 4.0
LATEST_ROWS = 12
PAGE = 10_000
MOST_PAGES = 20


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
class StreamLine:
    """One stream as shown; `clock` and `waterline` as the service writes them."""

    name: str
    tuples: int
    tuples_per_second: float
    clock: str | None
    waterline: str | None


@dataclass(frozen=True)
class QueryLine:
    """One query as shown; latencies in seconds."""

    id: str
    name: str
    sql: str
    state: str
    rows: int
    rows_per_second: float
    event_time_latency: float | None
    deployment_latency: float | None


@dataclass(frozen=True)
class Snapshot:
    """Everything the demo shows of one moment."""

    streams: list[StreamLine]
    queries: list[QueryLine]
    latest: dict[str, list[Object]]


@dataclass
class Totals:
    """What was seen over all, for the summary at the end."""

    tuples: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    rows_read: int = 0
    deployment_latency: dict[str, float] = field(default_factory=dict)
    event_time_latency: list[float] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


class Watch:
    """Looks at one service; `watched` are the ids of the queries whose rows are read, by name."""

    def __init__(self, client: BraidClient, watched: dict[str, str]) -> None:
        self._client = client
        self._watched = watched
        self._cursors: dict[str, str | None] = dict.fromkeys(watched)
        self._latest: dict[str, deque[Object]] = {name: deque(maxlen=LATEST_ROWS) for name in watched}
        self._meter = RateMeter()
        self._last_result: dict[str, str] = {}
        self.totals = Totals()

    def look(self) -> Snapshot:
        """Ask the service once; BraidError when it does not answer."""
        streams = [self._stream(stream) for stream in self._client.streams()]
        queries = [self._query(query) for query in self._client.queries(limit=1000)]
        for name in self._watched:
            self._read(name)
        return Snapshot(streams, queries, {name: list(rows) for name, rows in self._latest.items()})

    def _stream(self, stream: Object) -> StreamLine:
        name, tuples = stream["name"], stream["tuples"]
        self.totals.tuples[name] = tuples
        speed = self._meter.add(("stream", name), time.monotonic(), tuples)
        return StreamLine(name, tuples, speed, stream["clock"], stream["waterline"])

    def _query(self, query: Object) -> QueryLine:
        query_id, rows = query["id"], query["rows_out"]
        self.totals.rows[query_id] = rows
        if query["deployment_latency_seconds"] is not None:
            self.totals.deployment_latency[query_id] = query["deployment_latency_seconds"]
        latency, result_at = query["event_time_latency_seconds"], query["last_result_at"]
        if latency is not None and self._last_result.get(query_id) != result_at:
            self._last_result[query_id] = result_at
            self.totals.event_time_latency.append(latency)
        if query["state"] == "FAILED":
            self.totals.failed[query_id] = str(query["error"])
        return QueryLine(
            id=query_id,
            name=query["name"] or query_id,
            sql=query["sql"],
            state=query["state"],
            rows=rows,
            rows_per_second=self._meter.add(("query", query_id), time.monotonic(), rows),
            event_time_latency=latency,
            deployment_latency=query["deployment_latency_seconds"],
        )

    def _read(self, name: str) -> None:
        for _ in range(MOST_PAGES):
            page = self._client.results(self._watched[name], self._cursors[name], limit=PAGE)
            self._cursors[name] = page.cursor
            self._latest[name].extend(page.rows)
            self.totals.rows_read += len(page.rows)
            if len(page.rows) < PAGE:
                return
