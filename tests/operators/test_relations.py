"""Equi-joins of codes against nested loops."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.joins.matches.relations import MANY, NO_ROW, JoinResult, Relation, Rows, TooManyCombinations


def random_relations(rng: random.Random) -> list[Relation]:
    relations: list[Relation] = []
    for number in range(rng.randint(1, 4)):
        rows = rng.choice([0, 1, 4, 7])
        attributes = sorted(rng.sample(range(3), rng.randint(1, 3)))
        codes = {a: np.array([rng.randint(-1, 2) for _ in range(rows)], dtype=np.int64) for a in attributes}
        shared = [n for n, earlier in enumerate(relations) if set(earlier.codes) & set(attributes)]
        outer = bool(shared) and rng.random() < 0.4
        outer_of = tuple(rng.sample(shared, rng.randint(1, len(shared)))) if outer else ()
        relations.append(Relation(rows, codes, outer_of, outer and rng.random() < 0.3))
        assert number or not outer
    return relations


def matches(relations: list[Relation], number: int, row: int, joined: tuple[int, ...]) -> bool:
    """Return whether a row of a relation belongs to rows of those before it."""
    relation = relations[number]
    for attribute, codes in relation.codes.items():
        for other in relation.outer_of or range(number):
            earlier = relations[other]
            if attribute not in earlier.codes or (earlier.outer_of and not relation.outer_of):
                continue
            value = -1 if joined[other] == NO_ROW else int(earlier.codes[attribute][joined[other]])
            if value == -1 or codes[row] != value:
                return False
            if not relation.outer_of:
                break  # what was joined before is equal
    return True


def by_loops(relations: list[Relation]) -> list[tuple[int, ...]]:
    joined: list[tuple[int, ...]] = [(row,) for row in range(relations[0].rows)]
    for number in range(1, len(relations)):
        wider = []
        for rows in joined:
            partners = [row for row in range(relations[number].rows) if matches(relations, number, row, rows)]
            if relations[number].outer_of:
                partners = [NO_ROW] * (not partners) if relations[number].anti else partners or [NO_ROW]
            wider += [(*rows, row) for row in partners]
        joined = wider
    return joined


def random_weights(rng: random.Random, relations: list[Relation]) -> list[Rows]:
    return [np.array([rng.randint(1, 3) for _ in range(relation.rows)], dtype=np.int64) for relation in relations]


def weighed_by_loops(relations: list[Relation], weights: list[Rows], result: JoinResult) -> list[tuple[int, ...]]:
    """Return the members of each relation in all joined rows, in order."""
    members = [np.split(np.arange(weight.sum()), np.cumsum(weight)[:-1]) for weight in weights]
    place = np.argsort(result.order)
    all_members: list[tuple[int, ...]] = []
    for rows in in_order(by_loops(relations), result):
        combined = itertools.product(*([NO_ROW] if rows[n] == NO_ROW else members[n][rows[n]] for n in result.order))
        all_members += (tuple(int(row[at]) for at in place) for row in combined)
    return all_members


def in_order(joined: list[tuple[int, ...]], result: JoinResult) -> list[tuple[int, ...]]:
    """Return rows in the order in which the relations are joined."""
    assert sorted(result.order) == list(range(len(result.order)))
    return sorted(joined, key=lambda rows: [rows[number] for number in result.order])


@given(st.integers(0, 2**32))
def test_combinations_are_those_of_nested_loops(seed: int) -> None:
    rng = random.Random(seed)
    relations = random_relations(rng)
    result = JoinResult(relations, random_weights(rng, relations))
    expected = in_order(by_loops(relations), result)
    assert list(zip(*(rows.tolist() for rows in result.combinations()), strict=True)) == expected
    for number, mask in enumerate(result.taking_part):
        assert set(np.flatnonzero(mask).tolist()) >= {rows[number] for rows in expected} - {NO_ROW}
        if not any(relation.anti for relation in relations):
            assert set(np.flatnonzero(mask).tolist()) == {rows[number] for rows in expected} - {NO_ROW}


@given(st.integers(0, 2**32))
def test_rows_that_take_no_part_may_be_left_out_or_not(seed: int) -> None:
    rng = random.Random(seed)
    relations = random_relations(rng)
    result = JoinResult(relations, ones(relations))
    kept_rows = [np.flatnonzero([part or rng.random() < 0.5 for part in mask]) for mask in result.taking_part]
    fewer = [
        replace(relation, rows=len(rows), codes={a: codes[rows] for a, codes in relation.codes.items()})
        for relation, rows in zip(relations, kept_rows, strict=True)
    ]
    combinations = JoinResult(fewer, ones(fewer)).combinations()
    mapped = [
        np.where(at == NO_ROW, NO_ROW, np.append(rows, 0)[at]) for rows, at in zip(kept_rows, combinations, strict=True)
    ]
    expected = zip(*(rows.tolist() for rows in result.combinations()), strict=True)
    assert sorted(zip(*(rows.tolist() for rows in mapped), strict=True)) == sorted(expected)


@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(0, 40))
def test_a_page_is_a_stretch_of_all_rows(seed: int, first: int, count: int) -> None:
    rng = random.Random(seed)
    relations = random_relations(rng)
    weights = random_weights(rng, relations)
    result = JoinResult(relations, weights)
    expected = weighed_by_loops(relations, weights, result)
    assert result.total == len(expected)
    leader = result.order[0]
    ends = np.cumsum(weights[leader])
    leading = [int(np.searchsorted(ends, members[leader], side="right")) for members in expected]
    assert result.counts.tolist() == [leading.count(row) for row in range(relations[leader].rows)]
    page = zip(*(members.tolist() for members in result.page(first, count)), strict=True)
    assert list(page) == expected[first : first + count]


def relation(rows: int, *attributes: int) -> Relation:
    """Return a relation whose rows all have the same values."""
    return Relation(rows, {a: np.zeros(rows, dtype=np.int64) for a in attributes})


def ones(relations: list[Relation]) -> list[Rows]:
    return [np.ones(relation.rows, dtype=np.int64) for relation in relations]


def test_of_more_rows_than_can_be_counted_the_first_are_there() -> None:
    relations = [relation(100_000, 0, 1), *(relation(100_000, n) for n in (0, 0, 1, 1))]
    result = JoinResult(relations, ones(relations))
    assert result.total >= MANY
    assert [rows.tolist() for rows in result.page(150_000, 3)] == [
        [0] * 3,
        [0] * 3,
        [0] * 3,
        [1] * 3,
        [50_000, 50_001, 50_002],
    ]
    with pytest.raises(TooManyCombinations, match=f"more than {MANY}"):
        result.combinations()


def test_too_many_combinations_are_refused_before_they_are_formed() -> None:
    relations = [relation(10_000, 0, 1), relation(10_000, 0, 2), relation(10, 1, 2)]
    with pytest.raises(TooManyCombinations, match="1000000000 combinations"):
        JoinResult(relations, ones(relations))


def test_relations_are_not_joined_in_an_order_that_forms_too_many() -> None:
    """Two of a triangle have few values in common, all others many."""
    numbers = np.arange(10_000, dtype=np.int64)
    few = {0: numbers % 2, 1: numbers}
    relations = [
        Relation(10_000, few),
        Relation(10_000, {0: numbers % 2, 2: numbers}),
        Relation(10, {1: numbers[:10], 2: numbers[:10]}),
    ]
    result = JoinResult(relations, ones(relations))
    assert result.order[0] == 2 or result.order[1] == 2
    assert [rows.tolist() for rows in result.combinations()] == [list(range(10))] * 3


def test_a_chain_is_counted_in_whatever_order_it_is_given() -> None:
    numbers = np.arange(10_000, dtype=np.int64)
    ends = [Relation(10_000, {0: numbers}), Relation(10_000, {1: numbers})]
    result = JoinResult([*ends, Relation(10_000, {0: numbers, 1: numbers})], [np.full(10_000, 3)] * 3)
    assert list(result.order) == [0, 2, 1]
    assert result.total == 270_000
    assert [rows.tolist() for rows in result.page(27 * 7, 1)] == [[21]] * 3


@given(st.lists(st.integers(-1, 2**40), min_size=1, max_size=5), st.integers(0, 2**32))
def test_codes_of_many_attributes_stay_apart(values: list[int], seed: int) -> None:
    rng = random.Random(seed)
    sides = [[[rng.choice(values) for _ in range(3)] for _ in range(4)] for _ in range(2)]
    relations = [Relation(4, {a: np.array([row[a] for row in side]) for a in range(3)}) for side in sides]
    combinations = JoinResult(relations, ones(relations)).combinations()
    assert list(zip(*(rows.tolist() for rows in combinations), strict=True)) == by_loops(relations)
