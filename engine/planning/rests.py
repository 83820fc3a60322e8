"""Streams that could not be read rest for a while, twice as long each time, before they are asked again."""

from __future__ import annotations

from collections.abc import Callable

FIRST_REST_SECONDS = 1.0
LONGEST_REST_SECONDS = 30.0


class Rests:
    """Which streams rest, by id; ``now`` is a monotonic clock (seconds)."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        # how long each rests, and until when
        self._rests: dict[str, tuple[float, float]] = {}

    def begin(self, stream: str) -> None:
        """Let a stream rest: it could not be read."""
        before, _ = self._rests.get(stream, (0.0, 0.0))
        seconds = min(max(2 * before, FIRST_REST_SECONDS), LONGEST_REST_SECONDS)
        self._rests[stream] = seconds, self._now() + seconds

    def end(self, stream: str) -> None:
        """Forget that a stream rested: it could be read, or is gone."""
        self._rests.pop(stream, None)

    def __contains__(self, stream: str) -> bool:
        return stream in self._rests and self._now() < self._rests[stream][1]
