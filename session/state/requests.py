"""Requests as the session's durable log keeps them: validated, typed, and complete.

A request is checked before it is logged; applying it never fails. A replay applies the same requests in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from braid.session.state.query_record import QueryRecord
from braid.sources.connectors.static_table import TableDefinition
from braid.sources.core import errors
from braid.sources.core.errors import CorruptData, Forbidden, Overloaded, Position, ServiceError, Unauthorized
from braid.sources.core.schema import StreamDefinition

FOLDER = "requests"


@dataclass(frozen=True)
class Key:
    """The Idempotency-Key a request came with, and the fingerprint of its content."""

    key: str
    fingerprint: str


@dataclass(frozen=True)
class QueriesAccepted:
    """New queries, all or none, each PENDING."""

    queries: tuple[QueryRecord, ...]
    key: Key | None = None


@dataclass(frozen=True)
class QueriesDeleted:
    """Queries to retire; ``why`` is ``request`` or ``ttl``."""

    ids: tuple[str, ...]
    drain: bool
    why: str = "request"
    key: Key | None = None


@dataclass(frozen=True)
class QueryReplaced:
    """A new query, PENDING, and the id of the one that it replaces, which retires with the same changelog.

    ``subqueries`` are new ones that it reads; ``streams`` have rows of the old one, and then of the new one.
    """

    query: QueryRecord
    replaced: str
    drain: bool
    key: Key | None = None
    subqueries: tuple[QueryRecord, ...] = ()
    streams: tuple[StreamDefinition, ...] = ()


@dataclass(frozen=True)
class QueryPaused:
    """A query that sees no tuples until it is resumed."""

    id: str
    key: Key | None = None


@dataclass(frozen=True)
class QueryResumed:
    """A query that runs again."""

    id: str
    key: Key | None = None


@dataclass(frozen=True)
class StreamCreated:
    """A new stream."""

    definition: StreamDefinition
    key: Key | None = None


@dataclass(frozen=True)
class StreamDropped:
    """A stream that is dropped."""

    id: str
    key: Key | None = None


@dataclass(frozen=True)
class WatermarkRaised:
    """A stream of which nothing earlier than ``watermark`` (µs) comes any more."""

    id: str
    watermark: int
    key: Key | None = None


@dataclass(frozen=True)
class TableCreated:
    """A new static table."""

    definition: TableDefinition
    key: Key | None = None


@dataclass(frozen=True)
class TableDropped:
    """A static table that is dropped."""

    id: str
    key: Key | None = None


@dataclass(frozen=True)
class TableRefreshed:
    """A static table whose queries get the rows of its ``version``."""

    id: str
    version: str
    key: Key | None = None


@dataclass(frozen=True)
class Outcome:
    """What a POST with an Idempotency-Key was answered."""

    status: int
    headers: dict[str, str]
    body: str


@dataclass(frozen=True)
class Refusal:
    """The error that a POST with an Idempotency-Key was refused with; ``error`` is its class's name."""

    error: str
    detail: str
    position: tuple[int, int] | None
    query_id: str | None
    stream: str | None

    @classmethod
    def of(cls, error: ServiceError) -> Refusal:
        """Return the refusal for an error."""
        position = None if error.position is None else (error.position.line, error.position.column)
        return cls(type(error).__name__, error.detail, position, error.query_id, error.stream)

    def to_error(self) -> ServiceError:
        """Return the error again."""
        kind: type[ServiceError] = getattr(errors, self.error)
        position = None if self.position is None else Position(*self.position)
        return kind(self.detail, position=position, query_id=self.query_id, stream=self.stream)


def is_final(error: ServiceError) -> bool:
    """Whether a repeated request must get the same error: not where it was told to retry or to use another API key."""
    may_change = (Overloaded.status, Unauthorized.status, Forbidden.status)
    return error.status < 500 and error.status not in may_change and hasattr(errors, type(error).__name__)


@dataclass(frozen=True)
class OutcomeRecorded:
    """The outcome of a key, at a time in microseconds."""

    key: Key
    at_us: int
    outcome: Outcome | Refusal


