"""Rows that are formed when they are read, against the same rows formed when windows fire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.aggregation.due import WindowedQueries
from braid.operators.aggregation.firing import fire
from braid.operators.block_files import BlockFiles, BlockPart
from braid.operators.expressions import Column, Expression
from braid.operators.queries import Aggregation
from braid.operators.query_parts import AGGREGATION, COUNT_ALL, Measure
from braid.operators.windowing import fired_rows
from braid.operators.windowing.fired_block import FiredBlock
from braid.operators.windowing.reading import WindowReader
from braid.operators.windowing.window_cells import WindowCells
from braid.operators.windowing.window_rows import WindowRows
from braid.operators.windows import Window
from braid.sources.core.schema import BIGINT
from braid.sources.core.storage import Storage
from tests.kit.examples import examples
from tests.operators.pipeline import STREAM, K, V, aggregation, compare, live_of, predicate_of
from tests.operators.test_firing import buckets_of

WINDOWS = st.builds(Window, st.integers(1, 12), st.integers(1, 6), st.integers(0, 5))
PREDICATES = st.one_of(
    st.none(), st.builds(compare, st.just(V), st.sampled_from(["<", ">=", "=", "<>"]), st.integers(-3, 3))
)
SUMS = st.sampled_from([(COUNT_ALL,), (COUNT_ALL, Measure("sum", V)), (Measure("sum", K), Measure("count", V))])
EXTREMES = st.sampled_from([(COUNT_ALL, Measure("min", V)), (Measure("max", K), Measure("sum", V))])
NUMBERS = st.one_of(st.none(), st.integers(-4, 4))
TUPLES = st.fixed_dictionaries({"k": NUMBERS, "v": NUMBERS, "s": st.just(""), "t": st.integers(0, 60)})
KEYS = st.sampled_from([(K,), (), (K, V)])


def written(rows: WindowRows) -> WindowRows:
    """Return rows after they were written and read."""
    sink = pa.BufferOutputStream()
    rows.write(sink)
    return WindowRows.read(sink.getvalue())


def sorted_rows(table: pa.Table) -> list[str]:
    return sorted(str(sorted(row.items())) for row in table.to_pylist())


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(WINDOWS, PREDICATES, st.one_of(SUMS, EXTREMES)), min_size=1, max_size=6),
    KEYS,
    st.lists(st.lists(TUPLES, min_size=1, max_size=60), min_size=1, max_size=3),
)
def test_rows_formed_later_are_those_formed_at_once(
    queries: list[tuple[Window, Any, tuple[Measure, ...]]], keys: Any, batches: list[list[dict[str, Any]]]
) -> None:
    live = live_of(*(Aggregation(STREAM.id, window, where, keys, of, ()) for window, where, of in queries))
    buckets = buckets_of(live, STREAM, *batches)
    (members,) = live.by_operator(AGGREGATION, STREAM.id).values()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fired_rows, "_MIN_FORMED_LATER", 1)
        patch.setattr(fired_rows, "_ROWS_PER_ENTRY", 0)
        patch.setattr(fired_rows, "_MAX_ENTRIES_PER_ROW", 1000)
        later = fire(buckets, WindowedQueries(members, predicate_of), -20, 100, may_form_later=True)
    at_once = fire(buckets, WindowedQueries(members, predicate_of), -20, 100)
    if at_once is None or later is None:
        assert at_once is later
        return
    assert (later.slots, later.counts, later.windows) == (at_once.slots, at_once.counts, at_once.windows)
    assert list(later.latest_us) == list(at_once.latest_us)
    for rows in (later.rows, written(later.rows)):
        assert len(rows) == len(at_once.rows)
        for slot in at_once.slots:
            expected = at_once.rows.of_slot(slot).table()
            assert sorted_rows(rows.of_slot(slot).table().select(expected.column_names)) == sorted_rows(expected)


SUM = (COUNT_ALL, Measure("sum", V))


@pytest.mark.parametrize(
    ("queries", "measures", "having", "are_formed_later"),
    [
        (200, SUM, None, True),
        (2, SUM, None, False),
        (200, (COUNT_ALL, Measure("max", V)), None, False),
        (200, SUM, compare(Column("count(*)", BIGINT), ">=", 2), False),
    ],
)
def test_many_rows_that_are_sums_of_few_entries_are_formed_later(
    queries: int,
    measures: tuple[Measure, ...],
    having: Expression | None,
    are_formed_later: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fired_rows, "_MIN_FORMED_LATER", 50)
    wheres = [compare(V, ">=", number % 7) for number in range(queries)]
    live = live_of(*(Aggregation(STREAM.id, Window(100, 100), w, (K,), measures, (), having) for w in wheres))
    (members,) = live.by_operator(AGGREGATION, STREAM.id).values()
    rows = [{"k": number % 40, "v": number % 7, "s": "", "t": number % 100} for number in range(400)]
    buckets, windows = buckets_of(live, STREAM, rows), WindowedQueries(members, predicate_of)
    later, at_once = (fire(buckets, windows, -1, 100, may_form_later=may) for may in (True, False))
    assert later is not None
    assert at_once is not None
    assert [bool(fired.rows.cells) for fired in (later, at_once)] == [are_formed_later, False]
    if are_formed_later:
        assert written(later.rows).nbytes < written(at_once.rows).nbytes / 2


def test_pages_of_a_query_are_the_same_whenever_its_rows_are_formed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fired_rows, "_MIN_FORMED_LATER", 50)
    live = live_of(*(aggregation(compare(V, ">=", n % 7), (K,), Window(50, 50), SUM, shown=SUM) for n in range(200)))
    (members,) = live.by_operator(AGGREGATION, STREAM.id).values()
    rows = [{"k": number % 40, "v": number % 7, "s": "", "t": number % 100} for number in range(400)]
    buckets, windows = buckets_of(live, STREAM, rows), WindowedQueries(members, predicate_of)
    storage = Storage(str(tmp_path))
    pages = []
    for may_form_later in (True, False):
        fired = fire(buckets, windows, -1, 100, may_form_later=may_form_later)
        assert fired is not None
        entry = FiredBlock("operator", members, fired).write(storage, 1, {})
        parts = [BlockPart(entry["path"], entry["counts"][entry["slots"].index(3)])]
        reader = WindowReader(BlockFiles(storage))
        read = [reader.rows(members[3].query, 3, {}, parts, start, 30, None) for start in range(0, parts[0].count, 30)]
        pages.append([page.to_pylist() for page in read])
    assert pages[0] == pages[1]
    assert len(pages[0]) > 1


def test_a_key_of_several_stretches_has_one_row() -> None:
    key, numbers = np.array([0, 1, 0, 1, 0], dtype=np.int32), pa.array([1, 2, 4, 8, 16])
    window = [np.array([number]) for number in (3, 0, 10, 2)]
    runs = [np.array(numbers) for numbers in ([0, 0], [0, 3], [2, 5])]
    cells = WindowCells.of(key, {"n": numbers}, pa.table({"key0": ["a", "b"]}), window, runs)
    (row,) = [table.to_pydict() for _, table in cells.formed(3)]
    assert row == {"key0": ["a", "b"], "n": [17, 10]}
    assert list(cells.formed(4)) == []
