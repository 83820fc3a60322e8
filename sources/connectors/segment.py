"""Segment files of a push stream: how frames are laid out, written, checked and found.

A segment ``{first offset:020d}.seg`` is a sequence of frames, one for each push:

======= ============================================================================================
prefix  magic, header length, payload length, CRC-32 of the payload, CRC-32 of prefix and header
header  JSON (:class:`FrameHeader`), padded with spaces so that the payload starts at a multiple of 64
payload the tuples as an Arrow IPC record batch message, the malformed inputs as JSON, zeros up to a multiple of 64
======= ============================================================================================

A frame covers the offsets ``first`` up to ``first + tuples + malformed``: the tuples come first. Frames are
immutable, and each starts at the offset where the one before ended; so does each segment.
"""

from __future__ import annotations

import bisect
import os
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, Self

import orjson
import pyarrow as pa

from braid.sources.connectors.connector import Malformed
from braid.sources.core.errors import CorruptData

MAGIC = b"BRF1"
ALIGNMENT = 64  # what Arrow asks of buffers, so that what is read is used without a copy
MARK_BYTES = 64 << 10  # an index remembers the place of one frame in so many bytes
BLOCK_BYTES = 256 << 10  # so much is read at once, at least
_PREFIX = struct.Struct("<4sIQII")
_CRC = struct.Struct("<I")
_UNCHECKED = _PREFIX.size - _CRC.size


class MalformedInput(Protocol):
    """Anything that tells what was wrong and what the input was."""

    @property
    def detail(self) -> str: ...

    @property
    def raw(self) -> str: ...


@dataclass(frozen=True)
class FrameHeader:
    """What a frame holds and where it belongs.

    ``bytes`` is the size of the request's body, or of its tuples if that is more; ``key``, ``fingerprint`` and
    ``outcome`` (JSON) make a retry of the request answerable; ``tuple_bytes`` and ``malformed_bytes`` are the lengths
    of the two parts of the payload.
    """

    first: int
    tuples: int
    malformed: int
    received_us: int
    bytes: int
    key: str | None
    fingerprint: str | None
    outcome: Any
    tuple_bytes: int
    malformed_bytes: int

    @property
    def end(self) -> int:
        """The offset after the last one of this frame."""
        return self.first + self.tuples + self.malformed


@dataclass(frozen=True)
class SegmentPayload:
    """The payload of a frame, ready to be written."""

    parts: tuple[Any, ...]
    tuple_bytes: int
    malformed_bytes: int
    size: int
    crc: int


@dataclass(frozen=True)
class SegmentFrame:
    """A frame found in a segment; positions are bytes from the beginning of the file."""

    header: FrameHeader
    start: int
    payload: int
    payload_bytes: int
    payload_crc: int

    @property
    def end(self) -> int:
        """The position after this frame."""
        return self.payload + self.payload_bytes


def encode_payload(tuples: pa.RecordBatch, malformed: Sequence[MalformedInput]) -> SegmentPayload:
    """Encode what a frame holds; the expensive part of writing one, and independent of its offsets."""
    batch = memoryview(tuples.serialize()) if tuples.num_rows else memoryview(b"")
    inputs = orjson.dumps([[entry.detail, entry.raw] for entry in malformed]) if malformed else b""
    padding = bytes(-(len(batch) + len(inputs)) % ALIGNMENT)
    parts = tuple(part for part in (batch, inputs, padding) if len(part))
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return SegmentPayload(parts, len(batch), len(inputs), sum(map(len, parts)), crc)


def encode_frame(header: FrameHeader, payload: SegmentPayload) -> list[Any]:
    """Return the pieces of a frame, to be written one after the other."""
    text = orjson.dumps(asdict(header))
    text += b" " * (-(_PREFIX.size + len(text)) % ALIGNMENT)
    checked = _PREFIX.pack(MAGIC, len(text), payload.size, payload.crc, 0)[:_UNCHECKED]
    crc = zlib.crc32(text, zlib.crc32(checked))
    return [checked + _CRC.pack(crc) + text, *payload.parts]


