"""Speak to a running Braid service from Python: the REST interface as methods.

Its errors are those of :mod:`braid.api.transport`.

An example::

    with BraidClient() as braid:
        query = braid.create_query("SELECT user_id, price FROM purchases WHERE price > 5", wait=30)
        for row in braid.follow(query["id"]):
            print(row["user_id"], row["price"])
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, Unpack

from braid.api.transport import (
    DEFAULT_URL,
    JSON,
    BraidError,
    BraidQueryFailed,
    BraidRefused,
    BraidUnreachable,
    Object,
    Transport,
    checked_url,
    encoded,
    items,
    segment,
)

__all__ = [
    "DEFAULT_URL",
    "MEDIA_TYPES",
    "SAMPLE_TYPES",
    "BraidClient",
    "BraidError",
    "BraidQueryFailed",
    "BraidRefused",
    "BraidUnreachable",
    "ResultPage",
    "checked_url",
    "query_body",
]

MEDIA_TYPES = {
    "ndjson": "application/x-ndjson",
    "json": JSON,
    "arrow": "application/vnd.apache.arrow.stream",
    "csv": "text/csv",
}
SAMPLE_TYPES = {
    "": "application/octet-stream",
    "csv": "text/csv",
    "ndjson": "application/x-ndjson",
    "json": JSON,
    "parquet": "application/vnd.apache.parquet",
}
_INFER_SECONDS = 30.0
# an empty page that comes back faster than this was not long-polled; do not spin on it
_SHORTEST_POLL_SECONDS = 0.05
_ID = re.compile(r"q-\d+", re.ASCII)

Events = bytes | str | Iterable[Mapping[str, Any]]


class QueryFields(TypedDict, total=False):
    """What a query may be given beside its SQL."""

    name: str | None
    sink: str | Mapping[str, Any] | None
    ttl_seconds: float | None
    labels: Mapping[str, str] | None
    start: str | None


@dataclass(frozen=True)
class ResultPage:
    """Rows in order; `cursor` is the place after the last of them; `end`: no row will ever follow.

    `gap` tells of rows before them that cannot be read: `rows`, `batches` (first, last) and `detail`.
    """

    rows: list[Object]
    cursor: str | None
    end: bool
    gap: Object | None = None


class BraidClient(Transport):
    """Call a Braid service at `url`; `timeout` is in seconds, on top of what a call waits for.

    Services with access control need an `api_key`. A `key` is sent as `Idempotency-Key`: the same call with the same
    key is safe to repeat.

    A `query_id` is the id of a query or its name: that of the newest query that has or had it.

    Numbers that are not whole are floats, which may lose digits of a DECIMAL. With `parse_float=decimal.Decimal` they
    are Decimals with the digits that the service sent, DOUBLEs, too: JSON does not tell these apart.
    """

    def create_stream(self, sql: str, key: str | None = None) -> Object:
        """Declare a stream with a CREATE STREAM statement."""
        return self._object("POST", "/streams", body={"sql": sql}, key=key)

    def infer(self, sample: bytes | str, format: str = "", name: str | None = None, file: str | None = None) -> Object:
        """Infer the CREATE STREAM statement that takes rows like these: `{"sql", "columns", "event_time", …}`.

        `format` is one of csv, ndjson, json and parquet; without it, the service tells it by the bytes. The stream is
        called `name`, or after the `file` that the sample is from.
        """
        if format not in SAMPLE_TYPES:
            raise ValueError(f"format must be one of {', '.join(filter(None, SAMPLE_TYPES))}, got {format!r}")
        content = sample.encode() if isinstance(sample, str) else sample
        call: Object = {"content": content, "media_type": SAMPLE_TYPES[format], "query": {"name": name, "file": file}}
        return self._object("POST", "/streams/infer", wait=_INFER_SECONDS, **call)

    def infer_from(self, connector: str, options: Mapping[str, str], name: str | None = None) -> Object:
        """Infer the statement of a stream that reads what the service finds there: a folder, or a Kafka topic."""
        body = {"connector": connector, **options, **({} if name is None else {"name": name})}
        return self._object("POST", "/streams/infer", body=body, wait=_INFER_SECONDS)

    def streams(self) -> list[Object]:
        """List the streams."""
        return items(self._json("GET", "/streams"), "streams", self.url)

    def stream(self, name: str) -> Object:
        """Read one stream: columns, source, clock, watermark and counts."""
        return self._object("GET", f"/streams/{segment(name)}")

    def drop_stream(self, name: str, cascade: bool = False) -> None:
        """Drop a stream; refused (409) while queries use it, unless they go, too (`cascade`)."""
        self._send("DELETE", f"/streams/{segment(name)}", query={"cascade": "true"} if cascade else {})

    def push(self, stream: str, events: Events, format: str = "ndjson", key: str | None = None) -> Object:
        """Push rows; answer `{"accepted", "rejected", "errors"}`, and `missing` columns of CSV.

        `late`, if any, counts the accepted rows that are below the stream's watermark: no query sees them.
        `events` is a body in `format`, or dicts (then `format` is not looked at). Times may be
        `datetime`, decimals `Decimal`.
        """
        if format not in MEDIA_TYPES:
            raise ValueError(f"format must be one of {', '.join(MEDIA_TYPES)}, got {format!r}")
        if not isinstance(events, str | bytes):
            format, events = "ndjson", b"".join(encoded(event) + b"\n" for event in events)
        content = events.encode() if isinstance(events, str) else events
        call: Object = {"content": content, "media_type": MEDIA_TYPES[format], "key": key}
        return self._object("POST", f"/streams/{segment(stream)}/events", **call)

    def raise_watermark(self, stream: str, time: datetime | str) -> Object:
        """Say that nothing earlier than `time` comes of a stream any more."""
        text = time if isinstance(time, str) else time.isoformat()
        return self._object("POST", f"/streams/{segment(stream)}/watermark", body={"time": text})

    def end_stream(self, stream: str) -> Object:
        """Say that nothing comes of a stream any more: its windows are final, and its queries finish."""
        return self._object("POST", f"/streams/{segment(stream)}/watermark", body={"end": True})

    def dead_letters(self, stream: str, after: str | None = None, limit: int | None = None) -> Object:
        """Read the rows no query sees: `{"rows", "cursor"}`."""
        query = {"after": after, "limit": limit}
        return self._object("GET", f"/streams/{segment(stream)}/dead-letters", query=query)

    def refused_rows(self, query_id: str, after: str | None = None, limit: int | None = None) -> Object:
        """Read the rows that a query's sink refused for good: `{"rows", "cursor"}`."""
        query = {"after": after, "limit": limit}
        return self._object("GET", f"/queries/{segment(query_id)}/dead-letters", query=query)

    def create_table(self, sql: str, key: str | None = None) -> Object:
        """Declare a static table with a CREATE TABLE statement."""
        return self._object("POST", "/tables", body={"sql": sql}, key=key)

    def tables(self) -> list[Object]:
        """List the static tables."""
        return items(self._json("GET", "/tables"), "tables", self.url)

    def table(self, name: str) -> Object:
        """Read one static table: columns, file, when it was refreshed."""
        return self._object("GET", f"/tables/{segment(name)}")

    def refresh_table(self, name: str, wait: float | None = None, key: str | None = None) -> Object:
        """Read a static table's file anew for all queries; with `wait` (seconds) answer once they have its rows."""
        return self._object("POST", f"/tables/{segment(name)}/refresh", query={"wait": wait}, key=key, wait=wait)

    def drop_table(self, name: str) -> None:
        """Drop a static table."""
        self._send("DELETE", f"/tables/{segment(name)}")

    def create_query(
        self, sql: str, wait: float | None = None, key: str | None = None, **fields: Unpack[QueryFields]
    ) -> Object:
        """Register one query; with `wait` (seconds) answer once it runs or catches up, or the time is up."""
        body = query_body(sql, **fields)
        return self._object("POST", "/queries", body=body, query={"wait": wait}, key=key, wait=wait)

    def create_queries(
        self, queries: Iterable[Object], wait: float | None = None, key: str | None = None
    ) -> list[Object]:
        """Register many queries, all or none; each is a body such as :func:`query_body` builds."""
        call: Object = {"query": {"wait": wait}, "key": key, "wait": wait}
        answer = self._json("POST", "/queries", body=list(queries), **call)
        return items(answer, "queries", self.url)

    def validate(self, sql: str, **fields: Unpack[QueryFields]) -> Object:
        """Ask what a query would run as and with whom it would share; nothing is registered."""
        return self._object("POST", "/queries/validate", body=query_body(sql, **fields))

    def query(self, query_id: str) -> Object:
        """Read one query."""
        return self._object("GET", f"/queries/{segment(query_id)}")

    def queries(self, state: str | None = None, label: str | None = None, limit: int | None = None) -> Iterator[Object]:
        """List queries over all pages; `label` is `key=value`, `limit` the size of a page."""
        cursor: str | None = None
        while True:
            query = {"state": state, "label": label, "limit": limit, "cursor": cursor}
            answer = self._json("GET", "/queries", query=query)
            page = items(answer, "queries", self.url)
            yield from page
            next_cursor = answer.get("cursor") if isinstance(answer, dict) else None
            if not next_cursor or next_cursor == cursor:  # a page may be empty and not the last
                return
            cursor = next_cursor

    def replace_query(
        self,
        query_id: str,
        sql: str,
        drain: bool = True,
        wait: float | None = None,
        key: str | None = None,
        **fields: Unpack[QueryFields],
    ) -> Object:
        """Put a new query in the place of one, without a gap, and answer the new one.

        It has the name, sink, labels and TTL of the old one, but for those that are given; None says none.
        """
        query = {"drain": "true" if drain else "false", "wait": wait}
        body = {"sql": sql, **fields}
        return self._object("PUT", f"/queries/{segment(query_id)}", body=body, query=query, key=key, wait=wait)

    def pause_query(self, query_id: str, key: str | None = None) -> Object:
        """Stop reading for a query until it is resumed; windows that are complete still come."""
        return self._object("POST", f"/queries/{segment(query_id)}/pause", key=key)

    def resume_query(self, query_id: str, wait: float | None = None, key: str | None = None) -> Object:
        """Run a paused query again; with `wait` (seconds) answer once it is RUNNING or the time is up."""
        call: Object = {"query": {"wait": wait}, "key": key, "wait": wait}
        return self._object("POST", f"/queries/{segment(query_id)}/resume", **call)

    def delete_query(self, query_id: str, drain: bool = True, cascade: bool = False) -> Object:
        """Retire a query; `drain` still lets windows that are complete come out. Harmless to repeat.

        Refused (409) while others read it, unless they go, too (`cascade`).
        """
        query = {"drain": "true" if drain else "false"} | ({"cascade": "true"} if cascade else {})
        return self._object("DELETE", f"/queries/{segment(query_id)}", query=query)

    def retire_queries(self, query_ids: Iterable[str], drain: bool = True, key: str | None = None) -> list[Object]:
        """Retire many queries with one request, none when one of them is unknown. Harmless to repeat."""
        body = {"ids": list(query_ids), "drain": drain}
        return items(self._json("POST", "/queries/retire", body=body, key=key), "queries", self.url)

    def plan(self, query_id: str | None = None) -> Object:
        """Read how one query, or everything, runs and with whom it shares: a graph."""
        return self._object("GET", f"/queries/{segment(query_id)}/plan" if query_id else "/plan")

    def plan_dot(self, query_id: str | None = None) -> str:
        """Read the same graph in Graphviz' language."""
        path = f"/queries/{segment(query_id)}/plan" if query_id else "/plan"
        return self._send("GET", path, query={"format": "dot"}).text

    def changelogs(self, after: int | None = None) -> list[Object]:
        """List all changelogs after an epoch, page by page."""
        changelogs: list[Object] = []
        while page := items(self._json("GET", "/changelogs", query={"after": after}), "changelogs", self.url):
            if changelogs and page[-1]["epoch"] <= changelogs[-1]["epoch"]:
                break
            changelogs += page
            after = page[-1]["epoch"]
        return changelogs

    def sql(self, statement: str, key: str | None = None) -> Any:
        """Send any one statement."""
        return self._json("POST", "/sql", body={"sql": statement}, key=key)

    def results(
        self, query_id: str, after: str | None = None, limit: int | None = None, wait: float | None = None
    ) -> ResultPage:
        """Read one page of rows after a cursor; `wait` (seconds) long-polls for the first of them."""
        query = {"after": after, "limit": limit, "wait": wait}
        answer = self._object("GET", f"/queries/{segment(query_id)}/results", query=query, wait=wait)
        cursor = answer.get("cursor")
        rows = items(answer, "rows", self.url)
        after = after if cursor is None else str(cursor)
        return ResultPage(rows, after, bool(answer.get("end")), answer.get("gap"))

    def follow(self, query_id: str, after: str | None = None) -> Iterator[Object]:
        """Yield the rows of a query as they come, until it is RETIRED and all is read."""
        for page in self.follow_pages(query_id, after):
            yield from page.rows

    def follow_pages(
        self,
        query_id: str,
        after: str | None = None,
        *,
        wait: float = 10.0,
        max_rows: int | None = None,
        on_empty: Callable[[Object], None] | None = None,
    ) -> Iterator[ResultPage]:
        """Yield pages as they come; each page's cursor is where to go on after it was handled.

        The query is the one that has the name when this begins. Ends at the `end` of the results or after `max_rows`
        rows. Raises :class:`BraidQueryFailed` when the query is FAILED and all it gave is read, because such a query
        never reaches its `end`. `on_empty` gets the query each time that `wait` seconds brought no row.
        """
        if not _ID.fullmatch(query_id):
            query_id = str(self.query(query_id)["id"])
        rows_left, failure = max_rows, None
        while rows_left is None or rows_left > 0:
            began = time.monotonic()
            page_rows = 1000 if rows_left is None else min(1000, rows_left)
            page = self.results(query_id, after, page_rows, 0 if failure else wait)
            after = page.cursor
            rows_left = rows_left if rows_left is None else rows_left - len(page.rows)
            if page.rows or page.end or page.gap:
                yield page
                if page.end:
                    return
                continue
            if failure is not None:
                raise BraidQueryFailed(f"query {query_id} is FAILED: {failure}")
            query = self.query(query_id)
            if query.get("state") == "FAILED":
                # rows may have come between the empty page and this look: read once more before giving up
                failure = str(query.get("error") or "the service gave no reason")
                continue
            if on_empty is not None:
                on_empty(query)
            time.sleep(max(0.0, began + _SHORTEST_POLL_SECONDS - time.monotonic()))


def query_body(sql: str, **fields: Unpack[QueryFields]) -> Object:
    """Build the body that registers a query, without what is None."""
    return {"sql": sql} | {field: value for field, value in fields.items() if value is not None}
