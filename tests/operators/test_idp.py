"""IDP-1: a walk through its iterations, shared costs, and equality with exhaustive search where blocks are large."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.joins.idp import SubPlan, idp

Members = frozenset[str]

ROWS = {"A": 100, "B": 200, "C": 50, "D": 400, "E": 10}
# which part of all pairs is equal in what the two are compared by
SELECTIVITIES = {"AB": 1 / 100, "BC": 1 / 50, "CD": 1 / 100, "DE": 1 / 200}


def graph_of(pairs: Sequence[str], nodes: Sequence[str] = ()) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(pairs)
    return graph


def formed(members: Members, number: str) -> float:
    """Return how many combinations come out of a step."""
    relations = members | {number}
    rows = math.prod(ROWS[relation] for relation in relations)
    return rows * math.prod(part for pair, part in SELECTIVITIES.items() if relations.issuperset(pair))


def test_five_relations_with_blocks_of_three() -> None:
    """A chain A - B - C - D - E: what is formed of two of them is AB 200, BC 200, CD 200, DE 20.

    Of three it is ABC 200, BCD 800, CDE 10, each reached from that pair of theirs which gives less.
    """
    chain = graph_of(list(SELECTIVITIES), list(ROWS))
    first, second = idp(chain, formed, block_size=3)
    # the first iteration: D, E and C cost least, 20 + 10, while A, B and C cost 200 + 200. They become T
    assert first.order == ("D", "E", "C")
    assert first.cost == pytest.approx(20 + 10)
    # the second: T, B and A are three relations, T with B gives 10 · 200 / 50, and A to that 40 · 100 / 100
    assert second.order == ("D", "E", "C", "B", "A")
    assert second.cost == pytest.approx(20 + 10 + 40 + 40)
    # all orders at once find nothing better here
    (exhaustive,) = idp(chain, formed, block_size=5)
    assert exhaustive.cost == pytest.approx(second.cost)


def test_blocks_of_two_always_take_what_costs_least_next() -> None:
    plans = idp(graph_of(list(SELECTIVITIES), list(ROWS)), formed, block_size=2)
    assert [plan.order for plan in plans] == [tuple("DECBA"[:size]) for size in (2, 3, 4, 5)]
    assert [plan.cost for plan in plans] == pytest.approx([20, 30, 70, 110])


def test_a_block_may_be_a_trap() -> None:
    """The cheapest pair is where everything else has to be joined to: what small blocks cost."""
    costs = {"AB": 1.0, "BC": 2.0, "ABC": 100.0, "BCD": 3.0, "ABCD": 4.0}

    def cost(members: Members, node: str) -> float:
        return costs.get("".join(sorted(members | {node})), 1000.0)

    line = graph_of(["AB", "BC", "CD"], "ABCD")
    assert idp(line, cost, block_size=2)[-1] == SubPlan(("A", "B", "C", "D"), 1.0 + 100.0 + 4.0)
    assert idp(line, cost, block_size=4) == [SubPlan(("B", "C", "D", "A"), 2.0 + 3.0 + 4.0)]


# thesis figure 5.9: which queries have a sub-join, group by group
GROUPS = {
    "VW": [{"Q1", "Q2", "Q7"}, {"Q5", "Q6"}],
    "CW": [{"Q2", "Q3"}, {"Q4", "Q6"}],
    "CVW": [{"Q2"}, {"Q6"}],
    "CR": [{"Q3"}],
    "CRW": [{"Q3"}],
}
CARDINALITIES = {"VW": 240.0, "CW": 200.0, "CR": 400.0, "CVW": 60.0, "CRW": 90.0}
JOIN_GRAPHS = {"Q1": ["VW"], "Q2": ["VW", "WC"], "Q3": ["WC", "CR"], "Q6": ["VW", "WC"]}


def cardinality(members: Members, node: str) -> float:
    return CARDINALITIES["".join(sorted(members | {node}))]


def plan_of(query: str, but: Sequence[tuple[str, str]] = ()) -> list[SubPlan[str]]:
    """Return the iterations for a query whose sub-joins are shared in its groups.

    ``but`` are queries and sub-joins of theirs that they no longer have, since they were given another plan.
    """

    def shared_by(members: Members) -> int:
        name = "".join(sorted(members))
        group = next(queries for queries in GROUPS[name] if query in queries)
        return len([member for member in group if (member, name) not in but])

    return idp(graph_of(JOIN_GRAPHS[query]), cardinality, 2, shared_by)


def test_separate_queries_pay_for_themselves() -> None:
    """MinShared: each query has the order that is best for it alone."""
    plans = idp(graph_of(JOIN_GRAPHS["Q2"]), cardinality, 2)
    assert plans == [SubPlan(("W", "C"), 200.0), SubPlan(("W", "C", "V"), 200.0 + 60.0)]


def test_queries_of_a_group_pay_a_part_each() -> None:
    """MaxShared: V ⋈ W is shared by Q1, Q2 and Q7, for all of which it costs the same, so it comes first in Q2."""
    first, second = plan_of("Q2")
    assert first == SubPlan(("V", "W"), 240.0 / 3)
    assert plan_of("Q1") == [first]
    # Q6 has (V ⋈ W) ⋈ C, too, but in another group: nothing of it is shared
    assert second == SubPlan(("V", "W", "C"), 240.0 / 3 + 60.0)
    assert plan_of("Q6")[0] == SubPlan(("W", "C"), 200.0 / 2)


def test_what_another_query_does_not_have_any_more_is_not_shared() -> None:
    """Once Q2 has been given (V ⋈ W) ⋈ C, Q3 pays for W ⋈ C alone."""
    assert plan_of("Q3")[0] == SubPlan(("W", "C"), 200.0 / 2)
    assert plan_of("Q3", but=[("Q2", "CW")])[0] == SubPlan(("W", "C"), 200.0)


@given(st.integers(0, 2**32))
def test_large_blocks_find_what_exhaustive_search_finds(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 6)
    graph = nx.gnp_random_graph(count, rng.choice([0.3, 0.6, 1.0]), seed=seed)
    costs = {
        (members, node): float(rng.randint(0, 99))
        for size in range(1, count)
        for members in map(frozenset, itertools.combinations(range(count), size))
        for node in set(range(count)) - members
    }
    sharing = {members | {node}: rng.randint(1, 4) for members, node in costs}

    def cost_of(order: Sequence[int]) -> float:
        steps = [(frozenset(order[:place]), order[place]) for place in range(1, count)]
        return sum(costs[step] / sharing[step[0] | {step[1]}] for step in steps)

    def may_be(order: Sequence[int]) -> bool:
        """Return whether each relation has an edge to one before it, or no other has one either."""
        for place in range(1, count):
            near = {node for earlier in order[:place] for node in graph.adj[earlier]} - set(order[:place])
            if near and order[place] not in near:
                return False
        return True

    best = min(cost_of(order) for order in itertools.permutations(range(count)) if may_be(order))
    (plan,) = idp(graph, lambda m, n: costs[m, n], max(2, count + rng.randint(0, 1)), sharing.__getitem__)
    assert plan.cost == pytest.approx(best) == pytest.approx(cost_of(plan.order))
    assert may_be(plan.order)
    blocks = idp(graph, lambda m, n: costs[m, n], rng.randint(2, 6), sharing.__getitem__)
    assert may_be(blocks[-1].order)
    assert sorted(blocks[-1].order) == list(range(count))
    assert blocks[-1].cost == pytest.approx(cost_of(blocks[-1].order))
    assert blocks[-1].cost >= best - 1e-9


def test_a_block_has_two_relations_at_least() -> None:
    with pytest.raises(ValueError, match="got 1"):
        idp(graph_of(["AB"]), formed, block_size=1)
