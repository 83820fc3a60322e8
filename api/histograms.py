"""Histograms of latencies of many queries as arrays, so that a batch of thousands of them costs a few numpy calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from api.exposition import head
from router.latency import LATENCY_SECONDS

_BOUNDS = [*(str(bound) for bound in LATENCY_SECONDS), "+Inf"]


class Histograms:
    """One histogram a row: ``counts`` has shape (rows, buckets), not cumulative; ``sums`` (seconds) shape (rows,)."""

    def __init__(self, rows: int) -> None:
        self.counts = np.zeros((rows, len(_BOUNDS)), np.int64)
        self.sums = np.zeros(rows)

    def observe(self, rows: npt.NDArray[np.int64], seconds: npt.NDArray[np.float64]) -> None:
        """Count a latency for each of some rows; NaN is not counted."""
        is_known = ~np.isnan(seconds)
        rows, seconds = rows[is_known], seconds[is_known]
        np.add.at(self.counts, (rows, np.searchsorted(LATENCY_SECONDS, seconds)), 1)
        np.add.at(self.sums, rows, seconds)

    def clear(self, row: int) -> None:
        """Begin a row anew."""
        self.counts[row] = 0
        self.sums[row] = 0.0

    def copy(self) -> Histograms:
        """Return them as they are now."""
        copied = Histograms(0)
        copied.counts, copied.sums = self.counts.copy(), self.sums.copy()
        return copied

    def text(self, name: str, help_text: str, rows: Sequence[int], ids: Sequence[str]) -> str:
        """Return the metric ``name`` with the samples of some rows, whose ``query_id`` are given."""
        labels = '{query_id="\0"'
        template = "".join(f'{name}_bucket{labels},le="{bound}"}} %d\n' for bound in _BOUNDS)
        template += f"{name}_count{labels}}} %d\n{name}_sum{labels}}} %r\n"
        counts = np.cumsum(self.counts[rows], axis=1).tolist()
        sums = self.sums[rows].tolist()
        lines = [
            template.replace("\0", query_id) % (*cumulative, cumulative[-1], total)
            for query_id, cumulative, total in zip(ids, counts, sums, strict=True)
        ]
        return head(name, "histogram", help_text) + "".join(lines)
