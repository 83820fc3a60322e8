"""Plan a query that differs from one before only in the numbers that it compares with, without parsing it.

Ad-hoc queries come in large numbers from few programs, and most of planning one is parsing. A *shape* is a statement
with holes where WHERE compares something with a number::

    SELECT gem_pack, SUM(price) FROM purchases [RANGE 8 SECONDS] WHERE price > ? GROUP BY gem_pack

A statement of a known shape gets the syntax tree of the first one with its own numbers in it; binding WHERE, which
depends on the numbers (``n > 5.5`` becomes ``n > 5``), is done again. Nothing else of a plan depends on WHERE. Where
this fails, the statement is parsed after all: the parser's errors say what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from braid.operators.expressions import Literal
from braid.operators.queries import Aggregation, Query, Selection
from braid.session.sql.expressions import Binder
from braid.session.sql.inputs import NO_TABLES, KnownTables
from braid.session.sql.parser import parse_statement
from braid.session.sql.parsing.tokens import SqlText
from braid.session.sql.parsing.tree import TreeReader
from braid.session.sql.relations import Subquery
from braid.session.sql.scope import Scope
from braid.session.sql.select import PlannedSelect, plan_statement
from braid.session.sql.statement_limits import DEFAULT_LIMITS, StatementLimits
from braid.session.sql.statements import CreateQuery, Select
from braid.session.sql.syntax import Node, walk
from braid.sources.core.errors import NotAllowed, ServiceError
from braid.sources.core.schema import StreamDefinition

MAX_SHAPES = 2000
LONGEST = 2000

# texts, quoted names and comments are stepped over as a whole; => belongs to named arguments
_HOLE = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | --[^\n]* | /\*.*?\*/ | =>
    | (?P<operator>(?:<=|>=|<>|!=|=|<|>)\s*) (?P<number>[0-9]{1,30}(?:\.[0-9]{1,30})?) (?![\w.])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Cut:
    """A text cut at its holes: the text around them, and the number in each of them with its offset."""

    around: tuple[str, ...]
    numbers: tuple[str, ...]
    places: tuple[int, ...]


def cut(text: str) -> Cut:
    """Cut a text at the numbers that stand right after a comparison."""
    around, numbers, places, end = [], [], [], 0
    for match in _HOLE.finditer(text):
        if match["number"] is not None:
            places.append(match.start("number"))
            around.append(text[end : places[-1]])
            numbers.append(match["number"])
            end = match.end()
    return Cut((*around, text[end:]), tuple(numbers), tuple(places))


@dataclass(frozen=True)
class Shape:
    """The first statement of a shape, with the places of its holes, and its plan over the stream as it was then."""

    name: str | None
    sink: Mapping[str, str] | None
    or_replace: bool
    start: str | None
    select: Select
    places: tuple[int, ...]
    definition: StreamDefinition
    scope: Scope
    query: Selection | Aggregation

    def filled(self, numbers: Sequence[Literal]) -> Query:
        """Return the query with other numbers."""
        where = self.select.where
        if where is not None:
            where = _filled(where, dict(zip(self.places, numbers, strict=True)))
        return replace(self.query, where=Binder(self.scope, "WHERE").condition(where))


class ReadQuery(NamedTuple):
    """What a text says: the query, and what CREATE QUERY says besides."""

    name: str | None
    query: Query
    sink: Mapping[str, str] | None
    or_replace: bool = False
    start: str | None = None
    subqueries: tuple[Subquery, ...] = ()


_Key = tuple[StatementLimits, tuple[str, ...]]


class Shapes:
    """The shapes of statements seen before; all are forgotten when there are too many."""

    def __init__(self, most: int = MAX_SHAPES) -> None:
        self._most = most
        self._shapes: dict[_Key, Shape] = {}

    def __len__(self) -> int:
        return len(self._shapes)

    def read(
        self,
        text: str,
        catalog: Mapping[str, StreamDefinition],
        tables: KnownTables = NO_TABLES,
        limits: StatementLimits = DEFAULT_LIMITS,
    ) -> ReadQuery:
        """Return what a text says; NotAllowed for a statement that is no query, or beyond ``limits``."""
        if len(text) > LONGEST:
            statement = _parse_query(text, limits)
            return _to_read_query(statement, plan_statement(statement, catalog, tables, limits))
        cut_text = cut(text)
        shape = self._shapes.get((limits, cut_text.around))
        if shape is not None and _find(catalog, shape.definition.name) == shape.definition:
            with suppress(ServiceError, RecursionError):
                reader = TreeReader(SqlText(text))
                query = shape.filled([reader.number(number, 0) for number in cut_text.numbers])
                return ReadQuery(shape.name, query, shape.sink, shape.or_replace, shape.start)
        statement = _parse_query(text, limits)
        planned = plan_statement(statement, catalog, tables, limits)
        self._remember((limits, cut_text.around), cut_text, statement, planned, catalog)
        return _to_read_query(statement, planned)

    def _remember(
        self,
        key: _Key,
        cut_text: Cut,
        statement: CreateQuery | Select,
        planned: PlannedSelect,
        catalog: Mapping[str, StreamDefinition],
    ) -> None:
        select = statement.select if isinstance(statement, CreateQuery) else statement
        nodes = () if select.where is None else walk(select.where)
        literals = {node.at: node.value for node in nodes if node.kind == "literal"}
        reader = TreeReader(select.sql)
        # not where a hole is outside of WHERE, say in HAVING
        holes = zip(cut_text.places, cut_text.numbers, strict=True)
        if not all(literals.get(at) == reader.number(number, at) for at, number in holes):
            return
        query = planned.query
        if not isinstance(query, (Selection, Aggregation)) or query.lookups:  # tables change
            return
        is_implied = query.window is not None and select.source.window is None
        if select.named or select.union or select.source.select is not None or is_implied:
            return
        definition = _find(catalog, select.source.stream)
        if definition is None or definition.id != query.stream:
            return
        scope = Scope(select.sql, select.source, definition)
        if len(self._shapes) >= self._most:
            self._shapes = {}
        read_query = _to_read_query(statement, planned)
        self._shapes[key] = Shape(
            read_query.name,
            read_query.sink,
            read_query.or_replace,
            read_query.start,
            select,
            cut_text.places,
            definition,
            scope,
            query,
        )


def _find(catalog: Mapping[str, StreamDefinition], name: str) -> StreamDefinition | None:
    """Return a stream, or the rows of a query, whose names tell cases apart."""
    return catalog.get(name) or catalog.get(name.lower())


def _parse_query(text: str, limits: StatementLimits) -> CreateQuery | Select:
    statement = parse_statement(text, limits)
    if isinstance(statement, (CreateQuery, Select)):
        return statement
    raise NotAllowed(
        f"A query must be SELECT … or CREATE QUERY name AS SELECT …; got {text.strip()[:80]!r}."
        " POST /sql (braid sql) takes every statement."
    )


def _to_read_query(statement: CreateQuery | Select, planned: PlannedSelect) -> ReadQuery:
    query, subqueries = planned
    if isinstance(statement, CreateQuery):
        return ReadQuery(statement.name, query, statement.sink, statement.or_replace, statement.start, subqueries)
    return ReadQuery(None, query, None, subqueries=subqueries)


def _filled(node: Node, literals: Mapping[int, Literal]) -> Node:
    if node.kind == "literal":
        return replace(node, value=literals[node.at]) if node.at in literals else node
    children = tuple(_filled(child, literals) for child in node.children)
    return node if children == node.children else replace(node, children=children)
