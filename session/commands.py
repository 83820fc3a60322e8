"""Commands on streams, static tables and queries that come and go.

Each command is checked, its request logged, and answered once that is durable and applied. ``begin_…`` return before
that, with a :class:`StartedCommand` that gives the answer later: for callers that must not block while the disk is
flushed.
"""

from __future__ import annotations

import threading
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from operators.lookup.lookups import Lookup, rows_at_first
from operators.queries import Query
from session import planning
from session.admission import NOBODY, Owner, Reservations
from session.archive import Archive
from session.deliveries import SinkDeliveries
from session.idempotency import Idempotency, current
from session.query_record import DRAINING, QueryRecord
from session.query_requests import Inherited, PlannedQuery, QueryRequest, plan_requests
from session.reads import Reads, result_columns
from session.request_log import Logged, RequestLog
from session.requests import (
    Key,
    Outcome,
    OutcomeRecorded,
    QueriesAccepted,
    QueriesDeleted,
    Request,
    StreamCreated,
    StreamDropped,
    TableCreated,
    TableDropped,
    TableRefreshed,
    new_queries,
)
from session.settings import OFF, Settings
from session.sql.select import plan_select
from session.sql.statement_limits import StatementLimits
from session.sql.statements import CreateStream, CreateTable, Select
from session.statements import read_create_stream, read_create_table, to_definition, to_table_definition
from session.tables import NamedTables, Tables, inputs_with_new_rows
from sources.core.errors import MalformedRequest, NotReady
from sources.core.record_log import RecordLog
from sources.core.storage import Storage

Wake = Callable[[], None]


@dataclass(frozen=True)
class StartedCommand:
    """A command that has begun: ``logged`` is its request, None when there is nothing to wait for."""

    logged: Logged | None
    answer: Callable[[], list[dict[str, Any]]]
    """Returns the descriptions of the command's queries; to be called once the request is done."""

    def wait(self) -> list[dict[str, Any]]:
        """Return the answer when the command is durable and applied."""
        if self.logged is not None:
            self.logged.wait()
        return self.answer()

    def finished(self) -> list[dict[str, Any]]:
        """Return the answer of a command that is done, or raise why it failed."""
        if self.logged is not None:
            self.logged.check()
        return self.answer()


