"""Which column is the event time, and how late rows come by it."""

from __future__ import annotations

import numpy as np
import pytest

from braid.sources.core.schema import BIGINT, TIMESTAMP, VARCHAR
from braid.sources.inference.columns import MISSING, Inferred
from braid.sources.inference.event_time import DAY, HOUR, MINUTE, SECOND, Disorder, choose_event_time, rounded


def column(name: str, *seconds: int | None, time_format: str = "") -> Inferred:
    us = np.array([MISSING if s is None else s * SECOND for s in seconds], np.int64)
    return Inferred(name, BIGINT if time_format else TIMESTAMP, "", seconds.count(None), us, time_format)


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        ([column("a", 1, 2)], "a"),
        ([column("a", 1, 2), column("b", 1, 2)], "a"),
        ([column("a", 1, 2), column("event_time", 1, 2)], "event_time"),
        ([column("updated_at", 1, 2), column("created_at", 1, 2)], "created_at"),
        ([column("pickup_datetime", 1, 2), column("dropoff_datetime", 1, 2)], "pickup_datetime"),
        ([column("time", 1, None), column("a", 1, 2)], "a"),
        ([column("time", 5, 5), column("a", 1, 2)], "a"),
        ([column("ts", 1, 2, time_format="epoch-millis"), column("a", 1, 2)], "a"),
        ([column("ts", 1, 2, time_format="epoch-millis"), Inferred("a", VARCHAR)], "ts"),
        ([column("day", 1, 2, time_format="yyyy-MM-dd"), column("a", 1, None)], "a"),
    ],
)
def test_the_likeliest_column_is_chosen_and_the_others_are_named(columns: list[Inferred], chosen: str) -> None:
    found = choose_event_time(columns)
    assert found is not None
    assert found.column.name == chosen
    assert {chosen, *found.others} == {c.name for c in columns if c.times is not None}


def test_without_a_time_there_is_none() -> None:
    assert choose_event_time([Inferred("a", VARCHAR)]) is None


def test_disorder_is_how_far_rows_come_after_greater_times() -> None:
    found = choose_event_time([column("t", 10, 12, None, 7, 12, 11)])
    assert found is not None
    assert found.disorder == Disorder(5 * SECOND, 2)
    times = np.arange(10) * SECOND
    assert Disorder.of(times) == Disorder.of(times[:0]) == Disorder(0, 0)


def test_rows_within_the_lateness_are_not_beyond_it() -> None:
    times = np.arange(10_000) * SECOND
    times[1000::50] -= round(7.4 * SECOND)
    times[[1001, 2001, 3001]] -= round(7.7 * SECOND)
    times[5001] -= 3600 * SECOND
    found = Disorder.of(times)
    assert 6 * SECOND < found.us < rounded(found.us) == 10 * SECOND
    assert found.beyond == 1


def test_few_rows_with_wrong_times_do_not_make_the_lateness() -> None:
    seconds = [1000 + n - n % 3 for n in range(5000)]
    found = choose_event_time([column("t", *seconds[:4000], 1, *seconds[4000:], 10**9)], 10**6 * SECOND)
    assert found is not None
    assert (found.disorder.us, found.disorder.beyond, found.beyond, found.are_beyond) == (SECOND, 1, 1, False)
    assert found.lateness_us == SECOND


def test_times_beyond_now_are_believed_where_there_are_many() -> None:
    found = choose_event_time([column("t", *range(100))], 50 * SECOND)
    assert found is not None
    assert (found.are_beyond, found.beyond, found.disorder.rows) == (True, 0, 0)


@pytest.mark.parametrize(
    ("us", "lateness"),
    [
        (0, SECOND),
        (SECOND + 1, 2 * SECOND),
        (6 * MINUTE, 10 * MINUTE),
        (18 * HOUR, DAY),
        (364 * DAY, 365 * DAY),
        (365 * DAY + 1, 366 * DAY),
        (200 * 365 * DAY, 36_525 * DAY),
    ],
)
def test_lateness_takes_in_the_disorder(us: int, lateness: int) -> None:
    assert rounded(us) == lateness
