"""``/streams/{name}/events``: push tuples."""

from __future__ import annotations

import orjson
from anyio import to_thread
from fastapi import APIRouter, Request, Response

from api.access import WriterDep
from api.bodies import fingerprint, idempotency_key, read_body
from api.documents import EVENTS_BODY, answers
from api.service import ServiceDep
from sources.formats.decoding import decode

router = APIRouter(tags=["streams"])
LARGE_BYTES = 1 << 20
_EXAMPLE = {"accepted": 1, "rejected": 1, "errors": [{"line": 2, "detail": "line 2: not a JSON object"}]}


@router.post(
    "/streams/{name}/events",
    responses=answers(200, "What is accepted is on disk.", _EXAMPLE, 400, 404, 413, 422, 429, 503),
    openapi_extra=EVENTS_BODY,
)
async def push_events(name: str, request: Request, service: ServiceDep, caller: WriterDep) -> Response:
    """Push tuples: NDJSON, a JSON object or array, or an Arrow stream.

    Inputs that do not fit the schema are rejected one by one (and kept as dead letters); the others are accepted.
    """
    service.check_running()
    service.session.streams.definition(name)
    key = idempotency_key(request)
    body = await read_body(request, service.settings.max_body_bytes)
    scoped = None if key is None else caller.scoped(key)
    content_type = request.headers.get("content-type", "")

    def push() -> bytes:
        definition = service.session.streams.definition(name)  # it may have been dropped while the body came
        stream = service.pushes.stream(definition)
        outcome = stream.push(
            lambda: decode(body, content_type, definition.schema, service.settings.body_limits),
            len(body),
            scoped,
            fingerprint(request, body),
        )
        return orjson.dumps(outcome)

    limiter = service.decoders if len(body) > LARGE_BYTES else None
    return Response(await to_thread.run_sync(push, limiter=limiter), media_type="application/json")
