"""What names mean in a SELECT: the columns of its streams, and the bounds of its window."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from braid.operators.derived import shown_name, window_behind
from braid.operators.expressions import Column
from braid.operators.lookup.lookups import TupleJoin
from braid.operators.query_parts import CHANGES, WINDOW_END, WINDOW_START
from braid.session.sql.create_stream_text import quoted_name
from braid.session.sql.parsing.tokens import SqlText
from braid.session.sql.statements import WindowedSource
from braid.session.sql.syntax import Node
from braid.sources.core.errors import SqlNotAllowed, UnknownColumn
from braid.sources.core.schema import TIMESTAMP, Field, Schema, StreamDefinition, StreamSchema

MAX_NAMES = 50
WINDOW_COLUMNS = (WINDOW_START, WINDOW_END)


# what names mean elsewhere, and what to write
_NAMED_ELSEWHERE = (
    (
        {"current_timestamp", "current_date", "localtimestamp"},
        " A query must give the same rows whenever it runs; compare with the event time or a constant.",
    ),
    (
        {"wstart", "wend", "windowstart", "windowend", "w_start", "w_end"},
        " The bounds of the window are called window_start and window_end.",
    ),
    ({"stream"}, " Write SELECT alone: every query goes on; EMIT STREAM at its end is for rows that change."),
)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name closest to a mistyped one, empty when none is close."""
    by_lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    if not close:
        return ""
    name = by_lower[close[0]]
    # in single quotes, a name that needs double quotes would be copied as a text
    as_written = quoted_name(name)
    return f" Did you mean {repr(name) if as_written == name else as_written}?"


def check_descriptor(sql: SqlText, source: WindowedSource, definition: StreamDefinition) -> None:
    """Raise SqlNotAllowed when a window function names another column than the event time."""
    descriptor, event_time = source.descriptor, definition.schema.event_time
    if descriptor is not None and descriptor.lower() != event_time.lower():
        raise sql.not_allowed(
            f"DESCRIPTOR must name the event time column of {definition.name}, {event_time!r}; got {descriptor!r}.",
            source.descriptor_at,
        )


class Columns(Protocol):
    """What has the columns of an input: a stream, a static table, or UNNEST."""

    @property
    def name(self) -> str: ...
    @property
    def schema(self) -> Schema: ...


class Names(Protocol):
    """What names mean in one SELECT; case does not count."""

    @property
    def sql(self) -> SqlText:
        """The text of the statement."""

    @property
    def windowed(self) -> bool:
        """Whether FROM has a window, and with it the names of its bounds."""

    def find(self, parts: tuple[str, ...]) -> Column | None:
        """Return the column that a name of one part or two means, None when that is none or not one alone."""

    def resolve(self, parts: tuple[str, ...], at: int) -> Column:
        """Return the column that a name means; SqlNotAllowed lists those that exist."""

    def shown_name(self, parts: tuple[str, ...], at: int) -> str:
        """Return what a column is called in results when it has no alias."""


@dataclass(frozen=True)
class JoinedTable:
    """A static table or UNNEST that a stream is joined with, by its alias; its column ``c`` is called ``name.c``.

    ``merged`` are its columns in USING, which are called like those of the stream. The columns of UNNEST have
    ``canonical`` names, whatever the SELECT calls them.
    """

    alias: str
    name: str
    schema: Schema
    merged: frozenset[str] = frozenset()
    canonical: tuple[str, ...] = ()

    def column(self, field: Field) -> Column:
        """Return a column of the table as one of the stream's tuples after the join."""
        name = self.canonical[self.schema.names.index(field.name)] if self.canonical else field.name
        return Column(f"{self.name}.{name}", field.type)

    def find(self, name: str, with_merged: bool = True) -> Column | None:
        """Return the column of that name, if there is one."""
        fields = (field for field in self.schema.fields if field.name.lower() == name.lower())
        return next((self.column(f) for f in fields if with_merged or f.name not in self.merged), None)


