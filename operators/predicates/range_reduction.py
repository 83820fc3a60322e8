"""Sums, minima and maxima over the cells of many queries at once.

A query's cells form few runs. Sums of integers are differences of running sums, exact as they wrap around. For all
else runs are covered by dyadic blocks whose reductions are computed once for all queries: nothing is subtracted, so it
serves every associative function, and doubles lose no digits to cancellation. Either way a step is one operation on the
rows of all queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from braid.operators import kernels
from braid.operators.kernels.double_double import add_pairs
from braid.operators.predicates.query_set import Bools
from braid.operators.state.components import neutral

Places = npt.NDArray[np.int64]

# a query with more runs is reduced cell by cell
_MANY_RUNS = 8

UFUNCS: dict[str, np.ufunc] = {"sum": np.add, "min": np.fmin, "max": np.maximum}


@dataclass(frozen=True)
class CellRuns:
    """Which cells several queries have: query q those of the runs ``[low[i], high[i])`` with ``query[i] == q``.

    Runs are ordered by query, then by cell. ``queries`` is the number of queries, some of which may have no run.
    """

    queries: int
    query: Places
    low: Places
    high: Places

    @classmethod
    def of(cls, runs: Iterable[Sequence[tuple[int, int]]]) -> CellRuns:
        """Take the runs of each query."""
        by_query = list(runs)
        query = np.repeat(np.arange(len(by_query)), [len(runs_of_query) for runs_of_query in by_query])
        bounds = np.array([run for runs_of_query in by_query for run in runs_of_query], dtype=np.int64).reshape(-1, 2)
        return cls(len(by_query), query, bounds[:, 0], bounds[:, 1])

    @classmethod
    def of_masks(cls, masks: Bools) -> CellRuns:
        """Take the runs of masks, shape (queries, cells)."""
        edges = np.zeros((masks.shape[0], masks.shape[1] + 1), dtype=np.int8)
        edges[:, :-1] = masks
        edges[:, 1:] -= masks
        query, low = np.nonzero(edges == 1)
        return cls(len(masks), query, low, np.nonzero(edges == -1)[1])

    def masks(self, cells: int) -> Bools:
        """Return them as masks, shape (queries, cells)."""
        edges = np.zeros((self.queries, cells + 1), dtype=np.int32)
        np.add.at(edges, (self.query, self.low), 1)
        np.subtract.at(edges, (self.query, self.high), 1)
        return np.cumsum(edges, axis=1)[:, :-1] > 0

    def covered(self, cells: int) -> Bools:
        """Return which cells some query has, shape (cells,)."""
        edges = np.bincount(self.low, minlength=cells + 1) - np.bincount(self.high, minlength=cells + 1)
        return np.cumsum(edges)[:-1] > 0

    def take(self, queries: Sequence[int] | Places) -> CellRuns:
        """Return those of some of the queries, numbered anew."""
        old_starts, counts = self.starts[queries], self.counts[queries]
        query = np.repeat(np.arange(len(counts)), counts)
        new_starts = np.cumsum(counts) - counts
        run = np.arange(len(query)) - np.repeat(new_starts, counts) + np.repeat(old_starts, counts)
        return CellRuns(len(counts), query, self.low[run], self.high[run])

    def from_cells(self, first: Places) -> CellRuns:
        """Return them where the cells of each query are numbered from ``first`` on, shape (queries,)."""
        return CellRuns(self.queries, self.query, self.low + first[self.query], self.high + first[self.query])

    @cached_property
    def counts(self) -> Places:
        """How many runs each query has."""
        return np.bincount(self.query, minlength=self.queries)

    @cached_property
    def starts(self) -> Places:
        """The number of the first run of each query."""
        return np.cumsum(self.counts) - self.counts


class RangeReduction:
    """Reductions over the first axis of ``cells``, shape (cells, keys); ``merge`` is "sum", "min" or "max"."""

    def __init__(self, cells: npt.NDArray[Any], merge: str) -> None:
        self._ufunc: Any = add_pairs if cells.dtype.kind == "c" else UFUNCS[merge]
        self._neutral = neutral(merge, cells.dtype)
        self._by_difference = merge == "sum" and cells.dtype.kind == "i"
        self._levels = [cells]

    @cached_property
    def _running(self) -> npt.NDArray[Any]:
        """The sums of all cells before each cell, and of all, shape (cells + 1, keys)."""
        cells = self._levels[0]
        sums = np.empty((len(cells) + 1, cells.shape[1]), dtype=cells.dtype)
        kernels.running_sums(sums, cells)
        return sums

    def _level(self, number: int) -> npt.NDArray[Any]:
        while len(self._levels) <= number:
            below = self._levels[-1]
            pairs = self._ufunc(below[0 : len(below) // 2 * 2 : 2], below[1::2])
            if len(below) % 2:
                pairs = np.concatenate([pairs, below[-1:]])
            self._levels.append(pairs)
        return self._levels[number]

    @np.errstate(over="ignore", invalid="ignore")  # infinities in the data need no warning
    def over(self, runs: CellRuns) -> npt.NDArray[Any]:
        """Reduce the cells of each query; shape (queries, keys)."""
        cells = self._levels[0]
        result = np.full((runs.queries, cells.shape[1]), self._neutral, dtype=cells.dtype)
        if self._by_difference:
            kernels.add_runs(result, runs.query, runs.low, runs.high, cells, self._running)
            return result
        has_few = runs.counts <= _MANY_RUNS
        for number in range(int(runs.counts[has_few].max(initial=0))):
            queries = np.flatnonzero(has_few & (runs.counts > number))
            run = runs.starts[queries] + number
            self._add_runs(result, queries, runs.low[run], runs.high[run])
        for query in np.flatnonzero(~has_few).tolist():
            (mask,) = runs.take([query]).masks(len(cells))
            result[query] = self._ufunc.reduce(cells[mask], axis=0)
        return result

    def lengths(self, runs: CellRuns) -> Places:
        """Return for how many keys the cells of each query, which are counts, are not zero altogether."""
        lengths = np.empty(runs.queries, dtype=np.int64)
        kernels.count_present(lengths, runs.starts, runs.counts, runs.low, runs.high, self._running)
        return lengths

    def _add_runs(self, result: npt.NDArray[Any], query: Places, low: Places, high: Places) -> None:
        """Add a run to each of some queries: block by block from the ends towards the middle."""
        level = 0
        while len(query):
            odd_start = low & 1 == 1
            self._add(result, query[odd_start], level, low[odd_start])
            odd_end = high & 1 == 1
            self._add(result, query[odd_end], level, high[odd_end] - 1)
            low, high, level = (low + 1) >> 1, high >> 1, level + 1
            has_more = low < high
            query, low, high = query[has_more], low[has_more], high[has_more]

    def _add(self, result: npt.NDArray[Any], query: Places, level: int, block: Places) -> None:
        if len(query):
            result[query] = self._ufunc(result[query], self._level(level)[block])
