"""What came of a query load: one record a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

CREATE, DELETE = "create", "delete"


@dataclass
class LoadRequest:
    """A user's request to create or delete a query; times are seconds since 1970.

    `scheduled` is when it was due and went into the queue, `sent` when a user first sent it. `acknowledged` is when the
    client saw it take effect: for a creation, that the query is RUNNING; for a deletion, that its `active_to` is
    decided (it sees no later tuple) or that it is RETIRED. DRAINING alone is no such sign: the service says so as soon
    as it has accepted the deletion. `number` is the place of a creation's body in the plan, `status` the last HTTP
    status, 0 when nobody answered.
    """

    kind: str
    scheduled: float
    number: int | None = None
    query_id: str | None = None
    sent: float | None = None
    acknowledged: float | None = None
    status: int | None = None
    attempts: int = 0
    error: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether it took effect or was refused."""
        return self.acknowledged is not None or self.error is not None


@dataclass(frozen=True)
class LoadResult:
    """All requests by their schedule. `live` are the queries that a next churn may retire, oldest first."""

    started_at: float
    ended_at: float
    requests: tuple[LoadRequest, ...]
    live: tuple[str, ...]

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LoadResult:
        """Read what :meth:`to_json` gave."""
        requests = tuple(LoadRequest(**request) for request in values["requests"])
        return cls(values["started_at"], values["ended_at"], requests, tuple(values["live"]))

    def to_json(self) -> dict[str, Any]:
        """Return a form of plain objects."""
        return asdict(self)

    def of(self, kind: str) -> list[LoadRequest]:
        """Return the requests of one kind."""
        return [request for request in self.requests if request.kind == kind]

    def latencies(self, kind: str) -> tuple[float, ...]:
        """Return seconds from schedule to effect of those that were not refused.

        A request that was still waiting at the end counts with the time it had waited: leaving it out would flatter.
        """
        accepted = [request for request in self.of(kind) if request.error is None]
        return tuple((request.acknowledged or self.ended_at) - request.scheduled for request in accepted)


def refused(requests: Iterable[LoadRequest]) -> list[LoadRequest]:
    """Return those that the system refused or failed."""
    return [request for request in requests if request.error is not None]


def unanswered(requests: Iterable[LoadRequest]) -> list[LoadRequest]:
    """Return those that had not taken effect when the load ended."""
    return [request for request in requests if not request.is_over]
