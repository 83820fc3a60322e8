"""The two ways to send a request with httpx: one that blocks, and one for an event loop.

Both are coroutines, so that the calls above them are written once; those of :class:`BlockingSender` never suspend.
Every error of httpx becomes a BraidError in :func:`translated`, nowhere else.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from braid.client.errors import Unreachable
from braid.client.messages import Request

DEFAULT_URL = "http://127.0.0.1:8080"


@dataclass(frozen=True)
class Address:
    """Where a service is: `url`, `api_key` for one with access control, and `timeout` in seconds."""

    url: str
    api_key: str | None
    timeout: float

    def __post_init__(self) -> None:
        checked_url(self.url)
        if self.api_key is not None:
            _check_key(self.api_key)
        if not self.timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {self.timeout!r}")

    def options(self) -> dict[str, Any]:
        """Return the arguments of httpx's clients."""
        # a proxy from the environment cannot know this machine's loopback
        local = httpx.URL(self.url).host in ("localhost", "127.0.0.1", "::1")
        headers = {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}
        options = {"timeout": self.timeout, "trust_env": not local, "headers": headers}
        if local and self.url.startswith("http:"):
            # no TLS is spoken, and certificates take 20 ms to load
            options["verify"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return options

    def arguments(self, request: Request) -> dict[str, Any]:
        """Return the arguments of a request to this service."""
        timeout = httpx.Timeout(self.timeout, read=self.timeout + (request.wait or 0.0))
        return {"method": request.method, "url": self.url + request.path, "timeout": timeout, **request.encoded()}


def address_of(url: str | None, api_key: str | None, timeout: float) -> Address:
    """Return an address; without a URL or key those of BRAID_URL and BRAID_API_KEY, if any."""
    found = url if url is not None else os.environ.get("BRAID_URL") or DEFAULT_URL
    return Address(checked_url(found), api_key or os.environ.get("BRAID_API_KEY") or None, timeout)


class Sender(Protocol):
    """Sends requests, and waits in between."""

    async def send(self, request: Request) -> httpx.Response:
        """Send a request, and return its answer, whichever status it has."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    async def close(self) -> None:
        """Give the connections back."""


class BlockingSender:
    """Blocks the thread; its coroutines never suspend."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._http = httpx.Client(**address.options())

    async def send(self, request: Request) -> httpx.Response:
        """Send a request, and return its answer, whichever status it has."""
        arguments = self._address.arguments(request)
        with translated(self._address.url):
            return self._http.request(**arguments)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    async def close(self) -> None:
        """Give the connections back."""
        self._http.close()


class AsyncSender:
    """Suspends while it waits, for an event loop of asyncio."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._http = httpx.AsyncClient(**address.options())

    async def send(self, request: Request) -> httpx.Response:
        """Send a request, and return its answer, whichever status it has."""
        arguments = self._address.arguments(request)
        with translated(self._address.url):
            return await self._http.request(**arguments)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Give the connections back."""
        await self._http.aclose()


def checked_url(url: str) -> str:
    """Return `url` without a trailing slash; raise ValueError unless it is http(s) with a host."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    port_fits = parsed.port is None or 0 < parsed.port < 65536
    if parsed.scheme not in ("http", "https") or not parsed.host or not port_fits:
        raise ValueError(f"the service's URL must look like {DEFAULT_URL}, got {url!r}")
    return url.rstrip("/")


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn every error of httpx into Unreachable."""
    try:
        yield
    except httpx.TimeoutException:
        raise Unreachable(url, "no answer came in time") from None
    except (
        httpx.HTTPError,
        httpx.InvalidURL,
        httpx.StreamError,
        httpx.CookieConflict,
        UnicodeError,
    ) as error:
        raise Unreachable(url, str(error) or type(error).__name__) from error


def _check_key(key: str) -> None:
    if not (key.isascii() and key.isprintable() and key.strip() == key and key):
        raise ValueError("an API key must be printable ASCII without spaces around it")
