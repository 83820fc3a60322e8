"""Take the static tables out of a SELECT: each becomes a lookup join of one of its streams.

An inner join with a table goes to the stream that an equality, in ON or in WHERE, compares it with; all other
conditions on its columns are conditions on the tuples of that stream, which have them after the lookup. What is left is
a SELECT over streams only. The ON of a LEFT JOIN stays with the lookup. USING becomes ON, between streams, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from operators.evaluation import is_null_for_nulls
from operators.expressions import Call, Column, Expression, all_of, columns_of
from operators.functions.coercion import in_one_type
from operators.functions.sql_text import sql_text
from operators.joins.lookup_join import MOST_MATCHES, TableIndex
from operators.lookups import Lookup
from session.sql.expressions import Binder
from session.sql.join_scope import JoinScope
from session.sql.scope import JoinedTable, Scope, check_descriptor, did_you_mean
from session.sql.statements import JoinedSource, Select, WindowedSource
from session.sql.syntax import Node, conjuncts, walk
from sources.schema import StreamDefinition
from sources.static_table import TableVersion

MOST_TABLES = 10
_ALIAS = re.compile(r"\w+")


class KnownTables(Protocol):
    """The static tables that a SELECT can name."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all tables."""

    def find(self, name: str) -> TableVersion | None:
        """Return a table as it is now; None when there is none of that name, which case does not count in."""

    def version_of(self, table: TableVersion) -> str:
        """Return what lookups call the rows of a table that was found; see `Lookup.version`."""


class _NoTables:
    names: Sequence[str] = ()

    def find(self, name: str) -> TableVersion | None:  # noqa: ARG002 - there is none
        return None

    def version_of(self, table: TableVersion) -> str:
        return table.id


NO_TABLES: KnownTables = _NoTables()


def with_lookups(
    select: Select, catalog: Mapping[str, StreamDefinition], tables: KnownTables
) -> tuple[Select, list[Scope]]:
    """Return a SELECT over its streams only, and what names mean in each of them; SqlNotAllowed says what is wrong."""
    inputs = [
        _Input(number, joined, _find(select, joined.source, catalog, tables))
        for number, joined in enumerate((JoinedSource(select.source), *select.joins))
    ]
    for each in inputs:
        each.check(select)
    for each in inputs:
        if not _ALIAS.fullmatch(each.alias):
            raise select.sql.not_allowed(
                f"The alias of an input must have letters, digits and '_' only; got {each.alias!r}.", each.source.at
            )
    if not any(each.is_table or each.joined.using for each in inputs):
        return select, [Scope(select.sql, each.source, each.stream) for each in inputs]
    return _Lookups(select, inputs, tables).taken_out()


def _find(
    select: Select, source: WindowedSource, catalog: Mapping[str, StreamDefinition], tables: KnownTables
) -> StreamDefinition | TableVersion:
    found = catalog.get(source.stream.lower()) or tables.find(source.stream)
    if found is not None:
        return found
    names = sorted(d.name for d in catalog.values())
    there = f"there are {_some(names)}" if names else "there is none yet; declare it with CREATE STREAM"
    also = f", and the tables {_some(sorted(tables.names))}" if tables.names else ""
    hint = did_you_mean(source.stream, [*names, *tables.names])
    raise select.sql.not_allowed(f"Stream {source.stream!r} does not exist; {there}{also}.{hint}", source.at)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")


@dataclass
class _Input:
    """One input in FROM; ``host`` is the number of the stream that it is, or that a table is looked up for."""

    number: int
    joined: JoinedSource
    found: StreamDefinition | TableVersion
    host: int | None = field(init=False)
    table: JoinedTable | None = None
    matches: int = 1
    lookups: list[Lookup] = field(default_factory=list)
    tables: list[JoinedTable] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.host = None if self.is_table else self.number

    @property
    def is_table(self) -> bool:
        return isinstance(self.found, TableVersion)

    @property
    def source(self) -> WindowedSource:
        return self.joined.source

    @property
    def stream(self) -> StreamDefinition:
        assert isinstance(self.found, StreamDefinition)
        return self.found

    @property
    def version(self) -> TableVersion:
        assert isinstance(self.found, TableVersion)
        return self.found

    @property
    def alias(self) -> str:
        return self.source.alias or self.source.stream

    def check(self, select: Select) -> None:
        """Raise SqlNotAllowed for a window that does not fit."""
        if not self.is_table:
            check_descriptor(select.sql, self.source, self.stream)
        elif self.source.window is not None:
            raise select.sql.not_allowed(
                f"{self.source.stream} is a static table, which has no time; remove its window.", self.source.window_at
            )


@dataclass(frozen=True)
class _Condition:
    """A part of ON or WHERE that names tables: bound, and the numbers of the inputs that it is over."""

    node: Node
    expression: Expression
    inputs: frozenset[int]


