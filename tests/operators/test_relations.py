"""Equi-joins of codes against nested loops."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from operators.relations import NO_ROW, Relation, combine, row_counts


def random_relations(rng: random.Random) -> list[Relation]:
    relations: list[Relation] = []
    for number in range(rng.randint(1, 4)):
        rows = rng.choice([0, 1, 4, 7])
        attributes = sorted(rng.sample(range(3), rng.randint(1, 3)))
        codes = {a: np.array([rng.randint(-1, 2) for _ in range(rows)], dtype=np.int64) for a in attributes}
        shared = [n for n, earlier in enumerate(relations) if set(earlier.codes) & set(attributes)]
        outer = bool(shared) and rng.random() < 0.4
        relations.append(Relation(rows, codes, tuple(rng.sample(shared, rng.randint(1, len(shared)))) if outer else ()))
        assert number or not outer
    return relations


def matches(relations: list[Relation], number: int, row: int, joined: tuple[int, ...]) -> bool:
    """Return whether a row of a relation belongs to rows of those before it."""
    mine = relations[number]
    for attribute, codes in mine.codes.items():
        for other in mine.outer_of or range(number):
            theirs = relations[other]
            if attribute not in theirs.codes or (theirs.outer_of and not mine.outer_of):
                continue
            value = -1 if joined[other] == NO_ROW else int(theirs.codes[attribute][joined[other]])
            if value == -1 or codes[row] != value:
                return False
            if not mine.outer_of:
                break  # what was joined before is equal
    return True


def by_loops(relations: list[Relation]) -> list[tuple[int, ...]]:
    joined: list[tuple[int, ...]] = [(row,) for row in range(relations[0].rows)]
    for number in range(1, len(relations)):
        wider = []
        for rows in joined:
            found = [row for row in range(relations[number].rows) if matches(relations, number, row, rows)]
            wider += [(*rows, row) for row in (found or ([NO_ROW] if relations[number].outer_of else []))]
        joined = wider
    return joined


@given(st.integers(0, 2**32))
def test_rows_are_those_of_nested_loops(seed: int) -> None:
    relations = random_relations(random.Random(seed))
    found = list(zip(*(rows.tolist() for rows in combine(relations)), strict=True))
    assert found == by_loops(relations)


@given(st.integers(0, 2**32))
def test_rows_are_counted_as_they_are_combined(seed: int) -> None:
    relations = random_relations(random.Random(seed))
    expected = np.bincount(combine(relations)[0], minlength=relations[0].rows)
    assert row_counts(relations).tolist() == expected.tolist()
