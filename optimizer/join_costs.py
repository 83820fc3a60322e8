"""In which order the inputs of a join are estimated to be joined, what that costs, and who could share it.

Partitions decide for each window, from the rows that it has (:mod:`braid.operators.joins.order`). The same decision is
made here for a window as it is to be expected now, from rates and samples, for people to see.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from braid.operators.joins.cost import JoinCost, join_graph
from braid.operators.joins.inputs import attributes_of
from braid.operators.joins.order import block_size, is_counted, join_order, written_order
from braid.operators.joins.query import Join
from braid.operators.kinds import operator_of
from braid.operators.queries import Query
from braid.optimizer.costs import rounded
from braid.optimizer.plan import Plan
from braid.optimizer.statistics import Statistics
from braid.optimizer.sub_joins import SubJoin, sub_join

_US = 1e6


@dataclass(frozen=True)
class InputEstimate:
    """What one input of a join has in a window: its tuples, and the distinct values of each attribute."""

    tuples: float
    distinct: Mapping[int, float]
    outer_of: tuple[int, ...] = ()

    @property
    def rows(self) -> float:
        """Its distinct keys: partitions have its tuples counted by key."""
        return min(self.tuples, math.prod(self.distinct.values()))

    @property
    def indexed(self) -> float:
        """Its tuples: each is counted by key."""
        return self.tuples

    @property
    def attributes(self) -> Collection[int]:
        """The attributes that it is compared by."""
        return self.distinct.keys()


class Sharing:
    """How many queries have a sub-join of one of them: those that run, and that one."""

    def __init__(self, plan: Plan, join: Join, query_id: str | None) -> None:
        self._join = join
        self._others = Counter[SubJoin]()
        inputs = {join_input.input for join_input in join.inputs}
        for operator in plan.operators.values():
            if operator.join is None or operator.join.has_sessions != join.has_sessions:
                continue
            if inputs & set(operator.inputs):
                other_queries = len(operator.queries) - (query_id in operator.queries)
                self._others.update(dict.fromkeys(operator.sub_joins, other_queries))

    def __call__(self, members: frozenset[int]) -> int:
        """Return the number of them that have what some inputs give, the divisor of its shared cost."""
        return 1 + self._others[sub_join(self._join, members)]


def explain_join_order(
    plan: Plan, statistics: Statistics, query: Query, query_id: str | None = None
) -> dict[str, Any] | None:
    """Return the estimated order of a join's inputs with its costs, None for what is no join of several inputs.

    ``steps`` has for each input after the first what is joined then, how many rows (combinations of keys) come out, the
    cost (:mod:`braid.operators.joins.cost`) for the query by itself, and, divided by ``shared_by``, what would be its
    part if all queries with the same sub-join shared it. ``cost`` is that of all steps alone, the thesis's MinShared,
    and ``max_shared`` the order and cost if all is shared that could be. Where too little is known of an input for an
    estimate, numbers are None, ``why`` names it, and the order is that of inputs of the same size.
    """
    if not isinstance(query, Join) or len(query.inputs) < 2:
        return None
    estimates = [estimate_input(statistics, query, number) for number in range(len(query.inputs))]
    known_estimates = [estimate for estimate in estimates if estimate is not None]
    unknown = [number for number, estimate in enumerate(estimates) if estimate is None]
    inputs = known_estimates if not unknown else [_one_tuple(query, number) for number in range(len(query.inputs))]
    shared_by = Sharing(plan, query, query_id)
    if query.is_reordered:
        order, shared_order = join_order(inputs), join_order(inputs, shared_by)
    else:
        order = shared_order = written_order(inputs)
    steps, shared_steps = (_steps(query, inputs, numbers, shared_by) for numbers in (order, shared_order))
    operator = operator_of(query)

    def figure(number: float) -> float | None:
        return None if unknown else rounded(number)

    return {
        "order": _aliases(query, order),
        "combinations": "counted" if is_counted(inputs, order) else "formed",
        "inputs": [_input_json(query, number, estimates[number]) for number in order],
        "steps": [
            {
                "joined": _aliases(query, order[: place + 1]),
                "rows": figure(step.rows),
                "cost": figure(step.cost),
                "shared_by": step.shared_by,
                "shared_cost": figure(step.cost / step.shared_by),
            }
            for place, step in enumerate(steps, 1)
        ],
        "cost": figure(sum(step.cost for step in steps)),
        "max_shared": {
            "order": _aliases(query, shared_order),
            "cost": figure(sum(step.cost / step.shared_by for step in shared_steps)),
        },
        "partition_cores": rounded(statistics.partition_cores([operator])) if operator in plan.operators else None,
        "why": _why(query, inputs, order, unknown),
    }


def estimate_input(statistics: Statistics, join: Join, number: int) -> InputEstimate | None:
    """Return what an input of a join has in a window, None while too little is known.

    Tuples are those that come a second, times the part that its predicate selects, times the size of the window.
    """
    join_input = join.inputs[number]
    rate = statistics.tuples_per_second(join_input.stream)
    selectivity = statistics.selectivity(join_input.input, join_input.where)
    if not join.window.longest_us or not rate or selectivity is None:
        return None
    tuples = rate * selectivity.share * join.window.longest_us / _US
    distinct = {}
    for attribute, key in enumerate(join_input.keys):
        if key is not None:
            count = statistics.distinct_values(join_input.input, join_input.where, key, tuples)
            if count is None:
                return None
            distinct[attribute] = count
    return InputEstimate(tuples, distinct, join_input.outer_of)


@dataclass(frozen=True)
class _Step:
    """A step of an order: the combinations that come out, what it costs, and how many queries have the sub-join."""

    rows: float
    cost: float
    shared_by: int


def _steps(join: Join, inputs: Sequence[InputEstimate], order: Sequence[int], shared_by: Sharing) -> list[_Step]:
    """Return the steps of an order; what is only counted is formed in the last one, where conditions test rows."""
    cost, is_only_counted = JoinCost(dict(enumerate(inputs))), is_counted(inputs, order)
    steps = []
    for place in range(1, len(order)):
        joined, number = frozenset(order[:place]), order[place]
        is_formed = not is_only_counted or (place == len(order) - 1 and not join.is_factorised)
        step_cost = cost.step(joined, number, is_formed)
        steps.append(_Step(cost.joined(joined, number).rows, step_cost, shared_by(joined | {number})))
    return steps


def _one_tuple(join: Join, number: int) -> InputEstimate:
    """Return an input of which nothing is known but what it is compared by."""
    return InputEstimate(1.0, dict.fromkeys(attributes_of(join)[number], 1.0), join.inputs[number].outer_of)


def _input_json(join: Join, number: int, estimate: InputEstimate | None) -> dict[str, Any]:
    join_input = join.inputs[number]
    keys = {attribute: str(key) for attribute, key in enumerate(join_input.keys) if key is not None}
    return {
        "input": join_input.alias,
        "tuples": None if estimate is None else rounded(estimate.tuples),
        "distinct_keys": {
            key: None if estimate is None else rounded(estimate.distinct[attribute]) for attribute, key in keys.items()
        },
    }


def _aliases(join: Join, order: Sequence[int]) -> list[str]:
    return [join.inputs[number].alias for number in order]


def _why(join: Join, inputs: Sequence[InputEstimate], order: Sequence[int], unknown: Sequence[int]) -> str:
    if not join.is_reordered:
        why = (
            "Inputs are joined as they are written (setting join_orders), each when one before it is compared with it."
        )
    elif is_counted(inputs, order):
        why = "Each input is compared with one before it, so rows are counted by key and none is formed in between:"
        why += " any such order will do, and small inputs come first."
    else:
        why = "Inputs are compared in a circle, so combinations are formed: the order that costs least"
        graph = join_graph({number: inputs[number].attributes for number in order if not inputs[number].outer_of})
        blocks = block_size(graph)
        why += " of all." if blocks >= len(graph) else f", found in blocks of {blocks} inputs."
    if join.is_reordered:
        why += (
            " Partitions decide for each window, from its own rows, and each query pays for itself there (MinShared)."
        )
    if join.has_sessions:
        return f"{why} Costs are not known: it is not known beforehand how long sessions are."
    if unknown:
        names = " and ".join(_aliases(join, unknown))
        return f"{why} Costs are not known: too few rows of {names} have come lately, or no query reads their keys."
    return why
