"""The REST interface as an ASGI application; CONTRACT section 1 says what each call does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import Depends, FastAPI

from api import (
    access,
    documents,
    events,
    health,
    live,
    logs,
    metrics_page,
    plans,
    problems,
    queries,
    results,
    sql,
    streams,
    tables,
)
from api.access import caller_of
from api.service import Service

ROUTERS = (streams, events, tables, queries, results, live, plans, sql, access, metrics_page)
OPEN_ROUTERS = (health,)
"""What answers without a key: it tells nothing of what is in the service."""


def create_app(service: Service) -> FastAPI:
    """Return the application that answers for ``service``; the caller opens and closes the service."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.news.bind()
        yield
        service.news.stop()

    app = FastAPI(
        title="Braid",
        version=_version(),
        description=documents.DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        redoc_url=None,
    )
    app.state.service = service
    app.add_middleware(logs.RequestLog)
    problems.install(app)
    documents.install(app)
    for module in ROUTERS:
        app.include_router(module.router, dependencies=[Depends(caller_of)], responses=documents.refused(401, 403))
    for module in OPEN_ROUTERS:
        app.include_router(module.router)
    return app


def _version() -> str:
    try:
        return version("braid")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0"
