"""A small HTTP service that plays back answers shaped as the contract says, for the client and the command line.

It runs in a thread on a free port of 127.0.0.1, over real HTTP. It keeps streams, queries and result rows in
memory, long-polls, honours `Idempotency-Key`, and records every request. It knows no SQL: a test says what
comes, with `emit`, `retire`, `fail` and `play`.
"""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import uvicorn
from click.testing import Result
from fastapi import FastAPI, Request, Response

Braid = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[bytes]"]

DEADLINE_SECONDS = 60.0
LAST_EPOCH = 7
STREAM = {
    "name": "purchases",
    "columns": [{"name": "user_id", "type": "BIGINT"}, {"name": "time", "type": "TIMESTAMP"}],
    "source": {"connector": "push", "format": "json"},
    "lateness_seconds": 1.5,
    "clock": "2026-01-01T00:00:04.000000Z",
    "watermark": "2026-01-01T00:00:02.500000Z",
    "tuples": 7,
    "late": 1,
    "malformed": 2,
}
PLAN = {
    "nodes": [
        {"id": "s1", "kind": "stream", "label": "purchases"},
        {"id": "a1", "kind": "aggregate", "label": "aggregate by gem_pack", "queries": 2},
        {"id": "q-1", "kind": "query", "label": "q-1"},
        {"id": "q-2", "kind": "query", "label": "q-2"},
    ],
    "edges": [
        {"source": "s1", "target": "a1"},
        {"source": "a1", "target": "q-1"},
        {"source": "a1", "target": "q-2"},
    ],
}


@dataclass(frozen=True)
class Recorded:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


