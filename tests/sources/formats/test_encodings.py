"""Packed bodies: unpacked whole, or refused; never beyond the limit."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.sources.core.errors import MalformedRequest, ServiceError, TooLarge
from braid.sources.formats.encodings import ENCODINGS, PIECE_BYTES, unpack
from braid.sources.formats.limits import DecodingLimits

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "zstd": lambda body: pa.compress(body, codec="zstd", asbytes=True),
}


def test_every_encoding_is_tried_here() -> None:
    assert set(PACKERS) == set(ENCODINGS)


@pytest.mark.parametrize("encoding", PACKERS)
@pytest.mark.parametrize(
    "body", [b"", b"a", b"{}\n" * 1000, bytes(3 * PIECE_BYTES + 7), Random(1).randbytes(PIECE_BYTES + 5)], ids=len
)
def test_bodies_are_what_they_were(encoding: str, body: bytes) -> None:
    packed = PACKERS[encoding](body)
    assert unpack(packed, encoding) == body
    assert unpack(packed + packed, encoding) == body + body, "members follow each other"
    assert unpack(body, "identity") is body


@pytest.mark.parametrize("encoding", PACKERS)
def test_what_is_cut_off_or_not_packed_is_refused(encoding: str) -> None:
    packed = PACKERS[encoding](b"tuple" * 1000)
    for wrong in (packed[:-1], packed[: len(packed) // 2], packed + b"more", b"tuple", b"{}"):
        with pytest.raises(MalformedRequest, match=f"Content-Encoding: {encoding} must be whole"):
            unpack(wrong, encoding)


def test_a_damaged_checksum_is_found() -> None:
    packed = bytearray(gzip.compress(b"tuple" * 100))
    packed[-6] ^= 1
    with pytest.raises(MalformedRequest, match="must be whole"):
        unpack(bytes(packed), "gzip")


@pytest.mark.parametrize("encoding", PACKERS)
def test_a_bomb_is_refused_once_its_limit_has_come_out(encoding: str) -> None:
    packed = PACKERS[encoding](bytes(64 << 20))
    assert len(packed) < 100_000
    limits = DecodingLimits(unpacked_bytes=2 << 20, settings="max_body_")
    before = pa.total_allocated_bytes()
    with pytest.raises(TooLarge, match=r"at most 2097152 bytes \(setting max_body_unpacked_bytes\)"):
        unpack(packed, encoding, limits)
    assert pa.total_allocated_bytes() - before < 8 << 20


@given(
    st.binary(max_size=60), st.sampled_from(ENCODINGS), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)))
)
def test_damage_raises_nothing_but_braid_errors(body: bytes, encoding: str, changes: list[tuple[int, int]]) -> None:
    packed = bytearray(PACKERS[encoding](body))
    for position, byte in changes:
        packed[position % len(packed)] = byte
    with suppress(ServiceError):
        unpack(bytes(packed), encoding, DecodingLimits(unpacked_bytes=1 << 20))
