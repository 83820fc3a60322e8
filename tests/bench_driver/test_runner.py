"""The driver measures systems whose speed is known (within 5 %), and gives a row for those that fail."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from braid.bench_driver.measure import run_settings, runner, steps
from braid.bench_driver.measure.result import Measured, MeasureProgress
from braid.bench_driver.measure.run_settings import RunSettings
from braid.bench_driver.measure.runner import measure
from braid.bench_driver.measure.search import StepResult
from braid.bench_driver.query_spec import ColumnRef, QuerySpec, WindowSpec
from braid.bench_driver.queues.schedule import Share
from braid.bench_driver.systems.system import SystemOutput
from braid.bench_driver.workload import Churn, StreamSpec, Workload
from tests.bench_driver.fake_system import FakeClock, FakeOwnGenerator, FakeQueue, FakeSystem

SERVICE = 200_000
QUERY = QuerySpec(("a",), WindowSpec(200, 200), keys=(ColumnRef("a", "key"),), measure=ColumnRef("a", "field0"))
WORKLOAD = Workload("fake", "", "", (StreamSpec("a", "astream"),), "aggregation", {}, (1,), 400_000)
SHORT = RunSettings(seconds=2.0, max_steps=1, ready_seconds=20.0)
KEYS = {
    *("system", "workload", "queries", "sustainable_tuples_per_second", "overall_tuples_per_second"),
    *("event_time_latency_seconds", "processing_time_latency_seconds", "deployment_latency_seconds", "sustained"),
    *("seed", "settings", "source", "slowest_tuples_per_second", "query_throughput_per_second", "error", "series"),
    *("processor_cores", "steps", "not_measured"),
}


@pytest.fixture
def queues() -> dict[str, FakeQueue]:
    return {"a": FakeQueue(FakeClock())}


def run(system: FakeSystem, queues: dict[str, FakeQueue], settings: RunSettings = SHORT, **arguments: Any) -> Measured:
    """Measure on the clock of the queues, without looking at the progress."""
    clock = system.clock = queues["a"].clock
    queries = arguments.pop("queries", [QUERY])
    workload = arguments.pop("workload", WORKLOAD)
    tell = arguments.pop("tell", lambda _: None)
    measured = measure(system, workload, queries, queues, settings, tell, clock=clock, **arguments)
    assert system.calls[-1] == "stop", "it must be stopped whatever happens"
    return measured


def test_a_known_service_rate_is_measured_within_five_percent(queues: dict[str, FakeQueue]) -> None:
    progresses: list[MeasureProgress] = []
    settings = RunSettings(seconds=3.0, max_steps=2, refinements=0, seed=7, ready_seconds=20.0)
    row = run(FakeSystem(SERVICE), queues, settings, queries=[QUERY] * 3, tell=progresses.append).row()
    assert row["error"] is None
    assert [step["sustained"] for step in row["steps"]] == [False, True, True], row["steps"]
    assert row["steps"][0]["pulled_per_second"] == pytest.approx(SERVICE, rel=0.05), "taken while too much came"
    assert row["steps"][0]["growth"] == pytest.approx(SERVICE, rel=0.1), "twice as much came"
    assert row["sustained"] is True
    assert row["sustainable_tuples_per_second"] == pytest.approx(SERVICE, rel=0.05)
    assert row["slowest_tuples_per_second"] == pytest.approx(row["sustainable_tuples_per_second"], rel=0.05)
    assert row["overall_tuples_per_second"] == pytest.approx(3 * row["slowest_tuples_per_second"])
    assert row["steps"][-1]["rate"] == int(0.9 * row["sustainable_tuples_per_second"])
    assert set(row) == KEYS
    event, processing = row["event_time_latency_seconds"], row["processing_time_latency_seconds"]
    assert 0 < processing["p50"] <= event["p50"] <= event["p95"] <= event["p99"] <= event["max"]
    assert row["deployment_latency_seconds"] == pytest.approx({"p50": 0.2, "p95": 0.3, "p99": 0.3, "max": 0.3})
    assert (row["seed"], row["queries"], row["source"], row["system"]) == (7, 3, "queue", "fake")
    assert row["settings"]["tuples_per_second"] == SERVICE
    assert row["settings"]["seconds"] == 3.0
    assert all(row["series"][name] for name in ("queue_length", "latency", "pull_interval", "rate"))
    phases = [progress.phase for progress in progresses]
    assert list(dict.fromkeys(phases)) == ["start", "deploy", "warm-up", "search", "latency", "stop"]
    assert {progress.step for progress in progresses if progress.phase == "search"} == {1, 2}


def test_with_a_given_rate_it_is_offered_until_the_system_has_adapted_to_it(queues: dict[str, FakeQueue]) -> None:
    system = FakeSystem(2 * SERVICE)
    system.adapts_in = 2
    row = run(system, queues, replace(SHORT, adapts=True, latency_load=1.0)).row()
    assert system.calls.count("has_adapted") == 3
    assert row["processor_cores"] == pytest.approx(0.5, rel=0.05)
    coming = FakeSystem(2 * SERVICE)
    coming.adapts_in = 1_000_000
    churn = replace(WORKLOAD, shape="churn", churns=(Churn(1, 0.1),))
    run(coming, queues, replace(SHORT, adapts=True), workload=churn, next_queries=[QUERY])
    assert "has_adapted" not in coming.calls, "nobody adapts to what never stays"


def test_while_queries_come_and_go_their_throughput_is_measured_too(queues: dict[str, FakeQueue]) -> None:
    settings = replace(SHORT, seconds=1.0)
    system, coming = FakeSystem(SERVICE), [replace(QUERY, window=WindowSpec(400, 200))]
    churning = replace(WORKLOAD, shape="churn", churns=(Churn(1, 5.0),), start_rate=50_000)
    row = run(system, queues, settings, workload=churning, next_queries=coming).row()
    assert system.churned == (coming, Churn(1, 5.0))
    assert row["sustained"] is True, "a start rate that it can do"
    assert row["query_throughput_per_second"] == 5.0
    assert row["deployment_latency_seconds"] == {"p50": 0.5, "p95": 1.5, "p99": 1.5, "max": 1.5}
    overloaded = run(FakeSystem(SERVICE), queues, settings, workload=replace(churning, start_rate=800_000)).row()
    assert overloaded["sustained"] is False
    assert overloaded["query_throughput_per_second"] is None, "not with a queue that grows"
    assert overloaded["sustainable_tuples_per_second"] == pytest.approx(SERVICE, rel=0.3), "what it took"


def test_the_rate_goes_through_the_profile_of_a_fluctuating_workload(queues: dict[str, FakeQueue]) -> None:
    workload = replace(WORKLOAD, shape="fluctuating", profile=(0.8, 0.2, 0.8), start_rate=100_000)
    row = run(FakeSystem(SERVICE), queues, workload=workload).row()
    offered = [rate for _, rate in row["series"]["rate"]]
    assert offered == [80_000, 80_000, 20_000, 20_000, 80_000, 80_000]
    assert row["series"]["latency"][-1][0] >= 1.0, "the series is of all parts"
    assert row["event_time_latency_seconds"] is not None


def test_a_generator_of_its_own_needs_no_search(queues: dict[str, FakeQueue]) -> None:
    system = FakeOwnGenerator(80_000)
    row = run(system, queues).row()
    assert row["source"] == "own generator"
    assert row["sustainable_tuples_per_second"] == pytest.approx(80_000, rel=0.1)
    assert system.offers[0][1] is None
    assert system.offers[-1][1] == pytest.approx(0.9 * row["sustainable_tuples_per_second"], abs=1)
    assert row["processing_time_latency_seconds"] is None
    assert row["event_time_latency_seconds"]["p50"] == pytest.approx(0.1)
    assert row["steps"][0]["sustained"]


def test_with_shares_figures_are_of_all_streams_together() -> None:
    clock = FakeClock()
    shares = {"a": Share(46, 50), "b": Share(4, 50)}
    queues = {name: FakeQueue(clock, name, share) for name, share in shares.items()}
    streams = tuple(StreamSpec(name, "astream", share=share) for name, share in shares.items())
    workload = replace(WORKLOAD, streams=streams, start_rate=100_000)
    settings = RunSettings(seconds=3.0, max_steps=2, refinements=0, ready_seconds=20.0)
    of_both = [QUERY, QuerySpec(("b",), WindowSpec(200, 200), measure=ColumnRef("b", "field0"))]
    # of the one stream it takes what is 50 000 of both, of the other much more than comes
    row = run(FakeSystem(46_000), queues, settings, queries=of_both, workload=workload).row()
    assert row["steps"][0]["pulled_per_second"] == pytest.approx(50_000, rel=0.05)
    assert row["steps"][0]["growth"] == pytest.approx(50_000, rel=0.1)
    assert row["sustainable_tuples_per_second"] == pytest.approx(50_000, rel=0.05)
    assert row["slowest_tuples_per_second"] == pytest.approx(50_000, rel=0.05)


def test_with_shares_a_generator_of_its_own_is_searched_too(queues: dict[str, FakeQueue]) -> None:
    workload = replace(WORKLOAD, streams=(StreamSpec("a", "astream", share=Share(46, 50)),), start_rate=100_000)
    system = FakeOwnGenerator(80_000)
    run(system, queues, workload=workload)
    assert system.offers[0][1] == 100_000, "what tuples are follows from the rate"
    assert None not in [rate for _, rate in system.offers]


def test_windows_that_do_not_end_within_the_step_give_null(queues: dict[str, FakeQueue]) -> None:
    class Silent(FakeSystem):
        def outputs(self) -> list[SystemOutput]:
            return []

    row = run(Silent(SERVICE), queues, queries=[replace(QUERY, window=WindowSpec(60_000, 60_000))]).row()
    assert row["event_time_latency_seconds"] is None
    assert row["processing_time_latency_seconds"] is None
    assert row["series"]["latency"] == []
    assert row["sustainable_tuples_per_second"] is not None
    assert row["series"]["rate"][-1][0] == 4.0, "twice as long as usual, not as long as the window"


@pytest.mark.parametrize("method", ["start", "deploy", "outputs", "begin_churn", "end_churn", "stop"])
def test_a_system_that_fails_gives_a_row_that_says_so(method: str, queues: dict[str, FakeQueue]) -> None:
    system = FakeSystem(SERVICE, fails_in=method)
    workload = replace(WORKLOAD, shape="churn", churns=(Churn(1, 5.0),)) if "churn" in method else WORKLOAD
    row = run(system, queues, workload=workload).row()
    assert row["error"] == f"{method} failed on purpose"
    assert row["sustained"] is False
    assert set(row) == KEYS


def test_a_system_that_takes_nothing_fails(queues: dict[str, FakeQueue]) -> None:
    row = run(FakeSystem(SERVICE, pulling=False), queues, replace(SHORT, ready_seconds=0.3)).row()
    assert "fake must take tuples within 0.3 s" in row["error"]
    assert row["sustainable_tuples_per_second"] is None


def test_a_step_whose_rows_are_not_read_is_not_sustained(queues: dict[str, FakeQueue]) -> None:
    system = FakeSystem(SERVICE, unread="7 rows were not read")
    row = run(system, queues, workload=replace(WORKLOAD, start_rate=50_000)).row()
    assert not row["sustained"]
    assert (row["steps"][0]["sustained"], row["steps"][0]["missing"]) == (False, "7 rows were not read")


def test_a_step_that_leaves_rows_out_is_not_sustained(queues: dict[str, FakeQueue]) -> None:
    system = FakeSystem(SERVICE, left_out="A window is left out.")
    row = run(system, queues, workload=replace(WORKLOAD, start_rate=50_000)).row()
    assert not row["sustained"]
    assert (row["steps"][0]["sustained"], row["steps"][0]["missing"]) == (False, "A window is left out.")


def test_a_step_goes_on_until_it_holds_ten_batches_after_its_warm_up(queues: dict[str, FakeQueue]) -> None:
    system = FakeSystem(SERVICE, batches=True, batch_seconds=2.0)
    row = run(system, queues, replace(SHORT, seconds=4.0), workload=replace(WORKLOAD, start_rate=50_000)).row()
    search, latency = row["steps"]
    for step in (search, latency):
        assert step["batches"] >= 10
        assert step["seconds"] == 32.0, "4, 8, 16 and 32 seconds: after the warm-up of 1 s these hold 1, 3, 7 and 15"
    assert (row["sustained"], row["sustainable_tuples_per_second"]) == (True, 50_000)
    assert row["event_time_latency_seconds"] is not None
    assert row["not_measured"] is None


def test_the_second_look_at_a_step_holds_ten_batches_too(
    queues: dict[str, FakeQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch takes twice as long in it as in the step itself."""
    system, judge, runs = FakeSystem(SERVICE, batches=True, batch_seconds=1.0), steps.judge, list[steps.StepRun]()

    def judged(step: steps.StepRun, rate: int) -> StepResult:
        runs.append(step)
        result = judge(step, rate)
        if len(runs) != 2:
            return result
        system.batch_seconds = 2.0
        return replace(result, pulled_per_second=0.96 * rate, sustained=False)

    monkeypatch.setattr(steps, "judge", judged)
    row = run(system, queues, replace(SHORT, seconds=16.0), workload=replace(WORKLOAD, start_rate=50_000)).row()
    _, first, second = runs[:3]  # after the warm-up
    assert (first.end - first.begin, second.end - second.begin) == (pytest.approx(16.0), pytest.approx(32.0))
    assert row["steps"][0]["batches"] >= 10
    assert row["sustained"] is True


