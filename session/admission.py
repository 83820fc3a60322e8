"""Admission of new queries: what a request must be, and what must not happen at the same time.

Requests are planned without a lock, then checked and reserved under the session's lock, then logged. A reservation
keeps the names and streams of a request that is on its way to the disk from being taken or dropped meanwhile.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from operators.queries import Query
from optimizer.optimizer import operator_of
from session.catalog import Catalog
from session.query_record import DRAINING, QueryRecord
from session.session_state import SessionState
from session.sharing import shared_dict
from session.statements import read_query
from sources.errors import BraidError, Conflict, NotAllowed, Overloaded, UnknownObject

_ID = re.compile(r"q-\d+")
LONGEST_NAME = 200
MOST_LABELS = 64
LONGEST_TTL_SECONDS = 10 * 365 * 86400


@dataclass(frozen=True)
class QueryRequest:
    """What a client may say of a query; NotAllowed when it does not fit."""

    sql: str
    name: str | None = None
    sink: Any = None
    ttl_seconds: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)
        if self.sink not in (None, "log"):
            raise NotAllowed(
                f'The sink of a query must be "log" (the result log, which GET /queries/{{id}}/results reads) or'
                f" left out in this version; got {self.sink!r}."
            )
        ttl = self.ttl_seconds
        if ttl is not None and (
            isinstance(ttl, bool)
            or not isinstance(ttl, (int, float))
            or not math.isfinite(ttl)
            or not 0 < ttl <= LONGEST_TTL_SECONDS
        ):
            raise NotAllowed(f"ttl_seconds must be a number above 0 and at most {LONGEST_TTL_SECONDS}; got {ttl!r}.")
        labels = self.labels
        if (
            not isinstance(labels, Mapping)
            or len(labels) > MOST_LABELS
            or not all(isinstance(k, str) and isinstance(v, str) and k for k, v in labels.items())
        ):
            raise NotAllowed(f"labels must be an object of at most {MOST_LABELS} texts by name; got {labels!r}.")


def check_name(name: str) -> None:
    """Raise NotAllowed for a name that a query cannot have."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise NotAllowed(f"A query's name must be 1 to {LONGEST_NAME} printable characters; got {name!r}.")
    if "/" in name or _ID.fullmatch(name):
        raise NotAllowed(f"A query's name must have no '/' and not look like an id (q-17); got {name!r}.")


@dataclass(frozen=True)
class PlannedQuery:
    """A request with its query planned; ``streams`` maps the ids of its streams to their names."""

    request: QueryRequest
    name: str | None
    query: Query
    streams: dict[str, str]

    def to_record(self, query_id: str, created_us: int) -> QueryRecord:
        """Return the record of the new query."""
        return QueryRecord(
            id=query_id,
            sql=self.request.sql,
            query=self.query,
            operator=operator_of(self.query),
            stream_names=self.streams,
            created_us=created_us,
            name=self.name,
            sink=self.request.sink,
            ttl_seconds=self.request.ttl_seconds,
            labels=shared_dict(dict(self.request.labels)),
        )


def plan_requests(requests: Iterable[QueryRequest], catalog: Catalog) -> list[PlannedQuery]:
    """Return every request planned; the error of the first that cannot be says which it was."""
    requests = list(requests)
    planned = []
    names = {definition.id: definition.name for definition in catalog.values()}
    for position, request in enumerate(requests, start=1):
        try:
            name, query = read_query(request.sql, catalog)
            name = name if request.name is None else request.name
            if name is not None:
                check_name(name)
        except BraidError as error:
            if len(requests) > 1:
                error.detail = f"Query {position} of {len(requests)}: {error.detail}"
                error.args = (error.detail,)
            raise
        streams = shared_dict({stream: names[stream] for stream in query.streams})
        planned.append(PlannedQuery(request, name, query, streams))
    return planned


class Reservations:
    """What requests on their way to the disk need; used under the session's lock."""

    def __init__(self) -> None:
        self._query_names: set[str] = set()
        self._queries = 0
        self._streams: Counter[str] = Counter()
        self._stream_names: set[str] = set()
        self._dropping: set[str] = set()

    def check_queries(self, state: SessionState, planned: list[PlannedQuery], most: int) -> None:
        """Raise what keeps these queries from being accepted now."""
        if state.queries.unfinished + self._queries + len(planned) > most:
            raise Overloaded(
                f"At most {most} queries may run (setting max_queries); got {len(planned)} more with"
                f" {state.queries.unfinished + self._queries} there. Delete some first.",
                retry_after=10,
            )
        names = Counter(p.name for p in planned if p.name is not None)
        for name, times in names.items():
            holder = state.queries.find(state.names.get(name, ""))
            running = holder is not None and not holder.is_finished and holder.state != DRAINING
            if times > 1 or name in self._query_names or running:
                raise Conflict(
                    f"The name of a query must differ from those that run; got {name!r} again. Delete that query or"
                    " choose another name.",
                    query_id=holder.id if holder is not None and running else None,
                )
        for stream, name in {s: n for p in planned for s, n in p.streams.items()}.items():
            if stream in self._dropping or state.catalog.by_id(stream) is None:
                raise UnknownObject(f"A stream must exist to be used; {name!r} was just dropped.", stream=name)

    def hold_queries(self, planned: list[PlannedQuery]) -> None:
        """Hold the names and streams of new queries."""
        self._queries += len(planned)
        self._query_names |= {p.name for p in planned if p.name is not None}
        self._streams.update(stream for p in planned for stream in p.streams)

    def release_queries(self, planned: list[PlannedQuery]) -> None:
        """Let them go: the queries are accepted, or could not be."""
        self._queries -= len(planned)
        self._query_names -= {p.name for p in planned if p.name is not None}
        self._streams.subtract(stream for p in planned for stream in p.streams)
        self._streams = +self._streams

    def hold_stream_name(self, state: SessionState, name: str) -> None:
        """Hold the name of a new stream; Conflict when it is taken."""
        if name.lower() in self._stream_names or any(name.lower() == known.lower() for known in state.catalog):
            raise Conflict(
                f"The name of a stream must be new; {name!r} exists. Drop it first or choose another.",
                stream=name,
            )
        self._stream_names.add(name.lower())

    def release_stream_name(self, name: str) -> None:
        """Let the name of a stream go."""
        self._stream_names.discard(name.lower())

    def hold_drop(self, state: SessionState, name: str) -> str:
        """Return the id of a stream that goes, and keep queries from it; Conflict while queries use it."""
        stream = state.catalog.state(name)
        stream_id, users = stream.definition.id, stream.users + self._streams[stream.definition.id]
        if stream_id in self._dropping:
            raise UnknownObject(f"A stream must exist to be dropped; {name!r} was just dropped.", stream=name)
        if users:
            using = (q.id for q in state.queries.values() if stream_id in q.stream_names and not q.is_finished)
            some = ", ".join(islice(using, 20)) or "just being accepted"
            raise Conflict(
                f"A stream must not be used to be dropped; {users} queries use {name!r}:"
                f" {some}. Delete them and wait until they are RETIRED.",
                stream=name,
            )
        self._dropping.add(stream_id)
        return stream_id

    def release_drop(self, stream_id: str) -> None:
        """Let a stream go, dropped or not."""
        self._dropping.discard(stream_id)
