"""Equi-joins of relations whose attributes are codes: how many rows they have, and which, as far as anybody asks.

A relation is whatever has rows with attributes: groups of tuples with equal keys when a partition counts what a join
gives (the factorised form), groups of tuples with equal codes when a reader makes its rows. A *combination* is one row
of each relation that belong together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from braid.operators import kernels
from braid.operators.joins.order import compared, join_order, written_order

T = TypeVar("T")

Rows = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NO_ROW = -1
MANY = 1 << 36
"""Where counting ends: a number of joined rows that is this or more is not told apart from others."""
MAX_COMBINATIONS = 4_000_000
"""How many combinations are formed at once: each takes a few times 8 bytes a relation."""


# codes are looked up in a table of all of them if that has so many entries at most, else so many for each row
_ALWAYS_A_TABLE, _TABLE_PER_ROW = 1 << 16, 8
# codes are counted in a table if it is at most so many times as long as they are many
_SPARSE = 8


class TooManyCombinations(Exception):
    """More than :data:`MAX_COMBINATIONS` would have to be formed; the message says how many."""

    def __init__(self, count: int) -> None:
        number = f"more than {MANY}" if count >= MANY else str(count)
        super().__init__(f"{number} combinations of keys, and at most {MAX_COMBINATIONS} are formed")


@dataclass(frozen=True)
class Relation:
    """Rows with the code of each attribute, shape (rows,); equal codes are equal values, -1 is NULL, equal to nothing.

    ``outer_of`` are the relations that a left outer join compares this one with; empty for an inner join. Of an outer
    one that is ``anti``, only what has no partner in it is left.
    """

    rows: int
    codes: Mapping[int, Rows]
    outer_of: tuple[int, ...] = ()
    anti: bool = False

    @property
    def attributes(self) -> Collection[int]:
        """The attributes that it is compared by."""
        return self.codes.keys()

    @property
    def indexed(self) -> int:
        """How much has to be looked at to index it: its rows."""
        return self.rows

    @cached_property
    def distinct(self) -> dict[int, int]:
        """How many different codes each attribute has, NULL apart; at least one."""
        return {attribute: _distinct(codes) for attribute, codes in self.codes.items()}

    def continuations(self, matches: Rows) -> Rows:
        """Return in how many combinations each row before it goes on; ``matches`` are the rows it matches here."""
        if self.anti:
            return (matches == 0).astype(np.int64)
        return np.maximum(matches, 1) if self.outer_of else matches


class JoinResult:
    """What relations give when they are joined, where row i of relation n stands for ``weights[n][i]`` members (not 0).

    A combination stands for so many joined rows as the product of the weights of its rows: one for each member of the
    row of the first relation in ``order``, each of the second's, and so on, the last changing first. Combinations are
    in order of the first one's rows, then of the second's, and so on.

    Where each relation is compared with one of those before it, rows are counted from the last relation to the first,
    and only combinations that are asked for are formed. Else all are formed, and too many raise TooManyCombinations.
    """

    order: Sequence[int]
    """The numbers of the relations in the order in which they are joined (:mod:`braid.operators.joins.order`)."""
    counts: Rows
    """How many joined rows each row of the first of them is part of; :data:`MANY` for that or more."""

    def __init__(self, relations: Sequence[Relation], weights: Sequence[Rows], is_reordered: bool = True) -> None:
        self._given, self._is_reordered = relations, is_reordered
        self.order = join_order(relations) if is_reordered else written_order(relations)
        self._place = np.argsort(self.order).tolist()
        relations = self._relations = [self._placed(relations[number]) for number in self.order]
        self._weights = [weights[number].astype(np.int64) for number in self.order]
        self._pairs = [compared(relations, range(number), number) for number in range(len(relations))]
        parents = [{other for _, other in pairs} for pairs in self._pairs]
        self._parents = [min(others, default=0) for others in parents]
        self._is_tree = all(len(others) <= 1 for others in parents)
        if self._is_tree:
            self._count()
        else:
            self._form()

    def _placed(self, relation: Relation) -> Relation:
        """Return a relation that knows others by their place in the order."""
        return replace(relation, outer_of=tuple(self._place[other] for other in relation.outer_of))

    def _as_given(self, in_order: Sequence[T]) -> list[T]:
        """Return what there is of each relation in the order in which they were given."""
        return [in_order[place] for place in self._place]

    @property
    def total(self) -> int:
        """The number of joined rows, at least :data:`MANY` for that or more."""
        return int(self.counts.sum())

    @cached_property
    def taking_part(self) -> Sequence[Bools]:
        """Of each relation's rows, whether they are in any combination, or keep one from being there."""
        are_whole = _kept_whole(self._relations)
        if self._is_tree:
            pairs = zip(self._in_combination(), are_whole, strict=True)
            return self._as_given([in_combination | is_whole for in_combination, is_whole in pairs])
        masks = []
        for relation, rows, is_whole in zip(self._relations, self._formed, are_whole, strict=True):
            mask = np.full(relation.rows, is_whole)
            mask[rows[rows != NO_ROW]] = True
            masks.append(mask)
        return self._as_given(masks)

    def combinations(self) -> list[Rows]:
        """Return for each relation its row in each combination, ``NO_ROW`` where an outer one has none.

        Raises TooManyCombinations.
        """
        if not self._is_tree:
            return self._as_given(self._formed)
        ones = [np.ones(relation.rows, dtype=np.int64) for relation in self._given]
        unweighted = JoinResult(self._given, ones, self._is_reordered)
        if unweighted.total > MAX_COMBINATIONS:
            raise TooManyCombinations(unweighted.total)
        return unweighted.page(0, unweighted.total)

    def page(self, first: int, count: int) -> list[Rows]:
        """Return the joined rows ``[first, first + count)``, as far as there are so many, below :data:`MANY`.

        For each of them there is the member of each relation, ``NO_ROW`` where an outer one has none. The members of a
        relation are numbered row after row.
        """
        if self._is_tree:
            combinations, begin = self._between(first, count)
        else:
            low, high = _overlapping(self._formed_before, first, count)
            combinations, begin = [rows[low:high] for rows in self._formed], int(self._formed_before[low])
        extents = self._extents(combinations, len(combinations))
        before = begin + np.cumsum(extents) - extents
        low_within = np.maximum(first - before, 0)
        counts = np.maximum(np.minimum(extents, first + count - before) - low_within, 0)
        total = int(counts.sum())
        stride = np.ones(len(counts), dtype=np.int64)  # how many joined rows a member of the relation stays for
        members_of = []
        for rows, weight, members in reversed(list(zip(combinations, self._weights, self._members, strict=True))):
            member, size = np.empty(total, dtype=np.int64), picked(weight, rows, 1)
            kernels.expand(member, counts, low_within, stride, size, picked(members, rows, NO_ROW))
            members_of.append(member)
            stride = _product(stride, size)
        return self._as_given(members_of[::-1])

    @cached_property
    def _before(self) -> Rows:
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def _members(self) -> list[Rows]:
        """Of each relation the first member of each row."""
        return [np.cumsum(weight) - weight for weight in self._weights]

    def _count(self) -> None:
        """Count from the last relation to the first what hangs on each row."""
        reach = self._reach = list(self._weights)
        self._matches: list[Matches | None] = [None] * len(reach)
        self._below = list(self._weights)  # of each relation, by the rows of its parent, how many rows it adds
        self._sides: dict[int, tuple[Rows, Rows]] = {}
        for number in range(len(reach) - 1, 0, -1):
            parent = self._parents[number]
            rows_of_parent = {parent: np.arange(self._relations[parent].rows)}
            left, right = _codes(self._relations, number, self._pairs[number], rows_of_parent, parent)
            self._sides[number] = left, right
            matches = self._matches[number] = Matches(left, right)
            below = np.minimum(matches.sums(reach[number]), MANY)
            continued = self._relations[number].continuations(matches.counts)
            # where these differ a row goes on once without a partner, or not at all
            below = np.where(matches.counts == continued, below, continued)
            self._below[number] = below
            reach[parent] = _product(reach[parent], below)
        self.counts = reach[0]

    def _in_combination(self) -> list[Bools]:
        """Return of each relation's rows whether they are in any combination: from the first relation to the last."""
        in_combination = [self.counts > 0]
        for number in range(1, len(self._relations)):
            left, right = self._sides[number]
            has_match = _is_in(right, left[in_combination[self._parents[number]]])
            in_combination.append((self._reach[number] > 0) & has_match & (not self._relations[number].anti))
        return in_combination

    def _between(self, first: int, count: int) -> tuple[list[Rows], int]:
        """Return the combinations in which joined rows lie, and the number of the first row of the first of them."""
        low, high = _overlapping(self._before, first, count)
        begin = int(self._before[low])
        joined = [np.arange(low, high)]
        for number in range(1, len(self._relations)):
            matches = self._matches[number]
            assert matches is not None
            above = joined[self._parents[number]]
            counts = self._relations[number].continuations(picked(matches.counts, above, 0))
            combination = np.repeat(np.arange(len(counts)), counts)
            nth = np.arange(len(combination)) - np.repeat(np.cumsum(counts) - counts, counts)
            joined = [rows[combination] for rows in joined] + [matches.nth(above[combination], nth)]
            before = np.concatenate([[begin], begin + np.cumsum(self._extents(joined, number + 1))])
            is_inside = (before[1:] > before[:-1]) & (before[:-1] < first + count) & (before[1:] > first)
            begin = int(before[:-1][is_inside][0]) if is_inside.any() else begin
            joined = [rows[is_inside] for rows in joined]
        return joined, begin

    def _extents(self, joined: Sequence[Rows], relations: int) -> Rows:
        """Return how many joined rows begin with each of some combinations of the first relations."""
        extents = np.ones(len(joined[0]), dtype=np.int64)
        for number, weight in enumerate(self._weights):
            if number < relations:
                extents = _product(extents, picked(weight, joined[number], 1))
            elif (parent := self._parents[number]) < relations:
                otherwise = 1 if self._relations[number].outer_of else 0
                extents = _product(extents, picked(self._below[number], joined[parent], otherwise))
        return extents

    def _form(self) -> None:
        joined = [np.arange(self._relations[0].rows)]
        for number in range(1, len(self._relations)):
            left, right = _codes(self._relations, number, self._pairs[number], dict(enumerate(joined)), 0)
            matches = Matches(left, right)
            counts = self._relations[number].continuations(matches.counts)
            if (total := int(counts.sum())) > MAX_COMBINATIONS:
                raise TooManyCombinations(total)
            combination = np.repeat(np.arange(len(left)), counts)
            joined = [rows[combination] for rows in joined]
            nth = np.arange(len(combination)) - np.repeat(np.cumsum(counts) - counts, counts)
            joined.append(matches.nth(combination, nth))
        self._formed = joined
        extents = self._extents(joined, len(joined))
        self._formed_before = np.concatenate([[0], np.cumsum(extents)])
        counts = np.zeros(self._relations[0].rows, dtype=np.int64)
        np.add.at(counts, joined[0], extents)
        self.counts = np.minimum(counts, MANY)


