"""The consumer's process: `python -m braid.bench_driver.query_load.consume`. Reads probe queries to see how late rows
come.

Reads `{"url", "label"}` from standard input, one line of JSON, and follows every RUNNING query that has the label (all
when it is null), also those that come later, by long poll from its first row until it is RETIRED. Writes `{"started":
true}`, then for each page that has rows `{"query", "arrived", "count", "event_ms": […], "rows": […]}`: `count` is how
many rows it has, `event_ms` are their different event times in whole milliseconds since 1970, `rows` how many rows have
each. Both are null for a query that is no probe, which has no such column. A line `{"query", "error"}` says that a
query could not be read on. Ends when its input ends.

Pages come as Arrow streams: turning rows into JSON and back would cost the machine under test more than its queries.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braid.bench_driver.query_load.calls import BUSY, WAIT_SECONDS, ServiceCalls

ARROW = "application/vnd.apache.arrow.stream"
PAGE = 100_000
PAUSE_SECONDS = 0.2
EVENT_TIME = re.compile(r"latest|time_\d+")


def event_times(table: pa.Table) -> tuple[list[int] | None, list[int] | None]:
    """Return the event times of rows, in ms since 1970, different and ascending, and how many rows have each.

    The event time of a row is the greatest of `latest` and `time_0`, `time_1`, …; a row where all are NULL is left out.
    None without such a column.
    """
    names = [name for name in table.column_names if EVENT_TIME.fullmatch(name)]
    if not names:
        return None, None
    latest = pc.max_element_wise(*(table[name].cast(pa.timestamp("us")) for name in names))
    event_ms = latest.drop_null().cast(pa.int64()).to_numpy() // 1000
    times, rows = np.unique(event_ms, return_counts=True)
    return times.tolist(), rows.tolist()


def latest_of(tables: Iterable[pa.Table]) -> list[list[float]]:
    """Return `[event time in seconds since 1970, rows]` of rows of probe queries, as peers tell them."""
    latest = []
    for table in tables:
        event_ms, rows = event_times(table)
        latest += [[ms / 1000, count] for ms, count in zip(event_ms or (), rows or (), strict=True)]
    return latest


def follow(calls: ServiceCalls, query_id: str) -> None:
    """Read a query from its first row on until it is RETIRED, and say of each page what it has."""
    cursor = ""
    while True:
        path = f"/queries/{query_id}/results?limit={PAGE}&wait={WAIT_SECONDS}{cursor}"
        answer = calls.ask("GET", path, headers={"Accept": ARROW})
        arrived = time.time()
        if answer.status in BUSY:
            time.sleep(PAUSE_SECONDS)
            continue
        if answer.status != 200:
            return say(query=query_id, error=answer.reason)
        cursor = f"&after={answer.headers['Braid-Cursor']}"
        table = pa.ipc.open_stream(answer.body).read_all()
        if table.num_rows:
            event_ms, rows = event_times(table)
            say(query=query_id, arrived=arrived, count=table.num_rows, event_ms=event_ms, rows=rows)
        if answer.headers["Braid-End"] == "true":
            return None


_output = threading.Lock()


def say(**line: Any) -> None:
    """Write a line."""
    text = json.dumps(line) + "\n"
    with _output:
        sys.stdout.write(text)
        sys.stdout.flush()


def follow_all(url: str, label: str | None) -> None:
    """Follow every query that has the label, or every one, from when it is seen RUNNING, in a thread each.

    Nobody reads subqueries but the queries that have them.
    """
    calls, followed = ServiceCalls(url), set[str]()
    while True:
        for query in calls.queries("RUNNING", label) or ():
            if query["id"] not in followed and not query["subquery"]:
                followed.add(query["id"])
                threading.Thread(target=follow, args=(calls, query["id"]), daemon=True).start()
        time.sleep(PAUSE_SECONDS)


def main() -> None:
    """Read the order, follow its queries until the input ends."""
    order = json.loads(sys.stdin.readline())
    say(started=True)
    threading.Thread(target=follow_all, args=(order["url"], order["label"]), daemon=True).start()
    sys.stdin.read()
    _output.acquire()  # who writes a line ends it, and nobody begins one more


if __name__ == "__main__":
    main()
