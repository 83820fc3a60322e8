"""What the session answers without changing anything."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from operators.queries import Aggregation, Query
from session.query_record import PENDING, STATES, QueryRecord, Times
from session.session_state import SessionState, number_of
from session.times import rfc3339
from sources.errors import Gone, MalformedRequest, UnknownObject
from sources.record_log import RecordLog
from sources.schema import StreamDefinition

MOST_LISTED = 1000
MOST_CHANGELOGS = 1000


@dataclass(frozen=True)
class DeployedQuery:
    """What a reader of results needs of a query.

    Its rows are those of ``slot`` in batches with an epoch in ``[epoch, freed_epoch)`` and a number in
    ``[first_seq, last_seq]``; None where that is not decided yet. Event times are in microseconds by stream id.
    """

    id: str
    query: Query
    state: str
    slot: int | None
    epoch: int | None
    freed_epoch: int | None
    active_from: Times | None
    active_to: Times | None
    first_seq: int | None
    last_seq: int | None
    stream_names: dict[str, str]

    @classmethod
    def of(cls, record: QueryRecord) -> DeployedQuery:
        """Take it out of a query's record."""
        return cls(**{name: getattr(record, name) for name in cls.__dataclass_fields__})


class Reads:
    """Look-ups in the state, each under the lock for a short time."""

    def __init__(self, changelogs: RecordLog) -> None:
        self._state = SessionState()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._changelogs = changelogs

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

    def streams(self) -> list[dict[str, Any]]:
        """Return all streams as GET /streams shows them."""
        with self._lock:
            return [stream.describe() for stream in self._state.catalog.states()]

    def stream(self, name: str) -> dict[str, Any]:
        """Return a stream as GET /streams/{name} shows it."""
        with self._lock:
            return self._state.catalog.state(name).describe()

    def definition(self, name: str) -> StreamDefinition:
        """Return the definition of a stream."""
        with self._lock:
            return self._state.catalog.state(name).definition

    def definitions(self) -> list[StreamDefinition]:
        """Return the definitions of all streams."""
        with self._lock:
            return [stream.definition for stream in self._state.catalog.states()]

    def tables(self) -> list[dict[str, Any]]:
        """Return the static tables: none in this version."""
        return []

    def query(self, query_id: str) -> dict[str, Any]:
        """Return a query as GET /queries/{id} shows it."""
        with self._lock:
            return self._find(query_id).describe()

    def live_query(self, query_id: str) -> DeployedQuery:
        """Return what a reader of the query's results needs, as of now."""
        with self._lock:
            return DeployedQuery.of(self._find(query_id))

    def count_by_state(self) -> dict[str, int]:
        """Return how many queries are in each state."""
        with self._lock:
            counts = Counter(record.state for record in self._state.queries.values())
        return {state: counts[state] for state in STATES}

    def list_queries(
        self,
        state: str | None = None,
        label: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> dict[str, Any]:
        """Return ``{"queries", "cursor"}``: a page of queries, oldest first; ``cursor`` is None after the last.

        ``label`` is ``name`` or ``name=value``.
        """
        if state is not None and state not in STATES:
            raise MalformedRequest(f"state must be one of {', '.join(STATES)}; got {state!r}.")
        if not 1 <= limit <= MOST_LISTED:
            raise MalformedRequest(f"limit must be from 1 to {MOST_LISTED}; got {limit!r}.")
        if cursor is not None and not _is_id(cursor):
            raise MalformedRequest(f"cursor must be taken unchanged from an earlier answer; got {cursor[:100]!r}.")
        after = 0 if cursor is None else number_of(cursor)
        name, _, value = (label or "").partition("=")
        exact = label is not None and "=" in label
        page: list[dict[str, Any]] = []
        with self._lock:
            for record in self._state.queries.values():
                if (
                    number_of(record.id) <= after
                    or (state is not None and record.state != state)
                    or (label is not None and name not in record.labels)
                    or (exact and record.labels[name] != value)
                ):
                    continue
                if len(page) == limit:
                    return {"queries": page, "cursor": page[-1]["id"]}
                page.append(record.describe())
        return {"queries": page, "cursor": None}

    def wait_running(self, ids: Iterable[str], deadline: float) -> list[dict[str, Any]]:
        """Return the queries once none of them is PENDING, or at ``deadline`` (``time.monotonic()``)."""
        ids = list(ids)
        with self._changed:
            while any(self._find(query_id).state == PENDING for query_id in ids):
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            return [self._find(query_id).describe() for query_id in ids]

    def changelogs(self, after: int = 0) -> list[dict[str, Any]]:
        """Return up to :data:`MOST_CHANGELOGS` changelogs after an epoch, as GET /changelogs shows them."""
        if after < 0:
            raise MalformedRequest(f"after must be an epoch, 0 or more; got {after!r}.")
        shown = []
        for _, record in self._changelogs.after(after):
            shown.append(
                {
                    "epoch": record["epoch"],
                    "created_at": rfc3339(record["created_us"]),
                    "why": record["why"],
                    "created": [_without_query(created) for created in record["created"]],
                    "deleted": record["deleted"],
                    "freed": record["freed"],
                    "streams_created": [stream["name"] for stream in record["streams_created"]],
                    "streams_dropped": record["streams_dropped"],
                    "changelog_set": record["changelog_set"],
                    "capacity": record["capacity"],
                    "plan_version": record["plan_version"],
                }
            )
            if len(shown) == MOST_CHANGELOGS:
                break
        return shown

    def plan(self) -> dict[str, Any]:
        """Return the plan of everything as a graph."""
        return self._state.plan.to_json()

    def query_plan(self, query_id: str) -> dict[str, Any]:
        """Return how a query runs and with whom it shares."""
        with self._lock:
            record = self._find(query_id)
            plan, shown = self._state.plan, {"id": record.id, "name": record.name, "state": record.state}
            stream_names = record.stream_names
        return {**shown, **plan.explain(record.query, stream_names, record.id)}

    def _find(self, query_id: str) -> QueryRecord:
        record = self._state.queries.get(query_id)
        if record is not None:
            return record
        if _is_id(query_id) and 0 < number_of(query_id) < self._state.next_query:
            raise Gone(
                f"A query is known until its retention has passed; {query_id!r} is RETIRED or FAILED for longer.",
                query_id=query_id,
            )
        raise UnknownObject(f"A query must exist; got {query_id[:LONGEST_SHOWN]!r}. GET /queries lists those that do.")

    def _find_by_name(self, id_or_name: str) -> QueryRecord:
        return self._find(self._state.names.get(id_or_name, id_or_name))


LONGEST_SHOWN = 200


def result_columns(query: Query) -> list[dict[str, str]]:
    """Return the columns of a query's result with their types."""
    columns = [{"name": o.name, "type": str(o.expression.type)} for o in query.outputs]
    if isinstance(query, Aggregation):
        columns.append({"name": "_partial", "type": "BOOLEAN"})
    return columns


def _without_query(created: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in created.items() if name != "query"}


def _is_id(text: str) -> bool:
    head, _, digits = text.partition("-")
    return head == "q" and digits.isascii() and digits.isdecimal() and len(digits) <= 18