class Commands(Reads):
    """The session as clients change it."""

    def __init__(
        self,
        storage: Storage,
        changelogs: RecordLog,
        archive: Archive,
        settings: Settings,
        idempotency: Idempotency,
        tables: Tables,
        deliveries: SinkDeliveries,
    ) -> None:
        super().__init__(changelogs, archive, deliveries, settings.max_page_bytes)
        self._storage = storage
        self._settings = settings
        self._tables = tables
        self._idempotency = idempotency
        self._reservations = Reservations()
        self._refreshing = threading.Lock()
        self._requests: RequestLog | None = None

    @property
    def statement_limits(self) -> StatementLimits:
        """How large a statement may be."""
        return self._settings.statement_limits

    @abstractmethod
    def _now_us(self) -> int:
        """Return the time in microseconds."""

    @abstractmethod
    def _write_changelog(self) -> object:
        """Cut and write a changelog of all that waits."""

    # streams

    def create_stream(self, sql: str) -> dict[str, Any]:
        """Declare a stream and return its description; pushes may use it at once. Conflict for a name that is taken."""
        statement = read_create_stream(sql, self._settings.confinement, self._storage, self.statement_limits)
        running = current()
        if running is not None and running.has_effect:
            return self.stream(statement.name)
        if not self._hold_name(statement, "stream", lambda: statement.name in self._state.catalog):
            return self.stream(statement.name)
        try:
            with self._lock:
                stream_id = self._state.new_stream_id()
                definition = to_definition(statement, stream_id, sql, self._now_us())
                logged = self._submit(StreamCreated(definition, key_of_request()))
            logged.wait()
        finally:
            with self._lock:
                self._reservations.release_name(statement.name)
        self._write_changelog()
        return self.stream(statement.name)

    def drop_stream(self, name: str) -> None:
        """Drop a stream; Conflict while a query that is not RETIRED or FAILED uses it."""
        running = current()
        if running is not None and running.has_effect:
            return
        with self._lock:
            stream_id = self._reservations.hold_drop(self._state, name)
        try:
            self._submit(StreamDropped(stream_id, key_of_request())).wait()
        finally:
            with self._lock:
                self._reservations.release_drop(stream_id)
        self._write_changelog()

    # static tables

    def create_table(self, sql: str) -> dict[str, Any]:
        """Declare a static table, whose file must be there, and return its description.

        Conflict for a name that is taken.
        """
        statement = read_create_table(sql, self.statement_limits)
        running = current()
        if running is not None and running.has_effect:
            return self.table(statement.name)
        if not self._hold_name(statement, "table", lambda: self._state.catalog.find_table(statement.name) is not None):
            return self.table(statement.name)
        try:
            with self._lock:
                definition = to_table_definition(statement, self._state.new_table_id(), sql, self._now_us())
            try:
                self._tables.read(definition)
                self._submit(TableCreated(definition, key_of_request())).wait()
            except BaseException:
                self._tables.forget(definition.id)
                raise
        finally:
            with self._lock:
                self._reservations.release_name(statement.name)
        return self.table(statement.name)

    def _hold_name(self, statement: CreateStream | CreateTable, kind: str, exists: Callable[[], bool]) -> bool:
        """Hold the name of a new stream or table; Conflict for a name that is taken.

        With IF NOT EXISTS, return False for one that exists, and wait for one that another request declares just now.
        """
        while True:
            with self._lock:
                if statement.if_not_exists and exists():
                    return False
                name_released = self._reservations.being_made(statement.name) if statement.if_not_exists else None
                if name_released is None:
                    self._reservations.hold_name(self._state, statement.name, kind)
                    return True
            name_released.wait()

    def drop_table(self, name: str) -> None:
        """Drop a static table; Conflict while a query that is not RETIRED or FAILED uses it."""
        running = current()
        if running is not None and running.has_effect:
            return
        with self._lock:
            table_id = self._reservations.hold_drop_table(self._state, name)
        try:
            self._submit(TableDropped(table_id, key_of_request())).wait()
        finally:
            with self._lock:
                self._reservations.release_drop(table_id)
        self._tables.forget(table_id)

    def refresh_table(self, name: str) -> dict[str, Any]:
        """Read the file of a static table anew, and return the table's description.

        All queries that use it get these rows for the tuples of the batch that begins with the next changelog, and of
        later ones. NotAllowed for a file that does not fit the table, or rows with which a query cannot go on.
        """
        running = current()
        if running is not None and running.has_effect:
            return self.table(name)
        with self._lock:
            definition = self._state.catalog.table(name).definition
        with self._refreshing:
            self._tables.forget(definition.id)
            version = self._tables.read(definition)
            with self._lock:
                try:
                    self._reservations.hold_refresh(self._state, version)
                except BaseException:
                    self._tables.forget(definition.id)
                    raise
                users: list[tuple[Query, str | None]] = [(query, None) for query in self._reservations.new_queries]
                users += [(r.query, r.id) for r in self._state.queries.values() if not r.is_finished]
                refreshed = self._reservations.refreshed_tables(self._state)
            inputs = inputs_with_new_rows(users, refreshed, lambda lookup: lookup.table == definition.id)
            try:
                self._tables.keep([version])
                self._tables.check_matches(inputs)
                self._submit(TableRefreshed(definition.id, version.id, key_of_request())).wait()
            finally:
                with self._lock:
                    self._reservations.release_refresh(version)
        self._write_changelog()
        return self.table(name)

    # queries that come

    def create_queries(self, requests: Iterable[QueryRequest], owner: Owner = NOBODY) -> list[dict[str, Any]]:
        """Accept all of the queries or none, and return their descriptions."""
        return self.begin_create(requests, owner=owner).wait()

    def begin_create(
        self, requests: Iterable[QueryRequest], *on_done: Wake, owner: Owner = NOBODY, may_replace: bool = False
    ) -> StartedCommand:
        """Begin to accept all of the queries or none; ``on_done`` are called, on another thread, when that is done."""
        requests = list(requests)
        begun = self._begun_before()
        if begun is not None:
            return begun
        planned = self._plan(requests, owner, may_replace=may_replace)
        with self._lock:
            self._reservations.check_queries(self._state, planned, self._settings.max_queries, owner)
            self._reservations.hold_queries(planned)
        return self._begin_new(planned, lambda records: QueriesAccepted(records, key_of_request()), *on_done)

    def _begin_new(
        self, planned: list[PlannedQuery], request_of: Callable[[tuple[QueryRecord, ...]], Request], *on_done: Wake
    ) -> StartedCommand:
        """Begin to accept queries that are already held by the reservations."""
        try:
            self._tables.keep(table for p in planned for table in p.tables)
            self._check_refreshed(planned)
            with self._lock:  # ids are given in the order of the log
                ids, now_us = self._state.new_query_ids(len(planned)), self._now_us()
                request = request_of(tuple(p.to_record(id_, now_us) for p, id_ in zip(planned, ids, strict=True)))
                # described now: once it is applied, other threads may change the records
                answer = [record.describe() for record in new_queries(request)]
                logged = self._submit(request, partial(self._release, planned), *on_done)
        except BaseException:
            self._release(planned)
            raise
        return StartedCommand(logged, lambda: answer)

    def _check_refreshed(self, planned: list[PlannedQuery]) -> None:
        """Raise NotAllowed where held queries cannot use the rows that tables got after the queries were planned."""
        with self._lock:
            refreshed, refreshing = self._reservations.refreshed_tables(self._state), self._reservations.refreshing

        def is_new(lookup: Lookup) -> bool:
            return refreshed.current(lookup).version != rows_at_first(lookup.version)

        inputs = inputs_with_new_rows([(p.query, None) for p in planned if p.tables], refreshed, is_new)
        if inputs:
            self._tables.keep([] if refreshing is None else [refreshing])
            self._tables.check_matches(inputs)

    def _release(self, planned: list[PlannedQuery]) -> None:
        with self._lock:
            self._reservations.release_queries(planned)

    def _begun_before(self) -> StartedCommand | None:
        """Return the answer of a request whose effect an earlier, interrupted run already had; None for others."""
        running = current()
        if running is None or not running.has_effect:
            return None
        return StartedCommand(None, lambda: [self.query(query_id) for query_id in running.effect])

    def validate(self, requests: list[QueryRequest], owner: Owner = NOBODY) -> list[dict[str, Any]]:
        """Return how each query would run and with which others it would share, or raise what creating them would."""
        planned = self._plan(requests, owner)
        with self._lock:
            self._reservations.check_queries(self._state, planned, self._settings.max_queries, owner)
        explained = []
        for p in planned:
            planning.check()
            explained.append(self._explain(p.query, p.streams))
        return explained

    def _plan(
        self,
        requests: list[QueryRequest],
        owner: Owner,
        inherited: Inherited | None = None,
        may_replace: bool = False,
    ) -> list[PlannedQuery]:
        if not requests:
            raise MalformedRequest("At least one query must be given; got an empty list.")
        with self._lock:
            catalog = self._state.catalog.copy()
        tables = NamedTables(catalog, self._tables)
        planned = plan_requests(
            requests,
            catalog,
            tables,
            self._settings.confinement,
            owner.tenant,
            inherited,
            may_replace,
            self.statement_limits,
        )
        return [replace(p, query=self._with_settings(p.query)) for p in planned]

    def _with_settings(self, query: Query) -> Query:
        """Return a query with the settings ``join_orders`` and ``query_sharing`` applied."""
        if self._settings.join_orders == OFF:
            query = query.in_written_order()
        return query.set_apart(uuid.uuid4().hex) if self._settings.query_sharing == OFF else query

    def explain(self, select: Select) -> dict[str, Any]:
        """Return how a SELECT would run, as :meth:`validate` does."""
        with self._lock:
            catalog = self._state.catalog.copy()
        query = self._with_settings(
            plan_select(select, catalog, NamedTables(catalog, self._tables), self.statement_limits)
        )
        names = {definition.id: definition.name for definition in catalog.values()}
        return self._explain(query, {stream: names[stream] for stream in query.streams})

    def _explain(self, query: Query, streams: dict[str, str]) -> dict[str, Any]:
        with self._lock:
            plan = self._explained(query, streams)
        graph = {"nodes": plan.pop("nodes"), "edges": plan.pop("edges")}
        return {**plan, "columns": result_columns(query), "plan": graph}

    # queries that go

    def delete_query(self, id_or_name: str, drain: bool = True) -> dict[str, Any]:
        """Retire a query and return its description; harmless to repeat. ``drain=False`` stops it at once."""
        return self.delete_queries([id_or_name], drain)[0]

    def delete_queries(self, ids_or_names: Iterable[str], drain: bool = True) -> list[dict[str, Any]]:
        """Retire all of the queries, or none when one is unknown, and return their descriptions."""
        return self.begin_delete(ids_or_names, drain).wait()

    def begin_delete(self, ids_or_names: Iterable[str], drain: bool, *on_done: Wake) -> StartedCommand:
        """Begin to retire queries; ``on_done`` are called, on another thread, when that is done.

        When there is nothing to wait for, they are not called.
        """
        ids_or_names = list(ids_or_names)
        if not ids_or_names:
            raise MalformedRequest("At least one query must be given; got an empty list.")
        with self._lock:
            records = [self._state.queries.find(self._state.names.get(name, name)) for name in ids_or_names]
            deleted_ids = tuple({r.id: None for r in records if r is not None and _has_effect(r, drain)})
        named_records = list(zip(ids_or_names, records, strict=True))
        # raises for a query that never was, before anything is changed
        finished = {name: self._describe_finished(name) for name, record in named_records if record is None}
        ids = [name if record is None else record.id for name, record in named_records]
        logged = None
        if deleted_ids:
            logged = self._submit_ending(
                QueriesDeleted(deleted_ids, drain, key=key_of_request()), deleted_ids, *on_done
            )
        return StartedCommand(logged, lambda: [finished.get(query_id) or self.query(query_id) for query_id in ids])

    def _submit_ending(self, request: Request, ids: Sequence[str], *on_done: Wake) -> Logged:
        """Submit a request that ends deployments: until it is applied these queries cannot be replaced.

        Conflict for one that is being replaced.
        """
        with self._lock:
            self._reservations.hold_ending(ids)
            try:
                return self._submit(request, partial(self._release_ending, ids), *on_done)
            except BaseException:
                self._release_ending(ids)
                raise

    def _release_ending(self, ids: Sequence[str]) -> None:
        with self._lock:
            self._reservations.release_ending(ids)

    def _describe_finished(self, id_or_name: str) -> dict[str, Any]:
        """Describe a query that is not in the state any more; UnknownObject or Gone when it is not archived either."""
        record = self._archive.find_name(id_or_name)
        return self.query(id_or_name) if record is None else record.describe()

    def idempotent(self, key: str, fingerprint: str, action: Callable[[], Outcome]) -> Outcome:
        """Return the first outcome of ``key``, running ``action`` at most once to its end; see session.idempotency."""
        bound_key = Key(key, fingerprint)

        def record(outcome: Any) -> None:
            self._submit(OutcomeRecorded(bound_key, self._now_us(), outcome)).wait()

        return self._idempotency.run(bound_key, action, record)

    def _submit(self, request: Request, *on_done: Wake) -> Logged:
        if self._requests is None:
            raise NotReady("The service is starting; send the request again in a moment.")
        return self._requests.submit(request, *on_done)


def _has_effect(record: QueryRecord, drain: bool) -> bool:
    """Whether deleting a query changes anything."""
    if record.is_finished:
        return False
    return record.state != DRAINING or (record.drain and not drain)


def key_of_request() -> Key | None:
    """Return the Idempotency-Key of the current request."""
    running = current()
    return None if running is None else running.key
