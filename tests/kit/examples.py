"""How many examples a property test draws."""

from __future__ import annotations

import os

# `make test-long` sets it
IS_LONG = "BRAID_ORACLE_EXAMPLES" in os.environ
TIMES = 8


def examples(few: int) -> int:
    """Return so many, and several times as many in the long run of the tests."""
    return few * TIMES if IS_LONG else few
