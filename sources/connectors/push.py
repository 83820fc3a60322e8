"""Streams that clients push tuples to: the log that the service writes, and the connector that tasks read.

Invariants:

- One :class:`PushLog` writes a stream (a lock on the file ``durable`` keeps others out); any number of processes read.
- ``durable`` holds the offset up to which frames are on disk (:mod:`braid.sources.connectors.durable_offset`).
- What is at or after the durable offset may be torn by a crash; opening the log cuts it off. What is before it was
  acknowledged: if that does not read back, CorruptData is raised and nothing is cut.
- Nothing is acknowledged that lies in a file which nobody could open any more, as its folder was removed or unmounted.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from braid.sources.connectors.connector import Chunk, Extent, with_arrival
from braid.sources.connectors.durable_offset import DURABLE, DurableOffset, read_durable
from braid.sources.connectors.segment import (
    FrameHeader,
    MalformedInput,
    SegmentFile,
    SegmentPayload,
    corrupt,
    encode_frame,
    encode_payload,
    is_whole,
    list_segments,
    read_malformed,
    read_tuples,
    segment_index,
    segment_path,
)
from braid.sources.core.errors import NotAllowed, NotReady
from braid.sources.core.replays import origin_of
from braid.sources.core.schema import StreamDefinition
from braid.sources.core.storage import Storage, not_read_back, sync_folder

PARTITION = "0"
ROLL_BYTES = 64 << 20
JOINED_BYTES = 1 << 20  # up to here one write of a copy beats several writes

_sync = getattr(os, "fdatasync", os.fsync)


def check_local(storage: Storage, stream: str) -> None:
    """Raise NotAllowed when a stream cannot be pushed to, as the storage is not a local folder."""
    if storage.local_root is None:
        raise NotAllowed(
            f"A push stream needs a data-dir that is a local folder, got {storage.uri!r};"
            " use a stream with another connector, or a local data-dir.",
            stream=stream,
        )


def stream_folder(storage: Storage, definition: StreamDefinition) -> Path:
    """Return the local folder of a push stream; NotAllowed when the storage is not local."""
    check_local(storage, definition.name)
    return storage.local_path(f"streams/{origin_of(definition.id)}")


def is_file_at(file: int, path: Path) -> bool:
    """Whether an open file, or folder, is what lies at ``path``."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


def folder_gone(folder: Path) -> NotReady:
    """Return the error for a folder that was removed, or whose file system was unmounted."""
    return NotReady(
        f"The folder {str(folder)!r} must stay where it is while the service runs; it was removed, unmounted or"
        " replaced, so nothing can be kept. Put it back, and start the service again."
    )


class _PendingFrame:
    """A frame on its way to disk."""

    def __init__(self, first: int, end: int, pieces: list[Any]) -> None:
        self.first = first
        self.end = end
        self.pieces = pieces
        self.done = False
        self.problem: BaseException | None = None


