"""In which order the inputs of a join are estimated to be joined, what that costs, and who could share it.

Lanes decide for each window, from the rows that it has (:mod:`operators.joins.order`). The same decision is made here
for a window as it is to be expected now, from rates and samples, for people to see.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operators.joins.cost import JoinCost, join_graph
from operators.joins.order import block_size, is_counted, join_order, written_order
from operators.joins.parts import attributes_of
from operators.queries import Join, Query
from operators.windows import SessionWindow
from optimizer.costs import rounded
from optimizer.optimizer import operator_of
from optimizer.plan import Plan
from optimizer.statistics import Statistics
from optimizer.sub_joins import SubJoin, sub_join

_US = 1e6


@dataclass(frozen=True)
class InputEstimate:
    """What one input of a join has in a window: its tuples, and the distinct values of each attribute."""

    tuples: float
    distinct: Mapping[int, float]
    outer_of: tuple[int, ...] = ()

    @property
    def rows(self) -> float:
        """Its distinct keys: lanes have its tuples counted by key."""
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
        inputs = {each.input for each in join.inputs}
        for each in plan.operators.values():
            if each.join is not None and _is_sessions(each.join) == _is_sessions(join) and inputs & set(each.inputs):
                self._others.update(dict.fromkeys(each.sub_joins, len(each.queries) - (query_id in each.queries)))

    def __call__(self, members: frozenset[int]) -> int:
        """Return the number of them that have what some inputs give, the divisor of its shared cost."""
        return 1 + self._others[sub_join(self._join, members)]


def explain_join_order(
    plan: Plan, statistics: Statistics, query: Query, query_id: str | None = None
) -> dict[str, Any] | None:
    """Return the estimated order of a join's inputs with its costs, None for what is no join of several inputs.

    ``steps`` has for each input after the first what is joined then, how many rows (combinations of keys) come out, the
    cost (:mod:`operators.joins.cost`) for the query by itself, and, divided by ``shared_by``, what would be its part if
    all queries with the same sub-join shared it. ``cost`` is that of all steps alone, the thesis's MinShared, and
    ``max_shared`` the order and cost if all is shared that could be. Where too little is known of an input for an
    estimate, numbers are None, ``why`` names it, and the order is that of inputs of the same size.
    """
    if not isinstance(query, Join) or len(query.inputs) < 2:
        return None
    estimates = [estimate_input(statistics, query, number) for number in range(len(query.inputs))]
    known = [each for each in estimates if each is not None]
    is_known = len(known) == len(estimates)
    inputs = known if is_known else [_one_tuple(query, number) for number in range(len(query.inputs))]
    shared_by = Sharing(plan, query, query_id)
    if query.is_reordered:
        order, shared_order = join_order(inputs), join_order(inputs, shared_by)
    else:
        order = shared_order = written_order(inputs)
    steps, shared_steps = (_steps(query, inputs, each, shared_by) for each in (order, shared_order))
    operator = operator_of(query)

    def shown(number: float) -> float | None:
        return rounded(number) if is_known else None

    return {
        "order": _aliases(query, order),
        "combinations": "counted" if is_counted(inputs, order) else "formed",
        "inputs": [_input_json(query, number, estimates[number]) for number in order],
        "steps": [
            {
                "joined": _aliases(query, order[: place + 1]),
                "rows": shown(each.rows),
                "cost": shown(each.cost),
                "shared_by": each.shared_by,
                "shared_cost": shown(each.cost / each.shared_by),
            }
            for place, each in enumerate(steps, 1)
        ],
        "cost": shown(sum(each.cost for each in steps)),
        "max_shared": {
            "order": _aliases(query, shared_order),
            "cost": shown(sum(each.cost / each.shared_by for each in shared_steps)),
        },
        "lane_cores": rounded(statistics.lane_cores([operator])) if operator in plan.operators else None,
        "why": _why(query, inputs, order, [n for n, each in enumerate(estimates) if each is None]),
    }


def estimate_input(statistics: Statistics, join: Join, number: int) -> InputEstimate | None:
    """Return what an input of a join has in a window, None while too little is known.

    Tuples are those that come a second, times the part that its predicate selects, times the size of the window.
    """
    each = join.inputs[number]
    rate = statistics.tuples_per_second(each.stream)
    selected = statistics.selectivity(each.input, each.where)
    if isinstance(join.window, SessionWindow) or not rate or selected is None:
        return None
    tuples = rate * selected.share * join.window.size_us / _US
    distinct = {}
    for attribute, key in enumerate(each.keys):
        if key is not None:
            values = statistics.distinct_values(each.input, each.where, key, tuples)
            if values is None:
                return None
            distinct[attribute] = values
    return InputEstimate(tuples, distinct, each.outer_of)


@dataclass(frozen=True)
class _Step:
    """A step of an order: the combinations that come out, what it costs, and how many queries have the sub-join."""

    rows: float
    cost: float
    shared_by: int


def _steps(join: Join, inputs: Sequence[InputEstimate], order: Sequence[int], shared_by: Sharing) -> list[_Step]:
    """Return the steps of an order; what is only counted is formed in the last one, where conditions test rows."""
    cost, counted = JoinCost(dict(enumerate(inputs))), is_counted(inputs, order)
    found = []
    for place in range(1, len(order)):
        before, number = frozenset(order[:place]), order[place]
        is_formed = not counted or (place == len(order) - 1 and not join.is_factorised)
        step = cost.step(before, number, is_formed)
        found.append(_Step(cost.joined(before, number).rows, step, shared_by(before | {number})))
    return found


def _one_tuple(join: Join, number: int) -> InputEstimate:
    """Return an input of which nothing is known but what it is compared by."""
    return InputEstimate(1.0, dict.fromkeys(attributes_of(join)[number], 1.0), join.inputs[number].outer_of)


def _input_json(join: Join, number: int, known: InputEstimate | None) -> dict[str, Any]:
    each = join.inputs[number]
    keys = {attribute: str(key) for attribute, key in enumerate(each.keys) if key is not None}
    return {
        "input": each.alias,
        "tuples": None if known is None else rounded(known.tuples),
        "distinct_keys": {key: None if known is None else rounded(known.distinct[a]) for a, key in keys.items()},
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
        why += " Lanes decide for each window, from its own rows, and each query pays for itself there (MinShared)."
    if isinstance(join.window, SessionWindow):
        return f"{why} Costs are not known: it is not known beforehand how long sessions are."
    if unknown:
        names = " and ".join(_aliases(join, unknown))
        return f"{why} Costs are not known: too few tuples of {names} have come lately, or no query reads their keys."
    return why


def _is_sessions(join: Join) -> bool:
    return isinstance(join.window, SessionWindow)
