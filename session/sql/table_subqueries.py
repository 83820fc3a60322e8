"""Subqueries in WHERE over static tables: each row of a stream is looked up, whatever its window.

``x IN (SELECT …)`` and ``EXISTS (SELECT …)`` keep the rows for which the table has a row (semi-join), ``NOT`` keeps the
others (anti-join). ``x NOT IN (SELECT …)`` is true of nothing where the values have a NULL, of a NULL only where there
are no values, and so is three anti-joins.
"""

from __future__ import annotations

from dataclasses import replace

from braid.operators.functions.coercion import UNTYPED_NULL
from braid.operators.lookup.lookups import ANTI, SEMI
from braid.session.sql.aggregates import first_aggregate
from braid.session.sql.inputs import KnownTables, find_input, is_table
from braid.session.sql.relations import Relations
from braid.session.sql.semi_joins import SUBQUERY_NODE, has_subqueries
from braid.session.sql.statements import JoinedSource, Select
from braid.session.sql.syntax import Node, always_zero, call_node, conjunction, conjuncts, walk, zero
from braid.sources.connectors.static_table import TableVersion


def with_table_subqueries(select: Select, catalog: Relations, tables: KnownTables, event_time: str) -> Select:
    """Return a SELECT with lookups instead of those subqueries of its WHERE that are over static tables.

    ``event_time`` is that of its first input. SqlNotAllowed for those that ask for what no lookup gives.
    """
    assert select.where is not None
    others: list[Node] = []
    joins: list[JoinedSource] = []
    for node in conjuncts(select.where):
        subqueries = [each for each in walk(node) if each.kind == SUBQUERY_NODE]
        table = _table_of(subqueries[0].value, catalog, tables) if len(subqueries) == 1 else None
        if table is None:
            others.append(node)
        else:
            alias = f"lookup {len(joins) + 1}"
            joins += _Lookup(select, subqueries[0], table, alias, event_time).of(node)
    return replace(select, joins=(*select.joins, *joins), where=conjunction(others))


def _table_of(inner: Select, catalog: Relations, tables: KnownTables) -> TableVersion | None:
    """Return the static table that a subquery is over, None where it is over something else."""
    sources = [inner.source, *(joined.source for joined in inner.joins)]
    if inner.source.unnest is not None or not all(is_table(source, catalog, tables) for source in sources):
        return None
    found = find_input(inner, inner.source, catalog, tables)
    assert isinstance(found, TableVersion)
    return found


class _Lookup:
    """A subquery over one table, whose columns are called ``alias.c`` in the conditions of its joins."""

    def __init__(self, select: Select, subquery: Node, table: TableVersion, alias: str, event_time: str) -> None:
        inner: Select = subquery.value
        self._sql, self._at, self._inner, self._alias = select.sql, subquery.at, inner, alias
        self._called = (inner.source.alias or inner.source.stream).lower()
        self._columns = {field.name.lower() for field in table.definition.schema.fields}
        self._first = Node("name", subquery.at, (alias, table.definition.schema.names[0]))
        self._outer = Node("name", subquery.at, (select.source.alias or select.source.stream, event_time))
        items = tuple(item.node for item in inner.items if item.node.kind != "star")
        aggregate = first_aggregate((*items, *(() if inner.having is None else (inner.having,))))
        if (
            inner.joins
            or inner.union
            or inner.named
            or inner.group_by
            or aggregate is not None
            or inner.emit is not None
        ):
            raise select.sql.not_allowed(
                "A subquery over a static table is one SELECT of one table, without GROUP BY and aggregates; join with"
                " the table in FROM for what these give.",
                subquery.at,
            )
        if inner.source.window is not None:
            raise select.sql.not_allowed(
                f"{inner.source.stream} is a static table, which has no time of its own; remove its window.",
                inner.source.window_at,
            )
        where = [] if inner.where is None else [self._qualified(node) for node in conjuncts(inner.where)]
        self._own = [node for node in where if _names(node) <= {alias}]
        self._correlated = [node for node in where if node not in self._own]

    def of(self, node: Node) -> list[JoinedSource]:
        """Return the joins that a condition with the subquery asks for."""
        negated = node.kind == "call" and node.value == "not"
        condition = node.children[0] if negated else node
        if condition.kind == "call" and condition.value == "exists":
            return [self._join(ANTI if negated else SEMI, 0, self._exists())]
        if condition.kind != "call" or condition.value != "in_subquery" or has_subqueries(condition.children[0]):
            raise self._sql.not_allowed(
                "A subquery over a static table stands alone between ANDs, as x [NOT] IN (SELECT …) or [NOT] EXISTS"
                " (SELECT …).",
                self._at,
            )
        value = condition.children[0]
        member = self._first
        if not self._inner.is_values or len(self._columns) != 1:
            if len(self._inner.items) != 1 or self._inner.items[0].node.kind == "star":
                raise self._sql.not_allowed("A subquery in WHERE gives one column, by its name.", self._at)
            member = self._qualified(self._inner.items[0].node)
        equal = call_node("=", value, member)
        if not negated:
            return [self._join(SEMI, 0, equal)]
        has_null = call_node("=", always_zero(value), _where_null(member))
        has_row = call_node("=", _where_null(value), always_zero(member))
        return [self._join(ANTI, number, on) for number, on in enumerate((equal, has_null, has_row))]

    def _exists(self) -> Node:
        """Return an equality of the outer row and the table, one that is always true where none is written."""
        for node in self._correlated:
            sides = sorted(node.children, key=lambda side: self._alias in _names(side))
            if node.value == "=" and self._alias not in _names(sides[0]) and _names(sides[1]) == {self._alias}:
                self._correlated.remove(node)
                return call_node("=", *sides)
        return call_node("=", always_zero(self._outer), always_zero(self._first))

    def _join(self, keeps: str, number: int, equal: Node) -> JoinedSource:
        """Return a lookup by an equality whose right side is of the table; rows that WHERE excludes have no key."""
        outer, key = equal.children
        own = conjunction(self._own)
        if own is not None:
            key = call_node("case", own, key, Node("literal", self._at, UNTYPED_NULL))
        alias = f"{self._alias}{' again' * number}"
        is_found = call_node("=", outer, key)
        on = call_node("and", is_found, *self._correlated) if self._correlated else is_found
        source = replace(self._inner.source, at=self._at, alias=alias, is_hidden=True)
        return JoinedSource(source, on=_realiased(on, self._alias, alias), keeps=keeps)

    def _qualified(self, node: Node) -> Node:
        """Return an expression of the subquery whose columns of the table name it by its alias."""
        if node.kind == "name":
            qualifier, *rest = node.value if len(node.value) > 1 else ("", *node.value)
            if qualifier.lower() == self._called or (not qualifier and rest[0].lower() in self._columns):
                return replace(node, value=(self._alias, *rest))
            if qualifier.lower() in self._columns:
                return replace(node, value=(self._alias, *node.value))
        return replace(node, children=tuple(map(self._qualified, node.children)))


def _where_null(node: Node) -> Node:
    """Return 0 where an expression is NULL, else NULL."""
    return call_node("case", call_node("is_null", node), zero(node.at), Node("literal", node.at, UNTYPED_NULL))


def _names(node: Node) -> set[str]:
    return {each.value[0] for each in walk(node) if each.kind == "name"}


def _realiased(node: Node, old: str, new: str) -> Node:
    if node.kind == "name" and node.value[0] == old:
        return replace(node, value=(new, *node.value[1:]))
    return replace(node, children=tuple(_realiased(child, old, new) for child in node.children))
