"""Why a query without rows has none, and when the next window of one with rows ends, by its record and its streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from braid.operators.event_times import ENDED
from braid.operators.expressions import Column
from braid.operators.joins.query import Join, JoinInput
from braid.operators.query_parts import Output
from braid.operators.windows import Emit, SessionWindow, Window
from braid.session.state.catalog import Catalog
from braid.session.state.catalog_entries import StreamState
from braid.session.state.query_record import RUNNING, STATES, QueryRecord
from braid.session.state.waiting import REASONS, open_window, waiting_for
from braid.sources.core.replays import replay_of
from braid.sources.core.schema import BIGINT, TIMESTAMP, Field, StreamDefinition, StreamSchema
from tests.session.queries import aggregation, selection
from tests.session.records import record as query_record

SECOND = 1_000_000
SCHEMA = StreamSchema((Field("k", BIGINT), Field("time", TIMESTAMP)), "time", 2 * SECOND)
MINUTE = Window(60 * SECOND, 60 * SECOND)


def catalog(**states: dict[str, Any]) -> Catalog:
    """Return a catalog with stream s-1 of the first name, s-2 of the second, as they are said to be."""
    found = Catalog()
    for number, (name, fields) in enumerate(states.items(), 1):
        definition = StreamDefinition(f"s-{number}", name, SCHEMA, "push", "json")
        seconds = {key: value * SECOND for key, value in fields.items() if key in ("clock", "watermark", "fired")}
        found.add(StreamState(definition, **{**fields, **seconds}))
    return found


def running(query: Any = None, since: int | None = None, **fields: Any) -> QueryRecord:
    """Return a query that runs, and began when the clock of its streams was at a second."""
    query = query or selection()
    names = dict(zip(query.streams, ("purchases", "ads"), strict=False))
    active_from = dict.fromkeys(names, None if since is None else since * SECOND)
    return query_record(1, RUNNING, None, query=query, stream_names=names, active_from=active_from, **fields)


def why(record: QueryRecord, **states: dict[str, Any]) -> dict[str, Any]:
    answer = waiting_for(record, catalog(**states))
    assert answer is not None
    assert answer["reason"] in REASONS
    return answer


def join() -> Join:
    inputs = tuple(JoinInput(f"s-{n}", alias, None, (Column("k", BIGINT),)) for n, alias in ((1, "p"), (2, "a")))
    return Join(inputs, MINUTE, (Output("k", Column("p.k", BIGINT)),))


def test_a_query_with_rows_waits_for_nothing() -> None:
    for state in STATES:
        assert waiting_for(query_record(1, state, rows_out=1), catalog(purchases={})) is None


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("PENDING", "pending"),
        ("PAUSED", "paused"),
        ("DRAINING", "draining"),
        ("RETIRED", "ended"),
        ("FINISHED", "ended"),
        ("FAILED", "failed"),
    ],
)
def test_a_query_that_does_not_run_says_so(state: str, reason: str) -> None:
    answer = why(query_record(1, state, error="it is too large"), purchases={"clock": 5, "tuples": 5})
    assert answer["reason"] == reason
    assert ("too large" in answer["detail"]) == (state == "FAILED")


def test_no_tuple_has_come() -> None:
    answer = why(running(), purchases={})
    assert (answer["reason"], answer["stream"]) == ("no_tuple", "purchases")
    assert answer["watermark"] is answer["window_end"] is None


def test_all_tuples_came_before_the_query_began() -> None:
    answer = why(running(since=7), purchases={"clock": 7, "watermark": 5, "tuples": 12})
    assert answer["reason"] == "no_tuple"
    assert "12 were read, none later than 1970-01-01T00:00:07.000000Z" in answer["detail"]
    assert (
        "It sees what comes later; a query that starts at the earliest sees those before, too: braid query --start"
        in answer["detail"]
    )
    late = why(running(since=7), purchases={"clock": 7, "watermark": 5, "tuples": 12, "late": 3, "malformed": 4})
    assert "Of stream purchases, 3 late and 4 malformed rows are set aside; GET" in late["detail"]
    late = why(running(since=7), purchases={"clock": 7, "watermark": 5, "tuples": 12, "late": 1})
    assert "Of stream purchases, 1 late row is set aside; GET" in late["detail"]


@pytest.mark.parametrize("state", ["RUNNING", "CATCHING_UP", "RETIRED", "FINISHED"])
def test_all_rows_are_malformed(state: str) -> None:
    answer = why(replace(running(), state=state), purchases={"malformed": 9})
    assert (answer["reason"], answer["stream"]) == ("malformed", "purchases")
    assert "All 9 rows" in answer["detail"]
    assert "GET /streams/purchases/dead-letters" in answer["detail"]
    assert "braid streams purchases --dead-letters" in answer["detail"]


def test_a_query_that_is_over_says_which_rows_were_set_aside() -> None:
    over = replace(running(), state="FINISHED")
    assert why(over, purchases={"clock": 5})["detail"] == "It is over, and no row will come."
    for rows, said in ((0, "Query q-7, which it reads, gave no row: braid results q-7 says"), (3, "Rows came; WHERE")):
        read = [query_record(7, "FINISHED"), query_record(8, "FINISHED", rows_out=rows)]
        answer = waiting_for(over, catalog(), read=read)
        assert answer is not None
        assert answer["detail"].startswith(f"It is over, and no row will come. {said}")
    filtered = "It is over, and no row will come. Rows came; WHERE, HAVING or a join let none of them through."
    assert why(over, purchases={"clock": 5, "tuples": 2})["detail"] == filtered
    answer = why(over, purchases={"clock": 5, "tuples": 2, "late": 2, "malformed": 1})
    assert answer["reason"] == "ended"
    assert "Of stream purchases, 2 late and 1 malformed rows are set aside" in answer["detail"]


@pytest.mark.parametrize("state", ["FINISHED", "RETIRED"])
def test_a_query_of_a_stream_that_had_ended_says_how_to_see_its_rows(state: str) -> None:
    def of_ended(since: int | None, **counts: int) -> dict[str, Any]:
        found = catalog(purchases={"clock": 7, **counts})
        found.state("purchases").watermark = ENDED
        answer = waiting_for(replace(running(since=since), state=state), found)
        assert answer is not None
        return answer

    answer = of_ended(7, tuples=60, late=2)
    assert (answer["reason"], answer["stream"]) == ("ended", "purchases")
    assert answer["detail"].startswith(
        "Stream purchases has ended; its 60 rows came before this query. Start it at the earliest: braid query --start"
        " earliest, CREATE QUERY … WITH (start = 'earliest'), or Start on the page. Of stream purchases, 2 late rows"
        " are set aside;"
    )
    assert "its one row came" in of_ended(7, tuples=1)["detail"]
    assert "its 60 rows came before" in of_ended(9, tuples=60)["detail"], "of one that starts after the last row"
    for began_before in (None, 5):
        assert of_ended(began_before, tuples=60)["detail"].startswith("It is over, and no row will come.")


def test_the_rows_of_a_generator_come_by_themselves() -> None:
    found = Catalog()
    definition = StreamDefinition("s-1", "purchases", SCHEMA, "generator", "")
    found.add(StreamState(definition, clock=50 * SECOND, watermark=48 * SECOND, tuples=3))
    answer = waiting_for(running(aggregation(window=MINUTE), since=40), found)
    assert answer is not None
    assert "where the query's first window ends." in answer["detail"]
    assert answer["detail"].endswith("on moves it there, and will come by itself.")


@pytest.mark.parametrize("problem", [{"unavailable": "no broker answers"}, {"error": "no broker answers"}])
def test_a_stream_that_cannot_be_read_says_why(problem: dict[str, str]) -> None:
    answer = why(running(), purchases={"clock": 5, "watermark": 3, "tuples": 1, **problem})
    assert (answer["reason"], answer["stream"]) == ("unreadable", "purchases")
    assert "no broker answers" in answer["detail"]


@pytest.mark.parametrize(
    ("since", "clock", "end"),
    [(10, 50, 60), (None, 50, 60), (59, 61, 60), (60, 70, 120), (None, 59, 60), (None, 62, 120)],
)
def test_the_watermark_is_before_the_end_of_the_first_window(since: int | None, clock: int, end: int) -> None:
    query = running(aggregation(window=MINUTE), since)
    answer = why(query, purchases={"clock": clock, "watermark": clock - 2, "tuples": 3})
    assert answer["reason"] == "watermark"
    assert answer["watermark"].startswith(f"1970-01-01T00:{(clock - 2) // 60:02d}:{(clock - 2) % 60:02d}")
    assert answer["window_end"].startswith(f"1970-01-01T00:{end // 60:02d}:00")
    assert f"from 1970-01-01T00:{end // 60:02d}:02.000000Z on" in answer["detail"], "the end and the lateness"


def test_of_hopping_windows_with_an_offset_the_next_one_counts() -> None:
    query = running(aggregation(window=Window(30 * SECOND, 10 * SECOND, 3 * SECOND)), since=44)
    answer = why(query, purchases={"clock": 50, "watermark": 46, "tuples": 3})
    assert answer["window_end"] == "1970-01-01T00:00:53.000000Z"


def test_a_session_ends_its_gap_after_the_newest_tuple() -> None:
    query = running(aggregation(window=SessionWindow(30 * SECOND)), since=1)
    answer = why(query, purchases={"clock": 50, "watermark": 48, "tuples": 3})
    assert (answer["reason"], answer["window_end"]) == ("watermark", "1970-01-01T00:01:20.000000Z")
    assert why(query, purchases={"clock": 50, "watermark": 90, "tuples": 3})["reason"] == "filtered", "it was set"


def test_a_query_that_reads_the_past_says_so() -> None:
    query = replace(running(), state="CATCHING_UP")
    for read in ({}, {"clock": 5, "watermark": 3, "tuples": 5}):
        assert why(query, purchases=read)["reason"] == "catching_up"
    assert why(query, purchases={"error": "it is gone"})["reason"] == "unreadable"


@pytest.mark.parametrize(
    ("fraction", "seconds_left", "said"),
    [
        (None, None, ""),
        (0.0, None, " Of stream purchases, 0% is read."),
        (0.061, 300.4, " Of stream purchases, 6% is read; the rest takes 5 minutes, going by what was read."),
        (0.9, 12.4, " Of stream purchases, 90% is read; the rest takes 12 s, going by what was read."),
    ],
)
def test_a_query_that_reads_the_past_says_how_far_it_is(
    fraction: float | None, seconds_left: float | None, said: str
) -> None:
    progress = {"purchases": {"fraction": fraction, "seconds_left": seconds_left}}
    answer = waiting_for(replace(running(), state="CATCHING_UP"), catalog(purchases={}), progress)
    assert answer is not None
    assert answer["detail"] == f"It reads the past, and has found no row there yet.{said}"


def test_a_stream_whose_past_is_read_may_be_what_cannot_be_read() -> None:
    found = catalog(purchases={"unavailable": "no broker answers"})
    found.add(StreamState(replay_of(found["purchases"], "q-1")))
    query = running(replace(selection(), stream="s-1.q-1"))
    answer = waiting_for(query, found)
    assert answer is not None
    assert answer["reason"] == "unreadable"


def test_windows_that_are_being_worked_off_are_said() -> None:
    query = running(aggregation(window=MINUTE), since=10)
    answer = why(query, purchases={"clock": 500, "watermark": 498, "fired": 20, "tuples": 3})
    assert answer["reason"] == "watermark"
    assert "its rows are formed" in answer["detail"]


def test_tuples_came_and_none_is_let_through() -> None:
    came = {"clock": 500, "watermark": 498, "fired": 498, "tuples": 3}
    early = replace(aggregation(window=MINUTE), emit=Emit(stream=True, after_watermark=False))
    for query in (selection(), aggregation(window=MINUTE), early):
        answer = why(running(query, since=10), purchases=came)
        assert answer["reason"] == "filtered"
        assert "WHERE" in answer["detail"]


def test_a_join_waits_for_its_last_stream() -> None:
    came = {"clock": 500, "watermark": 498, "fired": 10, "tuples": 3}
    answer = why(running(join(), since=1), purchases=came, ads={})
    assert (answer["reason"], answer["stream"]) == ("no_tuple", "ads")
    answer = why(running(join(), since=1), purchases=came, ads={"clock": 30, "watermark": 28, "tuples": 1})
    assert (answer["reason"], answer["stream"]) == ("watermark", "ads")
    idle = {"clock": 30, "watermark": 28, "fired": 498, "tuples": 1, "is_idle": True}
    assert why(running(join(), since=1), purchases={**came, "fired": 498}, ads=idle)["reason"] == "filtered"
    nothing = why(running(join()), purchases={"is_idle": True}, ads={"is_idle": True})
    assert nothing["reason"] == "no_tuple"


@pytest.mark.parametrize(
    ("window", "clock", "watermark", "end", "which"),
    [
        (MINUTE, 50, 48, "00:01:00", "the next window"),
        (MINUTE, 61, 60, "00:02:00", "the next window"),
        (Window(30 * SECOND, 10 * SECOND, 3 * SECOND), 50, 46, "00:00:53", "the next window"),
        (SessionWindow(30 * SECOND), 50, 48, "00:01:20", "the last session"),
    ],
)
def test_a_query_with_rows_says_when_the_next_window_ends(
    window: Window | SessionWindow, clock: int, watermark: int, end: str, which: str
) -> None:
    found = catalog(purchases={"clock": clock, "watermark": watermark})
    shown = open_window(running(aggregation(window=window), rows_out=1), found)
    assert shown is not None
    assert (shown["stream"], shown["window_end"]) == ("purchases", f"1970-01-01T{end}.000000Z")
    assert f", where {which} ends. A row with a time from " in shown["detail"]
    assert "braid push purchases --end" in shown["detail"]


def test_the_slowest_stream_that_is_not_idle_holds_the_window_of_a_join() -> None:
    query = running(join(), rows_out=1)
    states = {"purchases": {"clock": 90, "watermark": 88}, "ads": {"clock": 50, "watermark": 48}}
    shown = open_window(query, catalog(**states))
    assert shown is not None
    assert (shown["stream"], shown["window_end"]) == ("ads", "1970-01-01T00:01:00.000000Z")
    shown = open_window(query, catalog(**{**states, "ads": {**states["ads"], "is_idle": True}}))
    assert shown is not None
    assert (shown["stream"], shown["window_end"]) == ("purchases", "1970-01-01T00:02:00.000000Z")


def test_no_window_is_open_where_rows_wait_for_none() -> None:
    windowed, read = aggregation(window=MINUTE), {"clock": 50, "watermark": 48}
    for query, state in (
        (running(selection(), rows_out=1), read),
        (running(windowed), read),  # `waiting_for` says it
        (replace(running(windowed, rows_out=1), state="PAUSED"), read),
        (running(replace(windowed, emit=Emit(delay_us=SECOND)), rows_out=1), read),
        (running(windowed, rows_out=1), {}),
        (running(aggregation(window=SessionWindow(30 * SECOND)), rows_out=1), {"clock": 50, "watermark": 90}),
    ):
        assert open_window(query, catalog(purchases=state)) is None
    found = Catalog()
    definition = StreamDefinition("s-1", "purchases", SCHEMA, "push", "json")
    found.add(StreamState(definition, clock=50 * SECOND, watermark=ENDED))
    assert open_window(running(windowed, rows_out=1), found) is None
