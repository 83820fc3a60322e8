"""What names mean in a SELECT over several inputs: the columns of each, distinguished by its alias."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from braid.operators.expressions import Column
from braid.session.sql.parsing.tokens import SqlText
from braid.session.sql.scope import WINDOW_COLUMNS, Scope, did_you_mean
from braid.sources.core.errors import UnknownColumn
from braid.sources.core.schema import TIMESTAMP


class JoinScope:
    """The inputs of a join. Column ``c`` of the input with alias ``a`` is the column ``a.c`` of its rows."""

    windowed = True

    def __init__(self, sql: SqlText, inputs: Sequence[Scope], offsets: Sequence[int]) -> None:
        """Take the scope of each input and where it stands; SqlNotAllowed when two have one name."""
        self.sql = sql
        self.inputs = tuple(inputs)
        self._shown = [scope for scope in self.inputs if not scope.is_hidden]
        seen: set[str] = set()
        for scope, at in zip(inputs, offsets, strict=True):
            if scope.name.lower() in seen:
                raise sql.not_allowed(
                    f"Two inputs of the join are called {scope.name!r}; write AS and another alias.", at
                )
            seen.add(scope.name.lower())
        self._input_of = {
            self._full_name(scope, column): number
            for number, scope in enumerate(self.inputs)
            for column in scope.columns
        }
        self._declared = {
            self._full_name(scope, column): scope.declared_name(column)
            for scope in self.inputs
            for column in scope.columns
        }

    def input_of(self, column: str) -> int | None:
        """Return the number of the input that a column of joined rows comes from; None for bounds of the window."""
        return self._input_of.get(column)

    def find(self, parts: tuple[str, ...]) -> Column | None:
        """Return the column that a name of one part or two means, None unless exactly one input has it."""
        if len(parts) == 1:
            matches = list(self._columns(parts[0]))
            return matches[0] if len(matches) == 1 else None
        scope = next((scope for scope in self.inputs if scope.has(parts[0])), None)
        column = None if scope is None else scope.find(parts)
        return None if scope is None or column is None else self._of(scope, column)

    def resolve(self, parts: tuple[str, ...], at: int) -> Column:
        """Return the column that a name means; SqlNotAllowed lists those that exist."""
        name = parts[-1]
        if len(parts) >= 2:
            scope = self._input(parts[0], at)
            return self._of(scope, scope.resolve(parts, at))
        columns = list(self._columns(name))
        if len(columns) == 1:
            return columns[0]
        if columns:
            shown = " and ".join(column.name for column in columns)
            raise self.sql.not_allowed(f"Column {name!r} is in several inputs; write which: {shown}.", at)
        names = [scope.declared_name(column) for scope in self.inputs for column in scope.columns]
        described = ", ".join(scope.description for scope in self.inputs)
        raise UnknownColumn.of(name, described, did_you_mean(name, names), self.sql.position(at))

    def shown_name(self, parts: tuple[str, ...], at: int) -> str:
        """Return what a column is called in results when it has no alias: its name as declared, without the input."""
        column = self.resolve(parts, at)
        return self._declared.get(column.name, column.name)

    def columns_of(self, qualifier: str | None, at: int) -> Iterator[tuple[str, Column]]:
        """Yield the columns that ``*`` or ``qualifier.*`` means, with what they are called in results."""
        for scope in self._shown if qualifier is None else (self._input(qualifier, at),):
            for name, column in scope.columns_of(qualifier, at):
                yield name, Column(self._full_name(scope, column), column.type)

    def _input(self, qualifier: str, at: int) -> Scope:
        for scope in self.inputs:
            if scope.has(qualifier):
                return scope
        names = ", ".join(repr(scope.name) for scope in self.inputs)
        raise self.sql.not_allowed(
            f"{qualifier!r} is not in FROM; its inputs are called {names} in this statement.", at
        )

    def _of(self, scope: Scope, column: Column) -> Column:
        """Return a column of an input as one of joined rows, which share the bounds of the window."""
        is_bound = column.name.lower() in WINDOW_COLUMNS
        return column if is_bound else Column(self._full_name(scope, column), column.type)

    def _columns(self, name: str) -> Iterator[Column]:
        if name.lower() in WINDOW_COLUMNS:
            yield Column(name.lower(), TIMESTAMP)
            return
        for scope in self._shown:
            yield from (Column(self._full_name(scope, column), column.type) for column in scope.find_all(name))

    @staticmethod
    def _full_name(scope: Scope, column: Column) -> str:
        return f"{scope.name}.{column.name}"
