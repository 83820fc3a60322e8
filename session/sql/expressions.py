"""Give syntax trees meaning: names become columns, calls get types, constants are computed."""

from __future__ import annotations

from dataclasses import replace

from braid.operators.evaluation import fold
from braid.operators.expressions import Expression, Literal
from braid.operators.functions import call
from braid.operators.functions.casts import cast_to
from braid.operators.functions.coercion import coerce, describe
from braid.operators.functions.comparison import MIRRORED
from braid.session.sql.parsing.expression_parser import SUBQUERY
from braid.session.sql.parsing.function_names import shown_aggregate
from braid.session.sql.parsing.limits import ParserLimits
from braid.session.sql.scope import WINDOW_COLUMNS, Names, column_parts
from braid.session.sql.syntax import Node
from braid.sources.core.errors import NotAllowed, SqlNotAllowed
from braid.sources.core.schema import BIGINT, BOOLEAN, NULL, VARCHAR

_COMPARING = (*MIRRORED, "between", "in", "is_distinct_from", "is_not_distinct_from")


class Binder:
    """Binds the expressions of one SELECT over single tuples; ``clause`` is for messages."""

    def __init__(self, scope: Names, clause: str) -> None:
        self.scope = scope
        self.sql = scope.sql
        self.clause = clause
        self._limits = ParserLimits(scope.sql)

    def value(self, node: Node) -> Expression:
        """Return the typed expression of a node; a lone NULL is a VARCHAR."""
        expression = self.bind(node)
        return coerce(expression, VARCHAR) if expression.type == NULL else expression

    def condition(self, node: Node | None) -> Expression | None:
        """Return a condition, None where there is none or it is always true; SqlNotAllowed when it is not BOOLEAN."""
        if node is None:
            return None
        expression = self.bind(node)
        if expression.type == NULL:
            return Literal(None, BOOLEAN)
        if expression.type != BOOLEAN:
            raise self.sql.not_allowed(
                f"{self.clause} must be followed by a condition; got {describe(self.shown(expression))}.", node.at
            )
        return None if isinstance(expression, Literal) and expression.value is True else expression

    def bind(self, node: Node) -> Expression:
        """Return the typed expression of a node."""
        match node.kind:
            case "literal":
                literal: Literal = node.value
                return literal
            case "name":
                return self._named(node)
            case "aggregate":
                return self.aggregate(node)
            case "star":
                raise self.sql.not_allowed("* stands alone in the select list or in COUNT(*).", node.at)
            case "subquery":
                raise self.sql.not_allowed(SUBQUERY, node.at)
            case "interval":
                raise self.sql.not_allowed("An INTERVAL must be added to or subtracted from a timestamp.", node.at)
        if node.kind == "call" and node.value in ("+", "-") and any(c.kind == "interval" for c in node.children):
            return self._shift(node)
        return self._call(node, tuple(map(self.bind, node.children)))

    def _named(self, node: Node) -> Expression:
        """Return what a name means: a column, or a member of one that is a STRUCT."""
        count = column_parts(self.scope, node.value)
        value = self.column(node if count == len(node.value) else replace(node, value=node.value[:count]))
        for name in node.value[count:]:
            value = self._call(Node("call", node.at, "member"), (value, Literal(name, VARCHAR)))
        return value

    def column(self, node: Node) -> Expression:
        """Return the column that a name of one part or two means."""
        column = self.scope.resolve(node.value, node.at)
        if self.scope.windowed and column.name in WINDOW_COLUMNS:
            raise self.sql.not_allowed(
                f"{column.name} is not known yet in {self.clause}, which comes before windows; write it in HAVING"
                " or in the select list.",
                node.at,
            )
        return column

    def aggregate(self, node: Node) -> Expression:
        """Refuse an aggregate, which single tuples do not have."""
        hint = "Write the condition in HAVING." if self.clause == "WHERE" else "Nest no aggregates."
        raise self.sql.not_allowed(
            f"{shown_aggregate(node.value)} is an aggregate, which {self.clause} cannot have. {hint}", node.at
        )

    def _call(self, node: Node, arguments: tuple[Expression, ...]) -> Expression:
        try:
            expression = _build_call(node, arguments)
        except NotAllowed:
            raise self._refused(node, arguments) from None
        return fold(self._limits.check(expression, node.at))

    def _refused(self, node: Node, arguments: tuple[Expression, ...]) -> SqlNotAllowed:
        """Return the error of a call that is not allowed, which names the arguments as messages do."""
        try:
            _build_call(node, tuple(map(self.shown, arguments)))
        except NotAllowed as error:
            return self.sql.not_allowed(error.detail, _offset_to_blame(node))
        raise AssertionError(f"{node.value} is allowed or not whatever its arguments are called")

    def shown(self, expression: Expression) -> Expression:
        """Return an expression for messages, its columns as the statement writes them."""
        return expression

    def _shift(self, node: Node) -> Expression:
        """Add an interval to a timestamp, or subtract it."""
        left, right = node.children
        if left.kind == "interval" and node.value == "+":
            left, right = right, left
        if left.kind == "interval" or right.kind != "interval":
            raise self.sql.not_allowed(
                "An INTERVAL must be added to or subtracted from a timestamp.",
                left.at if left.kind == "interval" else right.at,
            )
        months, microseconds = right.value
        sign = 1 if node.value == "+" else -1
        name, amount = ("add_months", months) if months else ("add_interval", microseconds)
        try:
            expression = call(name, self.bind(left), Literal(sign * amount, BIGINT))
        except NotAllowed as error:
            if error.position is not None:
                raise
            raise self.sql.not_allowed(error.detail, node.at) from None
        return fold(self._limits.check(expression, node.at))


def _build_call(node: Node, arguments: tuple[Expression, ...]) -> Expression:
    return cast_to(arguments[0], node.value) if node.kind == "cast" else call(node.value, *arguments)


def _offset_to_blame(node: Node) -> int:
    """Return the offset to blame for types that do not fit: that of a text in a comparison, else of the operator."""
    if node.kind == "call" and node.value in _COMPARING:
        for child in node.children:
            if child.kind == "literal" and child.value.type == VARCHAR:
                return child.at
    return node.at
