"""What names mean in a SELECT: the columns of its streams, and the bounds of its window."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Protocol

from operators.expressions import Column
from operators.queries import WINDOW_END, WINDOW_START
from session.sql.statements import WindowedSource
from session.sql.tokens import SqlText
from sources.schema import TIMESTAMP, StreamDefinition

WINDOW_COLUMNS = (WINDOW_START, WINDOW_END)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name closest to a mistyped one, empty when none is close."""
    by_lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f" Did you mean {by_lower[close[0]]!r}?" if close else ""


def find_stream(sql: SqlText, source: WindowedSource, catalog: Mapping[str, StreamDefinition]) -> StreamDefinition:
    """Return the stream that FROM names; SqlNotAllowed lists those that exist."""
    definition = catalog.get(source.stream.lower())
    if definition is not None:
        return definition
    names = sorted(d.name for d in catalog.values())
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    there = f"there are {shown}" if names else "there is none yet; declare it with CREATE STREAM"
    hint = did_you_mean(source.stream, names)
    raise sql.not_allowed(f"Stream {source.stream!r} does not exist; {there}.{hint}", source.at)


def check_descriptor(sql: SqlText, source: WindowedSource, definition: StreamDefinition) -> None:
    """Raise SqlNotAllowed when a window function names another column than the event time."""
    named, event_time = source.descriptor, definition.schema.event_time
    if named is not None and named.lower() != event_time.lower():
        raise sql.not_allowed(
            f"DESCRIPTOR must name the event time column of {definition.name}, {event_time!r}; got {named!r}.",
            source.descriptor_at,
        )


class Names(Protocol):
    """What names mean in one SELECT; case does not count."""

    @property
    def sql(self) -> SqlText:
        """The text of the statement."""

    @property
    def windowed(self) -> bool:
        """Whether FROM has a window, and with it the names of its bounds."""

    def find(self, parts: tuple[str, ...]) -> Column | None:
        """Return the column that an unqualified name means, if any."""

    def resolve(self, parts: tuple[str, ...], at: int) -> Column:
        """Return the column that a name means; SqlNotAllowed lists those that exist."""

    def shown_name(self, parts: tuple[str, ...], at: int) -> str:
        """Return what a column is called in results when it has no alias."""


class Scope:
    """The columns of one stream, and the bounds of its window."""

    def __init__(self, sql: SqlText, source: WindowedSource, definition: StreamDefinition) -> None:
        self.sql = sql
        self.definition = definition
        self.name = source.alias or source.stream
        self.windowed = source.window is not None
        self._columns = {f.name.lower(): Column(f.name, f.type) for f in definition.schema.fields}
        if self.windowed:
            self._columns |= {name: Column(name, TIMESTAMP) for name in WINDOW_COLUMNS}

    @property
    def stream_columns(self) -> tuple[Column, ...]:
        """The columns of the stream in declared order."""
        return tuple(Column(f.name, f.type) for f in self.definition.schema.fields)

    def check_qualifier(self, qualifier: str, at: int) -> None:
        """Raise SqlNotAllowed when a qualifier is not the name of the stream in this SELECT."""
        if qualifier.lower() != self.name.lower():
            raise self.sql.not_allowed(
                f"{qualifier!r} is not in FROM; the stream is called {self.name!r} in this statement.", at
            )

    def find(self, parts: tuple[str, ...]) -> Column | None:
        """Return the column that an unqualified name means, if any."""
        return self._columns.get(parts[0].lower()) if len(parts) == 1 else None

    def shown_name(self, parts: tuple[str, ...], at: int) -> str:
        """Return what a column is called in results when it has no alias: its name as declared."""
        return self.resolve(parts, at).name

    def resolve(self, parts: tuple[str, ...], at: int) -> Column:
        """Return the column that a name means; SqlNotAllowed lists those that exist."""
        if len(parts) > 2:
            raise self.sql.not_allowed(f"Columns have no fields: {'.'.join(parts)!r} has too many parts.", at)
        if len(parts) == 2:
            self.check_qualifier(parts[0], at)
        name = parts[-1]
        column = self._columns.get(name.lower())
        if column is not None:
            return column
        if name.lower() in WINDOW_COLUMNS:
            raise self.sql.not_allowed(
                f"Column {name!r} needs a window; write FROM {self.definition.name} [RANGE 8 SECONDS].", at
            )
        names = self.definition.schema.names
        shown = ", ".join(names[:50]) + (", …" if len(names) > 50 else "")
        hint = did_you_mean(name, names)
        raise self.sql.not_allowed(f"Column {name!r} does not exist; {self.definition.name} has {shown}.{hint}", at)
