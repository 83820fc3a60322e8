"""Messages, lists and maps in Protobuf as plain values, as columns that are not simple take them."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.sources.formats.protobuf_paths import attribute, narrowed, way_to
from braid.sources.formats.protobuf_schema import read_proto
from braid.sources.formats.protobuf_values import many_of, plain_of
from tests.kit.examples import examples
from tests.sources.formats.protobuf_records import writer

TEXT = """
    syntax = "proto3";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";
    import "google/type/date.proto";
    enum Colour { NONE = 0; RED = 1; }
    message M { Node node = 1; repeated Node nodes = 2; map<string, Node> by_name = 3; map<bool, double> flags = 4;
                map<int64, Colour> colours = 5; }
    message Node {
        int32 id = 1;
        optional string name = 2;
        bytes raw = 3;
        Colour colour = 4;
        repeated Colour colours = 5;
        google.protobuf.Timestamp at = 6;
        google.protobuf.Int32Value maybe = 7;
        google.type.Date day = 8;
        Node next = 9;
        double x = 10;
        repeated string tags = 11;
        oneof one { bool yes = 12; string no = 13; }
    }
"""
MESSAGE = read_proto(TEXT).named("M")


def plain(record: bytes, name: str) -> Any:
    """Return a field as a plain value."""
    way = way_to(MESSAGE, (name,))
    assert way is not None
    found = getattr(narrowed(MESSAGE, [way]).type.FromString(record), attribute(way.field))
    return (many_of if way.is_many else plain_of)(way.field)(found)


def in_json(message: Any) -> Any:
    """Return what protobuf's own JSON has of a message, NULL for what it leaves out."""
    shown = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return with_nulls(shown)


def with_nulls(shown: Any) -> Any:
    nulls = dict.fromkeys(("name", "at", "maybe", "day", "next", "yes", "no"))
    day = shown.get("day")
    written = {} if day is None else {"day": f"{day['year']:04}-{day['month']:02}-{day['day']:02}"}
    inner = {} if shown.get("next") is None else {"next": with_nulls(shown["next"])}
    return {**nulls, **shown, **written, **inner}


NODES: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.integers(-(2**31), 2**31 - 1),
            "name": st.text(max_size=3),
            "raw": st.binary(max_size=3),
            "colour": st.sampled_from([0, 1]),
            "colours": st.lists(st.sampled_from([0, 1]), max_size=3),
            "at": st.fixed_dictionaries({"seconds": st.integers(-(10**9), 10**9), "nanos": st.just(5000)}),
            "maybe": st.fixed_dictionaries({"value": st.integers(-2, 2)}),
            "day": st.just({"year": 2026, "month": 1, "day": 31}),
            "x": st.floats(allow_nan=False, allow_infinity=False),
            "tags": st.lists(st.text(max_size=2), max_size=2),
            "yes": st.booleans(),
        },
    ),
    lambda inner: st.builds(lambda node, more: {**node, "next": more}, inner, inner),
    max_leaves=4,
)


@settings(max_examples=examples(60), deadline=None)
@given(NODES)
def test_messages_are_what_protobufs_json_has(node: dict[str, Any]) -> None:
    message = writer(TEXT, "M")(node=node)
    assert plain(message.SerializeToString(), "node") == in_json(message.node)


def test_lists_and_maps() -> None:
    message = writer(TEXT, "M")(
        nodes=[{"id": 1}, {}],
        by_name={"a": {"id": 2}},
        flags={True: 1.5, False: float("nan")},
        colours={-7: 1},
    )
    record = message.SerializeToString()
    assert plain(record, "nodes") == [in_json(node) for node in message.nodes]
    assert plain(record, "by_name") == {"a": in_json(message.by_name["a"])}
    assert plain(record, "flags") == {"true": 1.5, "false": None}
    assert plain(record, "colours") == {"-7": "RED"}
    assert plain(b"", "nodes") == []
    assert plain(b"", "flags") == {}


@pytest.mark.parametrize(
    ("node", "says"),
    [(b"\x12\x01\xff", "UTF-8"), (b"\x32\x0a\x08" + b"\xff" * 8 + b"\x7f", "Timestamp"), (b"\x42\x00", "Date")],
)
def test_what_is_wrong_within_is_said(node: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        plain(b"\x0a" + bytes([len(node)]) + node, "node")
