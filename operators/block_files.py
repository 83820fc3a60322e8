"""Result blocks as files: opened once for all readers, checked when they are read.

Results are written once for all queries (thesis 4.3.1.6; the copy per query happens when somebody reads). Blocks never
change, so what is derived from one (the rows of a slot, the order of a batch) is kept in small caches, and a page out
of the middle of a large block costs a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators.state.tuple_files import TupleFiles
from braid.sources.core.errors import CorruptData
from braid.sources.core.least_recently_used import LeastRecentlyUsed
from braid.sources.core.storage import Storage

BLOCK_BYTES = 512 << 20
ROW_INDEX_BYTES = 64 << 20

Rows = npt.NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True)
class BlockPart:
    """The ``count`` rows that a query has in the block at ``path``."""

    path: str
    count: int


class BlockFiles:
    """Keeps as many blocks as take ``block_bytes``, and row numbers that take ``row_index_bytes``.

    Files are read rather than mapped: one that is cut under a map would end the process. ``tuples`` reads those that
    blocks of joins refer to.
    """

    def __init__(
        self, storage: Storage, block_bytes: int = BLOCK_BYTES, row_index_bytes: int = ROW_INDEX_BYTES
    ) -> None:
        self._storage = storage
        self._blocks: LeastRecentlyUsed[Any] = LeastRecentlyUsed(block_bytes, lambda block: block.nbytes)
        self._rows: LeastRecentlyUsed[Rows] = LeastRecentlyUsed(row_index_bytes, lambda rows: rows.nbytes)
        self.tuples = TupleFiles(partial(read_block, storage))

    def open(self, path: str, parse: Callable[[pa.Buffer], T]) -> T:
        """Return the block at ``path``; CorruptData when it is not there, or damaged."""
        block: T = self._blocks.get(path, lambda: parsed(self._storage, path, parse))
        return block

    def rows(self, key: Hashable, find: Callable[[], Rows]) -> Rows:
        """Return row numbers that are found once for each ``key``."""
        return self._rows.get(key, find)

    def forget(self, path: str) -> None:
        """Close the block at ``path``, whose file is being removed."""
        self._blocks.discard(path)


def read_table(storage: Storage, path: str) -> pa.Table:
    """Read the Arrow IPC file at ``path``; CorruptData when it is not there, or damaged."""
    return parsed(storage, path, as_table)


def as_table(data: pa.Buffer) -> pa.Table:
    """Return the table in an Arrow IPC file."""
    return pa.ipc.open_file(data).read_all()


def parsed(storage: Storage, path: str, parse: Callable[[pa.Buffer], T]) -> T:
    """Return what ``parse`` makes of a file of the result log; CorruptData when it is not there, or damaged."""
    data = read_block(storage, path)
    try:
        return parse(data)
    except pa.ArrowInvalid as error:
        raise lost(path, error) from error


def read_block(storage: Storage, path: str) -> pa.Buffer:
    """Read a file of the result log; CorruptData when it is not there, or damaged."""
    try:
        return storage.read(path)
    except (FileNotFoundError, CorruptData) as error:
        raise lost(path, "it is missing" if isinstance(error, OSError) else "its bytes are others") from error


def check_count(part: BlockPart, slot: int, count: int) -> None:
    """Raise CorruptData unless a block has the rows of a slot that its batch record says."""
    if count != part.count:
        raise lost(part.path, f"its batch record says that slot {slot} has {part.count} rows, and it has {count}")


def lost(path: str, why: object) -> CorruptData:
    """Return the error of a block that does not hold what it should."""
    return CorruptData(f"The file {path} must hold what was written; it does not: {why}.")
