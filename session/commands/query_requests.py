"""Requests for new queries, and their plans before they are accepted."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from braid.operators.kinds import operator_of
from braid.operators.queries import Query, lookups_of
from braid.router.sinks.connectors import SinkDefinition, read_sink
from braid.session.commands import planning
from braid.session.commands.named_relations import NamedRelations
from braid.session.commands.starts import Start, read_start
from braid.session.commands.statements import read_query
from braid.session.commands.table_rows import NamedTables
from braid.session.sql.relations import Subquery
from braid.session.sql.statement_limits import DEFAULT_LIMITS, StatementLimits
from braid.session.state.query_record import QueryRecord, full_name
from braid.session.state.sharing import shared_dict
from braid.sources.connectors.static_table import TableVersion
from braid.sources.core.confinement import OPEN, Confinement
from braid.sources.core.errors import NotAllowed, ServiceError
from braid.sources.core.names import composed

_ID = re.compile(r"q-\d+")
LONGEST_NAME = 200
MAX_LABELS = 64
LONGEST_LABEL = 1000
LONGEST_TTL_SECONDS = 10 * 365 * 86400


@dataclass(frozen=True)
class QueryRequest:
    """What a client may say of a query; NotAllowed when it does not fit."""

    sql: str
    name: str | None = None
    sink: Any = None
    ttl_seconds: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    start: str | None = None

    def __post_init__(self) -> None:
        if self.start is not None:
            read_start(self.start)
        if self.name is not None:
            check_name(self.name)
            object.__setattr__(self, "name", composed(self.name))
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
            or len(labels) > MAX_LABELS
            or not all(isinstance(k, str) and isinstance(v, str) and k for k, v in labels.items())
            or any(max(len(k), len(v)) > LONGEST_LABEL for k, v in labels.items())
        ):
            raise NotAllowed(
                f"labels must be an object of at most {MAX_LABELS} texts by name, neither longer than {LONGEST_LABEL}"
                f" characters; got {labels!r:.300}."
            )


def check_name(name: str) -> None:
    """Raise NotAllowed for a name that a query cannot have."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise NotAllowed(f"A query's name must be 1 to {LONGEST_NAME} printable characters; got {name!r}.")
    if "/" in name or _ID.fullmatch(name):
        raise NotAllowed(f"A query's name must have no '/' and not look like an id (q-17); got {name!r}.")


def check_new_name(name: str) -> None:
    """Raise NotAllowed for a name that no new query can have; older queries may have it."""
    check_name(name)
    if name.startswith("_"):
        raise NotAllowed(f"Names starting with '_' are reserved; rename the query {name!r}.")
    if name.strip() in ("", ".", ".."):
        raise NotAllowed(f"A query's name must be one that can stand in an address; got {name!r}.")


@dataclass(frozen=True)
class PlannedQuery:
    """A request with its query planned.

    ``streams`` maps the ids of its streams to their names; ``tables`` are its static tables as they were read; ``sink``
    is the checked definition of its sink, as the record keeps it; ``tenant`` is whose query it will be, ``start`` where
    it is asked to start; ``subqueries`` are those that it reads, by provisional ids.
    """

    request: QueryRequest
    name: str | None
    query: Query
    streams: dict[str, str]
    tables: tuple[TableVersion, ...] = ()
    sink: Any = None
    tenant: str | None = None
    start: Start | None = None
    subqueries: tuple[Subquery, ...] = ()

    @property
    def full_name(self) -> str | None:
        """The name as no query of another tenant can have it; None without a name."""
        return None if self.name is None else full_name(self.tenant, self.name)

    def to_record(self, replaced: QueryRecord | None = None) -> QueryRecord:
        """Return the record of the new query, which has no id yet; ``replaced`` is that of the one it replaces."""
        return QueryRecord(
            id="",
            sql=self.request.sql,
            query=self.query,
            operator=operator_of(self.query),
            stream_names=self.streams,
            created_us=0,
            name=self.name,
            tenant=self.tenant,
            sink=self.sink,
            ttl_seconds=self.request.ttl_seconds,
            labels=shared_dict(dict(self.request.labels)),
            replaces=None if replaced is None else replaced.id,
            first_id=None if replaced is None else replaced.lineage,
            start=None if self.start is None else self.start.text,
        )


