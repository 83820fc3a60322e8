"""Equi-joins of relations whose attributes are codes: which rows of each belong together.

A relation is whatever has rows with attributes: groups of tuples with equal keys when a lane counts what a join gives
(the factorised form), single tuples when a reader makes its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]

NO_ROW = -1


@dataclass(frozen=True)
class Relation:
    """Rows with the code of each attribute, shape (rows,); equal codes are equal values, -1 is NULL, equal to nothing.

    ``outer_of`` are the relations that a left outer join compares this one with; empty for an inner join.
    """

    rows: int
    codes: Mapping[int, Rows]
    outer_of: tuple[int, ...] = ()


def combine(relations: Sequence[Relation]) -> list[Rows]:
    """Return the joined rows: for each relation the row that takes part, ``NO_ROW`` where an outer one has none.

    Rows come in order of the first relation's, then of the second's, and so on.
    """
    joined = [np.arange(relations[0].rows)]
    for number in range(1, len(relations)):
        left, right = codes_for(relations, number, joined)
        matches = Matches(left, right)
        counts = np.maximum(matches.counts, 1) if relations[number].outer_of else matches.counts
        before = np.repeat(np.arange(len(left)), counts)
        joined = [rows[before] for rows in joined]
        nth = np.arange(len(before)) - np.repeat(np.cumsum(counts) - counts, counts)
        joined.append(matches.nth(before, nth))
    return joined


def codes_for(relations: Sequence[Relation], number: int, joined: Sequence[Rows]) -> tuple[Rows, Rows]:
    """Return by what relation ``number`` is compared with rows joined of those before it: codes of both sides."""
    mine = relations[number]
    compared = mine.outer_of or tuple(range(number))
    left, right = np.zeros(len(joined[0]), dtype=np.int64), np.zeros(mine.rows, dtype=np.int64)
    for attribute, codes in mine.codes.items():
        holders = [
            n for n in compared if attribute in relations[n].codes and (mine.outer_of or not relations[n].outer_of)
        ]
        for holder in holders if mine.outer_of else holders[:1]:
            theirs, rows = relations[holder].codes[attribute], joined[holder]
            there = picked(theirs, rows, -1)
            size = 1 + max(int(codes.max(initial=-1)), int(there.max(initial=-1)))
            left, right = _with(left, there, size), _with(right, codes, size)
    return left, right


def _holders(relations: Sequence[Relation], number: int, attribute: int, compared: Sequence[int]) -> list[int]:
    """Return with which relations before it one is compared by an attribute.

    All that have it and are not outer are equal there, so an inner one is compared with the first of them.
    """
    having = [other for other in compared if attribute in relations[other].codes]
    if relations[number].outer_of:
        return having
    return [other for other in having if not relations[other].outer_of][:1]


def _with(code: Rows, more: Rows, size: int) -> Rows:
    return np.where((code < 0) | (more < 0), -1, code * size + more)


def picked(numbers: npt.NDArray[Any], at: Rows, otherwise: Any) -> npt.NDArray[Any]:
    """Return the numbers at some rows, another one at ``NO_ROW``."""
    if not len(numbers):
        return np.full(len(at), otherwise)
    missing = at == NO_ROW
    return np.where(missing, otherwise, numbers[at]) if missing.any() else numbers[at]


@dataclass(frozen=True)
class Weighed:
    """How many joined rows there are, without forming them, when row i of relation n stands for ``weights[n][i]``.

    ``rows`` are those that each row of the first relation is part of, modulo 2^64, and ``about`` the same as doubles;
    ``taking_part`` says of each relation's rows whether they are in any.
    """

    rows: Rows
    about: npt.NDArray[np.float64]
    taking_part: Sequence[npt.NDArray[np.bool_]]


def weigh(relations: Sequence[Relation], weights: Sequence[Rows]) -> Weighed:
    """Count joined rows: from the last relation to the first what hangs on each row, and back who takes part.

    It takes a step a relation where each is compared with one of those before it; else rows are formed.
    """
    parents = [_parent(relations, number) for number in range(1, len(relations))]
    if None in parents:
        return _weigh_formed(relations, weights)
    exact = [weight.astype(np.int64) for weight in weights]
    about = [weight.astype(np.float64) for weight in weights]
    sides: list[tuple[Rows, Rows]] = []
    for number in range(len(relations) - 1, 0, -1):
        parent = parents[number - 1]
        assert parent is not None
        joined = [np.full(relations[parent].rows, NO_ROW)] * number
        joined[parent] = np.arange(relations[parent].rows)
        left, right = codes_for(relations, number, joined)
        sides.append((left, right))
        matches = Matches(left, right)
        missing = (matches.counts == 0) & bool(relations[number].outer_of)
        exact[parent] = exact[parent] * np.where(missing, 1, matches.sums(exact[number]))
        about[parent] = about[parent] * np.where(missing, 1.0, matches.sums(about[number]))
    taking_part = [(exact[0] != 0) | (about[0] != 0)]
    for number, (left, right) in enumerate(reversed(sides), start=1):
        parent = parents[number - 1]
        assert parent is not None
        met = left[taking_part[parent]]
        some = (exact[number] != 0) | (about[number] != 0)
        taking_part.append(some & np.isin(right, met[met >= 0]))
    return Weighed(exact[0], about[0], taking_part)


def _weigh_formed(relations: Sequence[Relation], weights: Sequence[Rows]) -> Weighed:
    joined = combine(relations)
    exact, about = np.ones(len(joined[0]), dtype=np.int64), np.ones(len(joined[0]))
    taking_part = []
    for relation, weight, rows in zip(relations, weights, joined, strict=True):
        exact = exact * picked(weight, rows, 1)
        about = about * picked(weight, rows, 1)
        mask = np.zeros(relation.rows, dtype=np.bool_)
        mask[rows[rows != NO_ROW]] = True
        taking_part.append(mask)
    totals = np.zeros(relations[0].rows, dtype=np.int64)
    np.add.at(totals, joined[0], exact)
    roughly = np.bincount(joined[0], about, minlength=relations[0].rows).astype(np.float64)
    return Weighed(totals, roughly, taking_part)


def row_counts(relations: Sequence[Relation]) -> Rows:
    """Return how many joined rows each row of the first relation is part of."""
    return weigh(relations, [np.ones(relation.rows, dtype=np.int64) for relation in relations]).rows


def _parent(relations: Sequence[Relation], number: int) -> int | None:
    """Return the one relation that relation ``number`` is compared with, None when they are several."""
    compared = relations[number].outer_of or tuple(range(number))
    found = {holder for a in relations[number].codes for holder in _holders(relations, number, a, compared)}
    return found.pop() if len(found) == 1 else None


class Matches:
    """For each code on the left the rows on the right that have it."""

    def __init__(self, left: Rows, right: Rows) -> None:
        self._order = np.argsort(right, kind="stable")
        ordered = right[self._order]
        self._starts = np.searchsorted(ordered, left, side="left")
        found = np.searchsorted(ordered, left, side="right") - self._starts
        self.counts: Rows = np.where(left < 0, 0, found)
        """How many there are, shape (left rows,)."""

    def sums(self, weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the sum of the weights of the matches of each left row."""
        running = np.concatenate([np.zeros(1, dtype=weights.dtype), np.cumsum(weights[self._order])])
        return running[self._starts + self.counts] - running[self._starts]

    def nth(self, left: Rows, number: Rows) -> Rows:
        """Return the matches of some left rows by their number, ``NO_ROW`` beyond the last."""
        there = number < self.counts[left]
        at = np.where(there, self._starts[left] + number, 0)
        if not len(self._order):
            return np.full(len(left), NO_ROW, dtype=np.int64)
        return np.where(there, self._order[at], NO_ROW)
