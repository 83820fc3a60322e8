"""Bind the expressions of columns that are computed: ``total AS price * quantity`` in CREATE STREAM."""

from __future__ import annotations

from collections.abc import Sequence

from braid.operators.computed_column import ComputedColumn
from braid.operators.expressions import Column, columns_of
from braid.operators.functions.casts import cast_to
from braid.session.sql.expressions import Binder
from braid.session.sql.parsing.tokens import SqlText
from braid.session.sql.scope import did_you_mean, listed
from braid.session.sql.syntax import Node
from braid.sources.core.errors import NotAllowed, SqlNotAllowed
from braid.sources.core.schema import ColumnType, Field

MAX_NAMES = 50


class NamableColumns:
    """The columns that a computed one may name: those that are read, and the computed ones before it."""

    windowed = False

    def __init__(self, sql: SqlText, fields: Sequence[Field]) -> None:
        self.sql = sql
        self._fields = fields

    def find(self, parts: tuple[str, ...]) -> Column | None:
        """Return the column of that name, if there is one; names have one part."""
        names = (f for f in self._fields if len(parts) == 1 and f.name.lower() == parts[0].lower())
        return next((Column(f.name, f.type) for f in names), None)

    def resolve(self, parts: tuple[str, ...], at: int) -> Column:
        """Return the column of that name; SqlNotAllowed lists those that exist."""
        column = self.find(parts)
        if column is None:
            name, names = ".".join(parts), [f.name for f in self._fields]
            raise self.sql.not_allowed(
                f"Column {name!r} does not exist, or is computed after this one; there are {listed(names, MAX_NAMES)}."
                + did_you_mean(name, names),
                at,
            )
        return column

    def shown_name(self, parts: tuple[str, ...], at: int) -> str:
        """Return the name of a column as declared."""
        return self.resolve(parts, at).name


def bind_computed(
    sql: SqlText, node: Node, text: str, fields: Sequence[Field], declared: ColumnType | None
) -> tuple[ColumnType, ComputedColumn]:
    """Return the type of a computed column, and how it is computed from ``fields``; SqlNotAllowed says what is wrong.

    A column that is declared with a type is cast to it.
    """
    expression = Binder(NamableColumns(sql, fields), "a computed column").value(node)
    by_name = {f.name: f for f in fields}
    for name in columns_of(expression):
        if by_name[name].arrival:
            raise sql.not_allowed(
                f"Column {name!r} is the time of arrival, which is not known yet where columns are computed;"
                " compute with it in queries.",
                node.at,
            )
    if declared is not None and declared != expression.type:
        try:
            expression = cast_to(expression, declared)
        except NotAllowed as error:
            raise SqlNotAllowed(error.detail, position=sql.position(node.at)) from None
    return expression.type, ComputedColumn(expression, text)
