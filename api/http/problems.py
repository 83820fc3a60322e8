"""Every refusal as RFC 9457 ``application/problem+json``, whoever raised it.

Three sources end here: errors of Braid, which know their status (:mod:`braid.sources.core.errors`), what FastAPI finds
wrong with a parameter (400), and what the routing finds (404, 405). Anything else is a defect: 500, with the traceback
in the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from braid.sources.core.errors import MalformedRequest, Overloaded, ServiceError, Unauthorized

MEDIA_TYPE = "application/problem+json"
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_NO_BOOLEAN = ("bool_parsing", "bool_type")
log = logging.getLogger("braid.api")


class NotAcceptable(ServiceError):
    """None of the forms that the client accepts is one we can give."""

    status = 406
    title = "Not acceptable"


def document_of(error: ServiceError) -> dict[str, Any]:
    """Return the problem document of an error."""
    document: dict[str, Any] = {
        "type": f"urn:braid:problem:{_kebab(type(error).__name__)}",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
    }
    if error.position is not None:
        document["position"] = error.position.to_json()
    if error.query_id is not None:
        document["query_id"] = error.query_id
    if error.stream is not None:
        document["stream"] = error.stream
    return document


def headers_of(error: ServiceError) -> dict[str, str]:
    """Return the headers that belong to an error."""
    if isinstance(error, Overloaded):
        return {"Retry-After": str(error.retry_after)}
    return {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else {}


def problem(document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """Return the response that carries a problem document."""
    return Response(orjson.dumps(document), document["status"], dict(headers or {}), MEDIA_TYPE)


def status_document(status: int, detail: str) -> bytes:
    """Return the problem document of a status that HTTP itself defines."""
    phrase = HTTPStatus(status).phrase
    kind = _kebab(phrase.title().replace(" ", ""))
    return orjson.dumps({"type": f"urn:braid:problem:{kind}", "title": phrase, "status": status, "detail": detail})


def install(app: FastAPI) -> None:
    """Make ``app`` answer every error with a problem document."""
    app.add_exception_handler(ServiceError, _answer_service_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid_parameters)
    app.add_exception_handler(HTTPException, _answer_routing_error)
    app.add_exception_handler(Exception, _answer_defect)


class DefectAnswers:
    """ASGI middleware: a defect that was answered and logged goes no further, and its connection stays open."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; what is raised before a whole answer is sent is raised again."""
        is_answered = False

        async def note(message: Message) -> None:
            nonlocal is_answered
            await send(message)
            is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)

        try:
            await self._app(scope, receive, note)
        except Exception:
            if not is_answered:
                raise


async def _answer_service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    if error.status >= 500 and error.status != HTTPStatus.SERVICE_UNAVAILABLE:
        log.error(
            "a request failed, and its client has the error",
            exc_info=error,
            extra={
                "fields": {
                    "status": error.status,
                    "method": request.method,
                    "path": request.url.path,
                    "query_id": error.query_id,
                }
            },
        )
    return problem(document_of(error), headers_of(error))


async def _answer_invalid_parameters(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    parts = []
    for mistake in error.errors():
        location, *path = (str(part) for part in mistake["loc"])
        complaint = "must be true or false" if mistake["type"] in _NO_BOOLEAN else mistake["msg"]
        parts.append(f"The {location} parameter {'.'.join(path)!r}: {complaint}; got {mistake.get('input')!r}.")
    return problem(document_of(MalformedRequest(" ".join(parts))))


async def _answer_routing_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # the routing names those of one route, and each method has a route of its own
        headers["Allow"] = ", ".join(_methods_of(request)) or headers.get("Allow", "")
    details = {
        404: f"There is no {request.url.path!r} here; /docs lists all calls.",
        405: f"{request.url.path!r} does not take {request.method}; it takes {headers.get('Allow')}.",
    }
    status = error.status_code
    body = status_document(status, details.get(status, str(error.detail)))
    return Response(body, status, headers, MEDIA_TYPE)


def _methods_of(request: Request) -> list[str]:
    """Return the methods that some route takes at the path of a request."""
    scope = {"type": "http", "path": request.scope["path"], "root_path": request.scope.get("root_path", "")}
    routes = request.app.routes
    return [
        method
        for method in _METHODS
        if any(route.matches({**scope, "method": method})[0] == Match.FULL for route in routes)
    ]


async def _answer_defect(request: Request, error: Exception) -> Response:
    log.error(
        "a request failed, and its client has the error",
        exc_info=error,
        extra={"fields": {"status": 500, "method": request.method, "path": request.url.path}},
    )
    return problem(
        document_of(ServiceError(f"Braid failed to answer ({type(error).__name__}). Its log has the details."))
    )


def _kebab(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
