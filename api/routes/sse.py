"""``/queries/{id}/results/stream``: rows as server-sent events, as they come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from braid.api.batch_notifier import POLL_SECONDS
from braid.api.routes.access import ReaderDep
from braid.api.routes.documents import TEXT, After, IdOrName, refused
from braid.api.routes.results import deployed_query, is_end, news_for
from braid.api.service import Service, ServiceDep
from braid.router.cursor import decode_cursor
from braid.router.page import Page
from braid.router.row_text import PIECE_BYTES, json_lines, pieces
from braid.session.access.tenant_session import TenantSession
from braid.session.commands.query_lookup import RunningQuery
from braid.session.state.query_record import FAILED
from braid.sources.core.errors import NotAllowed, ServiceError

router = APIRouter(tags=["results"])
PAGE_ROWS = 1000
KEEP_ALIVE_SECONDS = 15.0
KEEP_ALIVE = b": keep-alive\n\n"
MEDIA_TYPE = "text/event-stream"


@router.get(
    "/queries/{id}/results/stream",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "An event a row; its id is the cursor after it. `event: gap` tells of rows that cannot be"
            " read and are passed over; `event: end` closes the stream.",
            "content": {MEDIA_TYPE: {"schema": TEXT, "example": 'id: AQAAAA\ndata: {"user_id":1,"price":9.5}\n\n'}},
        },
        **refused(400, 404, 410, 429),
    },
)
async def stream_results(
    id: IdOrName,
    request: Request,
    service: ServiceDep,
    caller: ReaderDep,
    after: After = None,
    tail: Annotated[
        int | None, Query(ge=0, description="Begin before the last so many rows; a cursor wins over it.")
    ] = None,
    last_event_id: Annotated[str | None, Header(description="Resume after this event; wins over `after`.")] = None,
) -> StreamingResponse:
    """Follow the rows of a query as server-sent events, from a cursor, from the last rows or from the beginning."""
    cursor = last_event_id or after
    deployed = await deployed_query(caller, id)
    if cursor is not None:
        decode_cursor(cursor, deployed.id)
    elif tail is not None:
        cursor = await service.on_reader(lambda: service.results.before_last(deployed, tail))
    first_page = await service.read_page(deployed, cursor, caller.meters.rows_at_once(PAGE_ROWS), PIECE_BYTES)
    ended = is_end(service, deployed, first_page)
    return StreamingResponse(
        events(service, caller, deployed, first_page, ended, request),
        media_type=MEDIA_TYPE,
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def events(
    service: Service, caller: TenantSession, deployed: RunningQuery, page: Page, ended: bool, request: Request
) -> AsyncIterator[bytes]:
    """Yield the events of ``page`` and of all that follow."""
    query_id = deployed.id
    yield KEEP_ALIVE  # tells the client, and proxies, that the stream is open
    meters = caller.meters
    while True:
        if page.gap is not None:
            yield _frame("gap", page.cursor_after_gap, orjson.dumps(page.gap.to_json()))
        if page.table.num_rows:
            meters.count_rows(page.table.num_rows)
            await service.on_reader(partial(service.note_page, deployed, page))
            frames = _frames(page)
            while frame := await service.on_reader(partial(next, frames, b"")):
                yield frame
        if ended:
            yield _frame("end", page.cursor, b"{}")
            return
        try:
            while seconds := meters.rows_paused():  # the tenant has read as many rows as it may for now
                if service.notifier.stopping or await request.is_disconnected():
                    return
                await asyncio.sleep(min(seconds, POLL_SECONDS))
            deployed = await deployed_query(caller, query_id)
            if not page.has_more and deployed.state != FAILED:
                deadline = time.monotonic() + KEEP_ALIVE_SECONDS
                if not await news_for(service, caller, deployed, page.cursor, deadline, request):
                    if service.notifier.stopping or await request.is_disconnected():
                        return
                    yield KEEP_ALIVE
                deployed = await deployed_query(caller, query_id)
            was_last_page = not page.has_more
            page = await service.read_page(deployed, page.cursor, meters.rows_at_once(PAGE_ROWS), PIECE_BYTES)
            if deployed.state == FAILED and was_last_page and not page.table.num_rows:
                raise NotAllowed(caller.query(query_id)["error"] or "The query failed.")
        except ServiceError as error:  # the status is sent already, so the event says it
            yield _frame("failed", page.cursor, orjson.dumps({"error": error.detail}))
            return
        ended = is_end(service, deployed, page)


def _frames(page: Page) -> Iterator[bytes]:
    """Yield the events of a page, some at a time."""
    cursors = page.cursors()
    for piece in pieces(page.table):
        lines = json_lines(piece)
        yield b"".join(
            b"id: %b\ndata: %b\n" % (cursor.encode(), line) for line, cursor in zip(lines, cursors, strict=False)
        )


def _frame(event: str, cursor: str, data: bytes) -> bytes:
    return b"event: %b\nid: %b\ndata: %b\n\n" % (event.encode(), cursor.encode(), data)
