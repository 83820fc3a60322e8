"""What names mean in a SELECT: the columns of its stream, and the bounds of its window."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

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


class Scope:
    """The columns that the names in one SELECT may mean; case does not count."""

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
