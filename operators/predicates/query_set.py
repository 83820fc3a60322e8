"""Query-sets in the data plane: rows of little-endian uint64 words, bit s of a row = the query in slot s.

Thesis 4.2.1.1. Arrays have shape (rows, words); a row covers ``64 * words`` slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

QuerySets = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

COLUMN = "_query_set"
_WORDS = b"words"


def words_for(capacity: int) -> int:
    """Return how many words hold ``capacity`` slots; at least one."""
    return max(1, -(-capacity // 64))


def pack(bits: Bools, words: int) -> QuerySets:
    """Pack booleans of shape (rows, slots) into query-sets of shape (rows, words)."""
    rows, slots = bits.shape
    padded = np.zeros((rows, words * 64), dtype=np.bool_)
    padded[:, :slots] = bits
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def unpack(query_sets: QuerySets, slots: npt.NDArray[np.int64]) -> Bools:
    """Return booleans of shape (rows, len(slots)): whether each row's query-set has each of the slots."""
    words = query_sets.shape[1]
    is_covered = slots < words * 64
    covered = np.where(is_covered, slots, 0)
    bits = (query_sets[:, covered // 64] >> (covered % 64).astype(np.uint64)) & np.uint64(1)
    return bits.astype(np.bool_) & is_covered


def of_slots(slots: npt.NDArray[np.int64], words: int) -> QuerySets:
    """Return the query-set of some slots, without those that so many words do not cover; shape (words,)."""
    bits = np.zeros((1, words * 64), dtype=np.bool_)
    bits[0, slots[slots < words * 64]] = True
    return pack(bits, words)[0]


def singletons(count: int) -> QuerySets:
    """Return, for each of ``count`` slots, the query-set of that slot alone."""
    return pack(np.eye(count, dtype=np.bool_), words_for(count))


def not_empty(query_sets: QuerySets | Bools) -> Bools:
    """Return for each row whether it has any slot; shape (rows,)."""
    return np.asarray(np.any(query_sets, axis=1), dtype=np.bool_)


def distinct(query_sets: QuerySets) -> tuple[QuerySets, npt.NDArray[np.int32]]:
    """Return each query-set that occurs once, and for each row the number of its own, shape (rows,)."""
    encoded = to_arrow(query_sets).dictionary_encode()
    return from_arrow(encoded.dictionary), np.asarray(encoded.indices)


def as_column(query_sets: QuerySets, words: Sequence[int]) -> tuple[pa.Field, pa.FixedSizeBinaryArray]:
    """Return some words of query-sets as a column of a block, whose metadata says which words these are."""
    values = to_arrow(query_sets)
    numbers = ",".join(map(str, words)).encode()
    return pa.field(COLUMN, values.type, nullable=False, metadata={_WORDS: numbers}), values


def column_of_slot(block: pa.Table, slot: int) -> Iterator[QuerySets]:
    """Yield, for each chunk of a block, the word of each row that has the bit of a slot; none where no row has it."""
    field = block.schema.field(COLUMN)
    numbers = (field.metadata or {}).get(_WORDS)  # an earlier version wrote all words
    words = list(range(field.type.byte_width // 8)) if numbers is None else [int(n) for n in numbers.split(b",")]
    if slot // 64 in words:
        at = words.index(slot // 64)
        for chunk in block.column(COLUMN).chunks:
            yield from_arrow(chunk)[:, at]


def to_arrow(query_sets: QuerySets) -> pa.FixedSizeBinaryArray:
    """Return the query-sets as Arrow fixed-size binary, 8 bytes a word."""
    rows, words = query_sets.shape
    buffer = pa.py_buffer(np.ascontiguousarray(query_sets).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(8 * words), rows, [None, buffer])


def from_arrow(array: pa.FixedSizeBinaryArray) -> QuerySets:
    """Read what :func:`to_arrow` made, without copying."""
    width = array.type.byte_width
    data = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    start = array.offset * width
    return data[start : start + len(array) * width].view(np.uint64).reshape(len(array), width // 8)
