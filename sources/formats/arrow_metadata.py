"""What an Arrow IPC stream says of itself, read without building or unpacking anything.

Messages are flatbuffers. Arrow verifies that they are sound when it gives them out, but not that what they say is true
or modest: a few bytes can claim any number of rows, or unpack to any size. So both are counted here first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from braid.sources.core.errors import MalformedRequest, TooLarge
from braid.sources.formats.limits import DecodingLimits

LONGEST_SCHEMA = 4 << 20
MAX_BATCHES = 20_000
_SCHEMA, _DICTIONARY, _RECORD_BATCH = 1, 2, 3
_PACKED = struct.Struct("<q")


class _Table(NamedTuple):
    """A table of a flatbuffer: ``at`` is where it begins; fields are numbered in the order of their declaration."""

    data: memoryview
    at: int

    def _place(self, field: int) -> int:
        """Return where a field is, 0 for one that is left out."""
        fields_at = self.at - self._number("<i", self.at)
        if 4 + 2 * field >= self._number("<H", fields_at):
            return 0
        offset = self._number("<H", fields_at + 4 + 2 * field)
        return self.at + offset if offset else 0

    def _number(self, form: str, at: int) -> int:
        return int(struct.unpack_from(form, self.data, at)[0])

    def number(self, field: int, form: str) -> int:
        """Return a number, 0 where it is left out."""
        place = self._place(field)
        return self._number(form, place) if place else 0

    def table(self, field: int) -> _Table | None:
        """Return a table, None where it is left out."""
        place = self._place(field)
        return _Table(self.data, place + self._number("<I", place)) if place else None

    def pairs(self, field: int) -> np.ndarray:
        """Return a vector of structs of two int64 each, of shape (n, 2)."""
        place = self._place(field)
        if not place:
            return np.zeros((0, 2), np.int64)
        place += self._number("<I", place)
        return np.frombuffer(self.data, "<i8", 2 * self._number("<I", place), place + 4).reshape(-1, 2)


def check_stream(body: bytes, limits: DecodingLimits) -> tuple[int, int]:
    """Return how many rows a stream says it has, and to how many bytes it unpacks; nothing is built or unpacked.

    Raises TooLarge when they, or what their buffers unpack to, are beyond the limits; MalformedRequest for big-endian
    numbers, for dictionaries that come piece by piece, and for bytes after the stream. What pyarrow raises for garbage
    passes through.
    """
    rows = size = batches = 0
    source = pa.BufferReader(pa.py_buffer(body))
    for message in _messages(source):
        metadata = memoryview(message.metadata)
        root = _Table(metadata, struct.unpack_from("<I", metadata)[0])
        kind, header = root.number(1, "<B"), root.table(2)
        if header is None:
            continue
        if kind == _SCHEMA:
            _check_schema(header, len(metadata))
            continue
        batch: _Table | None = header
        if kind == _DICTIONARY:
            if header.number(2, "<B"):
                raise MalformedRequest(
                    "Each dictionary of an Arrow stream must come as a whole, got one in pieces (deltas). Write it"
                    " without emit_dictionary_deltas, or plain columns."
                )
            batch = header.table(1)
        if batch is None or kind not in (_DICTIONARY, _RECORD_BATCH):
            continue
        batches += 1
        if batches > MAX_BATCHES:
            raise TooLarge(
                f"An Arrow stream must have at most {MAX_BATCHES} batches, dictionaries included, got more. Write the"
                " rows in fewer, larger ones."
            )
        length = batch.number(0, "<q")
        if length < 0:
            raise MalformedRequest(f"A batch of an Arrow stream must have 0 rows or more, got {length}.")
        rows += length if kind == _RECORD_BATCH else 0
        limits.check_rows(rows)
        size += _unpacked_bytes(batch, message.body)
        limits.check_bytes(size)
    if source.tell() != len(body):
        raise MalformedRequest(
            f"The body must be one Arrow IPC stream; it ends at byte {source.tell()} of {len(body)}."
            " Send each stream in a body of its own."
        )
    return rows, size


def _messages(source: pa.NativeFile) -> Iterator[Any]:
    reader = pa.ipc.MessageReader.open_stream(source)
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _check_schema(schema: _Table, size: int) -> None:
    if schema.number(0, "<h"):
        raise MalformedRequest("The numbers of an Arrow stream must be little-endian, got big-endian ones.")
    if size > LONGEST_SCHEMA:
        raise MalformedRequest(f"The schema of an Arrow stream must take at most {LONGEST_SCHEMA} bytes, got {size}.")


def _unpacked_bytes(batch: _Table, body: Any) -> int:
    """Return how many bytes the buffers of a batch have, once unpacked; shared bytes count each time."""
    buffers = batch.pairs(2)
    content = np.frombuffer(body, np.uint8) if body is not None else np.zeros(0, np.uint8)
    offsets, lengths = buffers[:, 0], buffers[:, 1]
    if (lengths < 0).any() or (offsets < 0).any() or (offsets > len(content) - lengths).any():
        raise MalformedRequest("The buffers of an Arrow stream must lie within their message, got one outside.")
    if batch.table(3) is None:
        return sum(lengths.tolist())
    packed = lengths >= _PACKED.size  # each begins with its unpacked size, -1 where it is not packed
    begins = offsets[packed][:, None] + np.arange(_PACKED.size)
    sizes = np.ascontiguousarray(content[begins]).view("<i8").ravel()
    return sum(np.where(sizes < 0, lengths[packed], sizes).tolist())
