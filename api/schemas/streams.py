"""Schemas of streams, static tables, pushes and inferred statements."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from braid.api.schemas.model import FORBID


@with_config(FORBID)
class Statement(TypedDict):
    """One SQL statement."""

    sql: str


class Column(TypedDict):
    """A column of a table."""

    name: str
    type: Annotated[str, Field(description="The SQL type: `BIGINT`, `DECIMAL(10,2)`, …")]
    not_null: NotRequired[bool]
    time_format: NotRequired[Annotated[str, Field(description="The option `timestamp.format`, or the column's own")]]
    source: NotRequired[Annotated[str, Field(description="The path that it is read from")]]
    arrival: NotRequired[Annotated[bool, Field(description="Whether it is the time at which a row came")]]
    computed: NotRequired[Annotated[str, Field(description="The expression that it is computed from")]]


class StreamColumn(Column):
    """A column of a stream."""

    event_time: bool
    metadata: NotRequired[Annotated[str, Field(description="What of a Kafka record it is")]]


class Source(TypedDict):
    """Where rows come from."""

    connector: str
    format: str
    options: dict[str, str]


class Stream(TypedDict):
    """A stream: its declaration, how far it has been read, and counts of its rows."""

    name: str
    id: str
    columns: list[StreamColumn]
    source: Source
    lateness_seconds: float
    max_future_seconds: float | None
    idle_timeout_seconds: float | None
    on_idle: str
    watermark_percentile: float | None
    clock: Annotated[datetime | None, Field(description="The greatest event time that was read")]
    watermark: Annotated[datetime | None, Field(description="Rows with earlier event times are late")]
    idle: bool
    ended: Annotated[bool, Field(description="No row comes any more")]
    tuples: Annotated[int, Field(description="Valid rows that were read, late ones included")]
    late: int
    malformed: int
    skipped: Annotated[int, Field(description="Inputs that had been removed from the source before they were read")]
    bytes: int
    offsets: Annotated[dict[str, int], Field(description="The offset of each partition up to which it was read")]
    error: Annotated[str | None, Field(description="Why it cannot be read")]
    queries: Annotated[int, Field(description="How many queries use it")]
    created_at: datetime
    sql: Annotated[str, Field(description="The statement that declared it")]


class Streams(TypedDict):
    """All streams, oldest first."""

    streams: list[Stream]


@with_config(FORBID)
class WatermarkTime(TypedDict):
    """A time: no earlier row comes any more."""

    time: datetime


@with_config(FORBID)
class WatermarkEnd(TypedDict):
    """The end of a stream: no row comes any more, and all windows are final."""

    end: Literal[True]


class RejectedRow(TypedDict):
    """An input that does not fit the schema of its stream."""

    line: int
    detail: str


class Pushed(TypedDict):
    """What became of pushed rows."""

    accepted: Annotated[int, Field(description="How many are on disk")]
    rejected: Annotated[int, Field(description="How many are dead letters")]
    errors: Annotated[list[RejectedRow], Field(description="The first ones that were rejected")]
    missing: NotRequired[Annotated[list[str], Field(description="Columns that the rows lack, and are NULL")]]
    unknown: NotRequired[Annotated[list[str], Field(description="Names in such rows that are no column's")]]
    late: NotRequired[Annotated[int, Field(description="Accepted rows below the watermark")]]
    ahead: NotRequired[Annotated[int, Field(description="Accepted rows further ahead of now than `max_future`")]]


class StaticTable(TypedDict):
    """A static table to join with."""

    name: str
    id: str
    columns: list[Column]
    source: Source
    queries: Annotated[int, Field(description="How many queries use it")]
    created_at: datetime
    refreshing: Annotated[bool, Field(description="Its file is read anew, and no batch has the new rows yet")]
    refreshed_at: datetime | None
    sql: Annotated[str, Field(description="The statement that declared it")]


class StaticTables(TypedDict):
    """All static tables, oldest first."""

    tables: list[StaticTable]


class Dropped(TypedDict):
    """What DROP dropped."""

    dropped: Annotated[str | None, Field(description="The name; null where IF EXISTS found nothing")]


@with_config(ConfigDict(json_schema_extra={"additionalProperties": {"type": "string"}}))
class PlaceToInferFrom(TypedDict):
    """A connector, and its options as further fields, as WITH takes them."""

    connector: Literal["file", "kafka"]
    name: NotRequired[Annotated[str | None, Field(description="Name of the stream")]]


class InferredColumn(TypedDict):
    """A column that a sample shows."""

    name: str
    type: str
    comment: Annotated[str | None, Field(description="What to know of the choice of its type")]


class LeftOutColumn(TypedDict):
    """A column of a sample that the stream does not have."""

    name: str
    why: str


class InferredStream(TypedDict):
    """The CREATE STREAM statement that reads a sample, and what it says."""

    name: str
    sql: Annotated[str, Field(description="A CREATE STREAM statement that POST /sql accepts")]
    columns: list[InferredColumn]
    left_out: list[LeftOutColumn]
    event_time: Annotated[str, Field(description="The column with LATENESS")]
    event_time_candidates: Annotated[list[str], Field(description="All columns that could be the event time, it first")]
    lateness_seconds: float
    source: Source
    rows: Annotated[int, Field(description="How many rows were looked at")]
    comments: Annotated[list[str], Field(description="What was guessed, and why; they stand in the statement, too")]
