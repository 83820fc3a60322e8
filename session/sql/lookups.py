"""Take the static tables out of a SELECT: each becomes a lookup join of one of its streams.

An inner join with a table goes to the stream that an equality, in ON or in WHERE, compares it with; all other
conditions on its columns become conditions on the tuples of that stream, which have these columns after the lookup. The
result is a SELECT over streams only. The ON of a LEFT JOIN stays with the lookup. USING becomes ON, between streams,
too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from braid.operators.evaluation import is_null_for_nulls
from braid.operators.expressions import Call, Column, Expression, all_of, columns_of
from braid.operators.functions.coercion import in_one_type
from braid.operators.functions.sql_text import sql_text
from braid.operators.lookup.lookup_join import MAX_MATCHES, TableIndex
from braid.operators.lookup.lookups import ANTI, Lookup
from braid.operators.lookup.unnest import Unnest
from braid.session.sql.elements import elements_of
from braid.session.sql.expressions import Binder
from braid.session.sql.implied_windows import with_implied_windows
from braid.session.sql.inputs import KnownTables, SelectInput, inputs_of
from braid.session.sql.join_scope import JoinScope
from braid.session.sql.relations import Relations
from braid.session.sql.scope import Columns, JoinedTable, Scope, column_of
from braid.session.sql.statements import UNNEST, JoinedSource, Select
from braid.session.sql.syntax import Node, conjunction, conjuncts, walk
from braid.session.sql.tables_alone import over_one_row
from braid.sources.connectors.one_row import is_one_row
from braid.sources.connectors.static_table import TableVersion
from braid.sources.core.schema import Schema

MAX_TABLES = 10


def with_lookups(select: Select, catalog: Relations, tables: KnownTables) -> tuple[Select, list[Scope]]:
    """Return a SELECT over its streams only, and what names mean in each of them; SqlNotAllowed says what is wrong."""
    inputs = inputs_of(select, catalog, tables)
    if isinstance(inputs[0].definition, TableVersion) and not any(input_.is_stream for input_ in inputs):
        select = over_one_row(select, inputs[0])
        inputs = inputs_of(select, catalog, tables)
    select = with_implied_windows(select, {each.number: each.stream for each in inputs if each.is_stream})
    for input_, joined in zip(inputs, (JoinedSource(select.source), *select.joins), strict=True):
        input_.joined = joined
    if all(input_.is_stream and not input_.joined.using for input_ in inputs):
        return select, [Scope(select.sql, input_.source, input_.stream) for input_ in inputs]
    return _Lookups(select, inputs, tables).select_over_streams()


@dataclass(frozen=True)
class _Condition:
    """A part of ON or WHERE that names tables, as an expression, and the numbers of the inputs that it names."""

    node: Node
    expression: Expression
    inputs: frozenset[int]


class _Lookups:
    """Moves the tables of one SELECT to its streams."""

    def __init__(self, select: Select, inputs: list[SelectInput], known_tables: KnownTables) -> None:
        self._select = select
        self._known_tables = known_tables
        self._inputs = inputs
        self._merged: dict[int, set[str]] = {input_.number: set() for input_ in inputs}
        self._names = self._scope()
        for input_ in inputs:
            self._spell_out_using(input_)
        self._names = self._scope()
        self._where: list[Node] = [] if select.where is None else list(conjuncts(select.where))
        for input_ in inputs:
            if not input_.joined.left and input_.joined.on is not None and not input_.joined.keeps:
                self._move_on_to_where(input_)
        self._used_nodes: set[int] = set()

    def _scope(self) -> JoinScope:
        """Return what names mean while tables are inputs, too."""
        sql, offsets = self._select.sql, [input_.source.at for input_ in self._inputs]
        scopes: list[Scope] = []
        for input_ in self._inputs:
            if input_.unnest is not None:
                input_.definition = elements_of(input_, JoinScope(sql, scopes, offsets[: len(scopes)]))
            scopes.append(Scope(sql, input_.source, _columns_of(input_), merged=self._merged[input_.number]))
        return JoinScope(sql, scopes, offsets)

    def select_over_streams(self) -> tuple[Select, list[Scope]]:
        """Return the SELECT without its tables, and the scope of each stream."""
        streams = [input_ for input_ in self._inputs if input_.is_stream]
        tables = [input_ for input_ in self._inputs if not input_.is_stream]
        if not streams:
            raise self._select.sql.not_allowed(
                "A query needs a stream or a static table; UNNEST has none.", self._select.source.at
            )
        if len(tables) > MAX_TABLES:
            raise self._select.sql.not_allowed(
                f"A query must have at most {MAX_TABLES} static tables and UNNEST.", tables[MAX_TABLES].source.at
            )
        while unplaced := [table for table in tables if table.host is None]:
            if not any(self._place(table) for table in unplaced):
                self._refuse(unplaced[0])
        for stream in streams:
            if stream.joined.left and stream is streams[0]:
                raise self._select.sql.not_allowed(
                    f"LEFT JOIN must have a stream on its left; {stream.source.stream} comes first."
                    " Write the table after it.",
                    stream.source.at,
                )
        where = [node for node in self._where if id(node) not in self._used_nodes]
        first, *joined = streams
        select = replace(
            self._select, source=first.source, joins=tuple(stream.joined for stream in joined), where=conjunction(where)
        )
        return select, [
            Scope(select.sql, s.source, s.stream, s.tables, s.lookups, self._merged[s.number]) for s in streams
        ]

    def _spell_out_using(self, input_: SelectInput) -> None:
        """Write USING as ON."""
        conditions = [] if input_.joined.on is None else [input_.joined.on]
        for name, at in input_.joined.using:
            earlier = [other for other in self._inputs[: input_.number] if self._has_column(other, name)]
            if len(earlier) != 1 or not self._has_column(input_, name):
                raise self._select.sql.not_allowed(
                    f"USING needs a column that both sides have, and one input before only; {name!r} is in"
                    f" {' and '.join(other.alias for other in earlier) or 'none of those before'}. Write ON.",
                    at,
                )
            sides = tuple(Node("name", at, (other.alias, name)) for other in (earlier[0], input_))
            conditions.append(Node("call", at, "=", sides, 2, 3))
            # the unqualified name means the left column, but the stream's where a table is on the left of it
            hidden = earlier[0] if input_.is_stream and not earlier[0].is_stream else input_
            self._merged[hidden.number].add(name.lower())
        input_.joined = replace(input_.joined, on=conjunction(conditions), using=())

    def _has_column(self, input_: SelectInput, name: str) -> bool:
        """Return whether an input has a column of this name that USING has not merged into another input's."""
        is_column = self._names.inputs[input_.number].find((name,)) is not None
        return is_column and name.lower() not in self._merged[input_.number]

    def _move_on_to_where(self, input_: SelectInput) -> None:
        """Move the ON of an inner join to WHERE, where it means the same."""
        assert input_.joined.on is not None
        self._where += conjuncts(input_.joined.on)
        input_.joined = replace(input_.joined, on=None, left=False)

    # from tables to lookups

    def _place(self, table: SelectInput) -> bool:
        """Make a table a lookup of the first stream that it is compared with; return whether there is one."""
        if table.unnest is not None:
            return self._place_elements(table)
        left, keeps = table.joined.left, table.joined.keeps
        on = [] if table.joined.on is None else list(conjuncts(table.joined.on))
        if left or keeps:
            conditions = list(self._bound(on))
        else:
            unused = [node for node in self._where if id(node) not in self._used_nodes and self._names_table(node)]
            conditions = [c for c in self._bound(unused) if table.number in c.inputs]
        equalities = [(c, number) for c in conditions if (number := self._host_of(table, c)) is not None]
        if not equalities:
            return False
        host_number = min(number for _, number in equalities)
        host = self._inputs[host_number]
        key_conditions = [c for c, number in equalities if number == host_number]
        residual = [c for c in conditions if c not in key_conditions] if left or keeps else []
        at_host = {e.number for e in self._inputs if e.host == host_number} | {table.number}
        for condition in residual:
            if not condition.inputs <= at_host or max(condition.inputs, default=0) > table.number:
                what = "A subquery over" if keeps else "ON of a LEFT JOIN with"
                raise self._select.sql.not_allowed(
                    f"{what} a table may name the table and, of the inputs before it, the one that it is"
                    f" compared with; {sql_text(condition.expression)} names others.",
                    condition.node.at,
                )
        if not left and host.joined.left:  # a row without a tuple of the host has no partner in the table
            if keeps == ANTI:
                raise self._select.sql.not_allowed(
                    f"NOT IN and NOT EXISTS over a table are of rows that are always there; {host.alias!r} is on the"
                    " right of a LEFT JOIN. Write the condition in a subquery in its place.",
                    table.source.at,
                )
            self._move_on_to_where(host)
        self._attach(table, host, key_conditions, residual)
        if not left and not keeps:
            self._used_nodes |= {id(c.node) for c in key_conditions}
        return True

    def _place_elements(self, elements: SelectInput) -> bool:
        """Have UNNEST follow the stream whose array it takes; return whether what it names is there already."""
        array, sql, at = elements.elements.array, self._select.sql, elements.source.at
        hosts = {self._inputs[number].host for number in self._inputs_of(array)}
        if None in hosts:
            return False
        if len(hosts) != 1:
            raise sql.not_allowed("UNNEST takes an array of one stream, or of a table that this is joined with.", at)
        on = [] if elements.joined.on is None else list(conjuncts(elements.joined.on))
        if elements.joined.left and any(self._bound(on)):
            raise sql.not_allowed("LEFT JOIN UNNEST is followed by ON TRUE; write other conditions in WHERE.", on[0].at)
        (host_number,) = hosts
        assert host_number is not None
        host = self._inputs[host_number]
        if not elements.joined.left and host.joined.left:  # a row without a tuple of the host has no elements
            self._move_on_to_where(host)
        schema, canonical = elements.elements.schema, elements.elements.canonical
        name = _free_name(UNNEST, canonical, host)
        merged = self._merged_of(elements, schema)
        elements.host, elements.table = host_number, JoinedTable(elements.alias, name, schema, merged, canonical)
        assert elements.unnest is not None
        ordinality, left = elements.unnest.ordinality, elements.joined.left
        host.lookups.append(Unnest(name, self._renamed(array), canonical, ordinality, left))
        host.tables.append(elements.table)
        return True

    def _attach(
        self,
        table: SelectInput,
        host: SelectInput,
        key_conditions: Iterable[_Condition],
        residual: Iterable[_Condition],
    ) -> None:
        definition = table.version.definition
        name = _free_name(definition.name, definition.schema.names, host)
        merged = self._merged_of(table, definition.schema)
        table.host, table.table = host.number, JoinedTable(table.alias, name, definition.schema, merged)
        keys = []
        for condition in key_conditions:
            assert isinstance(condition.expression, Call)
            stream_key, table_key = condition.expression.arguments
            if table.number in self._inputs_of(stream_key):
                stream_key, table_key = table_key, stream_key
            stream_key, table_key = in_one_type((self._renamed(stream_key), self._renamed(table_key, of_table=True)))
            keys.append((stream_key, table_key))
        lookup = Lookup(
            definition.id,
            self._known_tables.version_of(table.version),
            name,
            tuple(dict.fromkeys(keys)),
            all_of(self._renamed(condition.expression) for condition in residual),
            table.joined.left,
            table.joined.keeps,
        )
        host.lookups.append(lookup)
        if lookup.only_finds:
            return
        rows_of_key = _max_matches(table.version, lookup)
        matches = max(1, rows_of_key) * (1 if lookup.keeps else host.matches)
        if matches > MAX_MATCHES and not is_one_row(host.stream.id):
            raise self._select.sql.not_allowed(
                f"A row of a stream may be joined with at most {MAX_MATCHES} rows of tables; {rows_of_key} rows of"
                f" {definition.name} have one key, which makes {matches}. Compare more columns.",
                table.source.at,
            )
        if not lookup.keeps:
            host.matches = matches
            host.tables.append(table.table)

    def _merged_of(self, input_: SelectInput, schema: Schema) -> frozenset[str]:
        """Return the columns of an input whose unqualified names mean those of another one, by USING."""
        return frozenset(field.name for field in schema.fields if field.name.lower() in self._merged[input_.number])

    def _refuse(self, table: SelectInput) -> None:
        later = [e for e in self._inputs[table.number + 1 :] if e.joined.left and e.is_stream]
        if later:
            raise self._select.sql.not_allowed(
                f"A table cannot be on the left of a LEFT JOIN with a stream: {table.alias!r} has no windows of its"
                f" own. Write FROM {later[0].source.stream} … LEFT JOIN {table.source.stream}.",
                table.source.at,
            )
        if table.joined.keeps:
            raise self._select.sql.not_allowed(
                "A subquery over a static table is compared with one input of the outer query; name a column of one.",
                table.source.at,
            )
        raise self._select.sql.not_allowed(
            f"A join with a table compares it with a stream by equal columns; {table.alias!r} is not compared with any."
            " Write ON a.x = b.x.",
            table.source.at,
        )

    # conditions

    def _names_table(self, node: Node) -> bool:
        names = [part for part in walk(node) if part.kind == "name"]
        inputs = {self._names.input_of(column_of(self._names, part).name) for part in names}
        return any(number is not None and not self._inputs[number].is_stream for number in inputs)

    def _bound(self, nodes: Iterable[Node]) -> Iterator[_Condition]:
        """Yield conditions, those that are always true left out."""
        for node in nodes:
            expression = Binder(self._names, "ON").condition(node)
            if expression is not None:
                yield _Condition(node, expression, frozenset(self._inputs_of(expression)))

    def _inputs_of(self, expression: Expression) -> set[int]:
        numbers = (self._names.input_of(name) for name in columns_of(expression))
        return {number for number in numbers if number is not None}

    def _host_of(self, table: SelectInput, condition: _Condition) -> int | None:
        """Return the number of the stream that an equality compares a table with; None for another condition."""
        expression = condition.expression
        if not isinstance(expression, Call) or expression.function != "=":
            return None
        sides = [self._inputs_of(argument) for argument in expression.arguments]
        if {table.number} not in sides:
            return None
        other_inputs = sides[1] if sides[0] == {table.number} else sides[0]
        hosts = {self._inputs[number].host for number in other_inputs}
        host = hosts.pop() if len(hosts) == 1 and table.number not in other_inputs else None
        if host is None or (table.joined.left and max(other_inputs) > table.number):
            return None
        stream_key = expression.arguments[0 if sides[1] == {table.number} else 1]
        # a stream of a LEFT JOIN is joined with tables before it is known whether it has a tuple: without one its key
        # must be NULL
        return None if self._inputs[host].joined.left and not is_null_for_nulls(stream_key) else host

    def _renamed(self, expression: Expression, of_table: bool = False) -> Expression:
        """Return an expression over the columns of one stream and its tables, or over those of a table alone."""
        if isinstance(expression, Column):
            number = self._names.input_of(expression.name)
            assert number is not None
            input_ = self._inputs[number]
            column = expression.name[len(input_.alias) + 1 :]
            if input_.table is None or of_table:
                return Column(column, expression.type)
            return input_.table.column(input_.table.schema.field(column))
        if isinstance(expression, Call):
            arguments = tuple(self._renamed(argument, of_table) for argument in expression.arguments)
            return Call(expression.function, arguments, expression.type)
        return expression


_MAX_COUNTS = 1000
_match_counts: dict[tuple[str, tuple[tuple[Expression, Expression], ...]], int] = {}


def _max_matches(version: TableVersion, lookup: Lookup) -> int:
    """Return how many rows of a table a tuple can be joined with at most; kept, as it takes an index of the table."""
    key = version.id, lookup.keys
    if key not in _match_counts:
        if len(_match_counts) >= _MAX_COUNTS:
            _match_counts.clear()
        _match_counts[key] = TableIndex(version.rows, [table_key for _, table_key in lookup.keys]).max_matches
    return _match_counts[key]


def _columns_of(input_: SelectInput) -> Columns:
    if input_.is_stream:
        return input_.stream
    return input_.elements if input_.unnest is not None else input_.version.definition


def _free_name(name: str, columns: Sequence[str], host: SelectInput) -> str:
    """Return a name for a lookup of a stream, with which no two columns of its tuples are called alike."""
    taken = {*host.stream.schema.names, *(t.column(f).name for t in host.tables for f in t.schema.fields)}
    names = (name if number == 1 else f"{name}#{number}" for number in count(1))
    return next(free for free in names if taken.isdisjoint(f"{free}.{column}" for column in columns))
