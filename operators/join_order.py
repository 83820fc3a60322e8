"""The order in which relations are joined, whatever that of FROM (thesis 5.4.2).

Where each relation is compared with one that comes before it, rows are counted without being formed, in a time that
follows the sizes of the relations: any such order will do, and small ones first do best. Otherwise combinations are
formed, and the order decides how many there are in between. It is the best of all left-deep orders by estimates from
the window's own rows (dynamic programming over subsets, of which a join of ten inputs has a thousand), so nothing has
to be carried over when it changes from one window to the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int64]

# codes are counted in a table if it is at most so many times as long as they are many
_SPARSE = 8


class Joined(Protocol):
    """What a relation tells about itself; see :class:`operators.relations.Relation`."""

    @property
    def rows(self) -> int: ...

    @property
    def codes(self) -> Mapping[int, Codes]: ...

    @property
    def outer_of(self) -> tuple[int, ...]: ...


def parents_of(attributes: Iterable[int], before: Mapping[int, Iterable[int]]) -> dict[int, int]:
    """Return by which attributes a relation is compared with others before it, and with which of them.

    ``before`` has their attributes by their number. Those that have an attribute are equal there, so one that has all
    of them will do; if there is none, it is the first that has the attribute.
    """
    holders = {a: [other for other, theirs in before.items() if a in theirs] for a in attributes}
    holders = {attribute: having for attribute, having in holders.items() if having}
    whole = [other for other in before if all(other in having for having in holders.values())]
    return {attribute: (whole or having)[0] for attribute, having in holders.items()}


def join_order(relations: Sequence[Joined]) -> list[int]:
    """Return the numbers of the relations in the order in which to join them.

    Outer ones come last, in their order: what they are compared with comes before, inner ones do not depend on them.
    """
    inner = [number for number, each in enumerate(relations) if not each.outer_of]
    small_first = sorted(inner, key=lambda number: relations[number].rows)
    order = _tree_order({number: relations[number].codes.keys() for number in small_first})
    order = order or _cheapest_order(small_first, relations)
    return [*order, *(number for number in range(len(relations)) if relations[number].outer_of)]


def _tree_order(attributes: Mapping[int, Iterable[int]]) -> list[int] | None:
    """Return an order in which each relation is compared with one before it, as near to the given one as can be.

    None where there is none such that begins with the first.
    """
    order: list[int] = []
    left = list(attributes)
    while left:
        before = {number: attributes[number] for number in order}
        fitting = (n for n in left if not before or len(set(parents_of(attributes[n], before).values())) == 1)
        number = next(fitting, None)
        if number is None:
            return None
        order.append(number)
        left.remove(number)
    return order


@dataclass(frozen=True)
class _Best:
    """The best order of some relations: what is formed on the way, in combinations, and how many come out."""

    cost: float
    order: tuple[int, ...]


def _cheapest_order(inner: Sequence[int], relations: Sequence[Joined]) -> list[int]:
    """Return the left-deep order that forms the fewest combinations in all."""
    distinct = {number: {a: _distinct(codes) for a, codes in relations[number].codes.items()} for number in inner}
    rows = {number: relations[number].rows for number in inner}
    best = {frozenset([number]): _Best(0.0, (number,)) for number in inner}
    for size in range(2, len(inner) + 1):
        wider: dict[frozenset[int], _Best] = {}
        for members, known in best.items():
            for number in inner:
                if len(members) == size - 1 and number not in members:
                    together = members | {number}
                    cost = known.cost + _combinations(together, rows, distinct)
                    if together not in wider or cost < wider[together].cost:
                        wider[together] = _Best(cost, (*known.order, number))
        best = wider
    return list(best[frozenset(inner)].order)


def _combinations(members: Iterable[int], rows: Mapping[int, int], distinct: Mapping[int, Mapping[int, int]]) -> float:
    """Estimate how many combinations relations have: values are spread evenly, and the fewer are among the more."""
    counts: dict[int, list[int]] = {}
    for number in members:
        for attribute, count in distinct[number].items():
            counts.setdefault(attribute, []).append(count)
    found = math.prod(float(rows[number]) for number in members)
    return found / math.prod(float(count) for each in counts.values() for count in sorted(each)[1:])


def _distinct(codes: Codes) -> int:
    """Return how many different codes there are, NULL apart; at least one."""
    known = codes[codes >= 0]
    if known.max(initial=0) <= _SPARSE * len(known):
        return max(1, int(np.count_nonzero(np.bincount(known))))
    return max(1, len(np.unique(known)))
