"""Settings of the Python interpreter for a process that keeps many small objects and answers many small requests."""

from __future__ import annotations

import gc
import sys

# how many more objects are made than freed before the collector looks at the youngest
YOUNG_OBJECTS = 10_000
# how long a thread computes before another one that waits may run
SWITCH_SECONDS = 0.001


def tune() -> None:
    """Keep the pauses short that the garbage collector and other threads cause; call it once all is loaded.

    Looking at all objects takes a tenth of a second with 10 000 queries, and nothing else runs meanwhile. Queries are
    freed without the collector, so it has little to find: it leaves alone what exists now, and runs less
    often. A request passes between threads several times, and would wait 5 ms each time while one computes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)
    sys.setswitchinterval(SWITCH_SECONDS)
