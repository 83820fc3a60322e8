"""Commands on queries: create, replace, delete, pause, resume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from operators.lookup.lookups import Lookup, rows_at_first
from session.commands.admission import Owner, check_new_queries, check_replaced
from session.commands.query_requests import PlannedQuery
from session.commands.table_rows import TableRows, inputs_with_new_rows
from session.commands.writer import Group
from session.state.query_record import DRAINING, PAUSED, PENDING, RUNNING, QueryRecord
from session.state.requests import Key, QueriesAccepted, QueriesDeleted, QueryPaused, QueryReplaced, QueryResumed
from session.state.session_state import SessionState
from sources.core.errors import Conflict
from sources.core.names import name_key

MOST_DEPLOYMENTS = 1000


@dataclass(frozen=True)
class CreateQueries:
    """Accept queries of one owner, all or none; at most ``most`` may run in all.

    ``records`` are what will be known of the queries, as planned; they get their ids with the request.
    """

    planned: Sequence[PlannedQuery]
    records: tuple[QueryRecord, ...]
    owner: Owner
    most: int
    rows: TableRows
    key: Key | None

    @cached_property
    def uses(self) -> frozenset[str]:
        """The names of streams and tables."""
        names = {name for p in self.planned for name in p.streams.values()}
        names.update(version.definition.name for p in self.planned for version in p.tables)
        return frozenset(map(name_key, names))

    @cached_property
    def changes(self) -> frozenset[str]:
        """The names of the queries."""
        return frozenset(record.full_name for record in self.records if record.full_name is not None)

    def to_request(self, group: Group, /) -> QueriesAccepted:
        """Return the request; raises why the queries cannot be accepted."""
        self.accept(group)
        return QueriesAccepted(self.records, self.key)

    def accept(self, group: Group, replaced: str | None = None) -> None:
        """Check the queries, one of which may take the place of another, and give them their ids."""
        self._check_rows(group.state)
        check_new_queries(group.state, self.planned, self.most, self.owner, replaced, group.new_queries)
        for record, query_id in zip(self.records, group.state.new_query_ids(len(self.records)), strict=True):
            record.id, record.created_us = query_id, group.at_us

    def _check_rows(self, state: SessionState) -> None:
        """Raise NotAllowed where queries cannot use the rows that tables got after the queries were planned."""
        queries = [(p.query, None) for p in self.planned if p.tables]
        refreshed = state.catalog.refreshed()

        def is_new(lookup: Lookup) -> bool:
            return refreshed.current(lookup).version != rows_at_first(lookup.version)

        self.rows.check_matches(inputs_with_new_rows(queries, refreshed, is_new))


@dataclass(frozen=True)
class ReplaceQuery:
    """Accept a query in the place of another, which retires with the same changelog."""

    new: CreateQueries
    replaced: QueryRecord
    drain: bool

    @property
    def uses(self) -> frozenset[str]:
        """What the new query uses."""
        return self.new.uses

    @property
    def changes(self) -> frozenset[str]:
        """The queries."""
        return self.new.changes | names_of(self.replaced)

    def to_request(self, group: Group, /) -> QueryReplaced:
        """Return the request; Conflict for an old query that is on its way out."""
        check_replaced(self.replaced)
        self.new.accept(group, self.replaced.id)
        (record,) = self.new.records
        return QueryReplaced(record, self.replaced.id, self.drain, self.new.key)


@dataclass(frozen=True)
class DeleteQueries:
    """Retire queries; ``why`` is ``request`` or ``ttl``. Nothing changes where they are on their way out already."""

    records: Sequence[QueryRecord]
    drain: bool
    key: Key | None = None
    why: str = "request"
    uses = frozenset[str]()

    @property
    def changes(self) -> frozenset[str]:
        """The queries."""
        return frozenset[str]().union(*map(names_of, self.records))

    def to_request(self, _: Group, /) -> QueriesDeleted | None:
        """Return the request, of those only that are to change."""
        ids = tuple({record.id: None for record in self.records if self._changes(record)})
        return QueriesDeleted(ids, self.drain, self.why, self.key) if ids else None

    def _changes(self, record: QueryRecord) -> bool:
        if record.is_finished:
            return False
        return record.state != DRAINING or (record.drain and not self.drain)


@dataclass(frozen=True)
class PauseQuery:
    """Pause a query; nothing changes where it is paused."""

    record: QueryRecord
    key: Key | None
    uses = frozenset[str]()

    @property
    def changes(self) -> frozenset[str]:
        """The query."""
        return names_of(self.record)

    def to_request(self, _: Group, /) -> QueryPaused | None:
        """Return the request; Conflict for a query that is on its way out."""
        if self.record.state == PAUSED:
            return None
        if not self.record.is_wanted:
            raise _not_allowed_now(self.record, "PENDING or RUNNING to be paused")
        return QueryPaused(self.record.id, self.key)


@dataclass(frozen=True)
class ResumeQuery:
    """Run a paused query again; nothing changes where it is to run already."""

    record: QueryRecord
    key: Key | None
    uses = frozenset[str]()

    @property
    def changes(self) -> frozenset[str]:
        """The query."""
        return names_of(self.record)

    def to_request(self, _: Group, /) -> QueryResumed | None:
        """Return the request; Conflict for a query that is on its way out, or was resumed too often."""
        query_id = self.record.id
        if self.record.state in (PENDING, RUNNING):
            return None
        if self.record.state != PAUSED:
            raise _not_allowed_now(self.record, "PAUSED to be resumed")
        if len(self.record.all_deployments) >= MOST_DEPLOYMENTS:
            raise Conflict(
                f"A query can be deployed {MOST_DEPLOYMENTS} times; {query_id} was. PUT /queries/{query_id} puts"
                " a new one in its place.",
                query_id=query_id,
            )
        return QueryResumed(query_id, self.key)


def names_of(record: QueryRecord) -> frozenset[str]:
    """Return the id and the full name of a query."""
    return frozenset({record.id, record.full_name or record.id})


def _not_allowed_now(record: QueryRecord, requirement: str) -> Conflict:
    return Conflict(
        f"A query must be {requirement}; {record.id} is {record.state}. Register a new one with POST /queries.",
        query_id=record.id,
    )
