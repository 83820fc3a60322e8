"""A service in a memory group of its own, what acts of chaos need of it, and a bystander whose rows must be right."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
import pyarrow as pa

from tests.kit.client import Api
from tests.kit.moved_clock import MovedClock
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until
from tests.oracle.driver import Driver
from tests.oracle.model import SECOND, Push
from tests.oracle.test_oracle import ALL, BY_GEM_PACK, SCHEMA, others
from tests.oracle.verify import verify

MEMORY_BYTES = 4 << 30
RECOVERY_SECONDS = 600.0
REQUEST_SECONDS = 120.0
ARROW = "application/vnd.apache.arrow.stream"
START_US = 1_700_000_000_000_000
_GROUPS = Path("/sys/fs/cgroup/memory")  # version 1; version 2 has one file of the same use elsewhere
_UNIFIED = Path("/sys/fs/cgroup")


def arrow_body(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    """Return a record batch as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


class ConfinedService(RunningService):
    """A service whose processes share :data:`MEMORY_BYTES`, where this user may say so; else one without a limit."""

    group: Path | None = None
    clock: MovedClock | None = None

    def command(self) -> list[str]:
        """Return the command line, which puts the process into its group first."""
        if self.group is None:
            self.group = _make_group()
        command = super().command()
        if self.group is None:
            return command
        return ["/bin/sh", "-c", f'echo $$ > {self.group}/cgroup.procs && exec "$@"', "sh", *command]

    def end_everything(self) -> None:
        """End all processes, and the group."""
        super().end_everything()
        if self.group is not None:
            with contextlib.suppress(OSError):
                self.group.rmdir()


def _make_group() -> Path | None:
    name = f"braid-chaos-{uuid.uuid4().hex[:8]}"
    for folder, limit in ((_GROUPS, "memory.limit_in_bytes"), (_UNIFIED, "memory.max")):
        group = folder / name
        try:
            group.mkdir()
            (group / limit).write_text(str(MEMORY_BYTES))
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        return group
    return None


