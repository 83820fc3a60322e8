"""Iterative dynamic programming over a join graph: IDP-1 of Kossmann and Stocker (2000), as thesis 5.4.2 uses it.

The nodes of a join graph are relations; an edge is between those that may be joined with each other directly. Plans are
left-deep, an order in which each relation is joined with all that come before it: that is what
:mod:`braid.operators.joins.matches.relations` carries out, so bushy ones are not looked at.

Each iteration finds the cheapest plan of every set of ``block_size`` relations from those of the smaller sets (dynamic
programming), chooses the set whose plan costs least, and replaces it by a compound relation, of which the next
iteration knows nothing but that it is one. In a left-deep plan that is the first one. Where there are no more relations
than ``block_size``, one iteration has looked at all plans, and the best of them is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import networkx as nx

N = TypeVar("N")
StepCost = Callable[[frozenset[N], N], float]
"""What it costs to join a relation with those that have been joined before."""
SharedBy = Callable[[frozenset[N]], int]
"""How many plans share the sub-plan of some relations, at least 1."""


@dataclass(frozen=True)
class SubPlan(Generic[N]):
    """Relations in the order in which they are joined, and the shared cost of that."""

    order: tuple[N, ...]
    cost: float


def unshared(_: frozenset[N]) -> int:
    """Share nothing (MinShared in thesis figure 5.9)."""
    return 1


def idp(
    graph: nx.Graph, step_cost: StepCost[N], block_size: int, shared_by: SharedBy[N] = unshared
) -> list[SubPlan[N]]:
    """Return the sub-plan chosen in each iteration; the last is the plan of all relations, of which there must be some.

    The shared cost of a step is its cost divided by how many plans share what comes out of it (thesis 5.4.2). A
    relation without an edge to those before it follows only where no other has one. Of equal costs the first found
    holds, in the order of the graph's nodes.
    """
    if block_size < 2:
        raise ValueError(f"A block must have at least 2 relations; got {block_size!r}.")
    sub_plans: list[SubPlan[N]] = []
    plans = {frozenset([node]): SubPlan((node,), 0.0) for node in graph}
    while not sub_plans or len(sub_plans[-1].order) < len(graph):
        for _ in range(block_size - 1):
            plans = _wider(graph, plans, step_cost, shared_by) or plans
        sub_plans.append(min(plans.values(), key=lambda plan: plan.cost))
        plans = {frozenset(sub_plans[-1].order): sub_plans[-1]}
    return sub_plans


def _wider(
    graph: nx.Graph, plans: dict[frozenset[N], SubPlan[N]], step_cost: StepCost[N], shared_by: SharedBy[N]
) -> dict[frozenset[N], SubPlan[N]]:
    """Return the cheapest plan of each set that has one relation more; nothing where there are no more."""
    wider: dict[frozenset[N], SubPlan[N]] = {}
    for members, plan in plans.items():
        for node in _next_to(graph, members):
            wider_members = members | {node}
            cost = plan.cost + step_cost(members, node) / shared_by(wider_members)
            if wider_members not in wider or cost < wider[wider_members].cost:
                wider[wider_members] = SubPlan((*plan.order, node), cost)
    return wider


def _next_to(graph: nx.Graph, members: frozenset[N]) -> Iterator[N]:
    """Return the relations that may follow: those with an edge to a member, or all others where there is none."""
    outside = [node for node in graph if node not in members]
    return iter([node for node in outside if not members.isdisjoint(graph.adj[node])] or outside)
