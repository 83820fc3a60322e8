"""The oracle itself, against examples of CONTRACT.md section 3 worked out by hand."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.model import (
    SECOND,
    Aggregation,
    Column,
    Item,
    Kind,
    Query,
    Row,
    Selection,
    Sessions,
    StreamSchema,
    Window,
    from_micros,
)
from tests.oracle.recompute import Life, Recompute

SCHEMA = StreamSchema(
    (
        Column("seq", Kind.BIGINT),
        Column("gem_pack", Kind.INT),
        Column("price", Kind.DOUBLE),
        Column("time", Kind.TIMESTAMP),
    ),
    event_time="time",
    lateness=2 * SECOND,
    base=dt.datetime(1970, 1, 1),
)
COUNT = Item("COUNT(*)", "tuples", Kind.BIGINT)
SUM = Item("SUM(price)", "revenue", Kind.DOUBLE)
GEM_PACK = Item("gem_pack", "gem_pack", Kind.INT)
ALWAYS = Life(None, None, deleted=False)


def at(seconds: float) -> dt.datetime:
    """Return a time in seconds after 1970-01-01."""
    return from_micros(round(seconds * SECOND))


def purchase(seq: int, seconds: float, gem_pack: int | None = 1, price: float | None = 1.0) -> Row:
    """Make a tuple."""
    return {"seq": seq, "gem_pack": gem_pack, "price": price, "time": at(seconds)}


def recomputed(
    query: Query,
    tuples: Iterable[Row],
    life: Life = ALWAYS,
    watermark: float = 1000,
    late: Sequence[int] = (),
) -> list[Row]:
    """Recompute a query."""
    with Recompute(SCHEMA, list(tuples), late) as recompute:
        return recompute.rows(query, life, at(watermark))


def windows_of(rows: list[Row]) -> list[tuple[dt.datetime, dt.datetime, int]]:
    """Return start, end and count of each row."""
    return [(row["window_start"], row["window_end"], row["tuples"]) for row in rows]  # type: ignore[misc]


def test_a_selection_sees_tuples_after_active_from_up_to_active_to() -> None:
    tuples = [purchase(seq, seconds) for seq, seconds in enumerate((4.999999, 5, 5.000001, 7, 9, 9.000001))]
    query = Selection((Item("seq", "seq", Kind.BIGINT),))
    rows = recomputed(query, tuples, Life(at(5), at(9), deleted=True))
    assert [row["seq"] for row in rows] == [2, 3, 4]
    assert len(recomputed(query, tuples, Life(None, None, deleted=False))) == 6
    assert len(recomputed(query, tuples, Life(at(5), None, deleted=False))) == 4
    assert recomputed(query, tuples, Life(None, None, deleted=True)) == []


def test_order_of_arrival_does_not_matter_but_late_tuples_are_not_seen() -> None:
    tuples = [purchase(0, 10), purchase(1, 3), purchase(2, 8), purchase(3, 3)]
    query = Selection((Item("seq", "seq", Kind.BIGINT),))
    assert [row["seq"] for row in recomputed(query, tuples, late=[1])] == [0, 2, 3]
    window = Window(5 * SECOND, 5 * SECOND)
    rows = recomputed(Aggregation((COUNT,), window), tuples, late=[1])
    assert windows_of(rows) == [(at(0), at(5), 1), (at(5), at(10), 1), (at(10), at(15), 1)]


def test_select_star_has_all_columns_in_order() -> None:
    (row,) = recomputed(Selection((), "price > 5"), [purchase(0, 1, 3, 6.5), purchase(1, 1, 3, None)])
    assert list(row.items()) == [("seq", 0), ("gem_pack", 3), ("price", 6.5), ("time", at(1))]


def test_tumbling_windows_hold_their_start_and_not_their_end() -> None:
    query = Aggregation((COUNT, SUM), Window(4 * SECOND, 4 * SECOND))
    rows = recomputed(query, [purchase(0, 4), purchase(1, 7.999999, price=2.5), purchase(2, 8, price=None)])
    assert rows == [
        {"window_start": at(4), "window_end": at(8), "_partial": False, "tuples": 2, "revenue": 3.5},
        {"window_start": at(8), "window_end": at(12), "_partial": False, "tuples": 1, "revenue": None},
    ]


def test_hopping_windows_overlap_as_in_the_contract() -> None:
    query = Aggregation((GEM_PACK, SUM), Window(8 * SECOND, 4 * SECOND), ("gem_pack",), "gem_pack > 3")
    tuples = [
        purchase(0, 5, 4, 1.0),
        purchase(1, 9, 4, 2.0),
        purchase(2, 9, 3, 4.0),
        purchase(3, 9, None, 8.0),
    ]
    rows = recomputed(query, tuples)
    windows = [(row["window_start"], row["window_end"], row["gem_pack"], row["revenue"]) for row in rows]
    assert windows == [(at(0), at(8), 4, 1.0), (at(4), at(12), 4, 3.0), (at(8), at(16), 4, 2.0)]


def test_null_is_a_group_of_its_own_and_windows_without_tuples_have_no_row() -> None:
    query = Aggregation((GEM_PACK, COUNT), Window(2 * SECOND, 2 * SECOND), ("gem_pack",))
    rows = recomputed(query, [purchase(0, 0, None), purchase(1, 1, None), purchase(2, 7, 1)])
    assert [(row["window_end"], row["gem_pack"], row["tuples"]) for row in rows] == [
        (at(2), None, 2),
        (at(8), 1, 1),
    ]


def test_a_slide_need_not_divide_the_size_and_an_offset_moves_the_edges() -> None:
    hop = Window(5 * SECOND, 3 * SECOND)
    rows = recomputed(Aggregation((COUNT,), hop), [purchase(0, 7)])
    assert windows_of(rows) == [(at(3), at(8), 1), (at(6), at(11), 1)]
    shifted = Window(4 * SECOND, 4 * SECOND, SECOND, "function")
    rows = recomputed(Aggregation((COUNT,), shifted), [purchase(0, 0.5), purchase(1, 1), purchase(2, -3)])
    assert windows_of(rows) == [(at(-3), at(1), 2), (at(1), at(5), 1)]


def test_windows_fire_when_the_watermark_reaches_their_end() -> None:
    query = Aggregation((COUNT,), Window(4 * SECOND, 4 * SECOND))
    tuples = [purchase(0, 1), purchase(1, 5), purchase(2, 10)]
    assert windows_of(recomputed(query, tuples, watermark=7.999999)) == [(at(0), at(4), 1)]
    assert windows_of(recomputed(query, tuples, watermark=8)) == [(at(0), at(4), 1), (at(4), at(8), 1)]


def test_a_draining_query_emits_windows_that_end_by_active_to_and_no_later_ones() -> None:
    query = Aggregation((COUNT,), Window(4 * SECOND, 4 * SECOND))
    tuples = [purchase(0, 1), purchase(1, 5), purchase(2, 8), purchase(3, 9)]
    until_8 = recomputed(query, tuples, Life(None, at(8), deleted=True))
    assert windows_of(until_8) == [(at(0), at(4), 1), (at(4), at(8), 1)]
    until_7 = recomputed(query, tuples, Life(None, at(7.999999), deleted=True))
    assert windows_of(until_7) == [(at(0), at(4), 1)]
    assert windows_of(recomputed(query, tuples, Life(None, at(8), deleted=True), watermark=5)) == [(at(0), at(4), 1)]


def test_a_window_that_began_at_or_before_active_from_is_partial() -> None:
    query = Aggregation((COUNT,), Window(4 * SECOND, 2 * SECOND))
    tuples = [purchase(0, 3), purchase(1, 4.5)]
    rows = recomputed(query, tuples, Life(at(4), None, deleted=False))
    assert [(row["window_start"], row["_partial"], row["tuples"]) for row in rows] == [
        (at(2), True, 1),
        (at(4), True, 1),
    ]
    rows = recomputed(query, tuples, Life(at(3.999999), None, deleted=False))
    assert [(row["window_start"], row["_partial"]) for row in rows] == [(at(2), True), (at(4), False)]
    assert not any(row["_partial"] for row in recomputed(query, tuples))


def test_where_comes_before_windows_and_follows_three_valued_logic() -> None:
    tuples = [purchase(0, 1, 1, None), purchase(1, 1, None, 9.0), purchase(2, 1, 2, 9.0)]
    assert [row["seq"] for row in recomputed(Selection((), "NOT (price > 5)"), tuples)] == []
    assert [row["seq"] for row in recomputed(Selection((), "gem_pack NOT IN (1, NULL)"), tuples)] == []
    assert [row["seq"] for row in recomputed(Selection((), "gem_pack = 2 OR price IS NULL"), tuples)] == [
        0,
        2,
    ]


def test_a_stream_without_a_watermark_has_no_windows_due() -> None:
    with Recompute(SCHEMA, [], ()) as recompute:
        assert recompute.rows(Aggregation((COUNT,), Window(SECOND, SECOND)), ALWAYS, None) == []


def test_a_life_must_make_sense() -> None:
    with pytest.raises(ValueError, match="not deleted"):
        Life(None, at(1), deleted=False)
    with pytest.raises(ValueError, match="active_from <= active_to"):
        Life(at(2), at(1), deleted=True)


def test_sessions_end_a_gap_after_their_last_tuple_and_are_parted_by_a_whole_gap() -> None:
    tuples = [purchase(number, time, 1, 1.0) for number, time in enumerate((0, 1.5, 3.4, 5.4, 7))]
    query = Aggregation((COUNT,), Sessions(2 * SECOND), ("gem_pack",))
    assert windows_of(recomputed(query, tuples, watermark=8.9)) == [(at(0), at(5.4), 3)]
    assert windows_of(recomputed(query, tuples, watermark=9)) == [(at(0), at(5.4), 3), (at(5.4), at(9), 2)]
    of_another_key = [purchase(9, 2, 2, 1.0)]
    assert windows_of(recomputed(query, [*tuples, *of_another_key], watermark=5)) == [(at(2), at(4), 1)]


@settings(deadline=None)
@given(
    st.integers(-100 * SECOND, 100 * SECOND),
    st.integers(1, 7),
    st.integers(0, 9),
    st.integers(-20, 20),
)
def test_the_windows_of_a_tuple_are_those_that_hold_it(time: int, slide: int, slides_more: int, offset: int) -> None:
    size, slide_us, offset_us = (slide + slides_more) * SECOND, slide * SECOND, offset * SECOND // 2
    window = Window(size, slide_us, offset_us, "function")
    rows = recomputed(Aggregation((COUNT,), window), [purchase(0, 0) | {"time": from_micros(time)}])
    candidates = (offset_us + step * slide_us for step in range(-200, 201))
    expected = [from_micros(start) for start in candidates if start <= time < start + size]
    assert [row["window_start"] for row in rows] == expected
