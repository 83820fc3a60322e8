"""The table is aligned, leaves out what was not measured, and hides no failure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench_driver.first_mark_report import render, table
from bench_driver.machine import machine, versions

LOAD = {
    "queries": 200,
    "offered_per_second": 500_000,
    "seconds": 45.0,
    "tuples_per_second": 499_876.5,
    "keeps_up": True,
    "lag_growth": 0.001,
    "lag_p50": 0.9,
    "lag_max": 1.5,
    "latency_p50": 0.8,
    "latency_p95": 1.2,
    "latency_max": 1.6,
    "rows_per_second": 98_765.4,
    "readers": 4,
    "rows_read": 180_000,
    "batch_mean": 0.7,
    "deployed_in": 1.1,
    "failed_queries": 0,
    "memory_gib": 2.5,
}


@pytest.fixture
def report() -> dict[str, Any]:
    here = machine() | {"cores": 4, "load_before": [0.1, 0.1, 0.1]}
    return {"machine": here, "versions": versions()}


def test_a_table_is_aligned() -> None:
    lines = table([["name", "a", "b"], ["x", "1", "10,000"], ["longer", "1,000", "-"]]).splitlines()
    assert lines == [
        "name        a       b",
        "------  -----  ------",
        "x           1  10,000",
        "longer  1,000       -",
    ]
    assert table([]) == ""


def test_the_machine_and_the_versions_come_first(report: dict[str, Any]) -> None:
    text = render(report)
    assert text.startswith("Machine: ")
    assert "4 cores" in text
    assert f"pyspark {report['versions']['pyspark']}" in text
    assert "queries" not in text
    json.dumps(report)


def test_a_busy_machine_is_pointed_out(report: dict[str, Any]) -> None:
    assert "busy" not in render(report)
    report["machine"]["load_before"] = [3.0, 1.0, 1.0]
    assert "The machine was busy" in render(report)


def test_a_load_is_a_line(report: dict[str, Any]) -> None:
    text = render({**report, "load": [LOAD, LOAD | {"queries": 1000, "keeps_up": False, "failed_queries": 3}]})
    first, second = (line for line in text.splitlines() if "500,000" in line)
    assert first.split()[:4] == ["200", "500,000", "499,876", "yes"]
    assert second.startswith("1,000 (3 FAILED)")
    assert "NO" in second.split()


def test_what_is_not_known_is_a_dash(report: dict[str, Any]) -> None:
    unknown = {name: None for name in LOAD if name not in ("queries", "offered_per_second", "readers")}
    known = {"memory_gib": 0.0, "keeps_up": False, "failed_queries": 0, "rows_read": 0}
    text = render({**report, "load": [LOAD | unknown | known]})
    line = next(line for line in text.splitlines() if "500,000" in line)
    assert line.split() == ["200", "500,000", "-", "NO", *"-" * 9, "0.0", "GiB"]


def test_starts_deployments_and_the_peer_are_shown(report: dict[str, Any]) -> None:
    report["start"] = {"seconds": [12.0, 14.0, 13.0], "median_seconds": 13.0}
    report["deployment"] = {"posts": 50, "batches": 90, "batch_median": 0.4, "batch_mean": 0.42} | {
        f"{who}_{share}": 0.9 for who in ("posted", "reported") for share in ("p50", "p95")
    }
    runs = [{"tuples_per_second": 2.9e6}, {"tuples_per_second": 3.1e6}]
    entry = {"engine": "spark", "queries": 1, "median": 3e6, "runs": runs}
    text = render({**report, "peer": {"settings": "Settings.", "entries": [entry]}})
    assert "Start to ready: median 13.00 s of 12.0, 14.0, 13.0" in text
    assert "50 posts; 90 empty batches in that time: median 0.40 s, mean 0.42 s" in text
    assert "2,900,000, 3,100,000" in text


def test_a_failure_is_told(report: dict[str, Any]) -> None:
    text = render({**report, "failures": [{"scenario": "many", "error": "The service ended by itself"}]})
    assert text.endswith("FAILED many: The service ended by itself")
