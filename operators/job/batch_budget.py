"""How large a batch may be: learnt from how long batches took, and from what waited meanwhile."""

from __future__ import annotations

# how many times the target a batch may take where tuples pile up
LONGEST_BATCH = 4.0
_BATCHES_COMPARED = 3


class BatchBudget:
    """How many tuples a batch may read, learnt from how long batches took and whether tuples piled up.

    Batches that read all they may take about the target. Where tuples pile up nevertheless, or more wait than the next
    batch takes, batches get longer, up to `LONGEST_BATCH` times the target: what a batch costs before it reads a tuple
    then serves more of them. Where far more wait they get longer at once.
    """

    def __init__(
        self, target_seconds: float, first: int = 200_000, least: int = 50_000, most: int = 100_000_000
    ) -> None:
        self._target = target_seconds
        self._least = least
        self._most = most
        self._recent: list[tuple[float, int]] = []
        self.tuples = first

    def learn(self, tuples: int, seconds: float, waiting: int) -> None:
        """Take note of a batch, and of the tuples that waited when it was planned and were not for it.

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
        self.tuples = min(max(int(self.tuples * factor), self._least), self._most)
        self._recent = []
