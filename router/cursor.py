"""The place between two rows of an append-only sequence, as an opaque text.

A position is ``(seq, row)``: the next row to read is row ``row`` (from 0) among the reader's own rows of batch ``seq``.
The text carries a version and a checksum over the position and its owner (a query or stream id), so that a text that
was cut, made up, or taken from another query is refused instead of read as some place.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from braid.sources.core.errors import MalformedRequest

VERSION = 1
_FORM = struct.Struct(">BQQI")
_LARGEST = 2**63 - 1


@dataclass(frozen=True, order=True)
class CursorPosition:
    """The next row to read: row ``row`` of batch ``seq``."""

    seq: int
    row: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.seq <= _LARGEST and 0 <= self.row <= _LARGEST):
            raise MalformedRequest(f"A position must lie between 0 and {_LARGEST}; got {self!r}.")

    def row_in(self, seq: int) -> int:
        """Return the first unread row of batch ``seq``, which is at or after this position."""
        return self.row if seq == self.seq else 0


def before_last(totals: Iterable[tuple[int, int]], rows: int, next_seq: int) -> CursorPosition:
    """Return the position before the last ``rows`` rows, or before all where there are fewer; the beginning of
    batch ``next_seq`` for no rows.

    ``totals`` are numbers of batches and of their rows, the newest first; no more of them are read than need be.
    """
    position = CursorPosition(next_seq)
    for seq, total in totals:
        if rows <= 0:
            break
        if total:
            position = CursorPosition(seq, max(0, total - rows))
            rows -= total
    return position


def encode_cursor(position: CursorPosition, owner: str) -> str:
    """Return the text of ``position`` for the rows of ``owner``."""
    checksum = _checksum(VERSION, position.seq, position.row, owner)
    packed = _FORM.pack(VERSION, position.seq, position.row, checksum)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def decode_cursor(text: str, owner: str) -> CursorPosition:
    """Read what :func:`encode_cursor` wrote for the same owner; MalformedRequest for anything else."""
    refusal = MalformedRequest(
        f"A cursor must be taken unchanged from an earlier answer about {owner!r}; got {text[:100]!r}."
        " Leave it out to read from the beginning."
    )
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        version, seq, row, checksum = _FORM.unpack(packed)
    except (binascii.Error, ValueError, struct.error):
        raise refusal from None
    if version != VERSION or checksum != _checksum(version, seq, row, owner):
        raise refusal
    position = CursorPosition(seq, row)
    if encode_cursor(position, owner) != text:  # base64 has several spellings of one value: allow one
        raise refusal
    return position


def _checksum(version: int, seq: int, row: int, owner: str) -> int:
    return zlib.crc32(f"{version}/{seq}/{row}/{owner}".encode())
