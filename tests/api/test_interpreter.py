"""The interpreter's settings, in a process of their own."""

from __future__ import annotations

import subprocess
import sys

LOOK = """
import gc, sys
from braid.api.interpreter import SWITCH_SECONDS, YOUNG_OBJECTS, tune
tune()
assert gc.isenabled()
assert gc.get_freeze_count() > 1000
assert gc.get_threshold()[0] == YOUNG_OBJECTS
assert abs(sys.getswitchinterval() - SWITCH_SECONDS) < 1e-6
ring = []
ring.append(ring)
import weakref
class Thing: pass
thing = Thing(); thing.self = thing; gone = weakref.ref(thing); del thing
kept = [[] for _ in range(2 * YOUNG_OBJECTS)]
assert gone() is None, "what refers to itself is still found"
"""


def test_the_collector_comes_seldom_and_does_not_look_at_what_was_loaded() -> None:
    subprocess.run([sys.executable, "-c", LOOK], check=True)
