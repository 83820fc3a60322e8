"""Two reports: ratios, verdicts, and what makes them hard to compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from braid.bench_driver.report.compare import compare, compare_files
from braid.bench_driver.report.document import Document, ReportError
from braid.bench_driver.report.terminal import render_comparison
from tests.bench_driver.report.made_up_rows import made_up_row


def report(rates: list[float], latency: float = 1.0, **settings: Any) -> Document:
    """Return a report with a round of Braid for each rate."""
    chosen = {"seed": 4, "rounds": len(rates), "quick": False, "seconds": None, **settings}
    document = Document("braid bench rovio-join", chosen, {"cores": 2}, {"pyspark": "4.3.0", "commit": "1234567"})
    for number, rate in enumerate(rates, 1):
        quantiles = dict.fromkeys(("p50", "p95", "p99", "max"), latency * (1 + number / 1000))
        row = made_up_row(
            "braid", "rovio-join", 20, sustainable_tuples_per_second=rate, event_time_latency_seconds=quantiles
        )
        document.add_row({**row, "round": number})
    return document


def figures(before: Document, after: Document) -> dict[str, tuple[float | None, str]]:
    (line,) = compare(before.content, after.content, "before", "after").lines
    return {
        figure.name: (None if figure.ratio is None else round(figure.ratio, 3), figure.verdict)
        for figure in line.figures
    }


def test_more_tuples_and_less_latency_are_better() -> None:
    compared = figures(report([100.0, 101.0, 99.0], 2.0), report([200.0, 203.0, 198.0], 1.0))
    assert compared["sustainable"] == (2.0, "better")
    assert compared["latency p50"] == (0.5, "better")
    assert compared["overall"] == (1.0, "within noise")


def test_fewer_tuples_and_more_latency_are_worse() -> None:
    compared = figures(report([200.0, 203.0, 198.0], 1.0), report([100.0, 101.0, 99.0], 2.0))
    assert compared["sustainable"] == (0.5, "worse")
    assert compared["latency p95"] == (2.0, "worse")


def test_one_round_says_nothing_about_noise() -> None:
    before, after = report([100.0]), report([200.0])
    assert figures(before, after)["sustainable"] == (2.0, "")
    warnings = compare(before.content, after.content, "a", "b").warnings
    assert any("two rounds or more" in warning for warning in warnings)


def test_what_only_one_report_has_is_told() -> None:
    before, after = report([100.0, 101.0]), report([100.0, 101.0])
    after.add_row(made_up_row("flink-jobs", "rovio-join", 20))
    lines = compare(before.content, after.content, "a", "b").lines
    assert [line.case.system for line in lines] == ["braid", "flink-jobs"]
    assert {figure.verdict for figure in lines[1].figures} == {"only after"}
    lines = compare(after.content, before.content, "a", "b").lines
    assert {figure.verdict for figure in lines[1].figures} == {"only before"}


def test_other_machines_versions_and_settings_are_warned_of() -> None:
    before, after = report([100.0, 101.0]), report([100.0, 101.0], seed=5, quick=True)
    assert compare(before.content, before.content, "a", "b").warnings == ()
    after.content["machine"]["cores"] = 64
    after.content["versions"] |= {"pyspark": "4.4.0", "commit": "7654321"}
    warnings = compare(before.content, after.content, "a", "b").warnings
    assert warnings == (
        "the machines differ: cores 2 before, 64 after",
        "the versions differ: pyspark '4.3.0' before, '4.4.0' after",
        "the settings differ: seed 4 before, 5 after",
        "the settings differ: quick False before, True after",
    )


def test_files_and_folders_are_compared(tmp_path: Path) -> None:
    before = report([100.0, 101.0]).write(tmp_path)
    comparison = compare_files(before, tmp_path)
    assert str(tmp_path) in comparison.after
    assert "commit 1234567" in comparison.before
    text = render_comparison(comparison)
    line = next(line for line in text.splitlines() if "sustainable" in line)
    assert line.split() == ["rovio-join", "20", "braid", "sustainable", "100", "100", "1.00", "x", "within", "noise"]
    with pytest.raises(ReportError):
        compare_files(before, tmp_path / "nothing")
