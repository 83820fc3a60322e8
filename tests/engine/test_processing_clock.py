"""Processing time goes on whatever is done to the system's clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braid.engine.planning.processing_clock import ProcessingClock

HOUR_US = 3_600_000_000


def test_it_is_the_systems_time() -> None:
    clock = ProcessingClock(lambda: 0)
    assert [clock.time_us(now, 0) for now in (5, 5, 9)] == [5, 5, 9]


def test_it_goes_on_while_the_systems_time_is_behind_the_last_batch() -> None:
    elapsed_ns = [0]
    clock = ProcessingClock(lambda: elapsed_ns[0])
    assert clock.time_us(0, HOUR_US) == HOUR_US
    elapsed_ns[0] += 2_000_000_000
    assert clock.time_us(2_000_000, HOUR_US) == HOUR_US + 2_000_000
    # the system's clock is set forth and back again
    assert clock.time_us(2 * HOUR_US, HOUR_US) == 2 * HOUR_US
    assert clock.time_us(2_500_000, 2 * HOUR_US) == 2 * HOUR_US
    elapsed_ns[0] += 1_000_000_000
    assert clock.time_us(3_500_000, 2 * HOUR_US) == 2 * HOUR_US + 1_000_000
    # it has caught up
    assert clock.time_us(2 * HOUR_US + 1_500_000, 2 * HOUR_US) == 2 * HOUR_US + 1_500_000


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 5), st.booleans())))
def test_it_never_falls_and_goes_on_at_least_as_the_other_clock_while_behind(
    steps: list[tuple[int, int, bool]],
) -> None:
    elapsed_us, last, planned = 0, 0, 0
    clock = ProcessingClock(lambda: elapsed_us * 1000)
    was_behind = False
    for system_us, step_us, is_planned in steps:
        elapsed_us += step_us
        now = clock.time_us(system_us, planned)
        is_behind = system_us < last
        assert now >= max(system_us, last)
        if is_behind and was_behind:
            assert now == last + step_us
        last, was_behind = now, is_behind
        planned = now if is_planned else planned
