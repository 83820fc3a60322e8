"""In which segment the row of a key lies: sorted arrays of hashes, merged as they come, 12 bytes a key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_SLACK = 1000


@dataclass(frozen=True, eq=False)
class _Level:
    """Hashes of keys, ascending, each with the number of its segment."""

    hashes: npt.NDArray[np.int64]
    segments: npt.NDArray[np.int32]

    def find(self, key_hash: int) -> list[int]:
        """Return the segments of a hash."""
        first, end = np.searchsorted(self.hashes, [key_hash, key_hash + 1])
        numbers: list[int] = self.segments[first:end].tolist()
        return numbers


class KeyIndex:
    """Keys by segment; one thread at a time changes it, any may read.

    There are few levels, each more than twice as large as the next, so a look-up searches a handful of arrays.
    """

    def __init__(self) -> None:
        self._levels: tuple[_Level, ...] = ()
        self._counts: dict[int, int] = {}

    def __len__(self) -> int:
        """Return how many keys are indexed, also of segments that are gone."""
        return sum(len(level.hashes) for level in self._levels)

    def add(self, segment: int, keys: Sequence[str]) -> None:
        """Add the keys of a segment, whose number is above all others."""
        hashes = np.sort(np.array([_hash_of(key) for key in keys], np.int64))
        levels = [*self._levels, _Level(hashes, np.full(len(hashes), segment, np.int32))]
        self._counts[segment] = len(hashes)
        while len(levels) > 1 and len(levels[-2].hashes) <= 2 * len(levels[-1].hashes):
            last = levels.pop()
            levels[-1] = self._merged([levels[-1], last])
        self._levels = tuple(levels)

    def remove(self, segments: Iterable[int]) -> None:
        """Forget segments; the room of their keys is given back once it is half of all."""
        for segment in segments:
            self._counts.pop(segment, None)
        if len(self) > 2 * sum(self._counts.values()) + _SLACK:
            self._levels = (self._merged(self._levels),)

    def find(self, key: str) -> list[int]:
        """Return the segments that may hold a key, the newest first."""
        key_hash = _hash_of(key)
        found = {segment for level in self._levels for segment in level.find(key_hash)}
        return sorted(found & self._counts.keys(), reverse=True)

    def _merged(self, levels: Sequence[_Level]) -> _Level:
        hashes = np.concatenate([level.hashes for level in levels])
        segments = np.concatenate([level.segments for level in levels])
        is_kept = np.isin(segments, np.fromiter(self._counts, np.int32, len(self._counts)))
        hashes, segments = hashes[is_kept], segments[is_kept]
        order = np.argsort(hashes, kind="stable")
        return _Level(hashes[order], segments[order])


def _hash_of(key: str) -> int:
    """Return a hash of 63 bits: one more is another one."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1