class SegmentFile:
    """A segment that is open for reading, as long as the context lasts; FileNotFoundError when there is none.

    It is read rather than mapped: a file that is cut under a map ends the process. Positions are bytes from its
    beginning, ``size`` is where it ended when it was opened. Raises CorruptData for what the disk does not read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb", buffering=0)
        self.size = os.fstat(self._file.fileno()).st_size
        self._block, self._begin = pa.py_buffer(b""), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def frame_at(self, start: int) -> SegmentFrame | None:
        """Return the frame at ``start``, or None when the bytes there are no whole frame; the payload is not read."""
        prefix = self._bytes(start, _PREFIX.size)
        if len(prefix) < _PREFIX.size:
            return None
        magic, header_bytes, payload_bytes, payload_crc, header_crc = _PREFIX.unpack_from(prefix)
        payload = start + _PREFIX.size + header_bytes
        if magic != MAGIC or payload + payload_bytes > self.size:
            return None
        head = self._bytes(start, payload - start)
        text = head[_PREFIX.size :]
        if zlib.crc32(text, zlib.crc32(head[:_UNCHECKED])) != header_crc:
            return None
        return SegmentFrame(FrameHeader(**orjson.loads(text)), start, payload, payload_bytes, payload_crc)

    def payload_of(self, frame: SegmentFrame) -> pa.Buffer:
        """Return the payload of a frame, unchecked."""
        return pa.py_buffer(self._bytes(frame.payload, frame.payload_bytes))

    def frames(self) -> Iterator[SegmentFrame]:
        """Yield the frames until the first bytes that are no whole frame; payloads are not read."""
        start = 0
        while (frame := self.frame_at(start)) is not None:
            yield frame
            start = frame.end

    def _bytes(self, start: int, count: int) -> memoryview:
        """Return bytes of the file, fewer where it ends; those after them are read with them."""
        at = start - self._begin
        if not 0 <= at <= at + count <= len(self._block):
            self._block, self._begin, at = self._read(start, max(count, BLOCK_BYTES)), start, 0
        return memoryview(self._block)[at : at + count]

    def _read(self, start: int, count: int) -> pa.Buffer:
        block = pa.allocate_buffer(max(0, min(count, self.size - start)))
        try:
            read = os.preadv(self._file.fileno(), [block], start)
        except OSError as error:
            raise corrupt(self._path, start, f"the disk does not read it: {error.strerror}") from error
        return block.slice(0, read)


def is_whole(payload: pa.Buffer, frame: SegmentFrame) -> bool:
    """Whether the payload of ``frame`` is what was written."""
    return zlib.crc32(payload) == frame.payload_crc


def read_tuples(payload: pa.Buffer, frame: SegmentFrame, schema: pa.Schema) -> pa.RecordBatch:
    """Return the tuples of ``frame`` without copying them."""
    if frame.header.tuples == 0:
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
    return pa.ipc.read_record_batch(payload.slice(0, frame.header.tuple_bytes), schema)


def read_malformed(payload: pa.Buffer, frame: SegmentFrame) -> tuple[Malformed, ...]:
    """Return the malformed inputs of ``frame``."""
    if frame.header.malformed == 0:
        return ()
    start = frame.header.tuple_bytes
    entries = orjson.loads(memoryview(payload)[start : start + frame.header.malformed_bytes])
    return tuple(Malformed(detail, raw) for detail, raw in entries)


def segment_path(folder: Path, first: int) -> Path:
    """Return the file of the segment whose first offset is ``first``."""
    return folder / f"{first:020d}.seg"


def list_segments(folder: Path) -> list[int]:
    """Return the first offsets of the segments in ``folder``, ascending; none when it does not exist."""
    try:
        names: Iterable[Path] = list(folder.iterdir())
    except FileNotFoundError:
        return []
    return sorted(int(path.stem) for path in names if path.suffix == ".seg")


def corrupt(path: Path, position: int, fault: str) -> CorruptData:
    """Return the error for bytes of a segment that do not read back."""
    return CorruptData(
        f"Segment {path.name} must hold a whole frame at byte {position}; {fault}. Restore the file from a backup."
    )


class SegmentIndex:
    """Where frames are: every so often one frame's offset and position, for each segment read so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._firsts: list[int] = []
        self._marks: dict[int, list[tuple[int, int]]] = {}

    def frames(self, start: int, end: int) -> Iterator[tuple[pa.Buffer, SegmentFrame]]:
        """Yield the frames that have offsets in ``[start, end)``, with their payloads, which are unchecked.

        Raises CorruptData when offsets are not there (yet, or any more) or a header does not read back.
        """
        offset = start
        while offset < end:
            first = self._segment_of(offset)
            path = segment_path(self._folder, first)
            try:
                segment = SegmentFile(path)
            except FileNotFoundError:
                raise self._gone(offset) from None
            with segment:
                next_offset, position = self._mark_before(first, offset)
                while position < segment.size and next_offset < end:
                    frame = segment.frame_at(position)
                    if frame is None or frame.header.first != next_offset:
                        raise corrupt(path, position, f"offset {next_offset} is not there")
                    self._mark(first, next_offset, position)
                    next_offset, position = frame.header.end, frame.end
                    if next_offset > max(offset, frame.header.first):
                        yield segment.payload_of(frame), frame
            if next_offset <= offset and self._segment_of(offset, refresh=True) == first:
                raise CorruptData(f"Offsets {offset} to {end} must be in {self._folder}, which ends before them.")
            offset = max(offset, next_offset)

    def _segment_of(self, offset: int, refresh: bool = False) -> int:
        with self._lock:
            if refresh or not self._firsts or offset < self._firsts[0]:
                self._firsts = list_segments(self._folder)
                self._marks = {first: self._marks[first] for first in self._firsts if first in self._marks}
            index = bisect.bisect_right(self._firsts, offset) - 1
            if index < 0:
                raise self._gone(offset)
            return self._firsts[index]

    def _gone(self, offset: int) -> CorruptData:
        return CorruptData(f"Offset {offset} must be in {self._folder}, but its segment is not kept any more.")

    def _mark_before(self, segment: int, offset: int) -> tuple[int, int]:
        with self._lock:
            marks = self._marks.setdefault(segment, [(segment, 0)])
            return marks[bisect.bisect_right(marks, offset, key=lambda mark: mark[0]) - 1]

    def _mark(self, segment: int, offset: int, position: int) -> None:
        with self._lock:
            marks = self._marks.get(segment)
            if marks is not None and position >= marks[-1][1] + MARK_BYTES:
                marks.append((offset, position))


@lru_cache(maxsize=256)
def segment_index(folder: Path) -> SegmentIndex:
    """Return this process's index of the segments in ``folder``."""
    return SegmentIndex(folder)
