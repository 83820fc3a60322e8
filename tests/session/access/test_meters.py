"""What a tenant may use by the second and by the minute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.session.access.meters import Meters, TokenBucket
from braid.session.access.principal import Quotas
from braid.sources.core.errors import Overloaded


class Clock:
    """A clock that a test sets, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 20)), max_size=60))
def test_in_any_stretch_no_more_is_granted_than_burst_and_rate_allow(steps: list[tuple[float, int]]) -> None:
    clock = Clock()
    bucket = TokenBucket(rate=2.0, burst=10.0, clock=clock)
    granted: list[tuple[float, int]] = []
    for seconds, amount in steps:
        clock.now += seconds
        if bucket.take(amount) == 0:
            granted.append((clock.now, amount))
    for first, (begin, _) in enumerate(granted):
        total = 0
        for at, amount in granted[first:]:
            total += amount
            assert total <= 10 + 2 * (at - begin) + 1e-6


def test_what_is_missing_is_there_after_the_time_that_was_told() -> None:
    clock = Clock()
    bucket = TokenBucket(rate=2.0, burst=10.0, clock=clock)
    assert bucket.take(8) == 0
    assert bucket.take(6) == pytest.approx(2.0)
    clock.now += 2.0
    assert bucket.take(6) == 0


def test_creations_are_refused_with_the_time_to_come_again() -> None:
    clock = Clock()
    meters = Meters(Quotas(creations_a_minute=6), clock)
    meters.count_creations(6)
    with pytest.raises(Overloaded, match="creations_a_minute") as refused:
        meters.count_creations(1)
    assert refused.value.retry_after == 10
    clock.now += 10
    meters.count_creations(1)


def test_rows_are_read_at_the_rate_of_the_quota() -> None:
    clock = Clock()
    meters = Meters(Quotas(result_rows_a_second=100), clock)
    rows_read = 0
    while clock.now < 60:
        try:
            page_rows = meters.rows_at_once(1000)
        except Overloaded:
            assert meters.rows_paused() > 0
            clock.now += 0.25
            continue
        assert 1 <= page_rows <= 100
        meters.count_rows(page_rows)
        rows_read += page_rows
        assert rows_read <= 100 + 100 * clock.now
    assert rows_read >= 6000


def test_a_quota_of_nothing_allows_nothing_and_no_quota_everything() -> None:
    none, free = Meters(Quotas(creations_a_minute=0, result_rows_a_second=0)), Meters(Quotas())
    for refused in (lambda: none.count_creations(1), lambda: none.rows_at_once(1)):
        with pytest.raises(Overloaded) as error:
            refused()
        assert error.value.retry_after == 3600
    free.count_creations(10**9)
    free.count_rows(10**9)
    assert free.rows_at_once(10**6) == 10**6
