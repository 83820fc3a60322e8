"""What queries and operators cost, measured: the time of operators, in equal parts for all that share them.

How many tuples a query selects does not matter for that: a tuple is looked up in the predicate index and added to a
cell once, whoever wants it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from operators.expressions import Expression
from operators.queries import Join, Query
from operators.report import index_of
from optimizer.optimizer import operator_of
from optimizer.plan import Operator, Plan, source_operators
from optimizer.statistics import Statistics


def query_statistics(
    plan: Plan, statistics: Statistics, query: Query, streams: Mapping[str, str], query_id: str | None
) -> dict[str, Any]:
    """Return what is known of a query: what comes, what it selects of that, and what of the work is its own.

    ``streams`` maps the ids of its streams to names. ``cores`` are seconds a second, None for a query that does not
    run, and ``cost_share`` their part of what all operators take.
    """
    known = {name: statistics.selectivity(source, where) for name, source, where in _predicates(query, streams)}
    operator = plan.operators.get(operator_of(query))
    cores = None
    if operator is not None and query_id in operator.queries:
        cores = _cores(plan, statistics, query, operator)
    everything = statistics.all_cores()
    return {
        "tuples_per_second": {
            streams[s]: _rounded(statistics.tuples_per_second(s)) for s in dict.fromkeys(query.streams)
        },
        "selectivity": {name: None if found is None else _rounded(found.share) for name, found in known.items()},
        "sampled_tuples": {name: 0 if found is None else found.sampled for name, found in known.items()},
        "cores": None if cores is None else _rounded(cores),
        "cost_share": None if cores is None or not everything else _rounded(cores / everything),
    }


def operator_statistics(statistics: Statistics, operator: Operator) -> dict[str, Any]:
    """Return how many cores an operator keeps busy, in source tasks and in lanes, and how many distinct keys it has."""
    return {
        "source_cores": _rounded(statistics.source_cores(operator.sources)),
        "lane_cores": _rounded(statistics.lane_cores([operator.id])),
        "distinct_keys": statistics.distinct_keys(operator.sources),
    }


def _cores(plan: Plan, statistics: Statistics, query: Query, operator: Operator) -> float:
    """Return what one of its queries takes of everything that it needs."""
    found = statistics.lane_cores([operator.id]) / len(operator.queries)
    for name in source_operators(query):
        users = sum(each.sources[name] for each in plan.operators.values())
        found += statistics.source_cores([name]) / users
    for name in operator.inputs:
        users = sum(len(each.queries) for each in plan.operators.values() if name in each.inputs)
        found += statistics.source_cores([index_of(name)]) / users
    return found


def _predicates(query: Query, streams: Mapping[str, str]) -> list[tuple[str, str, Expression | None]]:
    """Return for each input the name that people see, what tells it from others, and what the query asks of it."""
    if isinstance(query, Join):
        return [(each.alias, each.input, each.where) for each in query.inputs]
    return [(streams[query.streams[0]], query.input, query.where)]


def _rounded(number: float) -> float:
    """Return three digits of a number: measurements have no more."""
    return float(f"{number:.3g}")
