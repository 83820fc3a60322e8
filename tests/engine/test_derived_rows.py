"""What the planner knows of rows that queries gave: numbers, watermarks, and which of them a batch waits for."""

from __future__ import annotations

from typing import Any

import pytest

from braid.engine.planning.derived_rows import (
    emitted_before,
    extents_of,
    first_clocks,
    is_awaited,
    raised_by_rows,
    still_there,
)
from braid.engine.planning.offsets import Offset, QueryProgress
from braid.operators.derived import QueryBehind, derived_stream, queries_behind, with_successor
from braid.operators.event_times import ENDED
from braid.operators.queries import Query
from braid.sources.connectors.connector import Extent
from braid.sources.core.derived import FIRST_ROW as FIRST
from braid.sources.core.schema import StreamDefinition
from tests.session.sql.catalog import CATALOG, plan

SECOND = 10**6
WINDOWED = plan("SELECT gem_pack, SUM(price) AS n FROM purchases [RANGE 8 SECONDS] GROUP BY gem_pack")
SELECTED = plan("SELECT price FROM purchases WHERE price > 3")


def has_slot(query: str) -> bool:  # noqa: ARG001 - all have
    return True


def derived(**queries: Query) -> StreamDefinition:
    behind = [
        QueryBehind(name.replace("_", "-"), query, number) for number, (name, query) in enumerate(queries.items())
    ]
    return derived_stream("+".join(each.id for each in behind), "rows", behind)


def record(slot: int | None, first: int = FIRST, count: int = 3, **rest: Any) -> dict[str, Any]:
    return {
        "derived": {"q-1": {"slot": slot, "first": first, "active_from": {}}},
        "results": [{"slots": [0, 4], "counts": [7, count]}, {"slots": [4], "counts": [1]}],
        "watermarks": {"s-1": 20 * SECOND},
        "fired": {"s-1": 16 * SECOND},
        **rest,
    }


@pytest.mark.parametrize(("query", "watermark"), [(WINDOWED, 16 * SECOND), (SELECTED, 20 * SECOND)])
def test_rows_of_a_batch_are_counted_and_have_the_watermark_of_their_query(query: Query, watermark: int) -> None:
    streams = {"s-1": CATALOG["purchases"], "q-1": derived(q_1=query)}
    assert emitted_before(streams, {}, record(4, FIRST + 5)) == {"q-1": QueryProgress(FIRST + 9, watermark)}
    assert emitted_before({"s-1": CATALOG["purchases"]}, {}, record(4)) == {}


def test_a_query_without_a_slot_gives_nothing_and_keeps_its_watermark() -> None:
    streams = {"q-1": derived(q_1=WINDOWED)}
    before = {"q-1": QueryProgress(FIRST + 2, 8 * SECOND)}
    assert emitted_before(streams, before, record(None)) == before
    assert emitted_before(streams, {}, {**record(4), "derived": {}}) == {"q-1": QueryProgress()}
    unknown = record(4, fired={"s-1": None})
    assert emitted_before(streams, {}, unknown) == {"q-1": QueryProgress(FIRST + 4, None)}


def test_a_stream_that_is_new_begins_with_what_comes_next() -> None:
    stream, emitted = derived(q_1=WINDOWED, q_2=WINDOWED), {"q-1": QueryProgress(FIRST + 9), "q-2": QueryProgress()}
    new = {"0": Extent(FIRST + 9, FIRST + 9), "1": Extent(FIRST, FIRST)}
    assert extents_of(stream, emitted, {}) == new
    reached = {stream.id: {"0": FIRST + 3, "1": FIRST}}
    assert extents_of(stream, emitted, reached) == {
        "0": Extent(FIRST, FIRST + 9),
        "1": Extent(FIRST, FIRST),
    }


def test_the_watermark_rises_with_the_batch_that_reads_all_rows_before_it() -> None:
    stream = derived(q_1=WINDOWED, q_2=SELECTED)
    streams, emitted = (
        {stream.id: stream},
        {"q-1": QueryProgress(FIRST + 9, 16), "q-2": QueryProgress(FIRST + 1, 12)},
    )
    all_read = {stream.id: {"0": FIRST + 9, "1": FIRST + 1}, "s-1": {"0": 3}}
    assert raised_by_rows(streams, emitted, all_read, {"watermarks": {}}, has_slot) == {stream.id: 12}
    assert raised_by_rows(streams, emitted, all_read, {"watermarks": {stream.id: 12}}, has_slot) == {}
    part = {stream.id: {"0": FIRST + 8, "1": FIRST + 1}}
    assert raised_by_rows(streams, emitted, part, {"watermarks": {}}, has_slot) == {}
    unknown = {**emitted, "q-2": QueryProgress(FIRST + 1)}
    assert raised_by_rows(streams, unknown, all_read, {"watermarks": {}}, has_slot) == {}
    ended = {"q-1": QueryProgress(FIRST + 9, ENDED), "q-2": QueryProgress(FIRST + 1, ENDED)}
    assert raised_by_rows(streams, ended, all_read, {"watermarks": {}}, has_slot) == {stream.id: ENDED}


