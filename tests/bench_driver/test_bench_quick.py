"""The quick form of workloads, as a user runs it: a service, its queues, its load and its readers are all real.

Each takes about a minute, so the usual tests run one that is supported and one that is not; `make bench-quick` runs
all (environment variable BRAID_BENCH_WORKLOADS=all).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench_driver.workload import list_workloads

QUICK_SECONDS = 180.0
# what the service cannot run yet is listed in the report with the service's own words
UNSUPPORTED = {name for name in list_workloads() if "join" in name or "complex" in name}
ALL = os.environ.get("BRAID_BENCH_WORKLOADS") == "all"
SUPPORTED = sorted(set(list_workloads()) - UNSUPPORTED) if ALL else ["astream-sc1"]
REFUSED = sorted(UNSUPPORTED) if ALL else ["rovio-join"]


def run_quick(workload: str, output: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "api.cli.main", "bench", workload, "--quick", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=QUICK_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert workload in (output / "report.html").read_text(encoding="utf-8")
    report: dict[str, Any] = json.loads((output / "report.json").read_text(encoding="utf-8"))
    assert not report["failures"]
    return report


@pytest.mark.service
@pytest.mark.parametrize("workload", SUPPORTED)
def test_a_quick_run_measures_the_workload(workload: str, tmp_path: Path) -> None:
    report = run_quick(workload, tmp_path)
    (row,) = report["results"]
    assert (row["system"], row["workload"], row["error"]) == ("braid", workload, None)
    assert row["sustainable_tuples_per_second"] > 0
    assert row["slowest_tuples_per_second"] <= row["overall_tuples_per_second"]
    assert row["deployment_latency_seconds"]["p50"] > 0
    assert row["series"]["queue_length"]


@pytest.mark.service
@pytest.mark.parametrize("workload", REFUSED)
def test_a_workload_that_is_not_supported_is_listed_with_the_reason(workload: str, tmp_path: Path) -> None:
    report = run_quick(workload, tmp_path)
    assert not report["results"]
    assert {(entry["workload"], bool(entry["reason"])) for entry in report["unsupported"]} == {(workload, True)}
