"""Groups of windows that are not final yet: what was emitted of each, what waits to be emitted, and what it holds now.

A *group* is a window of a query with values of its keys. What was emitted and what waits are tables that a partition
keeps (:class:`Emitted`); :class:`EarlyGroups` lays them beside the rows of a batch, group by group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braid.operators.aggregation.shared_aggregation import aggregation_of
from braid.operators.expressions import columns_of
from braid.operators.live_queries import LiveQuery
from braid.operators.query_parts import COUNT_ALL, INSERT, OP, PTIME, RETRACT, VER, WINDOW_END, WINDOW_START
from braid.operators.sessions.sessions import chain
from braid.operators.state.keys import encode_keys, unite_keys
from braid.operators.windowing.fired_rows import Fired
from braid.operators.windowing.window_rows import SLOT, WindowRows
from braid.sources.core.columns import one_array

EPOCH, THERE, SINCE, NEWEST = "_epoch", "_there", "_since", "_newest"
NEVER = -(2**62)

Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Emitted:
    """What a partition remembers of the early rows of one operator.

    ``shown`` has a row for each group of an open window that was ever emitted: ``_slot``, ``_epoch`` (of the query's
    creation, for slots are used again), window, keys, the aggregates emitted last, ``_there`` (false once it was
    retracted) and ``_ver``, how many rows of it were emitted. ``waiting`` has the groups with a change that was not
    emitted, as they are now: instead of ``_ver`` it has ``_since``, the processing time (µs) of the first such change,
    and ``_newest``, the greatest event time behind it. A window that is final stays here while it waits.
    """

    shown: pa.Table | None = None
    waiting: pa.Table | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be remembered."""
        return not any(table is not None and table.num_rows for table in (self.shown, self.waiting))

    def serialize(self) -> bytes:
        """Return both tables as Arrow IPC streams after each other."""
        sink = pa.BufferOutputStream()
        for table in (self.shown, self.waiting):
            assert table is not None
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        return sink.getvalue().to_pybytes()

    @classmethod
    def deserialize(cls, data: bytes | pa.Buffer) -> Emitted:
        """Read what :meth:`serialize` wrote."""
        source = pa.BufferReader(data)
        return cls(*(pa.ipc.open_stream(source).read_all() for _ in range(2)))


class QueriesBySlot:
    """What the query of each slot asks for; the last place is for slots that no early query has."""

    def __init__(self, queries: Sequence[LiveQuery]) -> None:
        count = max(query.slot for query in queries) + 2
        self._last = count - 1
        self.epoch = np.full(count, -1, dtype=np.int64)
        self.until = np.full(count, NEVER, dtype=np.int64)
        self.delay = np.zeros(count, dtype=np.int64)
        self.stream = np.zeros(count, dtype=np.bool_)
        self.final = np.zeros(count, dtype=np.bool_)
        self.leaves = np.zeros(count, dtype=np.bool_)
        self.uses: dict[str, Bools] = {COUNT_ALL.name: np.zeros(count, dtype=np.bool_)}
        for live in queries:
            query, slot = aggregation_of(live), live.slot
            self.epoch[slot] = live.epoch
            self.until[slot] = live.until(query.stream)
            self.delay[slot] = query.emit.delay_us or 0
            self.stream[slot] = query.emit.stream
            self.final[slot] = query.emit.after_watermark
            self.leaves[slot] = live.active_to is not None
            shown = {name for output in query.outputs for name in columns_of(output.expression)}
            for measure in query.measures:
                if measure.name in shown:
                    self.uses.setdefault(measure.name, np.zeros(count, dtype=np.bool_))[slot] = True

    def place(self, slots: Numbers) -> Numbers:
        """Return where the arrays tell of each slot."""
        return np.minimum(slots, self._last)

    def alive(self, table: pa.Table) -> pa.Table:
        """Return the rows of queries that are there, and of windows that can still become final."""
        at = self.place(whole_numbers(table, SLOT))
        keep = (self.epoch[at] == whole_numbers(table, EPOCH)) & (whole_numbers(table, WINDOW_END) <= self.until[at])
        return table if keep.all() else table.filter(pa.array(keep))


