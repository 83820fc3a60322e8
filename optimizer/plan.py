"""The plan: which operators run, what they read, and which queries share each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from operators.expressions import columns_of, conjuncts_of
from operators.queries import Aggregation, Query, Selection, SessionWindow, Window
from optimizer.graph import to_dot
from optimizer.optimizer import operator_of
from sources.errors import BraidError

SHOWN_QUERIES = 20
ROUTER = "router"


@dataclass(frozen=True)
class Operator:
    """A shared operator: all its queries read ``stream`` and partition it by the same attributes."""

    id: str
    kind: str
    stream: str
    partitioning: tuple[str, ...]
    queries: Mapping[str, Query] = field(default_factory=dict)

    @property
    def windows(self) -> tuple[Window | SessionWindow, ...]:
        """The different windows of its queries, shortest first, sessions last; none for selections."""
        windows = {q.window for q in self.queries.values() if isinstance(q, Aggregation)}
        return tuple(sorted(windows, key=_window_order))

    def to_json(self, streams: Mapping[str, str]) -> dict[str, Any]:
        """Return the operator as a node of the plan's graph; ``streams`` maps ids to names."""
        ids = list(self.queries)
        return {
            "id": self.id,
            "kind": self.kind,
            "stream": streams.get(self.stream, self.stream),
            "partitioned_by": list(self.partitioning),
            "queries": len(ids),
            "query_ids": ids,
            "windows": [window_json(w) for w in self.windows],
        }


@dataclass(frozen=True)
class Plan:
    """All operators at one version; a change makes a new plan that shares what did not change.

    ``streams`` maps the ids of all streams to their names.
    """

    version: int = 0
    operators: Mapping[str, Operator] = field(default_factory=dict)
    streams: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for operator in self.operators.values():
            if not operator.queries:
                raise BraidError(f"An operator must run at least one query; {operator.id!r} runs none.")

    def changed(
        self,
        created: Iterable[tuple[str, Query]] = (),
        removed: Iterable[tuple[str, Query]] = (),
        streams_created: Mapping[str, str] | None = None,
        streams_dropped: Iterable[str] = (),
    ) -> Plan:
        """Return the plan after queries leave and come and streams come and go; the same one for no change.

        Costs what the touched operators hold, not what all operators hold.
        """
        operators = dict(self.operators)
        touched: dict[str, dict[str, Query]] = {}
        for query_id, query in removed:
            queries = self._queries_to_change(operator_of(query), touched)
            if queries.pop(query_id, None) is None:
                raise BraidError(f"Only a query in the plan can leave it; got {query_id!r}.", query_id=query_id)
        for query_id, query in created:
            operator = operator_of(query)
            self._queries_to_change(operator, touched)[query_id] = query
            operators.setdefault(operator, _empty(operator, query))
        for operator, queries in touched.items():
            if queries:
                operators[operator] = replace(operators[operator], queries=queries)
            else:
                operators.pop(operator, None)
        streams = {**self.streams, **(streams_created or {})}
        for stream in streams_dropped:
            streams.pop(stream, None)
        if not touched and streams == self.streams:
            return self
        return Plan(self.version + 1, operators, streams)

    def _queries_to_change(self, operator: str, touched: dict[str, dict[str, Query]]) -> dict[str, Query]:
        if operator not in touched:
            known = self.operators.get(operator)
            touched[operator] = {} if known is None else dict(known.queries)
        return touched[operator]

    def sharing(self, query: Query, but: str | None = None) -> list[str]:
        """Return the ids of the queries whose operator would run ``query``, without the query ``but``."""
        operator = self.operators.get(operator_of(query))
        return [] if operator is None else [q for q in operator.queries if q != but]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a graph: nodes are streams, operators and the router."""
        nodes: list[dict[str, Any]] = [
            {"id": f"stream:{stream}", "kind": "stream", "name": name} for stream, name in self.streams.items()
        ]
        edges = []
        for _, operator in sorted(self.operators.items()):
            nodes.append(operator.to_json(self.streams))
            edges.append({"source": f"stream:{operator.stream}", "target": operator.id})
            edges.append({"source": operator.id, "target": ROUTER})
        if self.operators:
            nodes.append({"id": ROUTER, "kind": "router"})
        return {"version": self.version, "nodes": nodes, "edges": edges}

    def to_dot(self) -> str:
        """Return the graph in Graphviz' language."""
        return to_dot(self.to_json())

    def explain(self, query: Query, streams: Mapping[str, str], query_id: str | None = None) -> dict[str, Any]:
        """Return how ``query`` runs (or would run) and with whom it shares, with its part of the graph.

        ``streams`` maps the ids of its streams to names: a plan forgets streams that are dropped.
        """
        operator_id = operator_of(query)
        others = self.sharing(query, query_id)
        operator = self.operators.get(operator_id, _empty(operator_id, query))
        stream = streams[query.stream]
        sink = query_id or "query"
        node = {key: value for key, value in operator.to_json(streams).items() if key != "query_ids"}
        window = window_json(query.window) if isinstance(query, Aggregation) else None
        return {
            "kind": operator.kind,
            "operator": operator_id,
            "streams": [stream],
            "partitioned_by": list(operator.partitioning),
            "window": window,
            "emit": query.emit.form if isinstance(query, Aggregation) else None,
            "predicate_columns": predicate_columns(query),
            "evaluation": evaluation(query),
            "shares_with": {"count": len(others), "ids": others[:SHOWN_QUERIES]},
            "plan_version": self.version,
            "why": _why(operator, stream, len(others)),
            "nodes": [
                {"id": f"stream:{query.stream}", "kind": "stream", "name": stream},
                node,
                {"id": ROUTER, "kind": "router"},
                {"id": sink, "kind": "query"},
            ],
            "edges": [
                {"source": f"stream:{query.stream}", "target": operator_id},
                {"source": operator_id, "target": ROUTER},
                {"source": ROUTER, "target": sink},
            ],
        }


