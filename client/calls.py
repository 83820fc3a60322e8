"""The calls of the REST interface as coroutines, over any sender."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack, cast

import httpx

from braid.client.errors import QueryFailed
from braid.client.frames import ArrowPage, Frame, bodies_of, is_frame, table_of
from braid.client.http import Address, Sender
from braid.client.messages import (
    ARROW,
    MEDIA_TYPES,
    SAMPLE_TYPES,
    Object,
    QueryFields,
    Request,
    ResultPage,
    added,
    checked,
    items,
    json_of,
    not_braid,
    query_body,
    rows_content,
    segment,
)

_INFER_SECONDS = 30.0
# an empty page that comes back faster than this was not long-polled; do not spin on it
_SHORTEST_POLL_SECONDS = 0.05
_POLL_SECONDS = 0.1
_ENDED = ("RETIRED", "FINISHED")
Events = Frame | bytes | str | Iterable[Mapping[str, Any]]
_REPLAYED = "Idempotent-Replayed"
_ID = re.compile(r"q-\d+", re.ASCII)


class Calls:
    """Call the service at `address`.

    A `key` is sent as `Idempotency-Key`: the same call with the same key is safe to repeat.

    A `query_id` is the id of a query or its name: that of the newest query that has or had it.

    `parse_float` reads the numbers that are not whole.
    """

    def __init__(self, address: Address, sender: Sender, parse_float: Callable[[str], Any]) -> None:
        self.url = address.url
        self.api_key = address.api_key
        self.timeout = address.timeout
        self._sender = sender
        self._parse_float = parse_float

    async def close(self) -> None:
        """Give the connections back."""
        await self._sender.close()

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        request = Request(method, path, **options)
        return checked(await self._sender.send(request), request)

    async def _json(self, method: str, path: str, **options: Any) -> Any:
        return json_of(await self._send(method, path, **options), self.url, self._parse_float)

    async def _object(self, method: str, path: str, **options: Any) -> Object:
        return self._object_in(await self._send(method, path, **options), f"{method} {path}")

    def _object_in(self, response: httpx.Response, call: str) -> Object:
        answer = json_of(response, self.url, self._parse_float)
        if not isinstance(answer, dict):
            raise not_braid(self.url, f"{call} gave {str(answer)[:80]} instead of an object")
        return answer

    async def create_stream(self, sql: str, key: str | None = None) -> Object:
        """Declare a stream with a CREATE STREAM statement."""
        return await self._object("POST", "/streams", body={"sql": sql}, key=key)

    async def infer(
        self, sample: bytes | str, format: str = "", name: str | None = None, file: str | None = None
    ) -> Object:
        """Infer the CREATE STREAM statement that takes rows like these: `{"sql", "columns", "event_time", …}`.

        `format` is one of csv, ndjson, json and parquet; without it, the service tells it by the bytes. The stream is
        called `name`, or after the `file` that the sample is from.
        """
        if format not in SAMPLE_TYPES:
            raise ValueError(f"format must be one of {', '.join(filter(None, SAMPLE_TYPES))}, got {format!r}")
        content = sample.encode() if isinstance(sample, str) else sample
        call: Object = {"content": content, "media_type": SAMPLE_TYPES[format], "query": {"name": name, "file": file}}
        return await self._object("POST", "/streams/infer", wait=_INFER_SECONDS, **call)

    async def infer_from(self, connector: str, options: Mapping[str, str], name: str | None = None) -> Object:
        """Infer the statement of a stream that reads what the service finds there: a folder, or a Kafka topic."""
        body = {"connector": connector, **options, **({} if name is None else {"name": name})}
        return await self._object("POST", "/streams/infer", body=body, wait=_INFER_SECONDS)

    async def streams(self) -> list[Object]:
        """List the streams."""
        return items(await self._json("GET", "/streams"), "streams", self.url)

    async def stream(self, name: str) -> Object:
        """Read one stream: columns, source, clock, watermark and counts."""
        return await self._object("GET", f"/streams/{segment(name)}")

    async def drop_stream(self, name: str, cascade: bool = False) -> None:
        """Drop a stream; refused (409) while queries use it, unless they go, too (`cascade`)."""
        await self._send("DELETE", f"/streams/{segment(name)}", query={"cascade": "true"} if cascade else {})

    async def push(
        self, stream: str, events: Events, format: str = "ndjson", key: str | None = None, first: int = 1
    ) -> Object:
        """Push rows; answer `{"accepted", "rejected", "errors"}`, and `missing` columns and `unknown` names, if any.

        `late`, if any, counts the accepted rows that are below the stream's watermark, and `ahead` those beyond its
        `max_future`: queries that run do not see them. `repeated`, if any, counts the accepted rows that had come with
        `key` before, and count once.
        `events` is a frame (pandas, Polars, Arrow), a body in `format`, or dicts, whose times may be `datetime` and
        decimals `Decimal`. A large frame is pushed in several requests, the first with `key`. Of a body that is a piece
        of a file, `first` is the number of its first line, or row, there: errors and dead letters are counted from it.
        """
        if is_frame(events):
            return await self._push_frame(stream, events, key)
        if format not in MEDIA_TYPES:
            raise ValueError(f"format must be one of {', '.join(MEDIA_TYPES)}, got {format!r}")
        if isinstance(events, str | bytes):
            content = events.encode() if isinstance(events, str) else events
        else:
            format, content = "ndjson", rows_content(cast("Iterable[Mapping[str, Any]]", events))
        return await self._push_body(stream, content, MEDIA_TYPES[format], key, first)

    async def _push_frame(self, stream: str, frame: Any, key: str | None) -> Object:
        answer: Object = {}
        for number, content in enumerate(bodies_of(frame)):
            part_key = key if key is None or number == 0 else f"{key}-{number}"
            before = int(answer.get("accepted", 0)) + int(answer.get("rejected", 0))
            answer = added(answer, await self._push_body(stream, content, ARROW, part_key, before + 1))
        return answer

    async def _push_body(self, stream: str, content: bytes, media_type: str, key: str | None, first: int) -> Object:
        query = {"first": first} if first > 1 else {}
        call: Object = {"content": content, "media_type": media_type, "key": key, "query": query}
        response = await self._send("POST", f"/streams/{segment(stream)}/events", **call)
        answer = self._object_in(response, f"POST /streams/{stream}/events")
        is_repeated = response.headers.get(_REPLAYED) == "true"
        return {**answer, "repeated": answer["accepted"]} if is_repeated else answer

    async def raise_watermark(self, stream: str, time: datetime | str) -> Object:
        """Say that nothing earlier than `time` comes of a stream any more."""
        text = time if isinstance(time, str) else time.isoformat()
        return await self._object("POST", f"/streams/{segment(stream)}/watermark", body={"time": text})

    async def end_stream(self, stream: str) -> Object:
        """Say that nothing comes of a stream any more: its windows are final, and its queries finish."""
        return await self._object("POST", f"/streams/{segment(stream)}/watermark", body={"end": True})

    async def dead_letters(
        self, stream: str, after: str | None = None, limit: int | None = None, tail: int | None = None
    ) -> Object:
        """Read the late and malformed rows, the last `tail` or all after a cursor: `{"rows", "cursor"}`."""
        query = {"after": after, "limit": limit, "tail": tail}
        return await self._object("GET", f"/streams/{segment(stream)}/dead-letters", query=query)

    async def refused_rows(self, query_id: str, after: str | None = None, limit: int | None = None) -> Object:
        """Read the rows that a query's sink refused for good: `{"rows", "cursor"}`."""
        query = {"after": after, "limit": limit}
        return await self._object("GET", f"/queries/{segment(query_id)}/dead-letters", query=query)

    async def create_table(self, sql: str, key: str | None = None) -> Object:
        """Declare a static table with a CREATE TABLE statement."""
        return await self._object("POST", "/tables", body={"sql": sql}, key=key)

    async def tables(self) -> list[Object]:
        """List the static tables."""
        return items(await self._json("GET", "/tables"), "tables", self.url)

    async def table(self, name: str) -> Object:
        """Read one static table: columns, file, when it was refreshed."""
        return await self._object("GET", f"/tables/{segment(name)}")

    async def refresh_table(self, name: str, wait: float | None = None, key: str | None = None) -> Object:
        """Read a static table's file anew for all queries; with `wait` (seconds) answer once they have its rows."""
        return await self._object("POST", f"/tables/{segment(name)}/refresh", query={"wait": wait}, key=key, wait=wait)

    async def drop_table(self, name: str) -> None:
        """Drop a static table."""
        await self._send("DELETE", f"/tables/{segment(name)}")

    async def create_query(
        self, sql: str, wait: float | None = None, key: str | None = None, **fields: Unpack[QueryFields]
    ) -> Object:
        """Register one query; with `wait` (seconds) answer once it runs or catches up, or the time is up."""
        body = query_body(sql, **fields)
        return await self._object("POST", "/queries", body=body, query={"wait": wait}, key=key, wait=wait)

    async def create_queries(
        self, queries: Iterable[Object], wait: float | None = None, key: str | None = None
    ) -> list[Object]:
        """Register many queries, all or none; each is a body such as :func:`query_body` builds."""
        call: Object = {"query": {"wait": wait}, "key": key, "wait": wait}
        answer = await self._json("POST", "/queries", body=list(queries), **call)
        return items(answer, "queries", self.url)

    async def validate(self, sql: str, **fields: Unpack[QueryFields]) -> Object:
        """Ask what a query would run as and with whom it would share; nothing is registered."""
        return await self._object("POST", "/queries/validate", body=query_body(sql, **fields))

    async def get_query(self, query_id: str) -> Object:
        """Read one query."""
        return await self._object("GET", f"/queries/{segment(query_id)}")

    async def queries(
        self, state: str | None = None, label: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Object]:
        """List queries over all pages; `label` is `key=value`, `limit` the size of a page."""
        cursor: str | None = None
        while True:
            parameters = {"state": state, "label": label, "limit": limit, "cursor": cursor}
            answer = await self._json("GET", "/queries", query=parameters)
            page = items(answer, "queries", self.url)
            for query in page:
                yield query
            next_cursor = answer.get("cursor") if isinstance(answer, dict) else None
            if not next_cursor or next_cursor == cursor:  # a page may be empty and not the last
                return
            cursor = next_cursor

    async def replace_query(
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
        return await self._object("PUT", f"/queries/{segment(query_id)}", body=body, query=query, key=key, wait=wait)

    async def pause_query(self, query_id: str, key: str | None = None) -> Object:
        """Stop reading for a query until it is resumed; windows that are complete still come."""
        return await self._object("POST", f"/queries/{segment(query_id)}/pause", key=key)

    async def resume_query(self, query_id: str, wait: float | None = None, key: str | None = None) -> Object:
        """Run a paused query again; with `wait` (seconds) answer once it is RUNNING or the time is up."""
        call: Object = {"query": {"wait": wait}, "key": key, "wait": wait}
        return await self._object("POST", f"/queries/{segment(query_id)}/resume", **call)

    async def delete_query(self, query_id: str, drain: bool = True, cascade: bool = False) -> Object:
        """Retire a query; `drain` still lets windows that are complete come out. Harmless to repeat.

        Refused (409) while others read it, unless they go, too (`cascade`).
        """
        query = {"drain": "true" if drain else "false"} | ({"cascade": "true"} if cascade else {})
        return await self._object("DELETE", f"/queries/{segment(query_id)}", query=query)

    async def retire_queries(
        self, query_ids: Iterable[str], drain: bool = True, key: str | None = None
    ) -> list[Object]:
        """Retire many queries with one request, none when one of them is unknown. Harmless to repeat."""
        body = {"ids": list(query_ids), "drain": drain}
        return items(await self._json("POST", "/queries/retire", body=body, key=key), "queries", self.url)

    async def plan(self, query_id: str | None = None) -> Object:
        """Read how one query, or everything, runs and with whom it shares: a graph."""
        return await self._object("GET", f"/queries/{segment(query_id)}/plan" if query_id else "/plan")

    async def plan_dot(self, query_id: str | None = None) -> str:
        """Read the same graph in Graphviz' language."""
        path = f"/queries/{segment(query_id)}/plan" if query_id else "/plan"
        return (await self._send("GET", path, query={"format": "dot"})).text

    async def changelogs(self, after: int | None = None) -> list[Object]:
        """List all changelogs after an epoch, page by page."""
        changelogs: list[Object] = []
        while page := items(await self._json("GET", "/changelogs", query={"after": after}), "changelogs", self.url):
            if changelogs and page[-1]["epoch"] <= changelogs[-1]["epoch"]:
                break
            changelogs += page
            after = page[-1]["epoch"]
        return changelogs

    async def sql(self, statement: str, key: str | None = None) -> Any:
        """Send any one statement."""
        return await self._json("POST", "/sql", body={"sql": statement}, key=key)

    async def results(
        self, query_id: str, after: str | None = None, limit: int | None = None, wait: float | None = None
    ) -> ResultPage:
        """Read one page of rows after a cursor; `wait` (seconds) long-polls for the first of them."""
        query = {"after": after, "limit": limit, "wait": wait}
        answer = await self._object("GET", f"/queries/{segment(query_id)}/results", query=query, wait=wait)
        cursor = answer.get("cursor")
        rows = items(answer, "rows", self.url)
        after = after if cursor is None else str(cursor)
        return ResultPage(rows, after, bool(answer.get("end")), answer.get("gap"))

    async def arrow_page(
        self, query_id: str, after: str | None = None, limit: int | None = None, wait: float | None = None
    ) -> ArrowPage:
        """Read one page of rows as Arrow, as :meth:`results` does."""
        query = {"after": after, "limit": limit, "wait": wait}
        path = f"/queries/{segment(query_id)}/results"
        answer = await self._send("GET", path, query=query, accept=ARROW, wait=wait)
        if "Braid-Cursor" not in answer.headers:
            raise not_braid(self.url, f"{path} gave no cursor")
        cursor, end = answer.headers["Braid-Cursor"], answer.headers.get("Braid-End") == "true"
        return ArrowPage(table_of(answer.content), cursor, end, answer.headers.get("Braid-Gap"))

    async def follow(self, query_id: str, after: str | None = None) -> AsyncIterator[Object]:
        """Yield the rows of a query as they come, until it is RETIRED and all is read."""
        async for page in self.follow_pages(query_id, after):
            for row in page.rows:
                yield row

    async def follow_pages(
        self,
        query_id: str,
        after: str | None = None,
        *,
        wait: float = 10.0,
        max_rows: int | None = None,
        on_empty: Callable[[Object], None] | None = None,
    ) -> AsyncIterator[ResultPage]:
        """Yield pages as they come; each page's cursor is where to go on after it was handled.

        The query is the one that has the name when this begins. Ends at the `end` of the results or after `max_rows`
        rows. Raises :class:`QueryFailed` when the query is FAILED and all it gave is read, because such a query
        never reaches its `end`. `on_empty` gets the query each time that `wait` seconds brought no row.
        """
        if not _ID.fullmatch(query_id):
            query_id = str((await self.get_query(query_id))["id"])
        rows_left, failure = max_rows, None
        while rows_left is None or rows_left > 0:
            began = time.monotonic()
            page_rows = 1000 if rows_left is None else min(1000, rows_left)
            page = await self.results(query_id, after, page_rows, 0 if failure else wait)
            after = page.cursor
            rows_left = rows_left if rows_left is None else rows_left - len(page.rows)
            if page.rows or page.end or page.gap:
                yield page
                if page.end:
                    return
                continue
            if failure is not None:
                raise QueryFailed(f"query {query_id} is FAILED: {failure}")
            query = await self.get_query(query_id)
            if query.get("state") == "FAILED":
                # rows may have come between the empty page and this look: read once more before giving up
                failure = str(query.get("error") or "the service gave no reason")
                continue
            if on_empty is not None:
                on_empty(query)
            await self._sender.sleep(max(0.0, began + _SHORTEST_POLL_SECONDS - time.monotonic()))

    async def wait_end(self, query_id: str, seconds: float = 60.0) -> Object:
        """Wait until a query has ended, as when its streams have, and return it.

        Raises QueryFailed when it fails, and TimeoutError when it goes on after `seconds`.
        """
        deadline = time.monotonic() + seconds
        while (described := await self.get_query(query_id))["state"] not in _ENDED:
            if described["state"] == "FAILED":
                raise QueryFailed(f"query {query_id} is FAILED: {described.get('error')}")
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"query {query_id} must end within {seconds:g} s, it is {described['state']}:"
                    " end its streams with end_stream(), or retire it with delete_query()"
                )
            await self._sender.sleep(_POLL_SECONDS)
        return described

    async def whoami(self) -> Object:
        """Read the tenant, rights and quotas of the client's key."""
        return await self._object("GET", "/whoami")

    async def tenants(self) -> list[Object]:
        """List the tenants with their quotas."""
        return items(await self._json("GET", "/tenants"), "tenants", self.url)

    async def put_tenant(self, name: str, quotas: Mapping[str, Any]) -> Object:
        """Make a tenant, or give one other quotas; a quota that is left out is none."""
        return await self._object("PUT", f"/tenants/{segment(name)}", body={"quotas": dict(quotas)})

    async def drop_tenant(self, name: str) -> None:
        """Forget a tenant; refused (409) while it has keys."""
        await self._send("DELETE", f"/tenants/{segment(name)}")

    async def keys(self) -> list[Object]:
        """List the keys, without their texts."""
        return items(await self._json("GET", "/keys"), "keys", self.url)

    async def create_key(self, tenant: str, rights: Sequence[str], name: str | None = None) -> Object:
        """Make a key; its text, `key`, is shown this once only."""
        return await self._object("POST", "/keys", body={"tenant": tenant, "rights": list(rights), "name": name})

    async def revoke_key(self, key_id: str) -> None:
        """Revoke a key."""
        await self._send("DELETE", f"/keys/{segment(key_id)}")
