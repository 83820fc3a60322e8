"""The queries of a session as one principal may use them: within its tenant's quotas, and its tenant's only.

Queries are named by id or name; names are those of the tenant's own queries. A query of another tenant is not refused
but unknown. Streams and tables are everybody's to use: sharing them is what
the service is for. Which rights a call needs its route says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from braid.session.access.capacity import Capacity
from braid.session.access.meters import Meters
from braid.session.access.principal import ADMIN, Principal
from braid.session.commands.admission import Owner
from braid.session.commands.query_lookup import OLDEST, RunningQuery, unknown_query
from braid.session.commands.query_requests import PlannedQuery, QueryRequest, Replacement
from braid.session.commands.writer import Submission, Wake
from braid.session.shared_session import SharedSession
from braid.session.sql.statements import Select
from braid.session.state.requests import Outcome


class TenantSession:
    """The :class:`~braid.session.shared_session.SharedSession` of one principal; Forbidden without the right."""

    def __init__(
        self,
        session: SharedSession,
        principal: Principal,
        meters: Meters,
        capacity: Capacity | None = None,
        check_key: Callable[[], object] = lambda: None,
    ) -> None:
        """``check_key`` raises Unauthorized once the principal's key is revoked: requests that take long call it."""
        self.session = session
        self._check_key = check_key
        self.principal = principal
        self.meters = meters
        self._capacity = capacity
        self._sees_all = ADMIN in principal.rights

    def scoped(self, key: str) -> str:
        """Return an Idempotency-Key as no other tenant can have it."""
        return key if self.principal.tenant is None else f"{self.principal.tenant}\n{key}"

    # queries that come and go

    def create_queries(self, requests: Iterable[QueryRequest]) -> list[dict[str, Any]]:
        """Accept all of the queries or none."""
        return self.begin_create(requests).wait()

    def begin_create(self, requests: Iterable[QueryRequest], *on_done: Wake) -> Submission:
        """Begin to accept all of the queries or none."""
        requests = list(requests)
        return self.session.queries.begin_create(requests, *on_done, owner=self._owner(self._count_creations))

    def validate(self, requests: list[QueryRequest]) -> list[dict[str, Any]]:
        """Return what each query would run as, or raise what creating them would."""
        return [
            self._without_other_tenants(explanation)
            for explanation in self.session.queries.validate(requests, self._owner())
        ]

    def explain(self, select: Select) -> dict[str, Any]:
        """Return how a SELECT would run."""
        return self._without_other_tenants(self.session.queries.explain(select, self._owner()))

    def delete_query(self, id_or_name: str, drain: bool = True, cascade: bool = False) -> dict[str, Any]:
        """Retire a query; with ``cascade`` those that read it, too."""
        return self.begin_delete([id_or_name], drain, cascade=cascade).wait()[0]

    def delete_queries(self, ids_or_names: Iterable[str], drain: bool = True) -> list[dict[str, Any]]:
        """Retire all of the queries, or none when one is unknown."""
        return self.begin_delete(ids_or_names, drain).wait()

    def begin_delete(
        self, ids_or_names: Iterable[str], drain: bool, *on_done: Wake, cascade: bool = False
    ) -> Submission:
        """Begin to retire queries; with ``cascade`` those that read them, too."""
        ids = [self._id_of(name) for name in ids_or_names]
        return self.session.queries.begin_delete(ids, drain, *on_done, cascade=cascade)

    def begin_replace(
        self, id_or_name: str, replacement: Replacement, drain: bool = True, *on_done: Wake
    ) -> Submission:
        """Begin to accept a query in the place of another, which retires."""
        owner = self._owner(self._count_creations)
        return self.session.queries.begin_replace(self._id_of(id_or_name), replacement, drain, *on_done, owner=owner)

    def create_or_replace(self, name: str, sql: str) -> dict[str, Any]:
        """Replace the tenant's query of a name, or create one if there is none."""
        return self.session.queries.create_or_replace(name, sql, self._owner(self._count_creations))

    def begin_pause(self, id_or_name: str, *on_done: Wake) -> Submission:
        """Begin to pause a query."""
        return self.session.queries.begin_pause(self._id_of(id_or_name), *on_done)

    def begin_resume(self, id_or_name: str, *on_done: Wake) -> Submission:
        """Begin to run a paused query again."""
        return self.session.queries.begin_resume(self._id_of(id_or_name), *on_done)

    def _count_creations(self, planned: Sequence[PlannedQuery]) -> None:
        self.meters.count_creations(len(planned))

    def _owner(self, count: Callable[[Sequence[PlannedQuery]], None] | None = None) -> Owner:
        def check(planned: Sequence[PlannedQuery]) -> None:
            if self._capacity is not None:
                self._capacity.check(planned, self.principal.tenant, self.meters.quotas.cost_share)
            if count is not None:
                count(planned)

        quotas = self.meters.quotas
        return Owner(self.principal.tenant, quotas.running_queries, check, quotas.query_levels, quotas.query_readers)

    # queries that exist

    def query(self, id_or_name: str) -> dict[str, Any]:
        """Return a query as GET /queries/{id} shows it."""
        return self.session.lookup.describe(self._id_of(id_or_name))

    def query_in_memory(self, id_or_name: str) -> dict[str, Any] | None:
        """Return a query as :meth:`query` does; None when a file must be read to know it, or it is unknown."""
        query_id = self.session.lookup.id_in_memory(id_or_name, self.principal.tenant)
        query = None if query_id is None else self.session.lookup.describe_in_memory(query_id)
        return query if query is None or self.principal.sees(query["tenant"]) else None

    def is_in_memory(self, id_or_name: str) -> bool:
        """Whether a query, which the principal may see or not, is found without reading a file."""
        query_id = self.session.lookup.id_in_memory(id_or_name, self.principal.tenant)
        return query_id is not None and self.session.lookup.is_in_memory(query_id)

    def live_query(self, id_or_name: str) -> RunningQuery:
        """Return what a reader of the query's results needs, as of now; Unauthorized once the key is revoked."""
        self._check_key()
        return self.session.lookup.deployed(self._id_of(id_or_name))

    def list_queries(
        self,
        state: str | None = None,
        label: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        name: str | None = None,
        text: str | None = None,
        order: str = OLDEST,
    ) -> dict[str, Any]:
        """Return a page of queries."""
        return self.session.lookup.page(state, label, limit, cursor, name, text, order, self.principal)

    def query_plan(self, id_or_name: str) -> dict[str, Any]:
        """Return how a query runs and with whom it shares."""
        return self._without_other_tenants(self.session.plans.of_query(self._id_of(id_or_name)))

    def plan(self) -> dict[str, Any]:
        """Return the plan as a graph, without other tenants' queries and the operators that only they use.

        The number of executors, the load of partitions and the changes of plans tell what all tenants do: a tenant is
        not shown them.
        """
        graph = self.session.plans.graph()
        if self._sees_all:
            return graph
        del graph["executors"], graph["changes"], graph["partitions"]
        nodes = []
        for node in graph["nodes"]:
            if "query_ids" in node:
                node = {**node, "query_ids": [query_id for query_id in node["query_ids"] if self._sees(query_id)]}
                if not node["query_ids"]:
                    continue
            elif not all(map(self._sees, self.session.lookup.queries_behind(node["id"].removeprefix("stream:")))):
                continue
            nodes.append(node)
        shown = {node["id"] for node in nodes}
        edges = [edge for edge in graph["edges"] if edge["source"] in shown and edge["target"] in shown]
        return {**graph, "nodes": nodes, "edges": edges}

    # idempotency

    def idempotent(self, key: str, fingerprint: str, action: Callable[[], Outcome]) -> Outcome:
        """Return the first outcome of the tenant's ``key``."""
        return self.session.idempotent(self.scoped(key), fingerprint, action)

    # which queries the principal sees

    def _id_of(self, id_or_name: str) -> str:
        """Return the id of a query that the principal sees; UnknownObject for that of another tenant."""
        query_id = self.session.lookup.id_of(id_or_name, self.principal.tenant)
        if not self._sees_all and not self._sees(query_id):
            raise unknown_query(query_id)
        return query_id

    def _sees(self, query_id: str) -> bool:
        return self.principal.sees(self.session.lookup.tenant_of(query_id))

    def _without_other_tenants(self, explanation: dict[str, Any]) -> dict[str, Any]:
        """Return an explanation without the ids of other tenants' queries; they are still counted."""
        if self._sees_all:
            return explanation
        sharing = explanation["shares_with"]
        return {
            **explanation,
            "shares_with": {**sharing, "ids": [query_id for query_id in sharing["ids"] if self._sees(query_id)]},
        }
