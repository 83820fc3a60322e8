"""What the query load is to do: its first line of input, and what its users are told."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

MAX_USERS = 300
MIN_USERS = 10
EXPECTED_LATENCY_SECONDS = 3.0


@dataclass(frozen=True)
class LoadPlan:
    """A ramp: each body once, `per_second` a second. Or a churn: `churn_queries` made and retired each `churn_seconds`.

    `live` are the queries that a churn may retire, oldest first; those that it makes come after them. It takes the
    bodies in turn and begins again when they are used up. `users` send the requests, each one at a time; what they are
    too few for waits in the queue, and its latency grows. Once the last request is queued (a ramp), or it is told to
    stop, there are `finish_seconds` for the answers.
    """

    url: str
    bodies: tuple[Mapping[str, Any], ...]
    per_second: float | None = None
    churn_queries: int = 0
    churn_seconds: float | None = None
    live: tuple[str, ...] = ()
    users: int = MAX_USERS
    reads_per_second: float = 2.0
    finish_seconds: float = 120.0
    seed: int = 1

    def __post_init__(self) -> None:
        if (self.per_second is None) == (self.churn_seconds is None):
            raise ValueError("a query load is either a ramp (per_second) or a churn (churn_seconds), not both")
        pace = self.per_second if self.per_second is not None else self.churn_seconds
        if not (isinstance(pace, int | float) and math.isfinite(pace) and pace > 0):
            raise ValueError(f"per_second or churn_seconds must be a positive number, got {pace!r}")
        if self.churn_seconds is not None and self.churn_queries < 1:
            raise ValueError(f"a churn needs churn_queries of 1 or more, got {self.churn_queries!r}")
        if not self.bodies or not all(isinstance(body, Mapping) and "sql" in body for body in self.bodies):
            raise ValueError('bodies must be objects with "sql", at least one')
        if self.users < 1 or self.reads_per_second < 0 or self.finish_seconds <= 0:
            raise ValueError(
                "users must be 1 or more, reads_per_second 0 or more, finish_seconds above 0, "
                f"got {self.users!r}, {self.reads_per_second!r}, {self.finish_seconds!r}"
            )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LoadPlan:
        """Read what :meth:`to_json` gave; ValueError when it is no plan."""
        try:
            return cls(**{**values, "bodies": tuple(values["bodies"]), "live": tuple(values.get("live", ()))})
        except (TypeError, KeyError) as error:
            raise ValueError(f"a query load's plan does not fit: {error}") from error

    def to_json(self) -> dict[str, Any]:
        """Return a form of plain objects."""
        return asdict(self)

    def ticks(self) -> Iterator[tuple[float, int]]:
        """Yield `(seconds after the start, creations then)`; a churn never ends, and retires as many each time."""
        if self.per_second is not None:
            yield from ((number / self.per_second, 1) for number in range(len(self.bodies)))
            return
        assert self.churn_seconds is not None
        tick = 0
        while True:
            yield tick * self.churn_seconds, self.churn_queries
            tick += 1


def users_for(requests_per_second: float) -> int:
    """Return how many users keep such a schedule while each request takes some seconds."""
    return max(MIN_USERS, min(MAX_USERS, math.ceil(requests_per_second * EXPECTED_LATENCY_SECONDS)))