class Arena:
    """What an act works with: a service, requests that may fail, a stream of its own, and chance with a seed."""

    def __init__(self, service: ConfinedService, rng: random.Random) -> None:
        self.service = service
        self.rng = rng
        self.client = httpx.Client(base_url=service.url, timeout=REQUEST_SECONDS)
        self._queries: list[str] = []
        self._streams: list[str] = []

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        """Send one request; None where no answer came, as the service is away or waits for too long."""
        with contextlib.suppress(httpx.TransportError):
            return self.client.request(method, path, **options)
        return None

    def stream(self, columns: str = "k VARCHAR, v BIGINT", options: str = "") -> str:
        """Declare a stream of pushes with these columns and the event time ``time``; return its name."""
        name = f"c_{uuid.uuid4().hex[:10]}"
        sql = (
            f"CREATE STREAM {name} ({columns}, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
            f" WITH (connector = 'push', max_future = 'none'{options})"
        )
        answered = wait_until(lambda: self.ask("POST", "/streams", json={"sql": sql}), RECOVERY_SECONDS, "it answers")
        assert answered.status_code in (201, 429, 503), answered.text
        self._streams.append(name)
        return name

    def query(self, sql: str, **options: Any) -> httpx.Response | None:
        """Register a query and wait for a while until it runs."""
        answered = self.ask("POST", "/queries?wait=10", json={"sql": sql, **options})
        if answered is not None and answered.status_code == 201:
            self._queries.append(answered.json()["id"])
        return answered

    def running(self, sql: str, **options: Any) -> str | None:
        """Register a query, wait until it runs and return its id; None where the service has no room for it."""
        answered = self.query(sql, **options)
        if answered is None or answered.status_code in (429, 503):
            return None
        assert answered.status_code == 201, answered.text
        query = str(answered.json()["id"])
        wait_until(
            lambda: self.answered(f"/queries/{query}").json()["state"] == "RUNNING", RECOVERY_SECONDS, f"{query} runs"
        )
        return query

    def answered(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        """GET what must be there, as often as it takes until the service is there."""

        def answer() -> httpx.Response | None:
            answered = self.ask("GET", path, headers=headers)
            return None if answered is None or answered.status_code in (429, 503) else answered

        answered = wait_until(answer, RECOVERY_SECONDS, f"GET {path} is answered")
        assert answered is not None
        assert answered.status_code == 200, answered.text
        return answered

    def rows_out(self, query: str) -> int:
        """Return how many rows a query has answered."""
        return int(self.answered(f"/queries/{query}").json()["rows_out"])

    def push(self, stream: str, body: bytes, content_type: str = "application/x-ndjson") -> httpx.Response | None:
        """Push a body."""
        return self.ask("POST", f"/streams/{stream}/events", content=body, headers={"Content-Type": content_type})

    def processes(self, *words: str) -> list[psutil.Process]:
        """Return the processes below the service whose command line has all these words."""

        def matches(process: psutil.Process) -> bool:
            line = " ".join(process.cmdline())
            return all(word in line for word in words)

        try:
            return self.service.descendants(matches)
        except psutil.NoSuchProcess:
            return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def leave(self) -> None:
        """Retire what the act registered, and drop its streams."""
        for query in self._queries:
            self.until_done("DELETE", f"/queries/{query}?drain=false")
        for stream in self._streams:
            self.until_done("DELETE", f"/streams/{stream}")
        self._queries, self._streams = [], []

    def until_done(self, method: str, path: str) -> None:
        """Send a request as often as it takes until it is done."""

        def is_done() -> bool:
            answered = self.ask(method, path)
            return answered is not None and answered.status_code not in (409, 429, 500, 503)

        wait_until(is_done, RECOVERY_SECONDS, f"{method} {path} is done")


Act = Callable[[Arena], None]


class Bystander:
    """Queries of somebody else, over a stream of somebody else."""

    def __init__(self, service: RunningService, seed: int) -> None:
        self.api = Api(service.url, on_unreachable=service.revive)
        self.driver = Driver(self.api, SCHEMA)
        self._seed = seed
        self.driver.create([ALL, BY_GEM_PACK, *others()[::4]])
        self.push()

    def push(self) -> None:
        """Send some tuples."""
        self._seed += 1
        self.driver.push(Push(200, seed=self._seed, span=10 * SECOND))

    def settle(self) -> None:
        """Wait until all that was pushed has been read."""
        self.driver.settle(RECOVERY_SECONDS)

    def check(self) -> None:
        """Retire the queries, and hold all their rows to DuckDB's."""
        self.settle()
        self.driver.finish()
        verify(self.driver)
        self.api.drop_created()

    def close(self) -> None:
        """Close the connection."""
        self.api.__exit__(None, None, None)


@contextlib.contextmanager
def bystanding(service: RunningService, seed: int) -> Iterator[Bystander]:
    """Give a bystander who is checked in the end, unless something else failed."""
    bystander = Bystander(service, seed)
    try:
        yield bystander
        service.wait_ready(RECOVERY_SECONDS)
        bystander.check()
    finally:
        bystander.close()


def carry_out(act: Act, service: ConfinedService, seed: int) -> None:
    """Carry out an act beside a bystander, whose tuples go on coming."""
    with Arena(service, random.Random(seed)) as arena, bystanding(service, seed) as bystander:
        act(arena)
        bystander.push()
        bystander.settle()
        arena.leave()
        bystander.push()


def confined(folder: Path, environment: dict[str, str]) -> ConfinedService:
    """Return a service in a folder, not started yet; drains are not given up while it recovers.

    Its clock can be moved, where there is a C compiler.
    """
    clock = MovedClock(folder / "clock") if MovedClock.can_be_had() else None
    moved = {} if clock is None else clock.environment
    settings = {"BRAID_DRAIN_TIMEOUT": "600", **moved, **environment}
    service = ConfinedService(folder / "data", folder / "service.log", settings)
    service.clock = clock
    return service
