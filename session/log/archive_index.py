"""Where finished queries lie on disk: sorted arrays, merged as they come, 25 bytes a query.

There are few levels, each more than twice as large as the next: a new one is merged with the ones before it until that
holds. So adding costs little on average, and a look-up searches a handful of arrays however many queries there are.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RecordPlace:
    """A row of a segment."""

    segment: int
    row: int


@dataclass(frozen=True, eq=False)
class IndexLevel:
    """Queries in the order of their numbers, and the hashes of the names of those that have one, ascending."""

    numbers: Ints
    finished_us: Ints
    segments: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int32]
    states: npt.NDArray[np.uint8]
    names: Ints
    name_numbers: Ints
    """The number of the query that has each of ``names``."""

    @classmethod
    def of_segment(
        cls,
        segment: int,
        numbers: Sequence[int],
        finished_us: Sequence[int],
        states: Sequence[int],
        names: Sequence[str | None],
    ) -> IndexLevel:
        """Return the level of one segment, whose rows are given in the order of numbers."""
        hashes = [(hash_of(name), number) for name, number in zip(names, numbers, strict=True) if name is not None]
        hashes.sort()
        return cls(
            np.array(numbers, np.int64),
            np.array(finished_us, np.int64),
            np.full(len(numbers), segment, np.int32),
            np.arange(len(numbers), dtype=np.int32),
            np.array(states, np.uint8),
            np.array([name for name, _ in hashes], np.int64),
            np.array([number for _, number in hashes], np.int64),
        )

    @cached_property
    def newest_us(self) -> int:
        """When the last of them finished."""
        return int(self.finished_us.max(initial=0))

    def merged(self, other: IndexLevel, before_us: int) -> IndexLevel:
        """Return both as one, without those that finished at or before a time."""
        columns = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in _COLUMNS}
        order = np.argsort(columns["numbers"], kind="stable")
        order = order[columns["finished_us"][order] > before_us]
        columns = {name: column[order] for name, column in columns.items()}
        names = np.concatenate([self.names, other.names])
        name_numbers = np.concatenate([self.name_numbers, other.name_numbers])
        name_order = np.argsort(names, kind="stable")
        name_order = name_order[np.isin(name_numbers[name_order], columns["numbers"])]
        return IndexLevel(**columns, names=names[name_order], name_numbers=name_numbers[name_order])

    def at(self, number: int) -> int | None:
        """Return the position of a query, None when it is not in this level."""
        position = int(np.searchsorted(self.numbers, number))
        return position if position < len(self.numbers) and self.numbers[position] == number else None


_COLUMNS = ("numbers", "finished_us", "segments", "rows", "states")


class ArchiveIndex:
    """All queries in some segments; one thread changes it, any may read."""

    def __init__(self) -> None:
        self._levels: tuple[IndexLevel, ...] = ()
        self._before_us = 0

    def __len__(self) -> int:
        return sum(len(level.numbers) for level in self._levels)

    def add(self, level: IndexLevel) -> None:
        """Add the queries of a segment."""
        levels = [*self._levels, level]
        while len(levels) > 1 and len(levels[-2].numbers) <= 2 * len(levels[-1].numbers):
            last = levels.pop()
            levels[-1] = levels[-1].merged(last, self._before_us)
        self._levels = tuple(levels)

    def expire(self, before_us: int) -> None:
        """Forget the queries that finished at or before a time."""
        self._before_us = before_us
        if any(level.newest_us <= before_us for level in self._levels):
            self._levels = tuple(level for level in self._levels if level.newest_us > before_us)

    def counts(self, states: int) -> list[int]:
        """Return how many queries there are in each of some states, by their numbers."""
        counts = np.zeros(states, np.int64)
        for level in self._levels:
            counts += np.bincount(level.states[level.finished_us > self._before_us], minlength=states)
        return [int(count) for count in counts]

    def find(self, number: int) -> RecordPlace | None:
        """Return the place of a query, None when it is not in the index."""
        for level in reversed(self._levels):
            at = level.at(number)
            if at is not None:
                return self._place(level, at)
        return None

    def find_name(self, name: str) -> Iterator[RecordPlace]:
        """Yield the places of the queries that may have a name, newest first."""
        name_hash, numbers = hash_of(name), []
        for level in self._levels:
            low, high = np.searchsorted(level.names, name_hash), np.searchsorted(level.names, name_hash, side="right")
            numbers += level.name_numbers[low:high].tolist()
        for number in sorted(numbers, reverse=True):
            place = self.find(number)
            if place is not None:
                yield place

    def after(
        self, number: int, state: int | None = None, newest_first: bool = False
    ) -> Iterator[tuple[int, RecordPlace]]:
        """Yield number and place of the queries with a greater number, in order; of one ``state`` only, if not None.

        With ``newest_first`` those with a smaller number, the greatest first.
        """
        levels = (self._of_level(level, number, state, newest_first) for level in self._levels)
        return heapq.merge(*levels, key=_number_of, reverse=newest_first)

    def _of_level(
        self, level: IndexLevel, number: int, state: int | None, newest_first: bool
    ) -> Iterator[tuple[int, RecordPlace]]:
        if newest_first:
            places = range(int(np.searchsorted(level.numbers, number)) - 1, -1, -1)
        else:
            places = range(int(np.searchsorted(level.numbers, number, side="right")), len(level.numbers))
        for at in places:
            place = self._place(level, at)
            if place is not None and (state is None or state == level.states[at]):
                yield int(level.numbers[at]), place

    def _place(self, level: IndexLevel, at: int) -> RecordPlace | None:
        if level.finished_us[at] <= self._before_us:
            return None
        return RecordPlace(int(level.segments[at]), int(level.rows[at]))


def hash_of(name: str) -> int:
    """Return 64 bits of a name, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)


def _number_of(entry: tuple[int, RecordPlace]) -> int:
    return entry[0]
