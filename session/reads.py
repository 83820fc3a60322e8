"""What the session answers without changing anything."""

from __future__ import annotations

import heapq
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from operators.queries import Query
from operators.query_parts import OP, PTIME, VER
from optimizer.costs import Costs, cost_shares, operator_statistics, query_statistics
from optimizer.join_costs import explain_join_order
from optimizer.statistics import Statistics
from router.deployment import Deployment
from session.access.principal import ADMIN, ANYONE, Principal
from session.active import SlotChange
from session.archive import Archive
from session.changelog_history import ChangelogHistory
from session.deliveries import SinkDeliveries
from session.query_record import DRAINING, PENDING, RETIRED, STATES, QueryRecord
from session.query_table import number_of
from session.session_state import SessionState
from sources.core.errors import Gone, MalformedRequest, UnknownObject
from sources.core.record_log import RecordLog
from sources.core.schema import StreamDefinition

MOST_LISTED = 1000
MOST_LOOKED_AT = 1000
_DESCRIPTION_BYTES = 1000


@dataclass(frozen=True)
class DeployedQuery:
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
    def of(cls, record: QueryRecord) -> DeployedQuery:
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
    """What a query must have to be listed; None means anything. ``name`` is in lower case."""

    label: str | None
    value: str | None
    name: str | None
    reader: Principal

    @classmethod
    def of(cls, label: str | None, name: str | None, reader: Principal) -> QueryFilter | None:
        """Read the filters of GET /queries; None when a reader that sees everything has none."""
        if label is None and not name and ADMIN in reader.rights:
            return None
        key, equals, value = (label or "").partition("=")
        return cls(None if label is None else key, value if equals else None, name.lower() if name else None, reader)

    def matches(self, record: QueryRecord) -> bool:
        """Whether a query is to be listed."""
        if not self.reader.sees(record.tenant):
            return False
        if self.name is not None and self.name not in (record.name or "").lower():
            return False
        return self.label is None or (self.label in record.labels and self.value in (None, record.labels[self.label]))


