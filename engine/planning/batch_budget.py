"""How large a batch may be: learnt from how long batches took, and from what waited meanwhile.

A batch costs what it reads and what it fires. What is read is counted in tuples of usual size; a tuple of many bytes
counts as several (:class:`TupleCosts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from braid.sources.core.replays import origin_of

# how many times the target a batch may take where tuples pile up
LONGEST_BATCH = 4.0
_BATCHES_COMPARED = 3

# a tuple of so many bytes costs as much again as one that has hardly any
_BYTES_OF_A_TUPLE = 1000
# so many tuples are read of a stream before anything is known of their size
FIRST_TUPLES = 10_000

# what windows that fire in one batch may cost at first, and in the end (µs, as counted before they fire)
_FIRST_FIRING_US, _MIN_FIRING_US, _MAX_FIRING_US = 2e6, 2e5, 2e9


class BatchBudget:
    """How many tuples a batch may read, learnt from how long batches took and whether tuples piled up.

    Batches that read all they may take about the target. Where tuples pile up nevertheless, or more wait than the next
    batch takes, batches get longer, up to `LONGEST_BATCH` times the target: what a batch costs before it reads a tuple
    then serves more of them. Where far more wait they get longer at once.
    """

    def __init__(
        self, target_seconds: float, first: int = 200_000, minimum: int = 1_000, maximum: int = 100_000_000
    ) -> None:
        self._target = target_seconds
        self._min = minimum
        self._max = maximum
        self._recent: list[tuple[float, float]] = []
        self.tuples = first

    def learn(self, tuples: float, seconds: float, waiting: float) -> None:
        """Take note of a batch, and of the tuples that waited when it was planned and were not for it.

        Both are counted as they cost.

        Only batches that used most of the budget change it; windows end in some of them, so several are averaged.
        """
        if tuples < self.tuples // 2:
            self._recent = []
            return
        self._recent.append((seconds, waiting))
        mean = sum(duration for duration, _ in self._recent) / len(self._recent)
        longest = LONGEST_BATCH * self._target
        is_far_behind = waiting > 2 * self.tuples and mean < longest / 2
        if mean < self._target / 2 or is_far_behind:
            self._change(2.0)
        elif mean > 2 * longest:
            self._change(0.5)
        elif len(self._recent) == _BATCHES_COMPARED:
            if waiting > min(self._recent[0][1], self.tuples):
                self._change(min(1.5, longest / mean))
            else:
                self._change(min(2.0, max(0.8, self._target / mean)))

    def _change(self, factor: float) -> None:
        self.tuples = min(max(int(self.tuples * factor), self._min), self._max)
        self._recent = []


class TupleCosts:
    """What tuples of each stream cost, by those that were read last: to read, by their size, and to fire their windows.

    To read a tuple of hardly any bytes costs 1.
    """

    def __init__(self, target_seconds: float) -> None:
        self._target_us = target_seconds * 1e6
        self._reading: dict[str, float] = {}
        self._firing_us: dict[str, float] = {}
        self._unfired: dict[str, tuple[int, float]] = {}

    def learn(self, record: Mapping[str, Any]) -> None:
        """Take note of the record of a batch; streams that it does not name are forgotten.

        Where windows of tuples go on firing in further batches, what partitions did in all of these is put down to the
        tuples. Where they fit the batch, more may be read the next time.
        """
        streams, still_firing = record["streams"], record.get("fire_to", {})
        busy_us = max(record.get("operator_busy_us", ()), default=0)
        for costs in (self._reading, self._firing_us, self._unfired):
            for stream in costs.keys() - streams.keys():
                del costs[stream]
        for stream, counts in streams.items():
            tuples = counts["tuples"]
            read = tuples + counts.get("malformed", 0)
            if read:
                self._reading[stream] = 1 + counts.get("bytes", 0) / read / _BYTES_OF_A_TUPLE
            if stream in self._unfired or stream in still_firing:
                unfired, firing_us = self._unfired.pop(stream, (0, 0.0))
                unfired, firing_us = unfired + tuples, firing_us + busy_us
                if stream in still_firing:
                    self._unfired[stream] = unfired, firing_us
                elif unfired:
                    self._firing_us[stream] = firing_us / unfired
            elif tuples and stream in self._firing_us:
                self._firing_us[stream] /= 2

    def of(self, stream: str) -> float:
        """Return what it costs to read a tuple of a stream; of a replay not yet read, one of its origin."""
        return self._reading.get(stream, self._reading.get(origin_of(stream), 1.0))

    def most(self, stream: str, waiting: int) -> int:
        """Return how many of the tuples that wait may be read: as many as have windows for `LONGEST_BATCH` to be fired.

        While nothing is known of a stream that is few.
        """
        if stream not in self._reading and origin_of(stream) not in self._reading:
            return min(waiting, FIRST_TUPLES)
        return min(waiting, max(1, int(LONGEST_BATCH * self._target_us / self._firing_us.get(stream, 1e-9))))


class FiringBudget:
    """What the windows that fire in one batch may cost: they take between the target and `LONGEST_BATCH` times it.

    Costs are counted before windows fire (:mod:`braid.operators.windowing.firing_limit`), roughly; ``us`` makes up for
    that. Batches that take long whatever they do are not made smaller for it without end.
    """

    def __init__(self, target_seconds: float) -> None:
        self._target_us = target_seconds * 1e6
        self.us = _FIRST_FIRING_US * target_seconds

    def learn(self, busy_us: float) -> None:
        """Take note of how long a batch took that fired as much as it may."""
        if busy_us < self._target_us:
            self.us = min(2 * self.us, _MAX_FIRING_US)
        elif busy_us > LONGEST_BATCH * self._target_us:
            self.us = max(self.us / 2, _MIN_FIRING_US)
