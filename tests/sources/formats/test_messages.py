"""Messages decoded together are what each is by itself, whatever bytes they have."""

from __future__ import annotations

import json
import struct
from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from braid.sources.core.schema import DATE, INT, VARCHAR, Field, Schema
from braid.sources.formats.messages import decode_framed_json_messages, decode_json_messages
from braid.sources.formats.ndjson import decode_ndjson

SCHEMA = Schema((Field("k", INT), Field("s", VARCHAR), Field("d", DATE)))

fitting = st.builds(
    lambda k, s, indent: json.dumps({"k": k, "s": s, "d": "2026-01-01"}, indent=indent).encode(),
    st.integers(-5, 5),
    st.text(max_size=5),
    st.sampled_from([None, 1]),
)
anything = st.one_of(
    fitting, fitting, st.binary(max_size=12), st.none(), st.sampled_from([b"null", b"{}", b"[]", b"1\n2"])
)


@given(st.lists(anything, max_size=8))
def test_each_message_is_decoded_as_if_it_were_alone(values: list[bytes | None]) -> None:
    together = decode_json_messages(values, SCHEMA)
    alone = [decode_json_messages([value], SCHEMA) for value in values]
    assert together.tuples.to_pylist() == [row for decoded in alone for row in decoded.tuples.to_pylist()]
    assert [fault.line for fault in together.malformed] == [
        n for n, decoded in enumerate(alone, 1) if decoded.malformed
    ]
    assert together.tuples.num_rows + len(together.malformed) == len(values)


@given(st.lists(fitting, max_size=8))
def test_what_fits_is_decoded_as_lines_are(values: list[bytes]) -> None:
    lines = [json.dumps(json.loads(value)).encode() for value in values]
    decoded = decode_json_messages(values, SCHEMA)
    assert not decoded.malformed
    assert decoded.tuples == decode_ndjson(b"\n".join(lines), SCHEMA).tuples


def test_malformed_messages_say_why() -> None:
    decoded = decode_json_messages([None, b"\xff\n", b"{", b'{"d": "2026-01-01"}'], SCHEMA)
    assert [detail for _, detail, _ in decoded.malformed][:2] == [
        "line 1 must be a JSON object, got no value",
        "line 2 must be UTF-8",
    ]
    assert decoded.malformed[1].raw == "\ufffd\n"
    assert decoded.malformed[2].line == 3
    assert decoded.tuples.to_pylist() == [{"k": None, "s": None, "d": date(2026, 1, 1)}]


def in_frame(number: int, value: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + value


def test_messages_behind_headers_need_a_schema_and_are_not_validated() -> None:
    asked_for: list[int] = []

    def schema_of(number: int) -> object:
        asked_for.append(number)
        return True if number == 7 else f" must not be of schema {number}"

    values = [
        in_frame(7, b'{"k": 1, "s": "x"}'),
        b'{"k": 2}',
        in_frame(8, b'{"k": 3}'),
        None,
        in_frame(7, b""),
        b"\x00\x00",
        in_frame(7, b'{"k": "no number"}'),
        in_frame(7, b'\n{"k":\n 8}\n'),
        in_frame(7, b"\xff"),
    ]
    decoded = decode_framed_json_messages(values, SCHEMA, schema_of)
    assert [row["k"] for row in decoded.tuples.to_pylist()] == [1, 8]
    assert [(fault.line, fault.detail) for fault in decoded.malformed] == [
        (2, "line 2 must begin with byte 0 and the id of a schema"),
        (3, "line 3 must not be of schema 8"),
        (4, "line 4 must be a JSON object, got no value"),
        (5, "line 5 must be a JSON object, got no value"),
        (6, "line 6 must begin with byte 0 and the id of a schema"),
        (7, "line 7: column 'k' must be an INT, got 'no number'"),
        (9, "line 9 must be UTF-8"),
    ]
    assert [decoded.malformed[i].raw for i in (0, 5)] == ['{"k": 2}', '{"k": "no number"}']
    assert set(asked_for) == {7, 8}


@given(st.lists(anything, max_size=8))
def test_a_header_changes_nothing_of_what_follows_it(values: list[bytes | None]) -> None:
    plain = decode_json_messages(values, SCHEMA)
    framed = [None if value is None else in_frame(1, value) for value in values]
    assert decode_framed_json_messages(framed, SCHEMA, lambda _: True) == plain
