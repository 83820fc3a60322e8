"""The plan: which operators run, what they read, and which queries share each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from braid.operators.expressions import columns_of
from braid.operators.joins.key_splits import NOT_SPLIT, KeySplit
from braid.operators.joins.query import Join
from braid.operators.kinds import kind_of, operator_of, source_operators
from braid.operators.live_queries import UNGROUPED
from braid.operators.operator import OperatorKind
from braid.operators.predicates.space_key import SpaceKey
from braid.operators.queries import Query, lookups_of
from braid.operators.windows import SessionWindow, Window
from braid.optimizer.sub_joins import SubJoin, sub_joins
from braid.sources.core.derived import is_derived, lineages_of
from braid.sources.core.errors import ServiceError

SHOWN_QUERIES = 20
# queries share cells where at least so many of an operator test the same columns, or all of it one of so many columns
MIN_ALIKE, MAX_SIMPLE = 8, 6
ROUTER = "router"


@dataclass
class Operator:
    """A shared operator: all its queries read the same ``streams`` and partition them by the same attributes.

    ``tables`` are the static tables that the streams are joined with before; ``inputs`` tell the streams after that
    apart. ``queries`` has the ids of the queries in the order in which they came, each with its query group; ``split``
    says which keys are split among partitions, for windows that begin once it is in effect. ``used``
    counts how many of them have each window, ``sources`` how many have each operator of source tasks (those of a join's
    inputs others may share). ``cells`` has what decides with whom a query can share cells, where there are any; the
    queries in ``alone`` share none. ``join`` is some join that ran in it: all of its have the same inputs and keys.
    """

    id: str
    kind: OperatorKind
    streams: tuple[str, ...]
    partitioning: tuple[str, ...]
    tables: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    queries: dict[str, int] = field(default_factory=dict)
    used: Counter[Window | SessionWindow] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    join: Join | None = None
    split: KeySplit = NOT_SPLIT
    cells: dict[str, SpaceKey] = field(default_factory=dict)
    alone: set[str] = field(default_factory=set)

    @cached_property
    def sub_joins(self) -> frozenset[SubJoin]:
        """What some inputs of each of its joins are when they are joined; none without a join."""
        return frozenset() if self.join is None else sub_joins(self.join)

    @property
    def windows(self) -> tuple[Window | SessionWindow, ...]:
        """The different windows of its queries, shortest first, sessions last; none for selections."""
        return tuple(sorted(self.used, key=lambda window: window.order))

    @property
    def groups(self) -> Counter[int]:
        """How many queries each query group has."""
        return Counter(self.queries.values())

    def add(self, query_id: str, query: Query, is_alone: bool) -> None:
        """Let a query run in it, in no group yet."""
        self.queries[query_id] = UNGROUPED
        if self.kind.cells is not None:
            self.cells[query_id] = self.kind.cells(query)
        if is_alone:
            self.alone.add(query_id)
        self.sources.update(source_operators(query))
        if query.window is not None:
            self.used[query.window] += 1

    def remove(self, query_id: str, query: Query) -> None:
        """Take a query of it out."""
        del self.queries[query_id]
        self.cells.pop(query_id, None)
        self.alone.discard(query_id)
        self.sources -= Counter(source_operators(query))
        if query.window is not None:
            self.used[query.window] -= 1
            if not self.used[query.window]:
                del self.used[query.window]

    def to_json(self, streams: Mapping[str, str]) -> dict[str, Any]:
        """Return the operator as a node of the plan's graph; ``streams`` maps ids to names."""
        return self.summary(streams) | {"query_ids": list(self.queries)}

    def summary(self, streams: Mapping[str, str]) -> dict[str, Any]:
        """Return the node without the ids of its queries."""
        return {
            "id": self.id,
            "kind": self.kind.shown_as,
            "streams": [streams.get(stream, stream) for stream in self.streams],
            "tables": list(self.tables),
            "partitioned_by": list(self.partitioning),
            "queries": len(self.queries),
            "alone": len(self.alone),
            "groups": {str(group): count for group, count in sorted(self.groups.items())},
            **self._split_json(streams),
            "windows": [window.described() for window in self.windows],
        }

    def _split_json(self, streams: Mapping[str, str]) -> dict[str, Any]:
        """Return how many keys are split, of which input the tuples are spread, and by what; nothing for no keys."""
        if not self.split.hashes or self.join is None:
            return {}
        stream = self.join.inputs[self.split.spread].stream
        by = {"by": list(self.split.by)} if self.split.by else {}
        return {"split": {"keys": len(self.split.hashes), "spread": streams.get(stream, stream), **by}}


