"""Throughput and growth on queues that are worked out: what a system takes, and whether it keeps up, is known."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from braid.bench_driver.measure import throughput
from braid.bench_driver.measure.throughput import (
    Line,
    QueuePoint,
    consumer_rates,
    growth,
    overall_throughput,
    pulled_rate,
    queue_points,
    teeth,
)

RATE = 1_000_000.0
LOOK = 0.1


@dataclass(frozen=True)
class Looked:
    """A look at a queue."""

    at: float
    generated: int
    pulled: dict[str, int] = field(default_factory=dict)


def look(seconds: float, offered: float, pulls: Line, skip: float = 0.25) -> list[QueuePoint]:
    """Sample a queue ten times a second, pulled from as `(when, up to which tuple)` says, without its warm-up."""
    points = []
    for tick in range(int(seconds / LOOK) + 1):
        at = tick * LOOK
        pulled = max((upto for when, upto in pulls if when <= at), default=0.0)
        points.append(QueuePoint(1e9 + at, int(offered * at), int(pulled)))
    return points[int(len(points) * skip) :]


def trickle(seconds: float, offered: float, service: float, pauses: tuple[tuple[float, float], ...] = ()) -> Line:
    """A system that takes what there is, up to `service` tuples a second, except during its pauses."""
    pulls: list[tuple[float, float]] = []
    at, taken = 0.0, 0.0
    while at < seconds:
        at += 0.02
        if not any(begin <= at < begin + length for begin, length in pauses):
            taken = min(offered * at, taken + service * 0.02)
            pulls.append((at, taken))
    return pulls


def batches(
    seconds: float,
    offered: float,
    service: float,
    least: float,
    max_tuples: float = 1e18,
    noise: float = 0.0,
    seed: int = 1,
) -> Line:
    """A system that takes all there is, at most `max_tuples`, in batches that last at least `least` seconds."""
    rng, at, taken = random.Random(seed), 0.33, 0.0
    pulls: list[tuple[float, float]] = []
    while at < seconds:
        size = min(offered * at - taken, max_tuples)
        taken += size
        # a batch is pulled in three bites
        pulls += [(at + 0.05 * bite, taken - size * (2 - bite) / 3) for bite in range(3)]
        at += max(least, size / service) * rng.uniform(1 - noise, 1 + noise)
    return pulls


@pytest.mark.parametrize("seconds", [6, 30])
@pytest.mark.parametrize("load", [0.3, 0.97])
def test_a_queue_that_is_always_emptied_does_not_grow(seconds: int, load: float) -> None:
    measured = growth(look(seconds, RATE * load, trickle(seconds, RATE * load, RATE)), RATE * load)
    assert not measured.keeps_growing
    assert abs(measured.tuples_per_second) < 0.01 * RATE


@pytest.mark.parametrize("seconds", [6, 30])
@pytest.mark.parametrize("excess", [0.02, 0.05, 0.3, 4.0])
def test_a_queue_that_steadily_grows_by_two_percent_or_more_does(seconds: int, excess: float) -> None:
    offered = RATE / (1 - excess) if excess < 1 else RATE * (1 + excess)
    measured = growth(look(seconds, offered, trickle(seconds, offered, RATE)), offered)
    assert measured.keeps_growing
    assert measured.tuples_per_second == pytest.approx(offered - RATE, rel=0.1, abs=0.006 * RATE)


@pytest.mark.parametrize("least", [0.3, 1.0, 2.0, 3.7, 5.0])
@pytest.mark.parametrize("load", [0.5, 0.97])
def test_the_sawtooth_of_batches_that_keep_up_passes(least: float, load: float) -> None:
    offered = RATE * load
    points = look(30, offered, batches(30, offered, RATE, least))
    assert max(point.length for point in points) > 0.7 * least * offered, "no sawtooth"
    assert not growth(points, offered).keeps_growing


def test_batches_of_uneven_length_pass_nine_times_in_ten() -> None:
    verdicts = [growth(look(30, RATE, batches(30, RATE, 2 * RATE, 2.0, noise=0.15, seed=s)), RATE) for s in range(60)]
    assert sum(verdict.keeps_growing for verdict in verdicts) <= 6


@pytest.mark.parametrize("least", [1.0, 2.0, 3.7])
@pytest.mark.parametrize("excess", [0.02, 0.1])
def test_the_sawtooth_of_batches_of_limited_size_that_cannot_keep_up_fails(least: float, excess: float) -> None:
    offered = RATE / (1 - excess)
    measured = growth(look(30, offered, batches(30, offered, 1e9, least, max_tuples=RATE * least)), offered)
    assert measured.keeps_growing
    assert measured.tuples_per_second == pytest.approx(offered - RATE, rel=0.2)


@pytest.mark.parametrize("excess", [1.1, 1.5])
def test_batches_that_become_longer_and_longer_fail(excess: float) -> None:
    points = look(30, RATE * excess, batches(30, RATE * excess, RATE, 1.0))
    assert growth(points, RATE * excess).keeps_growing


@pytest.mark.parametrize("begin", [10.0, 15.0, 20.0, 25.0])
def test_a_pause_that_is_caught_up_with_is_transient(begin: float) -> None:
    offered = 0.95 * RATE
    points = look(30, offered, trickle(30, offered, RATE, ((begin, 0.5),)))
    assert max(point.length for point in points) > 0.4 * offered
    assert not growth(points, offered).keeps_growing


@pytest.mark.parametrize("begin", [12.0, 20.0, 27.0])
def test_a_system_that_stands_still_at_last_does_not_sustain_the_load(begin: float) -> None:
    points = look(30, RATE, trickle(30, RATE, 2 * RATE, ((begin, 100.0),)))
    assert growth(points, RATE).keeps_growing


def test_a_queue_that_nobody_pulls_from_grows_as_it_is_filled() -> None:
    points = look(30, RATE, [])
    assert growth(points, RATE).tuples_per_second == pytest.approx(RATE)
    assert growth(points, RATE).keeps_growing
    assert pulled_rate(points) == 0
    assert growth([], RATE).keeps_growing, "nothing was seen"
    assert pulled_rate([]) is None


def test_less_than_comes_between_two_samples_is_no_backlog() -> None:
    points = [QueuePoint(1e9 + t / 10, 100 * t, 100 * t - 9 * t) for t in range(11)]
    assert not growth(points, 1000).keeps_growing
    assert growth(points, 1000).tuples_per_second == pytest.approx(90)
    assert growth([*points, QueuePoint(1e9 + 1.2, 1200, 1092)], 1000).keeps_growing


@pytest.mark.parametrize("least", [0.3, 1.0, 3.7])
def test_the_rate_is_that_of_whole_batches(least: float) -> None:
    points = look(30, RATE, batches(30, RATE, 1.2 * RATE, least))
    assert pulled_rate(points) == pytest.approx(RATE, rel=0.02)
    limited = look(30, 2 * RATE, batches(30, 2 * RATE, 1e9, least, max_tuples=RATE * least))
    assert pulled_rate(limited) == pytest.approx(RATE, rel=0.02)


def test_batches_that_grow_do_not_count_what_they_have_yet_to_do() -> None:
    points = look(30, 1.4 * RATE, batches(30, 1.4 * RATE, RATE, 1.0))
    assert pulled_rate(points) == pytest.approx(RATE, rel=0.05)
    overall_rate = (points[-1].pulled - points[0].pulled) / (points[-1].at - points[0].at)
    assert overall_rate > 1.08 * RATE, "the plain rate would do as well"


@pytest.mark.parametrize("late", [1.0, 29.5])
def test_a_burst_that_is_late_by_chance_hardly_moves_the_rate(late: float) -> None:
    points = look(30, 2 * RATE, trickle(30, 2 * RATE, RATE), skip=0)
    delayed = [replace(p, pulled=int(RATE * late)) if late <= p.at - 1e9 < late + 0.5 else p for p in points]
    assert delayed != points
    assert pulled_rate(delayed) == pytest.approx(RATE, rel=0.002)


def test_a_single_batch_says_little_and_not_too_much() -> None:
    points = look(30, 2 * RATE, batches(30, 2 * RATE, RATE, 1.0))
    assert len(teeth(points)) == 1
    assert 0.5 * RATE < (pulled_rate(points) or 0) < 1.1 * RATE
    assert growth(points, 2 * RATE).keeps_growing


def test_the_bites_of_a_batch_are_one_tooth_and_one_that_may_have_begun_before_is_none() -> None:
    points = look(30, RATE, batches(30, RATE, 10 * RATE, 3.0), skip=0)
    batch_teeth = teeth(points)
    assert len(batch_teeth) == 9, "the first of ten begins with the sampling"
    assert all(t.after.pulled - t.before.pulled == pytest.approx(3 * RATE) for t in batch_teeth)


def test_the_slowest_consumer_that_counts_says_how_long_the_queue_is() -> None:
    samples = [Looked(1e9 + t, 10 * t, {"fast": 10 * t, "slow": 4 * t, "gone": 0}) for t in range(21)]
    points = queue_points(samples, 1e9 + 5, 1e9 + 10, {"fast", "slow"})
    assert [point.at - 1e9 for point in points] == [5, 6, 7, 8, 9, 10]
    assert points[-1].length == 60
    assert queue_points(samples, 1e9 + 10, 1e9 + 10)[0].length == 100
    assert queue_points([Looked(1e9, 7)], 0, 2e9)[0].length == 7
    assert consumer_rates(samples, 1e9, 1e9 + 20, {"fast", "slow", "gone"}) == pytest.approx([10, 0, 4])


def test_overall_throughput_is_the_sum_over_queries() -> None:
    assert overall_throughput([100.0], 20) == 2000, "one consumer pulls for all"
    assert overall_throughput([100.0, 50.0], 2) == 150
    assert overall_throughput([100.0, 50.0], 4) == 300
    assert overall_throughput([], 4) == 0


@pytest.mark.parametrize(("begin", "expected"), [(0.0, 9), (5.0, 4), (9.2, 0)])
def test_a_batch_lasts_from_a_burst_of_pulls_to_the_next(begin: float, expected: int) -> None:
    """One consumer pulls once a second, half a second after it began; the other ten times as often."""
    samples = [
        Looked(tick * LOOK, 1000 * tick, {"slow": 10_000 * int(tick * LOOK + 0.55), "quick": 1000 * tick})
        for tick in range(101)
    ]
    assert throughput.batches(samples, begin, 10.0, ["slow", "quick"]) == expected
    assert throughput.batches(samples, begin, 10.0, ["quick"]) > expected
    assert throughput.batches(samples, begin, 10.0, []) == 0
