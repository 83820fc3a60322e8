"""The batches of the log that readers see: which block of which batch holds how many rows of which slot.

A batch becomes visible by :meth:`BatchIndex.absorb`, in order, once the session has applied it (so that ``active_from``
of the queries in it is known). Only the newest records are kept in memory; older ones are read again when a reader is
that far behind, and a summary of each stretch of records (which slots occur) lets a query skip what does not concern
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from braid.operators.block_files import BlockPart
from braid.router.cursor import CursorPosition, decode_cursor
from braid.sources.core.errors import Gone, MalformedRequest
from braid.sources.core.least_recently_used import LeastRecentlyUsed
from braid.sources.core.record_log import RecordLog
from braid.sources.core.replays import origin_of

RECENT_RECORDS = 512
OLD_RECORD_BYTES = 64 << 20
STRETCH = 64


@dataclass(frozen=True)
class BlockEntry:
    """A block of a batch: its path, and the ascending slots that have rows in it with their numbers of rows."""

    path: str
    slots: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]

    def count(self, slot: int) -> int:
        """Return the rows of ``slot``."""
        index = int(np.searchsorted(self.slots, slot))
        return int(self.counts[index]) if index < len(self.slots) and self.slots[index] == slot else 0


@dataclass(frozen=True)
class BatchEntry:
    """What reading needs of a batch record."""

    seq: int
    epoch: int
    committed_us: int
    blocks: tuple[BlockEntry, ...]
    dead_letters: tuple[tuple[str, str, int], ...]
    """``(stream id, path, rows)``"""

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> BatchEntry:
        """Return what a batch record says of it."""
        blocks = tuple(
            BlockEntry(result["path"], np.array(result["slots"], np.int32), np.array(result["counts"], np.int64))
            for result in record["results"]
        )
        dead_letters = tuple(
            (block["stream"], block["path"], block["rows"]) for block in record.get("dead_letters", ())
        )
        return cls(record["seq"], record["epoch"], record["committed_us"], blocks, dead_letters)

    @property
    def nbytes(self) -> int:
        """The memory it takes, about."""
        return 200 + sum(200 + block.slots.nbytes + block.counts.nbytes for block in self.blocks)

    def parts(self, slot: int) -> list[BlockPart]:
        """Return the blocks with rows of ``slot``, in order."""
        return [BlockPart(block.path, count) for block in self.blocks if (count := block.count(slot))]


@dataclass(frozen=True)
class BatchSummary:
    """What occurs in a stretch of :data:`STRETCH` consecutive batches; ``slots`` is a bitset."""

    first_epoch: int
    slots: int
    streams_with_dead_letters: frozenset[str]


class BatchIndex:
    """The visible batches ``first … latest`` of the batch log; safe for one writer and many readers."""

    def __init__(self, log: RecordLog, latest: int = 0) -> None:
        self._log = log
        self._lock = Lock()
        self.latest = latest
        numbers = log.numbers()
        self.first = numbers[0] if numbers else 1
        self._recent: dict[int, BatchEntry] = {}
        self._older: LeastRecentlyUsed[BatchEntry] = LeastRecentlyUsed(OLD_RECORD_BYTES, lambda e: e.nbytes)
        self._summaries: dict[int, BatchSummary] = {}

    def absorb(self, record: dict[str, Any]) -> None:
        """Make a batch visible; one that is visible already changes nothing."""
        entry = BatchEntry.from_record(record)
        with self._lock:
            if entry.seq <= self.latest:
                return
            self._recent[entry.seq] = entry
            for seq in sorted(self._recent)[:-RECENT_RECORDS]:
                del self._recent[seq]
            self.latest = entry.seq

    def advance(self, seq: int) -> None:
        """Make all batches up to ``seq``, which are in the log, visible."""
        with self._lock:
            self.latest = max(self.latest, seq)

    def entry(self, seq: int) -> BatchEntry:
        """Return batch ``seq``; Gone when its record was trimmed."""
        recent = self._recent.get(seq)
        return recent or self._older.get(seq, lambda: self._read(seq))

    def check_kept(self, seq: int) -> None:
        """Raise Gone where a block is lost because its batch has passed its retention."""
        if seq < self.first or not self._log.has(seq):
            raise Gone(_gone(seq, max(self.first, seq + 1)))

    def in_memory(self, seq: int) -> bool:
        """Whether ``seq`` and all batches after it are answered without reading a file."""
        return seq > self.latest or seq in self._recent

    def with_slot(self, seq: int, latest: int, slot: int, freed_epoch: int | None) -> Iterator[BatchEntry]:
        """Yield the batches ``seq … latest`` before ``freed_epoch`` in which ``slot`` may have rows."""
        while seq <= latest:
            if seq % STRETCH == 0 and seq + STRETCH <= latest and not self.in_memory(seq):
                summary = self.summary(seq)
                if freed_epoch is not None and summary.first_epoch >= freed_epoch:
                    return
                if not summary.slots >> slot & 1:
                    seq += STRETCH
                    continue
            entry = self.entry(seq)
            if freed_epoch is not None and entry.epoch >= freed_epoch:
                return
            yield entry
            seq += 1

    def backwards(self, seq: int, first: int, may_have: Callable[[BatchSummary], bool]) -> Iterator[BatchEntry]:
        """Yield the batches ``seq … first``, the newest first, without the stretches that ``may_have`` rules out."""
        while seq >= first:
            start = seq - STRETCH + 1
            is_whole_stretch = start % STRETCH == 0 and start >= first and not self.in_memory(seq)
            if is_whole_stretch and not may_have(self.summary(start)):
                seq = start - 1
                continue
            yield self.entry(seq)
            seq -= 1

    def with_dead_letters(self, seq: int, latest: int, stream: str) -> Iterator[BatchEntry]:
        """Yield the batches ``seq … latest`` with dead letters of ``stream`` or of its replays."""
        while seq <= latest:
            is_whole_stretch = seq % STRETCH == 0 and seq + STRETCH <= latest and not self.in_memory(seq)
            if is_whole_stretch and stream not in self.summary(seq).streams_with_dead_letters:
                seq += STRETCH
                continue
            entry = self.entry(seq)
            if any(stream == origin_of(owner) for owner, _, _ in entry.dead_letters):
                yield entry
            seq += 1

    def summary(self, start: int) -> BatchSummary:
        """Return what occurs in batches ``start … start + STRETCH - 1``; all of them must be visible."""
        summary = self._summaries.get(start)
        if summary is None:
            entries = [self.entry(seq) for seq in range(start, start + STRETCH)]
            summary = self._summaries[start] = BatchSummary(
                entries[0].epoch,
                _bitset([block.slots for entry in entries for block in entry.blocks]),
                frozenset(origin_of(stream) for entry in entries for stream, _, _ in entry.dead_letters),
            )
        return summary

    def position(self, cursor: str, owner: str, latest: int) -> CursorPosition:
        """Read a cursor; MalformedRequest past batch ``latest``, Gone below the batches kept."""
        position = decode_cursor(cursor, owner)
        if position.seq < self.first:
            raise Gone(_gone(position.seq, self.first))
        if position > CursorPosition(latest + 1):
            raise MalformedRequest(
                f"A cursor must not point past the newest batch, {latest}; got {cursor!r}, which is at batch"
                f" {position.seq}."
            )
        return position

    def first_of_epoch(self, epoch: int, latest: int) -> int:
        """Return the first batch up to ``latest`` with an epoch of at least ``epoch``, else ``latest + 1``."""
        low, high = self.first, latest + 1
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).epoch >= epoch:
                high = middle
            else:
                low = middle + 1
        return low

    def forget(self, upto: int) -> None:
        """Make the batches up to and including ``upto`` invisible, before their files are removed."""
        self.first = max(self.first, upto + 1)
        for start in [start for start in self._summaries if start <= upto]:
            self._summaries.pop(start, None)

    def _read(self, seq: int) -> BatchEntry:
        try:
            return BatchEntry.from_record(self._log.read(seq))
        except FileNotFoundError:
            raise Gone(_gone(seq, self.first)) from None


def _bitset(slots: list[npt.NDArray[np.int32]]) -> int:
    if not slots:
        return 0
    all_slots = np.concatenate(slots)
    if not len(all_slots):
        return 0
    bits = np.zeros(int(all_slots.max()) + 1, bool)
    bits[all_slots] = True
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def _gone(seq: int, first: int) -> str:
    return (
        f"Results of batch {seq} have passed their retention; the oldest batch kept is {first}."
        " Leave the cursor out to read from there."
    )
