"""Expressions that name no columns."""

from __future__ import annotations

from typing import NoReturn

from braid.operators.expressions import Expression
from braid.session.sql.expressions import Binder
from braid.session.sql.parsing.tokens import SqlText
from braid.session.sql.syntax import Node


def constant(sql: SqlText, node: Node, clause: str) -> Expression:
    """Return the typed expression of a node; SqlNotAllowed where it names a column."""
    return Binder(_NoNames(sql, clause), clause).bind(node)


class _NoNames:
    windowed = False

    def __init__(self, sql: SqlText, clause: str) -> None:
        self.sql = sql
        self._clause = clause

    def find(self, parts: tuple[str, ...]) -> None:
        """Return None."""

    def resolve(self, parts: tuple[str, ...], at: int) -> NoReturn:
        raise self.sql.not_allowed(f"{self._clause} takes constants; {'.'.join(parts)!r} is a name.", at)

    def shown_name(self, parts: tuple[str, ...], at: int) -> NoReturn:
        self.resolve(parts, at)
