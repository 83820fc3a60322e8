"""Schemas of queries and their rows."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypeAliasType, TypedDict

from braid.api.schemas.model import FORBID, Gap, Row
from braid.session.state.query_record import STATES
from braid.session.state.waiting import REASONS

_Start = Annotated[
    str,
    Field(
        description="Where it starts to read its streams: `now`, `earliest`, a time (RFC 3339), or an interval before"
        " now such as `-1 hour`. Else where the stream says: `earliest` for connector `file` and for `kafka` with"
        " `scan.startup.mode` = `earliest-offset`, `now` for others.",
    ),
]
_Drain = Annotated[
    bool, Field(description="Still emit the windows that are complete", json_schema_extra={"default": True})
]
QueryState = TypeAliasType(
    "QueryState", Annotated[str, Field(description="The state of a query.", json_schema_extra={"enum": list(STATES)})]
)
EventTimes = TypeAliasType(
    "EventTimes", Annotated[dict[str, datetime | None], Field(description="Event times by the names of streams.")]
)
Labels = TypeAliasType("Labels", Annotated[dict[str, str], Field(description="Labels of a query.")])


@with_config(ConfigDict(json_schema_extra={"additionalProperties": {"type": ["string", "number", "boolean"]}}))
class Sink(TypedDict):
    """Where the rows of a query go besides: a connector, and its options as further fields."""

    connector: Annotated[str, Field(description="file, kafka, postgres, clickhouse or webhook")]


@with_config(FORBID)
class NewQuery(TypedDict):
    """A query to register."""

    sql: Annotated[str, Field(description="A SELECT, or CREATE QUERY name AS SELECT")]
    name: NotRequired[str | None]
    sink: NotRequired[Annotated[Sink | str | None, Field(description="`log` or null: rows are at /results only")]]
    ttl_seconds: NotRequired[Annotated[float | None, Field(description="Delete the query after this time")]]
    labels: NotRequired[Labels | None]
    start: NotRequired[_Start | None]


@with_config(FORBID)
class QueriesToRetire(TypedDict):
    """Queries to retire."""

    ids: Annotated[list[Annotated[str, Field(description="The id or the name")]], Field(min_length=1)]
    drain: NotRequired[_Drain]


class WaitingFor(TypedDict):
    """Why a query has no row yet."""

    reason: Annotated[str, Field(json_schema_extra={"enum": list(REASONS)})]
    detail: Annotated[str, Field(description="The reason in words, and what would help")]
    stream: Annotated[str | None, Field(description="The stream that it is about")]
    watermark: datetime | None
    window_end: datetime | None


class OpenWindow(TypedDict):
    """The first window whose rows are still to come."""

    detail: Annotated[str, Field(description="What it waits for in words, and what would help")]
    stream: Annotated[str, Field(description="The stream whose watermark has to pass it")]
    watermark: datetime
    window_end: datetime


class Progress(TypedDict):
    """How far a query that catches up has read the past of a stream."""

    read: Annotated[int, Field(description="Rows that were read")]
    clock: Annotated[datetime | None, Field(description="The greatest event time among them")]
    error: Annotated[str | None, Field(description="Why it cannot go on")]
    left: Annotated[int | None, Field(description="Rows until it joins the stream")]
    fraction: float | None
    seconds_left: float | None


class JoinedAt(TypedDict):
    """Where the replay of a stream's past joined the stream."""

    query: Annotated[str | None, Field(description="The first query that the replay was for")]
    offsets: dict[str, int]
    clock: datetime | None
    at: datetime


class Delivery(TypedDict):
    """How far the rows of a query have come to its sink."""

    state: str
    rows: int
    delivered_at: datetime | None
    lag_seconds: float
    errors: Annotated[int, Field(description="Attempts that failed")]
    error: Annotated[str | None, Field(description="Why the last attempt failed; null once one succeeded")]
    gaps: int
    gap: Annotated[str | None, Field(description="Rows that had been removed before they were delivered")]
    refused: Annotated[int, Field(description="Rows that the sink will never take: dead letters of the query")]
    refusal: Annotated[str | None, Field(description="Why the last one was refused")]


class Deployment(TypedDict):
    """A time for which a query held a slot."""

    slot: int
    epoch: int
    active_from: EventTimes
    active_to: EventTimes


class Query(TypedDict):
    """A query: what was asked, where it runs, and how far it has got."""

    id: str
    name: str | None
    tenant: str | None
    sql: str
    state: QueryState
    start: str | None
    replays: Annotated[
        dict[str, str | None] | None,
        Field(description="By stream whose past it reads, the query that the reading began for"),
    ]
    progress: Annotated[dict[str, Progress] | None, Field(description="By stream, while it is CATCHING_UP")]
    joined: Annotated[
        dict[str, JoinedAt] | None, Field(description="By stream, where the past that it read met what comes")
    ]
    slot: int | None
    epoch: Annotated[int | None, Field(description="The changelog that created it")]
    active_from: Annotated[EventTimes, Field(description="By stream, the event time after which it sees rows")]
    active_to: Annotated[EventTimes, Field(description="By stream, the event time up to which it sees rows")]
    created_at: datetime
    deployed_at: datetime | None
    deployment_latency_seconds: float | None
    rows_out: int
    last_result_at: datetime | None
    event_time_latency_seconds: float | None
    group: Annotated[int | None, Field(description="Its query group")]
    operator: str | None
    sink: Sink | str | None
    subquery: Annotated[bool, Field(description="It stands for a subquery of others")]
    error: Annotated[str | None, Field(description="Why it FAILED")]
    waiting_for: Annotated[WaitingFor | None, Field(description="Why there is no row yet; null once there is one")]
    open_window: Annotated[OpenWindow | None, Field(description="The next window to close, once there are rows")]
    labels: Labels
    ttl_seconds: float | None
    delivery: Delivery | None
    deployments: Annotated[list[Deployment], Field(description="Earlier ones, before it was paused")]
    replaces: str | None
    replaced_by: str | None


class QueryPage(TypedDict):
    """A page of queries."""

    queries: list[Query]
    cursor: Annotated[str | None, Field(description="For the next page; null on the last")]


class Results(TypedDict):
    """A page of rows."""

    rows: list[Row]
    cursor: Annotated[str, Field(description="The place after the rows, for `after`")]
    end: Annotated[bool, Field(description="No row will ever follow")]
    gap: NotRequired[Gap]
