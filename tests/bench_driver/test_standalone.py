"""What all measurements beside the benchmark do: describe the machine, report, and end with a status."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from braid.bench_driver.machine import machine
from braid.bench_driver.programs.standalone import command, describe, histogram_of, report_on
from braid.bench_driver.report.text import figures


@pytest.mark.parametrize(("load", "busy"), [(1.0, False), (1.1, True)])
def test_a_busy_machine_is_pointed_out(load: float, busy: bool) -> None:
    text = describe(machine() | {"cores": 4, "load_before": [load, 0.25, 0.1]})
    assert text.startswith("Machine: ")
    assert "4 cores" in text
    assert f"load before {load:g}, 0.25, 0.1" in text
    assert ("The machine was busy" in text) == busy


def test_figures_are_printed_and_written_with_where_they_were_taken(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    output = tmp_path / "new" / "figures.json"
    assert report_on(lambda: {"found": 7}, output) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("Machine: ")
    assert captured.out.endswith("\n\nfound  7\n")
    from_file = json.loads(output.read_text())
    assert set(from_file) == {"taken_at", "machine", "versions", "found"}
    assert from_file["found"] == 7


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [(TimeoutError("took too long"), 1, "failed: took too long"), (KeyboardInterrupt(), 130, "interrupted")],
)
def test_what_did_not_end_reports_nothing(
    raised: BaseException, status: int, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def measure() -> dict[str, Any]:
        raise raised

    assert report_on(measure, tmp_path / "figures.json") == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert not list(tmp_path.iterdir())


def test_a_command_is_described_by_the_first_line() -> None:
    text = command("braid.bench_driver.some", "What it measures.\n\nMore.").format_help()
    assert text.startswith("usage: python -m braid.bench_driver.some")
    assert "What it measures." in text
    assert "More." not in text


def test_figures_are_lines_of_name_and_value() -> None:
    report = {
        "format": "json",
        "start": {"seconds": [12.0, 14.04], "median_seconds": None},
        "tuples_per_second": 712_345.6,
    }
    assert figures(report).splitlines() == [
        "format                json",
        "start seconds         12, 14.04",
        "start median seconds  -",
        "tuples per second     712,346",
    ]
    assert figures({}) == ""


def test_a_histogram_is_found_by_its_name() -> None:
    registry = CollectorRegistry()
    for name in ("braid_batch_duration_seconds", "braid_batch_duration_seconds_of_others"):
        histogram = Histogram(name, "Duration.", registry=registry, buckets=(0.5, 1.0))
        for value in (0.2, 0.7, 3.0):
            histogram.observe(value)
    scraped = histogram_of(generate_latest(registry).decode(), "braid_batch_duration_seconds")
    assert scraped.bounds == {0.5: 1.0, 1.0: 2.0, math.inf: 3.0}
    assert scraped.total == 3.9


def test_a_histogram_that_is_not_there_has_no_observations() -> None:
    assert histogram_of("", "braid_batch_duration_seconds").count == 0
