"""Meters of what tenants use by the second and by the minute, against their quotas."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from braid.session.access.principal import Quotas
from braid.sources.core.errors import LimitReached

MINUTE = 60.0


class TokenBucket:
    """Grants ``rate`` units a second; what is not used is kept, up to ``burst``."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._lock = threading.Lock()
        self._balance, self._at = burst, clock()

    def take(self, amount: float) -> float:
        """Take an amount and return 0; or take nothing and return the seconds after which it is there."""
        with self._lock:
            missing = amount - self._current()
            if missing <= 0:
                self._balance -= amount
                return 0.0
            return missing / self._rate if self._rate else math.inf

    def available(self) -> float:
        """Return how much can be taken now."""
        with self._lock:
            return self._current()

    def spend(self, amount: float) -> None:
        """Take what was available a moment ago; the balance is negative where others took it at the same time."""
        with self._lock:
            self._balance = self._current() - amount

    def seconds_until(self, amount: float) -> float:
        """Return after how long an amount is there."""
        missing = amount - self.available()
        return 0.0 if missing <= 0 else missing / self._rate if self._rate else math.inf

    def _current(self) -> float:
        now = self._clock()
        self._balance = min(self._burst, self._balance + (now - self._at) * self._rate)
        self._at = now
        return self._balance


class Meters:
    """The meters of one tenant with given quotas."""

    def __init__(self, quotas: Quotas, clock: Callable[[], float] = time.monotonic) -> None:
        self.quotas = quotas
        creations, rows = quotas.creations_a_minute, quotas.result_rows_a_second
        self._creations = None if creations is None else TokenBucket(creations / MINUTE, creations, clock)
        self._rows = None if rows is None else TokenBucket(rows, rows, clock)

    def count_creations(self, queries: int) -> None:
        """Count queries that are to be created; LimitReached for more than the tenant may create now."""
        if self._creations is None:
            return
        seconds, limit = self._creations.take(queries), self.quotas.creations_a_minute
        if seconds:
            raise LimitReached(
                f"This tenant may create {limit} queries a minute, and no more at once (quota creations_a_minute); got"
                f" {queries}, more than it has left. "
                + ("Try again later." if queries <= (limit or 0) else f"Send at most {limit} at once."),
                retry_after=_retry_after(seconds),
            )

    def rows_at_once(self, limit: int) -> int:
        """Return how many of ``limit`` rows a page may have now; LimitReached when none may be read yet."""
        seconds = self.rows_paused()
        if seconds:
            raise LimitReached(
                f"This tenant may read {self.quotas.result_rows_a_second} rows a second (quota result_rows_a_second)."
                " Read on from the same cursor later.",
                retry_after=_retry_after(seconds),
            )
        return limit if self._rows is None else max(1, min(limit, int(self._rows.available())))

    def rows_paused(self) -> float:
        """Return for how many seconds no row may be read."""
        return 0.0 if self._rows is None else self._rows.seconds_until(1)

    def count_rows(self, rows: int) -> None:
        """Count rows that were read."""
        if self._rows is not None:
            self._rows.spend(rows)


def _retry_after(seconds: float) -> int:
    """Return whole seconds for a ``Retry-After``."""
    return math.ceil(min(seconds, MINUTE * MINUTE))
