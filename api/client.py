"""Speak to a running Braid service from Python: the REST interface as methods.

The errors are::

    BraidError
    ├── BraidRefused       the service answered, and said no (problem+json)
    ├── BraidUnreachable   nobody answered, or what answered is not a Braid service
    └── BraidQueryFailed   the query that was followed is FAILED: no row will follow

Every error of httpx becomes one of these in :func:`_translated`, nowhere else.

An example::

    with BraidClient() as braid:
        query = braid.create_query("SELECT user_id, price FROM purchases WHERE price > 5", wait=30)
        for row in braid.follow(query["id"]):
            print(row["user_id"], row["price"])
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Self, TypedDict, Unpack
from urllib.parse import quote

import httpx

DEFAULT_URL = "http://127.0.0.1:8080"
MEDIA_TYPES = {
    "ndjson": "application/x-ndjson",
    "json": "application/json",
    "arrow": "application/vnd.apache.arrow.stream",
}
# an empty page that comes back faster than this was not long-polled; do not spin on it
_SHORTEST_POLL_SECONDS = 0.05

Object = dict[str, Any]
Events = bytes | str | Iterable[Mapping[str, Any]]


class BraidError(Exception):
    """What every error of this client is."""


@dataclass(eq=False)
class BraidRefused(BraidError):
    """Say why the service refused a request.

    `status` is the HTTP status, `title` and `detail` come from the problem+json body, `position` is
    `(line, column)` in `sql`, counted from one, when the place is known. `retry_after` is in seconds.
    """

    status: int
    title: str
    detail: str
    position: tuple[int, int] | None = None
    sql: str | None = None
    retry_after: float | None = None

    def __str__(self) -> str:
        return f"{self.status} {self.title}: {self.detail}"


@dataclass(eq=False)
class BraidUnreachable(BraidError):
    """Say that no Braid service answered at `url`."""

    url: str
    reason: str

    def __str__(self) -> str:
        return f"No Braid service answers at {self.url}: {self.reason}"


class BraidQueryFailed(BraidError):
    """Say that the query that was followed is FAILED, and with which error."""


class QueryFields(TypedDict, total=False):
    """What a query may be given beside its SQL."""

    name: str | None
    sink: str | Mapping[str, Any] | None
    ttl_seconds: float | None
    labels: Mapping[str, str] | None


@dataclass(frozen=True)
class ResultPage:
    """Rows in order; `cursor` is the place after the last of them; `end`: no row will ever follow."""

    rows: list[Object]
    cursor: str | None
    end: bool


class BraidClient:
    """Call a Braid service at `url`; `timeout` is in seconds, on top of what a call waits for.

    Services with access control need an `api_key`. A `key` is sent as `Idempotency-Key`: the same call with the same
    key is safe to repeat.
    """

    def __init__(self, url: str = DEFAULT_URL, timeout: float = 10.0, api_key: str | None = None) -> None:
        self.url = checked_url(url)
        self.api_key = api_key
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        self.timeout = timeout
        # a proxy from the environment cannot know this machine's loopback
        local = httpx.URL(self.url).host in ("localhost", "127.0.0.1", "::1")
        headers = {} if api_key is None else {"Authorization": f"Bearer {_ascii(api_key)}"}
        self._http = httpx.Client(timeout=timeout, trust_env=not local, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def create_stream(self, sql: str, key: str | None = None) -> Object:
        """Declare a stream with a CREATE STREAM statement."""
        return self._object("POST", "/streams", body={"sql": sql}, key=key)

    def streams(self) -> list[Object]:
        """List the streams."""
        return items(self._json("GET", "/streams"), "streams", self.url)

    def stream(self, name: str) -> Object:
        """Read one stream: columns, source, clock, waterline and counts."""
        return self._object("GET", f"/streams/{segment(name)}")

    def drop_stream(self, name: str) -> None:
        """Drop a stream; refused (409) while queries use it."""
        self._send("DELETE", f"/streams/{segment(name)}")

    def push(self, stream: str, events: Events, format: str = "ndjson", key: str | None = None) -> Object:
        """Push tuples; answer `{"accepted", "rejected", "errors"}`.

        `events` is a body in `format`, or dicts (then `format` is not looked at). Times may be
        `datetime`, decimals `Decimal`.
        """
        if format not in MEDIA_TYPES:
            raise ValueError(f"format must be one of {', '.join(MEDIA_TYPES)}, got {format!r}")
        if not isinstance(events, str | bytes):
            format, events = "ndjson", b"".join(_encoded(event) + b"\n" for event in events)
        content = events.encode() if isinstance(events, str) else events
        call: Object = {"content": content, "media_type": MEDIA_TYPES[format], "key": key}
        return self._object("POST", f"/streams/{segment(stream)}/events", **call)

    def dead_letters(self, stream: str, after: str | None = None, limit: int | None = None) -> Object:
        """Read the tuples no query sees: `{"rows", "cursor"}`."""
        query = {"after": after, "limit": limit}
        return self._object("GET", f"/streams/{segment(stream)}/dead-letters", query=query)

    def create_table(self, sql: str, key: str | None = None) -> Object:
        """Declare a static table with a CREATE TABLE statement."""
        return self._object("POST", "/tables", body={"sql": sql}, key=key)

    def tables(self) -> list[Object]:
        """List the static tables."""
        return items(self._json("GET", "/tables"), "tables", self.url)

    def drop_table(self, name: str) -> None:
        """Drop a static table."""
        self._send("DELETE", f"/tables/{segment(name)}")

    def create_query(
        self, sql: str, wait: float | None = None, key: str | None = None, **fields: Unpack[QueryFields]
    ) -> Object:
        """Register one query; with `wait` (seconds) answer once it is RUNNING or the time is up."""
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
            following = answer.get("cursor") if isinstance(answer, dict) else None
            if not following or following == cursor:  # a page may be empty and not the last
                return
            cursor = following

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
        """Have a query see no tuples until it is resumed; windows that are complete still come."""
        return self._object("POST", f"/queries/{segment(query_id)}/pause", key=key)

    def resume_query(self, query_id: str, wait: float | None = None, key: str | None = None) -> Object:
        """Run a paused query again; with `wait` (seconds) answer once it is RUNNING or the time is up."""
        call: Object = {"query": {"wait": wait}, "key": key, "wait": wait}
        return self._object("POST", f"/queries/{segment(query_id)}/resume", **call)

    def delete_query(self, query_id: str, drain: bool = True) -> None:
        """Retire a query; `drain` still lets windows that are complete come out. Harmless to repeat."""
        query = {"drain": "true" if drain else "false"}
        self._send("DELETE", f"/queries/{segment(query_id)}", query=query)

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
        found: list[Object] = []
        while page := items(self._json("GET", "/changelogs", query={"after": after}), "changelogs", self.url):
            if found and page[-1]["epoch"] <= found[-1]["epoch"]:
                break
            found += page
            after = page[-1]["epoch"]
        return found

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
        return ResultPage(rows, after if cursor is None else str(cursor), bool(answer.get("end")))

    def follow(self, query_id: str, after: str | None = None) -> Iterator[Object]:
        """Yield the rows of a query as they come, until it is RETIRED and all is read."""
        for page in self.follow_pages(query_id, after):
            yield from page.rows

    def follow_pages(
        self, query_id: str, after: str | None = None, *, wait: float = 10.0, max_rows: int | None = None
    ) -> Iterator[ResultPage]:
        """Yield pages as they come; each page's cursor is where to go on after it was handled.

        Ends at the `end` of the results or after `max_rows` rows. Raises :class:`BraidQueryFailed` when the
        query is FAILED and all it gave is read, because such a query never reaches its `end`.
        """
        left, failed = max_rows, None
        while left is None or left > 0:
            began = time.monotonic()
            size = 1000 if left is None else min(1000, left)
            page = self.results(query_id, after, size, 0 if failed else wait)
            after = page.cursor
            left = left if left is None else left - len(page.rows)
            if page.rows or page.end:
                yield page
                if page.end:
                    return
                continue
            if failed is not None:
                raise BraidQueryFailed(f"query {query_id} is FAILED: {failed}")
            query = self.query(query_id)
            if query.get("state") == "FAILED":
                # rows may have come between the empty page and this look: read once more before giving up
                failed = str(query.get("error") or "the service gave no reason")
                continue
            time.sleep(max(0.0, began + _SHORTEST_POLL_SECONDS - time.monotonic()))

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content: bytes | None = None,
        media_type: str = MEDIA_TYPES["json"],
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
        wait: float | None = None,
    ) -> httpx.Response:
        content = content if body is None else _encoded(body)
        headers = {} if content is None else {"Content-Type": media_type}
        if key is not None:
            if not (key.isascii() and key.isprintable() and key.strip()):
                raise ValueError(f"an idempotency key must be printable ASCII, got {key!r}")
            headers["Idempotency-Key"] = key
        given = {name: value for name, value in (query or {}).items() if value is not None}
        timeout = httpx.Timeout(self.timeout, read=self.timeout + (wait or 0.0))
        with _translated(self.url):
            answer = self._http.request(
                method, self.url + path, content=content, params=given, headers=headers, timeout=timeout
            )
        if not answer.is_success:
            raise _refusal(answer, body.get("sql") if isinstance(body, dict) else None)
        return answer

    def _json(self, method: str, path: str, **call: Any) -> Any:
        answer = self._send(method, path, **call)
        try:
            return answer.json()
        except ValueError:
            raise _not_braid(self.url, f"{method} {path} gave {answer.text[:80]!r} instead of JSON") from None

    def _object(self, method: str, path: str, **call: Any) -> Object:
        answer = self._json(method, path, **call)
        if not isinstance(answer, dict):
            raise _not_braid(self.url, f"{method} {path} gave {str(answer)[:80]} instead of an object")
        return answer


def query_body(sql: str, **fields: Unpack[QueryFields]) -> Object:
    """Build the body that registers a query, without what is None."""
    return {"sql": sql} | {field: value for field, value in fields.items() if value is not None}


def checked_url(url: str) -> str:
    """Return `url` without a trailing slash; raise ValueError unless it is http(s) with a host."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    port_fits = parsed.port is None or 0 < parsed.port < 65536
    if parsed.scheme not in ("http", "https") or not parsed.host or not port_fits:
        raise ValueError(f"the service's URL must look like {DEFAULT_URL}, got {url!r}")
    return url.rstrip("/")


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Turn whatever httpx raises into BraidUnreachable."""
    try:
        yield
    except httpx.TimeoutException:
        raise BraidUnreachable(url, "no answer came in time") from None
    except (
        httpx.HTTPError,
        httpx.InvalidURL,
        httpx.StreamError,
        httpx.CookieConflict,
        UnicodeError,
    ) as error:
        raise BraidUnreachable(url, str(error) or type(error).__name__) from error


def _ascii(key: str) -> str:
    if not (key.isascii() and key.isprintable() and key.strip() == key and key):
        raise ValueError("an API key must be printable ASCII without spaces around it")
    return key


def _refusal(answer: httpx.Response, sql: str | None) -> BraidRefused:
    problem: Any = None
    with suppress(ValueError):
        problem = answer.json()
    if not isinstance(problem, dict):
        problem = {"detail": answer.text[:200].strip()}
    place = problem["position"] if isinstance(problem.get("position"), dict) else {}
    line, column = place.get("line"), place.get("column")
    retry = answer.headers.get("Retry-After", "")
    return BraidRefused(
        status=answer.status_code,
        title=str(problem.get("title") or answer.reason_phrase),
        detail=str(problem.get("detail") or "no detail was given"),
        position=(line, column) if isinstance(line, int) and isinstance(column, int) else None,
        sql=sql,
        retry_after=float(retry) if retry.isdecimal() else None,
    )


def items(answer: Any, key: str, url: str) -> list[Object]:
    """Take the list out of `{key: […]}`, or a bare list as it is."""
    items = answer.get(key) if isinstance(answer, dict) else answer
    if not isinstance(items, list):
        raise _not_braid(url, f"{str(answer)[:80]} holds no list of {key}")
    return items


def _not_braid(url: str, what: str) -> BraidUnreachable:
    return BraidUnreachable(url, f"what answers there does not speak Braid's REST interface ({what})")


def segment(name: str) -> str:
    # '.' and '..' would be resolved away as path segments, and '' would name the collection
    if name in ("", ".", ".."):
        raise ValueError(f"a name or id must not be {name!r}")
    return quote(name, safe="")


def _encoded(value: Any) -> bytes:
    return json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False).encode()


def _plain(value: Any) -> str:
    if isinstance(value, date | Decimal):  # a datetime is a date too
        return value.isoformat() if isinstance(value, date) else str(value)
    raise TypeError(f"a value must be JSON, a date, a datetime or a Decimal, got {value!r}")
