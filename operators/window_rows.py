"""Rows of windows, with what is the same in many of them said once: their query and their window.

With thousands of queries a second of a stream gives millions of rows; slot, start and end would be most of their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.queries import WINDOW_END, WINDOW_START

SLOT = "_slot"

_START, _END, _COUNT = "start", "end", "rows"

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WindowRows:
    """Rows in runs: the first ``count[0]`` are of ``slot[0]`` and its window ``[start[0], end[0])`` (µs), and so on.

    ``values`` has the columns besides slot and window, which a row of a run has for itself. A slot may have several
    runs, anywhere.
    """

    values: pa.Table
    slot: Places
    start: Places
    end: Places
    count: Places

    @classmethod
    def of(cls, table: pa.Table) -> WindowRows:
        """Take rows with the columns ``_slot``, ``window_start`` and ``window_end``."""
        slot = np.asarray(table.column(SLOT).combine_chunks()).astype(np.int64)
        start, end = (
            np.asarray(table.column(name).combine_chunks().cast(pa.int64())) for name in (WINDOW_START, WINDOW_END)
        )
        differs = (slot[1:] != slot[:-1]) | (start[1:] != start[:-1]) | (end[1:] != end[:-1])
        first = np.concatenate([[0], np.flatnonzero(differs) + 1]) if len(slot) else np.empty(0, dtype=np.int64)
        count = np.diff(first, append=len(slot))
        return cls(table.drop_columns([SLOT, WINDOW_START, WINDOW_END]), slot[first], start[first], end[first], count)

    @classmethod
    def concat(cls, parts: Sequence[WindowRows]) -> WindowRows:
        """Return the rows of several after each other; columns that one does not have are NULL there."""
        if len(parts) == 1:
            return parts[0]
        slot, start, end, count = (
            np.concatenate(arrays) for arrays in zip(*((p.slot, p.start, p.end, p.count) for p in parts), strict=True)
        )
        values = pa.concat_tables([part.values for part in parts], promote_options="default")
        return cls(values, slot, start, end, count)

    def __len__(self) -> int:
        return int(self.count.sum())

    def table(self) -> pa.Table:
        """Return the rows with all columns: ``_slot``, ``window_start``, ``window_end``, and those of ``values``."""
        slot = np.repeat(self.slot.astype(np.int32), self.count)
        bounds = (pa.array(np.repeat(each, self.count)).view(pa.timestamp("us")) for each in (self.start, self.end))
        columns = dict(zip((SLOT, WINDOW_START, WINDOW_END), (pa.array(slot), *bounds), strict=True))
        return pa.table(columns | {name: self.values.column(name) for name in self.values.column_names})

    def of_slot(self, slot: int) -> WindowRows:
        """Return the rows of one slot, by end and start of their window; nothing is copied."""
        first, after = np.searchsorted(self.slot[self._order], [slot, slot + 1]).tolist()
        runs = self._order[first:after]
        stretches = zip(self._begins[runs].tolist(), self.count[runs].tolist(), strict=True)
        values = [self.values.slice(begin, count) for begin, count in stretches] or [self.values.slice(0, 0)]
        return WindowRows(
            pa.concat_tables(values), *(each[runs] for each in (self.slot, self.start, self.end, self.count))
        )

    @cached_property
    def _order(self) -> Places:
        return np.lexsort((self.start, self.end, self.slot))

    @cached_property
    def _begins(self) -> Places:
        return np.cumsum(self.count) - self.count

    def write(self, file: pa.NativeFile) -> None:
        """Write them as two Arrow IPC streams after each other: the runs, the values."""
        runs = pa.table({SLOT: self.slot, _START: self.start, _END: self.end, _COUNT: self.count})
        for table in (runs, self.values):
            with pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table)

    @classmethod
    def read(cls, data: bytes | pa.Buffer) -> WindowRows:
        """Read what :meth:`write` wrote; numbers are not copied."""
        source = pa.BufferReader(data)
        runs, values = (pa.ipc.open_stream(source).read_all() for _ in range(2))
        slot, start, end, count = (
            np.asarray(runs.column(name).combine_chunks()) for name in (SLOT, _START, _END, _COUNT)
        )
        return cls(values, slot, start, end, count)
