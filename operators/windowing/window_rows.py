"""Rows of windows, with what is the same in many of them said once: their query and their window.

With thousands of queries a second of a stream gives millions of rows; slot, start and end would be most of their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braid.operators.query_parts import WINDOW_END, WINDOW_START
from braid.operators.state.narrowing import narrow, widen
from braid.operators.windowing.window_cells import IS_CELLS, WindowCells
from braid.sources.core.columns import one_array

SLOT = "_slot"

_START, _END, _COUNT, _TABLE = "start", "end", "rows", "_table"

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WindowRows:
    """Rows in runs: the first ``count[0]`` are of ``slot[0]`` and its window ``[start[0], end[0])`` (µs), and so on.

    ``tables`` have the columns besides slot and window, which a row of a run has for itself: runs with the same columns
    share one, ``of[i]`` says which. A slot may have several runs, anywhere. Rows in ``cells`` are to be formed yet.
    """

    tables: Sequence[pa.Table]
    of: Places
    slot: Places
    start: Places
    end: Places
    count: Places
    cells: Sequence[WindowCells] = field(default=(), kw_only=True)

    @classmethod
    def of_cells(cls, cells: Sequence[WindowCells]) -> WindowRows:
        """Take rows that are to be formed yet."""
        return cls((), *(np.empty(0, dtype=np.int64) for _ in range(5)), cells=cells)

    @classmethod
    def of_one_table(cls, values: pa.Table, slot: Places, start: Places, end: Places, count: Places) -> WindowRows:
        """Take runs whose rows all lie in one table."""
        return cls((values,), np.zeros(len(slot), dtype=np.int64), slot, start, end, count)

    @classmethod
    def of_table(cls, table: pa.Table) -> WindowRows:
        """Take rows with the columns ``_slot``, ``window_start`` and ``window_end``."""
        slot = np.asarray(one_array(table.column(SLOT))).astype(np.int64)
        start, end = (np.asarray(one_array(table.column(name)).cast(pa.int64())) for name in (WINDOW_START, WINDOW_END))
        differs = (slot[1:] != slot[:-1]) | (start[1:] != start[:-1]) | (end[1:] != end[:-1])
        first = np.concatenate([[0], np.flatnonzero(differs) + 1]) if len(slot) else np.empty(0, dtype=np.int64)
        count = np.diff(first, append=len(slot))
        values = table.drop_columns([SLOT, WINDOW_START, WINDOW_END])
        return cls.of_one_table(values, slot[first], start[first], end[first], count)

    @classmethod
    def of_tables(cls, tables: Iterable[pa.Table]) -> WindowRows:
        """Take rows of several such tables; what one of them calls by a name may be of another type in the next."""
        by_schema: dict[str, list[pa.Table]] = {}
        for table in tables:
            by_schema.setdefault(table.schema.to_string(), []).append(table)
        return cls.concat([cls.of_table(pa.concat_tables(same_schema)) for same_schema in by_schema.values()])

    @classmethod
    def concat(cls, parts: Sequence[WindowRows]) -> WindowRows:
        """Return the rows of several after each other."""
        firsts = np.cumsum([0, *(len(part.tables) for part in parts)]).tolist()
        of = np.concatenate([part.of + first for part, first in zip(parts, firsts[:-1], strict=True)])
        columns = zip(*((p.slot, p.start, p.end, p.count) for p in parts), strict=True)
        return cls(
            [table for part in parts for table in part.tables],
            of,
            *(np.concatenate(column) for column in columns),
            cells=[cells for part in parts for cells in part.cells],
        )

    def __len__(self) -> int:
        return int(self.count.sum()) + sum(map(len, self.cells))

    @property
    def nbytes(self) -> int:
        """The memory that they take."""
        runs = (self.of, self.slot, self.start, self.end, self.count)
        return sum(part.nbytes for part in (*runs, *self.tables, *self.cells))

    def table(self) -> pa.Table:
        """Return the rows with all columns: ``_slot``, ``window_start``, ``window_end``, and those of ``tables``.

        A column that a row does not have is NULL there.
        """
        if self.cells:
            return self._formed(None).table()
        slot = np.repeat(self.slot.astype(np.int32), self.count)
        bounds = (pa.array(np.repeat(bound, self.count)).view(pa.timestamp("us")) for bound in (self.start, self.end))
        columns = dict(zip((SLOT, WINDOW_START, WINDOW_END), (pa.array(slot), *bounds), strict=True))
        # a table without columns would forget its length
        tables = [
            widen(table) if table.num_columns else pa.table({_TABLE: pa.nulls(length)})
            for table, length in zip(self.tables, self._lengths, strict=True)
        ]
        values = pa.concat_tables(tables, promote_options="default")
        return pa.table(columns | {name: values.column(name) for name in values.column_names if name != _TABLE})

    def _formed(self, slot: int | None) -> WindowRows:
        """Return the rows with those formed of a slot, or of all, that are to be formed yet."""
        formed = [
            WindowRows.of_one_table(table, *(c[[n]] for c in (cells.slot, cells.start, cells.end, cells.count)))
            for cells in self.cells
            for n, table in cells.formed(slot)
        ]
        return WindowRows.concat([replace(self, cells=()), *formed])

    def of_slot(self, slot: int) -> WindowRows:
        """Return the rows of one slot, by end and start of their window."""
        if self.cells:
            return self._formed(slot).of_slot(slot)
        first, after = np.searchsorted(self.slot[self._order], [slot, slot + 1]).tolist()
        runs = self._order[first:after]
        places = zip(self.of[runs].tolist(), self._begins[runs].tolist(), self.count[runs].tolist(), strict=True)
        tables: list[pa.Table] = []
        of: list[int] = []
        for table, in_table in groupby(places, itemgetter(0)):
            slices = [self.tables[table].slice(begin, count) for _, begin, count in in_table]
            of += [len(tables)] * len(slices)
            tables.append(widen(pa.concat_tables(slices)))
        columns_of_runs = (column[runs] for column in (self.slot, self.start, self.end, self.count))
        return WindowRows(tables or [pa.table({})], np.array(of, dtype=np.int64), *columns_of_runs)

    def windows(self, slots: Sequence[int]) -> list[int]:
        """Return for each of the slots in how many different windows it has rows."""
        parts = (self, *self.cells)
        slot, start, end, count = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("slot", "start", "end", "count")
        )
        order = np.lexsort((start, end, slot))
        has_rows = order[count[order] > 0]
        slot, start, end = (column[has_rows] for column in (slot, start, end))
        is_first = np.ones(len(slot), np.bool_)
        is_first[1:] = (slot[1:] != slot[:-1]) | (start[1:] != start[:-1]) | (end[1:] != end[:-1])
        windows_of_slots: list[int] = np.bincount(slot[is_first], minlength=max(slots, default=-1) + 1)[
            list(slots)
        ].tolist()
        return windows_of_slots

    def with_columns(self, columns_of: Callable[[int], dict[str, pa.Array]]) -> WindowRows:
        """Return the rows with more columns; ``columns_of`` gives these for so many rows, whichever they are."""
        return replace(
            self,
            tables=[
                pa.table(dict(zip(table.column_names, table.columns, strict=True)) | columns_of(length))
                for table, length in zip(self.tables, self._lengths, strict=True)
            ],
        )

    @cached_property
    def _lengths(self) -> list[int]:
        """How many rows each table has."""
        lengths = np.bincount(self.of, self.count, minlength=len(self.tables))
        return [int(length) for length in lengths]

    @cached_property
    def _order(self) -> Places:
        return np.lexsort((self.start, self.end, self.slot))

    @cached_property
    def _begins(self) -> Places:
        """Where in its table each run begins."""
        before = np.cumsum(self.count) - self.count
        _, first = np.unique(self.of, return_index=True)
        return before - np.repeat(before[first], np.diff([*first, len(before)]))

    def write(self, file: pa.NativeFile) -> None:
        """Write them as Arrow IPC streams after each other: the runs, each table, in few bytes; then ``cells``."""
        runs = pa.table({SLOT: self.slot, _START: self.start, _END: self.end, _COUNT: self.count, _TABLE: self.of})
        for table in (runs, *map(narrow, self.tables)):
            with pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table)
        for cells in self.cells:
            cells.write(file)

    @classmethod
    def read(cls, data: bytes | pa.Buffer) -> WindowRows:
        """Read what :meth:`write` wrote: numbers are not copied, and stay narrow until asked for."""
        source = pa.BufferReader(data)
        runs = pa.ipc.open_stream(source).read_all()
        of, *numbers = (np.asarray(one_array(runs.column(name))) for name in (_TABLE, SLOT, _START, _END, _COUNT))
        tables, cells = [], []
        while source.tell() < source.size():
            table = pa.ipc.open_stream(source).read_all()
            if IS_CELLS in (table.schema.metadata or {}):
                cells.append(WindowCells.read(table, source))
            else:
                tables.append(table)
        return cls(tables, of, *numbers, cells=cells)
