"""Frozen descriptions of a random run: a stream, its pushes, its queries, and their interleaving.

Everything here is data: what a run does to a service is in `driver.py`, what must come out in `recompute.py`.
Scalar expressions and predicates are plain SQL text, the same for the service and for DuckDB; only windows
are described apart, because DuckDB has none.
"""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

SECOND = 1_000_000  # microseconds
SEQUENCE = "seq"  # the column that numbers the tuples of a stream; tells which ones are late

Value = bool | int | float | Decimal | str | dt.date | dt.datetime | None
Row = dict[str, Value]
Domain = Literal["few", "many", "wide"]


class Kind(enum.Enum):
    """The SQL type of a column or result."""

    BOOLEAN = "BOOLEAN"
    INT = "INT"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL(12,2)"
    VARCHAR = "VARCHAR"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"

    @property
    def numeric(self) -> bool:
        """Tell whether arithmetic is defined."""
        return self in (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL)


@dataclass(frozen=True)
class Column:
    """A column of a stream and the distribution of its values.

    Domains: `few` repeats a handful of values, `many` spreads over some thousand, `wide` goes to the edges
    (BIGINT ±1e14, DOUBLE 1e-3…1e11 and positive, non-ASCII text). DOUBLE values of `few` and `many` are
    multiples of 1/8, so that their sums are exact in any order.
    """

    name: str
    kind: Kind
    domain: Domain = "few"
    null_rate: float = 0.0

    def __post_init__(self) -> None:
        """Validate the share of NULLs."""
        if not 0 <= self.null_rate < 1:
            raise ValueError(f"the share of NULLs must be in [0, 1), got {self.null_rate!r}")


@dataclass(frozen=True)
class StreamSchema:
    """A stream: its columns (the event time and `seq` included, in order), lateness and first event time."""

    columns: tuple[Column, ...]
    event_time: str
    lateness: int  # microseconds
    base: dt.datetime

    def __post_init__(self) -> None:
        """Validate that the event time and the sequence are columns."""
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names) or not {self.event_time, SEQUENCE} <= set(names):
            raise ValueError(f"columns must be unique and hold {self.event_time} and {SEQUENCE}, got {names!r}")

    def column(self, name: str) -> Column:
        """Return a column by name."""
        return next(column for column in self.columns if column.name == name)

    def sql(self, stream: str) -> str:
        """Render CREATE STREAM."""
        parts = []
        for column in self.columns:
            late = f" LATENESS {interval(self.lateness)}" if column.name == self.event_time else ""
            parts.append(f"{column.name} {column.kind.value}{late}")
        return f"CREATE STREAM {stream} ({', '.join(parts)}) WITH (connector = 'push', format = 'json')"


@dataclass(frozen=True)
class Window:
    """A tumbling (slide = size) or hopping window, in microseconds, and how the query writes it."""

    size: int
    slide: int
    offset: int = 0
    form: Literal["bracket", "function", "named"] = "bracket"

    def __post_init__(self) -> None:
        """Validate sizes; the bracket form has no offset."""
        if not 0 < self.slide <= self.size:
            raise ValueError(f"0 < slide <= size must hold, got slide {self.slide!r}, size {self.size!r}")
        if self.form == "bracket" and self.offset:
            raise ValueError(f"the form [RANGE … SLIDE …] takes no offset, got {self.offset!r}")

    def sql(self, stream: str, event_time: str) -> str:
        """Render the FROM item."""
        tumbling = self.slide == self.size
        if self.form == "bracket":
            slide = "" if tumbling else f" SLIDE {duration(self.slide)}"
            return f"{stream} [RANGE {duration(self.size)}{slide}]"
        name = "TUMBLE" if tumbling else "HOP"
        if self.form == "function":
            arguments = [f"TABLE {stream}", f"DESCRIPTOR({event_time})"]
            arguments += [] if tumbling else [interval(self.slide)]
            arguments += [interval(self.size)]
            arguments += [interval(self.offset)] if self.offset else []
        else:
            arguments = [f"data => TABLE {stream}", f"timecol => DESCRIPTOR({event_time})"]
            arguments += [f"dur => {interval(self.size)}"]
            arguments += [] if tumbling else [f"hopsize => {interval(self.slide)}"]
            arguments += [f"offset => {interval(self.offset)}"] if self.offset else []
        return f"{name}({', '.join(arguments)})"


@dataclass(frozen=True)
class Sessions:
    """Session windows with a gap in microseconds, and how the query writes them."""

    gap: int
    form: Literal["bracket", "function", "named"] = "bracket"

    @property
    def size(self) -> int:
        """How far beyond the newest tuple a window can end."""
        return self.gap

    @property
    def slide(self) -> int:
        """The same, for whoever moves the watermark beyond every window."""
        return self.gap

    def sql(self, stream: str, event_time: str, keys: tuple[str, ...]) -> str:
        """Render the FROM item of a query that groups by ``keys``."""
        if self.form == "bracket":
            return f"{stream} [SESSION {duration(self.gap)}]"
        partition = f" PARTITION BY {', '.join(keys)}" if keys else ""
        if self.form == "function":
            return f"SESSION(TABLE {stream}{partition}, DESCRIPTOR({event_time}), {interval(self.gap)})"
        arguments = f"data => TABLE {stream}{partition}, timecol => DESCRIPTOR({event_time})"
        return f"SESSION({arguments}, gap => {interval(self.gap)})"


@dataclass(frozen=True)
class Item:
    """One column of a SELECT list: an expression, the name of the result column, and its type."""

    sql: str
    name: str
    kind: Kind

    def render(self) -> str:
        """Render the item, with an alias unless it is a plain column."""
        return self.sql if self.sql == self.name else f"{self.sql} AS {self.name}"


