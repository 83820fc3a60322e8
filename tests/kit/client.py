"""A thin REST client for tests: httpx, exact numbers, and retries that are safe by Idempotency-Key."""

from __future__ import annotations

import json
import ssl
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from types import TracebackType
from typing import Any

import httpx

from tests.kit.waiting import wait_until

Json = Any
# a request may wait for a service that is killed and started again, on a machine that others use, too
RETRY_SECONDS = 300.0
BUSY = (429, 503)  # the service asks to come again


class RefusedError(AssertionError):
    """The service answered with an error that the test did not expect."""


PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that speak HTTP without TLS: certificates take long to load."""


def parse(text: str | bytes) -> Json:
    """Parse JSON keeping fractions as `Decimal`, so that no digit is lost before the comparison."""
    return json.loads(text, parse_float=Decimal)


class Api:
    """The calls of the contract that tests use.

    Each POST carries an Idempotency-Key and is repeated with the same key while the service is unreachable
    or busy; `on_unreachable` is called before each repetition (a crash test revives the service there).
    """

    def __init__(self, url: str, on_unreachable: Callable[[], None] | None = None) -> None:
        self._client = httpx.Client(base_url=url, timeout=60, verify=PLAIN)
        self._on_unreachable = on_unreachable
        self._streams: list[str] = []
        self._tables: list[str] = []
        self._queries: list[str] = []

    def __enter__(self) -> Api:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send one request, repeated while the service is unreachable or busy."""

        def answer() -> httpx.Response | None:
            try:
                response = self._client.request(method, path, **options)
            except httpx.TransportError:
                if self._on_unreachable is None:
                    raise
                self._on_unreachable()
                return None
            return None if response.status_code in BUSY else response

        response = wait_until(answer, RETRY_SECONDS, f"{method} {path} is answered")
        assert response is not None
        return response

    def call(self, method: str, path: str, expect: int, **options: Any) -> Json:
        """Send one request, check its status, and return the parsed body."""
        response = self.request(method, path, **options)
        if response.status_code != expect:
            raise RefusedError(
                f"{method} {path} must answer {expect}, got {response.status_code}: {response.text[:2000]}"
            )
        return parse(response.content) if response.content else None

    def get(self, path: str, **params: Any) -> Json:
        """GET a JSON body; parameters that are None are left out."""
        return self.call("GET", path, 200, params={k: v for k, v in params.items() if v is not None})

    def create_stream(self, sql: str) -> Json:
        """Declare a stream."""
        stream = self.call("POST", "/streams", 201, json={"sql": sql}, headers=idempotency_key())
        self._streams.append(stream["name"])
        return stream

    def refresh_table(self, name: str) -> Json:
        """Give the rows that a static table's file has now to all queries, and wait until they have them."""
        path, waits = f"/tables/{name}/refresh", {"wait": 60}
        return self.call("POST", path, 202, params=waits, headers=idempotency_key())

    def create_table(self, sql: str) -> Json:
        """Declare a static table."""
        table = self.call("POST", "/tables", 201, json={"sql": sql}, headers=idempotency_key())
        self._tables.append(table["name"])
        return table

    def stream(self, name: str) -> Json:
        """Return what the service reports of a stream."""
        return self.get(f"/streams/{name}")

    def push(self, name: str, content_type: str, body: bytes, key: str | None = None) -> Json:
        """Push encoded tuples and return `{"accepted", "rejected", "errors"}`."""
        headers = {"Content-Type": content_type, **idempotency_key(key)}
        return self.call("POST", f"/streams/{name}/events", 200, content=body, headers=headers)

    def create_queries(
        self, bodies: list[dict[str, Json]], wait: float = 30, key: str | None = None
    ) -> list[dict[str, Json]]:
        """Register queries in one request (all or none) and return their descriptions in order."""
        one_or_many: Json = bodies[0] if len(bodies) == 1 else bodies
        answer = self.call(
            "POST",
            "/queries",
            201,
            json=one_or_many,
            params={"wait": wait},
            headers=idempotency_key(key),
            timeout=wait + 60,
        )
        created = [answer] if len(bodies) == 1 else items(answer, "queries")
        assert len(created) == len(bodies), f"{len(bodies)} queries must be registered, got {len(created)}"
        self._queries += [query["id"] for query in created]
        return created

    def drop_created(self) -> None:
        """Retire the queries that were created here, and drop streams and tables: a service works for what is left."""
        for query in self._queries:
            self.request("DELETE", f"/queries/{query}", params={"drain": "false", "cascade": "true"})
        for query in self._queries:
            wait_until(lambda query=query: self._is_gone(query), RETRY_SECONDS, f"query {query} has ended")
        for stream in self._streams:
            self.request("DELETE", f"/streams/{stream}")  # a test may have done so, or have other queries over it
        for table in self._tables:
            self.request("DELETE", f"/tables/{table}")  # the same holds for these

    def _is_gone(self, query_id: str) -> bool:
        answer = self.request("GET", f"/queries/{query_id}")
        return answer.status_code != 200 or answer.json()["state"] in ("RETIRED", "FINISHED", "FAILED")

    def query(self, query_id: str) -> Json:
        """Return what the service reports of a query."""
        return self.get(f"/queries/{query_id}")

    def queries(self) -> Iterator[Json]:
        """Walk over all queries, page by page."""
        cursor: str | None = None
        while True:
            page = self.get("/queries", limit=200, cursor=cursor)
            yield from items(page, "queries")
            cursor = page.get("cursor") if isinstance(page, dict) else None
            if not cursor:
                return

    def delete_query(self, query_id: str, drain: bool = True) -> None:
        """Retire a query."""
        self.call("DELETE", f"/queries/{query_id}", 202, params={"drain": str(drain).lower()})

    def change(self, method: str, path: str, expect: int, body: Json = None, key: str | None = None) -> Json:
        """Change a query, once whatever is repeated, and return its description."""
        return self.call(method, path, expect, json=body, headers=idempotency_key(key))

    def wait_state(self, query_id: str, *states: str, deadline_seconds: float = RETRY_SECONDS) -> Json:
        """Wait until a query is in one of the states and return its description."""
        description: dict[str, Json] = {}

        def reached() -> bool:
            description.update(self.query(query_id))
            if description["state"] == "FAILED" and "FAILED" not in states:
                raise RefusedError(f"query {query_id} must become {states}, it FAILED: {description['error']!r}")
            return description["state"] in states

        wait_until(reached, deadline_seconds, lambda: f"query {query_id} is {states}, it is {description['state']!r}")
        return description

    def wait_deleted(self, query_id: str, deadline_seconds: float = RETRY_SECONDS) -> Json:
        """Wait until a deletion is active, that is, until `active_to` is decided, and return the description."""
        description: dict[str, Json] = {}

        def reached() -> bool:
            description.update(self.query(query_id))
            return description["state"] == "RETIRED" or None not in description["active_to"].values()

        wait_until(reached, deadline_seconds, lambda: f"query {query_id} has an active_to, it is {description!r}")
        return description

    def page(self, query_id: str, after: str | None = None, limit: int = 2000, wait: float | None = None) -> Json:
        """Return one page of results: `{"rows", "cursor", "end"}`."""
        return self.get(f"/queries/{query_id}/results", after=after, limit=limit, wait=wait)

    def dead_letters(self, name: str, limit: int = 500) -> Iterator[list[Json]]:
        """Walk over the pages of a stream's dead letters."""
        cursor: str | None = None
        while True:
            page = self.get(f"/streams/{name}/dead-letters", after=cursor, limit=limit)
            if not page["rows"]:
                return
            assert len(page["rows"]) <= limit, f"a page holds at most {limit} rows, got {len(page['rows'])}"
            yield page["rows"]
            cursor = page["cursor"]


def idempotency_key(key: str | None = None) -> dict[str, str]:
    """Return the header of a key, a new one if none is given."""
    return {"Idempotency-Key": key or str(uuid.uuid4())}


def items(body: Json, name: str) -> list[Json]:
    """Return the list of an answer that is a list, or that holds it under a name."""
    return list(body) if isinstance(body, list) else list(body[name])
