"""What ``/openapi.json`` and ``/docs`` say beside the code: bodies, examples, refusals and common parameters."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Path, Query
from fastapi.openapi.utils import get_openapi
from pydantic import AfterValidator

from braid.api.http import problems
from braid.api.routes.rows import ARROW, JSON, NDJSON
from braid.session.state.query_record import STATES
from braid.session.state.waiting import REASONS

Json = dict[str, Any]

DESCRIPTION = """\
Braid runs thousands of ad-hoc SQL queries over live streams inside one long-running job.

Declare a stream, push rows, register queries, read their rows. Times are RFC 3339 UTC with microseconds. Errors are
`application/problem+json` (RFC 9457); nothing changes when a request fails. The header `Idempotency-Key` makes a retry
of any POST and of PUT safe.
"""

CREATE_STREAM = (
    "CREATE STREAM purchases (user_id BIGINT, gem_pack INT, price DOUBLE,"
    " time TIMESTAMP LATENESS INTERVAL '2' SECOND) WITH (connector = 'push', format = 'json')"
)
CREATE_TABLE = (
    "CREATE TABLE packs (gem_pack INT, name VARCHAR) WITH (connector = 'file', path = 'packs.csv', format = 'csv')"
)
SELECT = "SELECT user_id, price FROM purchases WHERE price > 5"
EVENTS_CSV = "user_id,gem_pack,price,time\n1,4,9.5,2026-01-01T00:00:01Z\n"
EVENTS = '{"user_id": 1, "gem_pack": 4, "price": 9.5, "time": "2026-01-01T00:00:01Z"}\n'

STREAM: Json = {
    "name": "purchases",
    "id": "s-1",
    "columns": [{"name": "user_id", "type": "BIGINT", "event_time": False}],
    "source": {"connector": "push", "format": "json", "options": {}},
    "clock": "2026-01-01T00:00:01.000000Z",
    "watermark": "2025-12-31T23:59:59.000000Z",
    "idle": False,
    "lateness_seconds": 2.0,
    "max_future_seconds": 3600.0,
    "idle_timeout_seconds": None,
    "watermark_percentile": None,
    "tuples": 1,
    "late": 0,
    "malformed": 0,
    "skipped": 0,
}
TABLE: Json = {
    "name": "packs",
    "id": "t-1",
    "columns": [{"name": "gem_pack", "type": "INT"}, {"name": "name", "type": "VARCHAR"}],
    "source": {"connector": "file", "format": "csv", "options": {"path": "packs.csv"}},
    "queries": 0,
    "created_at": "2026-01-01T00:00:00.000000Z",
    "refreshing": False,
    "refreshed_at": None,
}
QUERY: Json = {
    "id": "q-1",
    "name": "expensive",
    "tenant": None,
    "sql": SELECT,
    "state": "RUNNING",
    "slot": 0,
    "epoch": 2,
    "active_from": {"purchases": None},
    "active_to": {"purchases": None},
    "created_at": "2026-01-01T00:00:00.000000Z",
    "deployed_at": "2026-01-01T00:00:00.700000Z",
    "deployment_latency_seconds": 0.7,
    "rows_out": 1,
    "last_result_at": "2026-01-01T00:00:02.000000Z",
    "event_time_latency_seconds": 1.0,
    "group": None,
    "operator": "select",
    "sink": None,
    "subquery": False,
    "error": None,
    "waiting_for": None,
    "delivery": None,
    "deployments": [],
    "replaces": None,
    "replaced_by": None,
}
TENANT: Json = {
    "name": "shop",
    "quotas": {
        "running_queries": 100,
        "creations_a_minute": None,
        "cost_share": None,
        "result_rows_a_second": None,
        "query_levels": None,
        "query_readers": None,
    },
}
API_KEY: Json = {
    "id": "k-1",
    "tenant": "shop",
    "rights": ["read", "write"],
    "name": "dashboards",
    "created_at": "2026-01-01T00:00:00.000000Z",
}
WHOAMI: Json = {"tenant": "shop", "rights": ["read", "write"], "quotas": TENANT["quotas"]}
RESULTS: Json = {
    "rows": [{"user_id": 1, "price": 9.5}],
    "cursor": "AQAAAAAAAAABAAAAAAAAAAEAAAAA",
    "end": False,
    "gap": {
        "rows": 120,
        "batches": [41, 42],
        "detail": "120 rows of batches 41 to 42 cannot be read and are passed over. The file"
        " results/000000000041-0c2f.arrow must hold what was written; it does not: it is missing.",
    },
}
DEAD_LETTERS: Json = {
    "rows": [
        {
            "reason": "malformed",
            "detail": "line 3: column 'price': 'cheap' is not a DOUBLE",
            "received_at": "2026-01-01T00:00:02.000000Z",
            "tuple": None,
            "raw": '{"price": "cheap"}',
        }
    ],
    "cursor": "AQAAAAAAAAABAAAAAAAAAAEAAAAA",
}
REFUSED_ROWS: Json = {
    "rows": [
        {
            "reason": "refused",
            "detail": "PostgreSQL: value too long for type character varying(3)",
            "received_at": "2026-01-01T00:00:20.000000Z",
            "query": "q-1",
            "tuple": {"user_id": 1, "code": "abcd"},
            "raw": None,
        }
    ],
    "cursor": "AQAAAAAAAAABAAAAAAAAAAEAAAAA",
}

_REASONS = {
    400: "The request cannot be read.",
    401: "No key was given, or one that is not known.",
    403: "The key lacks the right, or the request names another host or comes from a page of somebody else.",
    404: "There is no such thing.",
    406: "None of the accepted forms can be given.",
    409: "It contradicts what exists.",
    410: "Its retention has passed.",
    413: "The body is too large.",
    422: "Understood, but not possible; the detail names what exists or what to write instead.",
    429: "Too much at once; try again after `Retry-After` seconds.",
    503: "Not ready: starting, stopping or recovering.",
}
_EVERYWHERE = (403, 429)
"""What any call may be refused with, see :mod:`braid.api.http.origins` and :mod:`braid.api.http.limits`."""
_PROBLEM: Json = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "position": {
            "type": "object",
            "properties": {"line": {"type": "integer"}, "column": {"type": "integer"}},
        },
    },
}


def answers(
    status: int, description: str, example: Any, *refusals: int, schema: Json | None = None
) -> dict[int | str, Json]:
    """Return the ``responses`` of a call: its good answer with an example, and the statuses of its refusals."""
    content = {"example": example} if schema is None else {"schema": schema, "example": example}
    return {status: {"description": description, "content": {JSON: content}}, **refused(*refusals)}


def refused(*statuses: int) -> dict[int | str, Json]:
    """Return the ``responses`` entry of each status of refusal."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": _REASONS[status], "content": {problems.MEDIA_TYPE: {"schema": schema}}}
        for status in statuses
    }


