"""``/tables``: static tables to join with."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Request, Response

from braid.api.http.bodies import answer_once, outcome, read_body, response_of, statement_of
from braid.api.routes import documents
from braid.api.routes.access import AdminDep, ReaderDep
from braid.api.routes.documents import Wait, answers, refused, sql_body
from braid.api.schemas.streams import StaticTable, StaticTables
from braid.api.service import ServiceDep
from braid.session.state.requests import Outcome
from braid.sources.core.errors import UnknownObject

router = APIRouter(tags=["tables"])


@router.post(
    "/tables",
    status_code=201,
    responses=answers(201, "The table is declared.", StaticTable, documents.TABLE, 400, 409, 413, 422, 429, 503),
    openapi_extra=sql_body(documents.CREATE_TABLE),
)
async def create_table(request: Request, service: ServiceDep, caller: AdminDep) -> Response:
    """Declare a static table with a CREATE TABLE statement."""
    body = await read_body(request, service.settings.max_body_bytes)

    def create() -> Outcome:
        table = service.session.tables.create(statement_of(body, "CREATE TABLE …"))
        return outcome(201, table, Location=f"/tables/{quote(table['name'])}")

    async with service.turns.turn(request, body):
        return await answer_once(service, caller, request, body, create)


@router.get("/tables", responses=answers(200, "All tables, oldest first.", StaticTables, {"tables": [documents.TABLE]}))
def list_tables(service: ServiceDep, _: ReaderDep) -> dict[str, Any]:
    """List the static tables."""
    return {"tables": service.session.tables.describe_all()}


@router.get("/tables/{name}", responses=answers(200, "The table.", StaticTable, documents.TABLE, 404))
def get_table(name: str, service: ServiceDep, _: ReaderDep) -> dict[str, Any]:
    """Look at one static table: columns, file, and how many queries use it."""
    return service.session.tables.describe(name)


@router.post(
    "/tables/{name}/refresh",
    status_code=202,
    responses=answers(
        202,
        "The table; `refreshing` until a batch has its new rows.",
        StaticTable,
        documents.TABLE,
        400,
        404,
        409,
        422,
        503,
    ),
    openapi_extra={"parameters": [documents.KEY_HEADER]},
)
async def refresh_table(
    name: str, request: Request, service: ServiceDep, caller: AdminDep, wait: Wait = 0.0
) -> Response:
    """Read the table's file anew, for all queries that use it.

    Rows of streams that come from the next batch on are joined with the new rows, whichever query it is; what was
    joined before stays. With `wait`, answer once that batch is over.
    """

    def refresh() -> Outcome:
        return outcome(202, service.session.tables.refresh(name))

    response = await answer_once(service, caller, request, b"", refresh)
    if wait > 0 and response.status_code == 202:
        table_before = orjson.loads(response.body)
        with suppress(UnknownObject):  # it was dropped meanwhile

            def is_done() -> bool:
                table = service.session.tables.describe(name)
                return table["id"] != table_before["id"] or not table["refreshing"]

            await service.notifier.until(is_done, wait)
            table = service.session.tables.describe(name)
            return response_of(outcome(202, table if table["id"] == table_before["id"] else table_before))
    return response


@router.delete("/tables/{name}", status_code=204, responses=refused(404, 409, 503))
def drop_table(name: str, service: ServiceDep, _: AdminDep) -> Response:
    """Drop a static table; refused while a query uses it."""
    service.check_running()
    service.session.tables.drop(name)
    return Response(status_code=204)
