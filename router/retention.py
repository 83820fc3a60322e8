"""Remove results that nobody may ask for any more: by age, and by the bytes they take.

A batch goes as a whole: it becomes invisible, then its blocks are removed, then its record. A crash in between leaves
a record without blocks, and the next trim begins with it again. The newest batches stay whatever their age, because the
planner, the session and restarts continue from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from router.result_reader import BatchIndex
from sources.record_log import RecordLog
from sources.storage import Storage

NEWEST_KEPT = 16
FOLDERS = ("results", "dead-letters")


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
            for path in doomed:
                self._on_removed(path)
                self._storage.delete(path)
            self._log.trim(upto)
        return Trimmed(batches, len(doomed), bytes_left, held_back)

    def _size_of(self, path: str) -> int:
        try:
            with self._storage.open(path) as block:
                return int(block.size())
        except FileNotFoundError:  # removed by a trim that was cut off
            return 0


def block_paths(record: dict[str, Any]) -> list[str]:
    """Return the paths of all blocks that a batch record names."""
    return [part["path"] for part in (*record["results"], *record.get("dead_letters", ()))]
