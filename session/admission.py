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
from router.sinks.connectors import read_sink
from session.catalog import Catalog
from session.query_record import DRAINING, QueryRecord, full_name
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


def plan_requests(
    requests: Iterable[QueryRequest],
    catalog: Catalog,
    tables: NamedTables,
    confinement: Confinement = OPEN,
    tenant: str | None = None,
) -> list[PlannedQuery]:
    """Return every request planned; the error of the first that cannot be says which it was."""
    requests = list(requests)
    planned = []
    names = {definition.id: definition.name for definition in catalog.values()}
    for position, request in enumerate(requests, start=1):
        try:
            stated_name, query, stated_sink = read_query(request.sql, catalog, tables)
            name = stated_name if request.name is None else request.name
            if name is not None:
                check_name(name)
            if stated_sink is not None and request.sink is not None:
                raise NotAllowed("The sink of a query must be said once: in its SQL or beside it.")
            sink = read_sink(request.sink if stated_sink is None else stated_sink)
            if sink is not None:
                sink.validate(query, confinement)
        except BraidError as error:
            if len(requests) > 1:
                error.detail = f"Query {position} of {len(requests)}: {error.detail}"
                error.args = (error.detail,)
            raise
        streams = shared_dict({stream: names[stream] for stream in query.streams})
        used = tuple(tables.read[table] for table in {lookup.table: None for lookup in lookups_of(query)})
        said = request.sink if sink is None else sink.to_json()
        planned.append(PlannedQuery(request, name, query, streams, used, said, tenant))
    return planned


class Reservations:
    """What requests on their way to the disk need; used under the session's lock."""

    def __init__(self) -> None:
        self._query_names: set[str] = set()
        self._queries = 0
        self._of_tenant: Counter[str | None] = Counter()
        self._used: Counter[str] = Counter()
        self._names: set[str] = set()
        self._dropping: set[str] = set()

    def check_queries(self, state: SessionState, planned: list[PlannedQuery], most: int, owner: Owner = NOBODY) -> None:
        """Raise what keeps these queries, at most ``most`` of all and all of one owner, from being accepted now."""
        if state.queries.unfinished + self._queries + len(planned) > most:
            raise Overloaded(
                f"At most {most} queries may run (setting max_queries); got {len(planned)} more with"
                f" {state.queries.unfinished + self._queries} there. Delete some first.",
                retry_after=10,
            )
        if owner.tenant is not None and owner.most_running is not None:
            running = state.queries.unfinished_of(owner.tenant) + self._of_tenant[owner.tenant]
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
            is_taken = holder is not None and not holder.is_finished and holder.state != DRAINING
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
