"""Requests by HTTP, and what an answer means for a sink."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from braid.router.sinks.sink import SinkDown, SinkRefused
from braid.sources.core.errors import NotAllowed
from braid.sources.core.outgoing import Outgoing
from braid.sources.core.secret import hide

LATER = (408, 425, 429)
_SHOWN_CHARACTERS = 300
_DIGITS = 9


def check_url(connector: str, url: str, outgoing: Outgoing, *, has_query: bool = True) -> None:
    """Raise NotAllowed for a URL that cannot be posted to, that holds a user or a password, or is not allowed.

    Without ``has_query`` also for one with a query.
    """
    if not (url.isprintable() and " " not in url and _is_url(url)):
        raise NotAllowed(
            f"Option 'url' of sink {connector!r} must be http://… or https://… without a user and a password."
        )
    if not has_query and any(mark in url for mark in "?#"):
        raise NotAllowed(f"Option 'url' of sink {connector!r} must be without '?' and '#'.")
    outgoing.check_url(url, f"Option 'url' of sink {connector!r}")


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        httpx.URL(url)
        return (
            parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
        )
    except (ValueError, httpx.InvalidURL):
        return False


class HttpPlace:
    """A URL that rows are sent to; ``headers`` go with each request, ``secrets`` never stand in an error.

    ``shown`` is what errors call it: a URL may be a secret itself.
    """

    def __init__(
        self,
        client: httpx.Client,
        url: str,
        headers: Mapping[str, str],
        secrets: tuple[str, ...] = (),
        shown: str | None = None,
    ) -> None:
        self._client = client
        self._url = url
        self._headers = headers
        self._secrets = secrets
        self._shown = url if shown is None else shown

    def post(
        self, content: bytes, headers: Mapping[str, str] | None = None, params: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Return the answer, whatever it is.

        SinkDown when nobody answers, SinkRefused for what cannot or may not be sent. Causes are left out: they may show
        headers.
        """
        try:
            all_headers = {**self._headers, **(headers or {})}
            return self._client.post(self._url, content=content, headers=all_headers, params=params)
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol, httpx.InvalidURL, ValueError) as problem:
            message = f"A request to {self._shown} must have a good URL and headers of ASCII; {type(problem).__name__}."
            raise SinkRefused(hide(message, self._secrets)) from None
        except NotAllowed as problem:
            raise SinkRefused(hide(problem.detail, self._secrets)) from None
        except httpx.TransportError as problem:
            message = f"{self._shown} must answer, but: {problem or type(problem).__name__}."
            raise SinkDown(hide(message, self._secrets)) from None

    def says(self, answer: httpx.Response) -> str:
        """Return the message for an answer that does not mean success."""
        # hidden before it is cut: a secret that is cut would not be found
        return f"{self._shown} answered {answer.status_code}: {hide(answer.text, self._secrets)[:_SHOWN_CHARACTERS]!r}."


def retry_after(answer: httpx.Response) -> float | None:
    """Return how many seconds an answer asks to wait; None when it does not say a number."""
    text = answer.headers.get("retry-after", "")
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        return None
    return float(text)
