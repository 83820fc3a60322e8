"""A log of numbered JSON records: one file each, written by one process, read by any.

The changelog log, the batch log and the log of deliveries are such logs, and the request log where the data directory
is not local. Their records never change; the index of a stream of files writes its last one anew. Numbers start at 1
and have no gaps, except that old records may have been trimmed away at the front.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from braid.sources.core.storage import Storage, not_read_back


class RecordLog:
    """The records of one folder, named ``000000000001.json`` and up."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._latest: int | None = None
        self._trimmed: int | None = None

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"

    def numbers(self) -> list[int]:
        """Return the numbers of all records kept, ascending."""
        return [file_number(name) for name in self._storage.names(self._folder) if name.endswith(".json")]

    def latest(self) -> int:
        """Return the number of the newest record, 0 when there is none; cheap when asked again."""
        if self._latest is None:
            self._latest = max(self.numbers(), default=0)
        while self._storage.exists(self._path(self._latest + 1)):
            self._latest += 1
        return self._latest

    def has(self, number: int) -> bool:
        """Whether record ``number`` is kept."""
        return self._storage.exists(self._path(number))

    def read(self, number: int) -> dict[str, Any]:
        """Return record ``number``; FileNotFoundError when it is not kept, CorruptData when it is damaged."""
        record: dict[str, Any] = self._storage.get_json(self._path(number))
        return record

    def needed(self, number: int) -> dict[str, Any]:
        """Return record ``number``, without which nobody can go on; CorruptData also when it is not kept."""
        try:
            return self.read(number)
        except FileNotFoundError as error:
            raise not_read_back(self._path(number), "it is missing") from error

    def after(self, number: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield ``(number, record)`` for every kept record after ``number``, in order."""
        for n in self.numbers_after(number):
            yield n, self.read(n)

    def numbers_after(self, number: int) -> range:
        """Return the numbers of the kept records after ``number``; cheap unless the next one was trimmed."""
        latest, begin = self.latest(), number + 1
        if begin <= latest and not self.has(begin):
            begin = max(begin, min(self.numbers(), default=latest + 1))
        return range(begin, latest + 1)

    def append(self, number: int, record: dict[str, Any]) -> None:
        """Write record ``number``; it is durable when the call returns."""
        self._storage.put_json(self._path(number), record)

    def trim(self, upto: int) -> None:
        """Remove the records up to and including ``upto``; it costs what is removed, except the first time."""
        if self._trimmed is None:
            self._trimmed = min(self.numbers(), default=upto + 1) - 1
        for number in range(self._trimmed + 1, upto + 1):
            self._storage.delete(self._path(number))
            self._trimmed = number


def file_number(name: str) -> int:
    """Return the number that a file is named by, in twelve digits."""
    return int(name[:12])
