"""Every error that Braid raises on purpose.

::

    ServiceError                 500  something in Braid is broken
    ├── MalformedRequest       400  the request cannot be read
    │   └── SqlSyntaxError     400  the statement does not parse (has a position)
    ├── Unauthorized           401  who asks is not known
    ├── Forbidden              403  who asks may not do this
    ├── UnknownObject          404  no such stream, table or query
    ├── Conflict               409  the request contradicts what exists
    ├── Gone                   410  it existed, but its retention has passed
    ├── TooLarge               413  a body or a batch of requests beyond its limit
    ├── NotAllowed             422  understood, but not possible
    │   └── SqlNotAllowed      422  a statement that names what does not exist or is not supported (has a position)
    ├── Overloaded             429  try again later (has ``retry_after``, seconds)
    ├── NotReady               503  starting, stopping or recovering
    └── CorruptData            500  bytes on disk that do not read back

Each error knows its HTTP status and title; messages say what must hold, what was got, and what to do next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Position:
    """A place in a SQL text; both numbers start at 1."""

    line: int
    column: int

    def to_json(self) -> dict[str, int]:
        """Return the form used in problem documents."""
        return {"line": self.line, "column": self.column}


class ServiceError(Exception):
    """Base of all errors that Braid raises on purpose."""

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"

    def __init__(
        self,
        detail: str,
        *,
        position: Position | None = None,
        query_id: str | None = None,
        stream: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.position = position
        self.query_id = query_id
        self.stream = stream


class MalformedRequest(ServiceError):
    """The request cannot be read."""

    status = 400
    title = "Malformed request"


class SqlSyntaxError(MalformedRequest):
    """The statement does not parse."""

    title = "SQL syntax error"


class Unauthorized(ServiceError):
    """The request comes without a key, or with one that is not known."""

    status = 401
    title = "Not authenticated"


class Forbidden(ServiceError):
    """The key of the request lacks the right."""

    status = 403
    title = "Forbidden"


class UnknownObject(ServiceError):
    """No stream, table or query has this name."""

    status = 404
    title = "Not found"


class Conflict(ServiceError):
    """The request contradicts what exists."""

    status = 409
    title = "Conflict"


class Gone(ServiceError):
    """What is asked for has passed its retention."""

    status = 410
    title = "Gone"


class TooLarge(ServiceError):
    """A body, or a number of requests in one body, is beyond its limit."""

    status = 413
    title = "Too large"


class NotAllowed(ServiceError):
    """The request is understood but cannot be done."""

    status = 422
    title = "Not allowed"


class SqlNotAllowed(NotAllowed):
    """The statement parses, but names what does not exist or asks for what is not supported."""

    title = "SQL not accepted"


class UnknownColumn(SqlNotAllowed):
    """A statement names a column that its inputs do not have; ``hint`` says which may be meant."""

    name = inputs = hint = ""

    @classmethod
    def of(cls, name: str, inputs: str, hint: str, position: Position | None) -> UnknownColumn:
        """Return the error of a name, given what the inputs have, as a clause."""
        error = cls(f"Column {name!r} does not exist; {inputs}.{hint}", position=position)
        error.name, error.inputs, error.hint = name, inputs, hint
        return error


class Overloaded(ServiceError):
    """The service cannot take this now; ``retry_after`` is in seconds."""

    status = 429
    title = "Overloaded"

    def __init__(self, detail: str, *, retry_after: int = 1) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class LimitReached(Overloaded):
    """A quota of the tenant, or the most queries that the service takes, would be exceeded."""

    title = "Limit reached"


class NotReady(ServiceError):
    """The service is starting, stopping or recovering."""

    status = 503
    title = "Not ready"


class CorruptData(ServiceError):
    """Bytes on disk do not read back as what was written."""

    title = "Corrupt data"
