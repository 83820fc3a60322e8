"""Who may call from a browser: requests must name this service, and pages of others change nothing.

A page that somebody opens can send requests to any address that its reader reaches, also to a service on the reader's
own machine, which asks for no key. Two things give such a page away. The browser says whose page it is (``Origin``).
And where the page's own name has been made to mean this machine (DNS rebinding), it says that name (``Host``); an
address there cannot have been made to mean another.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from braid.api.http.problems import document_of, problem
from braid.session.settings import Settings
from braid.sources.core.errors import ServiceError

ANY = "*"
_EVERYWHERE = ("0.0.0.0", "::")
_READING = ("GET", "HEAD", "OPTIONS")


class ForeignRequest(ServiceError):
    """The request names another host, or comes from a page of somebody else."""

    status = 403
    title = "Foreign request"


def hosts_of(settings: Settings) -> frozenset[str]:
    """Return the names that requests may call the service by, besides addresses.

    A service that listens on all addresses has no name to compare with, so any will do there.
    """
    if settings.allowed_hosts:
        return frozenset(name.lower() for name in settings.allowed_hosts)
    if settings.host in _EVERYWHERE:
        return frozenset((ANY,))
    return frozenset(("localhost", settings.host.lower()))


class KnownOrigins:
    """ASGI middleware: refuses requests to hosts that this is not, and changes asked for by pages of others."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], origins: Iterable[str]) -> None:
        self._app = app
        self._hosts = hosts
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 403."""
        if scope["type"] == "http":
            error = self._error(scope["method"], Headers(scope=scope))
            if error is not None:
                await problem(document_of(error))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _error(self, method: str, headers: Headers) -> ForeignRequest | None:
        host = headers.get("host")  # no browser leaves it out
        if host is not None and not self._is_ours(_name_of(host)):
            return ForeignRequest(
                f"The header Host must name this service: {', '.join(sorted(self._hosts))} or an address (setting"
                f" allowed_hosts); got {host[:200]!r}."
            )
        origin = headers.get("origin")
        if method in _READING or origin is None or self._is_known(origin.lower(), host):
            return None
        return ForeignRequest(
            f"A page must be of this service to change something, or of the setting allowed_origins; got the header"
            f" Origin with {origin[:200]!r}."
        )

    def _is_ours(self, name: str | None) -> bool:
        return ANY in self._hosts or name in self._hosts or (name is not None and _is_address(name))

    def _is_known(self, origin: str, host: str | None) -> bool:
        """Whether a page is one of ours; the scheme is left out, as a proxy before us may have ended TLS."""
        is_own = host is not None and origin.partition("://")[2] == host.lower()
        return is_own or ANY in self._origins or origin in self._origins


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _name_of(host: str) -> str | None:
    """Return the name in a Host header, without a port and brackets; None when there is none."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
