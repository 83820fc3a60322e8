"""``/healthz``, ``/readyz`` and ``/metrics``: whether the service is alive, and ready; for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Response

from braid.api.metrics.metrics import CONTENT_TYPE
from braid.api.routes.access import MonitorDep
from braid.api.routes.documents import TEXT, answers, refused
from braid.api.schemas.access import Alive, Ready
from braid.api.service import ServiceDep
from braid.sources.core.errors import NotReady

router = APIRouter(tags=["operation"])
probes = APIRouter(tags=["operation"])


@probes.get("/healthz", responses=answers(200, "The service is alive.", Alive, {"alive": True}))
async def healthz() -> dict[str, bool]:
    """Tell that the service answers."""
    return {"alive": True}


@probes.get("/readyz", responses=answers(200, "Queries run at full speed.", Ready, {"ready": True}, 503))
def readyz(service: ServiceDep) -> dict[str, bool]:
    """Tell whether queries are taken and run at full speed; if not, the problem says why."""
    service.check_running()
    reason = service.session.problem or service.why_not_ready()
    if reason is not None:
        raise NotReady(reason)
    return {"ready": True}


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Metrics for Prometheus.",
            "content": {"text/plain": {"schema": TEXT, "example": "braid_epoch 3.0\n"}},
        },
        **refused(503),
    },
)
def metrics(service: ServiceDep, _: MonitorDep) -> Response:
    """Read all metrics in Prometheus' text format."""
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)
