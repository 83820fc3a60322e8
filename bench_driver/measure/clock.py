"""The time that a measurement goes by: that of the machine, or one that tests make go by."""

from __future__ import annotations

import time


class Clock:
    """The time of the machine."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Return so many seconds later."""
        time.sleep(seconds)


MACHINE = Clock()
