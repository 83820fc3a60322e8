"""Event-time latency: how old the newest tuple of a result is when the result comes.

It is known where event times tell when something just happened. Recorded data is played long afterwards, and the age of
data is no latency: beyond a day there is none.
"""

from __future__ import annotations

KNOWN_WITHIN_US = 86_400 * 10**6


def latency_us(arrived_us: int, event_us: int) -> int | None:
    """Return how long after its event time something arrived (µs), None where that is a day or more, or before."""
    latency = arrived_us - event_us
    return latency if abs(latency) < KNOWN_WITHIN_US else None