def json_body(schema: Json, example: Any, repeatable: bool = True) -> Json:
    """Return the ``openapi_extra`` of a call that takes JSON; ``repeatable``: an Idempotency-Key makes retries safe."""
    content = {JSON: {"schema": schema, "example": example}}
    return {"requestBody": {"required": True, "content": content}, "parameters": [KEY_HEADER] * repeatable}


def no_body() -> Json:
    """Return the ``openapi_extra`` of a POST that takes nothing."""
    return {"parameters": [KEY_HEADER]}


def sql_body(example: str) -> Json:
    """Return the ``openapi_extra`` of a call that takes ``{"sql": …}``."""
    schema = {"type": "object", "required": ["sql"], "properties": {"sql": {"type": "string"}}}
    return json_body(schema, {"sql": example})


KEY_HEADER: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 255},
    "description": "Makes a retry safe: the first outcome is answered again, also after a crash; kept for a day.",
}
_TIME: Json = {"type": ["string", "null"], "format": "date-time"}
WAITING_QUERY: Json = {
    "title": "DescribedQuery",
    "type": "object",
    "required": ["id", "state", "sql", "rows_out", "waiting_for"],
    "properties": {
        "id": {"type": "string"},
        "state": {"type": "string", "enum": list(STATES)},
        "sql": {"type": "string"},
        "rows_out": {"type": "integer"},
        "waiting_for": {
            "description": "Why there is no row yet; null once there is one",
            "type": ["object", "null"],
            "required": ["reason", "detail", "stream", "watermark", "window_end"],
            "properties": {
                "reason": {"type": "string", "enum": list(REASONS)},
                "detail": {"type": "string", "description": "The reason in words, and what would help"},
                "stream": {"type": ["string", "null"], "description": "The stream that it is about"},
                "watermark": _TIME,
                "window_end": _TIME,
            },
        },
    },
}
"""A query as GET shows it; of its fields those that clients decide by."""
QUERY_SCHEMA: Json = {
    "type": "object",
    "required": ["sql"],
    "additionalProperties": False,
    "properties": {
        "sql": {"type": "string", "description": "A SELECT, or CREATE QUERY name AS SELECT"},
        "name": {"type": ["string", "null"]},
        "sink": {
            "type": ["string", "object", "null"],
            "description": "`log`: rows are read from /queries/{id}/results, and nowhere else. An object says"
            " where they go besides: `connector` (file, kafka, postgres, clickhouse, webhook) and its options.",
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        },
        "ttl_seconds": {"type": ["number", "null"], "description": "Delete the query after this time"},
        "labels": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        "start": {
            "type": ["string", "null"],
            "description": "Where it starts to read its streams: `now`, `earliest`, a time (RFC 3339), or an interval"
            " before now such as `-1 hour`. Else where the stream says: `earliest` for connector `file` and for `kafka`"
            " with `scan.startup.mode` = `earliest-offset`, `now` for others.",
        },
    },
}
RETIRE_SCHEMA: Json = {
    "type": "object",
    "required": ["ids"],
    "additionalProperties": False,
    "properties": {
        "ids": {"type": "array", "minItems": 1, "items": {"type": "string", "description": "The id or the name"}},
        "drain": {"type": "boolean", "default": True, "description": "Still emit the windows that are complete"},
    },
}
_LIMIT: Json = {"type": ["integer", "null"], "minimum": 0}
TENANT_SCHEMA: Json = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "quotas": {
            "type": ["object", "null"],
            "additionalProperties": False,
            "properties": {
                "running_queries": _LIMIT,
                "creations_a_minute": _LIMIT,
                "cost_share": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
                "result_rows_a_second": _LIMIT,
                "query_levels": _LIMIT,
                "query_readers": _LIMIT,
            },
        }
    },
}
KEY_SCHEMA: Json = {
    "type": "object",
    "required": ["tenant", "rights"],
    "additionalProperties": False,
    "properties": {
        "tenant": {"type": "string"},
        "rights": {"type": "array", "minItems": 1, "items": {"enum": ["read", "write", "admin", "monitor"]}},
        "name": {"type": ["string", "null"]},
    },
}
EVENTS_BODY: Json = {
    "parameters": [KEY_HEADER],
    "requestBody": {
        "required": True,
        "content": {
            NDJSON: {"schema": {"type": "string"}, "example": EVENTS},
            JSON: {"schema": {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]}},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
            "text/csv": {"schema": {"type": "string"}, "example": EVENTS_CSV},
        },
    },
}


