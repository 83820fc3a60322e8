"""Tuples of joins, written once per chunk however many operators index them and blocks refer to them (thesis 5.3.2).

Each partition that reads a file has a link to it, and so has each partition and batch with blocks that refer to it;
whoever has a link removes that one only, and the file system keeps the tuples as long as there is any.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from threading import Lock
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.sources.core.columns import one_array
from braid.sources.core.storage import not_read_back

TIME = "_time"


class TupleFile:
    """Tuples of one input: columns by name, and :data:`TIME`, their event times (µs, int64).

    ``path`` is empty for tuples in memory. A file is read, and checked, when its tuples are first asked for, and again
    after they were released.
    """

    def __init__(self, path: str, read: Callable[[], pa.Table]) -> None:
        self.path = path
        self._read = read

    @classmethod
    def in_memory(cls, table: pa.Table) -> TupleFile:
        """Return tuples that are in memory."""
        return cls("", lambda: table)

    @cached_property
    def table(self) -> pa.Table:
        """All columns; CorruptData where the file has been removed, or is damaged."""
        return self._read()

    def release(self) -> None:
        """Take no memory until the tuples are asked for again."""
        self.__dict__.pop("table", None)

    @property
    def times(self) -> npt.NDArray[np.int64]:
        """The event times (µs)."""
        times: npt.NDArray[np.int64] = np.asarray(one_array(self.table.column(TIME)))
        return times

    def column(self, name: str) -> pa.Array | None:
        """Return a column, None where the tuples are older than the queries that need it."""
        return one_array(self.table.column(name)) if name in self.table.column_names else None


class TupleFiles:
    """Files of tuples by path, each read once for all that hold it; safe between threads.

    ``read`` gives the bytes of a path. They are read rather than mapped: a file that is cut under a map would end the
    process.
    """

    def __init__(self, read: Callable[[str], pa.Buffer]) -> None:
        self._read = read
        self._known: WeakValueDictionary[str, TupleFile] = WeakValueDictionary()
        self._in_memory: dict[str, int] = {}
        self._lock = Lock()

    def at(self, path: str) -> TupleFile:
        """Return the file at ``path``."""
        with self._lock:
            file = self._known.get(path)
            if file is None:
                file = self._known[path] = TupleFile(path, lambda: self._open(path))
            return file

    def release_beyond(self, kept_bytes: int) -> None:
        """Keep ``kept_bytes`` of tuples in memory; of others, the ones read first, files are read again when needed."""
        with self._lock:
            self._in_memory = {path: size for path, size in self._in_memory.items() if path in self._known}
            beyond = sum(self._in_memory.values()) - kept_bytes
            for path, size in list(self._in_memory.items()):
                if beyond <= 0:
                    break
                file = self._known.get(path)
                if file is not None:
                    file.release()
                del self._in_memory[path]
                beyond -= size

    def _open(self, path: str) -> pa.Table:
        data = self._read(path)
        try:
            table = pa.ipc.open_file(data).read_all()
        except pa.ArrowInvalid as error:
            raise not_read_back(path, error) from error
        with self._lock:
            self._in_memory[path] = data.size
        return table
