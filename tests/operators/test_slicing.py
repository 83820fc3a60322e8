"""Slices against brute force over microseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators import slicing
from operators.queries import Window
from operators.slicing import FIRST_EDGE, LAST_EDGE, cut_slices, due_windows, needed_until

windows = st.lists(
    st.builds(Window, st.integers(1, 30), st.integers(1, 12), st.integers(-40, 40)), min_size=1, max_size=4
)
times = st.lists(st.integers(-60, 60), min_size=1, max_size=20)
cuts = st.lists(st.integers(-60, 60), max_size=4, unique=True)
far = st.lists(st.sampled_from([-(10**16), -7, 0, 3, 10**9, 10**16, 253402300799999999]), min_size=1, max_size=6)


def is_edge(time: int, specs: list[Window], changes: list[int]) -> bool:
    starts = ((time - w.offset_us) % w.slide_us == 0 for w in specs)
    ends = ((time - w.offset_us - w.size_us) % w.slide_us == 0 for w in specs)
    return any(starts) or any(ends) or time in changes


def slice_of(time: int, specs: list[Window], changes: list[int]) -> list[int]:
    start = next(e for e in range(time, time - 100, -1) if is_edge(e, specs, changes))
    end = next(e for e in range(time + 1, time + 100) if is_edge(e, specs, changes))
    return [start, end]


@given(times, windows, cuts)
def test_a_slice_lies_between_neighbouring_edges(at: list[int], specs: list[Window], changes: list[int]) -> None:
    slices, index = cut_slices(np.array(at, dtype=np.int64), specs, changes)
    assert slices[index].tolist() == [slice_of(t, specs, changes) for t in at]
    assert (np.diff(slices[:, 0]) > 0).all()
    assert sorted(set(index.tolist())) == list(range(len(slices))), "only slices that occur"


@given(st.one_of(times, far), windows, cuts)
def test_both_ways_of_cutting_agree(at: list[int], specs: list[Window], changes: list[int]) -> None:
    array = np.array(at, dtype=np.int64)
    slices, index = cut_slices(array, specs, changes)
    scattered, scattered_index = slicing._slices_of_scattered(array, slicing._combs(specs), changes)
    assert slices.tolist() == scattered.tolist()
    assert index.tolist() == scattered_index.tolist()


@given(times, windows, cuts)
def test_windows_are_unions_of_slices(at: list[int], specs: list[Window], changes: list[int]) -> None:
    slices, _ = cut_slices(np.array(at, dtype=np.int64), specs, changes)
    for window in specs:
        for start, end in due_windows(slices, window, FIRST_EDGE, 1000).tolist():
            outside = (slices[:, 1] <= start) | (slices[:, 0] >= end)
            inside = (slices[:, 0] >= start) & (slices[:, 1] <= end)
            assert (outside | inside).all()


def test_few_tuples_far_apart_take_no_memory_for_the_edges_between() -> None:
    at = np.array([-(10**15), 0, 10**15], dtype=np.int64)
    slices, index = cut_slices(at, [Window(1, 1)], [])
    assert slices.tolist() == [[t, t + 1] for t in at.tolist()]
    assert index.tolist() == [0, 1, 2]


def test_combs_that_another_has_all_edges_of_are_left_out() -> None:
    assert slicing._combs([Window(10, 10), Window(60, 20), Window(20, 20, 5)]) == [(10, 0), (20, 5)]


@settings(max_examples=200)
@given(times, windows, cuts, st.integers(-120, 120), st.integers(0, 150))
def test_due_windows_by_brute_force(
    at: list[int], specs: list[Window], changes: list[int], after: int, length: int
) -> None:
    slices, _ = cut_slices(np.array(at, dtype=np.int64), specs, changes)
    for window in specs:
        starts = [k * window.slide_us + window.offset_us for k in range(-250, 250)]
        expected = [
            [s, s + window.size_us]
            for s in starts
            if after < s + window.size_us <= after + length
            and ((slices[:, 0] >= s) & (slices[:, 1] <= s + window.size_us)).any()
        ]
        assert due_windows(slices, window, after, after + length).tolist() == expected


def test_no_slices_no_windows() -> None:
    assert due_windows(np.empty((0, 2), dtype=np.int64), Window(5, 5), 0, 100).shape == (0, 2)


@pytest.mark.parametrize("after", [FIRST_EDGE, -(2**62), 0])
def test_the_first_waterline_makes_all_ended_windows_due(after: int) -> None:
    slices = np.array([[5, 10], [10, 15]], dtype=np.int64)
    assert due_windows(slices, Window(10, 5), after, 20).tolist() == [[0, 10], [5, 15], [10, 20]]


def test_a_long_window_with_a_short_slide_does_not_list_windows_once_per_slice() -> None:
    starts = np.arange(0, 50_000, dtype=np.int64)
    slices = np.stack([starts, starts + 1], axis=1)
    due = due_windows(slices, Window(1_000_000, 1), FIRST_EDGE, LAST_EDGE)
    assert len(due) == 1_049_999
    assert due[0].tolist() == [-999_999, 1]


@given(times, windows)
def test_needed_until_is_the_end_of_the_last_window_over_the_slice(at: list[int], specs: list[Window]) -> None:
    slices, _ = cut_slices(np.array(at, dtype=np.int64), specs, [])
    ends: dict[int, Any] = {}
    for row, (start, end) in enumerate(slices.tolist()):
        over = [
            k * w.slide_us + w.offset_us + w.size_us
            for w in specs
            for k in range(-250, 250)
            if k * w.slide_us + w.offset_us <= start and end <= k * w.slide_us + w.offset_us + w.size_us
        ]
        ends[row] = max(over, default=None)
    for row, latest in enumerate(needed_until(slices, specs).tolist()):
        # in a gap between hopping windows no window needs the slice: any time that has passed will do
        assert latest == ends[row] if ends[row] is not None else latest <= slices[row, 0]


def test_needed_until_without_windows_is_long_ago() -> None:
    assert needed_until(np.array([[0, 5]], dtype=np.int64), []).tolist() == [FIRST_EDGE]
