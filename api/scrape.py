"""``/metrics``: for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.access import MonitorDep
from api.documents import refused
from api.metrics import CONTENT_TYPE
from api.service import ServiceDep

router = APIRouter(tags=["operation"])


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Metrics for Prometheus.",
            "content": {"text/plain": {"example": "braid_epoch 3.0\n"}},
        },
        **refused(503),
    },
)
def metrics(service: ServiceDep, _: MonitorDep) -> Response:
    """Read all metrics in Prometheus' text format."""
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)
