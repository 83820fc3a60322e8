"""HTTP clients for places that statements name.

They call what :mod:`braid.sources.core.outgoing` allows, and follow no redirect.
Where not everything is allowed, a proxy of the environment is not used: it would choose the address.
"""

from __future__ import annotations

import functools
import ssl
from typing import Any

import httpx

from braid.sources.core.outgoing import Outgoing


def http_client(outgoing: Outgoing, timeout: float, **options: Any) -> httpx.Client:
    """Return a client; ``options`` are httpx's. A request to a place that is not allowed raises NotAllowed.

    All clients have the same certificates, which take long to load.
    """
    transport = None if outgoing.is_open else ConfinedTransport(outgoing)
    return httpx.Client(timeout=timeout, verify=_certificates(), transport=transport, follow_redirects=False, **options)


@functools.cache
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context()


class ConfinedTransport(httpx.BaseTransport):
    """Connects to addresses that were looked up and allowed, under the name that was asked for.

    For clients of one host: connections are kept by address.
    """

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._inner = httpx.HTTPTransport(verify=_certificates())

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, the body of which is in memory; NotAllowed when its host may not be called."""
        host = request.url.host
        if self._outgoing.allows_name(host):
            return self._inner.handle_request(request)
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        try:
            addresses = self._outgoing.addresses(host, port)
        except OSError as problem:
            raise httpx.ConnectError(f"{host!r} has no address: {problem.strerror or problem}") from None
        # the header Host is made from the name already
        extensions = {**request.extensions, "sni_hostname": host}
        for address in addresses[:-1]:
            try:
                return self._inner.handle_request(_to(address, request, extensions))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return self._inner.handle_request(_to(addresses[-1], request, extensions))

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


def _to(address: str, request: httpx.Request, extensions: dict[str, Any]) -> httpx.Request:
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions=extensions,
    )
