"""The REST interface as an ASGI application; CONTRACT section 1 says what each call does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import FastAPI

from api import documents, events, health, live, logs, plans, problems, queries, results, sql, streams, tables
from api.service import Service

ROUTERS = (streams, events, tables, queries, results, live, plans, sql, health)


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
        app.include_router(module.router)
    return app


def _version() -> str:
    try:
        return version("braid")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0"
