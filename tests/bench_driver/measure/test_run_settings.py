"""How long steps are, and what may be concluded from one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from braid.bench_driver.measure.run_settings import RunSettings, took_nearly_all
from braid.bench_driver.measure.search import StepResult

GROWING = StepResult(rate=100, sustained=False, growth=1.0, pulled_per_second=95.0)


def test_quick_means_short_steps_and_few() -> None:
    quick = RunSettings(quick=True)
    assert quick.step_seconds == 6.0
    assert (quick.plan.max_steps, quick.plan.refinements) == (2, 0)
    assert RunSettings(seconds=2.0, quick=True).step_seconds == 2.0
    assert RunSettings().plan.max_steps == 9
    assert quick.to_json()["quick"] is True


@pytest.mark.parametrize(
    "fields",
    [
        {"seconds": 0},
        {"ready_seconds": -1},
        {"warm_up_share": 1.0},
        {"latency_load": 0},
        {"latency_load": 1.1},
        {"max_steps": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="got"):
        RunSettings(**fields)


def test_the_latency_step_is_long_enough_for_some_windows_but_in_proportion() -> None:
    settings = RunSettings(seconds=30.0, warm_up_share=0.5)
    assert settings.latency_seconds(longest_slide=1.0) == 30.0
    assert settings.latency_seconds(longest_slide=8.0) == 40.0, "2.5 windows after the half that does not count"
    assert settings.latency_seconds(longest_slide=3600.0) == 60.0
    assert replace(settings, quick=True).latency_seconds(longest_slide=3600.0) == 12.0


def test_a_figure_takes_ten_batches_unless_it_is_quick() -> None:
    settings = RunSettings()
    assert settings.why_not_measured(replace(GROWING, batches=10)) is None
    reason = settings.why_not_measured(replace(GROWING, batches=9, seconds=300.4))
    assert reason == "not measured: a step of 300 s held 9 batches after its warm-up, and a figure takes 10"
    assert replace(settings, quick=True).why_not_measured(replace(GROWING, batches=0)) is None


@pytest.mark.parametrize(("taken", "nearly_all"), [(94, False), (95, True), (100, True)])
def test_a_queue_may_settle_where_nearly_all_was_taken(taken: int, nearly_all: bool) -> None:
    result = replace(GROWING, rate=100, pulled_per_second=float(taken))
    assert took_nearly_all(result) is nearly_all
    assert RunSettings().may_settle(result) is nearly_all
    assert not RunSettings().may_settle(replace(result, sustained=True))
    assert not RunSettings(quick=True).may_settle(result)