def test_without_ten_batches_in_the_longest_step_there_is_no_figure(queues: dict[str, FakeQueue]) -> None:
    system = FakeSystem(SERVICE, batches=True, batch_seconds=60.0)
    settings = replace(SHORT, seconds=30.0, ready_seconds=100.0)
    row = run(system, queues, settings, workload=replace(WORKLOAD, start_rate=5_000)).row()
    assert re.fullmatch(
        "not measured: a step of 300 s held [34] batches after its warm-up, and a figure takes 10", row["error"]
    )
    assert row["sustainable_tuples_per_second"] is None
    assert row["overall_tuples_per_second"] is None
    assert row["event_time_latency_seconds"] is None
    assert not row["sustained"]


def test_latency_without_ten_batches_is_not_measured(
    queues: dict[str, FakeQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = FakeSystem(SERVICE, batches=True)
    look_at_latency = runner._Run._look_at_latency

    def slow_down(this: Any, sustainable: float) -> None:
        system.batch_seconds = 60.0
        look_at_latency(this, sustainable)

    monkeypatch.setattr(runner._Run, "_look_at_latency", slow_down)
    row = run(system, queues, workload=replace(WORKLOAD, start_rate=5_000)).row()
    assert row["sustainable_tuples_per_second"] == 5_000
    assert row["event_time_latency_seconds"] is None
    assert re.fullmatch("latency not measured: a step of 300 s held [34] batches .*", row["not_measured"])


def test_a_quick_step_counts_however_few_batches_it_holds(queues: dict[str, FakeQueue]) -> None:
    system = FakeSystem(SERVICE, batches=True, batch_seconds=0.5)
    row = run(system, queues, replace(SHORT, quick=True), workload=replace(WORKLOAD, start_rate=50_000)).row()
    assert row["steps"][0]["batches"] < 10
    assert row["steps"][0]["seconds"] == SHORT.seconds
    assert (row["error"], row["not_measured"]) == (None, None)


def test_nothing_counts_before_a_systems_rate_no_longer_rises(queues: dict[str, FakeQueue]) -> None:
    """It takes twice as much every 5 s, four times in all, as code is compiled; a step is longer than that."""
    progresses: list[MeasureProgress] = []
    system = FakeSystem(SERVICE // 16)
    clock = queues["a"].clock
    for number in range(1, 5):
        clock.call_at(
            clock.now() + 5 * number, lambda: setattr(system, "tuples_per_second", 2 * system.tuples_per_second)
        )
    row = run(system, queues, replace(SHORT, seconds=6.0), tell=progresses.append).row()
    warm_ups = [progress for progress in progresses if progress.phase == "warm-up" and progress.share == 1.0]
    assert len(warm_ups) > 4
    assert row["steps"][0]["pulled_per_second"] == pytest.approx(SERVICE, rel=0.05)


def test_a_rate_that_never_stops_rising_is_no_figure(queues: dict[str, FakeQueue]) -> None:
    system = FakeSystem(100)
    clock = queues["a"].clock

    def rise() -> None:
        system.tuples_per_second = round(1.5 * system.tuples_per_second)
        clock.call_at(clock.now() + 20.0, rise)

    rise()
    row = run(system, queues, replace(SHORT, seconds=20.0)).row()
    assert re.match("not measured: after 300 s of warm-up the rate still rose, from ", row["error"])
    assert row["sustainable_tuples_per_second"] is None


def test_a_generator_of_its_own_counts_once_its_rate_no_longer_rises(queues: dict[str, FakeQueue]) -> None:
    system = FakeOwnGenerator(80_000, rises_for=10.0)
    row = run(system, queues).row()
    assert row["sustainable_tuples_per_second"] == pytest.approx(80_000, rel=0.1)
    assert row["steps"][0]["batches"] >= 10


def test_a_step_that_took_nearly_all_is_looked_at_once_more(
    queues: dict[str, FakeQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, runs = steps.judge, list[steps.StepRun]()

    def judged(step: steps.StepRun, rate: int) -> StepResult:
        runs.append(step)
        result = judge(step, rate)
        return result if len(runs) != 2 else replace(result, pulled_per_second=0.96 * rate, sustained=False)

    monkeypatch.setattr(steps, "judge", judged)
    row = run(FakeSystem(SERVICE), queues, workload=replace(WORKLOAD, start_rate=50_000)).row()
    _, first, second = runs[:3]  # after the warm-up
    assert second.begin == first.end
    assert second.end - second.begin == pytest.approx(first.end - first.begin)
    assert second.warm == second.begin, "all of it counts"
    assert (row["sustained"], row["sustainable_tuples_per_second"]) == (True, 50_000)


def test_a_queue_that_goes_on_growing_is_not_sustained(
    queues: dict[str, FakeQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, results = steps.judge, list[StepResult]()

    def judged(step: steps.StepRun, rate: int) -> StepResult:
        results.append(judge(step, rate))
        return results[-1]

    monkeypatch.setattr(steps, "judge", judged)
    monkeypatch.setattr(run_settings, "NEARLY_ALL", 0.5)
    row = run(FakeSystem(SERVICE), queues, workload=replace(WORKLOAD, start_rate=300_000)).row()
    assert [(result.rate, result.sustained) for result in results[1:3]] == [(300_000, False)] * 2
    assert len(results) == 4, "and those of the warm-up and of the latency step"
    assert not row["sustained"]


def test_what_a_system_does_not_support_has_its_reason_and_no_row(queues: dict[str, FakeQueue]) -> None:
    measured = run(FakeSystem(SERVICE, refuses="no such join"), queues)
    assert measured.unsupported == "no such join"
    with pytest.raises(ValueError, match="no such join"):
        measured.row()


def test_there_must_be_queries_and_a_queue_of_every_stream(queues: dict[str, FakeQueue]) -> None:
    for given_queues, name in (({}, "a"), (queues, "queries")):
        with pytest.raises(ValueError, match=name):
            measure(FakeSystem(1), WORKLOAD, [] if given_queues else [QUERY], given_queues, SHORT, lambda _: None)