def problem(status: int, title: str, detail: str, **fields: Any) -> Response:
    """Build a problem+json answer."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail} | fields
    return Response(json.dumps(body), status, media_type="application/problem+json")


def answer(body: Any, status: int = 200) -> Response:
    """Build a JSON answer."""
    return Response(orjson.dumps(body), status, media_type="application/json")


class Playback:
    """The service's state; every change wakes whoever waits for one."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.requests: list[Recorded] = []
        self.queries: dict[str, dict[str, Any]] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.played: deque[Response] = deque()
        self.first_outcomes: dict[str, dict[str, Any]] = {}
        self.hold_registrations = False
        self.closing = False
        self.url = ""

    def emit(self, query_id: str, *rows: dict[str, Any]) -> None:
        """Add result rows to a query."""
        with self.changed:
            self.rows[query_id].extend(rows)
            self.queries[query_id]["rows_out"] += len(rows)
            self.changed.notify_all()

    def set_state(self, query_id: str, state: str, error: str | None = None) -> None:
        """Move a query to a state."""
        with self.changed:
            self.queries[query_id].update(state=state, error=error)
            self.changed.notify_all()

    def retire_readers(self, name: str) -> None:
        """Retire the queries that read a stream or a query."""
        for query_id, query in self.queries.items():
            if name in query["sql"].split():
                self.set_state(query_id, "RETIRED")

    def play(self, *answers: Response) -> None:
        """Give these answers to the next requests, whatever they ask."""
        self.played.extend(answers)

    def add_query(self, body: dict[str, Any]) -> dict[str, Any]:
        """Register a query that is RUNNING at once, and one with a start CATCHING_UP."""
        with self.changed:
            query_id = f"q-{len(self.queries) + 1}"
            query = {
                "id": query_id,
                "name": body.get("name"),
                "sql": body["sql"],
                "state": "CATCHING_UP" if body.get("start") else "RUNNING",
                "progress": {"purchases": {"read": 6, "left": 94}} if body.get("start") else None,
                "labels": body.get("labels", {}),
                "sink": body.get("sink"),
                "created_at": "2026-01-01T00:00:00.000000Z",
                "deployment_latency_seconds": 0.84,
                "event_time_latency_seconds": None,
                "rows_out": 0,
                "error": None,
            }
            self.queries[query_id] = query
            self.rows[query_id] = []
            self.changed.notify_all()
            return query

    def id_of(self, id_or_name: str) -> str:
        """Return the id of a query by its id, or the newest by its name; what no query has stays as it is."""
        named = [query_id for query_id, query in self.queries.items() if query["name"] == id_or_name]
        return named[-1] if named else id_or_name

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Block until the condition holds; fail after a deadline."""
        with self.changed:
            assert self.changed.wait_for(condition, DEADLINE_SECONDS), [
                (request.method, request.path) for request in self.requests
            ]

    def asked(self, method: str, path: str) -> list[Recorded]:
        """Return the recorded requests of one kind."""
        return [request for request in self.requests if (request.method, request.path) == (method, path)]

    def last(self) -> Recorded:
        """Return the last recorded request."""
        return self.requests[-1]


def build_app(service: Playback) -> FastAPI:
    """Wire the state to the paths of the contract."""
    app = FastAPI()

    @app.middleware("http")
    async def record(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        recorded = Recorded(
            request.method,
            request.scope["raw_path"].decode(),
            dict(request.query_params),
            dict(request.headers),
            await request.body(),
        )
        with service.changed:
            service.requests.append(recorded)
            service.changed.notify_all()
        return service.played.popleft() if service.played else await call_next(request)

    @app.get("/queries/{query_id}/results")
    def results(query_id: str, after: int = 0, limit: int = 1000, wait: float = 0.0) -> Response:
        query_id = service.id_of(query_id)
        with service.changed:
            if query_id not in service.queries:
                return problem(404, "Not Found", f"There is no query {query_id!r}.")

            def ready() -> bool:
                retired = service.queries[query_id]["state"] in ("RETIRED", "FINISHED", "FAILED")
                return len(service.rows[query_id]) > after or retired or service.closing

            service.changed.wait_for(ready, wait)
            rows = service.rows[query_id][after : after + limit]
            cursor = after + len(rows)
            has_ended = service.queries[query_id]["state"] in ("RETIRED", "FINISHED")
            is_over = has_ended and cursor == len(service.rows[query_id])
        return answer({"rows": rows, "cursor": str(cursor), "end": is_over})

    @app.get("/queries/{query_id}/plan")
    def plan(query_id: str, format: str = "json") -> Response:
        query_id = service.id_of(query_id)
        if format == "dot":
            return Response(f"digraph {{ s1 -> {query_id} }}\n", media_type="text/vnd.graphviz")
        return answer(PLAN)

    @app.post("/queries/validate")
    async def validate(request: Request) -> Response:
        return answer({"sql": (await request.json())["sql"], "operator": "aggregate", "plan": PLAN})

    @app.post("/queries")
    def create(request: Request) -> Response:
        body = service.asked("POST", "/queries")[-1].json
        key = request.headers.get("Idempotency-Key")
        with service.changed:
            if isinstance(body, list):
                return answer([service.add_query(query_body) for query_body in body], 201)
            query = service.first_outcomes.get(key or "") or service.add_query(body)
            if key:
                service.first_outcomes[key] = query
            service.changed.wait_for(lambda: not service.hold_registrations or service.closing)
        return answer(query, 201)

    @app.get("/queries")
    def list_queries(state: str | None = None, cursor: int = 0, limit: int = 2) -> Response:
        matches = [query for query in service.queries.values() if state in (None, query["state"])]
        page, later = matches[cursor : cursor + limit], matches[cursor + limit :]
        return answer({"queries": page, "cursor": str(cursor + limit) if later else None})

    @app.post("/queries/retire")
    def retire_many() -> Response:
        ids = service.asked("POST", "/queries/retire")[-1].json["ids"]
        for query_id in ids:
            service.set_state(query_id, "RETIRED")
        return answer([service.queries[query_id] for query_id in ids], 202)

    @app.get("/queries/{query_id}")
    def read(query_id: str) -> Response:
        query_id = service.id_of(query_id)
        if query_id not in service.queries:
            return problem(404, "Not Found", f"There is no query {query_id!r}.")
        return answer(service.queries[query_id])

    @app.delete("/queries/{query_id}")
    def retire(query_id: str, cascade: bool = False) -> Response:
        query_id = service.id_of(query_id)
        if query_id not in service.queries:
            return problem(404, "Not Found", f"There is no query {query_id!r}.")
        service.set_state(query_id, "RETIRED")
        if cascade:
            service.retire_readers(str(service.queries[query_id]["name"]))
        return answer(service.queries[query_id], 202)

    @app.get("/streams")
    def list_streams() -> Response:
        return answer({"streams": [STREAM]})

    @app.get("/streams/{name}")
    def stream(name: str) -> Response:
        if name != STREAM["name"]:
            return problem(404, "Not Found", f"There is no stream {name!r}; there is 'purchases'.")
        return answer(STREAM)

    @app.post("/streams/{name}/events")
    async def push(name: str, request: Request, first: int = 1) -> Response:
        lines = (await request.body()).splitlines()
        malformed = [number for number, line in enumerate(lines, first) if not line.startswith(b"{")]
        errors = [{"line": number, "detail": "not an object"} for number in malformed]
        if name != STREAM["name"]:
            return problem(404, "Not Found", f"There is no stream {name!r}; there is 'purchases'.")
        return answer({"accepted": len(lines) - len(malformed), "rejected": len(malformed), "errors": errors})

    @app.get("/streams/{name}/dead-letters")
    def dead_letters(name: str) -> Response:
        row = {"reason": "late", "detail": name, "received_at": STREAM["clock"], "tuple": {}, "raw": None}
        return answer({"rows": [row], "cursor": "1"})

    table = {"name": "packs", "columns": [{"name": "gem_pack", "type": "INT"}], "queries": 3, "refreshed_at": None}

    @app.get("/tables")
    def list_tables() -> Response:
        return answer([table])

    @app.get("/tables/{name}")
    def one_table(name: str) -> Response:
        return answer(table | {"name": name})

    @app.post("/tables/{name}/refresh")
    def refresh(name: str, wait: float = 0) -> Response:
        if name == "busy":
            return problem(422, "Not allowed", "The file of table 'busy' must be readable.")
        return answer({"name": name, "queries": 2, "refreshing": wait < 1}, 202)

    @app.post("/streams")
    @app.post("/tables")
    @app.post("/sql")
    def statement() -> Response:
        return answer({"name": "purchases", "state": "declared"}, 201)

    @app.delete("/streams/{name}")
    @app.delete("/tables/{name}")
    def forget(name: str, cascade: bool = False) -> Response:
        if cascade:
            service.retire_readers(name)
        return problem(409, "Conflict", f"{name!r} is in use.") if name == "busy" else Response(status_code=204)

    @app.get("/changelogs")
    def changelogs(after: int = 0) -> Response:
        page = [{"epoch": after + 1, "created": ["q-1"], "deleted": []}] if after < LAST_EPOCH else []
        return answer({"changelogs": page})

    return app


@contextmanager
def running() -> Iterator[Playback]:
    """Run the service for the length of a test."""
    service = Playback()
    config = uvicorn.Config(build_app(service), log_level="error", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        service.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            # uvicorn offers no event to wait on for its start
            deadline = time.monotonic() + DEADLINE_SECONDS
            while not server.started:
                assert thread.is_alive()
                assert time.monotonic() < deadline
                thread.join(0.01)
            yield service
        finally:
            with service.changed:
                service.closing = True
                service.changed.notify_all()
            server.should_exit = True
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()
