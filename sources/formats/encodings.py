"""Bodies that come packed: gzip and zstd, unpacked piece by piece within limits."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from braid.sources.core.errors import MalformedRequest
from braid.sources.formats.limits import BODY, DecodingLimits

PIECE_BYTES = 1 << 20
_INPUT_BYTES = 1 << 16
_GZIP = 16 + zlib.MAX_WBITS


def unpack(body: bytes, encoding: str, limits: DecodingLimits = BODY) -> bytes:
    """Return a body as it was before it was packed with one of ENCODINGS; one that is "identity" as it is.

    Raises MalformedRequest when it is not packed so, or cut off, and TooLarge once more than the limit has come out.
    """
    unpacked_pieces = _UNPACKERS.get(encoding)
    if unpacked_pieces is None:
        return body
    pieces: list[bytes] = []
    size = 0
    try:
        for piece in unpacked_pieces(body):
            size += len(piece)
            limits.check_bytes(size)
            pieces.append(piece)
    except (OSError, zlib.error, pa.ArrowException) as problem:
        raise MalformedRequest(
            f"A body with Content-Encoding: {encoding} must be whole and packed so: {str(problem)[:200].rstrip('.')}."
        ) from None
    return b"".join(pieces)


def _gunzipped(body: bytes) -> Iterator[bytes]:
    """Yield pieces of gzip, of several members if need be; pyarrow's stream leaks memory where it fails."""
    member: Any = None
    for begin in range(0, len(body), _INPUT_BYTES):
        packed = body[begin : begin + _INPUT_BYTES]
        while packed:
            member = member or zlib.decompressobj(_GZIP)
            yield member.decompress(packed, PIECE_BYTES)
            packed, member = (member.unused_data, None) if member.eof else (member.unconsumed_tail, member)
    while member is not None:  # what it holds back
        piece = member.decompress(b"", PIECE_BYTES)
        if not piece and not member.eof:
            raise OSError("it is cut off")
        yield piece
        member = None if member.eof else member


def _unzstd(body: bytes) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as source:
        while piece := source.read(PIECE_BYTES):
            yield piece


_UNPACKERS: Mapping[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _gunzipped,
    "x-gzip": _gunzipped,
    "zstd": _unzstd,
}
ENCODINGS = tuple(_UNPACKERS)
