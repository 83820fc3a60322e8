"""Windows added up many at once, against the same windows added up one end after the other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.aggregation.due import WindowedQueries
from braid.operators.aggregation.due_slices import DueSlices
from braid.operators.aggregation.firing import fire
from braid.operators.event_times import EARLIEST
from braid.operators.queries import Aggregation
from braid.operators.query_parts import AGGREGATION, COUNT_ALL, Measure
from braid.operators.windows import Window
from tests.kit.examples import examples
from tests.operators.pipeline import STREAM, K, S, T, V, compare, live_of, predicate_of
from tests.operators.test_firing import buckets_of

WINDOWS = st.builds(Window, st.integers(1, 12), st.integers(1, 6), st.integers(0, 5))
PREDICATES = st.one_of(
    st.none(), st.builds(compare, st.sampled_from([V, K]), st.sampled_from(["<", ">=", "="]), st.integers(-3, 3))
)
MEASURES = (COUNT_ALL, Measure("sum", V), Measure("min", V), Measure("max", S), Measure("max", T))
NUMBERS = st.one_of(st.none(), st.integers(-4, 4))
TUPLES = st.fixed_dictionaries(
    {"k": NUMBERS, "v": NUMBERS, "s": st.sampled_from([None, "", "a", "b"]), "t": st.integers(0, 400)}
)


def sorted_rows(rows: Any) -> list[str]:
    return [] if rows is None else sorted(map(str, rows.table.to_pylist()))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(WINDOWS, PREDICATES), min_size=1, max_size=4),
    st.lists(st.lists(TUPLES, min_size=1, max_size=60), min_size=1, max_size=3),
    st.tuples(st.integers(-20, 400), st.integers(0, 450)),
)
def test_windows_added_up_at_once_have_the_rows_and_newest_times_that_they_have_one_by_one(
    queries: list[tuple[Window, Any]], batches: list[list[dict[str, Any]]], span: tuple[int, int]
) -> None:
    live = live_of(*(Aggregation(STREAM.id, window, where, (K,), MEASURES, ()) for window, where in queries))
    buckets = buckets_of(live, STREAM, *batches)
    (members,) = live.by_operator(AGGREGATION, STREAM.id).values()
    after, upto = min(span), max(span)
    found = {}
    for is_at_once in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if is_at_once:
                patch.setattr("braid.operators.aggregation.due_slices._ENDING_US", 1e9)
            else:
                patch.setattr(DueSlices, "blocks", lambda *_: None)
            found[is_at_once] = fire(buckets, WindowedQueries(members, predicate_of), after, upto)
    at_once, one_by_one = found[True], found[False]
    assert sorted_rows(at_once) == sorted_rows(one_by_one)
    if at_once is not None and one_by_one is not None:
        assert (at_once.slots, at_once.counts, at_once.windows) == (
            one_by_one.slots, one_by_one.counts, one_by_one.windows
        )  # fmt: skip


def test_the_newest_time_of_a_window_is_that_of_its_own_slices() -> None:
    live = live_of(Aggregation(STREAM.id, Window(10, 10), None, (), (COUNT_ALL,), ()))
    rows = [{"k": 1, "v": 1, "s": "", "t": time} for time in (3, 12, 17, 38)]
    (members,) = live.by_operator(AGGREGATION, STREAM.id).values()
    found = fire(buckets_of(live, STREAM, rows), WindowedQueries(members, predicate_of), EARLIEST, 30)
    assert found is not None
    assert (found.latest_us, found.windows) == ([17], [2])
