"""Admission of new queries: what a request must be, and what must not happen at the same time.

Requests are planned without a lock, then checked and reserved under the session's lock, then logged. A reservation
keeps the names and streams of a request that is on its way to the disk from being taken or dropped meanwhile.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from operators.queries import Query, lookups_of
from optimizer.optimizer import operator_of
from router.sinks.connectors import SinkDefinition, read_sink
from session.catalog import Catalog
from session.query_record import QueryRecord, full_name
from session.session_state import SessionState
from session.sharing import shared_dict
from session.statements import read_query
from session.tables import NamedTables
from sources.confinement import OPEN, Confinement
from sources.errors import BraidError, Conflict, NotAllowed, Overloaded, UnknownObject
from sources.static_table import TableVersion

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
        read_sink(self.sink)
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
    """A request with its query planned.

    ``streams`` maps the ids of its streams to their names; ``tables`` are its static tables as they were read; ``sink``
    is what it says of its sink, checked. ``tenant`` is whose query it will be.
    """

    request: QueryRequest
    name: str | None
    query: Query
    streams: dict[str, str]
    tables: tuple[TableVersion, ...] = ()
    sink: Any = None
    tenant: str | None = None

    @property
    def full_name(self) -> str | None:
        """The name as no query of another tenant can have it; None without a name."""
        return None if self.name is None else full_name(self.tenant, self.name)

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
            tenant=self.tenant,
            sink=self.sink,
            ttl_seconds=self.request.ttl_seconds,
            labels=shared_dict(dict(self.request.labels)),
        )


def _anything(_: list[PlannedQuery]) -> None:
    return


@dataclass(frozen=True)
class Owner:
    """Whose new queries are, how many of them may run, and what is looked at besides before they are accepted.

    ``check`` is called under the session's lock and raises what keeps the queries from being accepted.
    """

    tenant: str | None = None
    most_running: int | None = None
    check: Callable[[list[PlannedQuery]], None] = _anything


NOBODY = Owner()


@dataclass(frozen=True)
class Inherited:
    """What a query has of the one that it replaces, ``id``, where neither the request nor its SQL says otherwise."""

    id: str | None = None
    name: str | None = None
    sink: Any = None


@dataclass(frozen=True)
class Replacement:
    """What a client may say of a query that replaces another: what ``given`` lacks is as it was, None there is none.

    ``given`` has some of ``name``, ``sink``, ``ttl_seconds`` and ``labels``.
    """

    sql: str
    given: Mapping[str, Any] = field(default_factory=dict)

    def after(self, replaced: QueryRecord) -> tuple[QueryRequest, Inherited]:
        """Return the request for the new query; NotAllowed when it does not fit."""
        kept = {"ttl_seconds": replaced.ttl_seconds, "labels": replaced.labels, **self.given}
        request = QueryRequest(self.sql, **{name: value for name, value in kept.items() if value is not None})
        name = None if "name" in self.given else replaced.name
        sink = None if "sink" in self.given else replaced.sink
        return request, Inherited(replaced.id, name, sink)


def plan_requests(
    requests: Iterable[QueryRequest],
    catalog: Catalog,
    tables: NamedTables,
    confinement: Confinement = OPEN,
    tenant: str | None = None,
    inherited: Inherited | None = None,
    may_replace: bool = False,
) -> list[PlannedQuery]:
    """Return every request planned; the error of the first that cannot be says which it was.

    CREATE OR REPLACE QUERY is refused unless the caller ``may_replace``.
    """
    requests = list(requests)
    planned = []
    names = {definition.id: definition.name for definition in catalog.values()}
    kept = inherited or Inherited()
    for position, request in enumerate(requests, start=1):
        try:
            stated = read_query(request.sql, catalog, tables)
            if stated.or_replace and not may_replace:
                raise NotAllowed(
                    "CREATE OR REPLACE QUERY is a statement for POST /sql; PUT /queries/{id} replaces a query, too."
                )
            if stated.sink is not None and request.sink is not None:
                raise NotAllowed("The sink of a query must be said once: in its SQL or beside it.")
            name = _first(request.name, stated.name, kept.name)
            if name is not None:
                check_name(name)
            said = _first(stated.sink, request.sink, kept.sink)
            sink = read_sink(said)
            if sink is not None:
                _check_sink(sink, stated.query, confinement, kept.id if said is kept.sink else None)
        except BraidError as error:
            if len(requests) > 1:
                _reword(error, f"Query {position} of {len(requests)}: {error.detail}")
            raise
        streams = shared_dict({stream: names[stream] for stream in stated.query.streams})
        used = tuple(tables.read[table] for table in {lookup.table: None for lookup in lookups_of(stated.query)})
        sink_said = said if sink is None else sink.to_json()
        planned.append(PlannedQuery(request, name, stated.query, streams, used, sink_said, tenant))
    return planned


def _check_sink(sink: SinkDefinition, query: Query, confinement: Confinement, inherited_of: str | None) -> None:
    try:
        sink.validate(query, confinement)
    except NotAllowed as error:
        if inherited_of is not None:
            hint = f'The sink is that of {inherited_of}: "sink" says another one, or null for none.'
            _reword(error, f"{error.detail} {hint}")
        raise


def _reword(error: BraidError, detail: str) -> None:
    error.detail = detail
    error.args = (detail,)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


class Reservations:
    """What requests on their way to the disk need; used under the session's lock."""

    def __init__(self) -> None:
        self._query_names: set[str] = set()
        self._queries = 0
        self._of_tenant: Counter[str | None] = Counter()
        self._used: Counter[str] = Counter()
        self._names: set[str] = set()
        self._dropping: set[str] = set()
        self._ending: Counter[str] = Counter()

    def check_queries(
        self,
        state: SessionState,
        planned: list[PlannedQuery],
        most: int,
        owner: Owner = NOBODY,
        replaced: str | None = None,
    ) -> None:
        """Raise what keeps these queries, at most ``most`` of all and all of one owner, from being accepted now.

        One of them takes the place of the query ``replaced``, if there is one.
        """
        there = state.queries.unfinished + self._queries - (replaced is not None)
        if there + len(planned) > most:
            raise Overloaded(
                f"At most {most} queries may run (setting max_queries); got {len(planned)} more with"
                f" {there} there. Delete some first.",
                retry_after=10,
            )
        if owner.tenant is not None and owner.most_running is not None:
            running = state.queries.unfinished_of(owner.tenant) + self._of_tenant[owner.tenant] - (replaced is not None)
            if running + len(planned) > owner.most_running:
                raise Overloaded(
                    f"At most {owner.most_running} queries of this tenant may run (quota running_queries);"
                    f" got {len(planned)} more with {running} there. Delete some first.",
                    retry_after=10,
                )
        owner.check(planned)
        names = Counter(p.full_name for p in planned if p.full_name is not None)
        for name, times in names.items():
            holder = state.queries.find(state.names.get(name, ""))
            is_taken = holder is not None and holder.is_wanted and holder.id != replaced
            if times > 1 or name in self._query_names or is_taken:
                raise Conflict(
                    f"The name of a query must differ from those that run; got {name.rpartition('/')[2]!r} again."
                    " Delete that query or choose another name.",
                    query_id=holder.id if holder is not None and is_taken else None,
                )
        for stream, name in {s: n for p in planned for s, n in p.streams.items()}.items():
            if stream in self._dropping or state.catalog.by_id(stream) is None:
                raise UnknownObject(f"A stream must exist to be used; {name!r} was just dropped.", stream=name)
        for table in {t.definition.id: t.definition for p in planned for t in p.tables}.values():
            if table.id in self._dropping or state.catalog.table_by_id(table.id) is None:
                raise UnknownObject(f"A table must exist to be used; {table.name!r} was just dropped.")

    def hold_queries(self, planned: list[PlannedQuery]) -> None:
        """Hold the names, streams and tables of new queries."""
        self._queries += len(planned)
        self._of_tenant.update(p.tenant for p in planned)
        self._query_names |= {p.full_name for p in planned if p.full_name is not None}
        self._used.update(each for p in planned for each in _used_by(p))

    def release_queries(self, planned: list[PlannedQuery]) -> None:
        """Let them go: the queries are accepted, or could not be."""
        self._queries -= len(planned)
        self._of_tenant.subtract(p.tenant for p in planned)
        self._query_names -= {p.full_name for p in planned if p.full_name is not None}
        self._used.subtract(each for p in planned for each in _used_by(p))
        self._used = +self._used

    def hold_ending(self, ids: Iterable[str]) -> None:
        """Hold queries that are being deleted, paused or replaced."""
        self._ending.update(ids)

    def release_ending(self, ids: Iterable[str]) -> None:
        """Let them go."""
        self._ending.subtract(ids)
        self._ending = +self._ending

    def check_replaced(self, record: QueryRecord) -> None:
        """Raise Conflict for a query that cannot be replaced now."""
        if record.id in self._ending:
            raise Conflict(
                f"A query must not change while it is replaced; {record.id} is just being deleted, paused or replaced."
                " Look at it and try again.",
                query_id=record.id,
            )
        if not record.is_wanted:
            by = record.replaced_by
            raise Conflict(
                f"A query must be PENDING, RUNNING or PAUSED to be replaced; {record.id} is {record.state}. "
                + ("Register a new one with POST /queries." if by is None else f"Replace {by}, which replaced it."),
                query_id=record.id,
            )

    @property
    def used(self) -> set[str]:
        """The ids of streams, tables and versions of tables that new queries use."""
        return set(self._used)

    def hold_name(self, state: SessionState, name: str, what: str) -> None:
        """Hold the name of a new stream or table; Conflict when it is taken by either."""
        known = (*state.catalog, *(table.definition.name for table in state.catalog.tables()))
        if name.lower() in self._names or any(name.lower() == other.lower() for other in known):
            raise Conflict(
                f"The name of a {what} must be new; {name!r} exists. Drop it first or choose another.",
                stream=name if what == "stream" else None,
            )
        self._names.add(name.lower())

    def release_name(self, name: str) -> None:
        """Let the name of a stream or table go."""
        self._names.discard(name.lower())

    def hold_drop(self, state: SessionState, name: str) -> str:
        """Return the id of a stream that goes, and keep queries from it; Conflict while queries use it."""
        stream = state.catalog.state(name)
        return self._hold_drop("stream", name, stream.definition.id, stream.users, state)

    def hold_drop_table(self, state: SessionState, name: str) -> str:
        """Return the id of a table that goes, and keep queries from it; Conflict while queries use it."""
        table = state.catalog.table(name)
        return self._hold_drop("table", name, table.definition.id, table.users, state)

    def _hold_drop(self, what: str, name: str, object_id: str, users: int, state: SessionState) -> str:
        stream = name if what == "stream" else None
        if object_id in self._dropping:
            raise UnknownObject(f"A {what} must exist to be dropped; {name!r} was just dropped.", stream=stream)
        users += self._used[object_id]
        if users:
            using = (q.id for q in state.queries.values() if not q.is_finished and _uses(q, object_id))
            some = ", ".join(islice(using, 20)) or "just being accepted"
            raise Conflict(
                f"A {what} must not be used to be dropped; {users} queries use {name!r}:"
                f" {some}. Delete them and wait until they are RETIRED.",
                stream=stream,
            )
        self._dropping.add(object_id)
        return object_id

    def release_drop(self, object_id: str) -> None:
        """Let a stream or table go, dropped or not."""
        self._dropping.discard(object_id)


def _used_by(planned: PlannedQuery) -> Iterator[str]:
    yield from planned.streams
    for version in planned.tables:
        yield version.definition.id
        yield version.id


def _uses(record: QueryRecord, object_id: str) -> bool:
    return object_id in record.stream_names or any(lookup.table == object_id for lookup in lookups_of(record.query))
