"""A schedule's event times never fall, and `generated` is exactly their inverse."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.bench_driver.queues.schedule import RatePart, RateSegment, Schedule, Share, parse_profile

AT = 1_700_000_000_000_000
SECOND = 1_000_000

rates = st.one_of(st.integers(0, 100), st.integers(1, 20_000_000))
parts = st.builds(RatePart, st.floats(0.000_001, 500), rates)
profiles = st.lists(parts, min_size=1, max_size=4)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Several runs after each other, each from some tuple that there is by then."""
    schedule = Schedule()
    now_us = AT
    for profile in draw(st.lists(profiles, min_size=1, max_size=4)):
        now_us += draw(st.integers(0, 1000 * SECOND))
        kept_tuples = draw(st.integers(0, schedule.generated(now_us)))
        schedule = schedule.after(kept_tuples, now_us + draw(st.integers(-SECOND, SECOND)), profile)
    return schedule


def neighbourhood(schedule: Schedule, draw: st.DataObject) -> range:
    """A few hundred offsets, most often around the edge of a segment."""
    edges = [segment.first_offset for segment in schedule.segments]
    edge = draw.draw(st.sampled_from(edges)) + draw.draw(st.integers(-150, 150))
    start = max(0, edge)
    end = start
    while end < start + 300 and schedule.time_of(end) is not None:
        end += 1
    return range(start, end)


@settings(deadline=None)
@given(schedules(), st.data())
def test_event_times_never_fall_and_generated_is_their_inverse(schedule: Schedule, data: st.DataObject) -> None:
    offsets = neighbourhood(schedule, data)
    times = [time for offset in offsets if (time := schedule.time_of(offset)) is not None]
    assert times == sorted(times)
    assert schedule.times(offsets.start, offsets.stop).tolist() == times
    for offset, time in zip(offsets, times, strict=True):
        assert schedule.generated(time) > offset
        assert schedule.generated(time - 1) <= offset


def test_tuples_on_both_sides_of_a_pause_come_in_one_piece() -> None:
    schedule = Schedule().after(0, AT, [RatePart(1.0, 1), RatePart(1.0, 0), RatePart(1.0, 1)])
    assert schedule.times(0, 2).tolist() == [AT, AT + 2 * SECOND]
    with pytest.raises(ValueError, match=r"tuple 2 of \[0, 3\) is not in the schedule"):
        schedule.times(0, 3)


@settings(deadline=None)
@given(schedules(), st.integers(-SECOND, 5000 * SECOND))
def test_generated_counts_the_tuples_up_to_a_time(schedule: Schedule, since: int) -> None:
    now_us = AT + since
    count = schedule.generated(now_us)
    if count:
        last_time_us = schedule.time_of(count - 1)
        assert last_time_us is not None
        assert last_time_us <= now_us
    next_time_us = schedule.time_of(count)
    assert next_time_us is None or next_time_us > now_us


@settings(deadline=None)
@given(st.integers(1, 20_000_000), st.integers(0, 10**13), st.integers(0, 10**12))
def test_the_times_of_a_constant_rate_are_exact(rate: int, first: int, since: int) -> None:
    segment = RateSegment(first, AT, rate)
    exact = AT + Fraction(since * SECOND, rate)
    time = segment.time_of(first + since)
    assert time <= exact < time + 1
    assert segment.times(first + since, first + since + 1).tolist() == [time]
    assert segment.before(time + 1) > first + since >= segment.before(time)


@settings(deadline=None)
@given(schedules(), st.integers(0, 5000 * SECOND), profiles, st.data())
def test_what_is_kept_keeps_its_times(
    schedule: Schedule, since: int, profile: list[RatePart], data: st.DataObject
) -> None:
    kept_tuples = data.draw(st.integers(0, schedule.generated(AT + since)))
    changed = schedule.after(kept_tuples, AT + since, profile)
    start = max(0, kept_tuples - 200)
    assert changed.times(start, kept_tuples).tolist() == schedule.times(start, kept_tuples).tolist()
    assert changed.generated(AT + since - 1) <= kept_tuples
    assert Schedule.from_json(changed.to_json()) == changed