Request = (
    QueriesAccepted
    | QueriesDeleted
    | QueryReplaced
    | QueryPaused
    | QueryResumed
    | StreamCreated
    | StreamDropped
    | WatermarkRaised
    | TableCreated
    | TableDropped
    | TableRefreshed
    | OutcomeRecorded
)
Announced = StreamCreated | StreamDropped | TableRefreshed
"""Requests that are answered once a changelog has told the data plane of them."""


def new_queries(request: Request) -> tuple[QueryRecord, ...]:
    """Return the new queries of a request."""
    match request:
        case QueriesAccepted(queries):
            return queries
        case QueryReplaced(query, subqueries=subqueries):
            return (*subqueries, query)
    return ()


def request_to_json(request: Request) -> dict[str, Any]:
    """Return the JSON form of a request."""
    key = None if request.key is None else [request.key.key, request.key.fingerprint]
    match request:
        case QueriesAccepted():
            value: dict[str, Any] = {"queries": [query.to_json() for query in request.queries]}
        case QueriesDeleted():
            value = {"ids": list(request.ids), "drain": request.drain, "why": request.why}
        case QueryReplaced():
            value = {"query": request.query.to_json(), "replaced": request.replaced, "drain": request.drain}
            if request.subqueries:
                value["subqueries"] = [query.to_json() for query in request.subqueries]
            if request.streams:
                value["streams"] = [stream.to_json() for stream in request.streams]
        case StreamCreated() | TableCreated():
            value = {"definition": request.definition.to_json()}
        case QueryPaused() | QueryResumed() | StreamDropped() | TableDropped():
            value = {"id": request.id}
        case WatermarkRaised():
            value = {"id": request.id, "watermark": request.watermark}
        case TableRefreshed():
            value = {"id": request.id, "version": request.version}
        case OutcomeRecorded():
            value = {"at_us": request.at_us, "outcome": outcome_to_json(request.outcome)}
    return {"type": type(request).__name__, **value, "key": key}


def request_from_json(value: dict[str, Any]) -> Request:
    """Read what :func:`request_to_json` wrote; CorruptData for an unknown type."""
    key = None if value["key"] is None else Key(*value["key"])
    match value["type"]:
        case "QueriesAccepted":
            return QueriesAccepted(tuple(QueryRecord.from_json(q) for q in value["queries"]), key)
        case "QueriesDeleted":
            return QueriesDeleted(tuple(value["ids"]), value["drain"], value["why"], key)
        case "QueryReplaced":
            subqueries = tuple(map(QueryRecord.from_json, value.get("subqueries", ())))
            streams = tuple(map(StreamDefinition.from_json, value.get("streams", ())))
            query = QueryRecord.from_json(value["query"])
            return QueryReplaced(query, value["replaced"], value["drain"], key, subqueries, streams)
        case "QueryPaused":
            return QueryPaused(value["id"], key)
        case "QueryResumed":
            return QueryResumed(value["id"], key)
        case "StreamCreated":
            return StreamCreated(StreamDefinition.from_json(value["definition"]), key)
        case "StreamDropped":
            return StreamDropped(value["id"], key)
        case "WatermarkRaised":
            return WatermarkRaised(value["id"], value["watermark"], key)
        case "TableCreated":
            return TableCreated(TableDefinition.from_json(value["definition"]), key)
        case "TableDropped":
            return TableDropped(value["id"], key)
        case "TableRefreshed":
            return TableRefreshed(value["id"], value["version"], key)
        case "OutcomeRecorded" if key is not None:
            return OutcomeRecorded(key, value["at_us"], outcome_from_json(value["outcome"]))
        case other:
            raise CorruptData(
                f"A request must be one that this version knows; got {other!r}."
                " Start the version that wrote this data directory."
            )


def outcome_to_json(outcome: Outcome | Refusal) -> list[Any]:
    """Return ``[status, headers, body]`` or ``[error, detail, position, query id, stream]``."""
    if isinstance(outcome, Outcome):
        return [outcome.status, outcome.headers, outcome.body]
    return [outcome.error, outcome.detail, outcome.position, outcome.query_id, outcome.stream]


def outcome_from_json(value: list[Any]) -> Outcome | Refusal:
    """Read what :func:`outcome_to_json` wrote."""
    if isinstance(value[0], int):
        return Outcome(*value)
    error, detail, position, query_id, stream = value
    return Refusal(error, detail, None if position is None else (position[0], position[1]), query_id, stream)
