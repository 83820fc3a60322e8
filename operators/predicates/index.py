"""The predicate index: from the values of a tuple to the queries that select it, in one lookup per column.

For every column with predicates the index keeps the boundaries of all queries' truth sets. They cut the column's
domain into *cells*, and a predicate is true or false on whole cells, so a tuple's query-set is the AND of one set
per column. Work per tuple grows with log(boundaries), not with the number of queries. This goes beyond the thesis
(4.3.1.2), whose shared selection evaluates every active query's predicate.

Invariant: ``dimensions`` has exactly the boundaries that the queries in the index need. :meth:`PredicateIndex.update`
moves it to other queries at a cost that follows the queries that change and the dimensions that they test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

from braid.operators import kernels
from braid.operators.arrays import Places
from braid.operators.expressions import Expression, columns_of
from braid.operators.predicates.analysis import Predicate, analyse
from braid.operators.predicates.bitmaps import Bitmap, Bitmaps
from braid.operators.predicates.dimension import CellLookup, Cells, Dimension
from braid.operators.predicates.truth_set import Bools
from braid.operators.tuples import Tuples


class PredicateIndex:
    """The WHERE clauses of some queries over one stream."""

    def __init__(self) -> None:
        self.dimensions: dict[str, Dimension] = {}
        self.predicates: dict[str, Predicate] = {}
        self._boundaries: dict[str, Counter[Any]] = {}
        self._users: Counter[str] = Counter()
        self.bitmaps: dict[str, Bitmap] = {}
        self._made = Bitmaps()

    def update(self, wheres: Mapping[str, Expression | None], alone: Set[str] = frozenset()) -> None:
        """Hold exactly these queries: WHERE clauses by query id. A query's clause never changes.

        Those of ``alone`` have no dimensions, but ``bitmaps`` (:mod:`braid.operators.predicates.bitmaps`).
        """
        changed: set[str] = set()
        for query in self.predicates.keys() - wheres.keys():
            predicate = self.predicates.pop(query)
            if self.bitmaps.pop(query, None) is None:
                self._count(predicate, -1, changed)
        kinds: dict[str, str] = {}
        residuals: dict[str, Expression] = {}
        for query in wheres.keys() - self.predicates.keys():
            predicate = analyse(wheres[query])
            self.predicates[query] = predicate
            if query in alone:
                self.bitmaps[query] = self._made.of(predicate)
                continue
            kinds.update(predicate.kinds)
            residuals.update(predicate.residuals)
            self._count(predicate, 1, changed)
        for name in changed:
            if not self._users[name]:
                del self._users[name], self._boundaries[name]
                self.dimensions.pop(name, None)
                continue
            previous = self.dimensions.get(name)
            residual = residuals.get(name) if previous is None else previous.residual
            kind = kinds[name] if previous is None else previous.kind
            self.dimensions[name] = Dimension(name, kind, tuple(sorted(self._boundaries[name])), residual)

    def _count(self, predicate: Predicate, step: int, changed: set[str]) -> None:
        """Count a predicate in (1) or out (-1) for each of its boundaries; add its dimensions to ``changed``."""
        for name, truth in predicate.truths.items():
            self._users[name] += step
            counts = self._boundaries.setdefault(name, Counter())
            for boundary in truth.boundaries:
                counts[boundary] += step
                if not counts[boundary]:
                    del counts[boundary]
            changed.add(name)

    def masks_of(self, query: str) -> dict[str, Bools]:
        """Return, for each dimension that the query tests, at which cells it is true."""
        truths = self.predicates[query].truths
        return {name: truth.mask_over(self.dimensions[name].boundaries) for name, truth in truths.items()}

    def columns_of(self, dimensions: Iterable[str]) -> set[str]:
        """Return the columns of tuples that some dimensions read."""
        columns: set[str] = set()
        for name in dimensions:
            residual = self.dimensions[name].residual
            columns.update((name,) if residual is None else columns_of(residual))
        return columns

    def cells_of(self, tuples: Tuples) -> TupleCells:
        """Return the cell of each tuple in every dimension."""
        return TupleCells(self.dimensions, tuples)


class TupleCells(Mapping[str, Cells]):
    """The cell of each tuple in every dimension, by its name; looked up when it is first asked for."""

    def __init__(self, dimensions: Mapping[str, Dimension], tuples: Tuples) -> None:
        self._dimensions = dict(dimensions)
        self._tuples = tuples
        self._cells: dict[str, Cells] = {}

    def __getitem__(self, name: str) -> Cells:
        if name not in self._cells:
            self._cells[name] = self._dimensions[name].cells_of(self._tuples)
        return self._cells[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dimensions)

    def __len__(self) -> int:
        return len(self._dimensions)

    def lookup(self, name: str) -> CellLookup:
        """Return how the cells of a dimension are looked up; where they are known already, a lookup of these."""
        lookup = None if name in self._cells else self._dimensions[name].lookup(self._tuples)
        return CellLookup.of(self[name], self._dimensions[name].cell_count) if lookup is None else lookup

    def take(self, rows: Places) -> TupleCells:
        """Return those of some of the tuples."""
        cells_of_rows = TupleCells(self._dimensions, self._tuples)
        cells_of_rows._cells = {name: kernels.take(self[name], rows) for name in self._dimensions}
        return cells_of_rows
