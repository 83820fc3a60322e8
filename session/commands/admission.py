"""Admission: what must hold to accept new queries, streams and tables, and to drop streams and tables.

All of it is checked against the state by the session's writer, right before a command is logged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from braid.operators.queries import lookups_of
from braid.session.commands.query_requests import PlannedQuery
from braid.session.state.catalog import Catalog, is_hidden
from braid.session.state.catalog_entries import StreamState, TableState
from braid.session.state.query_record import QueryRecord
from braid.session.state.session_state import SessionState
from braid.sources.connectors.static_table import INLINE
from braid.sources.core.errors import Conflict, LimitReached, UnknownObject
from braid.sources.core.names import name_key
from braid.sources.core.replays import origin_of

MAX_SHOWN = 20
"""How many queries an error names."""


def _no_check(_: Sequence[PlannedQuery]) -> None:
    return


@dataclass(frozen=True)
class Owner:
    """The tenant that new queries are of, its quotas, and a further check of the queries.

    At most ``max_running`` may run, ``max_levels`` read one another in a chain, and ``max_readers`` read the same one.
    ``check`` is called by the session's writer and raises why the queries cannot be accepted.
    """

    tenant: str | None = None
    max_running: int | None = None
    check: Callable[[Sequence[PlannedQuery]], None] = _no_check
    max_levels: int | None = None
    max_readers: int | None = None


NOBODY = Owner()


def check_new_queries(
    state: SessionState,
    planned: Sequence[PlannedQuery],
    limit: int,
    owner: Owner = NOBODY,
    replaced: str | None = None,
    on_their_way: Mapping[str | None, int] | None = None,
) -> None:
    """Raise why these queries, all of one owner, cannot be accepted now; at most ``limit`` may run in all.

    Their subqueries count as queries.

    One of them takes the place of the query ``replaced``, if there is one. ``on_their_way`` says how many queries of
    each tenant are accepted and not in the state yet.
    """
    others, new = on_their_way or {}, sum(1 + len(p.subqueries) for p in planned)
    unfinished = state.queries.unfinished + sum(others.values()) - (replaced is not None)
    if unfinished + new > limit:
        raise LimitReached(
            f"Cannot create {new} queries: {unfinished} run, and at most {limit} may (setting max_queries)."
            " Delete some first.",
            retry_after=10,
        )
    if owner.tenant is not None and owner.max_running is not None:
        of_tenant = state.queries.unfinished_of(owner.tenant) + others.get(owner.tenant, 0)
        running = of_tenant - (replaced is not None)
        if running + new > owner.max_running:
            raise LimitReached(
                f"Cannot create {new} queries: {running} of this tenant run, and at most"
                f" {owner.max_running} may (quota running_queries). Delete some first.",
                retry_after=10,
            )
    _check_names(state, planned, replaced)
    for stream_id, name in {stream_id: name for p in planned for stream_id, name in p.streams.items()}.items():
        if state.catalog.by_id(stream_id) is None and not is_hidden(stream_id):
            raise UnknownObject(f"Stream {name!r} was just dropped. Create it again, or name another.", stream=name)
    for table in {version.definition.id: version.definition for p in planned for version in p.tables}.values():
        if table.format == INLINE:
            continue
        if state.catalog.table_by_id(table.id) is None:
            raise UnknownObject(f"Table {table.name!r} was just dropped. Create it again, or name another.")
    owner.check(planned)  # last: what is refused anyway must not count against a quota


def _check_names(state: SessionState, planned: Sequence[PlannedQuery], replaced: str | None) -> None:
    names = Counter(p.full_name for p in planned if p.full_name is not None)
    for name, count in names.items():
        own_name = name.rpartition("/")[2]
        kind = _kind_of(state.catalog, own_name)
        if kind is not None and replaced is None:
            raise Conflict(
                f"Cannot name a query {own_name!r}: a {kind} has this name, and SQL would read one of them only. Choose"
                " another name."
            )
        holder = state.queries.find(state.names.get(name, ""))
        is_taken = holder is not None and holder.is_wanted and holder.id != replaced
        if count > 1 or is_taken:
            user = f"query {holder.id}" if holder is not None and is_taken else "another query of the request"
            raise Conflict(
                f"Cannot name a query {own_name!r}: {user} has this name. Choose another name, or"
                " put the new query in its place with CREATE OR REPLACE QUERY (braid replace), or drop that one.",
                query_id=holder.id if holder is not None and is_taken else None,
            )


def check_replaced(record: QueryRecord) -> None:
    """Raise Conflict for a query that cannot be replaced any more."""
    if not record.is_wanted:
        successor = record.replaced_by
        raise Conflict(
            f"Cannot replace query {record.id}: it is {record.state}. "
            + (
                "Create a new one with POST /queries (braid query)."
                if successor is None
                else f"Replace {successor}, which replaced it."
            ),
            query_id=record.id,
        )


def check_new_name(state: SessionState, name: str, kind: str) -> None:
    """Raise Conflict for the name of a new stream or table (``kind``) that either has, or a query that is not over."""
    holder = _kind_of(state.catalog, name)
    if holder is None and any(
        name_key(full_name.rpartition("/")[2]) == name_key(name) and state.queries[query_id].is_wanted
        for full_name, query_id in state.names.items()
    ):
        holder = "query"
    if holder is not None:
        raise Conflict(
            f"Cannot create {kind} {name!r}: a {holder} has this name. Drop it first, or choose another name.",
            stream=name if kind == "stream" else None,
        )


def _kind_of(catalog: Catalog, name: str) -> str | None:
    """Return whether a stream or a table has a name, None where neither does."""
    if name in catalog:
        return "stream"
    return None if catalog.find_table(name) is None else "table"


def check_unused(state: SessionState, dropped: StreamState | TableState, name: str) -> None:
    """Raise Conflict for a stream or table that cannot be dropped under this name as queries use it."""
    users, object_id = dropped.users, dropped.definition.id
    if not users:
        return
    kind = "stream" if isinstance(dropped, StreamState) else "table"
    user_ids = (q.id for q in state.queries.values() if not q.has_ended and uses(q, object_id))
    shown = list(islice(user_ids, MAX_SHOWN))
    shown_ids = ", ".join(shown) + (f" and {users - len(shown)} more" if users > len(shown) else "")
    raise Conflict(
        f"Cannot drop {kind} {name!r}: {f'query {shown_ids} uses' if users == 1 else f'queries {shown_ids} use'} it."
        f" {_how_to_drop(kind, name, shown_ids, users)}",
        stream=name if kind == "stream" else None,
    )


def _how_to_drop(kind: str, name: str, shown_ids: str, users: int) -> str:
    one, them, all_of_them = (shown_ids, "it", "both") if users == 1 else ("ID", "them", "all")
    first = f"Drop {them} first, without draining (braid drop {one} --no-drain, ?drain=false)"
    if kind == "table":
        return f"{first}."
    cascade = f"(braid drop --stream {name} --cascade, ?cascade=true, DROP STREAM … CASCADE)"
    return f"{first}, or {all_of_them} together {cascade}."


def uses(record: QueryRecord, object_id: str) -> bool:
    """Whether a query keeps a stream or a static table from being dropped."""
    return object_id in map(origin_of, record.stream_names) or any(
        lookup.table == object_id for lookup in lookups_of(record.query)
    )
