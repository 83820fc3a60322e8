"""Single steps on a queue and a system that pulls from it, on a fake clock."""

from __future__ import annotations

import pytest

from braid.bench_driver.measure import latency, steps
from braid.bench_driver.measure.result import series_of
from braid.bench_driver.measure.statistics import median
from braid.bench_driver.query_spec import ColumnRef, QuerySpec, WindowSpec
from braid.bench_driver.systems.system import SystemFailedError
from braid.bench_driver.workload import StreamSpec, Workload
from tests.bench_driver.fake_system import FakeClock, FakeOwnGenerator, FakeQueue, FakeSystem

QUERY = QuerySpec(("a",), WindowSpec(1000, 1000), keys=(ColumnRef("a", "key"),), measure=ColumnRef("a", "field0"))
WORKLOAD = Workload("fake", "", "", (StreamSpec("a", "astream"),), "aggregation", {}, (1,), 400_000)


@pytest.fixture
def queue() -> FakeQueue:
    return FakeQueue(FakeClock())


def started(system: FakeSystem, queue: FakeQueue) -> steps.Rig:
    """Start a system on a queue that already generates a little."""
    system.clock = queue.clock
    rig = steps.Rig(system, {"a": queue}, queue.clock.now(), queue.clock)
    steps.start_load(rig, 10_000)
    system.start(WORKLOAD, {"a": queue.location})
    system.deploy([QUERY], 1.0)
    steps.wait_until_pulled(rig, 20.0)
    return rig


def test_a_system_that_slows_down_gets_late_while_its_processing_time_stays_flat(queue: FakeQueue) -> None:
    """Thesis 3.4.1.1: processing time omits what waits in the queue, event time does not."""
    system = FakeSystem(200_000)
    rig = started(system, queue)

    def slow_down(share: float) -> None:
        if share >= 0.3:
            system.tuples_per_second = 50_000

    try:
        run = steps.run_step(rig, [(4.0, 100_000)], 0.25, slow_down)
    finally:
        system.stop()
    by_event = steps.event_time_latencies(run)
    by_processing = steps.processing_time_latencies(run)
    assert len(by_event) == len(by_processing) > 50
    early, late = (run.warm, run.begin + 0.3 * 4), (run.end - 1.0, run.end)

    def middle(latencies: list[latency.Latency], between: tuple[float, float]) -> float:
        median_latency = median([x.seconds for x in latencies if between[0] <= x.arrived <= between[1]])
        assert median_latency is not None
        return median_latency

    # from 1.2 s on it does half of what comes: after 3.5 s it is (3.5 - 1.2) / 2 s behind
    assert middle(by_event, late) - middle(by_event, early) > 0.8
    assert abs(middle(by_processing, late) - middle(by_processing, early)) < 0.3
    assert all(p.seconds <= e.seconds + 1e-6 for p, e in zip(by_processing, by_event, strict=True))
    verdict = steps.judge(run, 100_000)
    assert not verdict.sustained
    assert verdict.growth == pytest.approx(50_000, rel=0.5)
    series = series_of(run)
    assert series["latency"][-1][1] > series["latency"][0][1] + 0.5
    assert series["queue_length"][-1][1] > 50_000
    assert series["rate"] == [[0.0, 100_000.0], [4.0, 100_000.0]]


def test_settling_waits_for_a_system_that_is_busy_with_what_it_pulled(queue: FakeQueue) -> None:
    system = FakeSystem(100_000, batches=True)
    rig = started(system, queue)
    try:
        # four times what it can do: each batch takes four times as long as the one before
        steps.run_step(rig, [(1.0, 400_000)], 0.0, lambda _: None)
        begin = queue.clock.now()
        steps.settle(rig, 100_000, 30.0)
        elapsed = queue.clock.now() - begin
        assert elapsed < 30.0
        newest = queue.pulls()[-1]
        assert newest.at > begin
        event_us = queue.schedule.time_of(newest.end - 1)
        assert event_us is not None
        assert event_us / 1e6 >= begin, "it pulled what came after the step"
        assert queue.samples()[-1].length("fake") <= 5_000 * (steps.SETTLED_SECONDS + 1)
    finally:
        system.stop()


def test_settling_does_not_wait_for_ever(queue: FakeQueue) -> None:
    system = FakeSystem(100_000)
    rig = started(system, queue)
    system.stop()
    begin = queue.clock.now()
    steps.settle(rig, 100_000, 0.6)
    assert queue.clock.now() - begin >= 0.6


def test_who_pulled_before_does_not_count(queue: FakeQueue) -> None:
    first, second = FakeSystem(100_000), FakeSystem(100_000)
    try:
        started(first, queue)
    finally:
        first.stop()
    queue.clock.sleep(1.0)
    rig = steps.Rig(second, {"a": queue}, queue.clock.now(), queue.clock)
    with pytest.raises(SystemFailedError, match=r"fake must take tuples within 0\.3 s .* none of 'a'"):
        steps.wait_until_pulled(rig, 0.3)


def test_a_generator_of_its_own_tells_what_the_system_takes() -> None:
    system = FakeOwnGenerator(80_000)
    rig = steps.Rig(system, {}, system.clock.now(), system.clock)
    steps.wait_until_pulled(rig, 5.0)
    steps.settle(rig, 1000, 5.0)
    shares: list[float] = []
    fast = steps.judge_own_generator(steps.run_unlimited(rig, 1.0, 0.25, shares.append), None)
    assert fast.sustained
    assert fast.rate == fast.pulled_per_second == pytest.approx(80_000, rel=0.05)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    run = steps.run_step(rig, [(0.6, 40_000), (0.6, 20_000)], 0.0, lambda _: None)
    assert [rate for _, rate in system.offers] == [None, 40_000, 20_000]
    assert steps.judge_own_generator(run, 200_000).sustained is False
    assert steps.processing_time_latencies(run) == []
    assert median([x.seconds for x in steps.event_time_latencies(run)]) == pytest.approx(0.1)
    assert series_of(run)["rate"] == [[0.0, 40_000.0], [0.6, 40_000.0], [0.6, 20_000.0], [1.2, 20_000.0]]
    assert series_of(run)["queue_length"] == []


def test_a_generator_that_nobody_takes_from_is_a_failure() -> None:
    system = FakeOwnGenerator(80_000, pulling=False)
    rig = steps.Rig(system, {}, system.clock.now(), system.clock)
    with pytest.raises(SystemFailedError, match="its own generator"):
        steps.wait_until_pulled(rig, 0.3)
