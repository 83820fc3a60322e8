"""Key groups: which share of the keys a tuple's key belongs to.

The hash depends on the values alone, so all tasks and all batches agree. Spark places a row by the Murmur3 hash of its
grouping integer modulo the number of partitions, so the integers are chosen to land one key group in each partition.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]

_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)


def _mix(values: Hashes) -> Hashes:
    """Spread the bits (the finalizer of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hash_values(array: pa.Array) -> Hashes:
    """Hash values without NULLs."""
    kind = array.type
    if pa.types.is_floating(kind):
        return (np.asarray(array.cast(pa.float64())) + 0.0).view(np.uint64)
    if pa.types.is_timestamp(kind):
        return np.asarray(array.view(pa.int64())).view(np.uint64)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind):
        plain = array.view(pa.int32()) if pa.types.is_date32(kind) else array
        return np.asarray(plain.cast(pa.int64())).view(np.uint64)
    texts = array if pa.types.is_string(kind) else array.cast(pa.string())
    return pd.util.hash_array(np.asarray(texts.to_pandas(), dtype=object), categorize=False)


def key_groups(keys: Sequence[pa.Array], rows: int, count: int, salt: str) -> npt.NDArray[np.int64]:
    """Return the key group of each row, in ``[0, count)``; ``salt`` spreads operators without keys."""
    return (hash_keys(keys, rows, salt) % np.uint64(count)).astype(np.int64)


def hash_keys(keys: Sequence[pa.Array], rows: int, salt: str) -> Hashes:
    """Return a hash of each row, which decides about its key group; the same for equal keys of the same types."""
    return hash_rows([hash_column(array) for array in keys], rows, salt)


def hash_rows(columns: Sequence[Hashes], rows: int, salt: str) -> Hashes:
    """Return a hash of each row from those of its columns, as `hash_column` returns them."""
    hashes = np.full(rows, pd.util.hash_array(np.array([salt], dtype=object))[0], dtype=np.uint64)
    for column in columns:
        hashes = _mix(hashes ^ column)
    return hashes


def hash_column(array: pa.Array) -> Hashes:
    """Return a hash of each value, NULL included."""
    if not array.null_count:
        return _mix(_hash_values(array)) + _NULL_HASH
    column = np.full(len(array), _NULL_HASH, dtype=np.uint64)
    column[np.asarray(pc.is_valid(array))] = _hash_values(array.drop_null())
    return _mix(column) + _NULL_HASH


def _murmur3(value: int, seed: int = 42) -> int:
    """Return Spark's Murmur3 hash of a 32-bit integer, as a signed 32-bit integer."""

    def rotate(x: int, by: int) -> int:
        return ((x << by) | (x >> (32 - by))) & 0xFFFFFFFF

    k = rotate((value & 0xFFFFFFFF) * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    h = (rotate(seed ^ k, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= 4
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    h ^= h >> 16
    return h - 2**32 if h >= 2**31 else h


def spread_over_partitions(partitions: int) -> list[int]:
    """Return one grouping integer for each partition, so that Spark puts the i-th into partition i."""
    integer_of: dict[int, int] = {}
    candidate = 0
    while len(integer_of) < partitions:
        integer_of.setdefault(_murmur3(candidate) % partitions, candidate)
        candidate += 1
    return [integer_of[partition] for partition in range(partitions)]
