"""Connections that end when their client is too slow, and refusals of what is no request, as problem documents.

A client must

- send the head of a request within ``patience`` seconds after its first byte, and begin one as soon after it connected;
- send a body at :data:`SLOWEST` bytes a second on the whole, after ``patience`` seconds of grace;
- take an answer at the same pace;
- stop sending a body once it is answered: nothing more of it is kept, and the connection ends :data:`LINGER_SECONDS`
  later.

None of it takes a thread: a body is read on the event loop, and only whole ones go on from there.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import Any

import h11
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from braid.api.http.headers import SAFE_HEADERS
from braid.api.http.problems import MEDIA_TYPE, status_document

SLOWEST = 4096
"""Bytes a second."""

LINGER_SECONDS = 2.0
"""How long a client that still sends has to read its answer: ended at once, it might never see it."""

_AT_ONCE = struct.pack("ii", 1, 0)
_DETAILS = {
    400: "The request must be HTTP/1.1; it cannot be read as that.",
    408: "A request must come at {slowest} bytes a second or faster, its head within {patience:g} s (setting"
    " request_timeout_seconds); this one did not.",
    431: "The request line and the headers must have at most {head} bytes together (setting max_header_bytes).",
    503: "At most {limit} connections may be open (setting max_connections, and as many to spare).",
}


class Connection(H11Protocol):
    """Uvicorn's connection, watched; ``limit`` may be open at a time."""

    def __init__(self, *arguments: Any, patience: float, limit: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._patience = patience
        self._limit = limit
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._body_began = 0.0
        self._body_bytes = 0
        self._unsent = 0
        self._lingering: asyncio.TimerHandle | None = None
        self.app = _ClosingEarly(self.app, self)

    @property
    def is_receiving(self) -> bool:
        """Whether some of the body of a request is still to come."""
        return self.conn.their_state is h11.SEND_BODY

    @property
    def is_lingering(self) -> bool:
        """Whether the connection ends as soon as its client has read the answer."""
        return self._lingering is not None

    def linger(self) -> None:
        """Say that nothing more is sent, and end the connection when the client has had time to read the answer."""
        if self._lingering is None:
            self._reading = cancelled(self._reading)
            transport = self.transport
            self._lingering = self.loop.call_later(LINGER_SECONDS, transport.abort)
            self.flow.resume_reading()
            transport.write_eof()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to watch, or refuse a connection too many."""
        super().connection_made(_Lingering(transport, self))  # type: ignore[arg-type]
        if len(self.connections) > self._limit:
            self._refuse(503, {"Retry-After": "1"})
            return
        self._watch_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching."""
        self._reading = cancelled(self._reading)
        self._writing = cancelled(self._writing)
        self._lingering = cancelled(self._lingering)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came, and watch for what is missing."""
        if self.is_lingering:
            return
        was_body = self.conn.their_state is h11.SEND_BODY
        super().data_received(data)
        is_body = self.conn.their_state is h11.SEND_BODY
        if is_body and not was_body:
            self._reading = cancelled(self._reading)
            self._body_began, self._body_bytes = self.loop.time(), 0
        self._body_bytes += len(data)
        self._watch_reading()

    def _watch_reading(self) -> None:
        """Wait for the rest of a head or of a body; a timer that runs is left alone: bytes do not renew it."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            self._reading = cancelled(self._reading)
        elif self._reading is None:
            self._reading = self.loop.call_later(self._patience, self._check_reading)

    def _check_reading(self) -> None:
        self._reading = None
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY:
            seconds_late = self.loop.time() - self._body_began - self._patience - self._body_bytes / SLOWEST
            if self.flow.read_paused or seconds_late < 0:  # it is we who do not read, or it is fast enough
                self._reading = self.loop.call_later(max(1.0, -seconds_late), self._check_reading)
                return
        is_empty = not self.conn.trailing_data[0]
        if is_empty and self.conn.their_state is h11.IDLE:
            self.transport.close()
        else:
            self._refuse(408)

    def pause_writing(self) -> None:
        """Watch that the client takes what is written."""
        super().pause_writing()
        if self._writing is None:
            self._unsent = self.transport.get_write_buffer_size()
            self._writing = self.loop.call_later(self._patience, self._check_writing)

    def resume_writing(self) -> None:
        """Stop watching: nearly all is sent."""
        super().resume_writing()
        self._writing = cancelled(self._writing)

    def _check_writing(self) -> None:
        unsent_before, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        if unsent_before - self._unsent < self._patience * SLOWEST:
            self._writing = None
            # without it the kernel would go on sending what it has buffered
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self.transport.abort()
        else:
            self._writing = self.loop.call_later(self._patience, self._check_writing)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words
        """Refuse what h11 could not read."""
        error = sys.exc_info()[1]
        is_large = getattr(error, "error_status_hint", 400) == 431
        self._refuse(431 if is_large else 400)

    def _refuse(self, status: int, headers: dict[str, str] | None = None) -> None:
        """Answer a problem document, if an answer is due, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            detail = _DETAILS[status].format(
                slowest=SLOWEST,
                patience=self._patience,
                head=self.config.h11_max_incomplete_event_size,
                limit=self._limit,
            )
            body = status_document(status, detail)
            response_headers = {
                **SAFE_HEADERS,
                "Content-Type": MEDIA_TYPE,
                "Content-Length": str(len(body)),
                "Connection": "close",
                **(headers or {}),
            }
            answer = h11.Response(
                status_code=status,
                headers=[(name.lower().encode(), value.encode()) for name, value in response_headers.items()],
                reason=STATUS_PHRASES[status],
            )
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:  # whoever waits for the rest learns that nobody is there
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


class _Lingering:
    """A transport that ends a connection gently while its client sends, and says that it is closing meanwhile."""

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self._transport = transport
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """End the connection."""
        if self._connection.is_receiving and not self._transport.is_closing():
            self._connection.linger()
        else:
            self._transport.close()

    def is_closing(self) -> bool:
        """Whether the connection ends."""
        return self._transport.is_closing() or self._connection.is_lingering


class _ClosingEarly:
    """ASGI middleware: an answer that begins before its request has come as a whole is the last of its connection."""

    def __init__(self, app: Any, connection: Connection) -> None:
        self._app = app
        self._connection = connection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and its answer with a header that says so."""

        async def send_closing(message: Message) -> None:
            if message["type"] == "http.response.start" and self._connection.is_receiving:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        await self._app(scope, receive, send_closing)


def cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel a timer, if there is one, and return that there is none."""
    if timer is not None:
        timer.cancel()
    return None
