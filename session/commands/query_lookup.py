"""The queries of a session as clients look them up: by id and name, and in pages.

Clients name a query by its id or its name. :meth:`QueryLookup.id_of` is the one place that tells which query that is;
all else here takes ids. Look-ups in the state take the lock for a moment each, those in the archive do not.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from braid.operators.queries import Query
from braid.router.deployment import Deployment
from braid.session.access.principal import ADMIN, ANYONE, Principal
from braid.session.commands.catching_up import describe_progress
from braid.session.commands.query_order import QueryOrder
from braid.session.log.archive import Archive
from braid.session.state.applied_epoch import SlotChange
from braid.session.state.query_record import DRAINING, PENDING, RETIRED, STATES, QueryRecord, full_name
from braid.session.state.query_table import number_of
from braid.session.state.session_state import SessionState
from braid.session.state.waiting import open_window, waiting_for
from braid.session.upkeep.deliveries import SinkDeliveries
from braid.sources.core.errors import Gone, MalformedRequest, UnknownObject
from braid.sources.core.names import did_you_mean

OLDEST, NEWEST = "oldest", "newest"
MAX_LISTED = 1000
MAX_LOOKED_AT = 1000
_DESCRIPTION_BYTES = 1000


@dataclass(frozen=True)
class RunningQuery:
    """What a reader of results needs of a query.

    Its rows are those of its ``deployments``. No row comes after batch ``last_seq`` unless the query is resumed; None
    while that batch is not known.
    """

    id: str
    query: Query
    state: str
    deployments: tuple[Deployment, ...]
    last_seq: int | None

    @classmethod
    def of(cls, record: QueryRecord) -> RunningQuery:
        """Return it for a query's record; one that is RETIRED drains for readers until a batch has freed its slot."""
        is_held = record.state == RETIRED and record.slot is not None and record.last_seq is None
        state = DRAINING if is_held else record.state
        return cls(record.id, record.query, state, record.all_deployments, record.last_seq)

    @property
    def slot(self) -> int | None:
        """The slot that it has or had last, None for one that no batch has had."""
        return self.deployments[-1].slot if self.deployments else None


@dataclass(frozen=True)
class QueryFilter:
    """What a query must have to be listed; None means anything. ``name`` and ``text`` are in lower case."""

    label: str | None
    value: str | None
    name: str | None
    text: str | None
    reader: Principal

    @classmethod
    def of(cls, label: str | None, name: str | None, text: str | None, reader: Principal) -> QueryFilter | None:
        """Read the filters of GET /queries; None when a reader that sees everything has none."""
        if label is None and not name and not text and ADMIN in reader.rights:
            return None
        key, equals, value = (label or "").partition("=")
        name, text = (part.lower() if part else None for part in (name, text))
        return cls(None if label is None else key, value if equals else None, name, text, reader)

    def matches(self, record: QueryRecord) -> bool:
        """Whether a query is to be listed."""
        if not self.reader.sees(record.tenant):
            return False
        if self.name is not None and self.name not in (record.name or "").lower():
            return False
        if self.text is not None and not any(self.text in part.lower() for part in (record.name or "", record.sql)):
            return False
        return self.label is None or (self.label in record.labels and self.value in (None, record.labels[self.label]))


