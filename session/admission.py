"""Admission of new queries: what must hold to accept them, and which requests must not run at the same time.

Requests are planned without a lock (:mod:`session.query_requests`), then checked and reserved under the session's lock,
then logged. A reservation keeps the names and streams of a request that is on its way to the disk from being taken or
dropped meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from threading import Event

from operators.lookup.lookups import Refreshed
from operators.queries import Query, lookups_of
from session.query_record import QueryRecord
from session.query_requests import PlannedQuery
from session.session_state import SessionState
from sources.connectors.static_table import TableVersion
from sources.core.errors import Conflict, Overloaded, UnknownObject
from sources.core.names import name_key

MOST_SHOWN = 20
"""How many queries an error names."""


def _no_check(_: list[PlannedQuery]) -> None:
    return


@dataclass(frozen=True)
class Owner:
    """The tenant that new queries are of, how many of its queries may run, and a further check of them.

    ``check`` is called under the session's lock and raises why the queries cannot be accepted.
    """

    tenant: str | None = None
    most_running: int | None = None
    check: Callable[[list[PlannedQuery]], None] = _no_check


NOBODY = Owner()


class Reservations:
    """What requests on their way to the disk need; used under the session's lock."""

    def __init__(self) -> None:
        self._query_names: set[str] = set()
        self._queries = 0
        self._of_tenant: Counter[str | None] = Counter()
        self._used: Counter[str] = Counter()
        self._names: dict[str, Event] = {}
        self._dropping: set[str] = set()
        self._ending: Counter[str] = Counter()
        self._replaced: set[str] = set()
        self._planned: dict[int, list[PlannedQuery]] = {}
        self._refreshing: TableVersion | None = None

    def check_queries(
        self,
        state: SessionState,
        planned: list[PlannedQuery],
        most: int,
        owner: Owner = NOBODY,
        replaced: str | None = None,
    ) -> None:
        """Raise why these queries, all of one owner, cannot be accepted now; at most ``most`` may run in all.

        One of them takes the place of the query ``replaced``, if there is one.
        """
        unfinished = state.queries.unfinished + self._queries - (replaced is not None)
        if unfinished + len(planned) > most:
            raise Overloaded(
                f"At most {most} queries may run (setting max_queries); got {len(planned)} more with"
                f" {unfinished} there. Delete some first.",
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
        names = Counter(p.full_name for p in planned if p.full_name is not None)
        for name, count in names.items():
            holder = state.queries.find(state.names.get(name, ""))
            is_taken = holder is not None and holder.is_wanted and holder.id != replaced
            if count > 1 or name in self._query_names or is_taken:
                raise Conflict(
                    f"The name of a query must differ from those that run; got {name.rpartition('/')[2]!r} again."
                    " Delete that query or choose another name.",
                    query_id=holder.id if holder is not None and is_taken else None,
                )
        streams = {stream: name for p in planned for stream, name in p.streams.items()}
        for stream, name in streams.items():
            if stream in self._dropping or state.catalog.by_id(stream) is None:
                raise UnknownObject(f"A stream must exist to be used; {name!r} was just dropped.", stream=name)
        tables = {version.definition.id: version.definition for p in planned for version in p.tables}
        for table in tables.values():
            if table.id in self._dropping or state.catalog.table_by_id(table.id) is None:
                raise UnknownObject(f"A table must exist to be used; {table.name!r} was just dropped.")
        owner.check(planned)  # last: what is refused anyway must not count against a quota

    def hold_queries(self, planned: list[PlannedQuery]) -> None:
        """Hold the names, streams and tables of new queries."""
        self._queries += len(planned)
        self._of_tenant.update(p.tenant for p in planned)
        self._query_names |= {p.full_name for p in planned if p.full_name is not None}
        self._used.update(object_id for p in planned for object_id in _used_by(p))
        self._planned[id(planned)] = planned

    def release_queries(self, planned: list[PlannedQuery]) -> None:
        """Release what :meth:`hold_queries` held for this list: the queries are accepted, or could not be."""
        del self._planned[id(planned)]
        self._queries -= len(planned)
        self._of_tenant.subtract(p.tenant for p in planned)
        self._query_names -= {p.full_name for p in planned if p.full_name is not None}
        self._used.subtract(object_id for p in planned for object_id in _used_by(p))
        self._used = +self._used

    def hold_ending(self, ids: Iterable[str]) -> None:
        """Hold queries that are being deleted or paused; Conflict for one that is being replaced.

        A query that is being replaced ends with the changelog that creates its replacement, and with no other.
        """
        ids = list(ids)
        for query_id in ids:
            if query_id in self._replaced:
                raise _is_changing(query_id)
        self._ending.update(ids)

    def release_ending(self, ids: Iterable[str]) -> None:
        """Release queries that were being deleted or paused."""
        self._ending.subtract(ids)
        self._ending = +self._ending

    def hold_replaced(self, query_id: str) -> None:
        """Hold a query that is being replaced."""
        self._replaced.add(query_id)

    def release_replaced(self, query_id: str) -> None:
        """Release a query that was being replaced."""
        self._replaced.discard(query_id)

    def is_replaced(self, query_id: str) -> bool:
        """Whether a query is held as one that is being replaced."""
        return query_id in self._replaced

    def check_replaced(self, record: QueryRecord) -> None:
        """Raise Conflict for a query that cannot be replaced now."""
        if record.id in self._ending or record.id in self._replaced:
            raise _is_changing(record.id)
        if not record.is_wanted:
            successor = record.replaced_by
            raise Conflict(
                f"A query must be PENDING, RUNNING or PAUSED to be replaced; {record.id} is {record.state}. "
                + (
                    "Register a new one with POST /queries."
                    if successor is None
                    else f"Replace {successor}, which replaced it."
                ),
                query_id=record.id,
            )

    @property
    def used_ids(self) -> set[str]:
        """The ids of streams, tables and versions of tables that new queries use."""
        return set(self._used)

    def hold_name(self, state: SessionState, name: str, kind: str) -> None:
        """Hold the name of a new stream or table; Conflict when it is taken by either."""
        taken_names = (*state.catalog, *(table.definition.name for table in state.catalog.tables()))
        if name_key(name) in {*self._names, *map(name_key, taken_names)}:
            raise Conflict(
                f"The name of a {kind} must be new; {name!r} exists. Drop it first or choose another.",
                stream=name if kind == "stream" else None,
            )
        self._names[name_key(name)] = Event()

    def being_made(self, name: str) -> Event | None:
        """Return the event that is set when a held name is released, None for a name that is not held."""
        return self._names.get(name_key(name))

    def release_name(self, name: str) -> None:
        """Release the name of a new stream or table."""
        released = self._names.pop(name_key(name), None)
        if released is not None:
            released.set()

    def hold_drop(self, state: SessionState, name: str) -> str:
        """Keep new queries from a stream that is to be dropped, and return its id; Conflict while queries use it."""
        stream = state.catalog.state(name)
        return self._hold_drop("stream", name, stream.definition.id, stream.users, state)

    def hold_drop_table(self, state: SessionState, name: str) -> str:
        """Keep new queries from a table that is to be dropped, and return its id; Conflict while queries use it."""
        table = state.catalog.table(name)
        return self._hold_drop("table", name, table.definition.id, table.users, state)

    def hold_refresh(self, state: SessionState, version: TableVersion) -> None:
        """Hold a table, and the version of it that its queries are to get; UnknownObject where it was dropped.

        One table is refreshed at a time.
        """
        table = version.definition
        if table.id in self._dropping or state.catalog.table_by_id(table.id) is None:
            raise UnknownObject(f"A table must exist to be refreshed; {table.name!r} was just dropped.")
        self._used.update((table.id, version.id))
        self._refreshing = version

    def release_refresh(self, version: TableVersion) -> None:
        """Release a table and its version: the table is refreshed, or could not be."""
        self._refreshing = None
        self._used.subtract((version.definition.id, version.id))
        self._used = +self._used

    @property
    def new_queries(self) -> Iterator[Query]:
        """The new queries that are held."""
        return (p.query for planned in self._planned.values() for p in planned)

    @property
    def refreshing(self) -> TableVersion | None:
        """The version with which a table is just being refreshed, None when none is."""
        return self._refreshing

    def refreshed_tables(self, state: SessionState) -> Refreshed:
        """Return the rows that tables have after all refreshes so far, the one on its way included."""
        refreshed = state.catalog.refreshed()
        if self._refreshing is not None:
            table_id = self._refreshing.definition.id
            refreshes, _ = refreshed.get(table_id, (0, ""))
            refreshed[table_id] = refreshes + 1, self._refreshing.id
        return refreshed

    def _hold_drop(self, kind: str, name: str, object_id: str, users: int, state: SessionState) -> str:
        stream = name if kind == "stream" else None
        if object_id in self._dropping:
            raise UnknownObject(f"A {kind} must exist to be dropped; {name!r} was just dropped.", stream=stream)
        users += self._used[object_id]
        if users:
            user_ids = (q.id for q in state.queries.values() if not q.is_finished and _uses(q, object_id))
            shown = list(islice(user_ids, MOST_SHOWN))
            shown_ids = ", ".join(shown) or "one is just being accepted, or the table refreshed"
            if shown and users > len(shown):
                shown_ids += f" and {users - len(shown)} more"
            raise Conflict(
                f"A {kind} must not be used to be dropped; {users} queries use {name!r}:"
                f" {shown_ids}. Delete them and wait until they are RETIRED.",
                stream=stream,
            )
        self._dropping.add(object_id)
        return object_id

    def release_drop(self, object_id: str) -> None:
        """Release a stream or table that was to be dropped: it is, or could not be."""
        self._dropping.discard(object_id)


def _used_by(planned: PlannedQuery) -> Iterator[str]:
    yield from planned.streams
    for version in planned.tables:
        yield version.definition.id
        yield version.id


def _uses(record: QueryRecord, object_id: str) -> bool:
    return object_id in record.stream_names or any(lookup.table == object_id for lookup in lookups_of(record.query))


def _is_changing(query_id: str) -> Conflict:
    return Conflict(
        f"A query must not change while it is replaced; {query_id} is just being deleted, paused or replaced."
        " Look at it and try again.",
        query_id=query_id,
    )