QueriesBehind = Callable[[str], Iterable[str]]
"""Returns the ids of the queries whose rows a derived stream has; :func:`lineages_of` while none was replaced."""


class Plan:
    """All operators; a change makes the next version and costs what it changes.

    ``streams`` maps the ids of all streams to their names.
    """

    def __init__(self, version: int = 0, streams: Mapping[str, str] | None = None) -> None:
        self.version = version
        self.operators: dict[str, Operator] = {}
        self._operator_of: dict[str, Operator] = {}
        self.streams: dict[str, str] = dict(streams or {})

    def version_after(
        self, queries: bool, streams_created: Mapping[str, str] | None = None, streams_dropped: Iterable[str] = ()
    ) -> int:
        """Return the version after a change, the same for no change; ``queries``: whether some come, move or leave."""
        return self.version + (queries or self._streams_after(streams_created, streams_dropped) != self.streams)

    def change(
        self,
        created: Iterable[tuple[str, Query]] = (),
        removed: Iterable[tuple[str, Query]] = (),
        streams_created: Mapping[str, str] | None = None,
        streams_dropped: Iterable[str] = (),
        groups: Mapping[str, int] | None = None,
        splits: Mapping[str, KeySplit] | None = None,
        alone: Collection[str] = (),
    ) -> None:
        """Let queries leave, come and move to ``groups``, streams come and go, and keys of operators be split.

        Of those that come the queries in ``alone`` share no cells.

        ServiceError for a query that is not in the plan.
        """
        created, removed, dropped = list(created), list(removed), list(streams_dropped)
        for query_id, query in removed:
            operator = self.operators.get(operator_of(query))
            if operator is None or query_id not in operator.queries:
                raise ServiceError(f"Only a query in the plan can leave it; got {query_id!r}.", query_id=query_id)
        self.version = self.version_after(bool(created or removed or groups or splits), streams_created, dropped)
        self.streams = self._streams_after(streams_created, dropped)
        for query_id, query in removed:
            operator = self.operators[operator_of(query)]
            operator.remove(query_id, query)
            del self._operator_of[query_id]
            if not operator.queries:
                del self.operators[operator.id]
        for query_id, query in created:
            operator = self._operator_of[query_id] = self._operator_for(query)
            operator.add(query_id, query, query_id in alone)
        for query_id, group in (groups or {}).items():
            if query_id not in self._operator_of:
                raise ServiceError(
                    f"Only a query in the plan can change its group; got {query_id!r}.", query_id=query_id
                )
            self._operator_of[query_id].queries[query_id] = group
        for name, split in (splits or {}).items():
            self.operators[name].split = split

    def alone_among(self, created: Iterable[tuple[str, Query]]) -> set[str]:
        """Return which of some new queries share no cells: where few of their operator test what they test.

        A cell space costs something in each batch, however few queries have it. The first one of an operator is always
        shared, and so are all while its queries test one column each: look-alikes come one after the other.
        """
        by_operator: dict[str, dict[str, SpaceKey]] = {}
        for query_id, query in created:
            kind = kind_of(query)
            if kind.cells is not None:
                by_operator.setdefault(kind.operator_of(query), {})[query_id] = kind.cells(query)
        alone: set[str] = set()
        for name, cells in by_operator.items():
            operator = self.operators.get(name)
            counts = Counter([*cells.values(), *(() if operator is None else operator.cells.values())])
            are_simple = all(space.is_simple for space in counts)
            if len(counts) > 1 and not (are_simple and len({space.dimensions for space in counts}) <= MAX_SIMPLE):
                alone.update(query_id for query_id, space in cells.items() if counts[space] < MIN_ALIKE)
        return alone

    def group_of(self, query_id: str) -> int | None:
        """Return the query group of a query, None for one that is not in the plan."""
        operator = self._operator_of.get(query_id)
        return None if operator is None else operator.queries[query_id]

    @property
    def groups(self) -> dict[str, int]:
        """The query groups of those that are in one, by their ids."""
        return {
            query_id: group
            for operator in self.operators.values()
            for query_id, group in operator.queries.items()
            if group != UNGROUPED
        }

    @property
    def splits(self) -> dict[str, KeySplit]:
        """Which keys of operators are split, by the operator's name."""
        return {name: operator.split for name, operator in self.operators.items() if operator.split.number}

    def _streams_after(self, created: Mapping[str, str] | None, dropped: Iterable[str]) -> dict[str, str]:
        dropped_ids = set(dropped)
        return {
            stream: name for stream, name in {**self.streams, **(created or {})}.items() if stream not in dropped_ids
        }

    def _operator_for(self, query: Query) -> Operator:
        operator_id = operator_of(query)
        operator = self.operators.get(operator_id)
        if operator is None:
            operator = self.operators[operator_id] = _empty(operator_id, query)
        return operator

    def sharing(self, query: Query, excluded: str | None = None) -> tuple[int, list[str]]:
        """Return how many queries but ``excluded`` the operator that would run ``query`` has, and the ids of a few."""
        operator = self.operators.get(operator_of(query))
        if operator is None:
            return 0, []
        others = [query_id for query_id in islice(operator.queries, SHOWN_QUERIES + 1) if query_id != excluded]
        return len(operator.queries) - (excluded in operator.queries), others[:SHOWN_QUERIES]

    def _evaluation(self, operator: Operator, query: Query, query_id: str | None) -> dict[str, str]:
        """Return in which form tuples are brought to a query that runs, or would run, and why."""
        is_alone = query_id in operator.alone if query_id in operator.queries else self.alone_among([("", query)])
        if not is_alone:
            return operator.kind.evaluation(query)
        why = "few queries of its operator test the same columns: it shares what their conditions"
        return {"form": "alone", "why": f"{why}, keys and measures have in common, and has entries of its own"}

    @staticmethod
    def _group_json(operator: Operator, query_id: str | None) -> dict[str, int] | None:
        """Return a query's group and how many queries it has, None for one that is in none."""
        group = operator.queries.get(query_id or "", UNGROUPED)
        return None if group == UNGROUPED else {"number": group, "queries": operator.groups[group]}

    def to_json(self, behind: QueriesBehind = lineages_of) -> dict[str, Any]:
        """Return the plan as a graph: nodes are streams, static tables, operators and the router."""
        nodes: list[dict[str, Any]] = [_stream_node(stream, name) for stream, name in self.streams.items()]
        tables = {table for operator in self.operators.values() for table in operator.tables}
        nodes += [_table_node(table) for table in sorted(tables)]
        edges = []
        for _, operator in sorted(self.operators.items()):
            nodes.append(operator.to_json(self.streams))
            edges += [{"source": f"stream:{stream}", "target": operator.id} for stream in operator.streams]
            edges += [{"source": f"table:{table}", "target": operator.id} for table in operator.tables]
            edges.append({"source": operator.id, "target": ROUTER})
        edges += self._edges_to_derived_streams(behind)
        if self.operators:
            nodes.append({"id": ROUTER, "kind": "router"})
        return {"version": self.version, "nodes": nodes, "edges": edges}

    def _edges_to_derived_streams(self, behind: QueriesBehind) -> list[dict[str, str]]:
        """Return edges from operators to the streams that have rows of their queries."""
        derived = [stream for stream in self.streams if is_derived(stream)]
        if not derived:
            return []
        running = {query: operator.id for operator in self.operators.values() for query in operator.queries}
        return [
            {"source": running[query], "target": f"stream:{stream}"}
            for stream in derived
            for query in behind(stream)
            if query in running
        ]

    def _before(
        self, streams: Iterable[str], behind: QueriesBehind
    ) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
        """Return the nodes and edges that lead to streams of rows of queries, in the order of the data's way."""
        running = {query: operator for operator in self.operators.values() for query in operator.queries}
        nodes: dict[str, dict[str, Any]] = {}
        edges: list[dict[str, str]] = []

        def visit(stream: str) -> None:
            operators = {running[query].id: running[query] for query in behind(stream) if query in running}
            for operator in operators.values():
                if operator.id not in nodes:
                    for each in operator.streams:
                        visit(each)
                        nodes[f"stream:{each}"] = _stream_node(each, self.streams.get(each, each))
                    nodes[operator.id] = operator.summary(self.streams)
                    edges.extend({"source": f"stream:{each}", "target": operator.id} for each in operator.streams)
                edges.append({"source": operator.id, "target": f"stream:{stream}"})

        for stream in dict.fromkeys(streams):
            visit(stream)
        return list(nodes.values()), edges

    def explain(
        self,
        query: Query,
        streams: Mapping[str, str],
        query_id: str | None = None,
        behind: QueriesBehind = lineages_of,
    ) -> dict[str, Any]:
        """Return how ``query`` runs (or would run) and with whom it shares, with its part of the graph.

        ``streams`` maps the ids of its streams to names: a plan forgets streams that are dropped.
        """
        operator_id = operator_of(query)
        other_count, other_ids = self.sharing(query, query_id)
        operator = self.operators.get(operator_id, _empty(operator_id, query))
        names = [streams[stream] for stream in query.streams]
        sink = query_id or "query"
        nodes_before: list[dict[str, Any]] = []
        edges_before: list[dict[str, str]] = []
        if any(map(is_derived, query.streams)):
            nodes_before, edges_before = self._before(query.streams, behind)
        shown = {node["id"] for node in nodes_before}
        return {
            "kind": operator.kind.shown_as,
            "operator": operator_id,
            "streams": names,
            "tables": list(operator.tables),
            "partitioned_by": list(operator.partitioning),
            "window": None if query.window is None else query.window.described(),
            "emit": query.emit.form if operator.kind.has_emit else None,
            "predicate_columns": predicate_columns(query),
            "evaluation": self._evaluation(operator, query, query_id),
            "shares_with": {"count": other_count, "ids": other_ids},
            "group": self._group_json(operator, query_id),
            "plan_version": self.version,
            "why": _why(operator, " and ".join(names), other_count),
            "nodes": [
                *nodes_before,
                *(
                    _stream_node(stream, name)
                    for stream, name in zip(query.streams, names, strict=True)
                    if f"stream:{stream}" not in shown
                ),
                *map(_table_node, operator.tables),
                operator.summary(streams),
                {"id": ROUTER, "kind": "router"},
                {"id": sink, "kind": "query"},
            ],
            "edges": [
                *edges_before,
                *({"source": f"stream:{stream}", "target": operator_id} for stream in query.streams),
                *({"source": f"table:{table}", "target": operator_id} for table in operator.tables),
                {"source": operator_id, "target": ROUTER},
                {"source": ROUTER, "target": sink},
            ],
        }


