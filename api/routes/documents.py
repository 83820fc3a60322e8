"""What ``/openapi.json`` and ``/docs`` say beside the code: bodies, examples, refusals and common parameters."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Path, Query
from fastapi.openapi.utils import get_openapi
from pydantic import AfterValidator

from braid.api.http import problems
from braid.api.routes.rows import ARROW, JSON, NDJSON
from braid.api.schemas import access, model, plans, queries, streams
from braid.api.schemas.model import Json, Problem, Row, components, one_or_many, ref
from braid.api.schemas.streams import Statement

DESCRIPTION = """\
Braid runs thousands of ad-hoc SQL queries over live streams inside one long-running job.

Declare a stream, push rows, register queries, read their rows. Times are RFC 3339 UTC with microseconds. Errors are
`application/problem+json` (RFC 9457); nothing changes when a request fails. The header `Idempotency-Key` makes a retry
of any POST and of PUT safe.
"""

TAGS = [
    {"name": "streams", "description": "Streams, and the rows that are pushed to them"},
    {"name": "tables", "description": "Static tables to join with"},
    {"name": "queries", "description": "Queries: register, look at, change and retire them"},
    {"name": "results", "description": "The rows of queries"},
    {"name": "plan", "description": "How queries run and share"},
    {"name": "sql", "description": "Any one statement"},
    {"name": "access", "description": "Tenants, keys and quotas"},
    {"name": "operation", "description": "Probes and metrics"},
]
BEARER: Json = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key. A service that takes requests without keys, on loopback only, ignores it.",
}
TEXT: Json = {"type": "string"}
BYTES: Json = {"type": "string", "format": "binary"}

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
    "lateness_seconds": 2.0,
    "max_future_seconds": 3600.0,
    "idle_timeout_seconds": None,
    "on_idle": "wait",
    "watermark_percentile": None,
    "clock": "2026-01-01T00:00:01.000000Z",
    "watermark": "2025-12-31T23:59:59.000000Z",
    "idle": False,
    "ended": False,
    "tuples": 1,
    "late": 0,
    "malformed": 0,
    "skipped": 0,
    "bytes": 76,
    "offsets": {"0": 1},
    "error": None,
    "queries": 1,
    "created_at": "2026-01-01T00:00:00.000000Z",
    "sql": CREATE_STREAM,
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
    "sql": CREATE_TABLE,
}
QUERY: Json = {
    "id": "q-1",
    "name": "expensive",
    "tenant": None,
    "sql": SELECT,
    "state": "RUNNING",
    "start": None,
    "replays": None,
    "progress": None,
    "joined": None,
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
    "operator": "selection:s-1",
    "sink": None,
    "subquery": False,
    "error": None,
    "waiting_for": None,
    "open_window": None,
    "labels": {},
    "ttl_seconds": None,
    "delivery": None,
    "deployments": [],
    "replaces": None,
    "replaced_by": None,
}
EXECUTION: Json = {
    "kind": "selection",
    "operator": "selection:s-1",
    "streams": ["purchases"],
    "tables": [],
    "partitioned_by": [],
    "window": None,
    "emit": None,
    "predicate_columns": ["price"],
    "evaluation": {"form": "query-sets", "why": "selected rows are kept one by one; tested: price"},
    "shares_with": {"count": 1, "ids": ["q-1"]},
    "group": None,
    "plan_version": 3,
    "why": "Shared with 1 other query: all selections over purchases are one operator.",
    "statistics": {
        "tuples_per_second": {"purchases": 100.0},
        "selectivity": {"purchases": 0.5},
        "sampled_tuples": {"purchases": 1000},
        "cores": None,
        "cost_share": None,
    },
    "join_order": None,
}
GRAPH: Json = {
    "nodes": [{"id": "stream:s-1", "kind": "stream", "name": "purchases"}],
    "edges": [{"source": "stream:s-1", "target": "selection:s-1"}],
}
COLUMNS = [{"name": "price", "type": "DOUBLE", "role": None}]
EXPLAINED: Json = EXECUTION | {"columns": COLUMNS, "plan": GRAPH}
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
            "query": None,
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


def answers(status: int, description: str, schema: type | Json, example: Any, *refusals: int) -> dict[int | str, Json]:
    """Return the ``responses`` of a call: its good answer with schema and example, and the statuses of its refusals."""
    content = {JSON: {"schema": _schema(schema), "example": example}}
    return {status: {"description": description, "content": content}, **refused(*refusals)}


def refused(*statuses: int) -> dict[int | str, Json]:
    """Return the ``responses`` entry of each status of refusal."""
    content = {problems.MEDIA_TYPE: {"schema": ref(Problem)}}
    return {status: {"description": _REASONS[status], "content": content} for status in statuses}


def json_body(schema: type | Json, example: Any, repeatable: bool = True) -> Json:
    """Return the ``openapi_extra`` of a call that takes JSON; ``repeatable``: an Idempotency-Key makes retries safe."""
    content = {JSON: {"schema": _schema(schema), "example": example}}
    return {"requestBody": {"required": True, "content": content}, "parameters": [KEY_HEADER] * repeatable}


def no_body() -> Json:
    """Return the ``openapi_extra`` of a POST that takes nothing."""
    return {"parameters": [KEY_HEADER]}


def sql_body(example: str) -> Json:
    """Return the ``openapi_extra`` of a call that takes ``{"sql": …}``."""
    return json_body(Statement, {"sql": example})


def _schema(schema: type | Json) -> Json:
    return schema if isinstance(schema, dict) else ref(schema)


KEY_HEADER: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 255},
    "description": "Makes a retry safe: the first outcome is answered again, also after a crash; kept for a day.",
}
EVENTS_BODY: Json = {
    "parameters": [KEY_HEADER],
    "requestBody": {
        "required": True,
        "content": {
            NDJSON: {"schema": TEXT, "example": EVENTS},
            JSON: {"schema": one_or_many(Row)},
            ARROW: {"schema": BYTES},
            "text/csv": {"schema": TEXT, "example": EVENTS_CSV},
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


_SCHEMAS = {
    name: schema for module in (model, streams, queries, plans, access) for name, schema in vars(module).items()
}


def install(app: FastAPI) -> None:
    """Make ``app`` describe itself: without FastAPI's own form of validation errors, which we never send."""

    def described() -> Json:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes, tags=TAGS
            )
            for path in document["paths"].values():
                for call in path.values():
                    _complete(call)
            document["components"] = {
                "schemas": components(document["paths"], _SCHEMAS),
                "securitySchemes": {"apiKey": BEARER},
            }
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


def _complete(call: Json) -> None:
    """Add to what FastAPI says of a call what any call may be refused with, and that it takes a key."""
    answers = call["responses"]
    for status, refusal in refused(*_EVERYWHERE).items():
        answers.setdefault(str(status), refusal)
    if "HTTPValidationError" in str(answers.get("422")):
        del answers["422"]
        answers.setdefault("400", refused(400)[400])
    for answer in answers.values():
        for form in answer.get("content", {}).values():
            if "$ref" in form["schema"]:  # beside what FastAPI tells from the type of the function
                form["schema"] = {"$ref": form["schema"]["$ref"]}
    if "401" in answers:
        call["security"] = [{"apiKey": []}]
