"""Subqueries in WHERE: ``x IN (SELECT …)``, ``EXISTS (SELECT …)`` and ``x > (SELECT MAX(…) …)`` as joins of one window.

What they ask for becomes a further input of the join, a subquery whose rows are the different values of a window
(semi-join), or the one row of it. NOT IN and NOT EXISTS become LEFT JOINs of which only rows without a partner are
wanted (anti-joins). NOT IN is true of nothing where the values have a NULL, and of everything where there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from braid.operators.expressions import Expression, Literal
from braid.operators.functions.coercion import UNTYPED_NULL
from braid.operators.query_parts import COUNT_DISTINCT
from braid.operators.windows import sliding
from braid.session.sql.aggregates import first_aggregate
from braid.session.sql.constants import constant
from braid.session.sql.statements import JoinedSource, Select, SelectItem, WindowedSource
from braid.session.sql.syntax import Node, always_zero, call_node, conjunction, conjuncts, walk, zero
from braid.sources.core.schema import BIGINT

SUBQUERY_NODE = "subquery"
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def has_subqueries(node: Node | None) -> bool:
    """Whether an expression has a subquery."""
    return node is not None and any(each.kind == SUBQUERY_NODE for each in walk(node))


def with_semi_joins(select: Select, event_time: str, is_table: Callable[[WindowedSource], bool]) -> Select:
    """Return a SELECT with joins instead of the subqueries of its WHERE; ``event_time`` is that of its first input.

    ``is_table`` tells inputs that have no windows. SqlNotAllowed for subqueries that stand elsewhere, or ask for what
    no join gives.
    """
    if not has_subqueries(select.where):
        return select
    assert select.where is not None
    return _SemiJoins(select, event_time, is_table).select()


class _SemiJoins:
    def __init__(self, select: Select, event_time: str, is_table: Callable[[WindowedSource], bool]) -> None:
        self._select = select
        self._is_table = is_table
        self._sql = select.sql
        window = sliding(select.source.window)
        at = next(node.at for node in walk(select.where) if node.kind == SUBQUERY_NODE) if select.where else 0
        if window is None or window.slide_us != window.size_us:
            raise self._sql.not_allowed(
                "A subquery in WHERE is over the rows of one window, so each stream in FROM needs a tumbling window,"
                " such as [RANGE 10 SECONDS].",
                at,
            )
        self._window = window
        self._outer_names = {
            (source.alias or source.stream).lower()
            for source in (select.source, *(joined.source for joined in select.joins))
        }
        first = select.source.alias or select.source.stream
        self._event_time = Node("name", at, (first, event_time))
        self._joins: list[JoinedSource] = []
        self._where: list[Node] = []

    def select(self) -> Select:
        assert self._select.where is not None
        for node in conjuncts(self._select.where):
            if has_subqueries(node):
                self._rewrite(node)
            else:
                self._where.append(node)
        return replace(self._select, joins=(*self._select.joins, *self._joins), where=conjunction(self._where))

    def _rewrite(self, node: Node) -> None:
        negated = node.kind == "call" and node.value == "not"
        inner = node.children[0] if negated else node
        if inner.kind == "call" and inner.value == "in_subquery":
            value, subquery = inner.children
            self._check_free(value)
            self._anti_in(value, subquery) if negated else self._in(value, subquery)
        elif inner.kind == "call" and inner.value == "exists":
            self._exists(inner.children[0], negated)
        elif not negated and inner.kind == "call" and inner.value in _COMPARISONS:
            left, right = inner.children
            if left.kind == SUBQUERY_NODE:
                self._check_free(right)
                self._compare(right, _MIRRORED[inner.value], left)
            elif right.kind == SUBQUERY_NODE:
                self._check_free(left)
                self._compare(left, inner.value, right)
            else:
                self._refuse(inner)
        else:
            self._refuse(inner)

    def _refuse(self, node: Node) -> None:
        at = next(each.at for each in walk(node) if each.kind == SUBQUERY_NODE)
        raise self._sql.not_allowed(
            "A subquery in WHERE stands alone between ANDs: as x [NOT] IN (SELECT …), [NOT] EXISTS (SELECT …) or"
            " x > (SELECT MAX(…) …).",
            at,
        )

    def _check_free(self, node: Node) -> None:
        if has_subqueries(node):
            self._refuse(node)

    # IN

    def _in(self, value: Node, subquery: Node) -> None:
        source, name = self._distinct(subquery)
        self._join(source, self._equal(value, name))

    def _anti_in(self, value: Node, subquery: Node) -> None:
        source, name = self._distinct(subquery)
        self._join(source, self._equal(value, name), left=True)
        self._where.append(call_node("is_null", name))
        counts, (nulls,) = self._counts(subquery)
        self._where.append(
            call_node(
                "or",
                call_node("is_null", nulls),
                call_node(
                    "and",
                    call_node("=", nulls, zero(self._select.start)),
                    call_node("not", call_node("is_null", value)),
                ),
            )
        )
        self._join(counts, self._same_row(counts), left=True)

    def _distinct(self, subquery: Node) -> tuple[WindowedSource, Node]:
        """Return an input that has each value of a subquery once a window, and the name of its column."""
        inner = self._windowed(subquery.value)
        item = self._only_item(inner)
        alias = self._alias()
        column = f"{alias} value"
        if self._is_plain(inner):
            distinct = replace(inner, items=(replace(item, alias=column),), group_by=(item.node,))
        else:
            nested = replace(inner, items=(replace(item, alias=column),))
            node = Node("name", subquery.at, (column,))
            source = WindowedSource(alias, subquery.at, window=self._window, select=nested)
            distinct = Select(
                self._sql, inner.start, inner.end, (SelectItem(node, column, column),), source, group_by=(node,)
            )
        return self._source(alias, subquery.at, distinct), Node("name", subquery.at, (alias, column))

    def _counts(self, subquery: Node) -> tuple[WindowedSource, tuple[Node, ...]]:
        """Return an input that has one row a window: how many values of a subquery are NULL."""
        inner = self._windowed(subquery.value)
        item = self._only_item(inner)
        alias, at = self._alias(), subquery.at
        column = f"{alias} value"
        nested = replace(inner, items=(replace(item, alias=column),))
        value = Node("name", at, (column,))
        rows, values = (Node("aggregate", at, "count", (each,)) for each in (Node("star", at, None), value))
        nulls = call_node("-", rows, values)
        source = WindowedSource(f"{alias} rows", at, window=self._window, select=nested)
        items = (SelectItem(nulls, f"{alias} nulls", ""), self._one(alias, at))
        counted = Select(self._sql, inner.start, inner.end, items, source)
        return self._source(alias, at, counted), (Node("name", at, (alias, f"{alias} nulls")),)

    # EXISTS

    def _exists(self, subquery: Node, negated: bool) -> None:
        inner = self._windowed(subquery.value)
        if not self._is_plain(inner):
            raise self._sql.not_allowed("EXISTS takes a SELECT without GROUP BY and aggregates.", subquery.at)
        own_names = {(s.alias or s.stream).lower() for s in (inner.source, *(j.source for j in inner.joins))}
        own: list[Node] = []
        pairs: list[tuple[Node, Node]] = []
        for node in () if inner.where is None else conjuncts(inner.where):
            named = {each.value[0].lower() for each in walk(node) if each.kind == "name" and len(each.value) > 1}
            if not (named & self._outer_names) - own_names:
                own.append(node)
            elif node.kind == "call" and node.value == "=":
                pairs.append(self._pair(node, own_names))
            else:
                raise self._sql.not_allowed(
                    "A subquery of EXISTS is compared with the outer rows by equal columns, as in r.k = a.k.", node.at
                )
        alias = self._alias()
        where = conjunction(own)
        if not pairs:
            pairs = [(always_zero(self._event_time), zero(self._select.start))]
            count = Node("aggregate", subquery.at, "count", (Node("star", subquery.at, None),))
            one_row = (SelectItem(count, f"{alias} rows", ""), self._one(alias, subquery.at))
            exists = replace(inner, items=one_row, where=where)
            names = [Node("name", subquery.at, (alias, f"{alias} one"))]
        else:
            columns = [f"{alias} key {number}" for number in range(len(pairs))]
            items = tuple(SelectItem(key, name, name) for (_, key), name in zip(pairs, columns, strict=True))
            exists = replace(inner, items=items, group_by=tuple(key for _, key in pairs), where=where)
            names = [Node("name", subquery.at, (alias, name)) for name in columns]
        on = [call_node("=", outer, name) for (outer, _), name in zip(pairs, names, strict=True)]
        self._join(self._source(alias, subquery.at, exists), conjunction(on), left=negated)
        if negated:
            self._where.append(call_node("is_null", names[0]))

    def _pair(self, node: Node, own_names: set[str]) -> tuple[Node, Node]:
        """Return the sides of an equality, that of the outer rows first."""
        sides = list(node.children)

        def is_outer(side: Node) -> bool:
            names = [each for each in walk(side) if each.kind == "name"]
            return bool(names) and all(
                len(n.value) > 1 and n.value[0].lower() in self._outer_names - own_names for n in names
            )

        outer = [side for side in sides if is_outer(side)]
        if len(outer) != 1:
            raise self._sql.not_allowed(
                "A subquery of EXISTS is compared with the outer rows by equal columns, as in r.k = a.k.", node.at
            )
        own = sides[1] if sides[0] is outer[0] else sides[0]
        return outer[0], own

    # one value

    def _compare(self, value: Node, comparison: str, subquery: Node) -> None:
        inner = self._windowed(subquery.value)
        item = self._only_item(inner)
        self._check_uncorrelated(inner, subquery.at)
        if inner.group_by or first_aggregate((item.node,)) is None:
            raise self._sql.not_allowed(
                "A subquery that is compared must give one row a window: one aggregate without GROUP BY, such as"
                " (SELECT MAX(x) FROM s). For one of several values write IN.",
                subquery.at,
            )
        alias, at = self._alias(), subquery.at
        column = f"{alias} value"
        one_row = replace(inner, items=(replace(item, alias=column), self._one(alias, at)))
        source = self._source(alias, at, one_row)
        name = Node("name", at, (alias, column))
        of_nothing = _of_nothing(item.node)
        if not _is_null(constant(self._sql, of_nothing, "WHERE")):
            if inner.having is not None:
                raise self._sql.not_allowed(
                    "A subquery that is compared, and is not NULL where there are no rows, has no HAVING; write CASE.",
                    inner.having.at,
                )
            is_empty = call_node("is_null", Node("name", at, (alias, f"{alias} one")))
            self._join(source, self._same_row(source), left=True)
            self._where.append(call_node(comparison, value, call_node("case", is_empty, of_nothing, name)))
        elif comparison == "=":
            self._join(source, self._equal(value, name))
        else:
            self._join(source, self._same_row(source))
            self._where.append(call_node(comparison, value, name))

    def _check_uncorrelated(self, inner: Select, at: int) -> None:
        own = {(s.alias or s.stream).lower() for s in (inner.source, *(j.source for j in inner.joins))}
        names = [] if inner.where is None else [node.value for node in walk(inner.where) if node.kind == "name"]
        if outer := sorted({name[0].lower() for name in names if len(name) > 1} & self._outer_names - own):
            raise self._sql.not_allowed(
                f"A subquery that is compared has no columns of the outer row; this names {outer[0]!r}. Group it, and"
                " join: FROM s [RANGE 8 SECONDS] AS a JOIN (SELECT k, AVG(x) AS mean FROM s [RANGE 8 SECONDS]"
                " GROUP BY k) [RANGE 8 SECONDS] AS b ON a.k = b.k WHERE a.x > b.mean.",
                at,
            )

    # parts

    def _windowed(self, inner: Select) -> Select:
        """Return a subquery over the rows of the outer window, where it does not say so itself."""
        if inner.union or inner.emit is not None:
            raise self._sql.not_allowed("A subquery in WHERE is one SELECT, without UNION ALL and EMIT.", inner.start)
        sources = [inner.source, *(joined.source for joined in inner.joins)]
        for source in sources:
            if not self._is_table(source) and source.window not in (None, self._window):
                raise self._sql.not_allowed(
                    "A subquery in WHERE is over the outer window; leave its own out, or write the same.",
                    source.window_at,
                )

        def windowed(source: WindowedSource) -> WindowedSource:
            return source if self._is_table(source) else replace(source, window=self._window)

        joins = tuple(replace(joined, source=windowed(joined.source)) for joined in inner.joins)
        return replace(inner, source=windowed(inner.source), joins=joins)

    def _only_item(self, inner: Select) -> SelectItem:
        if len(inner.items) != 1 or inner.items[0].node.kind == "star":
            raise self._sql.not_allowed("A subquery in WHERE gives one column, by its name.", inner.start)
        return inner.items[0]

    @staticmethod
    def _is_plain(inner: Select) -> bool:
        nodes = tuple(item.node for item in inner.items if item.node.kind != "star")
        return not inner.group_by and inner.having is None and first_aggregate(nodes) is None

    def _alias(self) -> str:
        return f"subquery {len(self._joins) + 1}"

    def _source(self, alias: str, at: int, select: Select) -> WindowedSource:
        return WindowedSource(alias, at, alias, self._window, at, select=select, is_hidden=True)

    def _join(self, source: WindowedSource, on: Node | None, left: bool = False) -> None:
        self._joins.append(JoinedSource(source, left, on))

    def _equal(self, value: Node, name: Node) -> Node:
        if not any(node.kind == "name" for node in walk(value)):  # inputs are compared by columns
            value = call_node("case", call_node("is_null", self._event_time), value, value)
        return call_node("=", value, name)

    def _same_row(self, source: WindowedSource) -> Node:
        """Return the condition that joins each row of the window with the one row of an input."""
        one = Node("name", source.at, (source.stream, f"{source.stream} one"))
        return call_node("=", always_zero(self._event_time), one)

    def _one(self, alias: str, at: int) -> SelectItem:
        return SelectItem(zero(at), f"{alias} one", "")


def _of_nothing(node: Node) -> Node:
    """Return an expression over aggregates as it is where there are no rows."""
    if node.kind == "aggregate":
        counts = node.value in ("count", COUNT_DISTINCT, "count_if")
        return Node("literal", node.at, Literal(0, BIGINT) if counts else UNTYPED_NULL)
    return replace(node, children=tuple(map(_of_nothing, node.children)))


def _is_null(value: Expression) -> bool:
    return isinstance(value, Literal) and value.value is None