class Reads:
    """Look-ups in the state, each under the lock for a moment, and in the archive, without the lock."""

    def __init__(self, changelogs: RecordLog, archive: Archive, deliveries: SinkDeliveries, page_bytes: int) -> None:
        self._state = SessionState()
        self._lock = threading.RLock()
        self._changelogs = changelogs
        self._history = ChangelogHistory(changelogs)
        self._archive = archive
        self._page_bytes = page_bytes
        self._statistics = Statistics()
        self.deliveries = deliveries

    @property
    def applied_seq(self) -> int:
        """The number of the last batch record applied."""
        return self._state.applied_seq

    @property
    def epoch(self) -> int:
        """The epoch of the last changelog."""
        return self._state.epoch

    @property
    def active_epoch(self) -> int:
        """The epoch of the last batch applied."""
        return self._state.active_epoch

    @property
    def queries_created(self) -> int:
        """How many queries were ever accepted."""
        return self._state.queries_created

    @property
    def queries_deleted(self) -> int:
        """How many queries were ever deleted."""
        return self._state.queries_deleted

    @property
    def queries_unfinished(self) -> int:
        """How many queries are neither RETIRED nor FAILED."""
        return self._state.queries.unfinished

    def streams(self) -> list[dict[str, Any]]:
        """Return all streams as GET /streams shows them."""
        with self._lock:
            return [stream.describe() for stream in self._state.catalog.states()]

    def stream(self, name: str) -> dict[str, Any]:
        """Return a stream as GET /streams/{name} shows it."""
        with self._lock:
            return self._state.catalog.state(name).describe()

    def offsets(self, stream_id: str) -> Mapping[str, Any]:
        """Return up to where batches have read the partitions of a stream, nothing for an unknown stream."""
        with self._lock:
            state = self._state.catalog.by_id(stream_id)
            return {} if state is None else dict(state.offsets)

    def definition(self, name: str) -> StreamDefinition:
        """Return the definition of a stream."""
        with self._lock:
            return self._state.catalog.state(name).definition

    def definitions(self) -> list[StreamDefinition]:
        """Return the definitions of all streams."""
        with self._lock:
            return [stream.definition for stream in self._state.catalog.states()]

    def tables(self) -> list[dict[str, Any]]:
        """Return all static tables as GET /tables shows them."""
        with self._lock:
            return [table.describe() for table in self._state.catalog.tables()]

    def names_table(self, text: bytes) -> bool:
        """Return whether the name of a static table is anywhere in a text in UTF-8."""
        with self._lock:
            names = [table.definition.name for table in self._state.catalog.tables()]
        return bool(names) and any(name.lower() in text.decode(errors="replace").lower() for name in names)

    def table(self, name: str) -> dict[str, Any]:
        """Return a static table as GET /tables/{name} shows it."""
        with self._lock:
            return self._state.catalog.table(name).describe()

    def query(self, query_id: str) -> dict[str, Any]:
        """Return a query as GET /queries/{id} shows it."""
        return self.query_in_memory(query_id) or self._with_delivery(self._archived(query_id).describe())

    def query_in_memory(self, query_id: str) -> dict[str, Any] | None:
        """Return a query as :meth:`query` does; None when it is unknown, or in a file only."""
        with self._lock:
            record = self._state.queries.find(query_id)
            described = None if record is None else record.describe()
        return None if described is None else self._with_delivery(described)

    def _with_delivery(self, query: dict[str, Any]) -> dict[str, Any]:
        return (
            {**query, "delivery": self.deliveries.describe(query["id"])} if isinstance(query["sink"], dict) else query
        )

    def is_in_memory(self, id_or_name: str) -> bool:
        """Whether a query is found without reading a file."""
        with self._lock:
            return self._state.queries.find(self._state.names.get(id_or_name, id_or_name)) is not None

    def live_query(self, query_id: str) -> DeployedQuery:
        """Return what a reader of the query's results needs, as of now."""
        with self._lock:
            record = self._state.queries.find(query_id)
            if record is not None:
                return DeployedQuery.of(record)
        return DeployedQuery.of(self._archived(query_id))

    def find_id(self, full_name: str) -> str | None:
        """Return the id of the newest query with a full name, None when there is none."""
        with self._lock:
            query_id = self._state.names.get(full_name)
        if query_id is not None:
            return query_id
        record = self._archive.find_name(full_name)
        return None if record is None else record.id

    def tenant_of(self, query_id: str) -> str | None:
        """Return whose a query is."""
        with self._lock:
            record = self._state.queries.find(query_id)
        return (record or self._archived(query_id)).tenant

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

    def list_queries(
        self,
        state: str | None = None,
        label: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        name: str | None = None,
        reader: Principal = ANYONE,
    ) -> dict[str, Any]:
        """Return ``{"queries", "cursor"}``: a page of queries, oldest first; ``cursor`` is None after the last.

        ``label`` is ``name`` or ``name=value``; ``name`` is part of the query's name, whatever the case. A page may be
        short when its queries are long, and even empty when many had to be looked at to find those that the reader
        sees: only a cursor of None says that there are no more.
        """
        if state is not None and state not in STATES:
            raise MalformedRequest(f"state must be one of {', '.join(STATES)}; got {state!r}.")
        if not 1 <= limit <= MOST_LISTED:
            raise MalformedRequest(f"limit must be from 1 to {MOST_LISTED}; got {limit!r}.")
        if cursor is not None and not _is_id(cursor):
            raise MalformedRequest(f"cursor must be taken unchanged from an earlier answer; got {cursor[:100]!r}.")
        after = 0 if cursor is None else number_of(cursor)
        query_filter = QueryFilter.of(label, name, reader)
        with self._lock:  # both at one moment: a query that moves to the archive in between would be missed
            archived = self._archive.after(after, state)
            count = limit + 1 if state is None and query_filter is None else len(self._state.queries)
            records = self._state.queries.after(after, count)
        live = ((number_of(record.id), record) for record in records)
        candidates: Iterator[tuple[int, Any]] = heapq.merge(archived, live, key=_number_of_entry)
        page: list[dict[str, Any]] = []
        looked_at = size = 0
        for number, entry in candidates:
            if len(page) == limit or size >= self._page_bytes:
                return {"queries": page, "cursor": page[-1]["id"]}
            if isinstance(entry, QueryRecord):
                described = self._described(entry, state, query_filter)
                page += described
                size += sum(map(_size_of, described))
                continue
            looked_at += 1
            record = entry()
            if record is not None and (query_filter is None or query_filter.matches(record)):
                page.append(record.describe())
                size += _size_of(page[-1])
            elif looked_at >= MOST_LOOKED_AT:
                return {"queries": page, "cursor": f"q-{number}"}
        return {"queries": page, "cursor": None}

    def _described(
        self, record: QueryRecord, state: str | None, query_filter: QueryFilter | None
    ) -> list[dict[str, Any]]:
        """Return a list of the query's description, empty when the query is not to be listed."""
        if query_filter is not None and not query_filter.matches(record):
            return []
        if state is not None and record.state != state:  # most are not; the others are checked again under the lock
            return []
        with self._lock:
            return [record.describe()] if state in (None, record.state) else []

    def changelogs_json(self, after: int = 0) -> list[bytes]:
        """Return the changelogs after an epoch as JSON, as many as fit a page: at least one, if there is one."""
        if after < 0:
            raise MalformedRequest(f"after must be an epoch, 0 or more; got {after!r}.")
        return self._history.after(after)

    def plan(self) -> dict[str, Any]:
        """Return the plan of everything as a graph."""
        with self._lock:
            plan = self._state.plan
            graph = plan.to_json()
            for node in graph["nodes"]:
                if node["id"] in plan.operators:
                    node["statistics"] = operator_statistics(self._statistics, plan.operators[node["id"]])
            return graph

    def cost_shares(self, ids: Iterable[str]) -> dict[str, float]:
        """Return the share of some queries in what all operators cost; only of those that run and have a known cost."""
        with self._lock:
            records = (self._state.queries.find(query_id) for query_id in ids)
            queries = {record.id: record.query for record in records if record is not None}
            return cost_shares(self._state.plan, self._statistics, queries)

    def query_plan(self, query_id: str) -> dict[str, Any]:
        """Return how a query runs and with whom it shares."""
        with self._lock:
            in_memory = self._state.queries.find(query_id)
        record = in_memory or self._archived(query_id)
        with self._lock:
            head = {"id": record.id, "name": record.name, "state": record.state}
            return {**head, **self._explained(record.query, record.stream_names, record.id)}

    def _explained(self, query: Query, streams: dict[str, str], query_id: str | None = None) -> dict[str, Any]:
        """Return how a query runs or would run, with what is known of it; under the lock."""
        plan = self._state.plan
        statistics = query_statistics(plan, self._statistics, query, streams, query_id)
        join_order = explain_join_order(plan, self._statistics, query, query_id)
        return {**plan.explain(query, streams, query_id), "statistics": statistics, "join_order": join_order}

    # what queries cost

    def busy_cores(self) -> float:
        """Return how many cores the operators of all queries keep busy."""
        return self._statistics.all_cores()

    def added_cores(self, query: Query) -> float:
        """Estimate how many more cores would be busy with a new query."""
        with self._lock:
            return Costs(self._state.plan, self._statistics).added_cores(query)

    def cores_by_tenant(self) -> dict[str | None, float]:
        """Return how many cores the queries of each tenant take."""
        cores: defaultdict[str | None, float] = defaultdict(float)
        with self._lock:
            costs = Costs(self._state.plan, self._statistics)
            for record in self._state.queries.values():
                if record.slot is not None and record.freed_epoch is None:
                    cores[record.tenant] += costs.cores(record.query)
        return cores

    def _archived(self, query_id: str) -> QueryRecord:
        """Return a query that is not in the state: from the archive, or UnknownObject or Gone."""
        if _is_id(query_id) and 0 < number_of(query_id) < self._state.next_query:
            record = self._archive.find(number_of(query_id))
            if record is not None:
                return record
            raise Gone(
                f"A query is known until its retention has passed; {query_id!r} is RETIRED or FAILED for longer.",
                query_id=query_id,
            )
        raise unknown_query(query_id)