@dataclass
class EarlyGroups:
    """All groups that were emitted, wait, or are there now, and where their rows are.

    ``table`` has slot, window and keys of each. ``_values`` has the aggregates of all rows: those emitted, those that
    wait, those that are there now. Rows are numbers into it, -1 for none.
    """

    emitted: Emitted
    fired: Fired | None
    by_slot: QueriesBySlot
    keys: list[str]
    table: pa.Table = field(init=False)

    def __post_init__(self) -> None:
        parts = [self.emitted.shown, self.emitted.waiting, None if self.fired is None else self.fired.table]
        template = next(part for part in reversed(parts) if part is not None)
        tables = [template.slice(0, 0) if part is None else part for part in parts]
        alive = [self.by_slot.alive(table) if table.num_rows and i < 2 else table for i, table in enumerate(tables)]
        self.forgot = any(a.num_rows != b.num_rows for a, b in zip(alive, tables, strict=True))
        names = [SLOT, WINDOW_START, WINDOW_END, *self.keys]
        self.table, (emitted_at, waits_at, now_at) = unite_keys(
            [pa.Table.from_arrays([table.column(name) for name in names], names=names) for table in alive]
        )
        self._values = pa.concat_tables(
            [table.select([name for name in table.column_names if name in self.by_slot.uses]) for table in alive],
            promote_options="default",
        ).combine_chunks()
        count = self.table.num_rows
        first = np.cumsum([0, *(table.num_rows for table in alive)])
        self.emitted_row, self._wait_row, self._now_row = (
            _placed(count, codes, np.arange(low, low + len(codes)), -1)
            for codes, low in zip((emitted_at, waits_at, now_at), first.tolist(), strict=False)
        )
        shown, waiting, _ = alive
        self.is_waiting: Bools = self._wait_row >= 0
        self.was_there: Bools = _placed(count, emitted_at, _extra(shown, THERE), 0).astype(np.bool_)
        self.ver = _placed(count, emitted_at, _extra(shown, VER), 0)
        self.since = _placed(count, waits_at, _extra(waiting, SINCE), 0)
        self.newest = _placed(count, waits_at, _extra(waiting, NEWEST), NEVER)
        self._wait_there: Bools = _placed(count, waits_at, _extra(waiting, THERE), 0).astype(np.bool_)

    def now(self, covered: Bools) -> tuple[Bools, Numbers, Bools]:
        """Return whether each group is there now, its row, and whether that is news since the batch before."""
        known_row = np.where(self.is_waiting, self._wait_row, self.emitted_row)
        known_there = np.where(self.is_waiting, self._wait_there, self.was_there)
        is_found = covered & (self._now_row >= 0)
        is_there: Bools = np.where(covered, is_found, known_there)
        counts = whole_numbers(self._values, COUNT_ALL.name)
        is_same = np.zeros(len(is_found), dtype=np.bool_)
        compared = np.flatnonzero(is_found & known_there)
        is_same[compared] = counts[self._now_row[compared]] == counts[known_row[compared]]
        changed: Bools = covered & ((is_there != known_there) | (is_found & ~is_same))
        return is_there, np.where(is_found & ~is_same, self._now_row, known_row), changed

    def over_sessions(self, function: np.ufunc, numbers: Numbers) -> Numbers:
        """Reduce numbers over what was one session and what it is now, so that it changes as a whole.

        A session only grows, so the windows that it had lie within the one that it has.
        """
        if not len(numbers):
            return numbers
        columns = [one_array(self.table.column(name)) for name in (SLOT, *self.keys)]
        key = encode_keys(columns, len(numbers), 1, "").codes.astype(np.int64)
        number, _ = chain(key, whole_numbers(self.table, WINDOW_START), whole_numbers(self.table, WINDOW_END), 0)
        order = np.argsort(number, kind="stable")
        starts = np.searchsorted(number[order], np.arange(number.max() + 1))
        reduced: Numbers = function.reduceat(numbers[order], starts)
        return reduced[number]

    def differ(self, by_slot: QueriesBySlot, at: Numbers, row: Numbers, other_row: Numbers) -> Bools:
        """Return whether two rows of a group differ in an aggregate that its query shows."""
        differs = np.zeros(len(at), dtype=np.bool_)
        for name in self._values.column_names:
            undecided = np.flatnonzero(by_slot.uses[name][at] & ~differs)
            if len(undecided):
                column = one_array(self._values.column(name))
                values, other_values = (column.take(pa.array(rows[undecided])) for rows in (row, other_row))
                differs[undecided] = _differ(values, other_values)
        return differs

    def table_of(self, is_chosen: Bools, row: Numbers, extra: Mapping[str, npt.NDArray[Any]]) -> pa.Table:
        """Return some groups with the aggregates of their rows, and further numbers."""
        at = np.flatnonzero(is_chosen)
        table = self._joined(at, row[at])
        for name, numbers in extra.items():
            table = table.append_column(name, pa.array(numbers[at]))
        return table

    def rows(
        self,
        kinds: Sequence[tuple[Bools, Numbers, Numbers]],
        order: tuple[Numbers, Numbers, Numbers],
        newest: Numbers,
        now_us: int,
    ) -> Fired | None:
        """Return the rows to emit; ``kinds`` are retractions and insertions: which groups, their rows and versions."""
        parts = [np.flatnonzero(is_chosen) for is_chosen, _, _ in kinds]
        at = np.concatenate(parts)
        if not len(at):
            return None
        row = np.concatenate([rows[part] for part, (_, rows, _) in zip(parts, kinds, strict=True)])
        ver = np.concatenate([vers[part] for part, (_, _, vers) in zip(parts, kinds, strict=True)])
        retracts = np.arange(len(at)) < len(parts[0])
        slot, start, end = (numbers[at] for numbers in order)
        by_window = np.lexsort((ver, at, start, end, slot))
        at, row, slot = at[by_window], row[by_window], slot[by_window]
        table = self._joined(at, row)
        for name, values in changelog_columns(retracts[by_window], ver[by_window], now_us).items():
            table = table.append_column(name, values)
        slots, first, counts = np.unique(slot, return_index=True, return_counts=True)
        latest = np.maximum.reduceat(newest[at], first).tolist()
        return Fired(
            WindowRows.of_table(table), slots.tolist(), counts.tolist(), [None if us == NEVER else us for us in latest]
        )

    def _joined(self, at: Numbers, row: Numbers) -> pa.Table:
        """Return some groups, each with the aggregates of a row."""
        groups = self.table.take(pa.array(at))
        values = self._values.take(pa.array(row))
        columns = {name: groups.column(name) for name in groups.column_names}
        return pa.table(columns | {name: values.column(name) for name in values.column_names})


