"""``/queries``: register, validate, list, look at and retire queries; :mod:`braid.api.routes.changes` changes them."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from braid.api.batch_notifier import durable_answer
from braid.api.http.bodies import answer_once, idempotency_key, outcome, parse_json, read_body, response_of
from braid.api.http.planning import QUICK_BYTES
from braid.api.routes import documents
from braid.api.routes.access import ReaderDep, WriterDep
from braid.api.routes.documents import Cascade, Drain, IdOrName, Wait, answers, json_body
from braid.api.schemas import queries as schemas
from braid.api.schemas.model import array, one_or_many
from braid.api.schemas.plans import ExplainedQuery
from braid.api.service import Service, ServiceDep
from braid.session.access.tenant_session import TenantSession
from braid.session.commands.query_lookup import MAX_LISTED, NEWEST, OLDEST
from braid.session.commands.query_order import ORDERS
from braid.session.commands.query_requests import QueryRequest
from braid.session.state.query_record import STATES
from braid.session.state.requests import Outcome
from braid.sources.core.errors import Gone, MalformedRequest, ServiceError, TooLarge

router = APIRouter(tags=["queries"])
FIELDS = ("sql", "name", "sink", "ttl_seconds", "labels", "start")


@router.post(
    "/queries",
    status_code=201,
    responses=answers(
        201,
        "The query is accepted, or all of the array are.",
        one_or_many(schemas.Query),
        documents.QUERY,
        400,
        404,
        409,
        413,
        422,
        429,
        503,
    ),
    openapi_extra=json_body(one_or_many(schemas.NewQuery), {"sql": documents.SELECT, "name": "expensive"}),
)
async def create_queries(request: Request, service: ServiceDep, caller: WriterDep, wait: Wait = 0.0) -> Response:
    """Register a query, or with a JSON array many: all or none. With `wait`, answer once they are RUNNING."""
    body = await read_body(request, service.settings.max_body_bytes)
    # planned on the event loop where that is quick: handing it to a thread takes longer
    if idempotency_key(request) is None and len(body) <= QUICK_BYTES and not service.session.tables.is_named_in(body):
        service.check_running()
        requests, is_list = requests_in(service, body)
        queries = await durable_answer(lambda wake: caller.begin_create(requests, wake))
        response = response_of(created(queries, is_list))
    else:
        async with service.turns.turn(request, body):
            response = await answer_once(service, caller, request, body, lambda: _create(service, caller, body))
    return await once_running(service, caller, response, wait)


async def once_running(service: Service, caller: TenantSession, response: Response, wait: float) -> Response:
    """Return a response about queries as they are once none of them is PENDING, or after ``wait`` seconds."""
    if wait > 0:
        answer = orjson.loads(response.body)
        is_list = isinstance(answer, list)
        ids = [query["id"] for query in (answer if is_list else [answer])]
        with suppress(Gone):  # a repeated request may be about queries that are long forgotten
            await wait_running(service, ids, wait)
            queries = await run_in_threadpool(lambda: [caller.query(query_id) for query_id in ids])
            response.body = orjson.dumps(queries if is_list else queries[0])
            response.headers["content-length"] = str(len(response.body))
    return response


def _create(service: Service, caller: TenantSession, body: bytes) -> Outcome:
    requests, is_list = requests_in(service, body)
    return created(caller.create_queries(requests), is_list)


def requests_in(service: Service, body: bytes) -> tuple[list[QueryRequest], bool]:
    """Read the queries of a body, and whether it is an array of them."""
    values = parse_json(body)
    if isinstance(values, list):
        return requests_of(values, service.settings.max_queries), True
    return [request_of(values)], False


def created(queries: list[dict[str, Any]], is_list: bool) -> Outcome:
    """Return the outcome of what made queries, an array of them or one."""
    if is_list:
        return outcome(201, queries, Location="/queries")
    return outcome(201, queries[0], Location=f"/queries/{queries[0]['id']}")


async def wait_running(service: Service, ids: list[str], seconds: float) -> None:
    """Return when none of the queries is PENDING, or after ``seconds``; holds no thread."""
    pending = list(ids)

    def all_run() -> bool:
        while pending and not service.session.lookup.is_pending(pending[-1]):
            pending.pop()
        return not pending

    await service.notifier.until(all_run, seconds)


@router.post(
    "/queries/validate",
    responses=answers(
        200,
        "What the query would run as, or each of the array.",
        one_or_many(ExplainedQuery),
        documents.EXPLAINED,
        400,
        404,
        409,
        413,
        422,
        429,
        503,
    ),
    openapi_extra=json_body(one_or_many(schemas.NewQuery), {"sql": documents.SELECT}),
)
async def validate_query(request: Request, service: ServiceDep, caller: ReaderDep) -> Response:
    """Try a query out, or many: what it would run as, with whom it would share, or the error a POST would give."""
    body = await read_body(request, service.settings.max_body_bytes)

    def validate() -> bytes:
        requests, is_list = requests_in(service, body)
        explained = caller.validate(requests)
        return orjson.dumps(explained if is_list else explained[0])

    async with service.turns.turn(request, body):
        return Response(await run_in_threadpool(validate), media_type="application/json")


@router.get(
    "/queries",
    responses=answers(
        200, "A page of queries.", schemas.QueryPage, {"queries": [documents.QUERY], "cursor": None}, 400
    ),
)
def list_queries(
    caller: ReaderDep,
    state: Annotated[str | None, Query(description=f"One of {', '.join(STATES)}.")] = None,
    label: Annotated[str | None, Query(description="`name` or `name=value`.")] = None,
    name: Annotated[str | None, Query(description="Text that is part of the name, whatever the case.")] = None,
    text: Annotated[str | None, Query(description="Text that is part of the name or SQL, whatever the case.")] = None,
    order: Annotated[
        str,
        Query(
            description="Which queries come first: `oldest`, `newest`, or the least `name`, `state`, `rows` or"
            " `latency`, with `-` before it the greatest. The latter have at most 1000 queries that ended long ago.",
            json_schema_extra={"enum": [OLDEST, NEWEST, *ORDERS]},
        ),
    ] = OLDEST,
    limit: Annotated[int, Query(ge=1, description=f"Most queries; at most {MAX_LISTED}.")] = 100,
    cursor: Annotated[str | None, Query(description="The cursor of the page before.")] = None,
) -> Response:
    """List queries in pages; `cursor` is null on the last."""
    page = caller.list_queries(state, label, min(limit, MAX_LISTED), cursor, name, text, order)
    return Response(orjson.dumps(page), media_type="application/json")


@router.get(
    "/queries/{id}",
    responses=answers(200, "The query.", schemas.Query, documents.QUERY, 404, 410),
)
async def get_query(id: IdOrName, caller: ReaderDep) -> Response:
    """Look at one query; also when it is RETIRED, until its retention has passed.

    `waiting_for` says why it has no row yet, `open_window` for what the rows of the next window wait.
    """
    query = caller.query_in_memory(id) or await run_in_threadpool(caller.query, id)
    return Response(orjson.dumps(query), media_type="application/json")


@router.delete(
    "/queries/{id}",
    status_code=202,
    responses=answers(202, "The query retires.", schemas.Query, documents.QUERY, 400, 404, 409, 410, 503),
)
async def delete_query(
    id: IdOrName, service: ServiceDep, caller: WriterDep, drain: Drain = True, cascade: Cascade = False
) -> Response:
    """Retire a query, with `cascade` those that read it, too. Repeating it is harmless."""
    service.check_running()
    is_over = not caller.is_in_memory(id)
    queries = await durable_answer(
        lambda wake: caller.begin_delete([id], drain, wake, cascade=cascade), reads_files=is_over
    )
    return response_of(outcome(202, queries[0]))


@router.post(
    "/queries/retire",
    status_code=202,
    responses=answers(
        202, "The queries retire.", array(schemas.Query), [documents.QUERY], 400, 404, 409, 410, 413, 422, 503
    ),
    openapi_extra=json_body(schemas.QueriesToRetire, {"ids": ["q-1", "q-2"]}),
)
async def retire_queries(request: Request, service: ServiceDep, caller: WriterDep) -> Response:
    """Retire many queries: all, or none when one is unknown. Repeating it is harmless."""
    body = await read_body(request, service.settings.max_body_bytes)

    def retire() -> Outcome:
        ids, drain = ids_of(parse_json(body), service.settings.max_queries)
        return outcome(202, caller.delete_queries(ids, drain))

    return await answer_once(service, caller, request, body, retire)


def ids_of(value: Any, most: int) -> tuple[list[str], bool]:
    """Read which queries are to retire, and whether they drain; MalformedRequest for a body of another shape."""
    example = 'an object such as {"ids": ["q-1", "q-2"], "drain": true}'
    if not isinstance(value, dict) or not value.keys() <= {"ids", "drain"}:
        raise MalformedRequest(f"The body must be {example}; got {str(value)[:80]!r}.")
    ids, drain = value.get("ids"), value.get("drain", True)
    if not isinstance(ids, list) or not ids or not all(isinstance(query_id, str) for query_id in ids):
        raise MalformedRequest(f'"ids" must be a list of ids or names of queries, as in {example}; got {ids!r:.80}.')
    if not isinstance(drain, bool):
        raise MalformedRequest(f'"drain" must be true or false, as in {example}; got {drain!r:.80}.')
    if len(ids) > most:
        raise TooLarge(f"One request must hold at most {most} queries; got {len(ids)}.")
    return ids, drain


def requests_of(values: list[Any], most: int) -> list[QueryRequest]:
    """Read the bodies of many queries; the error of the first that does not fit says which it is."""
    if len(values) > most:
        raise TooLarge(f"One request must hold at most {most} queries; got {len(values)}.")
    requests = []
    for number, value in enumerate(values, 1):
        try:
            requests.append(request_of(value))
        except ServiceError as error:
            raise type(error)(f"Query {number} of {len(values)}: {error.detail}") from None
    return requests


def request_of(value: Any) -> QueryRequest:
    """Read the body of one query; MalformedRequest when it has another shape."""
    fields = fields_of(value)
    return QueryRequest(**{name: field for name, field in fields.items() if field is not None})


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a query's body, with its SQL; MalformedRequest when it has another shape."""
    if not isinstance(value, dict):
        raise MalformedRequest(
            f'A query must be an object such as {{"sql": "SELECT …"}}; got {type(value).__name__} {str(value)[:80]!r}.'
        )
    unknown = sorted(value.keys() - set(FIELDS))
    if unknown:
        raise MalformedRequest(f"A query has the fields {', '.join(FIELDS)}; got {', '.join(map(repr, unknown))} too.")
    text = value.get("sql")
    if not isinstance(text, str):
        complaint = (
            "it is missing" if "sql" not in value else "it is null" if text is None else f"got {repr(text)[:80]}"
        )
        raise MalformedRequest(f'A query must have its text in "sql"; {complaint}.')
    return dict(value)