def _kept_whole(relations: Sequence[Relation]) -> list[bool]:
    """Return which relations have to keep all their rows, those in no combination, too.

    They are anti ones, and outer ones that an anti one is compared with: what has a partner there is in no combination.
    Were that partner left out, it would be in one, as a row without a partner.
    """
    is_whole = [relation.anti for relation in relations]
    for number in range(len(relations) - 1, 0, -1):
        for other in relations[number].outer_of if is_whole[number] else ():
            is_whole[other] = is_whole[other] or bool(relations[other].outer_of)
    return is_whole


def _codes(
    relations: Sequence[Relation],
    number: int,
    pairs: Sequence[tuple[int, int]],
    joined: Mapping[int, Rows],
    joined_relation: int,
) -> tuple[Rows, Rows]:
    """Return the codes by which a relation is compared with joined rows of others: of these rows, and of its own.

    ``joined`` has the row of other relations in each joined row, among them ``joined_relation``.
    """
    left = np.zeros(len(joined[joined_relation]), dtype=np.int64)
    right = np.zeros(relations[number].rows, dtype=np.int64)
    if len(pairs) == 1:
        ((attribute, other),) = pairs
        return picked(relations[other].codes[attribute], joined[other], -1), relations[number].codes[attribute]
    for attribute, other in pairs:
        codes = relations[number].codes[attribute]
        other_codes = picked(relations[other].codes[attribute], joined[other], -1)
        size = 1 + max(int(codes.max(initial=-1)), int(other_codes.max(initial=-1)))
        if size * (1.0 + max(left.max(initial=0), right.max(initial=0))) >= 2.0**63:
            left, right = _dense(left, right)
        left, right = _append_digit(left, other_codes, size), _append_digit(right, codes, size)
    return left, right


