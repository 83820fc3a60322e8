"""Groups of windows that are not final: what was emitted of each beside what it holds now."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from braid.operators.expressions import Column
from braid.operators.live_queries import LiveQuery
from braid.operators.queries import Aggregation
from braid.operators.query_parts import COUNT_ALL, VER, WINDOW_END, WINDOW_START, Measure, Output
from braid.operators.windowing.early_groups import EPOCH, NEWEST, SINCE, THERE, EarlyGroups, Emitted, QueriesBySlot
from braid.operators.windowing.fired_rows import Fired
from braid.operators.windowing.window_rows import SLOT, WindowRows
from braid.operators.windows import Emit, Window
from braid.sources.core.schema import BIGINT, DOUBLE, TIMESTAMP

EPOCH_OF_QUERY = 3
MEASURE, HIDDEN = Measure("min", Column("price", DOUBLE)), Measure("max", Column("price", DOUBLE))
SHOWN = (Output("low", Column(MEASURE.name, DOUBLE)), Output("start", Column(WINDOW_START, TIMESTAMP)))

Row = tuple[int, int, int, float | None]
"""The slot, the end of the window (it begins 10 earlier), how many tuples, and the measure; the maximum is 9."""


def query(slot: int, active_to: int | None = None) -> LiveQuery:
    aggregation = Aggregation(
        "s-1", Window(10, 10), None, (Column("k", BIGINT),), (MEASURE, HIDDEN), SHOWN, emit=Emit(True, False, 5)
    )
    ends = None if active_to is None else {"s-1": active_to}
    return LiveQuery(f"q-{slot}", slot, EPOCH_OF_QUERY, "o", aggregation, {"s-1": None}, ends)


def table(rows: list[Row], **extra: Any) -> pa.Table:
    """Return rows of key 7 as tables have them, the extra columns of one value each."""
    slot, end, count, measure = zip(*rows, strict=True)
    moments = [pa.array(column, pa.int64()).cast(pa.timestamp("us")) for column in ([us - 10 for us in end], end)]
    columns = {
        SLOT: pa.array(slot, pa.int32()),
        WINDOW_START: moments[0],
        WINDOW_END: moments[1],
        "key0": pa.array([7] * len(rows), pa.int64()),
        COUNT_ALL.name: pa.array(count, pa.int64()),
        MEASURE.name: pa.array(measure, pa.float64()),
        HIDDEN.name: pa.array([9.0] * len(rows)),
    }
    return pa.table(columns | {name: pa.array([value] * len(rows)) for name, value in extra.items()})


def told_of(rows: list[Row], **extra: Any) -> pa.Table:
    return table(rows, **{EPOCH: EPOCH_OF_QUERY, THERE: True, VER: 1} | extra)


def waiting_of(rows: list[Row]) -> pa.Table:
    return table(rows, **{EPOCH: EPOCH_OF_QUERY, THERE: True, SINCE: 40, NEWEST: 8})


def fired_of(rows: list[Row]) -> Fired:
    slots = sorted({row[0] for row in rows})
    counts = [sum(row[0] == slot for row in rows) for slot in slots]
    return Fired(WindowRows.of_table(table(rows)), slots, counts, [None] * len(slots))


def groups_of(emitted: Emitted, fired: Fired | None, *queries: LiveQuery) -> EarlyGroups:
    return EarlyGroups(emitted, fired, QueriesBySlot(queries or (query(0), query(2))), ["key0"])


def test_what_is_told_is_read_as_it_was_written() -> None:
    emitted = Emitted(told_of([(0, 10, 2, 1.5)]), waiting_of([(2, 20, 1, None)]))
    again = Emitted.deserialize(emitted.serialize())
    assert again == emitted
    assert not again.is_empty
    assert Emitted(told_of([(0, 10, 2, 1.5)]).slice(0, 0), None).is_empty


def test_rows_of_one_group_lie_side_by_side() -> None:
    emitted = Emitted(told_of([(0, 10, 2, 1.5), (2, 10, 2, 2.5)]), waiting_of([(2, 10, 3, 2.0)]))
    groups = groups_of(emitted, fired_of([(0, 20, 1, 8.0), (2, 10, 4, 1.0)]))
    by_group = {
        (slot, end.microsecond): number
        for number, (slot, end) in enumerate(
            zip(groups.table[SLOT].to_pylist(), groups.table[WINDOW_END].to_pylist(), strict=True)
        )
    }
    assert sorted(by_group) == [(0, 10), (0, 20), (2, 10)]
    old, new, waiting = (by_group[group] for group in ((0, 10), (0, 20), (2, 10)))
    assert groups.was_there[[old, new, waiting]].tolist() == [True, False, True]
    assert groups.is_waiting[[old, new, waiting]].tolist() == [False, False, True]
    assert (groups.since[waiting], groups.newest[waiting], groups.ver[old]) == (40, 8, 1)
    is_there, row, changed = groups.now(np.ones(3, dtype=np.bool_))
    assert is_there[[old, new, waiting]].tolist() == [False, True, True]
    assert changed.all()
    rows = groups.table_of(is_there, row, {})
    assert sorted(rows[COUNT_ALL.name].to_pylist()) == [1, 4]


def test_a_group_with_as_many_tuples_as_before_has_not_changed() -> None:
    groups = groups_of(
        Emitted(told_of([(0, 10, 2, 1.5), (2, 10, 2, 2.5)])), fired_of([(0, 10, 2, 1.5), (2, 10, 3, 2.5)])
    )
    _, _, changed = groups.now(np.ones(2, dtype=np.bool_))
    slots = groups.table[SLOT].to_pylist()
    assert dict(zip(slots, changed.tolist(), strict=True)) == {0: False, 2: True}


def test_a_group_that_is_not_covered_is_as_it_was() -> None:
    groups = groups_of(Emitted(told_of([(0, 10, 2, 1.5)])), None)
    is_there, row, changed = groups.now(np.zeros(1, dtype=np.bool_))
    assert (is_there.tolist(), changed.tolist()) == ([True], [False])
    assert row.tolist() == groups.emitted_row.tolist()


@pytest.mark.parametrize(
    ("before", "now", "differs"),
    [
        (1.5, 1.5, False),
        (1.5, 2.5, True),
        (None, 1.5, True),
        (1.5, None, True),
        (None, None, False),
        (math.nan, math.nan, False),
        (math.nan, 1.5, True),
    ],
)
def test_groups_differ_in_what_their_query_shows(before: float | None, now: float | None, differs: bool) -> None:
    groups = groups_of(Emitted(told_of([(0, 10, 2, before)])), fired_of([(0, 10, 3, now)]))
    _, row, _ = groups.now(np.ones(1, dtype=np.bool_))
    at = groups.by_slot.place(np.zeros(1, dtype=np.int64))
    assert groups.differ(groups.by_slot, at, groups.emitted_row, row).tolist() == [differs]
    assert not groups.by_slot.uses.get(HIDDEN.name, np.zeros(1)).any()


@pytest.mark.parametrize(
    ("live", "extra"),
    [
        pytest.param(query(0), {EPOCH: EPOCH_OF_QUERY - 1}, id="the slot was another query's"),
        pytest.param(query(1), {}, id="no early query has the slot"),
        pytest.param(query(0, active_to=9), {}, id="the query ends before the window does"),
    ],
)
def test_rows_that_nobody_will_ask_for_are_forgotten(live: LiveQuery, extra: dict[str, int]) -> None:
    groups = groups_of(Emitted(told_of([(0, 10, 2, 1.5)], **extra)), fired_of([(1, 20, 1, 8.0)]), live)
    assert groups.forgot
    assert groups.table[SLOT].to_pylist() == [1]


def test_retractions_come_before_insertions_of_their_group_and_slots_ascend() -> None:
    groups = groups_of(
        Emitted(told_of([(2, 10, 2, 2.5), (0, 10, 2, 1.5)])), fired_of([(0, 10, 3, 1.0), (2, 10, 3, 2.0)])
    )
    everything = np.ones(2, dtype=np.bool_)
    _, row, _ = groups.now(everything)
    order = tuple(
        np.asarray(groups.table[name].combine_chunks().cast(pa.int64())) for name in (SLOT, WINDOW_START, WINDOW_END)
    )
    fired = groups.rows(
        [(everything, groups.emitted_row, groups.ver), (everything, row, groups.ver + 1)],
        (order[0], order[1], order[2]),
        np.array([5, 5]),
        1_000,
    )
    assert fired is not None
    assert (fired.slots, fired.counts, list(fired.latest_us)) == ([0, 2], [2, 2], [5, 5])
    emitted = [tuple(row.values()) for row in fired.table.select([SLOT, "_op", MEASURE.name, VER]).to_pylist()]
    assert emitted == [
        (0, "retract", 1.5, 1),
        (0, "insert", 1.0, 2),
        (2, "retract", 2.5, 1),
        (2, "insert", 2.0, 2),
    ]
