"""Carry out a run against a service through REST and note what an outsider can observe."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from tests.kit.client import Api
from tests.kit.waiting import wait_until
from tests.oracle.compare import Pushed
from tests.oracle.model import (
    SECOND,
    SEQUENCE,
    Aggregation,
    Create,
    Delete,
    Pause,
    Push,
    Query,
    Replace,
    Resume,
    Row,
    Run,
    Step,
    StreamSchema,
    from_micros,
    micros,
)
from tests.oracle.recompute import Life
from tests.oracle.tuples import closing_tuple, make_tuples
from tests.oracle.wire import CONTENT_TYPES, encode, parse_time

SETTLE_SECONDS = 60.0
FOLLOWED = 3  # queries whose results are also read page by page while the run goes on

Json = dict[str, Any]
Disturb = Callable[[Step], AbstractContextManager[None]]


@dataclass
class Registered:
    """A query in the service, what was known around its registration, and what it answered.

    `clock_before` and `newest_after` bound the `active_from` it can have got; both in microseconds. `ran_on` is the
    query that ran when it was replaced by this one. `marks` are how many rows of a changelog there were when a pause
    was over.
    """

    query: Query
    id: str
    clock_before: int | None
    newest_after: int | None
    deleted: bool = False
    paused: bool = False
    ran_on: Registered | None = None
    marks: list[int] = field(default_factory=list)
    info: Json = field(default_factory=dict)
    cursor: str | None = None
    followed: list[Json] = field(default_factory=list)
    rows: list[Json] = field(default_factory=list)

    @property
    def emits_changes(self) -> bool:
        """Whether it answers changes."""
        return isinstance(self.query, Aggregation) and bool(self.query.emit)

    def lives(self, stream: str) -> list[Life]:
        """Return when the query was active, as the service reports it: once for each time that it was deployed."""
        current = [] if self.info["epoch"] is None else [self.info]
        return [_life(deployment, stream, self.deleted) for deployment in [*self.info["deployments"], *current]]

    def life(self, stream: str) -> Life:
        """Return when a query that was never paused was active."""
        (life,) = self.lives(stream)
        return life


def _life(reported: Json, stream: str, ended: bool) -> Life:
    texts = [reported[name].get(stream) for name in ("active_from", "active_to")]
    active_from, active_to = (None if text is None else parse_time(text) for text in texts)
    return Life(active_from, active_to, ended)


class Driver:
    """One stream of the service, and all that a test did to it."""

    def __init__(self, api: Api, schema: StreamSchema, *, follow: int = FOLLOWED) -> None:
        """Create the stream, under a name of its own."""
        self.api = api
        self.schema = schema
        self.stream = f"s_{uuid.uuid4().hex[:12]}"
        self.pushes: list[Pushed] = []
        self.queries: list[Registered] = []
        self.newest: int | None = None
        self.info: Json = {}
        self.late: set[int] = set()
        self._sequence = 0
        self._follow = follow
        api.create_stream(schema.sql(self.stream))

    @property
    def tuples(self) -> list[Row]:
        """All tuples pushed so far."""
        return [row for push in self.pushes for row in push.tuples]

    @property
    def running(self) -> list[Registered]:
        """The queries not yet deleted, oldest first."""
        return [registered for registered in self.queries if not registered.deleted]

    def carry_out(self, run: Run, disturb: Disturb = lambda _: nullcontext()) -> None:
        """Take every step of a run; `disturb` wraps each one."""
        for step in run.steps:
            with disturb(step):
                match step:
                    case Push():
                        self.push(step)
                    case Create():
                        self.create(step.queries)
                    case Delete():
                        self.delete(_chosen(self.running, step.positions))
                    case Pause():
                        self.pause(
                            _chosen([r for r in self.running if not (r.paused or r.emits_changes)], step.positions)
                        )
                    case Resume():
                        self.resume(_chosen([r for r in self.running if r.paused], step.positions))
                    case Replace():
                        for replaced in _chosen(self.running, (step.position,)):
                            self.replace(replaced, step.query)
            self.poll()

    def push(self, push: Push) -> Sequence[Row]:
        """Make the tuples of a push and send them."""
        watermark = self.settle() if push.settle and self.pushes else None
        rows = make_tuples(self.schema, push, self.newest, self._sequence)
        self.send(rows, push.format, watermark)
        return rows

    def send(
        self,
        rows: Sequence[Row],
        form: Literal["ndjson", "json", "arrow"] = "ndjson",
        watermark: dt.datetime | None = None,
        key: str | None = None,
    ) -> Json:
        """Send tuples in one request; every one must be accepted. Returns the answer."""
        body = encode(self.schema, rows, form)
        answer: Json = self.api.push(self.stream, CONTENT_TYPES[form], body, key)
        assert (answer["accepted"], answer["rejected"]) == (len(rows), 0), (
            f"all {len(rows)} tuples pushed as {form} must be accepted, got {answer!r}"
        )
        self.pushes.append(Pushed(tuple(rows), watermark))
        self._sequence += len(rows)
        times = [micros(row[self.schema.event_time]) for row in rows]  # type: ignore[arg-type]
        self.newest = max(times if self.newest is None else [*times, self.newest])
        return answer

    def settle(self, deadline_seconds: float = SETTLE_SECONDS) -> dt.datetime:
        """Wait until the clock has reached everything pushed; return the watermark then reported."""
        assert self.newest is not None, "push before settling"
        newest = from_micros(self.newest)

        def reached() -> bool:
            self.info = self.api.stream(self.stream)
            return self.info["clock"] is not None and parse_time(self.info["clock"]) >= newest

        wait_until(
            reached,
            deadline_seconds,
            lambda: f"the clock of {self.stream} reaches {newest.isoformat()}, it reports {self.info!r}",
        )
        return parse_time(self.info["watermark"])

    def create(self, queries: Sequence[Query], wait: float = 30) -> list[Registered]:
        """Register queries in one request and wait until all run."""
        clock = self.api.stream(self.stream)["clock"]
        before = None if clock is None else micros(parse_time(clock))
        bodies = [
            {"sql": query.sql(self.stream, self.schema), "name": self._name(i)} for i, query in enumerate(queries)
        ]
        answers = self.api.create_queries(bodies, wait=wait)
        created = []
        for query, answer in zip(queries, answers, strict=True):
            info = answer if answer["state"] == "RUNNING" else self.api.wait_state(answer["id"], "RUNNING")
            created.append(Registered(query, info["id"], before, self.newest, info=info))
        self.queries += created
        return created

    def adopt(self, query: Query, query_id: str) -> Registered:
        """Take over a query on this stream that a test registered by itself, once it runs."""
        info = self.api.wait_state(query_id, "RUNNING")
        registered = Registered(query, query_id, None, self.newest, info=info)
        self.queries.append(registered)
        return registered

    def pause(self, chosen: Sequence[Registered]) -> None:
        """Pause queries."""
        for registered in chosen:
            self.api.change("POST", f"/queries/{registered.id}/pause", 202)
            registered.paused = True

    def resume(self, chosen: Sequence[Registered]) -> None:
        """Resume queries; one that answers changes has to have drained, so that those of each deployment are known."""
        for registered in chosen:
            if registered.emits_changes:
                query = partial(self.api.query, registered.id)
                wait_until(lambda query=query: query()["slot"] is None, SETTLE_SECONDS, f"{registered.id} has drained")  # type: ignore[misc]
                registered.marks.append(len(self.api.page(registered.id, limit=100_000)["rows"]))
            self.api.change("POST", f"/queries/{registered.id}/resume", 202)
            registered.paused = False

    def replace(self, replaced: Registered, query: Query) -> Registered:
        """Put a query in the place of another, and wait until it runs."""
        clock = self.api.stream(self.stream)["clock"]
        before = None if clock is None else micros(parse_time(clock))
        ran = self.api.query(replaced.id)["state"] == "RUNNING"
        body = {"sql": query.sql(self.stream, self.schema), "name": self._name(0)}
        answer = self.api.change("PUT", f"/queries/{replaced.id}", 201, body)
        assert answer["replaces"] == replaced.id
        info = self.api.wait_state(answer["id"], "RUNNING")
        replacement = Registered(query, info["id"], before, self.newest, ran_on=replaced if ran else None, info=info)
        replaced.deleted = True
        self.queries.append(replacement)
        return replacement

    def _name(self, position: int) -> str:
        return f"{self.stream}_q{len(self.queries) + position}"

    def delete(self, chosen: Sequence[Registered]) -> None:
        """Delete queries with drain."""
        for registered in chosen:
            self.api.delete_query(registered.id)
            registered.deleted = True

    def poll(self) -> None:
        """Read on where the last poll of each followed query ended."""
        for registered in self.queries[: self._follow]:
            page = self.api.page(registered.id, after=registered.cursor, limit=97)
            registered.followed += page["rows"]
            registered.cursor = page["cursor"]

    def finish(self) -> None:
        """Move the watermark beyond every window, retire every query, and read all there is to read.

        First one tuple far ahead makes the running queries' last windows due; then they are deleted, which
        sets their `active_to` to that tuple's time; then another one moves the watermark past it.
        """
        assert self.newest is not None, "push before finishing"
        windows = [r.query.window for r in self.queries if isinstance(r.query, Aggregation)]
        longest = max((window.size + window.slide for window in windows), default=SECOND)
        self.close(self.newest + self.schema.lateness + longest + 1)
        self.settle()
        self.delete(self.running)
        self.retire()

    def close(self, time: int) -> None:
        """Push one tuple at a time, in microseconds, that only moves the clock."""
        self.send([closing_tuple(self.schema, time, self._sequence)])

    def retire(self) -> None:
        """Let every deleted query drain, then read the results and the dead letters."""
        assert self.newest is not None, "push before retiring"
        deleted = [registered for registered in self.queries if registered.deleted]
        for registered in deleted:
            self.api.wait_deleted(registered.id)
        self.close(self.newest + self.schema.lateness + SECOND)
        self.settle()
        for registered in deleted:
            registered.info = self.api.wait_state(registered.id, "RETIRED")
            registered.rows = self.read(registered)
        self.late = self.read_late()
        self.info = self.api.stream(self.stream)

    def read(self, registered: Registered, limit: int = 2000) -> list[Json]:
        """Read all rows of a retired query, page by page until `end`."""
        rows: list[Json] = []
        cursor: list[str | None] = [None]

        def ended() -> bool:
            page = self.api.page(registered.id, after=cursor[0], limit=limit, wait=1)
            rows.extend(page["rows"])
            cursor[0] = page["cursor"]
            while page["rows"] and not page["end"]:
                page = self.api.page(registered.id, after=cursor[0], limit=limit, wait=1)
                rows.extend(page["rows"])
                cursor[0] = page["cursor"]
            return bool(page["end"])

        wait_until(ended, SETTLE_SECONDS, f"the results of retired query {registered.id} come to an end")
        return rows

    def read_late(self) -> set[int]:
        """Return the sequence numbers in the dead letters, each there once, all of them late."""
        letters = [letter for page in self.api.dead_letters(self.stream) for letter in page]
        for letter in letters:
            assert letter["reason"] == "late", f"only late tuples were pushed, got the dead letter {letter!r}"
        numbers = [letter["tuple"][SEQUENCE] for letter in letters]
        assert len(set(numbers)) == len(numbers), "a late tuple must be in the dead letters once, some are twice"
        return set(numbers)


def _chosen(queries: list[Registered], positions: Sequence[int]) -> list[Registered]:
    """Return the queries at some positions, which begin anew beyond the last, each once."""
    return [queries[position] for position in sorted({position % len(queries) for position in positions if queries})]
