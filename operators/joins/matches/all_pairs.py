"""The pairs of all tuples of a window, found once for whoever reads them: those of a query are some of them, in order.

Finding a query's pairs by themselves takes a pass over the tuples of both inputs. Picking them out of those of all
queries takes a pass over these, which is shorter where tuples have few partners.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from braid.operators import kernels
from braid.operators.arrays import Places
from braid.operators.joins.matches.pairs import Pairs
from braid.operators.predicates.query_set import Bools

MAX_PAIRS = 4_000_000
"""So many are kept of a window at most, 8 bytes each."""
WORTH_PICKING = 2
"""Passing so many pairs takes less time than passing a tuple to find its pairs."""


class AllPairs:
    """The pairs that all tuples of a window give, whatever queries ask of them."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs

    @property
    def total(self) -> int:
        """The number of pairs."""
        return self._pairs.total

    @property
    def nbytes(self) -> int:
        """The memory that it takes once pairs are picked."""
        return self._pairs.nbytes + (8 * self.total if self.is_worth else 0)

    @cached_property
    def rows(self) -> tuple[Places, Places]:
        """The row on the left and the row on the right of each pair."""
        left, right = self._pairs.page(0, self.total)
        return left, right

    @property
    def is_worth(self) -> bool:
        """Whether queries should pick theirs, instead of passing all tuples to find them."""
        return self.total <= min(MAX_PAIRS, WORTH_PICKING * self._pairs.rows)


class PickedPairs:
    """The pairs of which both rows are wanted; ``left`` and ``right`` say that of each row, or are empty for all."""

    def __init__(self, pairs: AllPairs, left: Bools, right: Bools) -> None:
        picked = [np.empty(pairs.total, dtype=np.int32) for _ in range(2)]
        count = kernels.pick_pairs(picked[0], picked[1], pairs.rows[0], pairs.rows[1], left, right)
        self._rows: list[Places] = [rows[:count].copy() for rows in picked]

    @property
    def total(self) -> int:
        """The number of pairs."""
        return len(self._rows[0])

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return sum(rows.nbytes for rows in self._rows)

    def page(self, first: int, count: int) -> list[Places]:
        """Return of the pairs ``[first, first + count)``, as far as there are so many, the rows of each input."""
        return [rows[first : first + count] for rows in self._rows]
