"""Planning of the statements of one request: ends early when its time is up, or when nobody waits for it any more.

A statement that is being parsed cannot be interrupted, so its tokens are limited; a request may hold thousands.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Event

from braid.sources.core.errors import Overloaded, ServiceError


@dataclass
class Planning:
    """What one request may take: so many ``seconds`` from now on, the time that it waits for its turn included."""

    seconds: float
    why_ended: ServiceError | None = None
    _began: float = field(default_factory=time.monotonic)
    _ended: Event = field(default_factory=Event)

    def end(self, why: ServiceError) -> None:
        """Have :meth:`check` raise this error from now on."""
        self.why_ended = why
        self._ended.set()

    def check(self) -> None:
        """Raise why planning must not go on; to be called between statements."""
        if self._ended.is_set() and self.why_ended is not None:
            raise self.why_ended
        if time.monotonic() - self._began > self.seconds:
            raise Overloaded(
                f"The statements of a request must be planned within {self.seconds:g} seconds (setting"
                " planning_seconds), the time that it waits for others included. Send fewer, or try again later.",
                retry_after=5,
            )


_current: ContextVar[Planning | None] = ContextVar("planning", default=None)


def begin(planning: Planning) -> None:
    """Have the statements of the current request, and of threads that work for it, planned as part of ``planning``."""
    _current.set(planning)


def check() -> None:
    """Raise why the statements of the current request must not be planned any further, if there is a reason."""
    planning = _current.get()
    if planning is not None:
        planning.check()
