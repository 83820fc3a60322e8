"""The schema registry by HTTP: asked once for each schema, and what is said when it does not answer well."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from braid.sources.core.errors import NotAllowed, NotReady
from braid.sources.formats.avro_schema import AvroSchema
from braid.sources.formats.protobuf_schema import ProtobufSchema
from braid.sources.formats.schema_registry import AVRO, JSON, PROTOBUF, SchemaRegistry, check_url
from tests.sources.registry_server import RegistryServer

INNER = {"type": "enum", "name": "shop.Colour", "symbols": ["RED"]}
OUTER = {"type": "record", "name": "shop.Gem", "fields": [{"name": "colour", "type": "shop.Colour"}]}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    running = RegistryServer()
    yield running
    running.stop()


def names(schema: AvroSchema | str) -> list[str]:
    assert isinstance(schema, AvroSchema), schema
    return list(schema.columns)


def test_a_schema_is_asked_for_once_a_process(server: RegistryServer) -> None:
    server.schemas[7] = {"schema": json.dumps({**OUTER, "fields": [{"name": "n", "type": "long"}]})}
    registry = SchemaRegistry(AVRO, server.url + "/")
    assert names(registry.schema(7)) == ["n"]
    assert names(SchemaRegistry(AVRO, server.url).schema(7)) == ["n"]
    assert server.asked == ["/schemas/ids/7"]


def test_references_are_followed(server: RegistryServer) -> None:
    server.subjects["colours", 3] = {"schema": json.dumps(INNER), "id": 1}
    refers = [{"name": "shop.Colour", "subject": "colours", "version": 3}]
    server.schemas[1] = {"schema": json.dumps(OUTER), "references": refers}
    assert names(SchemaRegistry(AVRO, server.url).schema(1)) == ["colour"]
    server.schemas[2] = {"schema": json.dumps(OUTER), "references": [{**refers[0], "version": 9}]}
    assert "Version 9 of subject 'colours' must be in the registry" in str(SchemaRegistry(AVRO, server.url).schema(2))


def test_files_that_a_schema_in_protobuf_imports_are_referred_to(server: RegistryServer) -> None:
    server.subjects["colours", 3] = {
        "schema": 'syntax = "proto3"; package shop; enum Colour { NONE = 0; }',
        "schemaType": "PROTOBUF",
    }
    refers = [{"name": "shop/colour.proto", "subject": "colours", "version": 3}]
    server.subjects["gems", 1] = {
        "schema": 'syntax = "proto3"; package shop; import "shop/colour.proto"; message Gem { Colour colour = 1; }',
        "schemaType": "PROTOBUF",
        "references": refers,
    }
    text = 'syntax = "proto3"; import "shop/gem.proto"; import "google/protobuf/timestamp.proto"; message Ring {'
    refers = [{"name": "shop/gem.proto", "subject": "gems", "version": 1}]
    ring = {"schema": f"{text} shop.Gem gem = 1; }}", "schemaType": "PROTOBUF", "references": refers}
    server.schemas[1] = ring
    server.schemas[2] = {**ring, "references": []}
    server.schemas[3] = {**ring, "references": [{**refers[0], "name": "../gem.proto"}]}
    registry = SchemaRegistry(PROTOBUF, server.url)
    schema = registry.schema(1)
    assert isinstance(schema, ProtobufSchema)
    assert [message.full_name for message in schema.messages.values()] == ["Ring"]
    assert "shop/gem.proto" in str(registry.schema(2))
    assert "must import files by names" in str(registry.schema(3))


def test_a_schema_is_of_the_kind_that_is_asked_for(server: RegistryServer) -> None:
    avro = {"schema": json.dumps({**OUTER, "fields": []})}
    proto = {"schema": "message M {}", "schemaType": "PROTOBUF"}
    in_json = {"schema": "{}", "schemaType": "JSON", "references": [{"name": "x", "subject": "none", "version": 1}]}
    server.schemas.update({1: avro, 2: proto, 3: in_json})
    for kind, number in ((AVRO, 1), (PROTOBUF, 2), (JSON, 3)):
        registry = SchemaRegistry(kind, server.url)
        for other, name in ((1, "AVRO"), (2, "PROTOBUF"), (3, "JSON")):
            found = registry.schema(other)
            if other == number:
                assert not isinstance(found, str)
            else:
                assert f"a schema in {kind.name}; schema {other} of the registry is in {name}" in str(found)


def test_what_cannot_be_used_is_said_and_not_asked_for_again(server: RegistryServer) -> None:
    server.schemas[1] = {"schema": "syntax = 'proto3';", "schemaType": "PROTOBUF"}
    server.schemas[2] = {"schema": "{"}
    server.schemas[3] = {"no": "schema"}
    registry = SchemaRegistry(AVRO, server.url)
    for _ in range(2):
        assert "is in PROTOBUF" in str(registry.schema(1))
        assert "well-formed" in str(registry.schema(2))
        assert "schema 3 in the registry" in str(registry.schema(3))
        assert "none with the id 4" in str(registry.schema(4))
    assert server.asked == [f"/schemas/ids/{number}" for number in (1, 2, 3, 4)]


def test_a_registry_that_fails_is_waited_for(server: RegistryServer) -> None:
    server.schemas[1] = {"schema": json.dumps({**OUTER, "fields": []})}
    registry = SchemaRegistry(AVRO, server.url)
    server.status = 503
    with pytest.raises(NotReady, match="503"):
        registry.schema(1)
    server.stop()
    with pytest.raises(NotReady, match=r"The schema registry at http://127\.0\.0\.1"):
        registry.schema(1)
    server.start()
    server.status = 200
    assert names(registry.schema(1)) == []


def test_who_asks_is_told_by_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    server = RegistryServer("reader:hunter2")
    server.schemas[1] = {"schema": json.dumps({**OUTER, "fields": []})}
    try:
        registry = SchemaRegistry(AVRO, server.url, "secret:registry")
        with pytest.raises(NotReady, match="BRAID_SECRET_REGISTRY"):
            registry.schema(1)
        with pytest.raises(NotReady, match="401"):
            SchemaRegistry(AVRO, server.url).schema(1)
        monkeypatch.setenv("BRAID_SECRET_REGISTRY", "reader:hunter2")
        assert names(registry.schema(1)) == []
    finally:
        server.stop()


@pytest.mark.parametrize(
    "url", ["registry:8081", "ftp://h", "", "http://", "http://h:x", "http://[", "ftp://user:hunter2@h:1"]
)
def test_wrong_addresses(url: str) -> None:
    with pytest.raises(NotAllowed, match="Option 'o' must") as refused:
        check_url(url, "o")
    assert "hunter2" not in refused.value.detail
