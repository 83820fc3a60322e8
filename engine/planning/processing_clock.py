"""Processing time: that of the system's clock, but it never falls and never stands still."""

from __future__ import annotations

import time
from collections.abc import Callable


class ProcessingClock:
    """The processing time of batches.

    It is the system's time. Where that was set back, it goes on from the last processing time at the pace of a clock
    that cannot be set, until the system's time has caught up: delays of EMIT run out as they would have.
    """

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._monotonic_ns = monotonic_ns
        self._last_us = 0
        # while the system's time is behind: a processing time, and the other clock as of then
        self._behind_since: tuple[int, int] | None = None

    def time_us(self, system_us: int, planned_us: int) -> int:
        """Return the processing time now, given the system's time and that of the last batch (all µs since 1970)."""
        last_us = max(planned_us, self._last_us)
        if system_us >= last_us:
            self._last_us, self._behind_since = system_us, None
            return system_us
        now_ns = self._monotonic_ns()
        if self._behind_since is None:
            self._behind_since = last_us, now_ns
        since_us, since_ns = self._behind_since
        self._last_us = max(last_us, since_us + (now_ns - since_ns) // 1000)
        return self._last_us
