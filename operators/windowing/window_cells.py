"""Rows of windows that are formed when somebody reads them: what cells hold, and which cells each query has.

Where many queries differ in the range of one column only, their windows have a row for each query and key, and hold far
fewer cells with tuples. Then it is these *entries* that are written, ordered by cell; a query's rows are sums over some
stretches of them (late materialization, which thesis 5.3.2 has for joins).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators.state.narrowing import narrow, widen
from braid.sources.core.columns import one_array

Places = npt.NDArray[np.int64]

IS_CELLS = b"cells"

_KEY = "_key"


@dataclass(frozen=True)
class WindowCells:
    """Windows of queries over the same slices: number i is that of ``slot[i]``, ``[start[i], end[i])`` (µs).

    It has ``count[i]`` rows: one for each key among its entries, with the sums of their numbers. These are ``entries``
    ``[first[j], after[j])`` for each run j with ``window[j] == i``; runs are ordered by window. The column ``_key`` of
    ``entries`` has rows of ``keys``, the others numbers of 64 bits, called as the measures that are their sums.
    """

    entries: pa.Table
    keys: pa.Table
    slot: Places
    start: Places
    end: Places
    count: Places
    window: Places
    first: Places
    after: Places

    @classmethod
    def of(
        cls,
        key: npt.NDArray[np.int32],
        numbers: Mapping[str, Places],
        keys: pa.Table,
        windows: Sequence[Places],
        runs: Sequence[Places],
    ) -> WindowCells:
        """Take entries, with their key and numbers, and windows and runs as the class has them."""
        return cls(pa.table({_KEY: key, **numbers}), keys, *windows, *runs)

    def __len__(self) -> int:
        return int(self.count.sum())

    @property
    def nbytes(self) -> int:
        """The memory that they take."""
        columns = (self.slot, self.start, self.end, self.count, self.window, self.first, self.after)
        return sum(column.nbytes for column in columns) + int(self.entries.nbytes + self.keys.nbytes)

    def formed(self, slot: int | None = None) -> Iterator[tuple[int, pa.Table]]:
        """Yield the windows of a slot, or all, by their number, each with its rows: keys and measures."""
        bounds = np.searchsorted(self.window, np.arange(len(self.slot) + 1)).tolist()
        windows = np.arange(len(self.slot)) if slot is None else np.flatnonzero(self.slot == slot)
        for window in windows.tolist():
            runs = slice(bounds[window], bounds[window + 1])
            spans = zip(self.first[runs].tolist(), self.after[runs].tolist(), strict=True)
            own = [self.entries.slice(first, after - first) for first, after in spans]
            yield window, self._summed(widen(pa.concat_tables(own or [self.entries.slice(0, 0)])))

    def _summed(self, entries: pa.Table) -> pa.Table:
        """Return a row for each key of some entries."""
        key = np.asarray(one_array(entries.column(_KEY)))
        entries_of = np.bincount(key)
        present = np.flatnonzero(entries_of)
        columns = dict(zip(self.keys.column_names, self.keys.take(pa.array(present)).columns, strict=True))
        for name in entries.column_names:
            if name != _KEY:
                sums = np.zeros(len(entries_of), dtype=np.int64)
                np.add.at(sums, key, np.asarray(one_array(entries.column(name))))
                columns[name] = pa.array(sums[present])
        return pa.table(columns)

    def write(self, file: pa.NativeFile) -> None:
        """Write them as four Arrow IPC streams after each other: windows, runs, keys, entries in few bytes."""
        windows = pa.table({"slot": self.slot, "start": self.start, "end": self.end, "rows": self.count})
        runs = pa.table({"window": self.window, "first": self.first, "after": self.after})
        for table in (windows.replace_schema_metadata({IS_CELLS: b""}), runs, self.keys, narrow(self.entries)):
            with pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table)

    @classmethod
    def read(cls, windows: pa.Table, source: pa.NativeFile) -> WindowCells:
        """Read what :meth:`write` wrote, the windows of which have been read."""
        runs, keys, entries = (pa.ipc.open_stream(source).read_all() for _ in range(3))
        columns = [np.asarray(one_array(column)) for table in (windows, runs) for column in table.columns]
        return cls(entries, keys, *columns)
