"""Files that are damaged as long as a context lasts, and put back as they were."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

Damage = Callable[[bytes], bytes | None]
"""From what a file holds to what it holds then, None where it is gone."""


@dataclass(frozen=True)
class Damaged:
    """Files of a data folder, damaged as long as the context lasts."""

    files: Sequence[Path]
    damage: Damage

    def __enter__(self) -> None:
        self._whole.update({file: file.read_bytes() for file in self.files})
        for file, whole in self._whole.items():
            damaged = self.damage(whole)
            file.unlink()  # it may have links
            if damaged is not None:
                file.write_bytes(damaged)

    def __exit__(self, *_: object) -> None:
        for file, whole in self._whole.items():
            file.write_bytes(whole)

    @cached_property
    def _whole(self) -> dict[Path, bytes]:
        return {}


def flipped(data: bytes) -> bytes:
    """Return other bytes in the middle."""
    return _with_flipped_bit(data, 8 * (len(data) // 2))


def with_any_bit_flipped(rng: random.Random) -> Damage:
    """Return a damage that flips one bit, somewhere."""
    return lambda data: _with_flipped_bit(data, rng.randrange(8 * len(data)))


def removed(_: bytes) -> None:
    """Return None: the file is gone."""


def in_last_line(damage: Damage) -> Damage:
    """Return a damage of the last line only: where that is ours in a file of Spark's."""

    def damaged(data: bytes) -> bytes | None:
        begin = data.rindex(b"\n") + 1
        line = damage(data[begin:])
        return None if line is None else data[:begin] + line

    return damaged


def _with_flipped_bit(data: bytes, bit: int) -> bytes:
    at = bit // 8
    return data[:at] + bytes([data[at] ^ 1 << bit % 8]) + data[at + 1 :]
