"""Orders of joins: trees are found whatever the order of FROM, and else the order is the best there is by estimate."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.join_order import _combinations, _distinct, join_order, parents_of
from operators.relations import Relation


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
    assert join_order([relation(3, *mine) for mine in attributes]) == order


@given(st.integers(0, 2**32))
def test_a_random_tree_is_joined_as_one(seed: int) -> None:
    """Every relation but the first has an attribute of its own with an earlier one; then they are shuffled."""
    rng = random.Random(seed)
    attributes: list[set[int]] = [set()]
    for number in range(1, rng.randint(2, 8)):
        attributes.append({number})
        attributes[rng.randrange(number)].add(number)
    rng.shuffle(attributes)
    order = join_order([relation(3, *mine) for mine in attributes])
    assert sorted(order) == list(range(len(attributes)))
    for place, number in enumerate(order[1:], 1):
        before = {other: attributes[other] for other in order[:place]}
        assert len(set(parents_of(attributes[number], before).values())) == 1


@given(st.integers(0, 2**32))
def test_the_order_is_the_best_of_all_where_combinations_are_formed(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(3, 5)
    attributes = [rng.sample(range(4), 2) for _ in range(count)]
    relations = [
        Relation(rows, {a: np.array([rng.randrange(1 + rows // 2) for _ in range(rows)]) for a in mine})
        for mine in attributes
        for rows in [rng.choice([2, 10, 50])]
    ]
    order = join_order(relations)
    before = [{n: attributes[n] for n in order[:place]} for place in range(count)]
    if all(len(set(parents_of(attributes[n], b).values())) == 1 for n, b in zip(order[1:], before[1:], strict=True)):
        return  # a tree: nothing is formed
    rows = {n: each.rows for n, each in enumerate(relations)}
    distinct = {n: {a: _distinct(codes) for a, codes in each.codes.items()} for n, each in enumerate(relations)}

    def formed(candidate: tuple[int, ...]) -> float:
        return sum(_combinations(candidate[:size], rows, distinct) for size in range(2, count + 1))

    best = min(formed(candidate) for candidate in itertools.permutations(range(count)))
    assert formed(tuple(order)) == pytest.approx(best)


def test_outer_relations_come_last_in_their_order() -> None:
    relations = [
        relation(3, 0),
        relation(3, 0, outer_of=(0,)),
        relation(3, 1),
        relation(3, 0, 1),
        relation(3, 1, outer_of=(2,)),
    ]
    assert join_order(relations) == [0, 3, 2, 1, 4]


def test_null_is_no_value_and_estimates_do_not_divide_by_nothing() -> None:
    assert _distinct(np.array([-1, 3, 3, 5])) == 2
    assert _distinct(np.array([-1, -1])) == 1
    assert _combinations([0, 1], {0: 6, 1: 4}, {0: {7: 3}, 1: {7: 2}}) == 6 * 4 / 3
