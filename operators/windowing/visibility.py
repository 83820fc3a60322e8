"""Which queries may see a tuple by its event time alone: those after active_from, up to active_to.

Event time at and above the watermark is cut at the changelog times of the queries; between two cuts the set of queries
that see tuples is constant. There are few cuts: those below the watermark no longer matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braid.operators.event_times import EARLIEST, LATEST
from braid.operators.live_queries import LiveQuery
from braid.operators.predicates.query_set import QuerySets, pack


@dataclass(frozen=True)
class Visibility:
    """``cuts`` are the first times after which the set changes; ``query_sets`` has one row per stretch between cuts."""

    cuts: npt.NDArray[np.int64]
    query_sets: QuerySets

    def stretch_of(self, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return for each time the row of ``query_sets`` that holds for it."""
        if not len(self.cuts):
            return np.zeros(len(times), dtype=np.int64)
        return np.searchsorted(self.cuts, times, side="right")


def visibility(queries: Sequence[LiveQuery], stream: str, watermark: int | None, words: int) -> Visibility:
    """Return who sees tuples of ``stream`` at or above ``watermark`` (µs; None when there is none yet)."""
    floor = EARLIEST if watermark is None else watermark - 1
    after = np.array([max(q.after(stream), floor) for q in queries], dtype=np.int64)
    until = np.array([max(q.until(stream), floor) for q in queries], dtype=np.int64)
    bounds = np.unique(np.concatenate([after, until]))
    bounds = bounds[(bounds > floor) & (bounds < LATEST)]
    starts = np.concatenate([[floor], bounds])
    ends = np.concatenate([bounds, [LATEST]])
    bits = np.zeros((len(starts), words * 64), dtype=np.bool_)
    slots = np.array([q.slot for q in queries], dtype=np.int64)
    bits[:, slots] = (after[None, :] <= starts[:, None]) & (until[None, :] >= ends[:, None])
    return Visibility(bounds + 1, pack(bits, words))
