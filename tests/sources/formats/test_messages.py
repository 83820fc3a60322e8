"""Messages decoded together are what each is by itself, whatever bytes they have."""

from __future__ import annotations

import json
from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from braid.sources.core.schema import DATE, INT, VARCHAR, Field, Schema
from braid.sources.formats.messages import decode_json_messages
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
