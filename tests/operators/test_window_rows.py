"""Rows of windows in runs: any order of runs is the same rows, and a slot's come by their window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.query_parts import WINDOW_END, WINDOW_START
from braid.operators.windowing.window_rows import SLOT, WindowRows

# slot, start, end and how many rows
Runs = list[tuple[int, int, int, int]]
RUNS = st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 3), st.integers(4, 6), st.integers(1, 3)), max_size=12)


def rows_of(runs: Runs) -> list[dict[str, Any]]:
    """Return the rows of runs, each with a number of its own."""
    spread = [run[:3] for run in runs for _ in range(run[3])]
    return [{SLOT: slot, WINDOW_START: start, WINDOW_END: end, "n": n} for n, (slot, start, end) in enumerate(spread)]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    moment = pa.timestamp("us")
    schema = {SLOT: pa.int32(), WINDOW_START: moment, WINDOW_END: moment, "n": pa.int64()}
    return pa.Table.from_pylist(rows, schema=pa.schema(list(schema.items())))


def row_of(slot: int) -> dict[str, Any]:
    return {SLOT: slot, WINDOW_START: 0, WINDOW_END: 5, "n": 7}


@given(RUNS, RUNS, st.booleans())
def test_runs_are_rows_and_back(first: Runs, second: Runs, differ: bool) -> None:
    first_table, second_table = table_of(rows_of(first)), table_of(rows_of(second))
    if differ:
        second_table = second_table.rename_columns({"n": "m"})
    rows = WindowRows.concat([WindowRows.of_table(first_table), WindowRows.of_table(second_table)])
    sink = pa.BufferOutputStream()
    rows.write(sink)
    for window_rows in (rows, WindowRows.read(sink.getvalue())):
        assert len(window_rows) == first_table.num_rows + second_table.num_rows
        assert window_rows.table() == pa.concat_tables([first_table, second_table], promote_options="default")
        for slot in range(5):
            slot_rows = [
                row | {"n": row.get("n"), "m": row.get("m")} for row in window_rows.of_slot(slot).table().to_pylist()
            ]
            all_rows = [row for part in (first_table, second_table) for row in part.to_pylist() if row[SLOT] == slot]
            expected = [row | {"n": row.get("n"), "m": row.get("m")} for row in all_rows]
            assert slot_rows == sorted(expected, key=lambda row: (row[WINDOW_END], row[WINDOW_START]))


@given(RUNS, RUNS)
def test_rows_without_columns_keep_their_number(first: Runs, second: Runs) -> None:
    bare, full = table_of(rows_of(first)).drop_columns(["n"]), table_of(rows_of(second))
    rows = WindowRows.concat([WindowRows.of_table(bare), WindowRows.of_table(full)])
    assert rows.table() == pa.concat_tables([bare, full], promote_options="default")


@given(RUNS, RUNS)
def test_windows_of_a_slot_are_counted_once(first: Runs, second: Runs) -> None:
    rows = WindowRows.concat([WindowRows.of_table(table_of(rows_of(runs))) for runs in (first, second)])
    windows = {run[:3] for run in (*first, *second)}
    slots = sorted({slot for slot, _, _ in windows})
    assert rows.windows(slots) == [sum(slot == of for of, _, _ in windows) for slot in slots]


def test_columns_of_one_name_may_differ_in_their_types() -> None:
    numbers, text = table_of([row_of(0), row_of(1)]), table_of([row_of(2)])
    text = text.set_column(text.schema.get_field_index("n"), "n", pa.array(["seven"]))
    rows = WindowRows.of_tables([numbers, text, table_of([row_of(0)])])
    assert len(rows) == 4
    assert [row["n"] for row in rows.of_slot(0).table().to_pylist()] == [7, 7]
    assert rows.of_slot(2).table().column("n").to_pylist() == ["seven"]


@given(RUNS, st.integers(1, 3))
def test_columns_can_be_added(runs: Runs, times: int) -> None:
    table = table_of(rows_of(runs))
    rows = WindowRows.concat([WindowRows.of_table(table)] * times).with_columns(lambda n: {"x": pa.array([7] * n)})
    assert rows.table().column("x").to_pylist() == [7] * times * table.num_rows


@given(RUNS, st.integers(0, 5))
def test_a_slots_rows_come_by_their_window(runs: Runs, slot: int) -> None:
    table = table_of(rows_of(runs))
    slot_rows = [row for row in table.to_pylist() if row[SLOT] == slot]
    expected = sorted(slot_rows, key=lambda row: (row[WINDOW_END], row[WINDOW_START], row["n"]))
    assert WindowRows.of_table(table).of_slot(slot).table().to_pylist() == expected


def test_numbers_are_written_in_as_few_bytes_as_they_need() -> None:
    numbers = pa.table({"n": pa.chunked_array([list(range(1000, 1100)), list(range(1200, 1256))] * 10)})
    (count,) = numbers.shape[:1]
    rows = WindowRows.of_one_table(numbers, *(np.array([number]) for number in (3, 0, 5, count)))
    sink = pa.BufferOutputStream()
    rows.write(sink)
    overhead = pa.BufferOutputStream()
    WindowRows.of_one_table(numbers.slice(0, 0), *(np.array([number]) for number in (3, 0, 5, 0))).write(overhead)
    assert len(sink.getvalue()) - len(overhead.getvalue()) < 2 * count
    assert WindowRows.read(sink.getvalue()).of_slot(3).table().column("n").equals(numbers.column("n"))
