"""How many executors are wanted: out and in after a period, never back and forth, never beyond what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braid.optimizer.scaling import BUSY, EASY, PATIENCE, Decision, Load, Pool, Rules, decide

RULES = Rules(least=1, most=3, latency_seconds=5.0, period_seconds=5.0)
FIRST = Decision(1, "at first", 0.0)
SLOW, QUICK = 9.0, 0.5
PATIENT = PATIENCE * RULES.period_seconds


def pool_of(executors: int, partitions: int = 8) -> Pool:
    return Pool(executors, 2 * executors, partitions)


def after(loads: Iterable[Load], before: Decision = FIRST, pool: Pool | None = None, rules: Rules = RULES) -> Decision:
    """Return the decision after some loads, on executors that stay as many as they are."""
    for load in loads:
        before = decide(before, load, pool or pool_of(before.wanted), rules)
    return before


def every_second(end: float, latency: float, busy: float) -> list[Load]:
    return [Load(float(second), latency, busy, 0) for second in range(int(end) + 1)]


def test_slow_tuples_and_busy_cores_for_a_period_call_for_one_more() -> None:
    loads = every_second(RULES.period_seconds, SLOW, busy=1.9)
    assert after(loads[:-1]).wanted == 1
    decision = after(loads)
    assert (decision.wanted, decision.since) == (2, RULES.period_seconds)
    assert decision.why == ("For 5 s rows took longer than 5 s, now 9.0 s, and 1.90 of 2 cores worked; 0 rows wait.")


def test_one_load_below_a_threshold_begins_the_period_anew() -> None:
    loads = every_second(RULES.period_seconds, SLOW, busy=1.9)
    for below in (replace(loads[2], latency_seconds=5.0), replace(loads[2], busy_cores=0.7)):
        assert after([*loads[:2], below, *loads[3:]]).wanted == 1


def test_neither_slow_tuples_nor_busy_cores_alone_call_for_more() -> None:
    assert after(every_second(100, SLOW, busy=0.7)).wanted == 1
    assert after(every_second(100, QUICK, busy=2.0)).wanted == 1


def test_no_more_are_asked_for_before_those_have_come_that_were() -> None:
    loads = every_second(100, SLOW, busy=2.0)
    assert after(loads, pool=pool_of(1)).wanted == 2
    decision = after(loads, pool=pool_of(1))
    later_loads = [replace(load, at=load.at + 101, busy_cores=4.0) for load in loads]
    assert after(later_loads[:5], decision, pool_of(2)).wanted == 2, "the period begins anew when one comes"
    assert after(later_loads[:6], decision, pool_of(2)).wanted == 3


def test_no_more_are_asked_for_than_are_allowed_or_than_partitions_have_cores() -> None:
    loads = every_second(1000, SLOW, busy=100.0)
    assert after(loads).wanted == RULES.most
    for partitions, useful in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)]:
        decision = FIRST
        for load in loads:
            decision = decide(decision, load, pool_of(decision.wanted, partitions), RULES)
        assert decision.wanted == useful


def test_easy_work_for_long_gives_one_back() -> None:
    loads = every_second(PATIENT, QUICK, busy=EASY * 2)
    two_wanted = Decision(2, "before", 0.0)
    assert after(loads[:-1], two_wanted).wanted == 2
    decision = after(loads, two_wanted)
    assert (decision.wanted, decision.since) == (1, PATIENT)
    assert decision.why == (
        "For 60 s rows took less than 2.5 s, and one executor fewer has enough for the work, now 0.50 of 4 cores."
    )
    assert after(every_second(1000, QUICK, busy=0.0), decision).wanted == RULES.least


@pytest.mark.parametrize(("latency", "busy"), [(3.0, 0.0), (QUICK, EASY * 2 + 0.01)])
def test_what_could_be_missed_is_not_given_back(latency: float, busy: float) -> None:
    assert after(every_second(1000, latency, busy), Decision(2, "before", 0.0)).wanted == 2


def test_what_was_asked_for_and_never_came_is_given_up() -> None:
    never = after(every_second(PATIENT, QUICK, busy=0.0), Decision(2, "before", 0.0), pool_of(1))
    assert never.wanted == 1


def test_none_is_given_back_while_one_leaves() -> None:
    assert after(every_second(1000, QUICK, busy=0.0), Decision(2, "before", 0.0), pool_of(3)).wanted == 2


@pytest.mark.parametrize(
    ("least", "most", "latency", "period"), [(0, 1, 5, 5), (2, 1, 5, 5), (1, 1, 0, 5), (1, 1, 5, 0)]
)
def test_rules_are_checked(least: int, most: int, latency: float, period: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        Rules(least, most, latency, period)


RECORD = {
    "planned_us": 10_000_000,
    "committed_us": 12_000_000,
    "streams": {"s-1": {"tuples": 300}, "s-2": {"tuples": 100}},
    "waiting": 1000,
    "source_busy_us": [700_000, 800_000],
    "operator_busy_us": [500_000, 0],
}


def test_a_record_says_how_long_tuples_take_and_how_many_cores_work() -> None:
    assert Load.of([RECORD], 8_000_000) == Load(12.0, 2.0 + 2.0 * 1000 / 400, 0.5, 1000)


def test_records_of_several_batches_say_what_these_did_on_average() -> None:
    without_work = {"streams": {}, "waiting": 300, "source_busy_us": [0, 0], "operator_busy_us": [0, 0]}
    next_record = {"planned_us": 12_000_000, "committed_us": 13_000_000, **without_work}
    assert Load.of([RECORD, next_record], 8_000_000) == Load(13.0, 1.5 + 3.0 * 300 / 400, 0.4, 300)


def test_a_batch_without_tuples_has_no_pace() -> None:
    assert Load.of([{**RECORD, "streams": {}}], 8_000_000).latency_seconds == 2.0


# what may happen, measured by the rules: for so many periods, the latency by the threshold, of how many executors the
# cores work, and whether the cluster gives what was asked for
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.4, 1.0, PATIENCE / 2, PATIENCE + 1.0]),
        st.sampled_from([0.1, 0.7, 4.0]),
        st.floats(0, 4),
        st.sampled_from([True, True, False]),
    ),
    min_size=10,
    max_size=40,
)
ALL_RULES = st.builds(
    lambda least, more, latency, period: Rules(least, least + more, latency, period),
    st.integers(1, 4),
    st.integers(0, 6),
    st.floats(0.1, 20),
    st.floats(0.1, 20),
)
Step = tuple[float, float, float, bool]


def run(steps: Iterable[Step], rules: Rules, cores: int, partitions: int) -> list[Decision]:
    """Return all decisions, on executors with so many cores each."""
    decision, executors, at = Decision(rules.least, "at first", 0.0), rules.least, 0.0
    decisions = [decision]
    for periods, latency, busy, has_followed in steps:
        executors = decision.wanted if has_followed else executors
        for moment in (at, at + periods * rules.period_seconds):
            load = Load(moment, latency * rules.latency_seconds, busy * cores, 0)
            decision = decide(decision, load, Pool(executors, cores * executors, partitions), rules)
            decisions.append(decision)
        at = moment
    return decisions


@given(STEPS, ALL_RULES, st.integers(1, 4), st.integers(1, 16))
def test_decisions_keep_within_bounds_and_a_period_apart(
    steps: list[Step], rules: Rules, cores: int, partitions: int
) -> None:
    decisions = run(steps, rules, cores, partitions)
    assert decisions == run(steps, rules, cores, partitions)
    useful = max(rules.least, Pool(1, cores, partitions).useful)
    for before, after in pairwise(decisions):
        assert rules.least <= after.wanted <= min(rules.most, useful)
        assert abs(after.wanted - before.wanted) <= 1
        if after.wanted == before.wanted:
            assert (before.why, before.since) == (after.why, after.since)
        else:
            periods = 1 if after.wanted > before.wanted else PATIENCE
            assert after.since - before.since >= periods * rules.period_seconds


@given(STEPS, ALL_RULES, st.integers(1, 4), st.integers(4, 16), st.floats(0, 4))
def test_the_same_work_never_leads_out_and_in_whatever_tuples_take(
    steps: list[Step], rules: Rules, cores: int, partitions: int, busy: float
) -> None:
    same = [(periods, latency, busy, followed) for periods, latency, _, followed in steps]
    executors_wanted = [decision.wanted for decision in run(same, rules, cores, partitions)]
    assert executors_wanted in (sorted(executors_wanted), sorted(executors_wanted, reverse=True))


def test_what_is_easy_for_one_fewer_is_not_busy_for_them() -> None:
    assert EASY < BUSY
