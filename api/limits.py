"""How many requests may be under way at a time; those beyond are told to come again."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from api.problems import document_of, headers_of, problem
from sources.errors import Overloaded

PROBES = ("/healthz", "/readyz")


class RequestLimit:
    """ASGI middleware: answers 429 while ``most`` requests run or wait for rows; probes are not counted."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        if self._under_way >= self._most:
            error = Overloaded(
                f"At most {self._most} requests may be under way, those that wait for rows included (setting"
                " max_connections). Come again a little later.",
            )
            await problem(document_of(error), {**headers_of(error), "Connection": "close"})(scope, receive, send)
            return
        self._under_way += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way -= 1
