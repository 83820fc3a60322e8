"""Rows posted to a URL: batches as JSON, signed as *Standard Webhooks* says, sent again until they are taken.

The body is ``{"query", "name", "ids", "rows"}``; ``ids`` tells rows apart that come again. Headers: ``webhook-id`` (the
query and its first row), ``webhook-timestamp`` and, with a secret, ``webhook-signature``, ``v1,`` and the base64 of the
HMAC-SHA256 of ``id.timestamp.body`` (standardwebhooks, specification 1.0).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from operators.queries import Query
from router.row_text import objects
from router.sinks.http import post
from router.sinks.options import check_options
from router.sinks.sink import Deliverer, Rows, Subject
from sources.errors import NotAllowed
from sources.secret import check_secrets, reveal

NAME = "webhook"
FLUSH_ROWS, FLUSH_SECONDS = 1000, 0.0
HEADER = "header."
TIMEOUT_SECONDS = 10.0


def validate(options: Mapping[str, str], query: Query, folder: str) -> None:  # noqa: ARG001
    """Check what a query says of its webhook."""
    check_options(NAME, options, ("url",), ("secret", f"{HEADER}*"))
    check_url(NAME, options["url"])
    check_secrets(options, ("secret",))


def check_url(connector: str, url: str) -> None:
    """NotAllowed for what is no URL that can be posted to, or holds a password."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.password:
        raise NotAllowed(f"Option 'url' of sink {connector!r} must be http://… or https://… without a password.")


def destination(options: Mapping[str, str]) -> str:
    """Return the URL."""
    return options["url"]


def connect(options: Mapping[str, str], deliverer: Deliverer) -> Receiver:  # noqa: ARG001
    """Return the receiver; nothing is sent yet."""
    return Receiver(options["url"])


class Receiver:
    """A URL that takes rows."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = httpx.Client(timeout=TIMEOUT_SECONDS)

    def open(self, subject: Subject, options: Mapping[str, str]) -> WebhookSink:
        """Return the sink of a query; NotReady names a secret that is not there."""
        headers = {
            name.removeprefix(HEADER): reveal(value) for name, value in options.items() if name.startswith(HEADER)
        }
        secret = reveal(options["secret"]) if "secret" in options else None
        return WebhookSink(self._client, self._url, headers, secret, subject)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


class WebhookSink:
    """The rows of one query, posted."""

    keeps_cursor = False

    def __init__(
        self, client: httpx.Client, url: str, headers: Mapping[str, str], secret: str | None, subject: Subject
    ) -> None:
        self._client = client
        self._url = url
        self._headers = headers
        self._key = None if secret is None else signing_key(secret)
        self._subject = subject

    def resume(self) -> str | None:
        """What has been taken, the receiver does not tell."""
        return None

    def write(self, rows: Rows) -> None:
        """Post rows."""
        subject = self._subject
        body: dict[str, Any] = {
            "query": subject.query_id,
            "name": subject.name,
            "ids": rows.ids,
            "rows": objects(rows.table),
        }
        content = orjson.dumps(body)
        message, now = f"{subject.delivery}-{rows.ids[0]}", str(int(time.time()))
        headers = {"content-type": "application/json", "webhook-id": message, "webhook-timestamp": now}
        if self._key is not None:
            headers["webhook-signature"] = sign(self._key, message, now, content)
        post(self._client, self._url, content, {**self._headers, **headers})


def signing_key(secret: str) -> bytes:
    """Return the bytes of a secret: base64 after ``whsec_``, any other text as it is."""
    return base64.b64decode(secret.removeprefix("whsec_")) if secret.startswith("whsec_") else secret.encode()


def sign(key: bytes, message: str, timestamp: str, content: bytes) -> str:
    """Return the signature of a message."""
    signed = f"{message}.{timestamp}.".encode() + content
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
