"""What tells the cell spaces of an operator apart."""

from __future__ import annotations

from typing import NamedTuple

from braid.operators.predicates.analysis import Predicate
from braid.operators.queries import Query

MAX_BOUNDARIES = 64
"""A predicate with more boundaries is scattered: an IN of more than 32 values that are no neighbours."""


class SpaceKey(NamedTuple):
    """The columns that the queries of a cell space test, and of what kind these queries are.

    ``has_extremes`` says that they test one column and ask for minima or maxima of windows made of slices. It is
    false for queries that count distinct values besides: the operators that count these make no such difference.
    ``is_scattered`` says that their predicates on one column are true on many stretches of its values.
    :data:`ALONE` stands for queries that share no cells.
    """

    dimensions: tuple[str, ...]
    has_extremes: bool = False
    is_scattered: bool = False
    is_alone: bool = False

    @classmethod
    def of(cls, query: Query, predicate: Predicate) -> SpaceKey:
        """Return the space of a query, the same for as long as it runs."""
        dimensions = predicate.dimensions
        if len(dimensions) != 1:
            return cls(dimensions)
        if len(predicate.truths[dimensions[0]].boundaries) > MAX_BOUNDARIES:
            return cls(dimensions, is_scattered=True)
        return cls(dimensions, has_extremes=query.keeps_extremes)

    @property
    def is_simple(self) -> bool:
        """Whether its queries test one column at most, for few values: there are no more such spaces than columns."""
        return not self.has_sets and not any(name.startswith("(") for name in self.dimensions)

    @property
    def has_sets(self) -> bool:
        """Whether its cells are query-sets, and not stretches of a column's values."""
        return len(self.dimensions) > 1 or self.is_scattered


ALONE = SpaceKey(("alone",), is_alone=True)
