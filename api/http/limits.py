"""How many requests may be under way, and bytes of their bodies and answers; others are refused with 429."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from braid.api.http.problems import document_of, headers_of, problem
from braid.sources.core.errors import Overloaded

PROBES = ("/healthz", "/readyz")
PIECE_BYTES = 64 * 1024
"""Larger bodies are sent in pieces of so many bytes, each once the client has taken most of those before."""


class RequestLimit:
    """ASGI middleware: answers 429 while ``limit`` requests run or wait for rows; probes are not counted."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        if self._under_way >= self._limit:
            error = Overloaded(
                f"At most {self._limit} requests may be under way, those that wait for rows included (setting"
                " max_connections). Try again later.",
            )
            await problem(document_of(error), {**headers_of(error), "Connection": "close"})(scope, receive, send)
            return
        self._under_way += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way -= 1


class BodyMemory:
    """ASGI middleware: refuses what would have the bodies of all requests under way take more than ``limit`` bytes.

    A body counts as far as it has come, until its request is answered.
    """

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit
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
            if self._held + size > self._limit:
                raise Overloaded(
                    f"The bodies of all requests under way must have at most {self._limit} bytes together (setting"
                    " body_memory_bytes). Try again later, or send smaller ones."
                )
            held += size
            self._held += size
            return message

        try:
            await self._app(scope, receive_counted, send)
        finally:
            self._held -= held


class AnswerLimit:
    """ASGI middleware: answers 429 instead of a large answer while ``max_bytes`` of others wait for their clients.

    One answer is sent however large it is.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._limit = max_bytes
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and its answer in pieces."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        is_refused = False

        async def send_pieces(message: Message) -> None:
            nonlocal start, is_refused
            if is_refused:
                return
            if message["type"] == "http.response.start":
                start = message  # goes with the body, which may be too much
                return
            body = message.get("body", b"")
            if start is not None:
                if self._held and PIECE_BYTES < len(body) > self._limit - self._held:
                    is_refused = True
                    error = Overloaded(
                        f"At most {self._limit} bytes of answers may wait for their clients (setting max_answer_bytes);"
                        f" got {self._held + len(body)}. Try again later, or ask for less with limit."
                    )
                    await problem(document_of(error), headers_of(error))(scope, receive, send)
                    return
                await send(start)
                start = None
            self._held += len(body)
            try:
                for at in range(0, len(body) - PIECE_BYTES, PIECE_BYTES):
                    await send({**message, "body": body[at : at + PIECE_BYTES], "more_body": True})
                rest = (len(body) - 1) // PIECE_BYTES * PIECE_BYTES if body else 0
                await send({**message, "body": body[rest:]})
            finally:
                self._held -= len(body)

        await self._app(scope, receive, send_pieces)
