"""The latest entries of a record that never ends, numbered from its beginning."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedLog(Generic[T]):
    """Entries 0, 1, 2, …, of which the oldest are forgotten so that the weights of those kept stay within `capacity`.

    The newest is kept whatever its weight. Not safe for several threads: its owner locks.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: deque[tuple[T, int]] = deque()
        self._weight = 0
        self._next = 0

    def append(self, entry: T, weight: int = 1) -> None:
        """Add an entry, and forget old ones as needed."""
        self._entries.append((entry, weight))
        self._weight += weight
        self._next += 1
        while self._weight > self._capacity and len(self._entries) > 1:
            self._weight -= self._entries.popleft()[1]

    def since(self, number: int) -> tuple[list[T], int]:
        """Return the entries from `number` on that are still kept, and the number that the next one will get."""
        skip = max(0, number - (self._next - len(self._entries)))
        return [entry for entry, _ in islice(self._entries, skip, None)], self._next
