"""``/queries/{id}``: put another query in its place, pause it, have it go on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from braid.api.batch_notifier import durable_answer
from braid.api.http.bodies import answer_once, idempotency_key, outcome, parse_json, read_body, response_of
from braid.api.routes import documents
from braid.api.routes.access import WriterDep
from braid.api.routes.documents import Drain, IdOrName, Wait, answers, json_body, no_body
from braid.api.routes.queries import created, fields_of, once_running
from braid.api.schemas.queries import NewQuery, Query
from braid.api.service import Service, ServiceDep
from braid.session.access.tenant_session import TenantSession
from braid.session.commands.query_requests import Replacement
from braid.session.commands.writer import Submission
from braid.session.state.requests import Outcome

router = APIRouter(tags=["queries"])


@router.put(
    "/queries/{id}",
    status_code=201,
    responses=answers(
        201,
        "The new query is accepted, and the old one retires.",
        Query,
        documents.QUERY | {"id": "q-2", "state": "PENDING", "replaces": "q-1"},
        400,
        404,
        409,
        410,
        413,
        422,
        429,
        503,
    ),
    openapi_extra=json_body(NewQuery, {"sql": documents.SELECT}),
)
async def replace_query(
    id: IdOrName, request: Request, service: ServiceDep, caller: WriterDep, drain: Drain = True, wait: Wait = 0.0
) -> Response:
    """Put a new query in the place of one: it sees exactly the rows that the old one, which retires, does not.

    `name`, `sink`, `labels` and `ttl_seconds` are those of the old one unless they are given; null says none.
    """
    body = await read_body(request, service.settings.max_body_bytes)

    def replace() -> Outcome:
        replacement = replacement_of(parse_json(body))
        return created(caller.begin_replace(id, replacement, drain).wait(), is_list=False)

    async with service.turns.turn(request, body):
        response = await answer_once(service, caller, request, body, replace)
    return await once_running(service, caller, response, wait)


@router.post(
    "/queries/{id}/pause",
    status_code=202,
    responses=answers(
        202, "The query pauses.", Query, documents.QUERY | {"state": "PAUSED"}, 400, 404, 409, 410, 422, 503
    ),
    openapi_extra=no_body(),
)
async def pause_query(id: IdOrName, request: Request, service: ServiceDep, caller: WriterDep) -> Response:
    """Pause a query: windows that are complete still come, then it holds no slot. Repeating it is harmless."""
    return await _pause_or_resume(service, caller, request, id, partial(caller.begin_pause, id))


@router.post(
    "/queries/{id}/resume",
    status_code=202,
    responses=answers(
        202, "The query goes on.", Query, documents.QUERY | {"state": "PENDING"}, 400, 404, 409, 410, 422, 503
    ),
    openapi_extra=no_body(),
)
async def resume_query(
    id: IdOrName, request: Request, service: ServiceDep, caller: WriterDep, wait: Wait = 0.0
) -> Response:
    """Run a paused query again, once it has drained; it sees no row of the time in between. Harmless to repeat."""
    response = await _pause_or_resume(service, caller, request, id, partial(caller.begin_resume, id))
    return await once_running(service, caller, response, wait)


async def _pause_or_resume(
    service: Service, caller: TenantSession, request: Request, id_or_name: str, begin: Callable[..., Submission]
) -> Response:
    if idempotency_key(request) is None:
        service.check_running()
        is_over = not caller.is_in_memory(id_or_name)
        return response_of(outcome(202, (await durable_answer(begin, reads_files=is_over))[0]))
    return await answer_once(service, caller, request, b"", lambda: outcome(202, begin().wait()[0]))


def replacement_of(value: Any) -> Replacement:
    """Read the body of a query that replaces another; MalformedRequest when it has another shape."""
    fields = fields_of(value)
    return Replacement(fields.pop("sql"), fields)