def _dense(left: Rows, right: Rows) -> tuple[Rows, Rows]:
    """Return codes that are equal where these are, and as small as can be; -1 stays -1."""
    distinct, codes = np.unique(np.concatenate([[-1], left, right]), return_inverse=True)
    assert distinct[0] == -1
    return codes[1 : 1 + len(left)] - 1, codes[1 + len(left) :] - 1


def _append_digit(code: Rows, digit: Rows, size: int) -> Rows:
    """Return codes with one more digit of base ``size``; -1 where either is -1."""
    return np.where((code < 0) | (digit < 0), -1, code * size + digit)


def _product(numbers: Rows, factors: Rows) -> Rows:
    """Return products, :data:`MANY` for that or more."""
    return np.where(numbers.astype(np.float64) * factors >= MANY, MANY, numbers * factors)


def _overlapping(before: Rows, first: int, count: int) -> tuple[int, int]:
    """Return from which to which stretch ``[before[i], before[i + 1])`` numbers ``[first, first + count)`` lie."""
    last = len(before) - 1
    low = min(int(np.searchsorted(before, first, side="right")) - 1, last)
    return low, max(low, min(int(np.searchsorted(before, first + count, side="left")), last))


def picked(numbers: npt.NDArray[Any], at: Rows, otherwise: Any) -> npt.NDArray[Any]:
    """Return the numbers at some rows, another one at ``NO_ROW``."""
    if not len(numbers):
        return np.full(len(at), otherwise)
    missing = at == NO_ROW
    return np.where(missing, otherwise, numbers[at]) if missing.any() else numbers[at]


