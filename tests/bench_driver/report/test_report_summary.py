"""Rounds become medians, failures keep their place, ratios and changes are told."""

from __future__ import annotations

import pytest

from braid.bench_driver.report.summary import EVENT_TIME, Case, divide, is_change, ratios, summarize
from tests.bench_driver.report.made_up_rows import made_up_row


def test_rounds_become_their_median() -> None:
    rows = [
        made_up_row("braid", "w", 20, sustainable_tuples_per_second=rate, round=number)
        for number, rate in enumerate((5.0, 1.0, 3.0), 1)
    ]
    (summary,) = summarize(rows)
    assert summary.throughput == 3.0
    assert summary.quantile(EVENT_TIME, "p95") == pytest.approx(1.62)
    assert summary.middle_row is rows[2]
    assert summary.note == ""


def test_cases_are_ordered_and_failures_have_theirs() -> None:
    rows = [made_up_row(system, "w", queries) for queries in (20, 1) for system in ("braid", "flink-jobs")]
    failure = {"workload": "w", "queries": 20, "system": "spark-queries", "round": 1, "reason": "too slow"}
    summaries = summarize(rows, [failure])
    assert [s.case for s in summaries] == [
        Case("w", 1, "braid"),
        Case("w", 1, "flink-jobs"),
        Case("w", 20, "braid"),
        Case("w", 20, "flink-jobs"),
        Case("w", 20, "spark-queries"),
    ]
    assert summaries[-1].note == "too slow"
    assert summaries[-1].throughput is None
    assert summaries[-1].middle_row is None
    assert summaries[1].note == "own generator"


def test_a_failed_round_counts_once_and_gives_no_figures() -> None:
    good_row = made_up_row("braid", "w", 1, round=1, sustained=False)
    failed_row = made_up_row("braid", "w", 1, round=2, error="ended by itself", sustainable_tuples_per_second=None)
    failure = {"workload": "w", "queries": 1, "system": "braid", "round": 2, "reason": "ended by itself"}
    (summary,) = summarize([good_row, failed_row], [failure])
    assert summary.rows == (good_row,)
    assert summary.note == "failed in 1 of 2 rounds; ended by itself; not sustained"


def test_it_is_told_why_a_rate_is_not_sustained() -> None:
    row = made_up_row("braid", "w", 1, sustained=False)
    row["steps"] = [{**row["steps"][0], "missing": "A window is left out."}]
    (summary,) = summarize([row])
    assert summary.note == "not sustained (A window is left out.)"


def test_it_is_told_what_was_not_measured() -> None:
    row = made_up_row("braid", "w", 1, event_time_latency_seconds=None, not_measured="latency not measured: too short")
    (summary,) = summarize([row])
    assert summary.note == "latency not measured: too short"
    error = "not measured: a step of 300 s held 4 batches after its warm-up, and a figure takes 10"
    without = made_up_row("braid", "w", 1, sustainable_tuples_per_second=None, error=error)
    (summary,) = summarize([without])
    assert (summary.throughput, summary.note) == (None, error)


def test_ratios_are_braids_over_the_peers() -> None:
    rows = [
        made_up_row("braid", "w", 20, sustainable_tuples_per_second=300.0),
        made_up_row("spark-queries", "w", 20, sustainable_tuples_per_second=100.0),
        made_up_row("spark-queries", "w", 100),
    ]
    (ratio,) = ratios(summarize(rows))
    assert ratio.case == Case("w", 20, "spark-queries")
    assert ratio.throughput == pytest.approx(3.0)
    assert ratio.latency == pytest.approx(0.9 / 1.1)
    assert ratio.deployment is None
    assert divide(1.0, 0.0) is None


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ([100.0], [200.0, 201.0], None),
        ([0.0, 0.0], [1.0, 1.0], None),
        ([100.0, 101.0, 102.0], [150.0, 151.0, 153.0], True),
        ([100.0, 101.0, 102.0], [103.0, 102.5, 103.5], False),  # beyond noise, but less than a step of the search
        ([100.0, 150.0, 80.0], [120.0, 170.0, 90.0], False),
        ([100.0, 100.0], [200.0, 200.0], True),
        ([100.0, 140.0], [160.0, 200.0], False),  # apart, but two rounds that vary so much say little
    ],
)
def test_a_change_is_one_beyond_noise(before: list[float], after: list[float], changed: bool | None) -> None:
    assert is_change(before, after) is changed
    assert is_change(after, before) is changed