class QueryLookup:
    """All queries that one session knows."""

    def __init__(
        self, state: SessionState, lock: threading.RLock, archive: Archive, deliveries: SinkDeliveries, page_bytes: int
    ) -> None:
        self._state = state
        self._lock = lock
        self._archive = archive
        self._deliveries = deliveries
        self._page_bytes = page_bytes

    @property
    def created(self) -> int:
        """How many queries were ever accepted."""
        return self._state.queries_created

    @property
    def deleted(self) -> int:
        """How many queries were ever deleted."""
        return self._state.queries_deleted

    @property
    def unfinished(self) -> int:
        """How many queries are not in a final state."""
        return self._state.queries.unfinished

    def id_of(self, id_or_name: str, tenant: str | None = None) -> str:
        """Return the id that a text names: an id is itself, a name that of the tenant's newest query of this name.

        The newest may be finished: it is known until its retention has passed. Whether there is a query of an id is not
        asked. UnknownObject for a name that no query has.
        """
        query_id = self.id_in_memory(id_or_name, tenant)
        if query_id is not None:
            return query_id
        record = self._archive.find_name(full_name(tenant, id_or_name))
        if record is None:
            raise unknown_query(id_or_name, self.names_of(tenant))
        return record.id

    def find(self, id_or_name: str, tenant: str | None) -> QueryRecord | None:
        """Return the query that a text names, finished or not; None where there is none."""
        query_id = self.id_in_memory(id_or_name, tenant)
        if query_id is None:
            return self._archive.find_name(full_name(tenant, id_or_name))
        with self._lock:
            record = self._state.queries.find(query_id)
        return record or self._archive.find(number_of(query_id))

    def id_in_memory(self, id_or_name: str, tenant: str | None = None) -> str | None:
        """Return the same as :meth:`id_of`, and None where a file must be read to know it."""
        if _is_id(id_or_name):  # no query has such a name
            return id_or_name
        with self._lock:
            return self._state.names.get(full_name(tenant, id_or_name))

    def names_of(self, tenant: str | None) -> list[str]:
        """Return the names of a tenant's queries, the newest last, as far as looking for one takes no time."""
        with self._lock:
            names = list(self._state.names)
        owned = [name.rpartition("/") for name in names[-_MAX_LIKE:]]
        return [name for owner, _, name in owned if owner == (tenant or "")]

    def record(self, id_or_name: str) -> QueryRecord:
        """Return a query by its id, or by its name if it is nobody's; UnknownObject or Gone."""
        return self.by_id(self.id_of(id_or_name))

    def by_id(self, query_id: str) -> QueryRecord:
        """Return a query, finished or not; UnknownObject or Gone."""
        with self._lock:
            record = self._state.queries.find(query_id)
        return record or self._archived(query_id)

    def describe(self, query_id: str) -> dict[str, Any]:
        """Return a query as GET /queries/{id} shows it."""
        return self.describe_in_memory(query_id) or self._with_delivery(self._described(self._archived(query_id)))

    def describe_in_memory(self, query_id: str) -> dict[str, Any] | None:
        """Return a query as :meth:`describe` does; None when it is unknown, or in a file only."""
        with self._lock:
            record = self._state.queries.find(query_id)
            described = None if record is None else self._described(record)
        return None if described is None else self._with_delivery(described)

    def _described(self, record: QueryRecord) -> dict[str, Any]:
        catalog, queries = self._state.catalog, self._state.queries
        progress = describe_progress(record, catalog, queries)
        read = [each for s in record.query.streams for each in queries.queries_behind(s) if each is not None]
        return record.describe() | {
            "progress": progress,
            "waiting_for": waiting_for(record, catalog, progress, read),
            "open_window": open_window(record, catalog),
        }

    def _with_delivery(self, query: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(query["sink"], dict):
            return query
        return {**query, "delivery": self._deliveries.describe(query["id"])}

    def is_in_memory(self, query_id: str) -> bool:
        """Whether a query is found without reading a file."""
        with self._lock:
            return self._state.queries.find(query_id) is not None

    def deployed(self, query_id: str) -> RunningQuery:
        """Return what a reader of the query's results needs, as of now."""
        record = self.by_id(query_id)
        with self._lock:
            return RunningQuery.of(record)

    def tenant_of(self, query_id: str) -> str | None:
        """Return whose a query is."""
        return self.by_id(query_id).tenant

    def queries_behind(self, stream_id: str) -> list[str]:
        """Return the ids of the queries whose rows a stream has: of those that took one another's place the newest."""
        with self._lock:
            return [record.id for record in self._state.queries.queries_behind(stream_id) if record is not None]

    def is_pending(self, query_id: str) -> bool:
        """Whether a query, which must exist or have existed, waits for its first batch; reads no file."""
        with self._lock:
            record = self._state.queries.find(query_id)
            return record is not None and record.state == PENDING

    def count_by_state(self) -> dict[str, int]:
        """Return how many queries are in each state."""
        archived = self._archive.counts()
        with self._lock:
            return {state: self._state.queries.states[state] + archived.get(state, 0) for state in STATES}

    def slots(self) -> list[SlotChange]:
        """Return the slots that the data plane has as of the last batch, each with its holder."""
        with self._lock:
            return self._state.active.slots

    def page(
        self,
        state: str | None = None,
        label: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        name: str | None = None,
        text: str | None = None,
        order: str = OLDEST,
        reader: Principal = ANYONE,
    ) -> dict[str, Any]:
        """Return ``{"queries", "cursor"}``: a page of queries in order; ``cursor`` is None after the last.

        ``order`` is ``oldest``, ``newest``, or one of :data:`braid.session.commands.query_order.ORDERS`; these have the
        finished queries that are on disk up to the newest ``MAX_LOOKED_AT``.
        ``label`` is ``name`` or ``name=value``; ``name`` is part of the query's name and ``text`` of its name or SQL,
        whatever the case. A page may be short when its queries are long, and even empty when many had to be looked at
        to find those that the reader sees: only a cursor of None says that there are no more.
        """
        if state is not None and state not in STATES:
            raise MalformedRequest(f"state must be one of {', '.join(STATES)}; got {state!r}.")
        if not 1 <= limit <= MAX_LISTED:
            raise MalformedRequest(f"limit must be from 1 to {MAX_LISTED}; got {limit!r}.")
        query_filter = QueryFilter.of(label, name, text, reader)
        if order not in (OLDEST, NEWEST):
            return self._ordered_page(QueryOrder(order), state, query_filter, limit, cursor)
        if cursor is not None and not _is_id(cursor):
            raise MalformedRequest(f"cursor must be taken unchanged from an earlier answer; got {cursor[:100]!r}.")
        newest_first = order == NEWEST
        after = number_of(cursor) if cursor is not None else self._state.next_query if newest_first else 0
        with self._lock:  # both at one moment: a query that moves to the archive in between would be missed
            archived = self._archive.after(after, state, newest_first)
            count = limit + 1 if state is None and query_filter is None else len(self._state.queries)
            records = self._state.queries.after(after, count, newest_first)
        live = ((number_of(record.id), record) for record in records)
        candidates: Iterator[tuple[int, Any]] = heapq.merge(archived, live, key=_number_of_entry, reverse=newest_first)
        page: list[dict[str, Any]] = []
        looked_at = size = 0
        for number, entry in candidates:
            if len(page) == limit or size >= self._page_bytes:
                return {"queries": page, "cursor": page[-1]["id"]}
            if isinstance(entry, QueryRecord):
                described = self._listed(entry, state, query_filter)
                page += described
                size += sum(map(_size_of, described))
                continue
            looked_at += 1
            record = entry()
            if record is not None and (query_filter is None or query_filter.matches(record)):
                page.append(self._with_delivery(self._described(record)))
                size += _size_of(page[-1])
            elif looked_at >= MAX_LOOKED_AT:
                return {"queries": page, "cursor": f"q-{number}"}
        return {"queries": page, "cursor": None}

    def _ordered_page(
        self, order: QueryOrder, state: str | None, query_filter: QueryFilter | None, limit: int, cursor: str | None
    ) -> dict[str, Any]:
        after = None if cursor is None else order.read_cursor(cursor)
        with self._lock:  # both at one moment, as in page
            newest = self._archive.after(self._state.next_query, state, newest_first=True)
            archived = list(islice(newest, MAX_LOOKED_AT))
            records = list(self._state.queries.values())
        records += [record for _, read in archived if (record := read()) is not None]
        by_place = {
            order.place(record): record
            for record in records
            if state in (None, record.state) and (query_filter is None or query_filter.matches(record))
        }
        page: list[dict[str, Any]] = []
        size, last = 0, None
        for place in order.first(by_place, limit + 1, after):
            if last is not None and (len(page) == limit or size >= self._page_bytes):
                return {"queries": page, "cursor": order.cursor_of(last)}
            with self._lock:
                described = self._described(by_place[place])
            page.append(self._with_delivery(described))
            size += _size_of(page[-1])
            last = place
        return {"queries": page, "cursor": None}

    def _listed(self, record: QueryRecord, state: str | None, query_filter: QueryFilter | None) -> list[dict[str, Any]]:
        """Return a list of the query's description, empty when the query is not to be listed."""
        if query_filter is not None and not query_filter.matches(record):
            return []
        if state is not None and record.state != state:  # most are not; the others are checked again under the lock
            return []
        with self._lock:
            described = self._described(record) if state in (None, record.state) else None
        return [] if described is None else [self._with_delivery(described)]

    def _archived(self, query_id: str) -> QueryRecord:
        """Return a query that is not in the state: from the archive, or UnknownObject or Gone."""
        if _is_id(query_id) and 0 < number_of(query_id) < self._state.next_query:
            record = self._archive.find(number_of(query_id))
            if record is not None:
                return record
            raise Gone(
                f"Query {query_id!r} is forgotten: it ended longer ago than the setting retention_seconds.",
                query_id=query_id,
            )
        raise unknown_query(query_id)


LONGEST_SHOWN = 200
_MAX_LIKE = 1000


def unknown_query(id_or_name: str, known: Iterable[str] = ()) -> UnknownObject:
    """Return the error for a query that is not there; ``known`` are names that may be meant."""
    hint = did_you_mean(id_or_name[:LONGEST_SHOWN], known)
    return UnknownObject(
        f"There is no query with the id or name {id_or_name[:LONGEST_SHOWN]!r}.{hint} GET /queries (braid queries)"
        " lists all."
    )


def _number_of_entry(entry: tuple[int, Any]) -> int:
    return entry[0]


def _size_of(described: dict[str, Any]) -> int:
    """Return about how many bytes a query's description has in JSON."""
    return _DESCRIPTION_BYTES + len(described["sql"]) + len(described["operator"]) + len(str(described["labels"]))


def _is_id(text: str) -> bool:
    head, _, digits = text.partition("-")
    return head == "q" and digits.isascii() and digits.isdecimal() and len(digits) <= 18
