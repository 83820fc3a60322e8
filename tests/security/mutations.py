"""Bytes made from good ones by a number: damaged anywhere, or where a format keeps its offsets, lengths and sizes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

_EDGES = (0, 1, 2, 3, 7, 8, 12, 13, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 1000, 65535, 65536, 100_000)
_NUMBERS = (*_EDGES, *(2**bits + step for bits in (31, 32, 33, 40, 62, 63) for step in (-1, 0, 1)))
_MAGIC = b"\xff\xff\xff\xff"  # begins each message of an Arrow stream


def mutated(seeds: Sequence[bytes], random: Random) -> bytes:
    """Return one of ``seeds`` with one to five changes."""
    data = bytearray(random.choice(seeds))
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
        random.choice(_CHANGES)(data, seeds, random)
    return bytes(data)


def _number(random: Random) -> int:
    value = random.choice(_NUMBERS)
    return -value if random.random() < 0.3 else value


def _flip(data: bytearray, seeds: Sequence[bytes], random: Random) -> None:  # noqa: ARG001
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set(data: bytearray, seeds: Sequence[bytes], random: Random) -> None:  # noqa: ARG001
    if data:
        data[random.randrange(len(data))] = random.choice((0, 1, 2, 10, 34, 44, 91, 123, 127, 128, 254, 255))


def _put_number(data: bytearray, seeds: Sequence[bytes], random: Random) -> None:  # noqa: ARG001
    """Write a number over some bytes, mostly where numbers lie: at multiples of their size."""
    _overwrite(data, 0, len(data), random)


def _overwrite(data: bytearray, low: int, high: int, random: Random) -> None:
    form = random.choice("bhiiqqq")
    size = struct.calcsize(form)
    if high - low < size:
        return
    place = random.randrange(low, high - size + 1)
    if random.random() < 0.8:
        place = max(place // size * size, low)
    value = _number(random)
    if random.random() < 0.4:  # a little more or less than it was
        value = struct.unpack_from(f"<{form}", data, place)[0] + random.choice((-8, -1, 1, 8))
    bits = 8 * size
    struct.pack_into(f"<{form}", data, place, (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1))


def _put_in_message(data: bytearray, seeds: Sequence[bytes], random: Random) -> None:
    """Write a number into the metadata of an Arrow message, or at the beginning of one of its buffers."""
    begins = [i for i in range(0, len(data) - 8, 8) if data[i : i + 4] == _MAGIC]
    if not begins:
        return _put_number(data, seeds, random)
    begin = random.choice(begins)
    end = begin + 8 + max(int.from_bytes(data[begin + 4 : begin + 8], "little", signed=True), 0)
    if random.random() < 0.5:
        _overwrite(data, begin + 8, min(end, len(data)), random)
    else:
        following = min((other for other in begins if other > begin), default=len(data))
        buffers = list(range(end, following, 64)) or [end]
        place = random.choice(buffers)
        _overwrite(data, min(place, len(data)), min(place + 48, len(data)), random)
    return None


def _cut(data: bytearray, seeds: Sequence[bytes], random: Random) -> None:  # noqa: ARG001
    del data[random.randrange(len(data) + 1) :]


def _remove(data: bytearray, seeds: Sequence[bytes], random: Random) -> None:  # noqa: ARG001
    place = random.randrange(len(data) + 1)
    del data[place : place + random.choice((1, 2, 4, 8, 16, 64))]


def _repeat(data: bytearray, seeds: Sequence[bytes], random: Random) -> None:  # noqa: ARG001
    place, length = random.randrange(len(data) + 1), random.choice((1, 2, 8, 64, 500))
    data[place:place] = bytes(data[place : place + length]) * random.choice((1, 2, 50, 500))


def _splice(data: bytearray, seeds: Sequence[bytes], random: Random) -> None:
    other = random.choice(seeds)
    place, begin = random.randrange(len(data) + 1), random.randrange(len(other) + 1)
    length = random.choice((4, 8, 64, 256, len(other)))
    piece = other[begin : begin + length]
    data[place : place + (len(piece) if random.random() < 0.5 else 0)] = piece


_Change = Callable[[bytearray, Sequence[bytes], Random], None]
_CHANGES: tuple[_Change, ...] = (
    *(_flip, _set, _put_number, _put_number, _put_in_message, _put_in_message, _put_in_message),
    *(_cut, _remove, _repeat, _splice),
)
