"""What the queries of an epoch ask of a lane: aggregations, joins, and the inputs of joins, by operator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from operators.aggregation.operator_queries import OperatorQueries, operators_of, with_distinct
from operators.joins.firing import JoinOperator, join_operators
from operators.live_queries import LiveQueries, LiveQuery
from operators.predicates.analysis import Predicate, analyse
from operators.state.tuple_bucket import TupleBucket
from operators.windowing.firing_limit import FiringLimit
from operators.windowing.slicing import is_needed


class LaneOperators:
    """Operators by name: ``aggregations``, ``joins``, and all those ``with_buckets``.

    ``limit`` says how far their windows fire in a batch.
    """

    def __init__(self) -> None:
        self.aggregations: dict[str, OperatorQueries] = {}
        self.joins: dict[str, JoinOperator] = {}
        self.with_buckets: dict[str, OperatorQueries] = {}
        self.limit = FiringLimit({}, ())
        self._joins_of: dict[str, list[JoinOperator]] = {}
        self._predicates: dict[str, Predicate] = {}
        self._live = LiveQueries()
        self._epoch = (0, -1)

    def follow(self, live: LiveQueries) -> None:
        """Take note of the operators and queries of a new epoch."""
        if self._epoch == (id(live), live.epoch):
            return
        self._epoch = id(live), live.epoch
        self._live = live  # so that nothing else gets its id
        self.aggregations = operators_of(live, self.predicate_of)
        self.joins = join_operators(live)
        self._joins_of = {}
        parts: dict[str, list[LiveQuery]] = {}
        for joins in self.joins.values():
            for number, part in enumerate(joins.joins[0]):
                self._joins_of.setdefault(part.operator, []).append(joins)
                parts.setdefault(part.operator, []).extend(inputs[number].query for inputs in joins.joins)
        self.with_buckets = with_distinct(self.aggregations)
        self.with_buckets |= {name: OperatorQueries(queries, self.predicate_of) for name, queries in parts.items()}
        self.limit = FiringLimit(self.aggregations, self.joins.values())
        running = {query.id for operator in self.with_buckets.values() for query in operator.queries}
        self._predicates = {query: predicate for query, predicate in self._predicates.items() if query in running}

    def reached(self, operator: str, waterlines: Mapping[str, int | None]) -> int | None:
        """Return up to where all windows of an operator have been fired: for an input of joins the least of theirs."""
        joins = self._joins_of.get(operator)
        if joins is None:
            return waterlines.get(self.with_buckets[operator].stream)
        reached = [join.reached(waterlines) for join in joins]
        return None if None in reached else min(waterline for waterline in reached if waterline is not None)

    def is_needed(self, tuples: TupleBucket, waterlines: Mapping[str, int | None]) -> bool:
        """Return whether some join over windows can still make rows of tuples."""
        operator = self.with_buckets.get(tuples.operator)
        if operator is None:
            return False
        reached = self.reached(tuples.operator, waterlines)
        windows = [window for window, _ in operator.windows]
        last = tuples.span[1]
        return reached is None or bool(is_needed(np.array([[last - 1, last]]), windows, reached).any())

    def predicate_of(self, query: LiveQuery) -> Predicate:
        """Return the query's predicate, analysed once."""
        predicate = self._predicates.get(query.id)
        if predicate is None:
            predicate = self._predicates[query.id] = analyse(query.where)
        return predicate
