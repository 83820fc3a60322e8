"""Requests as they are built, and answers as they are parsed; nothing here sends or waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any, TypedDict, Unpack
from urllib.parse import quote

import httpx

from braid.client.errors import Refused, Unreachable

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
MEDIA_TYPES = {"ndjson": NDJSON, "json": JSON, "arrow": ARROW, "csv": "text/csv"}
SAMPLE_TYPES = {
    "": "application/octet-stream",
    "csv": "text/csv",
    "ndjson": NDJSON,
    "json": JSON,
    "parquet": "application/vnd.apache.parquet",
}

Object = dict[str, Any]

_A_PAGE = "the answer is a web page, not one of Braid: look at the address, and at what stands before the service"


class QueryFields(TypedDict, total=False):
    """The fields that a query may have beside its SQL."""

    name: str | None
    sink: str | Mapping[str, Any] | None
    ttl_seconds: float | None
    labels: Mapping[str, str] | None
    start: str | None


@dataclass(frozen=True)
class ResultPage:
    """Rows in order; `cursor` is the place after the last of them; `end`: no row will ever follow.

    `gap` tells of rows before them that cannot be read: `rows`, `batches` (first, last) and `detail`.
    """

    rows: list[Object]
    cursor: str | None
    end: bool
    gap: Object | None = None


@dataclass(frozen=True)
class Request:
    """One request: `body` is sent as JSON, or `content` as it is; a parameter of `query` that is None is left out.

    `key` is its Idempotency-Key; `wait`, in seconds, is how long the service may take on top of the timeout.
    """

    method: str
    path: str
    body: Any = None
    content: bytes | None = None
    media_type: str = JSON
    accept: str | None = None
    query: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None
    wait: float | None = None

    def __post_init__(self) -> None:
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and self.key.strip()):
            raise ValueError(f"an idempotency key must be printable ASCII, got {self.key!r}")

    def encoded(self) -> Object:
        """Return the arguments with which httpx sends it, all but the URL and the timeout."""
        content = self.content if self.body is None else encoded(self.body)
        headers = {} if content is None else {"Content-Type": self.media_type}
        if self.key is not None:
            headers["Idempotency-Key"] = self.key
        if self.accept is not None:
            headers["Accept"] = self.accept
        parameters = {name: value for name, value in self.query.items() if value is not None}
        return {"content": content, "params": parameters, "headers": headers}


def query_body(sql: str, **fields: Unpack[QueryFields]) -> Object:
    """Build the body that registers a query, without the fields that are None."""
    return {"sql": sql} | {name: value for name, value in fields.items() if value is not None}


def rows_content(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Write rows as NDJSON; times may be `datetime`, decimals `Decimal`."""
    return b"".join(encoded(row) + b"\n" for row in rows)


def segment(name: str) -> str:
    """Return a name or id as one segment of a path."""
    # '.' and '..' would be resolved away as path segments, and '' would name the collection
    if name in ("", ".", ".."):
        raise ValueError(f"a name or id must not be {name!r}")
    return quote(name, safe="")


def encoded(value: Any) -> bytes:
    """Write a value as JSON."""
    return json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False).encode()


def _plain(value: Any) -> str:
    if isinstance(value, date | Decimal):  # a datetime is a date too
        return value.isoformat() if isinstance(value, date) else str(value)
    raise TypeError(f"a value must be JSON, a date, a datetime or a Decimal, got {value!r}")


def checked(answer: httpx.Response, request: Request) -> httpx.Response:
    """Return an answer that is a success; raise Refused for any other."""
    if answer.is_success:
        return answer
    problem: Any = None
    with suppress(ValueError):
        problem = answer.json()
    if not isinstance(problem, dict):
        problem = {"detail": _A_PAGE if _is_page(answer) else answer.text[:200].strip()}
    position = problem["position"] if isinstance(problem.get("position"), dict) else {}
    line, column = position.get("line"), position.get("column")
    retry_after = answer.headers.get("Retry-After", "")
    raise Refused(
        status=answer.status_code,
        title=str(problem.get("title") or answer.reason_phrase),
        detail=str(problem.get("detail") or "no detail was given"),
        position=(line, column) if isinstance(line, int) and isinstance(column, int) else None,
        sql=request.body.get("sql") if isinstance(request.body, dict) else None,
        retry_after=float(retry_after) if retry_after.isdecimal() else None,
    )


def json_of(answer: httpx.Response, url: str, parse_float: Callable[[str], Any]) -> Any:
    """Parse an answer; raise Unreachable unless it is JSON."""
    try:
        return answer.json(parse_float=parse_float)
    except ValueError:
        raise not_braid(url, "it is a web page" if _is_page(answer) else f"{answer.text[:80]!r} is not JSON") from None


def _is_page(answer: httpx.Response) -> bool:
    return "html" in answer.headers.get("Content-Type", "").lower()


def added(first: Object, second: Object) -> Object:
    """Return the answer to a push in two parts: counts and errors of both, and the names, which are the same."""
    return first | {
        name: first[name] + value if name in first and name not in ("missing", "unknown") else value
        for name, value in second.items()
    }


def items(answer: Any, key: str, url: str) -> list[Object]:
    """Take the list out of `{key: […]}`, or a bare list as it is."""
    items = answer.get(key) if isinstance(answer, dict) else answer
    if not isinstance(items, list):
        raise not_braid(url, f"{str(answer)[:80]} holds no list of {key}")
    return items


def not_braid(url: str, reason: str) -> Unreachable:
    """Return the error that the service at `url` is none of Braid."""
    return Unreachable(url, f"the server there does not speak Braid's REST interface ({reason})")
