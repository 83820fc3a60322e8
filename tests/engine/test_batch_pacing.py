"""When batches begin: with windows that end together just after these, else at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.engine.planning.batch_pacing import BatchPacing, ExpectedEnds, ReadingTime
from braid.operators.joins.query import Join, JoinInput
from braid.operators.queries import Query, Selection
from braid.operators.query_parts import Output
from braid.operators.windows import Emit, SessionWindow, Window
from tests.operators.pipeline import STREAM, K, aggregation

SECOND = 1_000_000
OTHER = "s-2"

windows = st.builds(Window, st.integers(1, 9), st.integers(1, 9), st.integers(0, 9))


def join(window: Window) -> Join:
    """Return a join of two streams."""
    inputs = tuple(JoinInput(stream, alias, None, (K,)) for stream, alias in ((STREAM.id, "a"), (OTHER, "b")))
    return Join(inputs, window, (Output("k", K),))


@given(
    st.lists(st.tuples(windows, st.booleans()), max_size=6),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.integers(-20, 20),
    st.integers(0, 20),
)
def test_windows_that_ended_and_that_end_next_by_trying_all(
    specs: list[tuple[Window, bool]], delays: tuple[int, int], before: int, length: int
) -> None:
    ends, now = ExpectedEnds(), before + length
    for number, (window, is_join) in enumerate(specs):
        ends.add(str(number), join(window) if is_join else aggregation(window=window))
    window_ends: list[int] = []
    for window, is_join in specs:
        last = window.offset_us + window.size_us + (max(delays) if is_join else delays[0])
        window_ends += [last + k * window.slide_us for k in range(-60, 60)]
    delay_of = {STREAM.id: delays[0], OTHER: delays[1]}
    reached = {stream: before - delay for stream, delay in delay_of.items()}
    ended, ahead, ending = ends.around(delay_of, reached, now)
    assert ended == sum(before < end <= now for end in window_ends)
    assert ends.around(delay_of, dict.fromkeys(reached, now), now)[0] == 0, "what was fired has not ended anew"
    later = sorted(end for end in window_ends if end > now)
    next_ends = [min(end for end in window_ends[120 * n : 120 * n + 120] if end > now) for n in range(len(specs))]
    assert ahead == (max(next_ends) - now if later else -1), "all are within a few microseconds, and so the same"
    assert ending == len(specs)


def test_queries_that_wait_for_no_window_have_always_ended() -> None:
    ends = ExpectedEnds()
    queries: list[Query] = [
        Selection(STREAM.id, None, ()),
        aggregation(window=Window(SECOND, SECOND), emit=Emit(stream=True, after_watermark=False)),
        aggregation(window=Window(SECOND, SECOND), emit=Emit(delay_us=SECOND)),
        aggregation(window=SessionWindow(SECOND)),  # type: ignore[arg-type]
        aggregation(window=Window(10 * SECOND, 2 * SECOND)),
    ]
    for number, query in enumerate(queries):
        ends.add(str(number), query)
    assert ends.around({STREAM.id: 0}, {STREAM.id: 2 * SECOND}, 3 * SECOND) == (4, SECOND, 1)
    assert ends.around({}, {}, 3 * SECOND) == (0, -1, 0), "nobody knows when tuples of the stream come"
    for number in range(1, 5):
        ends.remove(str(number))
    ends.remove("unknown")
    assert ends.around({STREAM.id: 0}, {STREAM.id: 2 * SECOND}, 3 * SECOND) == (1, -1, 0)


def latencies(
    pacing: BatchPacing, fixed: float, share: float, period: float, delay: Callable[[int], float], seconds: int = 60
) -> np.ndarray:
    """Return how long after its end each window of ``period`` seconds has rows, after a while.

    A batch takes ``fixed`` seconds and a ``share`` of the time whose tuples it reads.
    """
    return run(pacing, fixed, share, period, delay, seconds)[0]


def run(
    pacing: BatchPacing,
    fixed: float,
    share: float,
    period: float,
    delay: Callable[[int], float],
    seconds: int = 60,
    firing: float = 0.0,
) -> tuple[np.ndarray, float]:
    """Return what :func:`latencies` does, and how many batches there are a second; ``firing`` is what rows take."""
    now = before = 0.05
    due, latencies_us, number = period, [], 0
    while now < seconds:
        if pacing.is_too_early(round(before * 1e6), round(now * 1e6), now - before, [STREAM.id]):
            now += 0.01  # Spark asks again
            continue
        watermark, number = now - delay(number), number + 1
        has_rows = due <= watermark
        duration = fixed + share * (now - before) + firing * has_rows
        record = {
            "results": [{}] * has_rows,
            "planned_us": round(now * 1e6),
            "watermarks": {STREAM.id: round(watermark * 1e6)},
            "streams": {STREAM.id: {"tuples": 1}},
        }
        pacing.learn(record, now - before, round(duration * 1e6))
        before, now = now, now + duration
        while due <= watermark:
            latencies_us.append(now - due)
            due += period
    return np.array(latencies_us[len(latencies_us) // 3 :]), number / seconds


def pacing_with(*queries: Query) -> BatchPacing:
    """Return a decision over some queries."""
    pacing = BatchPacing()
    for number, query in enumerate(queries):
        pacing.window_ends.add(str(number), query)
    return pacing


def is_too_early(pacing: BatchPacing, before_us: int, now_us: int) -> bool:
    """Return whether a batch that reads what the stream had since the one before is too early."""
    return pacing.is_too_early(before_us, now_us, (now_us - before_us) / SECOND, [STREAM.id])


@pytest.mark.parametrize(("fixed", "share"), [(0.2, 0.1), (0.2, 0.5), (0.2, 0.75), (0.3, 0.6)])
def test_windows_that_end_each_second_have_their_rows_sooner(fixed: float, share: float) -> None:
    query = aggregation(window=Window(SECOND, SECOND))
    waiting = latencies(pacing_with(query), fixed, share, 1.0, lambda n: 0.02 + 0.01 * (n % 3))
    at_once = latencies(pacing_with(), fixed, share, 1.0, lambda n: 0.02 + 0.01 * (n % 3))
    assert np.percentile(waiting, 95) < np.percentile(at_once, 95)
    assert waiting.mean() < 0.95 * at_once.mean()


def test_no_batch_waits_for_windows_that_end_all_the_time() -> None:
    pacing = pacing_with(*(aggregation(window=Window(SECOND, SECOND, offset * 2000)) for offset in range(500)))
    latencies(pacing, 0.2, 0.5, 1.0, lambda _: 0.02)
    assert not any(is_too_early(pacing, 70 * SECOND, 70 * SECOND + ms * 1000) for ms in range(450, 1200))


@pytest.mark.parametrize("delay", [lambda n: 0.1 * n, lambda n: 3.0 * (n % 2), lambda n: -0.5 * n])
def test_no_batch_waits_where_nobody_knows_when_tuples_come(delay: Callable[[int], float]) -> None:
    pacing = pacing_with(aggregation(window=Window(SECOND, SECOND)))
    latencies(pacing, 0.2, 0.5, 1.0, delay)
    assert not any(is_too_early(pacing, 70 * SECOND, 70 * SECOND + ms * 1000) for ms in range(200, 1200))


def test_batches_are_some_time_apart() -> None:
    pacing, before = BatchPacing(), 70 * SECOND
    assert [is_too_early(pacing, before, before + ms * 1000) for ms in (0, 1, 99, 100, 500)] == [True] * 3 + [False] * 2
    assert not is_too_early(pacing, before, before - SECOND), "a clock that was set back"


def test_no_batch_waits_for_long() -> None:
    pacing = pacing_with(aggregation(window=Window(SECOND, SECOND)))
    latencies(pacing, 0.2, 0.0, 1.0, lambda _: 0.0)
    early = [ms for ms in range(1000) if is_too_early(pacing, 69 * SECOND + 900_000, 70 * SECOND + ms * 1000)]
    assert any(ms > 900 for ms in early)
    assert all(ms < 5 or ms > 900 for ms in early), "less than half of the 0.2 s that a batch takes"
    pacing.learn({"planned_us": 71 * SECOND, "watermarks": {}, "streams": {}}, 1, 200_000)
    assert not any(is_too_early(pacing, 70 * SECOND, 70 * SECOND + ms * 1000) for ms in range(100, 1000)), "no stream"


def few(n: int) -> float:
    """Return delays of tuples that come in chunks, steadily."""
    return 0.01 + 0.002 * (n % 3)


@pytest.mark.parametrize(
    ("period", "share", "most"), [(0.5, 0.02, 2.3), (0.5, 0.3, 4.5), (1.0, 0.1, 2.3), (5.0, 0.1, 1.5)]
)
def test_batches_that_fire_nothing_are_few(period: float, share: float, most: float) -> None:
    query = aggregation(window=Window(round(period * SECOND), round(period * SECOND)))
    waiting, batches = run(pacing_with(query), 0.1, share, period, few)
    always = Selection(STREAM.id, None, ())
    at_once, batches_at_once = run(pacing_with(query, *[always] * 1000), 0.1, share, period, few)
    assert batches < most < batches_at_once
    assert waiting.mean() < 1.05 * at_once.mean()


@pytest.mark.parametrize(("share", "firing"), [(0.3, 0.0), (0.45, 0.0), (0.3, 0.1), (0.4, 0.1)])
def test_where_there_is_much_to_read_batches_run_that_leave_less_for_the_last_one(share: float, firing: float) -> None:
    query = aggregation(window=Window(SECOND, SECOND))
    waiting, batches = run(pacing_with(query), 0.1, share, 1.0, few, firing=firing)
    always = Selection(STREAM.id, None, ())
    at_once, batches_at_once = run(pacing_with(query, *[always] * 1000), 0.1, share, 1.0, few, firing=firing)
    assert 2.3 < batches <= batches_at_once
    assert waiting.mean() < 1.05 * at_once.mean()


def test_where_windows_of_other_streams_may_end_nobody_waits() -> None:
    pacing = pacing_with(aggregation(window=Window(SECOND, SECOND)))
    latencies(pacing, 0.1, 0.1, 1.0, few, seconds=61)
    now = 60 * SECOND + 500_000
    assert pacing.is_too_early(now - 200_000, now, 0.2, [STREAM.id])
    assert not pacing.is_too_early(now - 200_000, now, 0.2, [STREAM.id, OTHER])


def test_the_time_that_reading_takes_follows_from_batches_of_different_sizes() -> None:
    reading = ReadingTime()
    assert not reading.is_little(0), "nothing is known yet"
    for size in (1000, 10_000, 2000, 8000):
        reading.learn(size, 100_000 + 2 * size)
    assert [reading.is_little(size) for size in (5000, 9000, 11_000, 20_000)] == [True, True, False, False]
    assert [reading.is_much(size) for size in (9000, 49_000, 51_000)] == [False, False, True]
    for _ in range(100):
        reading.learn(9000, 118_000)
    assert reading.is_little(9000), "batches of one size say nothing new"
    reading.learn(9000, 200_000)
    assert not reading.is_little(100), "tuples have become dearer, nobody knows by how much"
    for size in (1000, 10_000, 2000, 8000):
        reading.learn(size, 100_000 + 20 * size)
    assert [reading.is_little(size) for size in (500, 5000)] == [True, False]


def test_a_batch_with_replays_has_room_until_the_next_windows_end() -> None:
    pacing = pacing_with(aggregation(window=Window(SECOND, SECOND)))
    assert pacing.room(0) is None, "nobody can tell yet"
    latencies(pacing, 0.1, 0.1, 1.0, few, seconds=61)
    assert pacing.room(60 * SECOND + 300_000) == math.inf
    assert pacing.room(60 * SECOND + 500_000) == 0, "such a batch may take twice as long as those before it"
    assert pacing.room(61 * SECOND + 500_000) == 0, "windows ended"
    for number, size in enumerate((1000, 10_000, 2000, 8000)):
        planned_us = 61 * SECOND + 200_000 + number * 200_000
        pacing.learn(
            {
                "planned_us": planned_us,
                "watermarks": {STREAM.id: planned_us - 12_000, "s-2.q-1": 5 * SECOND * number},
                "streams": {STREAM.id: {"tuples": 1}, "s-2.q-1": {"tuples": 5}},
            },
            size,
            100_000 + 10 * size,
        )
    half_a_second = pacing.room(61 * SECOND + 500_000)
    assert half_a_second is not None
    assert 100_000 + 10 * half_a_second == pytest.approx(500_000 / 1.5, rel=0.1)
    assert pacing.room(61 * SECOND + 900_000) == 0


@pytest.mark.parametrize("sizes", [[1000] * 4, [1000, 10_000, 2000, 8000]])
def test_where_batches_with_replays_overrun_the_next_have_less_room(sizes: list[int]) -> None:
    pacing = pacing_with(aggregation(window=Window(SECOND, SECOND)))
    latencies(pacing, 0.1, 0.1, 1.0, few, seconds=61)

    def learn(number: int, size: int, duration_us: int) -> None:
        planned_us = 61 * SECOND + 200_000 + number * 10_000
        watermarks = {STREAM.id: planned_us - 12_000, "s-2.q-1": number * SECOND}
        record = {"planned_us": planned_us, "watermarks": watermarks, "streams": {s: {"tuples": 1} for s in watermarks}}
        pacing.learn(record, size, duration_us)

    for number, size in enumerate(sizes):
        learn(number, size, 100_000 + 10 * size)
    before = pacing.room(61 * SECOND + 500_000)
    learn(4, 1000, 4 * 110_000)
    after = pacing.room(61 * SECOND + 500_000)
    assert before is not None
    assert before >= max(sizes), "no more than is known to fit where sizes were alike"
    assert after == 0, "there is not four times as long as one takes"


def test_how_much_fits_a_time_is_what_takes_that_time() -> None:
    reading = ReadingTime()
    assert reading.size_within(SECOND) is None, "nothing is known yet"
    for size in (1000, 10_000, 2000, 8000):
        reading.learn(size, 100_000 + 2 * size)
    assert reading.size_within(110_000) == pytest.approx(5000)
    assert reading.size_within(90_000) == 0
