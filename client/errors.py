"""The errors of the client.

They are::

    BraidError
    ├── Refused       the service answered, and said no (problem+json)
    ├── Unreachable   nobody answered, or the answer is not of a Braid service
    └── QueryFailed   the query that was followed is FAILED: no row will follow
"""

from __future__ import annotations

from dataclasses import dataclass


class BraidError(Exception):
    """Any error of this client."""


@dataclass(eq=False)
class Refused(BraidError):
    """Say why the service refused a request.

    `status` is the HTTP status, `title` and `detail` come from the problem+json body, `position` is
    `(line, column)` in `sql`, counted from one, when the place is known. `retry_after` is in seconds.
    """

    status: int
    title: str
    detail: str
    position: tuple[int, int] | None = None
    sql: str | None = None
    retry_after: float | None = None

    def __str__(self) -> str:
        return f"{self.status} {self.title}: {self.detail}"


@dataclass(eq=False)
class Unreachable(BraidError):
    """Say that no Braid service answered at `url`."""

    url: str
    reason: str

    def __str__(self) -> str:
        return f"No Braid service answers at {self.url}: {self.reason}"


class QueryFailed(BraidError):
    """Say that the query that was followed is FAILED, and with which error."""
