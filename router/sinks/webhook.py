"""Rows posted to a URL: batches as JSON, signed as *Standard Webhooks* says, sent again until they are taken.

The body is ``{"query", "name", "ids", "rows"}``; ``ids`` tells rows apart that come again, from those of any query of
any service. Headers: ``webhook-id`` (the delivery, its first row and its last one: equal for equal rows only),
``webhook-timestamp`` and, with a secret, ``webhook-signature``, ``v1,`` and the base64 of the HMAC-SHA256 of
``id.timestamp.body`` (standardwebhooks, specification 1.0).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from typing import Any

import httpx
import orjson

from braid.operators.queries import Query
from braid.router.row_text import objects
from braid.router.sinks.http import LATER, HttpPlace, check_url, retry_after
from braid.router.sinks.options import check_options
from braid.router.sinks.sink import DelivererIdentity, RowsRefused, SinkDown, SinkRefused, SinkRows, Subject
from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import NotAllowed
from braid.sources.core.http_client import http_client
from braid.sources.core.outgoing import Outgoing
from braid.sources.core.secret import PREFIX as REFERENCE
from braid.sources.core.secret import check_secrets, is_reference, reveal

NAME = "webhook"
FLUSH_ROWS, FLUSH_SECONDS = 1000, 0.0
HEADER = "header."
SECRET_HEADERS = re.compile(r"auth|cookie|credential|key|passw|secret|signature|token", re.IGNORECASE)
"""Headers that hold secrets, by what is in their names."""
TIMEOUT_SECONDS = 10.0
ROWS_REFUSED = (400, 413, 422)
"""Answers that are about the rows of a request, or how large they are."""
FRAMING_HEADERS = (
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
)
"""Headers that say where a request goes and where it ends, which HTTP itself writes."""
_REFERENCE = re.compile(f"(?:^|(?<=[ =])){REFERENCE}")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def validate(options: Mapping[str, str], query: Query, confinement: Confinement) -> None:  # noqa: ARG001
    """Check what a query says of its webhook."""
    check_options(NAME, options, ("url",), ("secret", f"{HEADER}*"))
    if is_reference(options["url"]):
        check_secrets({"url": options["url"]}, ("url",))
    else:
        check_url(NAME, options["url"], confinement.outgoing)
    check_secrets({"secret": options["secret"]} if "secret" in options else {}, ("secret",))
    for option, value in options.items():
        if option.startswith(HEADER):
            check_header(option, value)


def check_header(option: str, value: str) -> None:
    """Raise NotAllowed for a header that cannot be sent or holds a secret.

    Its value may end with a reference to one, as after ``Bearer``.
    """
    name = option.removeprefix(HEADER)
    if not _TOKEN.fullmatch(name):
        raise NotAllowed(f"Option {option!r} of sink {NAME!r} must name a header, of letters, digits and -.")
    if name.lower() in FRAMING_HEADERS:
        raise NotAllowed(
            f"Option {option!r} of sink {NAME!r} must name a header that does not frame the request, which"
            f" {', '.join(FRAMING_HEADERS)} do; leave it out."
        )
    if not (value.isascii() and value.isprintable()):
        raise NotAllowed(f"Option {option!r} of sink {NAME!r} must be of printable ASCII.")
    check_secrets({option: _split_reference(value)[1]}, (option,) if SECRET_HEADERS.search(name) else ())


def _split_reference(value: str) -> tuple[str, str]:
    """Split the value of a header into what precedes a reference and the reference; without one, "" and the value."""
    match = _REFERENCE.search(value)
    return ("", value) if match is None else (value[: match.start()], value[match.start() :])


def destination(options: Mapping[str, str]) -> str:
    """Return the URL, or the reference to it."""
    return options["url"]


def connect(options: Mapping[str, str], deliverer: DelivererIdentity) -> Receiver:
    """Return the receiver; nothing is sent yet."""
    return Receiver(options["url"], deliverer.confinement.outgoing)


class Receiver:
    """A URL that takes rows; also one that is a secret."""

    def __init__(self, url: str, outgoing: Outgoing) -> None:
        self._url = url
        self._outgoing = outgoing
        self._client = http_client(outgoing, TIMEOUT_SECONDS)

    def open(self, subject: Subject, options: Mapping[str, str]) -> WebhookSink:
        """Return the sink of a query; NotReady names a secret that is not there, NotAllowed one that is no URL."""
        url, secrets = reveal(self._url), []
        if is_reference(self._url):
            check_url(NAME, url, self._outgoing)
            secrets.append(url)
        headers = {}
        for option, value in options.items():
            if option.startswith(HEADER):
                prefix, reference = _split_reference(value)
                # names in lower case: what the sink itself says takes their place
                headers[option.removeprefix(HEADER).lower()] = prefix + reveal(reference)
                if is_reference(reference):
                    secrets.append(reveal(reference))
        key = None
        if "secret" in options:
            secrets.append(reveal(options["secret"]))
            key = signing_key(secrets[-1])
        return WebhookSink(HttpPlace(self._client, url, headers, tuple(secrets), self._url), key, subject)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


class WebhookSink:
    """The rows of one query, posted."""

    keeps_cursor = False

    def __init__(self, place: HttpPlace, key: bytes | None, subject: Subject) -> None:
        self._place = place
        self._key = key
        self._subject = subject

    def resume(self) -> str | None:
        """Return None: the receiver does not tell what it has taken."""
        return None

    def write(self, rows: SinkRows) -> None:
        """Post rows."""
        subject = self._subject
        body: dict[str, Any] = {
            "query": subject.query_id,
            "name": subject.name,
            "ids": [f"{subject.delivery_id}-{row_id}" for row_id in rows.ids],
            "rows": objects(rows.table),
        }
        content = orjson.dumps(body)
        message, timestamp = f"{subject.delivery_id}-{rows.ids[0]}-{rows.ids[-1]}", str(int(time.time()))
        headers = {"content-type": "application/json", "webhook-id": message, "webhook-timestamp": timestamp}
        if self._key is not None:
            headers["webhook-signature"] = sign(self._key, message, timestamp, content)
        self._judge(self._place.post(content, headers))

    def _judge(self, answer: httpx.Response) -> None:
        """Raise SinkDown, SinkRefused or RowsRefused unless the rows are taken."""
        if answer.is_success:
            return
        answer_text = self._place.says(answer)
        if answer.status_code in LATER or answer.is_server_error:
            raise SinkDown(answer_text, retry_after(answer))
        raise (RowsRefused if answer.status_code in ROWS_REFUSED else SinkRefused)(answer_text)


def signing_key(secret: str) -> bytes:
    """Return the bytes of a secret: base64 after ``whsec_``, any other text as it is. SinkRefused for no base64."""
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise SinkRefused(f"The secret of sink {NAME!r} must be base64 after 'whsec_'; it is not.") from None


def sign(key: bytes, message: str, timestamp: str, content: bytes) -> str:
    """Return the signature of a message."""
    signed = f"{message}.{timestamp}.".encode() + content
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
