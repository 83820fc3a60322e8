"""CSV message by message: decoded together as each alone, whatever their bytes are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.sources.core.schema import BIGINT, DOUBLE, TIMESTAMP, VARCHAR, Field, Schema, StreamSchema
from braid.sources.formats.csv_messages import WITH_CARE_AT_ONCE, decode_csv_messages
from tests.kit.examples import examples

FIELDS = (Field("k", BIGINT), Field("x", DOUBLE), Field("s", VARCHAR))
SCHEMA = Schema(FIELDS)
PIECES = st.sampled_from(
    [b"1", b"-5", b"2.5", b"a", b'"', b'""', b'"a\nb"', b",", b"\n", b"\r", b"\xff", b"\xef\xbb\xbf"]
)
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=8),
    st.lists(PIECES, max_size=8).map(b"".join),
    st.sampled_from([b"1,2.5,a", b"7,,", b'8,1,"b,c"\r\n', b'9,1e3,"d\ne"\n']),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=5))
def test_messages_are_decoded_together_as_each_alone(values: list[bytes | None]) -> None:
    together = decode_csv_messages(values, SCHEMA, ",")
    alone = [decode_csv_messages([value], SCHEMA, ",") for value in values]
    assert together.tuples.to_pylist() == [row for decoded in alone for row in decoded.tuples.to_pylist()]
    assert [fault.line for fault in together.malformed] == [
        number for number, decoded in enumerate(alone, 1) if decoded.malformed
    ]
    for fault in together.malformed:
        (fault_alone,) = alone[fault.line - 1].malformed
        assert fault.detail.removeprefix(f"line {fault.line}") == fault_alone.detail.removeprefix("line 1")
        assert fault.raw == fault_alone.raw


def test_what_is_wrong_with_a_message_is_said() -> None:
    values = [b"1,2,a", None, b"1,2", b"x,2,a", b"1,2,a\n3,4,b", b'1,2,"a', b'4,2,"q\nq"', b"1,2,\xff"]
    decoded = decode_csv_messages(values, SCHEMA, ",")
    assert [row["k"] for row in decoded.tuples.to_pylist()] == [1, 4]
    details = {fault.line: fault.detail for fault in decoded.malformed}
    assert "got no value" in details[2]
    assert details[3] == "line 3 must have 3 fields, got 2"
    assert "column 'k'" in details[4]
    assert "got several" in details[5]
    assert "close the quotes" in details[6]
    assert "UTF-8" in details[8]


@pytest.mark.parametrize("wrong", [0, 1, WITH_CARE_AT_ONCE, 3 * WITH_CARE_AT_ONCE - 1])
def test_one_that_is_wrong_among_many_costs_its_neighbours_nothing(wrong: int) -> None:
    schema = StreamSchema((*FIELDS, Field("t", TIMESTAMP)), "t", 0)
    values = [b"%d;1.5;a;2026-01-01T00:00:00Z" % i for i in range(3 * WITH_CARE_AT_ONCE)]
    values[wrong] = b"%d;1.5;a;" % wrong
    decoded = decode_csv_messages(values, schema, ";")
    assert decoded.tuples.column("k").to_pylist() == [i for i in range(len(values)) if i != wrong]
    assert [fault.line for fault in decoded.malformed] == [wrong + 1]
    assert "is the event time" in decoded.malformed[0].detail
