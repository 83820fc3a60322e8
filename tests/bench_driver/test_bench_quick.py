"""The quick form of workloads, as a user runs it: a service, its queues, its load and its readers are all real.

`make bench-quick` runs all of them at their full quick length. Else it is one whose queries come and go, with few of
them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from braid.bench_driver.workload import list_workloads

# a quick run takes less than three minutes a workload
QUICK_SECONDS = 180.0
SOME = ["astream-sc2"]
if "BRAID_BENCH_SECONDS" in os.environ:
    WORKLOADS, OPTIONS = sorted(list_workloads()), ["--seconds", os.environ["BRAID_BENCH_SECONDS"]]
else:
    WORKLOADS, OPTIONS = SOME, ["--seconds", "2", "--queries", "6"]

pytestmark = [pytest.mark.service, pytest.mark.alone]

Report = dict[str, Any]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    output = tmp_path_factory.mktemp("bench")
    command = [sys.executable, "-m", "braid.api.cli.main", "bench", *WORKLOADS, "--quick", *OPTIONS]
    done = subprocess.run(
        [*command, "--output", str(output)],
        capture_output=True,
        text=True,
        timeout=QUICK_SECONDS * len(WORKLOADS),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = (output / "report.html").read_text(encoding="utf-8")
    assert [workload for workload in WORKLOADS if workload not in page] == []
    document: Report = json.loads((output / "report.json").read_text(encoding="utf-8"))
    return document


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_quick_run_measures_the_workload(report: Report, workload: str) -> None:
    (row,) = [row for row in report["results"] if row["workload"] == workload]
    assert (row["system"], row["error"]) == ("braid", None)
    assert row["sustainable_tuples_per_second"] > 0
    assert row["slowest_tuples_per_second"] <= row["overall_tuples_per_second"]
    assert row["deployment_latency_seconds"]["p50"] > 0
    assert row["series"]["queue_length"]


def test_nothing_failed(report: Report) -> None:
    assert not report["failures"]
    assert not report["unsupported"]
