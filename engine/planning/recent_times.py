"""The event times of a stream's last tuples, summed up, and their percentile: for ``watermark_percentile``.

Source tasks sum up the event times of their tuples, the batch record keeps the sums of the last batches, and the next
offset carries them, so that a batch that runs again comes to the same watermark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

# how many of the last tuples the percentile is over; it is always over all of the last batch
LAST_TUPLES = 1000
MAX_POINTS = 1000
# of a chunk: more than MAX_POINTS, so that summing up its sum again adds little error
POINTS_OF_CHUNK = 10_000

Times = npt.NDArray[np.int64]
# "us": event times in rising order, "tuples": how many of the tuples each stands for
Sum = dict[str, list[int]]


def sum_up(times: Times, tuples: Times | None = None, points: int = MAX_POINTS) -> Sum:
    """Return event times, shape (n,), µs, as at most ``points``; ``tuples`` says for how many each stands, else one.

    Each point is the greatest of the times that it stands for, and all stand for equally many, so a percentile moves
    up by one stretch between points at most. Up to ``points`` times are kept as they are.
    """
    order = np.argsort(times, kind="stable")
    counts = np.ones(len(times), dtype=np.int64) if tuples is None else tuples[order]
    times = times[order]
    if len(times) > points:
        tuples_upto = np.cumsum(counts)
        ranks = np.unique(int(tuples_upto[-1]) * np.arange(1, points + 1) // points)
        times, counts = times[np.searchsorted(tuples_upto, ranks)], np.diff(ranks, prepend=0)
    return {"us": times.tolist(), "tuples": counts.tolist()}


def merged(sums: Iterable[Sum]) -> Sum:
    """Bring together what several tasks, or chunks, sum up."""
    return sum_up(*_points(list(sums)))


def keep_last(sums: Sequence[Sum]) -> list[Sum]:
    """Return as many sums of the last batches as LAST_TUPLES tuples take, oldest first."""
    last_sums: list[Sum] = []
    tuples = 0
    for batch_sum in reversed(sums):
        if tuples >= LAST_TUPLES:
            break
        last_sums.append(batch_sum)
        tuples += sum(batch_sum["tuples"])
    return last_sums[::-1]


def percentile_of(sums: Sequence[Sum], percentile: float) -> int | None:
    """Return the least event time (µs) that so many percent of the tuples do not exceed, None without tuples."""
    times, counts = _points(sums)
    if not len(times):
        return None
    order = np.argsort(times, kind="stable")
    tuples_upto = np.cumsum(counts[order])
    rank = np.ceil(round(percentile / 100 * int(tuples_upto[-1]), 6))
    return int(times[order][np.searchsorted(tuples_upto, rank)])


def _points(sums: Sequence[Sum]) -> tuple[Times, Times]:
    return (
        np.array([us for times in sums for us in times["us"]], dtype=np.int64),
        np.array([tuples for times in sums for tuples in times["tuples"]], dtype=np.int64),
    )
