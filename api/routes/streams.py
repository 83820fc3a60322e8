"""``/streams``: declare, list, look at and drop streams; push rows to them; their dead letters."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import orjson
import pyarrow as pa
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response

from braid.api.http.bodies import (
    IDENTITY,
    REPLAYED,
    answer_once,
    content_encoding,
    fingerprint,
    idempotency_key,
    outcome,
    parse_json,
    read_body,
    statement_of,
)
from braid.api.routes import documents
from braid.api.routes.access import AdminDep, ReaderDep, WriterDep
from braid.api.routes.documents import EVENTS_BODY, After, Cascade, Limit, answers, json_body, refused, sql_body
from braid.api.routes.rows import in_pieces, json_page
from braid.api.schemas.model import DeadLetters, any_of
from braid.api.schemas.streams import Pushed, Stream, Streams, WatermarkEnd, WatermarkTime
from braid.api.service import ServiceDep
from braid.operators.event_times import ENDED
from braid.session.state.requests import Outcome
from braid.session.state.times import rfc3339
from braid.sources.core.errors import MalformedRequest, NotAllowed
from braid.sources.formats.decoding import decode
from braid.sources.formats.encodings import ENCODINGS, unpack
from braid.sources.formats.temporal import parse_timestamp

router = APIRouter(tags=["streams"])


@router.post(
    "/streams",
    status_code=201,
    responses=answers(201, "The stream is declared.", Stream, documents.STREAM, 400, 409, 413, 422, 429, 503),
    openapi_extra=sql_body(documents.CREATE_STREAM),
)
async def create_stream(request: Request, service: ServiceDep, caller: AdminDep) -> Response:
    """Declare a stream with a CREATE STREAM statement."""
    body = await read_body(request, service.settings.max_body_bytes)

    def create() -> Outcome:
        stream = service.session.streams.create(statement_of(body, "CREATE STREAM …"))
        return outcome(201, stream, Location=f"/streams/{quote(stream['name'])}")

    async with service.turns.turn(request, body):
        return await answer_once(service, caller, request, body, create)


@router.get("/streams", responses=answers(200, "All streams, oldest first.", Streams, {"streams": [documents.STREAM]}))
def list_streams(service: ServiceDep, _: ReaderDep) -> dict[str, Any]:
    """List the streams."""
    return {"streams": service.session.streams.describe_all()}


@router.get("/streams/{name}", responses=answers(200, "The stream.", Stream, documents.STREAM, 404))
def get_stream(name: str, service: ServiceDep, _: ReaderDep) -> dict[str, Any]:
    """Look at one stream: columns, source, clock, watermark, and counts of rows."""
    return service.session.streams.describe(name)


@router.delete("/streams/{name}", status_code=204, responses=refused(404, 409, 503))
def drop_stream(name: str, service: ServiceDep, _: AdminDep, cascade: Cascade = False) -> Response:
    """Drop a stream; refused while a query that is not RETIRED uses it, unless `cascade` retires these at once."""
    service.check_running()
    service.session.streams.drop(name, cascade)
    return Response(status_code=204)


LARGE_BYTES = 1 << 20
FirstLine = Annotated[
    int,
    Query(ge=1, le=2**53, description="Number of the body's first line, or row, in the file that it is from."),
]
_EXAMPLE = {"accepted": 1, "rejected": 1, "errors": [{"line": 2, "detail": "line 2: not a JSON object"}]}


@router.post(
    "/streams/{name}/events",
    responses=answers(200, "What is accepted is on disk.", Pushed, _EXAMPLE, 400, 404, 409, 413, 422, 429, 503),
    openapi_extra=EVENTS_BODY,
)
async def push_events(
    name: str, request: Request, service: ServiceDep, caller: WriterDep, first: FirstLine = 1
) -> Response:
    """Push rows: NDJSON, a JSON object or array, an Arrow stream, or CSV whose first line names the columns.

    Inputs that do not fit the schema are rejected one by one (and kept as dead letters); the others are accepted. The
    body may be packed: `Content-Encoding: gzip` or `zstd`. `missing` lists the stream's columns that CSV lacks, if any:
    they are NULL; `unknown` its names then that are no column's. Of other formats both are listed where rows lack
    columns and have such names: one may be misspelt. So is a name close to a column's that some rows of NDJSON have.
    `late` counts the accepted rows that are below the stream's watermark already, if any, and `ahead` those that are
    more than its `max_future` ahead of now: queries that run do not see them, and they become dead letters. Others may
    turn out late when they are read. Where the `Idempotency-Key` had come with the same push before, the answer has the
    header `Idempotent-Replayed: true`: no row is added.
    """
    service.check_running()
    service.session.streams.check_open(name)
    key = idempotency_key(request)
    encoding = content_encoding(request, ENCODINGS)
    body = await read_body(request, service.settings.max_body_bytes, ENCODINGS)
    scoped = None if key is None else caller.scoped(key)
    content_type = request.headers.get("content-type", "")

    limits = service.settings.body_limits

    def push() -> Response:
        definition = service.session.streams.definition(name)  # it may have been dropped while the body came
        stream, stored = service.pushes.stream(definition), definition.schema.stored
        pushed, is_repeated = stream.push(
            lambda: decode(unpack(body, encoding, limits), content_type, stored, limits).numbered_from(first),
            len(body),
            scoped,
            fingerprint(request, body),
            service.session.streams.watermark(name),
        )
        headers = {REPLAYED: "true"} if is_repeated else None
        return Response(orjson.dumps(pushed), media_type="application/json", headers=headers)

    limiter = service.decoders if len(body) > LARGE_BYTES or encoding != IDENTITY else None
    return await to_thread.run_sync(push, limiter=limiter)


@router.post(
    "/streams/{name}/watermark",
    responses=answers(200, "The stream; what was said is on disk.", Stream, documents.STREAM, 400, 404, 413, 422, 503),
    openapi_extra=json_body(any_of(WatermarkTime, WatermarkEnd), {"time": "2026-01-31T12:00:00Z"}),
)
async def raise_watermark(name: str, request: Request, service: ServiceDep, caller: WriterDep) -> Response:
    """Say that nothing earlier than a time comes of a stream any more, or nothing at all.

    It counts once all rows are read that are there now. A watermark never falls: an earlier time changes nothing.
    """
    service.check_running()
    body = await read_body(request, service.settings.max_body_bytes)

    def raise_it() -> Outcome:
        return outcome(200, service.session.streams.raise_watermark(name, _watermark_in(parse_json(body))))

    return await answer_once(service, caller, request, body, raise_it)


def _watermark_in(value: Any) -> int:
    """Return the watermark that a body says (µs)."""
    if isinstance(value, dict) and len(value) == 1:
        if value.get("end") is True:
            return ENDED
        if isinstance(value.get("time"), str):
            try:
                return parse_timestamp(value["time"])
            except ValueError as problem:
                raise NotAllowed(f"time must be RFC 3339; got {value['time'][:100]!r}: {problem}.") from None
    raise MalformedRequest(
        f'A watermark is {{"time": "2026-01-31T12:00:00Z"}} or {{"end": true}}; got {str(value)[:200]}.'
    )


@router.get(
    "/streams/{name}/dead-letters",
    responses=answers(200, "Dead letters in order.", DeadLetters, documents.DEAD_LETTERS, 400, 404, 410),
)
async def read_dead_letters(
    name: str,
    service: ServiceDep,
    _: ReaderDep,
    after: After = None,
    limit: Limit = 1000,
    tail: Annotated[
        int | None, Query(ge=0, description="Begin before the last so many; a cursor wins over it.")
    ] = None,
) -> Response:
    """Read the rows that queries that run do not see: late ones, and inputs that do not fit the schema.

    There may be fewer than `limit` though more follow: an answer ends early once it is large. Those whose files are
    missing or damaged are passed over once: the page that follows them has a `gap`.
    """

    def read() -> bytes:
        stream, letters = service.session.streams.definition(name).id, service.dead_letters
        begin = letters.before_last(stream, tail) if after is None and tail is not None else after
        page = letters.read(stream, begin, limit)
        page, parts = in_pieces(page, service.settings.max_page_bytes, _letters)
        return json_page(parts, page.cursor, gap=page.gap)

    return Response(await service.on_reader(read), media_type="application/json")


def _letters(rows: pa.Table) -> bytes:
    letters = [
        {
            "reason": row["reason"],
            "detail": row["detail"],
            "received_at": rfc3339(row["received_us"]),
            "query": row["query"],
            "tuple": None if row["tuple"] is None else orjson.Fragment(row["tuple"]),
            "raw": row["raw"],
        }
        for row in rows.to_pylist()
    ]
    return orjson.dumps(letters)[1:-1]