def predicate_columns(query: Query) -> list[str]:
    """Return the columns that the query's predicates read, sorted."""
    return [] if query.where is None else sorted(set(columns_of(query.where)))


def evaluation(query: Query) -> dict[str, str]:
    """Return in which form tuples are brought to the query, and why: how many things its predicate tests decides it.

    Conjuncts over one column are tested together; any other conjunct is evaluated by itself.
    """
    tested = set()
    for conjunct in conjuncts_of(query.where):
        columns = set(columns_of(conjunct))
        tested.add(columns.pop() if len(columns) == 1 else f"({conjunct})")
    names = ", ".join(sorted(tested))
    if isinstance(query, Selection):
        return {"form": "query-sets", "why": f"selected tuples are kept one by one; tested: {names or 'nothing'}"}
    if isinstance(query.window, SessionWindow):
        return {"form": "fragments", "why": "tuples within the shortest gap of the operator's queries stay together"}
    if len(tested) > 1:
        why = f"{names} are tested: tuples with the same query-set are added up once, or each query alone where such"
        return {"form": "query-set groups", "why": f"{why} groups have about one tuple"}
    why = f"only {names} is tested: each tuple is added to one cell of its values" if tested else "nothing is tested"
    return {"form": "cells" if tested else "one cell", "why": why}


def _window_order(window: Window | SessionWindow) -> tuple[int, ...]:
    if isinstance(window, SessionWindow):
        return (1, window.gap_us)
    return (0, window.size_us, window.slide_us, window.offset_us)


def window_json(window: Window | SessionWindow) -> dict[str, Any]:
    """Return a window in seconds, as people read it."""
    if isinstance(window, SessionWindow):
        return {"kind": "session", "gap_seconds": window.gap_us / 1e6}
    return {
        "kind": "tumbling" if window.slide_us == window.size_us else "hopping",
        "size_seconds": window.size_us / 1e6,
        "slide_seconds": window.slide_us / 1e6,
        "offset_seconds": window.offset_us / 1e6,
    }


def _empty(operator: str, query: Query) -> Operator:
    if isinstance(query, Selection):
        return Operator(operator, "selection", query.stream, ())
    return Operator(operator, "aggregation", query.stream, tuple(str(key) for key in query.keys))


def _why(operator: Operator, stream: str, others: int) -> str:
    shared = "no other query yet" if not others else f"{others} other quer{'y' if others == 1 else 'ies'}"
    if operator.kind == "selection":
        rule = f"all selections over {stream} share one operator"
    else:
        by = ", ".join(operator.partitioning) or "nothing (one group)"
        rule = f"all aggregations over {stream} partitioned by {by} share one operator, whatever their windows"
    return f"Shared with {shared}: {rule}."