class _Lookups:
    """The tables of one SELECT, on their way to its streams."""

    def __init__(self, select: Select, inputs: list[_Input], known: KnownTables) -> None:
        self._select = select
        self._known = known
        self._inputs = inputs
        self._merged: dict[int, set[str]] = {each.number: set() for each in inputs}
        self._names = self._scope()
        for each in inputs:
            self._spell_out_using(each)
        self._names = self._scope()
        self._where: list[Node] = [] if select.where is None else list(conjuncts(select.where))
        for each in inputs:
            if not each.joined.left and each.joined.on is not None:
                self._make_where(each)
        self._taken: set[int] = set()

    def _scope(self) -> JoinScope:
        """Return what names mean before tables are taken out."""
        scopes = [
            Scope(
                self._select.sql,
                each.source,
                each.version.definition if each.is_table else each.stream,
                merged=self._merged[each.number],
            )
            for each in self._inputs
        ]
        return JoinScope(self._select.sql, scopes, [each.source.at for each in self._inputs])

    def taken_out(self) -> tuple[Select, list[Scope]]:
        """Return the SELECT without its tables, and the scope of each stream."""
        streams = [each for each in self._inputs if not each.is_table]
        tables = [each for each in self._inputs if each.is_table]
        if not streams:
            raise self._select.sql.not_allowed(
                "A query needs a stream; FROM names static tables only.", self._select.source.at
            )
        if len(tables) > MOST_TABLES:
            raise self._select.sql.not_allowed(
                f"A query must have at most {MOST_TABLES} static tables.", tables[MOST_TABLES].source.at
            )
        while waiting := [table for table in tables if table.host is None]:
            if not any(self._take(table) for table in waiting):
                self._refuse(waiting[0])
        for stream in streams:
            if stream.joined.left and stream is streams[0]:
                raise self._select.sql.not_allowed(
                    f"LEFT JOIN must have a stream on its left; {stream.source.stream} comes first."
                    " Write the table after it.",
                    stream.source.at,
                )
        left = [node for node in self._where if id(node) not in self._taken]
        first, *others = streams
        select = replace(self._select, source=first.source, joins=tuple(e.joined for e in others), where=_all_of(left))
        return select, [
            Scope(select.sql, s.source, s.stream, s.tables, s.lookups, self._merged[s.number]) for s in streams
        ]

    def _spell_out_using(self, each: _Input) -> None:
        """Write USING as ON."""
        conditions = [] if each.joined.on is None else [each.joined.on]
        for name, at in each.joined.using:
            earlier = [other for other in self._inputs[: each.number] if self._has(other, name)]
            if len(earlier) != 1 or not self._has(each, name):
                raise self._select.sql.not_allowed(
                    f"USING needs a column that both sides have, and one input before only; {name!r} is in"
                    f" {' and '.join(other.alias for other in earlier) or 'none of those before'}. Write ON.",
                    at,
                )
            sides = tuple(Node("name", at, (other.alias, name)) for other in (earlier[0], each))
            conditions.append(Node("call", at, "=", sides, 2, 3))
            # the name alone means the left column, or of an inner join with a table that of the stream
            hidden = earlier[0] if earlier[0].is_table and not each.is_table else each
            self._merged[hidden.number].add(name.lower())
        each.joined = replace(each.joined, on=_all_of(conditions), using=())

    def _has(self, each: _Input, name: str) -> bool:
        """Return whether an input has a column that is not one with that of another in USING."""
        found = self._names.inputs[each.number].find((name,)) is not None
        return found and name.lower() not in self._merged[each.number]

    def _make_where(self, each: _Input) -> None:
        """Let the ON of an inner join be a part of WHERE, which says the same."""
        assert each.joined.on is not None
        self._where += conjuncts(each.joined.on)
        each.joined = replace(each.joined, on=None, left=False)

    # taking a table

    def _take(self, table: _Input) -> bool:
        """Make a table a lookup of a stream, if it is compared with one; return whether it is."""
        left = table.joined.left
        on = [] if table.joined.on is None else list(conjuncts(table.joined.on))
        if left:
            conditions = list(self._bound(on))
        else:
            waiting = [node for node in self._where if id(node) not in self._taken and self._names_table(node)]
            conditions = [c for c in self._bound(waiting) if table.number in c.inputs]
        equalities = [c for c in conditions if self._host_of(table, c) is not None]
        if not equalities:
            return False
        host = self._inputs[min(h for c in equalities if (h := self._host_of(table, c)) is not None)]
        keyed = [c for c in equalities if self._host_of(table, c) == host.number]
        others = [c for c in conditions if c not in keyed] if left else []
        here = {e.number for e in self._inputs if e.host == host.number} | {table.number}
        for condition in others:
            if not condition.inputs <= here or max(condition.inputs, default=0) > table.number:
                raise self._select.sql.not_allowed(
                    "ON of a LEFT JOIN with a table may name the table and, of the inputs before it, the one that it is"
                    f" compared with; {sql_text(condition.expression)} names others.",
                    condition.node.at,
                )
        if not left and host.joined.left:  # tuples that are not there have no partner in the table
            self._make_where(host)
        self._attach(table, host, keyed, others)
        if not left:
            self._taken |= {id(c.node) for c in keyed}
        return True

    def _attach(self, table: _Input, host: _Input, keyed: Iterable[_Condition], others: Iterable[_Condition]) -> None:
        definition = table.version.definition
        same = Counter(t.name.partition("#")[0] for t in host.tables)[definition.name]
        name = definition.name if not same else f"{definition.name}#{same + 1}"
        merged = frozenset(f.name for f in definition.schema.fields if f.name.lower() in self._merged[table.number])
        table.host, table.table = host.number, JoinedTable(table.alias, name, definition.schema, merged)
        keys = []
        for condition in keyed:
            assert isinstance(condition.expression, Call)
            mine, theirs = condition.expression.arguments
            if table.number in self._inputs_of(mine):
                mine, theirs = theirs, mine
            mine, theirs = in_one_type((self._renamed(mine), self._renamed(theirs, of_table=True)))
            keys.append((mine, theirs))
        lookup = Lookup(
            definition.id,
            self._known.version_of(table.version),
            name,
            tuple(dict.fromkeys(keys)),
            all_of(self._renamed(condition.expression) for condition in others),
            table.joined.left,
        )
        host.matches *= max(1, most := _most_matches(table.version, lookup))
        if host.matches > MOST_MATCHES:
            raise self._select.sql.not_allowed(
                f"A tuple may be joined with at most {MOST_MATCHES} rows of tables; {most} rows of"
                f" {definition.name} have one key, which makes {host.matches}. Compare more columns.",
                table.source.at,
            )
        host.lookups.append(lookup)
        host.tables.append(table.table)

    def _refuse(self, table: _Input) -> None:
        later = [e for e in self._inputs[table.number + 1 :] if e.joined.left and not e.is_table]
        if later:
            raise self._select.sql.not_allowed(
                f"A table cannot be on the left of a LEFT JOIN with a stream: {table.alias!r} has no windows of its"
                f" own. Write FROM {later[0].source.stream} … LEFT JOIN {table.source.stream}.",
                table.source.at,
            )
        raise self._select.sql.not_allowed(
            f"A join with a table compares it with a stream by equal columns; {table.alias!r} is not compared with any."
            " Write ON a.x = b.x.",
            table.source.at,
        )

    # conditions

    def _names_table(self, node: Node) -> bool:
        names = [each for each in walk(node) if each.kind == "name"]
        inputs = {self._names.input_of(self._names.resolve(each.value, each.at).name) for each in names}
        return any(number is not None and self._inputs[number].is_table for number in inputs)

    def _bound(self, nodes: Iterable[Node]) -> Iterator[_Condition]:
        """Yield conditions, those that are always true left out."""
        for node in nodes:
            expression = Binder(self._names, "ON").condition(node)
            if expression is not None:
                yield _Condition(node, expression, frozenset(self._inputs_of(expression)))

    def _inputs_of(self, expression: Expression) -> set[int]:
        found = (self._names.input_of(name) for name in columns_of(expression))
        return {number for number in found if number is not None}

    def _host_of(self, table: _Input, condition: _Condition) -> int | None:
        """Return the stream with which an equality compares a table; None for another condition."""
        expression = condition.expression
        if not isinstance(expression, Call) or expression.function != "=":
            return None
        sides = [self._inputs_of(argument) for argument in expression.arguments]
        if {table.number} not in sides:
            return None
        other = sides[1] if sides[0] == {table.number} else sides[0]
        hosts = {self._inputs[number].host for number in other}
        host = hosts.pop() if len(hosts) == 1 and table.number not in other else None
        if host is None or (table.joined.left and max(other) > table.number):
            return None
        theirs = expression.arguments[0 if sides[1] == {table.number} else 1]
        # a stream that may have no tuple is joined with tables before it is known, so its key must be NULL then
        return None if self._inputs[host].joined.left and not is_null_for_nulls(theirs) else host

    def _renamed(self, expression: Expression, of_table: bool = False) -> Expression:
        """Return an expression over the columns of one stream and its tables, or over those of a table alone."""
        if isinstance(expression, Column):
            number = self._names.input_of(expression.name)
            assert number is not None
            each = self._inputs[number]
            own = expression.name[len(each.alias) + 1 :]
            prefix = "" if each.table is None or of_table else f"{each.table.name}."
            return Column(f"{prefix}{own}", expression.type)
        if isinstance(expression, Call):
            arguments = tuple(self._renamed(argument, of_table) for argument in expression.arguments)
            return Call(expression.function, arguments, expression.type)
        return expression


_MOST_KNOWN = 1000
_known: dict[tuple[str, tuple[tuple[Expression, Expression], ...]], int] = {}


def _most_matches(version: TableVersion, lookup: Lookup) -> int:
    """Return how many rows of a table a tuple can be joined with at most; it takes indexing them, so it is kept."""
    key = version.id, lookup.keys
    if key not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = TableIndex(version.rows, [theirs for _, theirs in lookup.keys]).most_matches
    return _known[key]


def _all_of(nodes: Sequence[Node]) -> Node | None:
    if len(nodes) <= 1:
        return nodes[0] if nodes else None
    depth, size = 1 + max(node.depth for node in nodes), 1 + sum(node.size for node in nodes)
    return Node("call", nodes[0].at, "and", tuple(nodes), depth, size)
