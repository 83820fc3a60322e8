"""How many requests may be under way at a time, and how much their bodies take; those beyond are told to come again."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class BodyMemory:
    """ASGI middleware: refuses what would have the bodies of all requests under way take more than ``most`` bytes.

    A body counts as far as it has come, until its request is answered.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; whoever reads its body gets Overloaded when there is no room."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        held = 0

        async def receive_counted() -> Message:
            nonlocal held
            message = await receive()
            size = len(message.get("body", b""))
            if self._held + size > self._most:
                raise Overloaded(
                    f"The bodies of all requests under way must have at most {self._most} bytes together (setting"
                    " body_memory_bytes). Come again a little later, or send smaller ones."
                )
            held += size
            self._held += size
            return message

        try:
            await self._app(scope, receive_counted, send)
        finally:
            self._held -= held