def predicate_columns(query: Query) -> list[str]:
    """Return the columns that the query's predicates read, sorted; of a join each with the alias of its input."""
    columns = set()
    for source in query.inputs:
        prefix = f"{source.alias}." if source.alias else ""
        columns |= {f"{prefix}{name}" for name in ([] if source.where is None else columns_of(source.where))}
    return sorted(columns)


def _stream_node(stream: str, name: str) -> dict[str, Any]:
    return {"id": f"stream:{stream}", "kind": "stream", "name": name}


def _table_node(table: str) -> dict[str, Any]:
    """Return a node for a table, given as its name and the version of its lookups: ``packs@08f0ae51ba8479ad``."""
    return {"id": f"table:{table}", "kind": "table", "name": table.partition("@")[0]}


def _empty(operator: str, query: Query) -> Operator:
    table_names = (f"{lookup.name.partition('#')[0]}@{lookup.version}" for lookup in lookups_of(query))
    tables = tuple(dict.fromkeys(table_names))
    inputs = tuple(dict.fromkeys(source.input for source in query.inputs))
    kind = kind_of(query)
    join = query if isinstance(query, Join) else None
    return Operator(operator, kind, query.streams, kind.partitioned_by(query), tables, inputs, join=join)


def _why(operator: Operator, streams: str, other_count: int) -> str:
    shared = (
        "no other query yet" if not other_count else f"{other_count} other quer{'y' if other_count == 1 else 'ies'}"
    )
    return f"Shared with {shared}: {operator.kind.rule(streams, ', '.join(operator.partitioning))}."
