"""Bounds on the size of one statement; each is a setting of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from braid.operators.functions.comparison import MIRRORED
from braid.operators.kinds import kind_of
from braid.operators.queries import Query
from braid.session.sql.statements import Select
from braid.session.sql.syntax import Node, walk

_CONDITIONS = frozenset(
    {
        *MIRRORED,
        *("between", "in", "is_null", "is_distinct_from", "is_not_distinct_from"),
        *("like", "ilike", "regexp_like", "starts_with", "contains"),
    }
)
_OUTPUTS, _FEWER_OUTPUTS = "output columns", "List fewer columns, or split them over several queries."


@dataclass(frozen=True)
class StatementLimits:
    """How large a statement may be.

    ``max_statement_tokens`` bounds the words, numbers, texts and symbols of any statement. The others bound a SELECT:
    entries of its select list, inputs of its join, entries of GROUP BY, partial aggregates (AVG takes two, STDDEV up to
    three) and those of COUNT(DISTINCT), comparisons in all clauses, values of one IN, characters of one text, and the
    bytes that keys, aggregates and conditions take for one row while a source task adds it up.
    """

    max_statement_tokens: int = 25_000
    max_output_columns: int = 1000
    max_join_inputs: int = 10
    max_group_keys: int = 64
    max_measures: int = 256
    max_distinct_measures: int = 32
    max_conditions: int = 1000
    max_in_values: int = 10_000
    max_text_length: int = 10_000
    max_tuple_bytes: int = 4096

    def check_select(self, select: Select) -> None:
        """Raise SqlNotAllowed for a SELECT that is too large to be planned; takes time linear in its text."""
        self._check(select, "max_output_columns", len(select.items), _OUTPUTS, _FEWER_OUTPUTS)
        keys = select.group_by
        if len(keys) > self.max_group_keys:
            advice = "Group by fewer expressions, or by one text that joins them with ||."
            self._check(
                select, "max_group_keys", len(keys), "entries of GROUP BY", advice, keys[self.max_group_keys].at
            )
        conditions = 0
        for node in _nodes_of(select):
            if node.kind == "literal" and isinstance(node.value.value, str):
                self._check(
                    select,
                    "max_text_length",
                    len(node.value.value),
                    "characters of a text",
                    "Write a shorter text.",
                    node.at,
                )
            if node.kind != "call" or node.value not in _CONDITIONS:
                continue
            conditions += 1
            if node.value == "in":
                advice = "Split the list over several queries, or join with a static table that has the values."
                self._check(select, "max_in_values", len(node.children) - 1, "values of IN", advice, node.at)
            if conditions > self.max_conditions:
                advice = "Write IN for a list of values, or split the statement in several queries."
                total = sum(n.kind == "call" and n.value in _CONDITIONS for n in _nodes_of(select))
                self._check(select, "max_conditions", total, "comparisons", advice, node.at)

    def check_inputs(self, select: Select) -> None:
        """Raise SqlNotAllowed for too many inputs; of a SELECT over streams only, its tables taken out."""
        count = 1 + len(select.joins)
        if count > self.max_join_inputs:
            at = select.joins[self.max_join_inputs - 1].source.at
            self._check(select, "max_join_inputs", count, "inputs of a join", "Split it in several queries.", at)

    def check_query(self, select: Select, query: Query) -> None:
        """Raise SqlNotAllowed for a query that would take too much of each tuple."""
        self._check(select, "max_output_columns", len(query.outputs), _OUTPUTS, _FEWER_OUTPUTS)
        advice = "Compare one text that joins the columns with ||."
        compared = len(query.inputs[0].keys) if len(query.inputs) > 1 else 0
        self._check(select, "max_group_keys", compared, "keys that a join compares", advice)
        measures = query.measures
        distinct = {argument for measure in measures for argument in measure.by_value}
        advice = "Split the aggregates over several queries, which share what they read."
        self._check(select, "max_measures", len(measures), "partial aggregates", advice)
        self._check(select, "max_distinct_measures", len(distinct), "different COUNT(DISTINCT …)", advice)
        advice = "Use fewer keys, aggregates and conditions on several columns, or split it in several queries."
        self._check(
            select,
            "max_tuple_bytes",
            kind_of(query).bytes_a_tuple(query),
            "bytes for each row that it adds up",
            advice,
        )

    def _check(self, select: Select, setting: str, got: int, what: str, advice: str, at: int | None = None) -> None:
        limit = getattr(self, setting)
        if got > limit:
            at = select.start if at is None else at
            raise select.sql.not_allowed(
                f"A SELECT must have at most {limit} {what} (setting {setting}); got {got}. {advice}", at
            )


DEFAULT_LIMITS = StatementLimits()


def _nodes_of(select: Select) -> Iterator[Node]:
    ons = (joined.on for joined in select.joins)
    roots = [*(item.node for item in select.items), select.where, *ons, *select.group_by, select.having]
    for root in roots:
        if root is not None:
            yield from walk(root)
