"""How the queries of a session run: the plan as a graph, with whom queries share, and what they cost."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from braid.operators.expressions import Column, Expression, columns_of
from braid.operators.queries import Query
from braid.operators.query_parts import CHANGES, PARTIAL, WINDOW_END, WINDOW_START
from braid.operators.state.keys import key_names
from braid.optimizer.costs import Costs, cost_shares, operator_statistics, query_statistics
from braid.optimizer.join_costs import explain_join_order
from braid.optimizer.statistics import Statistics
from braid.session.commands.query_lookup import QueryLookup
from braid.session.state.session_state import SessionState
from braid.session.upkeep.reoptimization import Reoptimization
from braid.session.upkeep.scaling import Scaling
from braid.sources.core.schema import TIMESTAMP


class Plans:
    """The plan of one session."""

    def __init__(
        self,
        state: SessionState,
        lock: threading.RLock,
        lookup: QueryLookup,
        statistics: Statistics,
        reoptimization: Reoptimization,
        scaling: Scaling,
    ) -> None:
        self._state = state
        self._lock = lock
        self._lookup = lookup
        self._statistics = statistics
        self._reoptimization = reoptimization
        self._scaling = scaling

    def graph(self) -> dict[str, Any]:
        """Return the plan of everything as a graph, with its last changes and why, the executors and the partitions."""
        with self._lock:
            plan = self._state.plan
            graph = plan.to_json(self._lookup.queries_behind)
            for node in graph["nodes"]:
                if node["id"] in plan.operators:
                    node["statistics"] = operator_statistics(self._statistics, plan.operators[node["id"]])
        partitions = [
            {"partition": partition, "cores": float(f"{c:.3g}")}
            for partition, c in enumerate(self._statistics.cores_of_partitions())
        ]
        additions = {
            "changes": self._reoptimization.changes(),
            "executors": self._scaling.describe(),
            "partitions": partitions,
        }
        return {**graph, **additions}

    def of_query(self, query_id: str) -> dict[str, Any]:
        """Return how a query runs, with whom it shares, and the columns of its rows."""
        record = self._lookup.by_id(query_id)
        with self._lock:
            head = {"id": record.id, "name": record.name, "state": record.state}
            explained = self._explained(record.query, record.stream_names, record.id)
            return {**head, **explained, "columns": result_columns(record.query)}

    def explain(self, query: Query, streams: dict[str, str]) -> dict[str, Any]:
        """Return how a query would run, the columns of its rows included."""
        with self._lock:
            plan = self._explained(query, streams)
        graph = {"nodes": plan.pop("nodes"), "edges": plan.pop("edges")}
        return {**plan, "columns": result_columns(query), "plan": graph}

    def _explained(self, query: Query, streams: dict[str, str], query_id: str | None = None) -> dict[str, Any]:
        """Return how a query runs or would run, with what is known of it; under the lock."""
        plan = self._state.plan
        statistics = query_statistics(plan, self._statistics, query, streams, query_id)
        join_order = explain_join_order(plan, self._statistics, query, query_id)
        return {
            **plan.explain(query, streams, query_id, self._lookup.queries_behind),
            "statistics": statistics,
            "join_order": join_order,
        }

    # what queries cost

    def cost_shares(self, ids: Iterable[str]) -> dict[str, float]:
        """Return the share of some queries in what all operators cost; only of those that run and have a known cost."""
        with self._lock:
            records = (self._state.queries.find(query_id) for query_id in ids)
            queries = {record.id: record.query for record in records if record is not None}
            return cost_shares(self._state.plan, self._statistics, queries)

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


def result_columns(query: Query) -> list[dict[str, Any]]:
    """Return the columns of a query's result with their types, and their ``role`` among the columns of a window.

    ``window_start`` and ``window_end`` are its bounds; ``group`` depends on GROUP BY alone; ``sum`` adds up over groups
    (SUM, COUNT); ``aggregate`` is any other value of a group. Columns of single rows have None.
    """
    columns = [
        {"name": o.name, "type": str(o.expression.type), "role": _role(query, o.name, o.expression)}
        for o in query.outputs
    ]
    if query.window is not None:
        columns.append({"name": PARTIAL, "type": "BOOLEAN", "role": None})
        if query.emit.stream:
            columns += [{"name": name, "type": str(kind), "role": None} for name, kind in CHANGES.items()]
    return columns


def _role(query: Query, name: str, expression: Expression) -> str | None:
    if name in (WINDOW_START, WINDOW_END) and expression.type == TIMESTAMP:
        return name
    if not query.is_grouped:
        return None
    sums = {measure.name for measure in query.measures if measure.function in ("count", "sum")}
    used = set(columns_of(expression))
    if used and used <= set(key_names(len(query.keys))):
        return "group"
    return "sum" if isinstance(expression, Column) and expression.name in sums else "aggregate"
