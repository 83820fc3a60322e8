"""Queries that read queries: their subqueries as queries of their own, and what must hold of those that they read.

A subquery is a query that only others read. Where an equal one runs that gives the same rows from now on, it is shared,
whoever wrote it in the tenant; it goes with the last query that reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from braid.operators.kinds import operator_of
from braid.operators.queries import Query
from braid.session.commands.admission import Owner
from braid.session.commands.query_requests import PlannedQuery
from braid.session.commands.starts import starts_now
from braid.session.commands.succession import check_successor
from braid.session.state.query_record import QueryRecord, subquery_key
from braid.session.state.session_state import SessionState
from braid.session.state.sharing import shared_dict
from braid.sources.connectors.one_row import is_one_row, one_row_stream
from braid.sources.core.derived import all_lineages, derived_id, is_derived, lineages_of
from braid.sources.core.errors import Conflict, LimitReached, NotAllowed

MAX_LEVELS = 32
"""How many queries may read one another in a chain."""


@dataclass
class Resolution:
    """Gives the subqueries of new queries their ids: those of equal ones that run, or new ones with a record each."""

    state: SessionState
    with_settings: Callable[[Query], Query]
    records: list[QueryRecord] = field(default_factory=list)
    _new: dict[bytes, QueryRecord] = field(default_factory=dict)

    def resolve(self, record: QueryRecord, planned: PlannedQuery) -> None:
        """Have a new query read its subqueries by their ids; those that are new are added to ``records``."""
        ids: dict[str, str] = {}
        for subquery in planned.subqueries:
            query = reading(self.with_settings(subquery.query), ids)
            ids[subquery.id] = self._id_of(query, subquery.sql, planned, record)
        if ids:
            renamed = _renamed(record.query, ids)
            record.query = reading(record.query, ids)
            record.operator = operator_of(record.query)
            names = {
                renamed.get(s, s): self._name_of(renamed[s]) if s in renamed else name
                for s, name in record.stream_names.items()
            }
            record.stream_names = shared_dict(names)

    def _id_of(self, query: Query, sql: str, planned: PlannedQuery, reader: QueryRecord) -> str:
        start = None if planned.start is None else planned.start.text
        key = subquery_key(planned.tenant, query, start)
        if key in self._new:
            return self._new[key].id
        known = self.state.queries.find(self.state.subqueries.get(key, ""))
        gives_the_same = known is not None and (
            known.epoch is None or starts_now(query, planned.start, self.state.catalog)
        )
        if known is not None and known.is_wanted and gives_the_same:
            return known.id
        (query_id,) = self.state.new_query_ids(1)
        names = {stream: self._name_of(stream) for stream in query.streams}
        record = QueryRecord(
            id=query_id,
            sql=sql,
            query=query,
            operator=operator_of(query),
            stream_names=shared_dict(names),
            created_us=reader.created_us,
            tenant=planned.tenant,
            start=start,
            is_subquery=True,
        )
        self._new[key] = record
        self.records.append(record)
        return query_id

    def _name_of(self, stream_id: str) -> str:
        stream = self.state.catalog.by_id(stream_id)
        if stream is not None:
            return stream.definition.name
        if is_one_row(stream_id):
            return one_row_stream(stream_id).name
        return " and ".join(map(self._called, lineages_of(stream_id)))

    def _called(self, lineage: str) -> str:
        record = self.state.queries.newest(lineage)
        return f"subquery {lineage}" if record is None else record.called


def _renamed(query: Query, ids: Mapping[str, str]) -> dict[str, str]:
    return {
        stream: derived_id([ids.get(lineage, lineage) for lineage in all_lineages(stream)])
        for stream in query.streams
        if is_derived(stream)
    }


def reading(query: Query, ids: Mapping[str, str]) -> Query:
    """Return a query that reads queries by other ids."""
    renamed = _renamed(query, ids)
    return query.reading(renamed) if renamed else query


def check_relations(
    state: SessionState,
    records: Sequence[QueryRecord],
    new: Sequence[QueryRecord],
    owner: Owner,
    replaced: QueryRecord | None = None,
) -> None:
    """Raise Conflict for queries that read one which is on its way out by now, NotAllowed for chains too long, and
    LimitReached for what is beyond a quota of the owner.

    ``records`` are new ones, with the subqueries ``new``; the query ``replaced`` goes as they come.
    """
    if replaced is not None:
        if any(replaced.lineage in _read_by(record.query) for record in (*records, *new)):
            raise Conflict(
                f"A query cannot read {replaced.called}, which it replaces. Create it beside that one, under another"
                " name.",
                query_id=replaced.id,
            )
        check_successor(state, replaced, records[0])
    on_their_way = {record.id: record for record in new}
    for record in records:
        for lineage in _read_by(record.query):
            known = on_their_way.get(lineage) or state.queries.newest(lineage)
            if known is None or not known.is_readable:
                called = lineage if known is None else known.id
                raise Conflict(f"Query {called}, which the new one reads, was just deleted or has failed.")
        _check_levels(_levels(state, record, on_their_way), owner)
    if owner.max_readers is not None:
        _check_readers(state, [*records, *new], owner.max_readers)


def _levels(state: SessionState, record: QueryRecord, on_their_way: Mapping[str, QueryRecord]) -> int:
    """Return how many queries are in the longest chain that ends with one; more than MAX_LEVELS are not counted."""
    levels, queries = 0, [record.query]
    while queries and levels <= MAX_LEVELS:
        levels += 1
        reached = {lineage for query in queries for lineage in _read_by(query)}
        found = (on_their_way.get(lineage) or state.queries.newest(lineage) for lineage in reached)
        queries = [each.query for each in found if each is not None]
    return levels


def _check_levels(levels: int, owner: Owner) -> None:
    if levels > MAX_LEVELS:
        raise NotAllowed(f"At most {MAX_LEVELS} queries may read one another in a chain; these are more.")
    if owner.max_levels is not None and levels > owner.max_levels:
        raise LimitReached(
            f"At most {owner.max_levels} queries of this tenant may read one another in a chain (quota query_levels);"
            f" these are {levels}. Write some of them as one SELECT.",
            retry_after=10,
        )


def _check_readers(state: SessionState, records: Sequence[QueryRecord], limit: int) -> None:
    new_readers = Counter(lineage for record in records for lineage in set(_read_by(record.query)))
    for lineage, count in new_readers.items():
        read = state.queries.newest(lineage)
        readers = 0 if read is None else len(state.readers_of(read))
        if readers + count > limit:
            raise LimitReached(
                f"At most {limit} queries of this tenant may read the same one (quota query_readers); {readers} read"
                f" {lineage if read is None else read.id}, and {count} more would. Delete some first.",
                retry_after=10,
            )


def _read_by(query: Query) -> list[str]:
    return [lineage for stream in query.streams for lineage in lineages_of(stream)]
