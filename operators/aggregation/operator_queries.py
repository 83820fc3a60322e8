"""The queries of one aggregation operator in one epoch, and what follows from who they are, worked out once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from braid.operators.aggregation.due import WindowedQueries
from braid.operators.aggregation.shared_aggregation import (
    by_window,
    distinct_arguments,
    distinct_operator,
    sliding_window,
)
from braid.operators.aggregation.space_queries import Predicates
from braid.operators.expressions import Expression
from braid.operators.live_queries import LiveQueries, LiveQuery
from braid.operators.predicates.cells import LineCells
from braid.operators.predicates.space_key import SpaceKey
from braid.operators.windowing.early_rows import emits_changes, is_early
from braid.operators.windows import Window


@dataclass(frozen=True)
class OperatorQueries:
    """Queries that share an operator, by slot; ``predicates`` returns the predicate of each."""

    queries: Sequence[LiveQuery]
    predicates: Predicates

    @property
    def stream(self) -> str:
        """The id of their stream."""
        return self.queries[0].query.streams[0]

    @cached_property
    def final(self) -> OperatorQueries:
        """The queries whose rows come once they are final."""
        return OperatorQueries([query for query in self.queries if not is_early(query)], self.predicates)

    @cached_property
    def early(self) -> list[LiveQuery]:
        """The queries whose rows come earlier, too."""
        return [query for query in self.queries if is_early(query)]

    @cached_property
    def emits_changes(self) -> bool:
        """Whether the rows of some query are changes (EMIT STREAM)."""
        return any(emits_changes(query) for query in self.queries)

    @cached_property
    def distinct(self) -> Mapping[str, tuple[Expression, list[LiveQuery]]]:
        """The expressions whose distinct values are counted, by text, each with the queries that count them."""
        return distinct_arguments(self.queries)

    @cached_property
    def by_window(self) -> dict[Window, list[LiveQuery]]:
        """The queries by their window; not for sessions."""
        return by_window(self.queries)

    @cached_property
    def windowed(self) -> WindowedQueries:
        """The queries in the form in which their windows are fired; not for sessions."""
        return WindowedQueries(self.queries, self.predicates)

    @cached_property
    def windows(self) -> list[tuple[Window, int]]:
        """Their windows, the longest first, each with the first epoch of a query that has it."""
        by_size = sorted(self.by_window, key=lambda window: window.size_us, reverse=True)
        return [(window, min(query.epoch for query in self.by_window[window])) for window in by_size]

    @cached_property
    def begins(self) -> dict[int, int]:
        """Each time at which queries begin to see tuples, with the size of their longest window (both µs)."""
        longest: dict[int, int] = {}
        for query in self.queries:
            begin = query.after(self.stream) + 1
            longest[begin] = max(longest.get(begin, 0), sliding_window(query).size_us)
        return longest


def operators_of(live: LiveQueries, kind: str, predicates: Predicates) -> dict[str, OperatorQueries]:
    """Return the operators of a kind of aggregations, of all streams, by name."""
    return {name: OperatorQueries(queries, predicates) for name, queries in live.by_operator(kind).items()}


def with_distinct(operators: Mapping[str, OperatorQueries]) -> dict[str, OperatorQueries]:
    """Return operators, and for each expression whose distinct values are counted one with it as one more key."""
    derived = {
        distinct_operator(name, argument): OperatorQueries(counting, operator.predicates)
        for name, operator in operators.items()
        for argument, (_, counting) in operator.distinct.items()
    }
    return {**operators, **derived}


def line_cells(operator: OperatorQueries, space: SpaceKey) -> LineCells | None:
    """Return the cells that an operator's queries of a space need; None where its cells are query-sets."""
    if space.has_sets:
        return None
    boundaries: set[Any] = set()
    for live in operator.queries:
        predicate = operator.predicates(live)
        if SpaceKey.of(live.query, predicate) == space:
            boundaries.update(boundary for truth in predicate.truths.values() for boundary in truth.boundaries)
    return LineCells(tuple(sorted(boundaries)))