def column_parts(names: Names, parts: tuple[str, ...]) -> int:
    """Return how many parts of a name say which column it is of, one or two; the others are members of its STRUCT.

    The first part is an input where that has such a column, as in PostgreSQL.
    """
    if len(parts) == 1 or names.find(parts[:2]) is not None:
        return min(len(parts), 2)
    return 2 if names.find(parts[:1]) is None else 1


def column_of(names: Names, node: Node) -> Column:
    """Return the column that a name means, or whose member it means; SqlNotAllowed lists those that exist."""
    return names.resolve(node.value[: column_parts(names, node.value)], node.at)


class Scope:
    """The columns of one input: a stream, the static tables that it is joined with, and the bounds of its window."""

    def __init__(
        self,
        sql: SqlText,
        source: WindowedSource,
        definition: Columns,
        tables: Sequence[JoinedTable] = (),
        lookups: Sequence[TupleJoin] = (),
        merged: Iterable[str] = (),
    ) -> None:
        """``merged`` are columns in USING, in lower case, whose unqualified names mean those of another input."""
        self.sql = sql
        self.definition = definition
        self.name = source.alias or source.stream
        self.windowed = source.window is not None
        self.is_hidden = source.is_hidden
        self.lookups = tuple(lookups)
        self._tables = tuple(tables)
        self._merged = frozenset(merged)
        self._own = {shown_name(f.name).lower(): Column(f.name, f.type) for f in definition.schema.fields}
        if source.is_implied:
            self._own |= _bounds_of(definition)
        self._columns = dict(self._own)
        self._declared = {table.column(f).name: f.name for table in self._tables for f in table.schema.fields}
        if self.windowed:
            bounds = {name: Column(name, TIMESTAMP) for name in WINDOW_COLUMNS}
            self._columns = bounds | self._columns if source.is_implied else self._columns | bounds

    @property
    def stream(self) -> StreamDefinition:
        """The stream; only if it is one."""
        assert isinstance(self.definition, StreamDefinition)
        return self.definition

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns in declared order, those of tables last."""
        input_columns = (Column(f.name, f.type) for f in self.definition.schema.fields)
        return (*input_columns, *(table.column(f) for table in self._tables for f in table.schema.fields))

    @property
    def description(self) -> str:
        """The columns of the stream and of each of its tables, for messages."""
        own = [] if self.is_hidden else [(self.name, self.definition.schema)]
        schemas = [*own, *((table.alias, table.schema) for table in self._tables)]
        return ", ".join(
            f"{name} has {listed(list(map(shown_name, schema.names)), MAX_NAMES)}" for name, schema in schemas
        )

    def has(self, qualifier: str) -> bool:
        """Return whether a qualifier means the stream or one of its tables in this SELECT."""
        return qualifier.lower() in (name.lower() for name in self._names)

    @property
    def _names(self) -> list[str]:
        return [self.name, *(table.alias for table in self._tables)]

    def columns_of(self, qualifier: str | None, at: int) -> Iterator[tuple[str, Column]]:
        """Yield the columns that ``*`` or ``qualifier.*`` means, with what they are called in results."""
        if qualifier is not None and not self.has(qualifier):
            raise self._not_in_from(qualifier, at)
        if qualifier is None or qualifier.lower() == self.name.lower():
            schema = self.definition.schema
            hidden = {name.lower() for name in schema.hidden} if isinstance(schema, StreamSchema) else set()
            hidden |= self._merged if qualifier is None else set()
            hidden |= set(CHANGES)
            # rows of windows have the bounds of their own
            hidden |= {f.name.lower() for f in schema.fields if self.windowed and shown_name(f.name) != f.name}
            fields = (f for f in schema.fields if f.name.lower() not in hidden)
            yield from ((shown_name(f.name), Column(f.name, f.type)) for f in fields)
        for table in self._tables:
            if qualifier is None or qualifier.lower() == table.alias.lower():
                merged = table.merged if qualifier is None else ()
                yield from ((f.name, table.column(f)) for f in table.schema.fields if f.name not in merged)

    def find(self, parts: tuple[str, ...]) -> Column | None:
        """Return the column that a name of one part or two means, None when that is none or not one alone."""
        qualifier, name = parts if len(parts) == 2 else ("", parts[0])
        matches = self._qualified(qualifier, name) if qualifier else self.find_all(name)
        return matches[0] if len(matches) == 1 else None

    def _qualified(self, qualifier: str, name: str) -> list[Column]:
        if qualifier.lower() == self.name.lower():
            column = self._own.get(name.lower()) or self._columns.get(name.lower())
        else:
            table = next((table for table in self._tables if table.alias.lower() == qualifier.lower()), None)
            column = None if table is None else table.find(name)
        return [] if column is None else [column]

    def find_all(self, name: str) -> list[Column]:
        """Return the columns that an unqualified name may mean."""
        column = self._columns.get(name.lower())
        matches = [] if column is None or name.lower() in self._merged else [column]
        for table in self._tables:
            column = table.find(name, with_merged=False)
            if column is not None:
                matches.append(column)
        return matches

    def shown_name(self, parts: tuple[str, ...], at: int) -> str:
        """Return what a column is called in results when it has no alias: its name as declared."""
        column = self.resolve(parts, at)
        if column.name in WINDOW_COLUMNS:  # a subquery may call the bounds of its windows otherwise
            names = (shown_name(f.name) for f in self.definition.schema.fields)
            return next((name for name in names if name.lower() == parts[-1].lower()), column.name)
        return self.declared_name(column)

    def declared_name(self, column: Column) -> str:
        """Return the name of a column as declared, without the table that it is of."""
        return self._declared.get(column.name, shown_name(column.name))

    def resolve(self, parts: tuple[str, ...], at: int) -> Column:
        """Return the column that a name means; SqlNotAllowed lists those that exist."""
        name = parts[-1]
        if len(parts) == 1:
            matches = self.find_all(name)
        elif self.has(parts[0]):
            matches = self._qualified(parts[0], name)
        else:
            raise self._not_in_from(parts[0], at)
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise self.sql.not_allowed(f"Column {name!r} is in several inputs; write which: {self.description}.", at)
        if name.lower() in WINDOW_COLUMNS:
            raise self.sql.not_allowed(
                f"Column {name!r} needs a window; write FROM {self.definition.name} [RANGE 8 SECONDS].", at
            )
        names = list(map(self.declared_name, self.columns))
        hint = did_you_mean(name, names)
        if not hint and self.sql.text.startswith('"', at):
            hint = " A text stands in single quotes."
        else:
            hint = hint or next((text for names_, text in _NAMED_ELSEWHERE if name.lower() in names_), "")
        raise UnknownColumn.of(name, self.description, hint, self.sql.position(at))

    def _not_in_from(self, qualifier: str, at: int) -> SqlNotAllowed:
        if not self._tables:
            return self.sql.not_allowed(
                f"{qualifier!r} is not in FROM; the stream is called {self.name!r} in this statement.", at
            )
        names = ", ".join(map(repr, self._names))
        return self.sql.not_allowed(
            f"{qualifier!r} is not in FROM; its inputs are called {names} in this statement.", at
        )


def _bounds_of(definition: Columns) -> dict[str, Column]:
    """Return which columns of a derived stream are the bounds of the windows that its rows imply."""
    found = window_behind(definition) if isinstance(definition, StreamDefinition) else None
    if found is None:
        return {}
    bounds = {shown_name(name).lower(): Column(WINDOW_END, TIMESTAMP) for name in found.ends}
    if found.window.size_us == found.window.slide_us:
        bounds |= {shown_name(name).lower(): Column(WINDOW_START, TIMESTAMP) for name in found.starts}
    return bounds


def listed(names: Sequence[str], most: int) -> str:
    """Return the first ``most`` names for a message."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
