"""The cost of a join is that of thesis eq. 5.2, and estimates do not depend on the order."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.joins.cost import JoinCost, join_graph


@dataclass(frozen=True)
class Known:
    rows: float
    distinct: dict[int, float]
    outer_of: tuple[int, ...] = ()

    @property
    def indexed(self) -> float:
        return 10 * self.rows

    @property
    def attributes(self) -> set[int]:
        return set(self.distinct)


def test_the_cost_is_indexing_and_intersection_and_what_is_formed() -> None:
    cost = JoinCost({0: Known(60, {7: 30}), 1: Known(40, {7: 20, 8: 5}), 2: Known(4, {8: 4})})
    first = frozenset([0])
    assert cost.joined(first, 1).rows == 60 * 40 / 30
    # two leaves are indexed, and the fewer of their keys are looked up among the more
    assert cost.step(first, 1, is_formed=False) == 600 + 400 + 20
    assert cost.step(first, 1) == 600 + 400 + 20 + 80
    # what was joined is not indexed again
    assert cost.step(first | {1}, 2) == 40 + 4 + 80 * 4 / 5
    # nothing is compared: there is one key
    assert cost.step(first, 2) == 600 + 40 + 1 + 60 * 4


def test_keys_are_no_more_than_rows() -> None:
    cost = JoinCost({0: Known(6, {0: 5, 1: 4}), 1: Known(9, {0: 5, 1: 4})})
    assert cost.step(frozenset([0]), 1, is_formed=False) == 60 + 90 + 6


def test_rows_without_a_partner_in_an_outer_one_stay() -> None:
    cost = JoinCost({0: Known(10, {0: 10}), 1: Known(2, {0: 2}, (0,)), 2: Known(20, {0: 2}, (0,))})
    assert cost.joined(frozenset([0]), 1).rows == 10
    assert cost.joined(frozenset([0]), 2).rows == 100
    assert cost.step(frozenset([0]), 1) == 100 + 20 + 2 + 10


@given(st.integers(0, 2**32))
def test_what_relations_give_does_not_depend_on_their_order(seed: int) -> None:
    rng = random.Random(seed)
    relations = {
        n: Known(rng.randint(1, 99), {a: rng.randint(1, 9) for a in rng.sample(range(4), 2)}) for n in range(4)
    }
    rows_by_order = []
    for order in (list(relations), rng.sample(list(relations), 4)):
        cost, members = JoinCost(relations), frozenset(order[:1])
        for number in order[1:]:
            rows = cost.joined(members, number).rows
            members |= {number}
        rows_by_order.append(rows)
    assert rows_by_order[0] == pytest.approx(rows_by_order[1])


def test_relations_with_a_common_attribute_are_next_to_each_other() -> None:
    graph = join_graph({0: [0], 1: [0, 1], 2: [1], 3: [2]})
    assert list(graph) == [0, 1, 2, 3]
    assert sorted(graph.edges) == [(0, 1), (1, 2)]