def test_a_profile_goes_through_its_rates_and_then_pauses() -> None:
    schedule = Schedule().after(0, AT, [RatePart(2, 1000), RatePart(1, 0), RatePart(0.5, 4)])
    assert [schedule.generated(AT + seconds * SECOND // 2) for seconds in (-1, 0, 1, 4, 5, 6, 7, 100)] == [
        0, 1, 501, 2000, 2000, 2001, 2002, 2002,
    ]  # fmt: skip
    assert [schedule.time_of(offset) for offset in (0, 1999, 2000, 2001, 2002)] == [
        AT, AT + 1_999_000, AT + 3 * SECOND, AT + 3_250_000, None,
    ]  # fmt: skip


def test_the_last_part_may_last_for_ever() -> None:
    schedule = Schedule().after(0, AT, [RatePart(None, 20_000_000)])
    year = 365 * 24 * 3600
    assert schedule.time_of(20_000_000 * year) == AT + year * SECOND
    times = schedule.times(20_000_000 * year, 20_000_000 * year + 40)
    assert times.tolist() == [AT + year * SECOND] * 20 + [AT + year * SECOND + 1] * 20
    assert times.dtype == np.int64


def test_a_pause_has_no_tuples() -> None:
    assert Schedule().generated(AT) == 0
    assert Schedule().time_of(0) is None
    assert Schedule().times(0, 0).tolist() == []
    stopped = Schedule((RateSegment(0, AT, 10), RateSegment(5, AT + SECOND, 0)))
    assert stopped.generated(AT + 100 * SECOND) == 5
    with pytest.raises(ValueError, match="tuple 5 of"):
        stopped.times(3, 6)
    with pytest.raises(ValueError, match="there is no tuple 6"):
        stopped.after(7, AT, [RatePart(1, 1)])


@pytest.mark.parametrize(
    "segments",
    [
        (RateSegment(0, AT, 10), RateSegment(20, AT + SECOND, 10)),  # tuple 19 is due at AT + 1.9 s
        (RateSegment(5, AT, 10), RateSegment(4, AT + SECOND, 10)),
        (RateSegment(0, AT, 0), RateSegment(1, AT + SECOND, 10)),
        (RateSegment(0, AT, 0), RateSegment(0, AT - 1, 10)),
    ],
)
def test_segments_that_contradict_each_other_are_refused(segments: tuple[RateSegment, ...]) -> None:
    with pytest.raises(ValueError, match="event times must not fall"):
        Schedule(segments)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, "a profile must be"),
        ([3], "a profile must be"),
        ([[1, 2, 3]], "a profile must be"),
        ([[0, 5]], "more than 0 seconds"),
        ([["1", 5]], "more than 0 seconds"),
        ([[float("nan"), 5]], "more than 0 seconds"),
        ([[1, -1]], "a rate must be"),
        ([[1, 1.5]], "a rate must be"),
        ([[1, True]], "a rate must be"),
        ([[1, 10**9]], "a rate must be"),
    ],
)
def test_profiles_that_are_none_are_refused(document: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_profile(document)


@pytest.mark.parametrize("profile", [[], [RatePart(None, 1), RatePart(1, 1)]])
def test_only_the_last_part_may_last_for_ever(profile: list[RatePart]) -> None:
    with pytest.raises(ValueError, match="a profile needs parts"):
        Schedule().after(0, AT, profile)


@pytest.mark.parametrize("segment", [(-1, AT, 5), (0, AT, -5), (0, 1.5, 5), (0, AT, True)])
def test_segments_are_whole_numbers(segment: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="a segment"):
        RateSegment(*segment)


def test_shares_of_a_rate_are_whole_groups_of_it() -> None:
    persons, bids, all_of_it = Share(1, 50), Share(46, 50), Share()
    for rate in (1, 50, 51, 1_000_000, 1_000_007):
        assert bids.rate(rate) == 46 * persons.rate(rate) == 46 * persons.groups(rate)
        assert rate <= bids.of_workload(bids.rate(rate)) < rate + 50
        assert all_of_it.rate(rate) == all_of_it.of_workload(rate) == rate
    assert bids.rate(0) == 0
    for tuples, of in ((0, 50), (51, 50), (1, 0)):
        with pytest.raises(ValueError, match="0 < tuples <= of"):
            Share(tuples, of)
