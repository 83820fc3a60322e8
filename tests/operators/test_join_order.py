"""Orders of joins: trees are found whatever the order of FROM, and else the order is the best there is by estimate."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.joins.cost import JoinCost, join_graph
from braid.operators.joins.idp import SubPlan
from braid.operators.joins.matches.relations import Relation
from braid.operators.joins.order import (
    BLOCK_SIZE,
    MAX_EXHAUSTIVE,
    block_size,
    is_counted,
    join_order,
    parents_of,
    written_order,
)


def relation(rows: int, *attributes: int, outer_of: tuple[int, ...] = ()) -> Relation:
    return Relation(rows, {a: np.arange(rows, dtype=np.int64) for a in attributes}, outer_of)


@pytest.mark.parametrize(
    ("attributes", "order"),
    [
        ([(0,), (0, 1), (1,)], [0, 1, 2]),
        ([(0,), (1,), (0, 1)], [0, 2, 1]),
        ([(0,), (1,), (2,), (0, 1, 2)], [0, 3, 1, 2]),
        ([(2,), (0,), (0, 1), (1, 2)], [0, 3, 2, 1]),
        ([(0, 1), (0, 1), (0,)], [0, 1, 2]),
    ],
)
def test_each_relation_of_a_tree_is_compared_with_one_before_it(
    attributes: list[tuple[int, ...]], order: list[int]
) -> None:
    assert join_order([relation(3, *names) for names in attributes]) == order


@given(st.integers(0, 2**32))
def test_a_random_tree_is_joined_as_one(seed: int) -> None:
    """Every relation but the first has an attribute of its own with an earlier one; then they are shuffled."""
    rng = random.Random(seed)
    attributes: list[set[int]] = [set()]
    for number in range(1, rng.randint(2, 8)):
        attributes.append({number})
        attributes[rng.randrange(number)].add(number)
    rng.shuffle(attributes)
    order = join_order([relation(3, *names) for names in attributes])
    assert sorted(order) == list(range(len(attributes)))
    for place, number in enumerate(order[1:], 1):
        before = {other: attributes[other] for other in order[:place]}
        assert len(set(parents_of(attributes[number], before).values())) == 1


@given(st.integers(0, 2**32))
def test_the_order_is_the_best_of_all_where_combinations_are_formed(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(3, 5)
    relations = [
        Relation(
            rows, {a: np.array([rng.randrange(1 + rows // 2) for _ in range(rows)]) for a in rng.sample(range(4), 2)}
        )
        for rows in (rng.choice([2, 10, 50]) for _ in range(count))
    ]
    order = join_order(relations)
    if is_counted(relations, order):
        return  # nothing is formed
    cost = JoinCost(dict(enumerate(relations)))
    best = min(plan.cost for plan in orders(relations))
    assert sum(cost.step(frozenset(order[:place]), order[place]) for place in range(1, count)) == pytest.approx(best)


def orders(relations: list[Relation]) -> Iterator[SubPlan[int]]:
    """Yield all left-deep orders in which no product is formed that need not be."""
    graph = join_graph({number: relation.attributes for number, relation in enumerate(relations)})
    cost = JoinCost(dict(enumerate(relations)))
    for order in itertools.permutations(range(len(relations))):
        total = 0.0
        for place in range(1, len(order)):
            before = frozenset(order[:place])
            near = {other for member in before for other in graph.adj[member]} - before
            if near and order[place] not in near:
                break
            total += cost.step(before, order[place])
        else:
            yield SubPlan(order, total)


@pytest.mark.parametrize("count", [MAX_EXHAUSTIVE, 10])
def test_a_circle_of_many_relations_is_joined_along_it(count: int) -> None:
    rng = np.random.default_rng(count)
    circle = [
        Relation(20 + 10 * n, {a: rng.integers(0, 20, 20 + 10 * n) for a in (n, (n + 1) % count)}) for n in range(count)
    ]
    order = join_order(circle)
    assert sorted(order) == list(range(count))
    for place, number in enumerate(order[1:], 1):
        assert {(number - 1) % count, (number + 1) % count} & set(order[:place])
    assert not is_counted(circle, order)


@pytest.mark.parametrize(
    ("graph", "size"),
    [
        (nx.complete_graph(2), 2),
        (nx.complete_graph(MAX_EXHAUSTIVE), MAX_EXHAUSTIVE),
        (nx.cycle_graph(10), 10),
        (nx.circulant_graph(10, [1, 2]), BLOCK_SIZE),
        (nx.complete_graph(10), BLOCK_SIZE),
    ],
)
def test_blocks_are_for_many_relations_of_which_most_are_compared(graph: nx.Graph, size: int) -> None:
    assert block_size(graph) == size


def test_a_sub_join_that_others_share_comes_first() -> None:
    triangle = [relation(rows, n, (n + 1) % 3) for n, rows in enumerate([10, 20, 30])]
    assert 0 in join_order(triangle)[:2]
    assert set(join_order(triangle, lambda members: 9 if members == {1, 2} else 1)[:2]) == {1, 2}


def test_outer_relations_come_last_in_their_order() -> None:
    relations = [
        relation(3, 0),
        relation(3, 0, outer_of=(0,)),
        relation(3, 1),
        relation(3, 0, 1),
        relation(3, 1, outer_of=(2,)),
    ]
    assert join_order(relations) == [0, 3, 2, 1, 4]


def test_the_written_order_puts_off_what_nothing_before_is_compared_with() -> None:
    assert written_order([relation(rows, n, (n + 1) % 3) for n, rows in enumerate([30, 20, 10])]) == [0, 1, 2]
    ends_first = [relation(9, 0), relation(1, 0, outer_of=(0,)), relation(3, 1), relation(1, 0, 1)]
    assert written_order(ends_first) == [0, 3, 2, 1]


def test_rows_are_counted_where_each_relation_is_compared_with_one_before_it() -> None:
    chain = [relation(3, 0), relation(3, 0, 1), relation(3, 1)]
    assert is_counted(chain, [0, 1, 2])
    assert not is_counted(chain, [0, 2, 1])
    assert not is_counted([*chain[:2], relation(3, 0, 1, outer_of=(0, 1))], [0, 1, 2])
    assert is_counted([*chain[:2], relation(3, 1, outer_of=(0, 1))], [0, 1, 2])


def test_null_is_no_value_and_estimates_do_not_divide_by_nothing() -> None:
    assert Relation(4, {2: np.array([-1, 3, 3, 5]), 3: np.array([-1, -1])}).distinct == {2: 2, 3: 1}
