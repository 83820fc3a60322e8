"""Rows by Idempotency-Key on disk: in segments that are written once, with a hash of each key in memory."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from typing import Any

import orjson

from braid.session.log.key_index import KeyIndex
from braid.sources.core.record_log import file_number
from braid.sources.core.storage import Storage, not_read_back

SEGMENT_OUTCOMES = 500
COMPRESSION = 1

Row = list[Any]
"""``[key, fingerprint, at_us, …]``: JSON."""


class OutcomeSegments:
    """The segments of one folder; of the rows of a key the one added last is found. Safe for many threads."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._keys = KeyIndex()
        # by segment, when its newest row is of
        self._newest_us: dict[int, int] = {}
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
            numbers = self._keys.find(key)
        for number in numbers:
            try:
                rows = self._read(number)
            except FileNotFoundError:  # it has just expired
                continue
            if (found := next((row for row in reversed(rows) if row[0] == key), None)) is not None:
                return found
        return None

    def expire(self, before_us: int) -> None:
        """Remove the segments whose rows are all from ``before_us`` or before."""
        with self._lock:
            expired = [number for number, newest_us in self._newest_us.items() if newest_us <= before_us]
            for number in expired:
                del self._newest_us[number]
            if expired:
                self._keys.remove(expired)
        for number in expired:
            self._storage.delete(self._path(number))

    def _index(self, number: int, rows: Sequence[Row]) -> None:
        with self._lock:
            self._newest_us[number] = max(row[2] for row in rows)
            self._keys.add(number, [row[0] for row in rows])

    def _read(self, number: int) -> list[Row]:
        path = self._path(number)
        try:
            rows: list[Row] = orjson.loads(zlib.decompress(self._storage.get(path)))
        except (zlib.error, orjson.JSONDecodeError) as error:
            raise not_read_back(path, error) from error
        return rows

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json.zlib"
