"""Bounds on statements and their expressions, so that none takes the service's stack, time or memory."""

from __future__ import annotations

from braid.operators.expressions import Call, Expression, Literal
from braid.operators.functions.formats import MAX_PER_CHARACTER
from braid.operators.functions.text import LONGEST_PADDED
from braid.session.sql.parsing.tokens import SqlText

MAX_DEPTH = 100
MAX_NODES = 100_000
MAX_GROWTH = 10_000
_LONGEST_DIGEST = 64


class ParserLimits:
    """Measures expressions bottom-up as they are built; each node once.

    An expression's *growth* bounds how many times longer than its inputs a text may get:
    nested CONCAT, REPLACE and REGEXP_REPLACE multiply it, and LPAD, RPAD and REPEAT say how long their text gets.
    """

    def __init__(self, sql: SqlText) -> None:
        self._sql = sql
        # by id, with the expression itself, so that no other gets its id
        self._measured: dict[int, tuple[tuple[int, int, int], Expression]] = {}

    def check(self, expression: Expression, at: int) -> Expression:
        """Return the expression; SqlNotAllowed when it exceeds a limit."""
        depth, nodes, growth = self._measure(expression)
        if depth > MAX_DEPTH:
            raise self._sql.not_allowed(f"An expression must not be nested more than {MAX_DEPTH} deep; split it.", at)
        if nodes > MAX_NODES:
            raise self._sql.not_allowed(f"An expression must have at most {MAX_NODES} parts; split it.", at)
        if growth > MAX_GROWTH:
            raise self._sql.not_allowed(
                "Nested CONCAT, REPLACE and REGEXP_REPLACE may make texts too long; nest fewer.", at
            )
        return expression

    def _measure(self, expression: Expression) -> tuple[int, int, int]:
        if not isinstance(expression, Call):
            return 1, 1, 1
        cached = self._measured.get(id(expression))
        if cached is not None:
            return cached[0]
        parts = [self._measure(a) for a in expression.arguments]
        growths = [growth for _, _, growth in parts]
        sizes = (
            1 + max(depth for depth, _, _ in parts),
            1 + sum(nodes for _, nodes, _ in parts),
            _growth(expression, growths),
        )
        self._measured[id(expression)] = (sizes, expression)
        return sizes


def _growth(call: Call, growths: list[int]) -> int:
    if call.function == "concat":
        return sum(growths)
    if call.function == "concat_ws":  # a separator between any two values
        return sum(growths) + growths[0] * (len(growths) - 3)
    if call.function in ("lpad", "rpad"):
        return max(*growths, *(a.value for a in call.arguments if isinstance(a, Literal) and type(a.value) is int))
    if call.function == "repeat":  # what is too long is NULL
        count = call.arguments[1]
        times = max(count.value, 1) if isinstance(count, Literal) and type(count.value) is int else LONGEST_PADDED
        return max(growths[0], min(growths[0] * times, LONGEST_PADDED))
    if call.function in ("date_format", "strftime"):
        return max(*growths, MAX_PER_CHARACTER * len(str(call.arguments[1])))
    if call.function in ("md5", "sha256"):
        return max(*growths, _LONGEST_DIGEST)
    if call.function == "regexp_replace":  # a pattern may match before each character, or each character
        return growths[0] * (1 + len(str(call.arguments[2])))
    if call.function != "replace":
        return max(growths)
    old, new = (a.value if isinstance(a, Literal) else None for a in call.arguments[1:])
    if isinstance(old, str) and isinstance(new, str) and old:
        return growths[0] * max(1, -(-len(new) // len(old)))
    return growths[0] * growths[2] * 1000
