"""The pairs that two inputs give when they are compared by one code: what most joins are, in two compiled passes.

What :class:`braid.operators.joins.matches.relations.JoinResult` does for any number of inputs takes some twenty steps
over arrays.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braid.operators import kernels
from braid.operators.arrays import Places
from braid.operators.joins.matches.relations import MANY


class Pairs:
    """Rows of two inputs by ascending code, joined; ordered by code, then by the row on the left, then on the right.

    ``codes`` are those of all rows of each input. With ``outer`` rows on the left without a partner are kept, with
    ``anti`` only these.
    """

    def __init__(
        self, rows: tuple[Places, Places], codes: tuple[Places, Places], outer: bool = False, anti: bool = False
    ) -> None:
        self._left, self._right = rows
        max_groups = len(self._left)
        groups, before = np.empty((max_groups, 4), dtype=np.int32), np.empty(max_groups + 1, dtype=np.int64)
        count = kernels.match_groups(
            groups, before, self._left, codes[0], self._right, codes[1], not anti, outer or anti, MANY
        )
        self._groups: Places = groups[:count].copy()  # often few of the places are used
        self._before: npt.NDArray[np.int64] = before[: count + 1].copy()

    @property
    def total(self) -> int:
        """The number of pairs, at most :data:`~braid.operators.joins.matches.relations.MANY`."""
        return int(self._before[-1])

    @property
    def rows(self) -> int:
        """The number of rows of both inputs."""
        return len(self._left) + len(self._right)

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self._left.nbytes + self._right.nbytes + self._groups.nbytes + self._before.nbytes

    def page(self, first: int, count: int) -> list[Places]:
        """Return of the pairs ``[first, first + count)``, as far as there are so many, the rows of each input.

        -1 stands for no partner.
        """
        rows = [np.empty(max(0, min(count, self.total - first)), dtype=np.int32) for _ in range(2)]
        if len(rows[0]):
            group = int(np.searchsorted(self._before, first, side="right")) - 1
            skipped = first - int(self._before[group])
            kernels.form_pairs(rows[0], rows[1], self._groups, self._left, self._right, group, skipped)
        return rows
