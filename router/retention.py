"""Remove results that nobody may ask for any more: by age, and by the bytes they take.

A batch goes as a whole: it becomes invisible, then its blocks are removed, then its record. A crash in between leaves
a record without blocks, and the next trim begins with it again. The newest batches stay whatever their age, because the
planner, the session and restarts continue from them.

A trim costs what has come and what goes, not what is kept: of a new batch it counts the files that the record names.
All files are looked at, and counted anew, at the start and each time that an eighth as many batches have gone as are
kept. Then those of batches that are gone go, too, that no record named: an attempt at a batch that failed, or was
repeated, leaves some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

from braid.operators.state.bucket_store import BUCKETS, DEAD_LETTERS, RESULTS, STATES, TUPLES, batch_of, block_paths
from braid.router.batch_index import BatchIndex
from braid.sources.core.record_log import RecordLog
from braid.sources.core.storage import Storage

NEWEST_KEPT = 16
FOLDERS = (RESULTS, DEAD_LETTERS)
SWEPT_SHARE = 8


@dataclass(frozen=True)
class Trimmed:
    """What one trim removed, and what is left.

    ``held_back``: more should go, as soon as those who read the batch log have applied it durably.
    """

    batches: int
    blocks: int
    bytes_left: int
    held_back: bool


class Retention:
    """Keeps results for ``seconds``, and at most ``size`` bytes of them."""

    def __init__(
        self,
        storage: Storage,
        log: RecordLog,
        index: BatchIndex,
        *,
        seconds: float,
        size: int,
        on_removed: Callable[[str], None] = lambda _: None,
    ) -> None:
        if seconds < 0 or size < 0:
            raise ValueError(f"Retention must not be negative; got {seconds!r} seconds and {size!r} bytes.")
        self._storage = storage
        self._log = log
        self._index = index
        self._seconds = seconds
        self._size = size
        self._on_removed = on_removed
        self._lock = Lock()
        # the bytes of the batches up to ``_counted``, and how many batches have gone since all files were looked at
        self._bytes = 0
        self._counted: int | None = None
        self._batches_gone = 0

    def count(self) -> int:
        """Return the bytes of the batches that are visible; looks only at what is new, except the first time."""
        with self._lock:
            return self._count()

    def trim(self, now_us: int, applied: int) -> Trimmed:
        """Remove batches, oldest first, that are too old or too much.

        ``applied`` is the newest batch that everybody who reads the batch log has applied durably; it and
        the :data:`NEWEST_KEPT` newest batches are never removed.
        """
        with self._lock:
            return self._trim(now_us, applied)

    def _trim(self, now_us: int, applied: int) -> Trimmed:
        bytes_left = self._count()
        oldest_us = now_us - int(self._seconds * 1_000_000)
        upto, doomed, held_back = self._index.first - 1, [], False
        for seq in range(self._index.first, self._index.latest - NEWEST_KEPT + 1):
            record = self._log.read(seq)
            if record["committed_us"] >= oldest_us and bytes_left <= self._size:
                break
            if seq >= applied:
                held_back = True
                break
            paths = block_paths(record)
            bytes_left -= self._size_of(paths)
            doomed += paths
            upto = seq
        batches = upto - self._index.first + 1
        if batches:
            counted, self._counted = self._counted, None  # if removing is cut off, all files are looked at again
            self._index.forget(upto)
            self._remove(doomed)
            self._log.trim(upto)
            self._bytes, self._counted, self._batches_gone = bytes_left, counted, self._batches_gone + batches
            if self._batches_gone * SWEPT_SHARE >= self._index.latest - upto:
                self._sweep()
        self._remove_unneeded()
        return Trimmed(batches, len(doomed), self._bytes, held_back)

    def _count(self) -> int:
        if self._counted is None:
            self._sweep()
        else:
            for seq in range(self._counted + 1, self._index.latest + 1):
                self._bytes += self._size_of(block_paths(self._log.read(seq)))
                self._counted = seq
        return self._bytes

    def _sweep(self) -> None:
        """Count all files of visible batches, and remove those of batches that are gone."""
        latest, total, leftovers = self._index.latest, 0, []
        for folder in FOLDERS:
            for name, size in self._storage.sizes(folder):
                seq = batch_of(name)
                if seq < self._index.first:
                    leftovers.append(f"{folder}/{name}")
                elif seq <= latest:
                    total += size
        self._remove(leftovers)
        self._bytes, self._counted, self._batches_gone = total, latest, 0

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._on_removed(path)
            self._storage.delete(path)

    def _remove_unneeded(self) -> None:
        """Remove files of state that no partition refers to: the record of the newest batch says what they need."""
        if not self._log.has(self._index.latest):
            return
        newest = self._log.read(self._index.latest)
        oldest_needed = newest["oldest_needed"]
        for folder in (BUCKETS, TUPLES, STATES):
            for path in self._files_before(newest["seq"] if oldest_needed is None else oldest_needed, folder):
                self._storage.delete(path)

    def _files_before(self, seq: int, folder: str) -> list[str]:
        """Return the files in ``folder`` of batches before ``seq``."""
        return [path for name in self._storage.names(folder) if batch_of(path := f"{folder}/{name}") < seq]

    def _size_of(self, paths: Iterable[str]) -> int:
        """Return the bytes of files; those that are gone, by a trim that was cut off, have none."""
        total = 0
        for path in paths:
            with suppress(FileNotFoundError):
                total += self._storage.size_of(path)
        return total