def changelog_columns(retracts: Bools, ver: Numbers, now_us: int) -> dict[str, pa.Array]:
    """Return the columns that say of rows what kind of change each is: a retraction or an insertion, when and which."""
    return {
        OP: pc.if_else(pa.array(retracts), RETRACT, INSERT),
        PTIME: pa.array(np.full(len(ver), now_us, dtype=np.int64)).view(pa.timestamp("us")),
        VER: pa.array(ver),
    }


def _differ(left: pa.Array, right: pa.Array) -> Bools:
    """Return where values differ; NULL equals NULL, and NaN equals NaN."""
    differs = pc.fill_null(pc.not_equal(left, right), pc.not_equal(left.is_null(), right.is_null()))
    if pa.types.is_floating(left.type):
        nan = pc.and_(pc.is_nan(left), pc.is_nan(right))
        differs = pc.and_not(differs, pc.fill_null(nan, False))
    result: Bools = np.asarray(differs)
    return result


def _placed(count: int, at: npt.NDArray[Any], values: npt.NDArray[Any], otherwise: int) -> Numbers:
    placed = np.full(count, otherwise, dtype=np.int64)
    placed[at] = values
    return placed


def whole_numbers(table: pa.Table, name: str) -> Numbers:
    """Return a column of whole numbers or times, without NULL."""
    column = one_array(table.column(name))
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    return np.asarray(column).astype(np.int64)


def _extra(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """Return a column that a table without rows may not have."""
    return np.asarray(one_array(table.column(name))) if table.num_rows else np.zeros(0, dtype=np.int64)
