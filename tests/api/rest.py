"""A real session and REST interface on a folder, without Spark: batches are written by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import uvicorn
from httpx import Client, Response

from braid.api.app import create_app
from braid.api.serve import open_port, server_config
from braid.api.service import Service
from braid.session.settings import Settings
from braid.session.shared_session import SharedSession
from braid.sources.core.schema import StreamSchema
from braid.sources.core.storage import Storage
from tests.api.described import Description
from tests.kit.client import PLAIN
from tests.kit.waiting import wait_until
from tests.router.batches import SECOND, BatchWriter

STREAM = (
    "CREATE STREAM purchases (user_id BIGINT, pack INT, price DOUBLE, amount DECIMAL(10,2), note VARCHAR, day DATE,"
    " gift BOOLEAN, time TIMESTAMP LATENESS INTERVAL '2' SECOND) WITH (connector = 'push', format = 'json')"
)
ALL = "SELECT * FROM purchases"
SUMS = "SELECT pack, SUM(user_id) AS total FROM purchases [RANGE 8 SECONDS SLIDE 4 SECONDS] GROUP BY pack"
NDJSON = "application/x-ndjson"


class Rest:
    """The service, a client of it, and the hand that writes batches."""

    def __init__(self, folder: Path, client: Client, service: Service) -> None:
        self.folder = folder
        self.client = client
        self.service = service
        self.batches = BatchWriter(service.storage)

    def get(self, path: str, expect: int = 200, **options: Any) -> Any:
        """GET JSON."""
        return self.read(self.client.get(path, **options), expect)

    def post(self, path: str, body: Any, expect: int = 201, **options: Any) -> Any:
        """POST JSON and read JSON."""
        return self.read(self.client.post(path, json=body, **options), expect)

    def read(self, response: Response, expect: int) -> Any:
        """Check the status and return the JSON body."""
        assert response.status_code == expect, response.text
        return orjson.loads(response.content) if response.content else None

    def stream(self, sql: str = STREAM) -> Any:
        """Declare a stream."""
        return self.post("/streams", {"sql": sql})

    def query(self, sql: str = ALL, **fields: Any) -> Any:
        """Register a query and run it."""
        query = self.post("/queries", {"sql": sql, **fields})
        return self.run(query["id"])

    def run(self, query_id: str) -> Any:
        """Commit the batch that makes a query RUNNING."""
        wait_until(lambda: self.get(f"/queries/{query_id}")["epoch"], 10, "the query has an epoch")
        self.commit()
        return self.get(f"/queries/{query_id}")

    def commit(self, **changes: Any) -> dict[str, Any]:
        """Commit a batch at the newest epoch and wait until the service has applied it."""
        now_us = time.time_ns() // 1000
        times = {"started_us": now_us - SECOND // 2, "committed_us": now_us}
        record = self.batches.commit(self.service.session.epoch, **{**times, **changes})
        wait_until(lambda: self.service.session.applied_seq >= record["seq"], 10, "the batch is applied")
        wait_until(lambda: self.service.results.index.latest >= record["seq"], 10, "the batch is visible")
        return record

    def schema(self, name: str = "purchases") -> StreamSchema:
        """Return the schema of a stream."""
        return self.service.session.streams.definition(name).schema

    def select(self, rows: Sequence[Mapping[str, Any]], slots: Sequence[int], name: str = "purchases") -> None:
        """Commit a batch in which all of ``rows`` belong to each of ``slots``."""
        definition = self.service.session.streams.definition(name)
        tuples = pa.Table.from_pylist([dict(row) for row in rows], schema=definition.schema.arrow)
        block = self.batches.selection(definition.id, tuples, [set(slots)] * len(rows))
        self.commit(results=[block])

    def retire(self, query_id: str) -> None:
        """Delete a query and commit the batch that retires it."""
        assert self.client.delete(f"/queries/{query_id}?drain=false").status_code == 202
        self.wait_freed(query_id)
        self.commit()
        assert self.get(f"/queries/{query_id}")["state"] == "RETIRED"

    def wait_freed(self, query_id: str) -> None:
        """Wait for the changelog that frees the slot of a query."""
        session = self.service.session
        wait_until(lambda: session.lookup.deployed(query_id).deployments[-1].freed_epoch, 10, f"{query_id} is freed")

    def everything(self) -> dict[str, Any]:
        """Return the answer of every GET, to compare before and after; what only time changes is left out."""
        paths = ["/streams", "/tables", "/queries", "/plan", "/changelogs"]
        paths += [f"/streams/{s['name']}/dead-letters" for s in self.get("/streams")["streams"]]
        for query in self.get("/queries")["queries"]:
            paths += [f"/queries/{query['id']}{end}" for end in ("", "/plan", "/results")]
        pushed = {str(path.relative_to(self.folder)): path.stat().st_size for path in self.folder.glob("streams/**/*")}
        return {path: self.get(path) for path in paths} | {"pushed": pushed}


@contextmanager
def open_rest(folder: Path, why_not_ready: str | None = None, **settings: Any) -> Iterator[Rest]:
    """Run a service on a folder; each answer that the client gets must be as the OpenAPI document says."""
    storage = Storage(str(folder))
    chosen = Settings(data_dir=str(folder), **{"changelog_timeout_seconds": 0.05, **settings})
    session = SharedSession(storage, chosen)
    service = Service.assemble(session, storage, chosen, lambda: why_not_ready)
    service.start()
    try:
        hooks = {"response": [description(service).check]}
        with answering(service) as url, Client(base_url=url, timeout=30, event_hooks=hooks, verify=PLAIN) as client:
            yield Rest(folder, client, service)
    finally:
        service.close()


_description: Description | None = None


def description(service: Service) -> Description:
    """Return what the OpenAPI document says, which is the same of all services."""
    global _description
    if _description is None:
        _description = Description(create_app(service).openapi())
    return _description


@contextmanager
def answering(service: Service) -> Iterator[str]:
    """Answer REST on a free port of this machine."""
    with open_port("127.0.0.1", 0) as listener:
        server = uvicorn.Server(server_config(service))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started, 10, "the server answers")
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            service.notifier.stop()
            server.should_exit = True
            thread.join()


def tuple_at(second: float, **values: Any) -> dict[str, Any]:
    """Return a tuple of the test stream at a number of seconds since 1970."""
    return {"time": round(second * SECOND), **values}
