"""A stream's shared operators: who gets a tuple at the borders of active_from and active_to, and failures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from braid.operators import tuples as tuples_module
from braid.operators.evaluation import evaluate
from braid.operators.expressions import Call, Literal
from braid.operators.queries import Query, Selection
from braid.operators.query_parts import Measure, Output
from braid.operators.selection.source import Selected
from braid.operators.state import components
from braid.operators.stream_operators import StreamOperators
from braid.operators.windows import Window
from braid.sources.core.schema import BOOLEAN, INT, NULL
from braid.sources.core.storage import Storage
from tests.operators.pipeline import (
    STREAM,
    K,
    Pipeline,
    S,
    T,
    V,
    aggregation,
    batch_of,
    changelog,
    compare,
    live_of,
)

pytestmark = pytest.mark.usefixtures("some_alone")


def selection(where: Any = None) -> Selection:
    return Selection(STREAM.id, where, (Output("t", T),))


def row(t: int, k: int = 0) -> dict[str, Any]:
    return {"k": k, "v": 1, "s": "a", "t": t}


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(Storage(str(tmp_path)))


def times(pipeline: Pipeline, name: str) -> list[int]:
    return [r[0] for r in pipeline.rows.get(name, [])]


def windows(pipeline: Pipeline, name: str) -> list[tuple[int, int, int]]:
    return [(start, end, count) for start, end, _, count, *_ in pipeline.rows.get(name, [])]


def test_a_tuple_at_active_from_is_not_seen_one_after_it_is(pipeline: Pipeline) -> None:
    pipeline.run([row(100)], [changelog(1, [("old", 0, selection())])])
    pipeline.run([row(99), row(100), row(101)], [changelog(2, [("new", 1, selection())])])
    assert times(pipeline, "new") == [101]
    assert times(pipeline, "old") == [100, 99, 100, 101]


def test_a_tuple_at_the_watermark_is_not_late(pipeline: Pipeline) -> None:
    pipeline.run([row(100)], [changelog(1, [("q", 0, selection())])])
    assert pipeline.watermark == 85
    pipeline.run([row(84), row(85)])
    assert times(pipeline, "q") == [100, 85]


def test_a_tuple_at_active_to_is_seen_one_after_it_is_not(pipeline: Pipeline) -> None:
    pipeline.run([row(100)], [changelog(1, [("q", 0, selection())])])
    pipeline.run([row(100), row(101)], [changelog(2, [], [("q", 0)])])
    pipeline.run([row(90), row(100)])
    assert times(pipeline, "q") == [100, 100, 90, 100]


def test_windows_that_end_after_active_to_are_never_emitted(pipeline: Pipeline) -> None:
    queries: list[tuple[str, int, Query]] = [
        ("exact", 0, aggregation(window=Window(10, 10))),
        ("inside", 1, aggregation(window=Window(10, 10, 5))),
    ]
    pipeline.run([row(20)], [changelog(1, queries)])
    pipeline.run([row(19), row(21)], [changelog(2, [], [("exact", 0), ("inside", 1)])])
    pipeline.run([row(18), row(1000)])
    assert windows(pipeline, "exact") == [(10, 20, 2)], "its end is active_to, 20"
    assert windows(pipeline, "inside") == [], "[15, 25) ends after active_to"


def test_before_the_first_tuple_all_is_seen_and_deleted_before_it_nothing(pipeline: Pipeline) -> None:
    pipeline.run([], [changelog(1, [("a", 0, aggregation()), ("b", 1, aggregation())])])
    pipeline.run([], [changelog(2, [], [("b", 1)])])
    pipeline.run([row(-7), row(3)])
    pipeline.run([row(100)])
    assert windows(pipeline, "a") == [(-10, 0, 1), (0, 10, 1)]
    assert windows(pipeline, "b") == []


@pytest.mark.parametrize("drain", [True, False])
def test_created_and_deleted_in_the_same_batch_sees_nothing(pipeline: Pipeline, drain: bool) -> None:
    pipeline.run([row(1)], [changelog(1)])
    gone = [] if drain else [("a", 0), ("s", 1)]
    created: list[tuple[str, int, Query]] = [("a", 0, aggregation()), ("s", 1, selection())]
    pipeline.run([row(1), row(2)], [changelog(2, created), changelog(3, [], [("a", 0), ("s", 1)], gone)])
    pipeline.run([row(1000)])
    assert pipeline.rows == {}


def test_a_slot_that_changes_hands_twice_in_one_batch(pipeline: Pipeline) -> None:
    pipeline.run([row(1)], [changelog(1, [("a", 0, aggregation())])])
    changes = [
        changelog(2, [("b", 0, aggregation())], [("a", 0)], [("a", 0)]),
        changelog(3, [("c", 0, aggregation())], [("b", 0)], [("b", 0)]),
    ]
    pipeline.run([row(1), row(2)], changes)
    pipeline.run([row(1000)])
    assert set(pipeline.rows) == {"c"}
    assert windows(pipeline, "c") == [(0, 10, 1)]


def test_old_slices_serve_only_the_windows_they_were_cut_for(pipeline: Pipeline) -> None:
    """A window that comes later cuts elsewhere; what was cut before it is not its own, and fits the old ones still."""
    pipeline.run([row(t) for t in range(12)], [changelog(1, [("old", 0, aggregation(window=Window(20, 10)))])])
    finer = aggregation(window=Window(9, 3, 1))
    pipeline.run([row(t) for t in range(8, 25)], [changelog(2, [("new", 1, finer)])])
    pipeline.run([row(1000)])
    assert windows(pipeline, "old") == [(-10, 10, 12), (0, 20, 24), (10, 30, 17), (20, 40, 5)]
    expected = [(s, s + 9, sum(s <= t < s + 9 for t in range(12, 25))) for s in range(4, 25, 3)]
    assert windows(pipeline, "new") == expected


def test_the_window_of_a_draining_query_still_cuts_slices(pipeline: Pipeline) -> None:
    odd = aggregation(window=Window(7, 7))
    pipeline.run([row(20)], [changelog(1, [("odd", 0, odd), ("even", 1, aggregation())])])
    pipeline.run([row(14), row(20), row(22)], [changelog(2, [], [("odd", 0)])])
    pipeline.run([row(13), row(15), row(19)])
    pipeline.run([row(1000)])
    assert windows(pipeline, "odd") == [(7, 14, 1)], "[14, 21) ends after active_to, 20"
    assert windows(pipeline, "even") == [(10, 20, 4), (20, 30, 3)]


def test_hopping_windows_with_gaps_leave_out_what_lies_between(pipeline: Pipeline) -> None:
    pipeline.run([row(t) for t in range(12)], [changelog(1, [("q", 0, aggregation(window=Window(2, 5)))])])
    pipeline.run([row(1000)])
    assert windows(pipeline, "q") == [(0, 2, 2), (5, 7, 2), (10, 12, 2)]


def test_no_queries_no_work() -> None:
    output = StreamOperators(live_of(), STREAM, 2).process(batch_of([row(1)]), None)
    assert (output.blocks, output.buckets, output.failures) == ([], [], {})
    output = StreamOperators(live_of(aggregation()), STREAM, 2).process(batch_of([]), None)
    assert output.buckets == []


def test_the_literal_null_selects_nothing_and_harms_nobody() -> None:
    live = live_of(selection(Literal(None, NULL)), selection(compare(K, "=", 0)))
    output = StreamOperators(live, STREAM, 1).process(batch_of([row(1)]), None)
    (selected,) = output.blocks
    assert isinstance(selected, Selected)
    assert selected.query_sets.tolist() == [[0b10]]
    assert output.failures == {}


def test_a_block_of_selected_tuples_has_the_columns_that_outputs_need() -> None:
    live = live_of(Selection(STREAM.id, None, (Output("x", Call("+", (K, K), INT)),)), selection(compare(K, ">", 0)))
    output = StreamOperators(live, STREAM, 1).process(batch_of([row(1), row(2, k=1)]), None)
    (selected,) = output.blocks
    assert isinstance(selected, Selected)
    assert selected.latest_us == 2
    assert selected.table.column_names == ["k", "t", "_query_set"]
    constant = live_of(Selection(STREAM.id, None, (Output("one", Literal(1, INT)),)))
    output = StreamOperators(constant, STREAM, 1).process(batch_of([row(1), row(2)]), None)
    (selected,) = output.blocks
    assert isinstance(selected, Selected)
    assert selected.table.num_rows == 2


def test_an_expression_that_raises_fails_its_queries_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluation is not meant to raise; a function that does stands for a bug in one."""
    bad = Call("=", (Call("abs", (K,), INT), Literal(1, INT)), BOOLEAN)

    def evaluate_or_raise(expression: Any, columns: Any, length: int) -> pa.Array:
        if str(expression) == str(bad):
            raise RuntimeError("broken")
        return evaluate(expression, columns, length)

    monkeypatch.setattr(tuples_module, "evaluate", evaluate_or_raise)
    live = live_of(selection(bad), selection(compare(K, "=", 0)), aggregation(bad), aggregation(None, (bad,)))
    output = StreamOperators(live, STREAM, 1).process(batch_of([row(1)]), None)
    assert output.failures == dict.fromkeys(["q0", "q2", "q3"], "RuntimeError: broken")
    (selected,) = output.blocks
    assert isinstance(selected, Selected)
    assert selected.query_sets.tolist() == [[0b10]]


