"""Due windows: in columns they are those that each query has by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.aggregation.due import Due, WindowedQueries, due_by_space
from braid.operators.event_times import EARLIEST
from braid.operators.live_queries import LiveQuery
from braid.operators.predicates.space_key import SpaceKey
from braid.operators.windows import Window
from tests.operators.pipeline import STREAM, K, V, aggregation, compare, live_of, predicate_of

PREDICATES = [None, compare(V, ">", 3), compare(V, "<", 5), compare(K, "=", 1)]

windows = st.builds(
    lambda size, slide, offset: Window(size, min(slide, size), offset % size),
    st.integers(1, 12), st.integers(1, 12), st.integers(0, 12),
)  # fmt: skip
times = st.none() | st.integers(-10, 40)


@st.composite
def live_queries(draw: st.DrawFn) -> list[LiveQuery]:
    """Return queries over one stream that see tuples between different times."""
    specs = draw(st.lists(st.tuples(windows, st.sampled_from(PREDICATES), times, st.none() | times), max_size=6))
    live = live_of(*(aggregation(where, window=window) for window, where, _, _ in specs))
    return [
        replace(query, active_from={STREAM.id: begin}, active_to=None if end is None else {STREAM.id: end})
        for query, (_, _, begin, end) in zip(live.by_slot.values(), specs, strict=True)
    ]


def expected(queries: list[LiveQuery], slices: np.ndarray, after: int, upto: int) -> set[tuple[str, int, int, int]]:
    """Return each query's windows with a slice in them, by trying all."""
    windows_in_range = set()
    for query in queries:
        size, slide, offset = query.query.window.to_json()
        begin = query.after(STREAM.id) + 1
        for start in range(offset - 60 * slide, 60, slide):
            end = start + size
            holds_one = any(start <= low and high <= end for low, high in slices.tolist())
            if after < end <= upto and holds_one and begin < end <= query.until(STREAM.id):
                windows_in_range.add((query.id, start, end, max(start, begin)))
    return windows_in_range


@given(live_queries(), st.lists(st.integers(0, 30), max_size=5), st.integers(-5, 40), st.integers(0, 30))
def test_each_query_has_the_windows_that_it_has_alone(
    queries: list[LiveQuery], at: list[int], after: int, length: int
) -> None:
    slices = np.array([[start, start + 1] for start in sorted(set(at))], dtype=np.int64).reshape(-1, 2)
    listed = []
    for key, due in WindowedQueries(queries, predicate_of).due(slices, after, after + length):
        assert len(due) > 0
        for window in due.listed():
            assert SpaceKey.of(window.query.query, predicate_of(window.query)) == key
            listed.append((window.query.id, window.start, window.end, window.reads_from))
    assert len(listed) == len(set(listed))
    assert set(listed) == expected(queries, slices, after, after + length)


def test_windows_of_a_query_come_in_order() -> None:
    queries = list(live_of(aggregation(window=Window(6, 2)), aggregation(compare(V, ">", 3))).by_slot.values())
    slices = np.array([[0, 2], [2, 4], [4, 6]], dtype=np.int64)
    due = dict(WindowedQueries(queries, predicate_of).due(slices, EARLIEST, 100))
    ends = [window.end for windows in due.values() for window in windows.listed() if window.query.id == "q0"]
    assert ends == [2, 4, 6, 8, 10]


def test_given_windows_are_split_by_space() -> None:
    over_v, over_k = live_of(aggregation(PREDICATES[1]), aggregation(PREDICATES[3])).by_slot.values()
    due_windows = [Due(over_v, 0, 10, 0), Due(over_k, 0, 10, 5), Due(over_v, 10, 20, 10)]
    split = {key.dimensions: list(due.listed()) for key, due in due_by_space(due_windows, predicate_of)}
    assert split == {("v",): [due_windows[0], due_windows[2]], ("k",): [due_windows[1]]}
    assert dict(due_by_space([], predicate_of)) == {}
