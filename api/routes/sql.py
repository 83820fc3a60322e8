"""``/sql``: any one statement, as the command line sends it."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from braid.api.http.bodies import answer_once, outcome, read_body, statement_of
from braid.api.routes.access import CallerDep
from braid.api.routes.documents import answers, sql_body
from braid.api.schemas.model import any_of
from braid.api.schemas.plans import ExplainedStatement
from braid.api.schemas.queries import Query, QueryPage
from braid.api.schemas.streams import Dropped, StaticTable, StaticTables, Stream, Streams
from braid.api.service import ServiceDep
from braid.session.commands.execution import execute_statement
from braid.session.state.requests import Outcome

router = APIRouter(tags=["sql"])
_ANSWER = any_of(Streams, StaticTables, QueryPage, Dropped, ExplainedStatement, Query, Stream, StaticTable)


@router.post(
    "/sql",
    responses=answers(
        200, "What the call for the same purpose answers.", _ANSWER, {"streams": []}, 400, 404, 409, 413, 422, 429, 503
    ),
    openapi_extra=sql_body("SHOW STREAMS"),
)
async def execute_sql(request: Request, service: ServiceDep, caller: CallerDep) -> Response:
    """Carry out one statement: CREATE, DROP, SHOW, EXPLAIN, or a SELECT, which runs as a query."""
    body = await read_body(request, service.settings.max_body_bytes)

    def run() -> Outcome:
        return outcome(200, execute_statement(caller, statement_of(body, "SHOW STREAMS")))

    async with service.turns.turn(request, body):
        return await answer_once(service, caller, request, body, run)
