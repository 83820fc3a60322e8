"""Rows by Idempotency-Key on disk: in segments that are written once, with a digest of each key in memory."""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from sources.record_log import file_number
from sources.storage import Storage, not_read_back

SEGMENT_OUTCOMES = 500
COMPRESSION = 1

Row = list[Any]
"""``[key, fingerprint, at_us, …]``: JSON."""


@dataclass(frozen=True, slots=True)
class _Segment:
    newest_us: int
    digests: list[bytes]


class OutcomeSegments:
    """The segments of one folder; of the rows of a key the one added last is found. Safe for many threads."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._segment_of: dict[bytes, int] = {}
        self._segments: dict[int, _Segment] = {}
        self._next = 1
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read which keys are in which segments."""
        for number in sorted(file_number(name) for name in self._storage.names(self._folder)):
            self._index(number, self._read(number))
            self._next = number + 1

    def add(self, rows: Sequence[Row]) -> None:
        """Write rows, which are durable and found when this returns; for one caller at a time."""
        for begin in range(0, len(rows), SEGMENT_OUTCOMES):
            part = rows[begin : begin + SEGMENT_OUTCOMES]
            number, self._next = self._next, self._next + 1
            self._storage.put(self._path(number), zlib.compress(orjson.dumps(part), COMPRESSION))
            self._index(number, part)

    def find(self, key: str) -> Row | None:
        """Return the row of a key, which may have expired; None when there is none."""
        with self._lock:
            number = self._segment_of.get(_digest(key))
        if number is None:
            return None
        try:
            return next((row for row in reversed(self._read(number)) if row[0] == key), None)
        except FileNotFoundError:  # it has just expired
            return None

    def expire(self, before_us: int) -> None:
        """Remove the segments whose rows are all from ``before_us`` or before."""
        with self._lock:
            expired = [number for number, segment in self._segments.items() if segment.newest_us <= before_us]
            for number in expired:
                for digest in self._segments.pop(number).digests:
                    if self._segment_of.get(digest) == number:
                        del self._segment_of[digest]
        for number in expired:
            self._storage.delete(self._path(number))

    def _index(self, number: int, rows: Sequence[Row]) -> None:
        digests = [_digest(row[0]) for row in rows]
        with self._lock:
            self._segments[number] = _Segment(max(row[2] for row in rows), digests)
            self._segment_of.update(dict.fromkeys(digests, number))

    def _read(self, number: int) -> list[Row]:
        path = self._path(number)
        try:
            rows: list[Row] = orjson.loads(zlib.decompress(self._storage.get(path)))
        except (zlib.error, orjson.JSONDecodeError) as error:
            raise not_read_back(path, error) from error
        return rows

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json.zlib"


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=12).digest()
