"""One query's record: what was asked, where it runs, and how far it has got.

Lifecycle::

    PAUSED ──► PENDING ──► (CATCHING_UP ──►) RUNNING ──► DRAINING ──► RETIRED
     ▲   │        │               │             │            ▲
     └───┼────────┴───────────────┴─────────────┘            │
         └───────────────────────────────────────────────────┘

A query is PENDING until the first batch that has its epoch begins. It is CATCHING_UP while it reads the past by replays
(:mod:`braid.sources.core.replays`), until each has joined the stream that it replays. It is DRAINING from the accepted
deletion on, RETIRED once it has drained (or was deleted when there was nothing to drain). From an accepted pause on it
is PAUSED: it drains in the same way, and then it has no slot. Resumed, it waits until it has drained, and begins a new
*deployment*, with a slot and an epoch; ``deployments`` has the earlier ones. It is FINISHED once all its streams have
ended and all rows are there. It may become FAILED whenever it has a slot. Only
:mod:`braid.session.state.session_state` and :mod:`braid.session.state.lifecycle` call the methods that change a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import orjson

from braid.operators.live_queries import UNGROUPED, seen_after
from braid.operators.queries import Query, query_from_json
from braid.router.deployment import Deployment, EventTimes
from braid.session.state.catalog import is_hidden
from braid.session.state.sharing import shared, shared_dict
from braid.session.state.times import rfc3339
from braid.sources.core.latency import latency_us
from braid.sources.core.names import composed
from braid.sources.core.replays import is_replay, origin_of, query_of

PENDING, CATCHING_UP, RUNNING, PAUSED, DRAINING, RETIRED, FINISHED, FAILED = STATES = (
    "PENDING",
    "CATCHING_UP",
    "RUNNING",
    "PAUSED",
    "DRAINING",
    "RETIRED",
    "FINISHED",
    "FAILED",
)
FINAL_STATES = RETIRED, FINISHED, FAILED

Times = dict[str, int | None]


@dataclass(slots=True)
class QueryRecord:
    """All that is known of a query: its *head*, which never changes, and its progress.

    Times are microseconds; ``active_from`` and ``active_to`` are event times by stream id, None before they are
    decided. ``epoch``, ``deleted_epoch`` and ``freed_epoch`` are those of the changelogs that created, deleted and
    freed it, ``retiring_us`` is when its deletion was accepted; ``group`` is its query group in the newest batch,
    ``UNGROUPED`` for none. ``first_seq`` is the batch that made it RUNNING, ``last_seq`` the last one that may have
    rows of it: the batch that retired or failed it, or with which it had drained. All of this is of its current or last
    deployment; ``is_ending`` says that this one is to end or has ended, ``requested_us`` since when it was waited for
    (None: since the query was created). ``replaces`` and ``replaced_by`` are ids of queries, ``first_id`` is that of
    the first of those that replaced one another up to it, None for itself. ``start`` is where it was asked to start; of
    a stream in ``sees_after`` it sees nothing up to an event time. Of ``complete`` derived streams all rows were there
    before it. ``joined`` says where its replays have joined their streams, by the names of these. A query that
    ``is_subquery`` is there for those that read it, and goes with the last of them.

    Many records share equal values (names of streams, labels, times): nobody may change them in place.
    ``head_segment`` is where :mod:`braid.session.log.snapshot` keeps the head, None before it does.
    """

    id: str
    sql: str
    query: Query
    operator: str
    stream_names: dict[str, str]
    created_us: int
    name: str | None = None
    tenant: str | None = None
    sink: Any = None
    ttl_seconds: float | None = None
    labels: dict[str, str] = field(default_factory=dict)
    replaces: str | None = None
    first_id: str | None = None
    start: str | None = None
    sees_after: dict[str, int] = field(default_factory=dict)
    complete: tuple[str, ...] = ()
    is_subquery: bool = False
    state: str = PENDING
    slot: int | None = None
    epoch: int | None = None
    group: int = UNGROUPED
    deleted_epoch: int | None = None
    freed_epoch: int | None = None
    drain: bool = True
    active_from: Times | None = None
    active_to: Times | None = None
    deployed_us: int | None = None
    active_to_us: int | None = None
    finished_us: int | None = None
    retiring_us: int | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    rows_out: int = 0
    last_result_us: int | None = None
    event_time_latency_us: int | None = None
    error: str | None = None
    is_ending: bool = False
    is_alone: bool = False
    requested_us: int | None = None
    resumed_us: int | None = None
    joined: dict[str, Any] | None = None
    deployments: tuple[Deployment, ...] = ()
    replaced_by: str | None = None
    head_segment: int | None = field(default=None, repr=False, compare=False)

    @property
    def full_name(self) -> str | None:
        """The name as no query of another tenant can have it; None without a name."""
        return None if self.name is None else full_name(self.tenant, self.name)

    @property
    def lineage(self) -> str:
        """What a query and those that take its place have in common: the id of the first."""
        return self.first_id or self.id

    @property
    def called(self) -> str:
        """What people call it."""
        return f"subquery {self.id}" if self.is_subquery else self.name or self.id

    @property
    def has_ended(self) -> bool:
        """Whether it is RETIRED, FINISHED or FAILED."""
        return self.state in FINAL_STATES

    @property
    def is_wanted(self) -> bool:
        """Whether it is neither finished nor on its way there."""
        return self.state in (PENDING, CATCHING_UP, RUNNING, PAUSED)

    @property
    def is_readable(self) -> bool:
        """Whether others may read its rows: it is wanted, or has given all that it ever will."""
        return self.is_wanted or self.state == FINISHED

    @property
    def replays(self) -> tuple[str, ...]:
        """The replays among its streams."""
        return tuple(filter(is_replay, self.query.streams))

    @property
    def hidden_streams(self) -> tuple[str, ...]:
        """The streams that are there for those that read them."""
        read = (each for stream in self.query.streams for each in (stream, origin_of(stream)))
        return tuple(dict.fromkeys(each for each in read if is_hidden(each)))

    @property
    def ttl_due_us(self) -> int | None:
        """When the query is deleted by itself."""
        return None if self.ttl_seconds is None else self.created_us + round(self.ttl_seconds * 1e6)

    @property
    def deployment(self) -> Deployment | None:
        """The current or last deployment, None before a batch has it."""
        if self.slot is None or self.epoch is None or self.first_seq is None:
            return None
        active_from = self.active_from or {}
        return Deployment(self.slot, self.epoch, self.first_seq, active_from, self.active_to, self.freed_epoch)

    @property
    def all_deployments(self) -> tuple[Deployment, ...]:
        """All deployments that batches have had, in order."""
        return self.deployments if self.deployment is None else (*self.deployments, self.deployment)

    @property
    def deployment_latency_us(self) -> int | None:
        """How long the deployment was waited for, None before there is one."""
        if self.deployed_us is None:
            return None
        return self.deployed_us - (self.created_us if self.requested_us is None else self.requested_us)

    def is_freed(self, active_epoch: int) -> bool:
        """Whether a batch up to the epoch has freed the slot that it had."""
        return self.freed_epoch is not None and self.freed_epoch <= active_epoch

    def place(self, slot: int, epoch: int, is_alone: bool) -> None:
        """Give it a slot: the changelog ``epoch`` creates it, to be evaluated alone or with others."""
        self.slot, self.epoch, self.is_alone = slot, epoch, is_alone

    def deploy(self, clocks: Times, planned_us: int, seq: int, is_catching_up: bool = False) -> None:
        """Note the first batch that has its epoch; ``clocks`` are those of its streams at the batch's start.

        It ``is_catching_up`` while a replay that it reads has not joined.

        Called when the batch is planned, if the session hears of that, and when its record comes: both say the same.
        """
        if self.sees_after:
            clocks = shared_dict(seen_after(self.query.streams, clocks, self.sees_after))
        self.active_from = clocks
        self.deployed_us, self.first_seq = planned_us, seq
        if self.state == PENDING and not self.is_ending:
            self.state = CATCHING_UP if is_catching_up else RUNNING

    def mark_caught_up(self) -> None:
        """Note that all replays that it reads have joined."""
        self.state = RUNNING

    def delete(self, drain: bool, at_us: int) -> None:
        """Note an accepted deletion."""
        self.state, self.drain, self.is_ending, self.retiring_us = DRAINING, drain, True, at_us

    def pause(self) -> None:
        """Note an accepted pause; a query that no changelog has created yet has nothing to end."""
        self.state, self.is_ending = PAUSED, self.epoch is not None

    def resume(self, at_us: int) -> None:
        """Note that it is to run again."""
        self.state, self.resumed_us = PENDING, at_us

    def renew(self, at_us: int) -> None:
        """Begin to wait for another deployment; the one before, if there was any, is freed.

        It waits since ``at_us`` or since it was resumed, whichever is later: a restart may apply them in another order.
        """
        self.deployments = self.all_deployments
        self.slot = self.epoch = self.deleted_epoch = self.freed_epoch = self.first_seq = None
        self.group = UNGROUPED
        self.active_from = self.active_to = self.active_to_us = self.deployed_us = None
        self.drain, self.is_ending = True, False
        self.requested_us, self.resumed_us = max(at_us, self.resumed_us or at_us), None

    def end(self, clocks: Times, committed_us: int) -> None:
        """Note the first batch that has its deletion."""
        self.active_to = clocks
        self.active_to_us = committed_us

    def drained(self, seq: int) -> None:
        """Note that no further row of this deployment will come."""
        self.last_seq = seq

    def retire(self, at_us: int) -> None:
        """Note that no further row will ever come; a restart may apply a deletion before the batch that drained it."""
        self.state, self.finished_us = RETIRED, max(at_us, self.retiring_us or at_us)

    def finish(self, at_us: int) -> None:
        """Note that all its streams have ended, and all rows are there."""
        self.state, self.finished_us = FINISHED, at_us

    def fail(self, error: str, at_us: int, seq: int) -> None:
        """Note that its evaluation failed."""
        self.state, self.error, self.finished_us, self.last_seq = FAILED, error, at_us, seq

    def count(self, rows: int, latest_event_us: int | None, committed_us: int) -> None:
        """Add the rows of one batch; ``latest_event_us`` is the greatest event time that contributed."""
        self.rows_out += rows
        self.last_result_us = committed_us
        if latest_event_us is not None:
            self.event_time_latency_us = latency_us(committed_us, latest_event_us)

    def describe(self) -> dict[str, Any]:
        """Return the body of GET /queries/{id}, but for what it waits for and how its rows are delivered."""
        is_free = self.state == PAUSED and self.freed_epoch is not None
        return {
            "id": self.id,
            "name": self.name,
            "tenant": self.tenant,
            "sql": self.sql,
            "state": self.state,
            "start": self.start,
            "replays": {self.stream_names[replay]: query_of(replay) for replay in self.replays} or None,
            "progress": None,
            "joined": self.joined,
            "slot": None if is_free else self.slot,
            "epoch": self.epoch,
            "active_from": self._named(self.active_from),
            "active_to": self._named(self.active_to),
            "created_at": rfc3339(self.created_us),
            "deployed_at": rfc3339(self.deployed_us),
            "deployment_latency_seconds": _seconds(self.deployment_latency_us),
            "rows_out": self.rows_out,
            "last_result_at": rfc3339(self.last_result_us),
            "event_time_latency_seconds": _seconds(self.event_time_latency_us),
            "group": self.group or None,
            "operator": self.operator,
            "sink": self.sink,
            "subquery": self.is_subquery,
            "error": self.error,
            "waiting_for": None,
            "open_window": None,
            "labels": dict(self.labels),
            "ttl_seconds": self.ttl_seconds,
            "delivery": None,
            "deployments": [
                {
                    "slot": deployment.slot,
                    "epoch": deployment.epoch,
                    "active_from": self._named(deployment.active_from),
                    "active_to": self._named(deployment.active_to),
                }
                for deployment in self.deployments
            ],
            "replaces": self.replaces,
            "replaced_by": self.replaced_by,
        }

    def _named(self, times: EventTimes | None) -> dict[str, str | None]:
        return {name: rfc3339((times or {}).get(stream)) for stream, name in self.stream_names.items()}

    def head_json(self) -> dict[str, Any]:
        """Return the JSON form of the head, which is all there is of a query that was just accepted."""
        return {name: getattr(self, name) for name in _HEAD} | {"query": self.query.to_json()}

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of head and progress."""
        progress = {name: getattr(self, name) for name in PROGRESS}
        return self.head_json() | progress | {"deployments": [deployment.to_json() for deployment in self.deployments]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> QueryRecord:
        """Read what :meth:`to_json` or :meth:`head_json` wrote."""
        names, labels = shared_dict(value["stream_names"]), shared_dict(value["labels"])
        query = shared(query_from_json(value["query"]))
        times = {name: shared_dict(value[name]) for name in _TIMES if value.get(name) is not None}
        deployments = tuple(Deployment(**deployment) for deployment in value.get("deployments", ()))
        shared_parts = {"query": query, "stream_names": names, "labels": labels, "deployments": deployments}
        shared_parts["complete"] = tuple(value.get("complete", ()))
        return cls(**{**value, **times, **shared_parts})


_HEAD = (
    "id",
    "sql",
    "query",
    "operator",
    "stream_names",
    "created_us",
    "name",
    "tenant",
    "sink",
    "ttl_seconds",
    "labels",
    "replaces",
    "first_id",
    "start",
    "sees_after",
    "complete",
    "is_subquery",
)
_TIMES = ("active_from", "active_to")
PROGRESS = tuple(f.name for f in fields(QueryRecord) if f.name not in (*_HEAD, "head_segment"))
"""The fields that change as a query runs."""


def full_name(tenant: str | None, name: str) -> str:
    """Return a query's name as no query of another tenant can have it: names themselves have no slash."""
    return composed(name) if tenant is None else f"{tenant}/{composed(name)}"


def subquery_key(tenant: str | None, query: Query, start: str | None) -> bytes:
    """Return what equal subqueries have in common."""
    return orjson.dumps([tenant, query.to_json(), start])


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6
