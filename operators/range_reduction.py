"""Sums, minima and maxima over many ranges of cells at once.

A query's cells form few runs. Runs are covered by dyadic blocks whose reductions are computed once for all queries, so
a query costs O(log cells) vector operations. Nothing is subtracted, so it serves every associative function, integer
sums stay exact, and doubles lose no digits to cancellation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from operators.components import neutral
from operators.double_double import add_pairs

_MANY_RUNS = 8

UFUNCS: dict[str, np.ufunc] = {"sum": np.add, "min": np.fmin, "max": np.fmax}


class RangeReduction:
    """Reductions over the first axis of ``cells``, shape (cells, keys); ``merge`` is "sum", "min" or "max"."""

    def __init__(self, cells: npt.NDArray[Any], merge: str) -> None:
        self._ufunc: Any = add_pairs if cells.dtype.kind == "c" else UFUNCS[merge]
        self._neutral = neutral(merge, cells.dtype)
        self._levels = [cells]

    def _level(self, number: int) -> npt.NDArray[Any]:
        while len(self._levels) <= number:
            below = self._levels[-1]
            pairs = self._ufunc(below[0 : len(below) // 2 * 2 : 2], below[1::2])
            if len(below) % 2:
                pairs = np.concatenate([pairs, below[-1:]])
            self._levels.append(pairs)
        return self._levels[number]

    @np.errstate(over="ignore", invalid="ignore")  # infinities in the data are no news
    def over(self, selected: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
        """Reduce the cells at which ``selected`` is true; shape (keys,)."""
        edges = np.flatnonzero(np.diff(np.concatenate([[False], selected, [False]])))
        if len(edges) > 2 * _MANY_RUNS:
            return self._ufunc.reduce(self._levels[0][selected], axis=0)
        result = np.full(self._levels[0].shape[1], self._neutral, dtype=self._levels[0].dtype)
        for low, high in zip(edges[0::2].tolist(), edges[1::2].tolist(), strict=True):
            self._add_run(result, low, high)
        return result

    def _add_run(self, result: npt.NDArray[Any], low: int, high: int) -> None:
        """Add the run ``[low, high)``, block by block from the ends towards the middle."""
        level = 0
        while low < high:
            if low & 1:
                self._ufunc(result, self._level(level)[low], out=result)
                low += 1
            if high & 1:
                high -= 1
                self._ufunc(result, self._level(level)[high], out=result)
            low, high, level = low >> 1, high >> 1, level + 1
