"""What the client sends and gets: one connection to a service, and every error of it.

The errors are::

    BraidError
    ├── BraidRefused       the service answered, and said no (problem+json)
    ├── BraidUnreachable   nobody answered, or what answered is not a Braid service
    └── BraidQueryFailed   the query that was followed is FAILED: no row will follow

Every error of httpx becomes one of these in :func:`translated`, nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Self
from urllib.parse import quote

import httpx

DEFAULT_URL = "http://127.0.0.1:8080"
JSON = "application/json"

Object = dict[str, Any]


class BraidError(Exception):
    """What every error of this client is."""


@dataclass(eq=False)
class BraidRefused(BraidError):
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
class BraidUnreachable(BraidError):
    """Say that no Braid service answered at `url`."""

    url: str
    reason: str

    def __str__(self) -> str:
        return f"No Braid service answers at {self.url}: {self.reason}"


class BraidQueryFailed(BraidError):
    """Say that the query that was followed is FAILED, and with which error."""


class Transport:
    """Requests to a service at `url`; `timeout` is in seconds, on top of what a call waits for.

    Services with access control need an `api_key`. `parse_float` reads the numbers that are not whole.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        timeout: float = 10.0,
        api_key: str | None = None,
        parse_float: Callable[[str], Any] = float,
    ) -> None:
        self.url = checked_url(url)
        self._parse_float = parse_float
        self.api_key = api_key
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        self.timeout = timeout
        # a proxy from the environment cannot know this machine's loopback
        local = httpx.URL(self.url).host in ("localhost", "127.0.0.1", "::1")
        headers = {} if api_key is None else {"Authorization": f"Bearer {_ascii(api_key)}"}
        self._http = httpx.Client(timeout=timeout, trust_env=not local, headers=headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content: bytes | None = None,
        media_type: str = JSON,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
        wait: float | None = None,
    ) -> httpx.Response:
        content = content if body is None else encoded(body)
        headers = {} if content is None else {"Content-Type": media_type}
        if key is not None:
            if not (key.isascii() and key.isprintable() and key.strip()):
                raise ValueError(f"an idempotency key must be printable ASCII, got {key!r}")
            headers["Idempotency-Key"] = key
        parameters = {name: value for name, value in (query or {}).items() if value is not None}
        timeout = httpx.Timeout(self.timeout, read=self.timeout + (wait or 0.0))
        with translated(self.url):
            answer = self._http.request(
                method, self.url + path, content=content, params=parameters, headers=headers, timeout=timeout
            )
        if not answer.is_success:
            raise _refusal(answer, body.get("sql") if isinstance(body, dict) else None)
        return answer

    def _json(self, method: str, path: str, **call: Any) -> Any:
        answer = self._send(method, path, **call)
        try:
            return answer.json(parse_float=self._parse_float)
        except ValueError:
            raise _not_braid(self.url, f"{method} {path} gave {answer.text[:80]!r} instead of JSON") from None

    def _object(self, method: str, path: str, **call: Any) -> Object:
        answer = self._json(method, path, **call)
        if not isinstance(answer, dict):
            raise _not_braid(self.url, f"{method} {path} gave {str(answer)[:80]} instead of an object")
        return answer


def checked_url(url: str) -> str:
    """Return `url` without a trailing slash; raise ValueError unless it is http(s) with a host."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    port_fits = parsed.port is None or 0 < parsed.port < 65536
    if parsed.scheme not in ("http", "https") or not parsed.host or not port_fits:
        raise ValueError(f"the service's URL must look like {DEFAULT_URL}, got {url!r}")
    return url.rstrip("/")


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn whatever httpx raises into BraidUnreachable."""
    try:
        yield
    except httpx.TimeoutException:
        raise BraidUnreachable(url, "no answer came in time") from None
    except (
        httpx.HTTPError,
        httpx.InvalidURL,
        httpx.StreamError,
        httpx.CookieConflict,
        UnicodeError,
    ) as error:
        raise BraidUnreachable(url, str(error) or type(error).__name__) from error


def _ascii(key: str) -> str:
    if not (key.isascii() and key.isprintable() and key.strip() == key and key):
        raise ValueError("an API key must be printable ASCII without spaces around it")
    return key


def _refusal(answer: httpx.Response, sql: str | None) -> BraidRefused:
    problem: Any = None
    with suppress(ValueError):
        problem = answer.json()
    if not isinstance(problem, dict):
        problem = {"detail": answer.text[:200].strip()}
    position = problem["position"] if isinstance(problem.get("position"), dict) else {}
    line, column = position.get("line"), position.get("column")
    retry_after = answer.headers.get("Retry-After", "")
    return BraidRefused(
        status=answer.status_code,
        title=str(problem.get("title") or answer.reason_phrase),
        detail=str(problem.get("detail") or "no detail was given"),
        position=(line, column) if isinstance(line, int) and isinstance(column, int) else None,
        sql=sql,
        retry_after=float(retry_after) if retry_after.isdecimal() else None,
    )


def items(answer: Any, key: str, url: str) -> list[Object]:
    """Take the list out of `{key: […]}`, or a bare list as it is."""
    items = answer.get(key) if isinstance(answer, dict) else answer
    if not isinstance(items, list):
        raise _not_braid(url, f"{str(answer)[:80]} holds no list of {key}")
    return items


def _not_braid(url: str, reason: str) -> BraidUnreachable:
    return BraidUnreachable(url, f"what answers there does not speak Braid's REST interface ({reason})")


def segment(name: str) -> str:
    # '.' and '..' would be resolved away as path segments, and '' would name the collection
    if name in ("", ".", ".."):
        raise ValueError(f"a name or id must not be {name!r}")
    return quote(name, safe="")


def encoded(value: Any) -> bytes:
    return json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False).encode()


def _plain(value: Any) -> str:
    if isinstance(value, date | Decimal):  # a datetime is a date too
        return value.isoformat() if isinstance(value, date) else str(value)
    raise TypeError(f"a value must be JSON, a date, a datetime or a Decimal, got {value!r}")