def _size_of_table(left: Rows, right: Rows) -> int | None:
    """Return how long a table of all codes is; None where it would be much longer than there are rows."""
    size = 1 + max(int(left.max(initial=0)), int(right.max(initial=0)))
    return size if size <= max(_ALWAYS_A_TABLE, _TABLE_PER_ROW * (len(left) + len(right))) else None


def _is_in(codes: Rows, others: Rows) -> Bools:
    """Return which codes are among some others; -1 is not."""
    size = _size_of_table(codes, others)
    if size is None:
        return np.isin(codes, others[others >= 0])
    table = np.zeros(size + 1, dtype=np.bool_)
    table[others] = True
    table[-1] = False
    return table[codes]


def _distinct(codes: Rows) -> int:
    """Return how many different codes there are, -1 apart; at least one."""
    size = 1 + int(codes.max(initial=-1))
    if size > _SPARSE * len(codes):
        return max(1, len(np.unique(codes[codes >= 0])))
    table = np.zeros(size + 1, dtype=np.bool_)
    table[codes] = True
    return max(1, int(np.count_nonzero(table[:-1])))


class Matches:
    """For each code on the left the rows on the right that have it."""

    def __init__(self, left: Rows, right: Rows) -> None:
        size = _size_of_table(left, right)
        if size is None:
            self._order = np.argsort(right, kind="stable")
            ordered = right[self._order]
            self._starts = np.searchsorted(ordered, left, side="left")
            counts = np.searchsorted(ordered, left, side="right") - self._starts
        else:
            starts = np.zeros(size + 1, dtype=np.int64)
            self._order = np.empty(int(np.count_nonzero(right >= 0)), dtype=np.int64)
            kernels.order_by_code(self._order, starts, right)
            self._starts = starts[left]
            counts = starts[1:][left] - self._starts
        self.counts: Rows = np.where(left < 0, 0, counts)
        """How many there are, shape (left rows,)."""

    def sums(self, weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the sum of the weights of the matches of each left row."""
        running = np.concatenate([np.zeros(1, dtype=weights.dtype), np.cumsum(weights[self._order])])
        return running[self._starts + self.counts] - running[self._starts]

    def nth(self, left: Rows, number: Rows) -> Rows:
        """Return the matches of some left rows by their number, ``NO_ROW`` beyond the last and for no left row."""
        place = picked(self._starts, left, 0) + number
        exists = number < picked(self.counts, left, 0)
        if not len(self._order):
            return np.full(len(left), NO_ROW, dtype=np.int64)
        return np.where(exists, self._order[np.where(exists, place, 0)], NO_ROW)
