"""Logs: one line an event on standard error, one JSON object a line unless a person reads them in a terminal.

A message of the service is a fixed text; what varies stands in fields: ``query_id``, ``stream``, ``epoch``, … ::

    log.info("the deliverer has started", extra={"fields": {"shard": "1/4"}})

The job's log has whole sentences beside those of Spark, and no fields.
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


class TextFormatter(logging.Formatter):
    """Formats a record for people: the time of day (UTC), the level, the event and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its newline; an exception follows on lines of its own."""
        time_of_day = time.strftime("%H:%M:%S", time.gmtime(record.created))
        fields = getattr(record, "fields", None)
        named = [f"{name}={_plain(value)}" for name, value in (fields or {}).items() if value is not None]
        line = "  ".join([f"{time_of_day} {record.levelname.lower():<7} {record.getMessage()}", *named])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _plain(value: Any) -> str:
    """Return a value in one line: a text as it is where it has no control characters, others as JSON."""
    if isinstance(value, str) and value.isprintable():
        return value
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def configure(level: str) -> None:
    """Send all logs of this process to standard error, from ``level`` (``info``, …) up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if sys.stderr.isatty() else JsonFormatter())
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
