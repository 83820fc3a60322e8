"""``/queries/{id}/results``: the rows of a query, in pages; see :mod:`braid.api.routes.sse` for the stream of them.

``/queries/{id}/dead-letters``: those of them that its sink refused for good.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from fastapi import APIRouter, Header, Request, Response
from starlette.concurrency import run_in_threadpool

from braid.api.batch_notifier import POLL_SECONDS
from braid.api.routes import documents, rows
from braid.api.routes.access import ReaderDep
from braid.api.routes.documents import After, IdOrName, Limit, Wait, answers
from braid.api.schemas.model import DeadLetters
from braid.api.schemas.queries import Results
from braid.api.service import Service, ServiceDep
from braid.router.cursor import CursorPosition, decode_cursor, encode_cursor
from braid.router.delivery.refused_rows import RefusedRow
from braid.router.page import Gap, Page
from braid.session.access.tenant_session import TenantSession
from braid.session.commands.query_lookup import RunningQuery
from braid.session.state.query_record import FINISHED, RETIRED
from braid.session.state.times import rfc3339

router = APIRouter(tags=["results"])
_EXAMPLES = answers(200, "Rows in order, each once.", Results, documents.RESULTS, 400, 404, 406, 410, 429)
_EXAMPLES[200]["content"] |= {
    rows.NDJSON: {"schema": documents.TEXT, "example": '{"user_id":1,"price":9.5}\n'},
    rows.ARROW: {"schema": documents.BYTES},
}
_EXAMPLES[200]["headers"] = {
    "Braid-Cursor": {"schema": documents.TEXT, "description": "The place after the rows."},
    "Braid-End": {"schema": documents.TEXT, "description": "`true` when no row will ever follow."},
    "Braid-Gap": {
        "schema": documents.TEXT,
        "description": "Only where rows before those of the page cannot be read: how many, of which batches, and why."
        " They are passed over.",
    },
}


@router.get("/queries/{id}/results", responses=_EXAMPLES)
async def read_results(
    id: IdOrName,
    request: Request,
    service: ServiceDep,
    caller: ReaderDep,
    after: After = None,
    limit: Limit = 1000,
    wait: Wait = 0.0,
    accept: str | None = Header(None, include_in_schema=False),
) -> Response:
    """Read rows after a cursor; with `wait`, answer as soon as there is one. `Accept` chooses JSON, NDJSON or Arrow.

    There may be fewer than `limit` though more follow: an answer ends early once it is large. Only `end` says that no
    row follows. Rows whose files are missing or damaged are passed over once: the page that follows them has a `gap`.
    """
    form = rows.negotiate(accept)
    limit = caller.meters.rows_at_once(limit)
    answer = await next_answer(service, caller, id, form, after, limit, wait, request)
    caller.meters.count_rows(answer.rows)
    headers = {
        "Braid-Cursor": answer.cursor,
        "Braid-End": "true" if answer.end else "false",
        "Cache-Control": "no-store",
    }
    if answer.gap is not None:
        headers["Braid-Gap"] = " ".join(str(answer.gap).split()).encode("ascii", "replace").decode()
    return Response(answer.body, headers=headers, media_type=form)


@dataclass(frozen=True)
class ResultsAnswer:
    """A page as it is answered: how many ``rows`` it has, the place after them, whether none will follow.

    ``gap`` is what was passed over before its rows, None for nothing.
    """

    rows: int
    cursor: str
    end: bool
    body: bytes
    gap: Gap | None


@router.get(
    "/queries/{id}/dead-letters",
    responses=answers(200, "Refused rows in order.", DeadLetters, documents.REFUSED_ROWS, 400, 404, 410),
)
async def read_refused_rows(
    id: IdOrName, service: ServiceDep, caller: ReaderDep, after: After = None, limit: Limit = 1000
) -> Response:
    """Read the rows that the query's sink refused for good.

    There may be fewer than `limit` though more follow: an answer ends early once it is large.
    """
    query_id = (await deployed_query(caller, id)).id
    owner = f"{query_id}/dead-letters"

    def read() -> bytes:
        place = CursorPosition(0) if after is None else decode_cursor(after, owner)
        latest = service.results.index.latest
        page = service.refused.read(query_id, place, latest, limit, service.settings.max_page_bytes)
        letters = [orjson.dumps(_letter(query_id, refused)) for refused in page.rows]
        return rows.json_page(letters, encode_cursor(page.end, owner))

    return Response(await service.on_reader(read), media_type=rows.JSON)


def _letter(query_id: str, refused: RefusedRow) -> dict[str, Any]:
    return {
        "reason": "refused",
        "detail": refused.detail,
        "received_at": rfc3339(refused.received_us),
        "query": query_id,
        "tuple": orjson.Fragment(refused.row),
        "raw": None,
    }


async def deployed_query(caller: TenantSession, id_or_name: str) -> RunningQuery:
    """Return what a reader needs of a query, on a thread where a file must be read for it."""
    if caller.is_in_memory(id_or_name):
        return caller.live_query(id_or_name)
    return await run_in_threadpool(caller.live_query, id_or_name)


async def next_answer(
    service: Service,
    caller: TenantSession,
    id_or_name: str,
    form: str,
    after: str | None,
    limit: int,
    wait: float,
    request: Request,
) -> ResultsAnswer:
    """Return the next rows, in a form.

    Waits up to ``wait`` seconds for a first row, or a gap, without a thread. Where the waiting ends early, because the
    client left or the service stops, there is none.
    """
    deadline = time.monotonic() + wait
    deployed = await deployed_query(caller, id_or_name)
    while True:
        answer = await service.on_reader(partial(_answer, service, form, deployed, after, limit))
        if answer.rows or answer.gap is not None or answer.end:
            return answer
        after = answer.cursor
        if not await news_for(service, caller, deployed, after, deadline, request):
            return answer
        deployed = await deployed_query(caller, deployed.id)  # another query may have the name by now


async def news_for(
    service: Service, caller: TenantSession, deployed: RunningQuery, after: str, deadline: float, request: Request
) -> bool:
    """Return True when there is something to read after a cursor, False at ``deadline`` or when nobody waits for it.

    Raises Unauthorized when the caller's key is revoked meanwhile.
    """
    while True:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or service.notifier.stopping:
            return False
        query = await deployed_query(caller, deployed.id)
        if query.state in (RETIRED, FINISHED) or service.results.has_news(query, after):
            return True
        await service.notifier.wait(min(remaining, POLL_SECONDS))
        if await request.is_disconnected():
            return False


def is_end(service: Service, deployed: RunningQuery, page: Page) -> bool:
    """Whether no row will ever follow: the query had ended before the page was read, and the page has all."""
    seen_all = service.results.index.latest >= (deployed.last_seq or 0)
    return deployed.state in (RETIRED, FINISHED) and not page.has_more and seen_all


def _answer(service: Service, form: str, deployed: RunningQuery, after: str | None, limit: int) -> ResultsAnswer:
    """Read rows and write them out, at once: rows of requests that wait for a thread would fill the memory."""
    page, parts = rows.written(form, service.results.read(deployed, after, limit), service.settings.max_page_bytes)
    end = is_end(service, deployed, page)
    service.note_page(deployed, page)
    body = rows.json_page(parts, page.cursor, end, page.gap) if form == rows.JSON else b"".join(parts)
    return ResultsAnswer(page.table.num_rows, page.cursor, end, body, page.gap)
