"""What windows that are due hold: components of cells and keys, added up, and which cells each query has."""

from __future__ import annotations

from collections.abc import KeysView, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators.aggregation.due import WindowsToFire
from braid.operators.arrays import Numbers
from braid.operators.predicates.range_reduction import CellRuns, RangeReduction
from braid.operators.state.components import COUNT_NAME, component_named

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CellEntries:
    """Entries with tuples, ordered by cell: those of cell c are ``[starts[c], starts[c + 1])``, each with its key."""

    starts: Places
    key: npt.NDArray[np.int32]
    numbers: Mapping[str, Numbers]


class Reductions:
    """Components by name, shape (cells, keys), each made ready to be reduced over cells when it is asked for first."""

    def __init__(self, totals: Mapping[str, Numbers]) -> None:
        self._totals = totals
        self._ready: dict[str, RangeReduction] = {}

    @property
    def names(self) -> KeysView[str]:
        """The names of the components."""
        return self._totals.keys()

    def over(self, name: str, runs: CellRuns) -> Numbers | None:
        """Return a component over some cells, shape (queries, keys); None where there is no such component."""
        reduction = self._reduction(name)
        return None if reduction is None else reduction.over(runs)

    @property
    def keys(self) -> int:
        """How many keys there are, with tuples or without."""
        return self._totals[COUNT_NAME].shape[1]

    @property
    def occupied(self) -> int:
        """How many entries have tuples."""
        return int(np.count_nonzero(self._totals[COUNT_NAME]))

    def lengths(self, runs: CellRuns) -> Places:
        """Return how many keys have tuples in some cells, shape (queries,)."""
        counts = self._reduction(COUNT_NAME)
        assert counts is not None
        return counts.lengths(runs)

    def entries(self, names: Sequence[str]) -> CellEntries:
        """Return the entries that have tuples with some components; a count that was left out is that of all tuples."""
        counts = self._totals[COUNT_NAME]
        totals = {name: self._totals.get(name, counts) for name in names}
        cells, keys = counts.shape
        at = np.flatnonzero(counts != 0)  # three times as quick as of numbers
        starts = np.searchsorted(at, np.arange(cells + 1) * keys)
        key = (at - np.repeat(np.arange(cells) * keys, np.diff(starts))).astype(np.int32)
        return CellEntries(starts, key, {name: total.reshape(-1)[at] for name, total in totals.items()})

    def _reduction(self, name: str) -> RangeReduction | None:
        total = self._totals.get(name)
        if total is not None and name not in self._ready:
            self._ready[name] = RangeReduction(total, component_named(name, total.dtype).merge)
        return self._ready.get(name)


@dataclass(frozen=True)
class WindowContents:
    """What windows of several queries hold, for some of the keys.

    ``runs`` are the cells of each query, of its own window where there are several. The components in ``totals`` are
    of the keys from ``first_key`` on; ``newest`` is the greatest event time in the slices of each window.
    """

    due: WindowsToFire
    runs: CellRuns
    totals: Reductions
    keys: pa.Table
    first_key: int
    newest: Places
    dictionaries: Mapping[str, pa.Array]

    def take(self, windows: Places) -> WindowContents:
        """Return what some of the windows hold."""
        return replace(self, due=self.due.take(windows), runs=self.runs.take(windows), newest=self.newest[windows])

    def over(self, name: str, runs: CellRuns) -> Numbers | None:
        """Return a component over some cells, shape (queries, keys); None when no bucket has it."""
        return self.totals.over(name, runs)

    def counts(self, runs: CellRuns) -> Numbers:
        """Return the number of tuples in some cells, shape (queries, keys)."""
        counts = self.totals.over(COUNT_NAME, runs)
        assert counts is not None
        return counts
