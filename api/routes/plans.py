"""``/plan`` and ``/changelogs``: how queries run, with whom they share, and how that came about."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query, Response

from braid.api.routes import documents
from braid.api.routes.access import AdminDep, ReaderDep
from braid.api.routes.documents import IdOrName, answers
from braid.api.schemas.model import Json
from braid.api.schemas.plans import Changelogs, Plan, QueryPlan
from braid.api.service import Service, ServiceDep
from braid.optimizer.graph import to_dot
from braid.sources.core.errors import TooLarge

router = APIRouter(tags=["plan"])
DOT = "text/vnd.graphviz"
Form = Annotated[Literal["json", "dot"], Query(description="`dot`: Graphviz' language.")]
_QUERY_PLAN = (
    {"id": "q-1", "name": "expensive", "state": "RUNNING"}
    | documents.EXECUTION
    | documents.GRAPH
    | {"columns": documents.COLUMNS}
)
_EXECUTORS = {
    "now": 1,
    "wanted": 2,
    "bounds": [1, 4],
    "why": "For 5 s rows took longer than 5 s, now 7.3 s, and 3.10 of 4 cores worked; 900000 rows wait.",
    "since": "2026-01-01T00:00:00.000000Z",
    "decisions": [
        {"at": "2025-12-31T00:00:00.000000Z", "wanted": 1, "why": "There must be from 1 to 4 executors."},
        {"at": "2026-01-01T00:00:00.000000Z", "wanted": 2, "why": "For 5 s rows took longer than 5 s, …"},
    ],
}
_PARTITIONS = [{"partition": 0, "cores": 0.41}, {"partition": 1, "cores": 0.38}]
_CHANGES = [
    {
        "at": "2026-01-01T00:00:00.000000Z",
        "operator": "aggregation:s-1:gem_pack",
        "kind": "holistic",
        "why": "first plan: 300 queries in 3 groups should take 0.56 of the time",
        "queries": 300,
        "estimated_cores": {"before": 0.12, "after": 0.0672},
        "measured_us_per_tuple": {"before": 0.241, "after": 0.15},
    },
    {
        "at": "2026-01-01T00:00:05.000000Z",
        "operator": "join:input:s-1:user_id input:s-2:user_id on p.user_id = a.user_id",
        "kind": "split",
        "why": "1 key of a and what is joined with it have 96% of the rows: split among 2 partitions, the busiest"
        " should have 50% of them instead of 98%",
        "queries": 0,
        "estimated_cores": {"before": 0.91, "after": 0.465},
        "measured_us_per_tuple": {"before": None, "after": None},
        "keys": 1,
        "measured_busiest_partition": {"before": 0.97, "after": 0.53},
    },
]
_DOT = {"schema": documents.TEXT, "example": 'digraph plan { "stream:s-1" -> "selection:s-1"; }'}
_CHANGELOG = {
    "epoch": 3,
    "created_at": "2026-01-01T00:00:00.000000Z",
    "why": "2 requests",
    "created": [{"id": "q-2", "slot": 1, "operator": "selection:s-1"}],
    "deleted": [{"id": "q-1", "slot": 0, "drain": True}],
    "freed": [],
    "regrouped": [{"id": "q-1", "slot": 0, "group": 4}],
    "split": [],
    "streams_created": ["purchases"],
    "streams_dropped": [],
    "changelog_set": "10",
    "capacity": 2,
    "plan_version": 3,
}


def _graph_responses(description: str, schema: type, example: Json, *refusals: int) -> dict[int | str, Json]:
    responses = answers(200, description, schema, example, *refusals)
    responses[200]["content"][DOT] = _DOT
    return responses


@router.get(
    "/plan",
    responses=_graph_responses(
        "Everything that runs, as a graph; to who sees all queries also the newest changes of query groups and"
        " split keys, how many executors there are and should be, and how many cores each partition keeps busy.",
        Plan,
        {**documents.GRAPH, "version": 3, "changes": _CHANGES, "executors": _EXECUTORS, "partitions": _PARTITIONS},
        400,
        413,
    ),
)
def get_plan(caller: ReaderDep, service: ServiceDep, format: Form = "json") -> Response:
    """Look at how all queries run and share."""
    return _graph(caller.plan(), format, service)


@router.get(
    "/queries/{id}/plan",
    responses=_graph_responses("The query's part of the graph.", QueryPlan, _QUERY_PLAN, 400, 404, 410, 413),
)
def get_query_plan(id: IdOrName, caller: ReaderDep, service: ServiceDep, format: Form = "json") -> Response:
    """Look at how one query runs and with whom it shares."""
    return _graph(caller.query_plan(id), format, service)


@router.get(
    "/changelogs",
    responses=answers(200, "Changelogs in order of epochs.", Changelogs, {"changelogs": [_CHANGELOG]}, 400),
)
def get_changelogs(
    service: ServiceDep, _: AdminDep, after: Annotated[int, Query(ge=0, description="Only later epochs.")] = 0
) -> Response:
    """Read the changelogs after an epoch: at most 1000 and about 2 MB; ask again after the last epoch for more."""
    body = b'{"changelogs":[%b]}' % b",".join(service.session.changelogs_json(after))
    return Response(body, media_type="application/json")


def _graph(graph: dict[str, Any], form: str, service: Service) -> Response:
    body = to_dot(graph).encode() if form == "dot" else orjson.dumps(graph)
    if len(body) > service.settings.max_page_bytes:
        raise TooLarge(
            f"A plan must have at most {service.settings.max_page_bytes} bytes (setting max_page_bytes); got"
            f" {len(body)}. GET /queries/{{id}}/plan (braid explain ID) has that of one query, GET /queries lists them"
            " in pages."
        )
    return Response(body, media_type=DOT if form == "dot" else "application/json")
