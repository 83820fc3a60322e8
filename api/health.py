"""``/healthz`` and ``/readyz``: whether the service is alive, and ready."""

from __future__ import annotations

from fastapi import APIRouter

from api.documents import answers
from api.service import ServiceDep
from sources.core.errors import NotReady

router = APIRouter(tags=["operation"])


@router.get("/healthz", responses=answers(200, "The service is alive.", {"alive": True}))
async def healthz() -> dict[str, bool]:
    """Tell that the service answers."""
    return {"alive": True}


@router.get("/readyz", responses=answers(200, "Queries run at full speed.", {"ready": True}, 503))
def readyz(service: ServiceDep) -> dict[str, bool]:
    """Tell whether queries are taken and run at full speed; if not, the problem says why."""
    service.check_running()
    reason = service.session.problem or service.why_not_ready()
    if reason is not None:
        raise NotReady(reason)
    return {"ready": True}
