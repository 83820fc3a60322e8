"""``/streams/infer``: the CREATE STREAM statement that reads what a sample shows."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response

from braid.api.http.bodies import read_body
from braid.api.routes.access import AdminDep
from braid.api.routes.documents import BYTES, KEY_HEADER, TEXT, answers
from braid.api.routes.rows import JSON, NDJSON
from braid.api.schemas.model import Json, Row, any_of, array
from braid.api.schemas.streams import InferredStream, PlaceToInferFrom
from braid.api.service import Service, ServiceDep
from braid.session.commands.inference import Inference
from braid.sources.connectors.registry import CONNECTORS
from braid.sources.core.errors import MalformedRequest
from braid.sources.inference.sample import CSV, PARQUET, form_of
from braid.sources.inference.sample import JSON as JSON_FORM

router = APIRouter(tags=["streams"])
CSV_TYPE = "text/csv"
PARQUET_TYPE = "application/vnd.apache.parquet"
_FORMS = {
    CSV_TYPE: CSV,
    "application/csv": CSV,
    "text/tab-separated-values": CSV,
    NDJSON: JSON_FORM,
    "application/jsonl": JSON_FORM,
    JSON: JSON_FORM,
    PARQUET_TYPE: PARQUET,
    "application/x-parquet": PARQUET,
    "": "",
    "application/octet-stream": "",
}
_MAX_OPTIONS_BYTES = 1 << 16
_EXAMPLE: Json = {
    "name": "purchases",
    "sql": "-- 2 rows looked at.\nCREATE STREAM purchases (\n    user_id INT,\n    price DOUBLE,\n    time TIMESTAMP"
    " LATENESS INTERVAL '1' SECOND\n) WITH (connector = 'push', format = 'json');",
    "columns": [
        {"name": "user_id", "type": "INT", "comment": None},
        {"name": "price", "type": "DOUBLE", "comment": None},
        {"name": "time", "type": "TIMESTAMP", "comment": None},
    ],
    "left_out": [],
    "event_time": "time",
    "event_time_candidates": ["time"],
    "lateness_seconds": 1.0,
    "source": {"connector": "push", "format": "json", "options": {}},
    "rows": 2,
    "comments": ["2 rows looked at."],
}
_BODY: Json = {
    "parameters": [KEY_HEADER],
    "requestBody": {
        "required": True,
        "content": {
            CSV_TYPE: {"schema": TEXT, "example": "user_id,price,time\n1,9.5,2026-01-01T00:00:01Z\n"},
            NDJSON: {"schema": TEXT},
            JSON: {
                "schema": any_of(PlaceToInferFrom, Row, array(Row)),
                "example": {"connector": "file", "path": "events/"},
            },
            PARQUET_TYPE: {"schema": BYTES},
        },
    },
}


@router.post(
    "/streams/infer",
    responses=answers(200, "The statement.", InferredStream, _EXAMPLE, 400, 413, 422, 503),
    openapi_extra=_BODY,
)
async def infer_stream(
    request: Request,
    service: ServiceDep,
    _: AdminDep,
    name: Annotated[str | None, Query(description="Name of the stream; without one it is called after `file`.")] = None,
    file: Annotated[str, Query(description="Name of the file that the sample is from.")] = "",
) -> Response:
    """Infer the CREATE STREAM statement of a sample: some rows as the body, or the options of a connector to read some.

    The first rows tell the types of the columns and which of them is the event time. Nothing is declared: read the
    statement and send it to `POST /sql`. A sample is CSV, NDJSON, JSON or Parquet, named by its content type.
    """
    body = await read_body(request, service.settings.max_body_bytes)
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in _FORMS:
        known = ", ".join(kind for kind in _FORMS if kind)
        raise MalformedRequest(f"The content type of a sample must be one of {known}; got {content_type[:100]!r}.")

    place = _place_of(body) if content_type == JSON and len(body) <= _MAX_OPTIONS_BYTES else None

    def infer() -> bytes:
        inference = _inference(service)
        if place is not None:
            options = {key: option for key, option in place.items() if key not in ("connector", "name")}
            return orjson.dumps(inference.of_place(place["connector"], options, place.get("name", name)).to_json())
        form = _FORMS[content_type] or form_of(body)
        return orjson.dumps(inference.of_rows(form, body, name, file).to_json())

    # a place may take its time to answer, and large bodies must not wait for that
    limiter = service.decoders if place is None else None
    return Response(await to_thread.run_sync(infer, limiter=limiter), media_type=JSON)


def _inference(service: Service) -> Inference:
    session, settings = service.session, service.settings

    def taken() -> list[str]:
        tables = (table["name"] for table in session.tables.describe_all())
        return [*(definition.name for definition in session.streams.definitions()), *tables]

    return Inference(settings.confinement, service.storage, settings.statement_limits, taken)


def _place_of(body: bytes) -> dict[str, Any] | None:
    """Return the connector and options of a body that names one, None for a sample; MalformedRequest for others."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None  # of an object a line, say
    if not isinstance(value, dict) or value.get("connector") not in tuple(CONNECTORS):
        return None
    if not all(isinstance(option, str) for key, option in value.items() if key != "name" or option is not None):
        raise MalformedRequest(
            'The options of a connector must be texts, as in {"connector": "file", "path": "events/"};'
            f" got {value!r:.200}."
        )
    return {key: option for key, option in value.items() if option is not None}
