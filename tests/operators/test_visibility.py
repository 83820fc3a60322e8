"""Visibility: a tuple is seen by the queries between whose active_from and active_to it lies, also at the borders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from braid.operators.live_queries import LiveQuery
from braid.operators.predicates.query_set import unpack
from braid.operators.windowing.visibility import visibility
from tests.operators.pipeline import STREAM, aggregation, live_of

clocks = st.one_of(st.none(), st.integers(-6, 12))
lifetimes = st.lists(st.tuples(clocks, st.booleans(), clocks), min_size=1, max_size=70)


def query(slot: int, active_from: int | None, deleted: bool, active_to: int | None) -> LiveQuery:
    (live,) = live_of(aggregation(), clock=active_from).by_slot.values()
    return replace(live, id=f"q{slot}", slot=slot, active_to={STREAM.id: active_to} if deleted else None)


def sees(active_from: int | None, deleted: bool, active_to: int | None, time: int) -> bool:
    return (active_from is None or time > active_from) and (
        not deleted or (active_to is not None and time <= active_to)
    )


@given(lifetimes, st.one_of(st.none(), st.integers(-8, 14)))
def test_who_sees_a_tuple(lives: list[tuple[int | None, bool, int | None]], watermark: int | None) -> None:
    queries = [query(slot, *life) for slot, life in enumerate(lives)]
    visible = visibility(queries, STREAM.id, watermark, 2)
    times = np.arange(-10 if watermark is None else watermark, 20)
    got = unpack(visible.query_sets, np.arange(len(lives)))[visible.stretch_of(times)]
    assert got.tolist() == [[sees(*life, time) for life in lives] for time in times.tolist()]
    assert (np.diff(visible.cuts) > 0).all()


def test_borders_are_exact() -> None:
    queries = [query(0, 10, False, None), query(1, None, True, 10), query(2, 10, True, 10), query(3, None, True, None)]
    visible = visibility(queries, STREAM.id, 10, 1)
    assert visible.cuts.tolist() == [11]
    assert unpack(visible.query_sets, np.arange(4)).tolist() == [
        [False, True, False, False],
        [True, False, False, False],
    ]


def test_changelog_times_below_the_watermark_make_no_cuts() -> None:
    queries = [query(slot, clock, False, None) for slot, clock in enumerate([1, 2, 3, 9])]
    assert visibility(queries, STREAM.id, 9, 1).cuts.tolist() == [10]
    assert visibility(queries, STREAM.id, 10, 1).cuts.tolist() == []
