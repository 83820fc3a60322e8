"""Which places may be called, whatever they are written as and whatever names mean by the time they are called."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing

import httpx
import pytest
import trustme

from braid.router.sinks import clickhouse, webhook
from braid.router.sinks.sink import DelivererIdentity, SinkRefused
from braid.sources.core.confinement import Confinement
from braid.sources.core.errors import NotAllowed, NotReady
from braid.sources.core.http_client import http_client
from braid.sources.core.outgoing import EVERYWHERE, Outgoing, is_public
from braid.sources.formats.schema_registry import AVRO, SchemaRegistry
from tests.kit.webhook import Receiver, receiving
from tests.router.sinks.subjects import SELECTION, rows_of, selected, subject

ONLY_PUBLIC = Outgoing(("public",))
INTERNAL = (
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "100.100.100.200",
    "169.254.169.254",
    "168.63.129.16",
    "192.0.0.192",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "64:ff9b::10.0.0.1",
    "fe80::1",
    "fec0::1",
    "fd00:ec2::254",
    "ff02::1",
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What names mean; others are looked up as ever."""
    known: dict[str, list[str]] = {}
    really: Callable[..., list[tuple[object, ...]]] = socket.getaddrinfo

    def look_up(host: object, port: object, *rest: object, **more: object) -> list[tuple[object, ...]]:
        name = host.decode() if isinstance(host, bytes) else str(host)
        found = known.get(name, [name])
        return [each for address in found for each in really(address, port, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


@pytest.mark.parametrize("address", INTERNAL)
def test_internal_addresses_are_not_public(address: str) -> None:
    assert not ONLY_PUBLIC.allows(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700::1111", "64:ff9b::1.1.1.1"])
def test_others_are(address: str) -> None:
    assert ONLY_PUBLIC.allows(ipaddress.ip_address(address))
    assert not Outgoing(("10.0.0.0/8",)).allows(ipaddress.ip_address(address))


def test_an_address_within_another_must_be_allowed_itself() -> None:
    assert not is_public(ipaddress.ip_address("64:ff9b::1.1.1.1"))
    assert Outgoing(("10.0.0.0/8",)).allows(ipaddress.ip_address("::ffff:10.1.2.3"))
    assert not Outgoing(("10.0.0.0/8",)).allows(ipaddress.ip_address("::ffff:11.1.2.3"))


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "[::1]", "[::ffff:7f00:1]", "localhost",
     "LOCALHOST.", "a.localhost", "169.254.169.254", "10.0.0.1"],
)  # fmt: skip
def test_what_is_written_as_an_internal_address_is_refused_when_a_query_is_made(host: str) -> None:
    confined = Confinement(outgoing=ONLY_PUBLIC)
    for connector, options in ((webhook, {}), (clickhouse, {"table": "t"})):
        url = f"http://{host}:8123/rows"
        connector.validate({"url": url, **options}, SELECTION, Confinement())
        with pytest.raises(NotAllowed, match="setting outgoing_allow allows public"):
            connector.validate({"url": url, **options}, SELECTION, confined)


def test_names_are_compared_whole() -> None:
    listed = Outgoing(("hooks.example.com", "*.shop.example"))
    assert [host for host in ("hooks.example.com", "HOOKS.example.com.", "a.shop.example") if listed.allows_name(host)]
    for host in ("xhooks.example.com", "hooks.example.com.evil.example", "shop.example", "evilshop.example"):
        assert not listed.allows_name(host)
    with pytest.raises(NotAllowed, match="got 'http://x'"):
        Outgoing(("http://x",))


def test_a_name_that_means_an_internal_address_is_refused_when_it_is_called(
    receiver: Receiver, names: dict[str, list[str]]
) -> None:
    """A name may change what it means after the query was made: what counts is the connection."""
    options = {"url": receiver.url.replace("127.0.0.1", "rebound.example.com")}
    webhook.validate(options, SELECTION, Confinement(outgoing=ONLY_PUBLIC))
    names["rebound.example.com"] = ["127.0.0.1"]
    mine, rows = subject(), rows_of(subject(), selected(1), 1)
    confined = DelivererIdentity("test", Confinement(outgoing=ONLY_PUBLIC))
    with closing(webhook.connect(options, confined)) as destination:
        with pytest.raises(SinkRefused, match=r"'rebound\.example\.com' has no address that the service may call"):
            destination.open(mine, options).write(rows)
        assert receiver.posted == []
    for allowed in (("127.0.0.0/8",), ("public", "rebound.example.com"), ("*",)):
        identity = DelivererIdentity("test", Confinement(outgoing=Outgoing(allowed)))
        with closing(webhook.connect(options, identity)) as destination:
            destination.open(mine, options).write(rows)
    assert len(receiver.posted) == 3
    assert {headers["host"] for headers, _ in receiver.posted} == {options["url"].split("/")[2]}


def test_of_several_addresses_those_are_called_that_may_be(receiver: Receiver, names: dict[str, list[str]]) -> None:
    names["mixed.example.com"] = ["127.0.0.9", "127.0.0.2", "127.0.0.1"]
    url = receiver.url.replace("127.0.0.1", "mixed.example.com")
    # nobody listens on the first that is allowed
    with http_client(Outgoing(("127.0.0.1/31", "127.0.0.2")), 5.0) as client:
        assert client.post(url, json={"ids": [], "rows": []}).status_code == 204
    with http_client(Outgoing(("127.0.0.2",)), 5.0) as client, pytest.raises(httpx.ConnectError):
        client.post(url, json={})


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    receiver.answer = (307, {"location": receiver.url})
    for outgoing in (EVERYWHERE, Outgoing(("127.0.0.1",))):
        with http_client(outgoing, 5.0) as client:
            assert client.post(receiver.url, json={"ids": [], "rows": []}).status_code == 307
    assert receiver.posted == []


def test_a_registry_is_called_only_where_it_may_be(receiver: Receiver) -> None:
    registry = SchemaRegistry(AVRO, receiver.url, outgoing=ONLY_PUBLIC)
    with pytest.raises(NotReady, match="setting outgoing_allow"):
        registry.schema(1)


def test_a_certificate_must_be_of_the_name_that_was_asked_for(
    names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is made to an address; it is still the name that proves itself."""
    authority = trustme.CA()
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    monkeypatch.setattr("braid.sources.core.http_client._certificates", lambda: trusting)
    with receiving() as receiver:
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("hooks.example.com").configure_cert(serving)
        receiver.socket = serving.wrap_socket(receiver.socket, server_side=True)
        names["hooks.example.com"] = names["other.example.com"] = ["127.0.0.1"]
        port = receiver.server_address[1]
        with http_client(Outgoing(("127.0.0.1",)), 5.0) as client:
            answer = client.post(f"https://hooks.example.com:{port}/", json={"ids": [], "rows": []})
            assert answer.status_code == 204
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                client.post(f"https://other.example.com:{port}/", json={})
