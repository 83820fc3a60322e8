"""What queries and operators cost, measured: the time of operators, in equal parts for all that share them.

How many tuples a query selects does not matter for that: a tuple is looked up in the predicate index and added to a
cell of its space once, whoever wants it. What a new query would add is estimated from the same numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from braid.operators.expressions import Expression
from braid.operators.kinds import operator_of, source_operators
from braid.operators.queries import Query
from braid.operators.report import index_of
from braid.optimizer.plan import Operator, Plan
from braid.optimizer.statistics import Statistics

NEW_OPERATOR_SECONDS_A_TUPLE = 100e-9
"""What source tasks take for a tuple in an operator that does not run yet: about what a thousand aggregations take."""


def query_statistics(
    plan: Plan, statistics: Statistics, query: Query, streams: Mapping[str, str], query_id: str | None
) -> dict[str, Any]:
    """Return what is known of a query: what comes, what it selects of that, and what of the work is its own.

    ``streams`` maps the ids of its streams to names. ``cores`` are seconds a second, None for a query that does not
    run, and ``cost_share`` their part of what all operators take.
    """
    selectivities = {name: statistics.selectivity(source, where) for name, source, where in _predicates(query, streams)}
    operator = plan.operators.get(operator_of(query))
    cores = None
    if operator is not None and query_id in operator.queries:
        cores = Costs(plan, statistics).cores(query)
    all_cores = statistics.all_cores()
    return {
        "tuples_per_second": {
            streams[stream]: rounded(statistics.tuples_per_second(stream)) for stream in dict.fromkeys(query.streams)
        },
        "selectivity": {
            name: None if selectivity is None else rounded(selectivity.share)
            for name, selectivity in selectivities.items()
        },
        "sampled_tuples": {
            name: 0 if selectivity is None else selectivity.sampled for name, selectivity in selectivities.items()
        },
        "cores": None if cores is None else rounded(cores),
        "cost_share": None if cores is None or not all_cores else rounded(cores / all_cores),
    }


def cost_shares(plan: Plan, statistics: Statistics, queries: Mapping[str, Query]) -> dict[str, float]:
    """Return the ``cost_share`` of each of some queries, given by their ids, that run; none before one is known."""
    all_cores = statistics.all_cores()
    if not all_cores:
        return {}
    costs = Costs(plan, statistics)
    candidates = ((query_id, query, plan.operators.get(operator_of(query))) for query_id, query in queries.items())
    return {
        query_id: costs.cores(query) / all_cores
        for query_id, query, operator in candidates
        if operator is not None and query_id in operator.queries
    }


def operator_statistics(statistics: Statistics, operator: Operator) -> dict[str, Any]:
    """Return how many cores an operator keeps busy, in source tasks and partitions, and how many keys it has."""
    return {
        "source_cores": rounded(statistics.source_cores(operator.sources)),
        "partition_cores": rounded(statistics.partition_cores([operator.id])),
        "distinct_keys": statistics.distinct_keys(operator.sources),
    }


class Costs:
    """What the queries of a plan take as it is now; many of them cost little more than one."""

    def __init__(self, plan: Plan, statistics: Statistics) -> None:
        self._plan = plan
        self._statistics = statistics
        self._sources: dict[str, float] = {}

    def cores(self, query: Query) -> float:
        """Return the cores that a query in the plan takes: its part of everything that it needs."""
        operator = self._plan.operators[operator_of(query)]
        return (
            self._partition_cores(operator)
            + sum(map(self._source_cores, source_operators(query)))
            + self._index_cores(operator)
        )

    def added_cores(self, query: Query) -> float:
        """Estimate the cores that a new query would add.

        Source tasks do for it what they do anyway where its operators run already; partitions do as much as for another
        query of its operator.
        """
        operator = self._plan.operators.get(operator_of(query))
        sources = source_operators(query)
        new_sources = [
            name for name in sources if not any(running.sources[name] for running in self._plan.operators.values())
        ]
        tuples = sum(map(self._statistics.tuples_per_second, query.streams))
        scan_cores = tuples * NEW_OPERATOR_SECONDS_A_TUPLE * len(new_sources) / len(sources)
        return scan_cores + (0.0 if operator is None else self._partition_cores(operator))

    def _partition_cores(self, operator: Operator) -> float:
        return self._statistics.partition_cores([operator.id]) / len(operator.queries)

    def _source_cores(self, name: str) -> float:
        if name not in self._sources:
            self._sources[name] = self._statistics.source_cores([name]) / self._users[name]
        return self._sources[name]

    def _index_cores(self, operator: Operator) -> float:
        return sum(self._source_cores(index_of(name)) for name in operator.inputs)

    @cached_property
    def _users(self) -> Counter[str]:
        """How many queries have each operator of source tasks and each predicate index."""
        users = Counter[str]()
        for operator in self._plan.operators.values():
            users.update(operator.sources)
            users.update({index_of(name): len(operator.queries) for name in operator.inputs})
        return users


def _predicates(query: Query, streams: Mapping[str, str]) -> list[tuple[str, str, Expression | None]]:
    """Return for each input the name that people see, what tells it from others, and what the query asks of it."""
    return [(source.alias or streams[source.stream], source.input, source.where) for source in query.inputs]


def rounded(number: float) -> float:
    """Return three digits of a number: measurements have no more."""
    return float(f"{number:.3g}")
