"""Logs: one JSON object a line on standard error, one line an event.

A message is a fixed text; what varies stands in fields: ``query_id``, ``query_ids``, ``stream``, ``epoch``, … ::

    log.info("query created", extra={"fields": {"query_id": "q-1"}})
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from braid.session.state.times import rfc3339

log = logging.getLogger("braid.requests")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its newline."""
        event: dict[str, Any] = {
            "time": rfc3339(round(record.created * 1e6)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            event |= {name: value for name, value in fields.items() if value is not None}
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def configure(level: str) -> None:
    """Send all logs of this process to standard error, from ``level`` (``info``, …) up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("braid").setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.propagate = True
        logger.setLevel(logging.WARNING)


class RequestLog:
    """ASGI middleware: a debug line for every request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and log its status and duration."""
        if scope["type"] != "http" or not log.isEnabledFor(logging.DEBUG):
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            seconds = round(time.perf_counter() - began, 6)
            fields = {"method": scope["method"], "path": scope["path"], "status": status, "seconds": seconds}
            log.debug("request", extra={"fields": fields})