class PushLog:
    """The writing end of a push stream. All methods may be called from any thread."""

    def __init__(self, storage: Storage, definition: StreamDefinition, *, roll_bytes: int = ROLL_BYTES) -> None:
        """Open the log, or begin it; a frame torn by a crash is cut off.

        Raises NotAllowed when the storage is not a local folder, Conflict when another process writes this stream,
        NotReady when the disk refuses, and CorruptData when acknowledged frames of the last segment do not read back.
        """
        self._name = definition.name
        self._schema = definition.schema.stored.arrow
        self._times_arrivals = definition.schema.stored is not definition.schema
        self._last_received_us = 0
        self._roll_bytes = roll_bytes
        root = stream_folder(storage, definition)
        self._folder = root / "segments"
        self._changed = threading.Condition()
        self._pending: list[_PendingFrame] = []
        self._writing = False
        self._broken: BaseException | None = None
        self._closed = False
        try:
            _make_folders(self._folder)
            self._durable = DurableOffset(root / "durable", definition.name)
            try:
                self._open_last_segment()
                if self._times_arrivals:
                    self._last_received_us = max((f.received_us for f in self.kept_frames()), default=0)
            except BaseException:
                self._durable.close()
                raise
        except OSError as problem:
            raise self._refused(problem) from problem

    def append(
        self,
        tuples: pa.RecordBatch,
        malformed: Sequence[MalformedInput],
        received_us: int,
        bytes: int,
        key: str | None = None,
        fingerprint: str | None = None,
        outcome: Any = None,
    ) -> int:
        """Add one frame and return the offset after it; it is on disk when this returns.

        Concurrent calls share a flush. A frame without tuples and malformed inputs is kept only when it has a ``key``.
        Raises NotReady when the disk refuses, or the folder of the log is gone; then nothing of the frame is kept.
        """
        if tuples.schema != self._schema:
            raise ValueError(f"Tuples of {self._name!r} must have schema {self._schema}, got {tuples.schema}.")
        payload = encode_payload(tuples, malformed)
        with self._changed:
            if tuples.num_rows + len(malformed) == 0 and key is None:
                return self._end
            frame = self._enqueue(
                payload, tuples.num_rows, len(malformed), received_us, bytes, key, fingerprint, outcome
            )
        self._wait(frame)
        if frame.problem is not None:
            raise self._refused(frame.problem) from frame.problem
        return frame.end

    def end(self) -> int:
        """Return the offset after the last acknowledged frame."""
        return self._end

    def segment_at(self, offset: int) -> int:
        """Return the first offset of the segment that has ``offset``, or would have it."""
        return max((first for first in list_segments(self._folder) if first <= offset), default=0)

    def trim(self, offset: int, kept_bytes: int = 0) -> None:
        """Delete the segments that lie wholly below ``offset``, but those of the newest ``kept_bytes``.

        The last one always stays.
        """
        with self._changed:
            for first in self._segments_below(offset, kept_bytes):
                segment_path(self._folder, first).unlink(missing_ok=True)

    def _segments_below(self, offset: int, kept_bytes: int) -> list[int]:
        below, newer_bytes = [], 0
        for first, following in reversed(list(pairwise([*list_segments(self._folder), sys.maxsize]))):
            if following <= offset and newer_bytes >= kept_bytes:
                below.append(first)
            newer_bytes += segment_path(self._folder, first).stat().st_size
        return below

    def kept_frames(self, since: int = 0) -> Iterator[FrameHeader]:
        """Yield the headers of all frames that are kept, oldest first, from the segment on that has ``since``."""
        for first in (first for first in list_segments(self._folder) if first >= self.segment_at(since)):
            with SegmentFile(segment_path(self._folder, first)) as segment:
                for frame in segment.frames():
                    yield frame.header

    def close(self) -> None:
        """Let go of the files; waits for appends under way. Later appends raise NotReady."""
        with self._changed:
            while self._writing or self._pending:
                self._changed.wait()
            if not self._closed:
                self._closed = True
                self._broken = self._broken or ValueError("the log is closed")
                os.close(self._file)
                self._durable.close()

    def _refused(self, problem: BaseException) -> NotReady:
        if isinstance(problem, NotReady):
            return NotReady(problem.detail, stream=self._name)
        return NotReady(f"The log of stream {self._name!r} must be writable, got {problem}; free the disk and retry.")

    def _open_last_segment(self) -> None:
        firsts = list_segments(self._folder)
        self._segment = firsts[-1] if firsts else 0
        self._end, self._position = self._segment, 0
        path = segment_path(self._folder, self._segment)
        if firsts:
            with SegmentFile(path) as segment:
                for frame in segment.frames():
                    if frame.header.first != self._end or not is_whole(segment.payload_of(frame), frame):
                        break
                    self._end, self._position = frame.header.end, frame.end
        acknowledged = self._durable.get()
        if self._end < acknowledged:
            raise corrupt(path, self._position, f"offsets {self._end} to {acknowledged} were acknowledged and are lost")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._file, self._position)
        os.fsync(self._file)
        sync_folder(self._folder)
        self._next = self._end
        self._durable.set(self._end)

    def _enqueue(
        self,
        payload: SegmentPayload,
        tuples: int,
        malformed: int,
        received_us: int,
        size: int,
        key: str | None,
        fingerprint: str | None,
        outcome: Any,
    ) -> _PendingFrame:
        if self._broken is not None:
            raise NotReady(f"The log of stream {self._name!r} must be open, got: {self._broken}; restart the service.")
        if self._times_arrivals:  # none may be late, whatever clocks do and whoever comes first here
            received_us = self._last_received_us = max(received_us, self._last_received_us + 1)
        header = FrameHeader(
            first=self._next,
            tuples=tuples,
            malformed=malformed,
            received_us=received_us,
            bytes=size,
            key=key,
            fingerprint=fingerprint,
            outcome=outcome,
            tuple_bytes=payload.tuple_bytes,
            malformed_bytes=payload.malformed_bytes,
        )
        frame = _PendingFrame(header.first, header.end, encode_frame(header, payload))
        self._next = header.end
        self._pending.append(frame)
        return frame

    def _wait(self, frame: _PendingFrame) -> None:
        """Return when ``frame`` is done; whoever finds nobody writing writes for all that wait."""
        while True:
            with self._changed:
                while self._writing and not frame.done:
                    self._changed.wait()
                if frame.done:
                    return
                self._writing = True
                batch, self._pending = self._pending, []
            problem = self._write(batch)
            with self._changed:
                if problem is None:
                    self._end = batch[-1].end
                    self._durable.set(self._end)
                else:  # frames enqueued since then have offsets that build on the lost ones
                    batch, self._pending = batch + self._pending, []
                    self._next = self._end
                for finished in batch:
                    finished.problem, finished.done = problem, True
                self._writing = False
                self._changed.notify_all()

    def _write(self, batch: list[_PendingFrame]) -> BaseException | None:
        """Write and flush frames; on failure nothing of them is kept and the reason is returned."""
        try:
            if self._position >= self._roll_bytes and batch[0].first > self._segment:
                self._roll(batch[0].first)
            pieces = [piece for frame in batch for piece in frame.pieces]
            if sum(map(len, pieces)) <= JOINED_BYTES:
                pieces = [b"".join(pieces)]
            position = self._position
            for piece in pieces:
                position = _write_at(self._file, piece, position)
            _sync(self._file)
            if not is_file_at(self._file, segment_path(self._folder, self._segment)):
                raise folder_gone(self._folder)
        except BaseException as problem:
            try:
                os.ftruncate(self._file, self._position)
                os.fsync(self._file)
            except BaseException:
                self._broken = problem
            return problem
        self._position = position
        return None

    def _roll(self, first: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        file = os.open(segment_path(self._folder, first), flags, 0o644)
        try:
            sync_folder(self._folder)
        except OSError:
            os.close(file)
            raise
        os.close(self._file)
        self._file, self._segment, self._position = file, first, 0


class PushConnector:
    """The reading end of a push stream, for any process; it has one partition, ``"0"``."""

    problem: str | None = None

    def __init__(self, storage: Storage, definition: StreamDefinition) -> None:
        root = stream_folder(storage, definition)
        self._name = definition.name
        self._schema = definition.schema
        self._folder = root / "segments"
        self._durable_path = root / "durable"
        self._durable: int | None = None
        self._end = 0

    def available(self, now_us: int) -> dict[str, Extent]:  # noqa: ARG002
        """Return what is durable of the partition; CorruptData when the file that says so was cut."""
        if self._durable is None:
            try:
                self._durable = os.open(self._durable_path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # not begun
                return {PARTITION: Extent(0, 0)}
            weakref.finalize(self, os.close, self._durable)
        end = read_durable(self._durable)
        if end is None and self._end:
            raise not_read_back(str(self._durable_path), f"it must have {DURABLE.size} bytes")
        self._end = end or 0
        return {PARTITION: Extent(0, self._end)}

    def bounds(self) -> None:
        """Return None: there are none."""

    def oldest(self) -> dict[str, int]:
        """Return the first offset of the first segment that is kept."""
        return {PARTITION: next(iter(list_segments(self._folder)), 0)}

    def read(self, partition: str, start: int, end: int) -> Iterator[Chunk]:
        """Yield a chunk for each frame that has offsets in ``[start, end)``.

        Raises CorruptData when a frame does not read back, or offsets are not there (yet, or any more).
        """
        if partition != PARTITION:
            raise ValueError(f"A push stream has partition {PARTITION!r} only, got {partition!r}.")
        for payload, frame in segment_index(self._folder).frames(start, end):
            header = frame.header
            if not is_whole(payload, frame):
                raise corrupt(self._folder, frame.start, f"the checksum of offset {header.first} differs")
            low, high = max(start, header.first) - header.first, min(end, header.end) - header.first
            tuples = read_tuples(payload, frame, self._schema.stored.arrow)
            tuples = with_arrival(tuples, self._schema, header.received_us)
            malformed = read_malformed(payload, frame)
            total = header.end - header.first
            yield Chunk(
                tuples[low : min(high, header.tuples)] if low < header.tuples else tuples[:0],
                malformed[max(low - header.tuples, 0) : max(high - header.tuples, 0)],
                header.received_us,
                header.bytes * high // total - header.bytes * low // total,
            )


def _make_folders(folder: Path) -> None:
    """Make ``folder`` and those above it, so that they outlive a power cut."""
    if not folder.exists():
        _make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def _write_at(file: int, piece: Any, position: int) -> int:
    """Write all of ``piece`` at ``position`` and return the position after it."""
    remaining = memoryview(piece)
    while len(remaining):
        written = os.pwrite(file, remaining, position)
        remaining, position = remaining[written:], position + written
    return position
