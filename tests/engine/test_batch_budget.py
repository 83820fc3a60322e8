"""The budget of a batch: the target where batches keep up, longer ones where tuples pile up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from braid.engine.planning.batch_budget import FIRST_TUPLES, LONGEST_BATCH, BatchBudget, FiringBudget, TupleCosts


@given(st.lists(st.tuples(st.integers(0, 10**7), st.floats(0.0, 60.0), st.integers(0, 10**8)), max_size=40))
@example([(100_000, 2.2250738585072014e-308, 0)])
def test_the_budget_changes_by_two_at_most_and_keeps_its_limits(batches: list[tuple[int, float, int]]) -> None:
    budget = BatchBudget(1.0)
    for tuples, seconds, waiting in batches:
        before = budget.tuples
        budget.learn(tuples, seconds, waiting)
        assert before // 2 <= budget.tuples <= 2 * before
        assert 1_000 <= budget.tuples <= 100_000_000


def test_the_budget_finds_the_size_that_takes_the_target() -> None:
    budget = BatchBudget(1.0)
    for _ in range(60):
        budget.learn(budget.tuples, 0.2 + budget.tuples / 2_000_000, 0)
    assert budget.tuples == pytest.approx(1_600_000, rel=0.1)


def test_a_batch_that_read_little_changes_nothing() -> None:
    budget = BatchBudget(1.0)
    for _ in range(10):
        budget.learn(budget.tuples // 3, 5.0, 0)
    assert budget.tuples == BatchBudget(1.0).tuples


def behind(overhead: float, per_second: int, rate: int, batches: int) -> tuple[BatchBudget, int]:
    """Run batches over a stream that has fallen behind; return the budget and how many tuples wait in the end."""
    budget, waiting = BatchBudget(1.0), 10 * rate
    for _ in range(batches):
        read = min(waiting, budget.tuples)
        seconds = overhead + read / per_second
        budget.learn(read, seconds, waiting - read)
        waiting += int(rate * seconds) - read
    return budget, waiting


@pytest.mark.parametrize(("overhead", "longest"), [(0.5, 1.0), (1.1, 2.0), (2.0, LONGEST_BATCH)])
def test_batches_get_longer_until_they_keep_up_and_shorter_again(overhead: float, longest: float) -> None:
    for batches in range(290, 310):
        _, waiting = behind(overhead, 2_000_000, 600_000, batches)
        assert waiting <= longest * 600_000, "what is left is what comes during a batch"


def test_what_has_piled_up_is_worked_off_in_few_batches() -> None:
    _, waiting = behind(0.5, 4_000_000, 1_500_000, 12)
    assert waiting <= 3 * 1_500_000


def test_batches_stay_below_the_longest_where_they_cannot_keep_up() -> None:
    budget, waiting = behind(0.5, 1_000_000, 2_000_000, 100)
    assert waiting > 10 * 2_000_000
    assert 0.5 + budget.tuples / 1_000_000 <= 1.5 * LONGEST_BATCH


def record(
    tuples: int, size: int = 0, malformed: int = 0, busy_us: int = 0, fire_to: Sequence[str] = ()
) -> dict[str, Any]:
    counts = {"tuples": tuples, "malformed": malformed, "bytes": size}
    return {"streams": {"s": counts}, "operator_busy_us": [1, busy_us], "fire_to": dict.fromkeys(fire_to, 5)}


def test_large_tuples_count_as_several_and_few_are_read_of_a_stream_of_unknown_ones() -> None:
    costs = TupleCosts(1.0)
    assert (costs.of("s"), costs.most("s", 10**9)) == (1.0, FIRST_TUPLES)
    costs.learn(record(9, 10_000_000, malformed=1))
    assert (costs.of("s"), costs.most("s", 10**9)) == (1001.0, 10**9)
    costs.learn(record(0))
    assert costs.of("s") == 1001.0, "a batch without tuples of it says nothing"
    costs.learn({"streams": {}})
    assert costs.of("s") == 1.0, "it was dropped"


def test_no_more_is_read_than_has_windows_for_the_longest_batch_to_be_fired() -> None:
    costs = TupleCosts(1.0)
    costs.learn(record(10, busy_us=5_000_000))
    assert costs.most("s", 10**9) == 10**9, "its windows fit the batch: longer batches serve more"
    costs.learn(record(1000, busy_us=400_000, fire_to=["s"]))
    costs.learn(record(0, busy_us=500_000, fire_to=["s"]))
    assert costs.most("s", 10**9) == 10**9, "there is more to fire of what was read"
    costs.learn(record(0, busy_us=100_000))
    assert costs.most("s", 10**9) == 4000, "1000 tuples had windows for a second"
    costs.learn(record(1000, busy_us=900_000))
    assert costs.most("s", 10**9) == 8000, "they fit"
    costs.learn(record(0))
    assert costs.most("s", 10**9) == 8000


@pytest.mark.parametrize("us_each", [0.1, 1.0, 10.0])
def test_what_fires_in_a_batch_comes_to_the_target_however_wrong_the_count_is(us_each: float) -> None:
    budget = FiringBudget(1.0)
    for _ in range(20):
        budget.learn(budget.us * us_each)
    assert 1e6 <= budget.us * us_each <= LONGEST_BATCH * 1e6


def test_batches_that_take_long_whatever_they_fire_still_fire_something() -> None:
    budget = FiringBudget(1.0)
    for _ in range(50):
        budget.learn(9e6)
    assert budget.us >= 1e5