LONGEST_SHOWN = 200


def unknown_query(query_id: str) -> UnknownObject:
    """Return the error for a query that is not there."""
    advice = "GET /queries lists those that do."
    if not _is_id(query_id):
        advice = "It is known by its id, such as q-1, not by its name; GET /queries lists both."
    return UnknownObject(f"A query must exist; got {query_id[:LONGEST_SHOWN]!r}. {advice}")


def result_columns(query: Query) -> list[dict[str, str]]:
    """Return the columns of a query's result with their types."""
    columns = [{"name": o.name, "type": str(o.expression.type)} for o in query.outputs]
    if query.window is not None:
        columns.append({"name": "_partial", "type": "BOOLEAN"})
        if query.emit.stream:
            columns += [{"name": OP, "type": "VARCHAR"}, {"name": PTIME, "type": "TIMESTAMP"}]
            columns.append({"name": VER, "type": "BIGINT"})
    return columns


def _number_of_entry(entry: tuple[int, Any]) -> int:
    return entry[0]


def _size_of(described: dict[str, Any]) -> int:
    """Return about how many bytes a query's description has in JSON."""
    return _DESCRIPTION_BYTES + len(described["sql"]) + len(described["operator"]) + len(str(described["labels"]))


def _is_id(text: str) -> bool:
    head, _, digits = text.partition("-")
    return head == "q" and digits.isascii() and digits.isdecimal() and len(digits) <= 18