def test_a_query_that_was_replaced_is_waited_for_while_it_has_a_slot() -> None:
    stream = with_successor(derived(q_1=WINDOWED), "q-1", QueryBehind("q-5", WINDOWED), lambda _: True)
    streams, emitted = (
        {stream.id: stream},
        {"q-1": QueryProgress(FIRST + 9, 12), "q-5": QueryProgress(FIRST + 1, 16)},
    )
    assert extents_of(stream, emitted, {"q-1": {"0": FIRST + 3}}) == {
        "0": Extent(FIRST, FIRST + 9),
        "1": Extent(FIRST + 1, FIRST + 1),
    }
    all_read = {"q-1": {"0": FIRST + 9, "1": FIRST + 1}}
    assert raised_by_rows(streams, emitted, all_read, {"watermarks": {}}, has_slot) == {"q-1": 12}
    assert raised_by_rows(streams, emitted, all_read, {"watermarks": {}}, lambda query: query == "q-5") == {"q-1": 16}
    part = {"q-1": {"0": FIRST + 8, "1": FIRST + 1}}
    rows_are_left = raised_by_rows(streams, emitted, part, {"watermarks": {}}, lambda query: query == "q-5")
    assert rows_are_left == {}
    unborn = {**emitted, "q-5": QueryProgress()}
    assert raised_by_rows(streams, unborn, {"q-1": {"0": FIRST + 9, "1": FIRST}}, {"watermarks": {}}, has_slot) == {}


def test_partitions_of_queries_that_are_needed_no_more_are_forgotten() -> None:
    once = with_successor(derived(q_1=WINDOWED), "q-1", QueryBehind("q-5", WINDOWED), lambda _: True)
    twice = with_successor(once, "q-5", QueryBehind("q-7", SELECTED), lambda former: former.id != "q-1")
    assert [(each.id, each.number, each.successor) for each in queries_behind(twice)] == [
        ("q-7", 2, None),
        ("q-5", 1, "q-7"),
    ]
    reached = {"q-1": {"0": FIRST, "1": FIRST + 2, "2": FIRST}, "s-1": {"0": 7}}
    kept = {"q-1": {"1": FIRST + 2, "2": FIRST}, "s-1": {"0": 7}}
    assert still_there(reached, {"q-1": twice, "s-1": CATALOG["purchases"]}) == kept


def test_a_risen_watermark_is_waited_for_by_windows_over_it_and_over_what_is_selected_from_it() -> None:
    inner = derived(q_1=WINDOWED)
    selected = derived_stream("q-2", "q", [QueryBehind("q-2", SELECTED.reading({"s-1": "q-1"}))])
    windowed = derived_stream("q-3", "q", [QueryBehind("q-3", WINDOWED.reading({"s-1": "q-1"}))])
    streams = {each.id: each for each in (inner, selected, windowed)}
    assert is_awaited("q-1", streams, lambda stream: stream == "q-1")
    assert is_awaited("q-1", streams, lambda stream: stream == "q-2")
    assert not is_awaited("q-1", streams, lambda stream: stream == "q-3"), "its own windows would have been asked for"


def test_an_offset_has_what_queries_gave() -> None:
    offset = Offset(seq=3, derived={"q-1": QueryProgress(FIRST + 9, 16), "q-2": QueryProgress()})
    assert Offset.from_json(offset.to_json()) == offset


def test_a_stream_of_rows_begins_after_those_that_were_given_before() -> None:
    clocks = {"s-1": 25 * SECOND}
    streams = {"s-1": CATALOG["purchases"], "q-1": derived(q_1=WINDOWED), "q-2": derived(q_2=SELECTED)}
    begun = first_clocks(streams, record(4, clocks=clocks), lambda _: False)
    assert begun == {"q-1": 16 * SECOND - 1, "q-2": 25 * SECOND}
    assert first_clocks(streams, record(4, clocks=clocks), lambda query: query == "q-1") == {"q-2": 25 * SECOND}
    assert first_clocks(streams, record(4, clocks={**clocks, "q-1": 3, "q-2": None}), lambda _: False) == {}
    assert first_clocks(streams, record(4, clocks={}, fired={}, watermarks={}), lambda _: False) == {}
    both = derived(q_1=WINDOWED, q_2=SELECTED)
    assert first_clocks({both.id: both}, record(4, clocks=clocks), lambda _: False) == {both.id: 25 * SECOND}
