"""Wait on conditions with a deadline: the only waiting that tests do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.25


class DeadlineExceededError(AssertionError):
    """A condition did not come true in time."""


def wait_until(
    condition: Callable[[], T],
    deadline_seconds: float,
    requirement: str | Callable[[], str],
) -> T:
    """Poll until the condition is truthy and return its value.

    Pauses grow from 20 to 250 ms, so that a quick condition is seen quickly and a slow one costs little.
    `requirement` says what must hold; a callable is asked when time is up, so it can tell what was last seen.

    Raises:
        DeadlineExceededError: the condition was still falsy after `deadline_seconds`.
    """
    started = time.monotonic()
    pause = FIRST_PAUSE_SECONDS
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - started
        if waited >= deadline_seconds:
            text = requirement() if callable(requirement) else requirement
            raise DeadlineExceededError(f"within {deadline_seconds:g} s must hold: {text}; last got {value!r}")
        time.sleep(min(pause, deadline_seconds - waited))
        pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