@dataclass(frozen=True)
class Inherited:
    """What a query takes over from the one it replaces (``id``), unless its request or its SQL says otherwise."""

    id: str | None = None
    name: str | None = None
    sink: Any = None


@dataclass(frozen=True)
class Replacement:
    """What a client may say of a query that replaces another.

    ``changes`` has some of ``name``, ``sink``, ``ttl_seconds`` and ``labels``; None removes the old value, and what it
    lacks stays as it was.
    """

    sql: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    def after(self, replaced: QueryRecord) -> tuple[QueryRequest, Inherited]:
        """Return the request for the new query; NotAllowed when it does not fit."""
        options = {"ttl_seconds": replaced.ttl_seconds, "labels": replaced.labels, **self.changes}
        request = QueryRequest(self.sql, **{name: value for name, value in options.items() if value is not None})
        name = None if "name" in self.changes else replaced.name
        sink = None if "sink" in self.changes else replaced.sink
        return request, Inherited(replaced.id, name, sink)


def plan_requests(
    requests: Iterable[QueryRequest],
    catalog: NamedRelations,
    tables: NamedTables,
    confinement: Confinement = OPEN,
    tenant: str | None = None,
    inherited: Inherited | None = None,
    may_replace: bool = False,
    limits: StatementLimits = DEFAULT_LIMITS,
) -> list[PlannedQuery]:
    """Return every request planned; the error of the first that cannot be says which it was.

    CREATE OR REPLACE QUERY is refused unless the caller ``may_replace``.
    """
    requests = list(requests)
    planned = []
    names = {definition.id: definition.name for definition in catalog.values()}
    base = inherited or Inherited()
    for position, request in enumerate(requests, start=1):
        planning.check()
        try:
            parsed = read_query(request.sql, catalog, tables, limits)
            if parsed.or_replace and not may_replace:
                raise NotAllowed(
                    "CREATE OR REPLACE QUERY is a statement for POST /sql; PUT /queries/{id} replaces a query, too."
                )
            if parsed.sink is not None and request.sink is not None:
                raise NotAllowed("The request must name one sink; got one in the SQL and one beside it. Leave one out.")
            if parsed.start is not None and request.start is not None:
                raise NotAllowed(
                    "The request must name one start; got one in the SQL and one beside it. Leave one out."
                )
            start_text = _first_given(parsed.start, request.start)
            start = None if start_text is None else read_start(start_text)
            own_name = _first_given(request.name, parsed.name)
            if own_name is not None:
                check_new_name(own_name)
            name = _first_given(own_name, base.name)
            sink_spec = _first_given(parsed.sink, request.sink, base.sink)
            sink = read_sink(sink_spec)
            if sink is not None:
                _check_sink(sink, parsed.query, confinement, base.id if sink_spec is base.sink else None)
        except ServiceError as error:
            if len(requests) > 1:
                _reword(error, f"Query {position} of {len(requests)}: {error.detail}")
            raise
        streams = shared_dict({s: names.get(s) or catalog.name_of(s) for s in parsed.query.streams})
        queries = (parsed.query, *(subquery.query for subquery in parsed.subqueries))
        looked_up = [lookup for query in queries for lookup in lookups_of(query)]
        versions = tuple(tables.read[table] for table in {lookup.table: None for lookup in looked_up})
        recorded_sink = sink_spec if sink is None else sink.to_json()
        planned.append(
            PlannedQuery(
                request, name, parsed.query, streams, versions, recorded_sink, tenant, start, parsed.subqueries
            )
        )
    return planned


def _check_sink(sink: SinkDefinition, query: Query, confinement: Confinement, inherited_from: str | None) -> None:
    try:
        sink.validate(query, confinement)
    except NotAllowed as error:
        if inherited_from is not None:
            hint = f'The sink is that of {inherited_from}: "sink" says another one, or null for none.'
            _reword(error, f"{error.detail} {hint}")
        raise


def _reword(error: ServiceError, detail: str) -> None:
    error.detail = detail
    error.args = (detail,)


def _first_given(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
