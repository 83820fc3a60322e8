"""Remove results that nobody may ask for any more: by age, and by the bytes they take.

A batch goes as a whole: it becomes invisible, then its blocks are removed, then its record. A crash in between leaves
a record without blocks, and the next trim begins with it again. The newest batches stay whatever their age, because the
planner, the session and restarts continue from them. With the files that are named go those of the same batches that
nobody names: an attempt at a batch that failed, or was repeated, leaves some.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from operators.bucket_store import BUCKETS, DEAD_LETTERS, RESULTS, TUPLES, batch_of, block_paths
from router.result_reader import BatchIndex
from sources.record_log import RecordLog
from sources.storage import Storage

NEWEST_KEPT = 16
FOLDERS = (RESULTS, DEAD_LETTERS)


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

    def trim(self, now_us: int, applied: int) -> Trimmed:
        """Remove batches, oldest first, that are too old or too much.

        ``applied`` is the newest batch that everybody who reads the batch log has applied durably; it and
        the :data:`NEWEST_KEPT` newest batches are never removed.
        """
        bytes_left = sum(self._storage.size(folder) for folder in FOLDERS)
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
            bytes_left -= sum(self._size_of(path) for path in paths)
            doomed += paths
            upto = seq
        batches = upto - self._index.first + 1
        if batches:
            self._index.forget(upto)
            unnamed = {path for folder in FOLDERS for path in self._made_before(upto + 1, folder)}.difference(doomed)
            for path in (*doomed, *unnamed):
                self._on_removed(path)
                self._storage.delete(path)
            self._log.trim(upto)
        self._remove_unneeded()
        return Trimmed(batches, len(doomed), bytes_left, held_back)

    def _remove_unneeded(self) -> None:
        """Remove what was made for lanes, and no lane refers to: they told the newest batch what they need."""
        if not self._log.has(self._index.latest):
            return
        newest = self._log.read(self._index.latest)
        if "oldest_needed" in newest:  # records of before have none
            needed = newest["oldest_needed"]
            for folder in (BUCKETS, TUPLES):
                for path in self._made_before(newest["seq"] if needed is None else needed, folder):
                    self._storage.delete(path)

    def _made_before(self, seq: int, folder: str) -> list[str]:
        """Return the files of batches before one."""
        return [path for name in self._storage.names(folder) if batch_of(path := f"{folder}/{name}") < seq]

    def _size_of(self, path: str) -> int:
        try:
            return self._storage.size_of(path)
        except FileNotFoundError:  # removed by a trim that was cut off
            return 0
