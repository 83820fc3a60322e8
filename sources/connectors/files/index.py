"""The durable index of a stream of files: which were discovered, in order, and where their records are.

Invariants:

- Files are only ever added, at the end, and are durable before the offsets of their records are given to anybody: a
  replayed batch finds what it read.
- A record log holds them, about MAX_FILES to a record. The last record is written anew, with more, until it is full,
  so that there are few of them; readers see it as it was or as it is.
- One process at a time adds: it holds a lock on a file beside them, where the storage is local. Any number read.
"""

from __future__ import annotations

import bisect
import fcntl
import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from braid.sources.connectors.files.folder import FoundFile
from braid.sources.core.errors import NotReady
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage

MAX_FILES = 500
MAX_MARKS = 20_000


@dataclass(frozen=True)
class IndexedFile:
    """One file of a stream, whose records have the offsets ``[first, first + records)``.

    ``marks`` are pairs of a record's number in the file and the byte where it begins, ascending. ``times``, for a
    stream that is replayed, are pairs (records, the greatest event time up to there), and ``begins_us`` the first event
    time. ``seen_us`` is when the file was discovered. ``uri`` is what opens its file system, empty for the local one.
    """

    path: str
    real_path: str
    uri: str
    size: int
    mtime_ns: int
    seen_us: int
    first: int
    records: int
    marks: Sequence[tuple[int, int]] = ()
    times: Sequence[tuple[int, int]] = ()
    begins_us: int | None = None

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.first + self.records

    @property
    def found(self) -> FoundFile:
        """The file as it was discovered."""
        return FoundFile(self.path, self.size, self.mtime_ns)


class FileIndex:
    """The files known so far; :meth:`follow` reads what others added, :meth:`add` adds."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._log = RecordLog(storage, folder)
        self._closed_path = f"{folder}-closed.json"
        self._full_records = 0  # records up to this one do not change any more
        self._files_in_full = 0  # how many files these have
        self._lock: object = None
        self.files: list[IndexedFile] = []

    @property
    def is_closed(self) -> bool:
        """Whether no file is added any more."""
        return self._storage.exists(self._closed_path)

    def close(self) -> None:
        """Have no file added any more: those that are there are all."""
        self._storage.put_json(self._closed_path, {"files": len(self.files)})

    @property
    def end(self) -> int:
        """The offset after the last record of the last file."""
        files = self.files
        return files[-1].end if files else 0

    def follow(self) -> None:
        """Read what is new."""
        for number in range(self._full_records + 1, self._log.latest() + 1):
            files = [IndexedFile(**value) for value in self._log.read(number)["files"]]
            full_files = self.files[: self._files_in_full] if self._files_in_full < len(self.files) else self.files
            self.files = full_files + files
            if _is_full(files):
                self._full_records, self._files_in_full = number, len(self.files)

    def add(self, files: Sequence[IndexedFile]) -> None:
        """Add files; they are durable when this returns. :meth:`hold` must have been called."""
        remaining = list(files)
        while remaining:
            record_files, count = self.files[self._files_in_full :], 0
            while count < len(remaining) and not _is_full(record_files):
                record_files.append(remaining[count])
                count += 1
            self._write(record_files)
            self.files.extend(remaining[:count])
            remaining = remaining[count:]
            if _is_full(record_files):
                self._full_records, self._files_in_full = self._full_records + 1, len(self.files)

    def hold(self) -> None:
        """Become the one process that adds files; NotReady while another one is."""
        root = self._storage.local_root
        if self._lock is not None or root is None:
            return
        path = root / f"{self._folder}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise NotReady("One process at a time may list the files, and another does") from None
        self._lock = weakref.finalize(self, os.close, lock)
        self.follow()

    def between(self, start: int, end: int) -> Iterator[IndexedFile]:
        """Yield the files that have offsets in ``[start, end)``; NotReady when the index does not reach so far."""
        if end > self.end:
            self.follow()
        if end > self.end:
            raise NotReady(f"Records {start} to {end} must be in the index {self._folder!r}, which ends at {self.end}")
        files = self.files
        index = bisect.bisect_right(files, start, key=lambda file: file.end)
        while index < len(files) and files[index].first < end:
            yield files[index]
            index += 1

    def _write(self, files: Sequence[IndexedFile]) -> None:
        values: list[dict[str, Any]] = [asdict(file) for file in files]
        self._log.append(self._full_records + 1, {"files": values})


def _is_full(files: Sequence[IndexedFile]) -> bool:
    return len(files) >= MAX_FILES or sum(len(file.marks) + len(file.times) for file in files) >= MAX_MARKS
