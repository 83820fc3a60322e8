"""The REST interface as an ASGI application; its OpenAPI document, at ``/docs``, says what each call does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from braid import __version__
from braid.api import logs
from braid.api.http import problems
from braid.api.http.headers import HeadAsGet, SafeHeaders
from braid.api.http.limits import AnswerLimit, BodyMemory, RequestLimit
from braid.api.http.origins import KnownOrigins, hosts_of
from braid.api.page import files as page
from braid.api.routes import (
    access,
    changes,
    docs_page,
    documents,
    infer,
    operation,
    plans,
    queries,
    results,
    sql,
    sse,
    streams,
    tables,
)
from braid.api.routes.access import caller_of
from braid.api.service import Service

ROUTERS = (streams, infer, tables, queries, changes, results, sse, plans, sql, access, operation)
OPEN_ROUTERS = (operation.probes, docs_page.router, page.router)
"""What answers without a key: it tells nothing of what is in the service."""
CURSOR_HEADERS = ("Braid-Cursor", "Braid-End", "Location", "Retry-After")


class _App(FastAPI):
    def build_middleware_stack(self) -> ASGIApp:
        """Put the headers around everything, also around answers that tell of a defect."""
        return SafeHeaders(problems.DefectAnswers(super().build_middleware_stack()))


def create_app(service: Service) -> FastAPI:
    """Return the application that answers for ``service``; the caller opens and closes the service."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.notifier.bind()
        yield
        service.notifier.stop()

    app = _App(
        title="Braid",
        version=__version__,
        description=documents.DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = service
    settings = service.settings
    # the last one added is the first to see a request
    app.add_middleware(AnswerLimit, settings.max_answer_bytes)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyMemory, max(settings.body_memory_bytes, settings.max_body_bytes))
    app.add_middleware(RequestLimit, settings.max_connections)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=CURSOR_HEADERS,
        )
    app.add_middleware(KnownOrigins, hosts_of(settings), settings.allowed_origins)
    app.add_middleware(logs.RequestLog)
    problems.install(app)
    documents.install(app)
    for module in ROUTERS:
        app.include_router(module.router, dependencies=[Depends(caller_of)], responses=documents.refused(401, 403))
    for router in OPEN_ROUTERS:
        app.include_router(router)
    return app