MAX_ROWS = 100_000
LONGEST_WAIT_SECONDS = 60.0


IdOrName = Annotated[
    str,
    Path(description="The id of a query, or its name: that of the newest query of your tenant that has or had it."),
]
Limit = Annotated[
    int,
    Query(ge=1, description=f"Most rows of one answer; more than {MAX_ROWS} counts as {MAX_ROWS}."),
    AfterValidator(lambda rows: min(rows, MAX_ROWS)),
]
After = Annotated[str | None, Query(description="The cursor of an earlier answer; without one, from the beginning.")]
Wait = Annotated[
    float,
    Query(ge=0, description=f"Seconds to wait; more than {LONGEST_WAIT_SECONDS:g} counts as that."),
    AfterValidator(lambda seconds: min(seconds, LONGEST_WAIT_SECONDS)),
]
Cascade = Annotated[bool, Query(description="Retire the queries that read it, too; else they are a conflict.")]
Drain = Annotated[bool, Query(description="Still emit the windows that are complete; `false` stops at once.")]


def install(app: FastAPI) -> None:
    """Make ``app`` describe itself: without FastAPI's own form of validation errors, which we never send."""

    def described() -> Json:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            for path in schema["paths"].values():
                for call in path.values():
                    for status, refusal in refused(*_EVERYWHERE).items():
                        call["responses"].setdefault(str(status), refusal)
                    if "HTTPValidationError" in str(call["responses"].get("422")):
                        del call["responses"]["422"]
                        call["responses"].setdefault("400", refused(400)[400])
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            schemas["Problem"] = _PROBLEM
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]