@dataclass(frozen=True)
class Selection:
    """A query per tuple; no items means SELECT *."""

    items: tuple[Item, ...]
    where: str | None = None

    def sql(self, stream: str, schema: StreamSchema) -> str:
        """Render the query for the service."""
        del schema
        chosen = ", ".join(item.render() for item in self.items) or "*"
        return f"SELECT {chosen} FROM {stream}" + (f" WHERE {self.where}" if self.where else "")

    def output(self, schema: StreamSchema) -> dict[str, Kind]:
        """Return the result columns and their types."""
        if not self.items:
            return {column.name: column.kind for column in schema.columns}
        return {item.name: item.kind for item in self.items}


@dataclass(frozen=True)
class Aggregation:
    """A windowed aggregation; `items` are group columns and aliased aggregates, at least one aggregate."""

    items: tuple[Item, ...]
    window: Window | Sessions
    group_by: tuple[str, ...] = ()
    where: str | None = None
    selects_window: bool = False  # only the table functions have window columns to select
    emit: str = ""  # a changelog form of EMIT, or nothing

    def __post_init__(self) -> None:
        """Validate that there is something to select."""
        if not self.items:
            raise ValueError("an aggregation must have at least one item")
        if self.selects_window and self.window.form == "bracket":
            raise ValueError("the form [RANGE …] has no window_start to select")

    def sql(self, stream: str, schema: StreamSchema) -> str:
        """Render the query for the service."""
        chosen = [item.render() for item in self.items]
        grouped = list(self.group_by)
        if self.window.form != "bracket":
            grouped = ["window_start", "window_end", *grouped]
        if self.selects_window:
            chosen = ["window_start", "window_end", *chosen]
        if isinstance(self.window, Sessions):
            source = self.window.sql(stream, schema.event_time, self.group_by)
        else:
            source = self.window.sql(stream, schema.event_time)
        text = f"SELECT {', '.join(chosen)} FROM {source}"
        text += f" WHERE {self.where}" if self.where else ""
        text += f" GROUP BY {', '.join(grouped)}" if grouped else ""
        return text + (f" {self.emit}" if self.emit else "")

    def output(self, schema: StreamSchema) -> dict[str, Kind]:
        """Return the result columns and their types, those of the window included."""
        del schema
        window = {"window_start": Kind.TIMESTAMP, "window_end": Kind.TIMESTAMP, "_partial": Kind.BOOLEAN}
        return window | {item.name: item.kind for item in self.items}


Query = Selection | Aggregation


@dataclass(frozen=True)
class Push:
    """One push request: `count` tuples made from `seed`, in event time `span` on from the newest so far.

    `gap` jumps ahead first; `settle` waits until the service has taken in everything pushed before, so that
    its clock is known and late tuples are sure to be late.
    """

    count: int
    seed: int
    span: int = 5 * SECOND
    gap: int = 0
    late_rate: float = 0.0
    settle: bool = False
    format: Literal["ndjson", "json", "arrow"] = "ndjson"


@dataclass(frozen=True)
class Create:
    """One POST that registers queries, all or none."""

    queries: tuple[Query, ...]


@dataclass(frozen=True)
class Delete:
    """Delete these running queries, counted from the oldest, with drain."""

    positions: tuple[int, ...]


@dataclass(frozen=True)
class Pause:
    """Pause these queries of those that may be, counted from the oldest."""

    positions: tuple[int, ...]


@dataclass(frozen=True)
class Resume:
    """Resume these paused queries, counted from the oldest, drained or not."""

    positions: tuple[int, ...]


@dataclass(frozen=True)
class Replace:
    """Put a query in the place of one that is not deleted, counted from the oldest."""

    position: int
    query: Query


Step = Push | Create | Delete | Pause | Resume | Replace


@dataclass(frozen=True)
class Run:
    """A whole run on one stream."""

    schema: StreamSchema
    steps: tuple[Step, ...] = field(repr=False)

    @property
    def queries(self) -> list[Query]:
        """All queries, in the order of their creation."""
        return [query for step in self.steps if isinstance(step, Create) for query in step.queries]


def interval(microseconds: int) -> str:
    """Render a duration as an SQL interval literal.

    >>> interval(2_500_000), interval(120_000_000)
    ("INTERVAL '2.5' SECOND", "INTERVAL '2' MINUTE")
    """
    if microseconds and microseconds % (60 * SECOND) == 0:
        return f"INTERVAL '{microseconds // (60 * SECOND)}' MINUTE"
    return f"INTERVAL '{Decimal(microseconds) / SECOND:f}' SECOND"


def duration(microseconds: int) -> str:
    """Render a duration of whole seconds for [RANGE … SLIDE …]."""
    seconds, rest = divmod(microseconds, SECOND)
    if rest:
        raise ValueError(f"[RANGE …] must be whole seconds here, got {microseconds!r} microseconds")
    return f"{seconds} SECONDS"


def literal(value: Value) -> str:
    """Render a value as an SQL literal that every engine reads the same way."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case dt.datetime():
            return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}'"
        case dt.date():
            return f"DATE '{value:%Y-%m-%d}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case float():
            return f"{Decimal(repr(value)):f}"
        case _:
            return str(value)


def micros(time: dt.datetime) -> int:
    """Return microseconds since 1970-01-01T00:00:00Z of a naive UTC time."""
    return (time - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)


def from_micros(value: int) -> dt.datetime:
    """Return the naive UTC time of microseconds since 1970-01-01T00:00:00Z."""
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)
