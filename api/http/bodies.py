"""Read request bodies within their limit, and answer a repeated POST with its first outcome."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from braid.api.service import Service
from braid.session.access.tenant_session import TenantSession
from braid.session.state.requests import Outcome
from braid.sources.core.errors import MalformedRequest, TooLarge

IDEMPOTENCY_KEY = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
"""The header of an answer that a push with the same key had before."""
IDENTITY = "identity"
_FIRST_WORD = re.compile(rb"\s*(?:--|(?:CREATE|SELECT|WITH|DROP|SHOW)\b)", re.IGNORECASE)
_KEY = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?")


def content_encoding(request: Request, encodings: Sequence[str] = ()) -> str:
    """Return how the body is packed, "identity" if it is not; MalformedRequest for other ways than ``encodings``."""
    encoding = request.headers.get("content-encoding", IDENTITY)
    if encoding.lower() in (IDENTITY, *encodings):
        return encoding.lower()
    accepted = f"with {', '.join(encodings)} or without" if encodings else "as it is, without"
    raise MalformedRequest(f"A body must come {accepted} Content-Encoding; got {encoding[:100]!r}.")


async def read_body(request: Request, limit: int, encodings: Sequence[str] = ()) -> bytes:
    """Return the body as it came; TooLarge as soon as more than ``limit`` bytes are announced or have come.

    MalformedRequest when the client leaves before the end, or sends it packed in other ways than ``encodings``.
    """
    content_encoding(request, encodings)
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise TooLarge(f"A body must have at most {limit} bytes; got {announced}. Send it in parts.")
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise TooLarge(f"A body must have at most {limit} bytes; got more. Send it in parts.")
            parts.append(part)
    except ClientDisconnect:
        raise MalformedRequest("A body must come as a whole; the client left.") from None
    return b"".join(parts)


def parse_json(body: bytes) -> Any:
    """Return the JSON value of a body; MalformedRequest says where it breaks."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if not body.strip():
            raise MalformedRequest("The body must be JSON; got none. /docs has an example for each call.") from None
        where = f"line {error.lineno}, column {error.colno}: {error.msg.partition(':')[0]}"
        raise MalformedRequest(f"The body must be JSON; {where}.{_hint(body)}") from None


def _hint(body: bytes) -> str:
    is_sql = _FIRST_WORD.match(body) is not None
    return ' SQL stands in an object: {"sql": "SELECT …"}.' if is_sql else ""


def statement_of(body: bytes, example: str) -> str:
    """Return the SQL text of a body ``{"sql": "…"}``."""
    value = parse_json(body)
    if not isinstance(value, dict) or not isinstance(value.get("sql"), str):
        raise MalformedRequest(f'The body must be an object such as {{"sql": "{example}"}}; got {_short(value)}.')
    unknown = sorted(value.keys() - {"sql"})
    if unknown:
        raise MalformedRequest(f'The body must have "sql" and nothing else; got {", ".join(map(repr, unknown))} too.')
    sql: str = value["sql"]
    return sql


def idempotency_key(request: Request) -> str | None:
    """Return the request's Idempotency-Key, None without one; MalformedRequest when it is no usable key."""
    key = request.headers.get(IDEMPOTENCY_KEY)
    if key is not None and not _KEY.fullmatch(key):
        raise MalformedRequest(
            f"The header {IDEMPOTENCY_KEY} must be 1 to 255 printable ASCII characters; got {key[:300]!r}."
        )
    return key


def fingerprint(request: Request, body: bytes) -> str:
    """Return what a repetition must share with the first request to count as one: call and body."""
    call = f"{request.method} {request.url.path}\n{request.headers.get('content-type', '')}\n"
    encoding = request.headers.get("content-encoding")
    call += f"{encoding}\n" if encoding else ""
    return hashlib.sha256(call.encode() + body).hexdigest()


async def answer_once(
    service: Service, caller: TenantSession, request: Request, body: bytes, action: Callable[[], Outcome]
) -> Response:
    """Run ``action`` off the event loop and answer its outcome; with an Idempotency-Key at most once."""
    key = idempotency_key(request)
    service.check_running()
    if key is None:
        outcome = await run_in_threadpool(action)
    else:
        outcome = await run_in_threadpool(caller.idempotent, key, fingerprint(request, body), action)
    return response_of(outcome)


def outcome(status: int, value: Any, **headers: str) -> Outcome:
    """Return an outcome with a JSON body."""
    return Outcome(status, headers, orjson.dumps(value).decode())


def response_of(outcome: Outcome) -> Response:
    """Return the response that tells an outcome."""
    return Response(outcome.body, outcome.status, outcome.headers, "application/json")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