def test_key_groups_share_out_all_tuples() -> None:
    live = live_of(aggregation(None, (S, V)), aggregation(compare(V, ">", 3), (S, V)))
    live.by_slot = {slot: replace(query, is_alone=False) for slot, query in live.by_slot.items()}
    rows = [{"k": 0, "v": i, "s": "abc"[i % 3], "t": i} for i in range(60)]
    output = StreamOperators(live, STREAM, 4).process(batch_of(rows), None)
    assert {group for group, _ in output.buckets} == {0, 1, 2, 3}
    counts: dict[tuple[str, ...], int] = {}
    for _, bucket in output.buckets:
        found = int(bucket.components["count(*)"].sum())
        dimensions = bucket.space.dimensions
        counts[dimensions] = counts.get(dimensions, 0) + found
    assert counts == {(): 60, ("v",): 56}


def test_what_tuples_add_to_a_measure_is_encoded_once_for_all_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    total, spread = Measure("sum", V), Measure("stddev_samp", V)
    by_key, by_text = aggregation(keys=(K,), measures=(total,)), aggregation(keys=(S,), measures=(total, spread))
    operators = StreamOperators(live_of(by_key, by_text), STREAM, 2)
    assert operators.width == 8 + 3 * 16 + 2 * 8, "a sum, the three pairs of a deviation, and two keys"
    encoded: list[str] = []
    encode = components.encode

    def counting(measure: Measure, column: pa.Array) -> components.Encoded:
        encoded.append(measure.name)
        return encode(measure, column)

    monkeypatch.setattr(components, "encode", counting)
    output = operators.process(batch_of([row(1), row(2, 1), row(3)]), None)
    assert sorted(encoded) == sorted([total.name, spread.name])
    assert {bucket.operator for _, bucket in output.buckets} == {"k", "s"}
