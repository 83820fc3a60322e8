"""The search for the sustainable throughput, over systems whose service rate is known."""

from __future__ import annotations

import pytest

from braid.bench_driver.measure.search import Search, SearchPlan, StepResult, search


def find(service: float, start: int, plan: SearchPlan | None = None, cold: float = 1.0) -> Search:
    """Search over a system that takes up to `service` tuples a second, `cold` times that in its first step."""
    rates_tried: list[int] = []

    def probe(rate: int) -> StepResult:
        capacity = service * (1.0 if rates_tried else cold)
        rates_tried.append(rate)
        return StepResult(rate, rate <= capacity, max(0.0, rate - capacity), min(rate, capacity))

    result = search(start, probe, plan or SearchPlan())
    assert [step.rate for step in result.steps] == rates_tried
    return result


@pytest.mark.parametrize("service", [1_234, 200_000, 777_777, 5_900_000])
def test_it_comes_within_five_percent(service: int) -> None:
    result = find(service, 6_000_000)
    assert result.best is not None
    assert 0.95 * service <= result.best.rate <= service
    assert len(result.steps) <= 6


def test_a_start_rate_that_is_sustained_is_doubled() -> None:
    result = find(350_000, 100_000)
    assert [step.rate for step in result.steps[:3]] == [100_000, 200_000, 400_000]
    assert result.best is not None
    assert 0.95 * 350_000 <= result.best.rate <= 350_000


def test_it_steps_down_until_the_rate_is_sustained() -> None:
    # pulls more than it can work off, so that what it took misleads
    def probe(rate: int) -> StepResult:
        return StepResult(rate, rate <= 800, 1.0, min(rate, 1000))

    result = search(6000, probe, SearchPlan())
    rates = [step.rate for step in result.steps]
    assert rates[:5] == [6000, 970, 902, 838, 779]
    assert result.best is not None
    assert result.best.rate == 779


def test_a_system_that_was_cold_in_the_first_step_is_climbed_after() -> None:
    cold = find(100_000, 1_000_000, SearchPlan(max_steps=8, refinements=5), cold=0.7)
    assert cold.best is not None
    assert cold.best.rate >= 0.9 * 100_000
    assert cold.best.rate > 1.2 * cold.steps[1].rate


def test_a_start_rate_that_only_a_cold_system_did_not_hold_is_climbed_from() -> None:
    cold = find(400_000, 100_000, cold=0.2)
    assert cold.best is not None
    assert cold.best.rate >= 400_000 / SearchPlan().far
    assert [step.rate for step in cold.steps].count(100_000) == 2


def test_it_ends_after_the_most_steps_without_a_result() -> None:
    result = find(0.0, 1_000_000, SearchPlan(max_steps=3))
    assert result.best is None
    assert len(result.steps) == 3
    assert find(0.0, 4, SearchPlan(max_steps=50)).best is None, "a rate below one ends it"


def test_refinements_are_counted() -> None:
    assert len(find(100_000, 1_000_000, SearchPlan(refinements=0)).steps) == 2
    assert len(find(100_000, 1_000_000, SearchPlan(refinements=1)).steps) == 3


def test_a_wide_gap_is_closed_even_when_refinements_are_used_up() -> None:
    # takes nearly all that is too much for it, so that stepping down to what it took is slow
    def probe(rate: int) -> StepResult:
        return StepResult(rate, rate <= 2_600, 0.0, min(rate, 4_800) * 0.98)

    result = search(1_000, probe, SearchPlan())
    assert [step.rate for step in result.steps[:3]] == [1_000, 2_000, 4_000]
    assert result.best is not None
    assert result.best.rate >= 2_600 / SearchPlan().far
    too_much = min(step.rate for step in result.steps if not step.sustained)
    assert too_much <= result.best.rate * SearchPlan().far


def test_what_was_taken_of_too_much_does_not_end_the_search_where_it_misleads() -> None:
    # making more than can be taken takes the processors from the system, which then takes less than it could
    def probe(rate: int) -> StepResult:
        return StepResult(rate, rate <= 3_300, 1.0, rate if rate <= 3_300 else 2_400)

    found = search(1_200, probe, SearchPlan())
    assert found.best is not None
    assert found.best.rate >= 3_300 / SearchPlan().far


@pytest.mark.parametrize(
    "fields", [{"max_steps": 0}, {"refinements": -1}, {"below_taken": 0}, {"down": 1.0}, {"up": 1.0}, {"far": 1.0}]
)
def test_a_plan_that_leads_nowhere_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="needs"):
        SearchPlan(**fields)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        StepResult(-1, True, 0, 0)


def test_no_step_begins_late() -> None:
    rates_tried: list[int] = []

    def probe(rate: int) -> StepResult:
        rates_tried.append(rate)
        return StepResult(rate, False, 1.0, rate / 2)

    search(1000, probe, SearchPlan(), is_late=lambda: len(rates_tried) == 2)
    assert len(rates_tried) == 2
    search(1000, probe, SearchPlan(), is_late=lambda: True)
    assert len(rates_tried) == 3, "one step in any case"
