"""Which places the service calls by HTTP because a statement says so: webhooks, ClickHouse, schema registries.

Whoever may declare a sink makes the service call a URL, from inside the operator's network. An allow-list says which
may be called; each entry is one of

- ``*``: any place;
- ``public``: addresses that are reachable on the internet;
- an address or a network, ``10.1.2.3`` or ``10.0.0.0/8``;
- a name, ``hooks.example.com``, or all names below one, ``*.example.com``: whatever address they have.

Addresses are compared when a connection is made, with those that the name has then, and it is made to one of them: a
name that changes its address in between gains nothing. An address within another one (IPv4-mapped, 6to4, Teredo,
NAT64) counts as both.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from braid.sources.core.errors import NotAllowed

SETTING = "outgoing_allow"
ANY, PUBLIC = "*", "public"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAME = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # what Azure tells its machines about themselves
            "192.0.0.0/24",
            "192.88.99.0/24",
        ),
    )
)


@dataclass(frozen=True)
class Outgoing:
    """An allow-list; NotAllowed for an entry that is none of its forms."""

    allowed: tuple[str, ...] = (ANY,)

    def __post_init__(self) -> None:
        for entry in self.allowed:
            if entry not in (ANY, PUBLIC) and _network(entry) is None and not _NAME.fullmatch(entry.lower()):
                raise NotAllowed(
                    f"An entry of the setting {SETTING} must be '{ANY}', '{PUBLIC}', an address, a network such as"
                    f" '10.0.0.0/8' or a name such as 'hooks.example.com' or '*.example.com'; got {entry!r}."
                )

    @property
    def is_open(self) -> bool:
        """Whether any place may be called."""
        return ANY in self.allowed

    @cached_property
    def _networks(self) -> tuple[Network, ...]:
        return tuple(network for entry in self.allowed if (network := _network(entry)) is not None)

    def allows_name(self, host: str) -> bool:
        """Whether a host may be called whatever its address is."""
        name = _plain(host)
        names = (_plain(entry) for entry in self.allowed if entry not in (ANY, PUBLIC))
        return self.is_open or any(
            name == entry or (entry.startswith("*.") and name.endswith(entry[1:])) for entry in names
        )

    def allows(self, address: Address) -> bool:
        """Whether an address may be called."""
        return self.is_open or all(self._allows_one(reached) for reached in _with_embedded(address))

    def _allows_one(self, address: Address) -> bool:
        if PUBLIC in self.allowed and is_public(address):
            return True
        return any(address.version == network.version and address in network for network in self._networks)

    def check_url(self, url: str, subject: str) -> None:
        """Raise NotAllowed for a URL whose host is written as an address that may not be called, or is this machine.

        Other names are not looked up: that is done when they are called.
        """
        host = urlsplit(url).hostname or ""
        if self.allows_name(host):
            return
        literal = _literal(host)
        is_this_machine = _plain(host) == "localhost" or _plain(host).endswith(".localhost")
        if is_this_machine or (literal is not None and not self.allows(literal)):
            raise NotAllowed(f"{subject} names {host!r}, which the service may not call{self._why()}.")

    def check_unwatched(self, url: str, subject: str) -> None:
        """Raise NotAllowed unless a URL that a library calls by itself has a host that is allowed by its name."""
        host = urlsplit(url).hostname or ""
        literal = _literal(host)
        if not self.allows_name(host) and (literal is None or not self.allows(literal)):
            raise NotAllowed(
                f"{subject} must have a host that is allowed by name, as a library looks up its address; {host!r} is"
                f" not{self._why()}."
            )

    def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host that may be called; NotAllowed when it has none, OSError when none at all."""
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        texts = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
        allowed = [text for text in texts if self.allows(ipaddress.ip_address(text))]
        if not allowed:
            raise NotAllowed(f"{host!r} has no address that the service may call{self._why()}.")
        return allowed

    def _why(self) -> str:
        listed = ", ".join(self.allowed) or "nothing"
        return f" (the setting {SETTING} allows {listed}; an administrator can add it there)"


EVERYWHERE = Outgoing()
"""Any place may be called."""


def is_public(address: Address) -> bool:
    """Whether an address is one of the internet: not of this machine, a private network, or a cloud's own services."""
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not (isinstance(address, ipaddress.IPv6Address) and address.is_site_local)
        and not any(address.version == network.version and address in network for network in _NOT_PUBLIC)
    )


def _with_embedded(address: Address) -> Iterator[Address]:
    """Yield the address that a packet reaches: what is within it, or itself."""
    if isinstance(address, ipaddress.IPv4Address):
        yield address
        return
    candidates = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        candidates.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    embedded = [candidate for candidate in candidates if candidate is not None]
    yield from embedded or [address]


def _network(entry: str) -> Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def _literal(host: str) -> Address | None:
    """Return the address that a host is written as, also in the forms of C (``127.1``, ``0x7f000001``)."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _plain(host: str) -> str:
    return host.lower().rstrip(".")
