"""Settings of the Python interpreter for a process that keeps many small objects and answers many small requests."""

from __future__ import annotations

import gc
import sys

# objects more than were freed, before the youngest are looked at
YOUNG_OBJECTS = 10_000
# how long a thread computes before another one that waits may
SWITCH_SECONDS = 0.001


def tune() -> None:
    """Keep the pauses short that the garbage collector and other threads cause; once all is loaded.

    Looking at all objects takes a tenth of a second with 10 000 queries, and nothing else runs meanwhile. Queries are
    freed without the collector, so it has little to find: it leaves alone what is there now, and comes less
    often. A request passes between threads several times, and would wait 5 ms each time while one computes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)
    sys.setswitchinterval(SWITCH_SECONDS)
