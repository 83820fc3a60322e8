"""The queries of a session as clients change them.

SQL is parsed and planned on the caller's thread, against a copy of the catalog; what that took for granted the command
checks again on the writer's thread. ``begin_…`` return before a command is done, with a
:class:`~braid.session.commands.writer.Submission` that gives the answer later: for callers that must not block.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from braid.operators.queries import Query
from braid.session.commands import planning
from braid.session.commands.admission import NOBODY, Owner, check_new_queries, check_replaced
from braid.session.commands.named_relations import NamedRelations
from braid.session.commands.plans import Plans
from braid.session.commands.query_lookup import QueryLookup
from braid.session.commands.query_requests import Inherited, PlannedQuery, QueryRequest, Replacement, plan_requests
from braid.session.commands.readers import check_unread, with_readers
from braid.session.commands.relations import Resolution, check_relations
from braid.session.commands.starts import place, place_after, read_start
from braid.session.commands.succession import succeeding_streams
from braid.session.commands.table_rows import NamedTables, TableRows
from braid.session.commands.writer import Command, CommandGroup, Submission, Wake, Writer
from braid.session.log.idempotency import current, current_key, has_effect
from braid.session.settings import OFF, Settings
from braid.session.sql.select import plan_statement
from braid.session.sql.statements import Select
from braid.session.state.query_record import CATCHING_UP, DRAINING, PAUSED, PENDING, RUNNING, QueryRecord, full_name
from braid.session.state.requests import (
    Key,
    QueriesAccepted,
    QueriesDeleted,
    QueryPaused,
    QueryReplaced,
    QueryResumed,
    Request,
)
from braid.session.state.session_state import SessionState
from braid.session.state.times import rfc3339
from braid.session.state.waiting import waiting_for
from braid.sources.core.errors import Conflict, MalformedRequest
from braid.sources.core.names import name_key

Answer = list[dict[str, Any]]
MAX_DEPLOYMENTS = 1000


class Queries:
    """Commands on the queries of one session."""

    def __init__(
        self,
        state: SessionState,
        lock: threading.RLock,
        writer: Writer,
        rows: TableRows,
        lookup: QueryLookup,
        plans: Plans,
        settings: Settings,
    ) -> None:
        self._state = state
        self._lock = lock
        self._writer = writer
        self._rows = rows
        self._lookup = lookup
        self._plans = plans
        self._settings = settings

    # queries that come

    def create(self, requests: Iterable[QueryRequest], owner: Owner = NOBODY) -> Answer:
        """Accept all of the queries or none, and return their descriptions."""
        return self.begin_create(requests, owner=owner).wait()

    def begin_create(
        self, requests: Iterable[QueryRequest], *on_done: Wake, owner: Owner = NOBODY, may_replace: bool = False
    ) -> Submission:
        """Begin to accept all of the queries or none; ``on_done`` are called, on another thread, when that is done."""
        requests = list(requests)
        begun = self._begun_before()
        if begun is not None:
            return begun
        planned = self._plan(requests, owner, may_replace=may_replace)
        return self._begin_new(planned, owner, *on_done)

    def begin_replace(
        self, id_or_name: str, replacement: Replacement, drain: bool = True, *on_done: Wake, owner: Owner = NOBODY
    ) -> Submission:
        """Begin to accept a query in the place of another, which retires with the same changelog.

        The new one sees exactly the tuples that the old one does not, and is of the same tenant, whoever asks. Conflict
        for an old one that is already on its way out; otherwise as :meth:`begin_create` and :meth:`begin_delete`.
        """
        begun = self._begun_before()
        if begun is not None:
            return begun
        replaced = self._lookup.record(id_or_name)
        check_replaced(replaced)
        if owner.tenant != replaced.tenant:
            owner = Owner(replaced.tenant, check=owner.check)
        request, inherited = replacement.after(replaced)
        planned = self._plan([request], owner, inherited, may_replace=True)
        return self._begin_new(planned, owner, *on_done, replaced=replaced, drain=drain)

    def create_or_replace(self, name: str, sql: str, owner: Owner = NOBODY) -> dict[str, Any]:
        """Carry out CREATE OR REPLACE QUERY: replace the owner's query of this name, or create one if there is none."""
        with self._lock:
            record = self._state.queries.find(self._state.names.get(full_name(owner.tenant, name), ""))
            replaced = record.id if record is not None and record.is_wanted else None
        if replaced is not None:
            return self.begin_replace(replaced, Replacement(sql), owner=owner).wait()[0]
        return self.begin_create([QueryRequest(sql)], owner=owner, may_replace=True).wait()[0]

    def _begin_new(
        self,
        planned: list[PlannedQuery],
        owner: Owner,
        *on_done: Wake,
        replaced: QueryRecord | None = None,
        drain: bool = True,
    ) -> Submission:
        """Begin to accept queries, or one in the place of another."""
        replaced_id, key = None if replaced is None else replaced.id, current_key()
        records = tuple(p.to_record(replaced) for p in planned)
        # described now: once they are applied, other threads may change the records
        answer = [{**r.describe(), "waiting_for": waiting_for(r, self._state.catalog)} for r in records]

        def check(group: CommandGroup) -> Request:
            if replaced is not None:
                check_replaced(replaced)
            self._rows.check_refreshed(group.state, [p.query for p in planned if p.tables])
            limit = self._settings.max_queries
            check_new_queries(group.state, planned, limit, owner, replaced_id, group.new_queries)
            resolution = Resolution(group.state, self._with_settings)
            for record, p in zip(records, planned, strict=True):
                record.created_us = group.at_us
                resolution.resolve(record, p)
            check_relations(group.state, records, resolution.records, owner, replaced)
            for record, query_id in zip(records, group.state.new_query_ids(len(records)), strict=True):
                record.id = query_id
            pending = {origin: replay.id for origin, replay in group.state.pending.replays.items()}
            for subquery in resolution.records:
                start = None if subquery.start is None else read_start(subquery.start)
                place(subquery, start, group.state.catalog, pending, group.state.queries)
            for record, p in zip(records, planned, strict=True):
                if replaced is not None and p.start is None:
                    place_after(record, replaced)
                else:
                    place(record, p.start, group.state.catalog, pending, group.state.queries)
            subqueries = tuple(resolution.records)
            if replaced is None:
                return QueriesAccepted((*subqueries, *records), key)
            streams = succeeding_streams(group.state, replaced, records[0])
            return QueryReplaced(records[0], replaced.id, drain, key, subqueries, streams)

        def identified() -> Answer:
            for description, record in zip(answer, records, strict=True):
                description["id"], description["created_at"] = record.id, rfc3339(record.created_us)
                description["operator"] = record.operator
            return answer

        tables = [version for p in planned for version in p.tables]
        used = {*(name for p in planned for name in p.streams.values()), *(table.definition.name for table in tables)}
        names = {record.full_name for record in records if record.full_name is not None}
        changes = names if replaced is None else names | _names_of([replaced])
        release = self._rows.hold(tables)
        try:
            command = Command(check, changes, set(map(name_key, used)))
            return self._writer.submit(command, release, *on_done, answer=identified)
        except BaseException:
            release()
            raise

    def _begun_before(self) -> Submission | None:
        """Return the answer of a request whose effect an earlier, interrupted run already had; None for others."""
        running = current()
        if running is None or not running.has_effect:
            return None
        return Submission(lambda: [self._lookup.describe(query_id) for query_id in running.effect])

    def validate(self, requests: list[QueryRequest], owner: Owner = NOBODY) -> Answer:
        """Return how each query would run and with which others it would share, or raise what creating them would."""
        planned = self._plan(requests, owner)
        with self._lock:
            check_new_queries(self._state, planned, self._settings.max_queries, owner)
        explained = []
        for p in planned:
            planning.check()
            explained.append(self._plans.explain(p.query, p.streams))
        return explained

    def explain(self, select: Select, owner: Owner = NOBODY) -> dict[str, Any]:
        """Return how a SELECT would run, as :meth:`validate` does."""
        with self._lock:
            catalog = self._state.catalog.copy()
        tables = NamedTables(catalog, self._rows)
        relations = NamedRelations(catalog, self._state, self._lookup, owner.tenant)
        planned = plan_statement(select, relations, tables, self._settings.statement_limits)
        query = self._with_settings(planned.query)
        names = {definition.id: definition.name for definition in catalog.values()}
        return self._plans.explain(query, {s: names.get(s) or relations.name_of(s) for s in query.streams})

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
        planned = plan_requests(
            requests,
            NamedRelations(catalog, self._state, self._lookup, owner.tenant),
            NamedTables(catalog, self._rows),
            self._settings.confinement,
            owner.tenant,
            inherited,
            may_replace,
            self._settings.statement_limits,
        )
        return [replace(p, query=self._with_settings(p.query)) for p in planned]

    def _with_settings(self, query: Query) -> Query:
        """Return a query with the settings ``join_orders`` and ``query_sharing`` applied."""
        if self._settings.join_orders == OFF:
            query = query.in_written_order()
        return query.set_apart(uuid.uuid4().hex) if self._settings.query_sharing == OFF else query

    # queries that go, and those that stay

    def delete(self, id_or_name: str, drain: bool = True) -> dict[str, Any]:
        """Retire a query and return its description; harmless to repeat. ``drain=False`` stops it at once."""
        return self.begin_delete([id_or_name], drain).wait()[0]

    def begin_delete(
        self, ids_or_names: Iterable[str], drain: bool, *on_done: Wake, cascade: bool = False
    ) -> Submission:
        """Begin to retire all of the queries, or none when one is unknown; with ``cascade`` those that read them, too.

        Conflict where others read one.
        """
        records = [self._lookup.record(id_or_name) for id_or_name in ids_or_names]
        if not records:
            raise MalformedRequest("At least one query must be given; got an empty list.")
        return self._begin(deletion(records, drain, current_key(), cascade=cascade), records, *on_done)

    def begin_pause(self, id_or_name: str, *on_done: Wake) -> Submission:
        """Begin to pause a query, which then drains as if it were deleted; harmless to repeat.

        Conflict for one that is on its way out.
        """
        record, key = self._lookup.record(id_or_name), current_key()

        def check(_: CommandGroup) -> QueryPaused | None:
            if record.state == PAUSED:
                return None
            if not record.is_wanted:
                raise _not_allowed_now(record, "pause")
            return QueryPaused(record.id, key)

        return self._begin(Command(check, _names_of([record])), [record], *on_done)

    def begin_resume(self, id_or_name: str, *on_done: Wake) -> Submission:
        """Begin to run a paused query again, as soon as it has drained; harmless to repeat.

        Conflict for one that is on its way out, or was resumed too often.
        """
        record, key = self._lookup.record(id_or_name), current_key()

        def check(_: CommandGroup) -> QueryResumed | None:
            if record.state in (PENDING, CATCHING_UP, RUNNING):
                return None
            if record.state != PAUSED:
                raise _not_allowed_now(record, "resume")
            if len(record.all_deployments) >= MAX_DEPLOYMENTS:
                raise Conflict(
                    f"A query can be deployed {MAX_DEPLOYMENTS} times; {record.id} was. PUT /queries/{record.id} puts"
                    " a new one in its place.",
                    query_id=record.id,
                )
            return QueryResumed(record.id, key)

        return self._begin(Command(check, _names_of([record])), [record], *on_done)

    def _begin(self, command: Command, records: list[QueryRecord], *on_done: Wake) -> Submission:
        def answer() -> Answer:
            return [self._lookup.describe(record.id) for record in records]

        return Submission(answer) if has_effect() else self._writer.submit(command, *on_done, answer=answer)


def deletion(
    records: Sequence[QueryRecord],
    drain: bool,
    key: Key | None = None,
    why: str = "request",
    cascade: bool = False,
) -> Command:
    """Return the command to retire queries; nothing changes where they are on their way out already.

    Conflict where others read one of them, unless these go, too (``cascade``).
    """

    def check(group: CommandGroup) -> QueriesDeleted | None:
        doomed = with_readers(group.state, records) if cascade else records
        check_unread(group.state, [record for record in doomed if record.is_wanted])
        ids = tuple({record.id: None for record in doomed if is_changed(record)})
        return QueriesDeleted(ids, drain, why, key) if ids else None

    def is_changed(record: QueryRecord) -> bool:
        return not record.has_ended and (record.state != DRAINING or (record.drain and not drain))

    return Command(check, _names_of(records))


def _names_of(records: Iterable[QueryRecord]) -> set[str]:
    """Return the ids and full names of queries."""
    return {name for record in records for name in (record.id, record.full_name) if name is not None}


def _not_allowed_now(record: QueryRecord, verb: str) -> Conflict:
    return Conflict(
        f"Cannot {verb} query {record.id}: it is {record.state}. Create a new one with POST /queries (braid query).",
        query_id=record.id,
    )
