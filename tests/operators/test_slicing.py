"""Slices against brute force over microseconds."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.windowing import slicing
from braid.operators.windowing.slicing import (
    FIRST_EDGE,
    LAST_EDGE,
    NeededEdges,
    PeriodicEdges,
    due_windows,
    is_needed,
    with_ends_in,
)
from braid.operators.windows import Window

windows = st.lists(
    st.builds(Window, st.integers(1, 30), st.integers(1, 12), st.integers(-40, 40)), min_size=1, max_size=4
)
times = st.lists(st.integers(-60, 60), min_size=1, max_size=20)
cuts = st.lists(st.integers(-60, 60), max_size=4, unique=True)
far = st.lists(st.sampled_from([-(10**16), -7, 0, 3, 10**9, 10**16, 253402300799999999]), min_size=1, max_size=6)


def cut_slices(at: Any, specs: list[Window], changes: list[int]) -> Any:
    """Cut the slices of some windows."""
    return slicing.cut_slices(at, PeriodicEdges.of(specs), changes)


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
    scattered, scattered_index = slicing._slices_of_scattered(array, PeriodicEdges.of(specs), changes)
    assert slices.tolist() == scattered.tolist()
    assert index.tolist() == scattered_index.tolist()


@given(times, windows, cuts)
def test_windows_are_unions_of_slices(at: list[int], specs: list[Window], changes: list[int]) -> None:
    slices, _ = cut_slices(np.array(at, dtype=np.int64), specs, changes)
    for window in specs:
        for start, end in due_windows(slices, window, FIRST_EDGE, 1000).tolist():
            is_outside = (slices[:, 1] <= start) | (slices[:, 0] >= end)
            is_inside = (slices[:, 0] >= start) & (slices[:, 1] <= end)
            assert (is_outside | is_inside).all()


def test_few_tuples_far_apart_take_no_memory_for_the_edges_between() -> None:
    at = np.array([-(10**15), 0, 10**15], dtype=np.int64)
    slices, index = cut_slices(at, [Window(1, 1)], [])
    assert slices.tolist() == [[t, t + 1] for t in at.tolist()]
    assert index.tolist() == [0, 1, 2]


def test_combs_that_another_has_all_edges_of_are_left_out() -> None:
    combs = PeriodicEdges.of([Window(10, 10), Window(60, 20), Window(20, 20, 5)])
    assert (combs.slides.tolist(), combs.phases.tolist()) == ([10, 20], [0, 5])


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
def test_the_first_watermark_makes_all_ended_windows_due(after: int) -> None:
    slices = np.array([[5, 10], [10, 15]], dtype=np.int64)
    assert due_windows(slices, Window(10, 5), after, 20).tolist() == [[0, 10], [5, 15], [10, 20]]


def test_a_long_window_with_a_short_slide_does_not_list_windows_once_per_slice() -> None:
    starts = np.arange(0, 50_000, dtype=np.int64)
    slices = np.stack([starts, starts + 1], axis=1)
    due = due_windows(slices, Window(1_000_000, 1), FIRST_EDGE, LAST_EDGE)
    assert len(due) == 1_049_999
    assert due[0].tolist() == [-999_999, 1]


@given(times, windows, st.integers(-150, 150))
def test_a_slice_is_needed_until_the_last_window_over_it_has_ended(
    at: list[int], specs: list[Window], reached: int
) -> None:
    slices, _ = cut_slices(np.array(at, dtype=np.int64), specs, [])
    longest_first = sorted(specs, key=lambda w: w.size_us, reverse=True)
    for (start, end), needed in zip(slices.tolist(), is_needed(slices, longest_first, reached), strict=True):
        over = [
            k * w.slide_us + w.offset_us + w.size_us
            for w in specs
            for k in range(-250, 250)
            if k * w.slide_us + w.offset_us <= start and end <= k * w.slide_us + w.offset_us + w.size_us
        ]
        # in a gap between hopping windows no window needs the slice: any time that has passed will do
        assert needed == (max(over) > reached) if over else not needed or reached < start


def test_without_windows_no_slice_is_needed() -> None:
    assert not is_needed(np.array([[0, 5]], dtype=np.int64), [], FIRST_EDGE).any()


@given(windows, st.integers(-120, 120), st.integers(0, 40))
def test_windows_with_ends_in_a_stretch(specs: list[Window], after: int, length: int) -> None:
    expected = [
        w
        for w in specs
        if any(after < k * w.slide_us + w.offset_us + w.size_us <= after + length for k in range(-350, 350))
    ]
    assert with_ends_in(specs, after, after + length) == expected


@given(times, windows, cuts, st.integers(-80, 80), st.integers(0, 3))
def test_slices_are_parted_where_an_edge_is_needed(
    at: list[int], specs: list[Window], changes: list[int], reached: int, few: int
) -> None:
    slices, _ = cut_slices(np.array(at, dtype=np.int64), specs, changes)
    begins = dict.fromkeys(changes[:few], 7)
    needed = NeededEdges(specs, begins, reached)

    def is_needed_edge(edge: int) -> bool:
        starts = any((edge - w.offset_us) % w.slide_us == 0 and edge + w.size_us > reached for w in specs)
        ends = any((edge - w.offset_us - w.size_us) % w.slide_us == 0 and edge > reached for w in specs)
        return starts or ends

    expected = [
        any(is_needed_edge(edge) for edge in range(low, high + 1))
        or any(start < begin <= high and begin + size > reached for begin, size in begins.items())
        for (start, low), (high, _) in itertools.pairwise(slices.tolist())
    ]
    assert needed.between(slices).tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slicing, "_LISTED_ALWAYS", -(10**9))
        assert needed.between(slices).tolist() == expected, "without listing the edges"
