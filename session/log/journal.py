"""A log of numbered JSON records appended to segment files: the cheapest way to have many small records on disk.

A segment ``{number of its first record:012d}.log`` has one record a line, after its checksum::

    8f1c02ab {"at_us":1700000000000000,"requests":[…]}

One process writes, and reads only when it starts. Invariants:

- A record is durable when :meth:`Journal.append` returns; an append that raises leaves no record.
- Records have no gaps but where they were trimmed. Where a segment has records from the next segment's first number
  on, these were never acknowledged, and do not count.
- Only the end of a segment can be torn, by a crash or a disk that was full; every opening begins a new segment.
"""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from braid.sources.core.errors import CorruptData
from braid.sources.core.record_log import RecordLog, file_number
from braid.sources.core.storage import Storage, sync_folder

ROLL_BYTES = 16 << 20
_CHECKSUM = 8
_sync = getattr(os, "fdatasync", os.fsync)


class Journal:
    """The segments of one local folder; ``latest`` is the number of the last record, for whoever appends."""

    def __init__(self, folder: Path, latest: int = 0, roll_bytes: int = ROLL_BYTES) -> None:
        self._folder = folder
        self._latest = latest
        self._roll_bytes = roll_bytes
        self._lock = threading.Lock()
        self._file: int | None = None
        self._size = 0

    def after(self, number: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield ``(number, record)`` for every kept record after ``number``, in order.

        Raises CorruptData when a record in between does not read back.
        """
        for first, end in pairwise([*self._firsts(), None]):
            assert first is not None
            if end is not None and end <= number + 1:
                continue
            current, path = first, self._path(first)
            with path.open("rb") as lines:
                for line in lines:
                    text = _checked(line)
                    if text is None or current == end:
                        break
                    if current > number:
                        yield current, orjson.loads(text)
                    current += 1
                is_torn_inside = end is None and bool(lines.read(1))
            if is_torn_inside or (end is not None and current < end):
                raise CorruptData(
                    f"Record {current} must be in {path.name} and does not read back."
                    " Restore the data directory from a backup."
                )

    def append(self, number: int, record: dict[str, Any]) -> None:
        """Write record ``number``, the next one; it is durable when the call returns."""
        text = orjson.dumps(record, option=orjson.OPT_NON_STR_KEYS)
        line = b"%08x %b\n" % (zlib.crc32(text), text)
        with self._lock:
            if self._size + len(line) > self._roll_bytes:
                self._end_segment()
            is_new = self._file is None
            if self._file is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                _write(self._file, line)
                _sync(self._file)
                if is_new:
                    sync_folder(self._folder)
            except BaseException:  # the next record takes this one's number, in a segment of its own
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._size)
                    _sync(self._file)
                self._end_segment()
                raise
            self._size += len(line)
            self._latest = number

    def trim(self, upto: int) -> None:
        """Remove the segments that hold no record after ``upto``."""
        with self._lock:
            if self._latest <= upto:
                self._end_segment()
            doomed = [first for first, end in pairwise([*self._firsts(), self._latest + 1]) if end - 1 <= upto]
        for first in doomed:
            self._path(first).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._end_segment()

    def _end_segment(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file, self._size = None, 0

    def _path(self, first: int) -> Path:
        return self._folder / f"{first:012d}.log"

    def _firsts(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return sorted(file_number(name) for name in names if name.endswith(".log"))


class ObjectJournal(RecordLog):
    """A journal where nothing can be appended to a file: an object for each record."""

    def after(self, number: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield ``(number, record)`` for every kept record after ``number``; CorruptData when one is missing."""
        try:
            yield from super().after(number)
        except FileNotFoundError as error:
            raise CorruptData(
                f"A record must be there to go on; it is missing: {error}. Restore the data directory from a backup."
            ) from error

    def close(self) -> None:
        """Nothing is open."""


def open_journal(storage: Storage, folder: str, latest: int = 0) -> Journal | ObjectJournal:
    """Return the journal of a folder: segments on a local disk, objects elsewhere."""
    if storage.local_root is None:
        return ObjectJournal(storage, folder)
    return Journal(storage.local_path(folder), latest)


def _checked(line: bytes) -> bytes | None:
    """Return the record of a line, None for a torn one."""
    text = line[_CHECKSUM + 1 : -1]
    is_whole = line.endswith(b"\n") and line[:_CHECKSUM] == b"%08x" % zlib.crc32(text)
    return text if is_whole else None


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
