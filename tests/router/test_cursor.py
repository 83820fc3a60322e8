"""Cursors are read back exactly, and nothing else is taken for one."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.router.cursor import CursorPosition, decode_cursor, encode_cursor
from braid.sources.core.errors import MalformedRequest

NUMBERS = st.integers(0, 2**63 - 1)
POSITIONS = st.builds(CursorPosition, NUMBERS, NUMBERS)


@given(POSITIONS, st.text(max_size=20))
def test_a_cursor_reads_back(position: CursorPosition, owner: str) -> None:
    assert decode_cursor(encode_cursor(position, owner), owner) == position


@given(POSITIONS)
def test_a_cursor_of_another_query_is_refused(position: CursorPosition) -> None:
    with pytest.raises(MalformedRequest, match="q-2"):
        decode_cursor(encode_cursor(position, "q-1"), "q-2")


@given(st.one_of(st.text(max_size=40), st.binary(max_size=30).map(lambda b: base64.b64encode(b).decode())))
def test_made_up_cursors_are_refused(text: str) -> None:
    with pytest.raises(MalformedRequest, match="Leave it out"):
        decode_cursor(text, "q-1")


@given(POSITIONS, st.data())
def test_a_damaged_cursor_is_refused(position: CursorPosition, data: st.DataObject) -> None:
    text = encode_cursor(position, "q-1")
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = data.draw(
        st.sampled_from([text[:at], text[:at] + text[at + 1 :], text + "=", text + "A", text[:at] + "-" + text[at:]])
    )
    if damaged != text:
        with pytest.raises(MalformedRequest):
            decode_cursor(damaged, "q-1")


def test_a_position_must_not_be_negative() -> None:
    with pytest.raises(MalformedRequest, match="between 0"):
        CursorPosition(-1)
