"""The first marks as text: what was measured is shown, what is not known is a dash."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from bench_driver import first_mark
from bench_driver.first_mark import Deployments, Starts, main, render
from bench_driver.service_process import ServiceFailedError


@pytest.fixture
def report() -> dict[str, Any]:
    deployments = Deployments(
        posts=50,
        batches=90,
        batch_median=0.4,
        batch_mean=0.42,
        posted_p50=0.91,
        posted_p95=1.62,
        reported_p50=0.88,
        reported_p95=1.57,
    )
    return {
        "start": asdict(Starts([12.0, 14.04, 13.0], 13.0)),
        "deployment": asdict(deployments),
    }


def test_starts_batches_and_deployments_are_shown(report: dict[str, Any]) -> None:
    text = render(report)
    assert "Start to ready: median 13.00 s of 12.0, 14.0, 13.0" in text
    assert "50 posts; 90 batches without tuples in that time: median 0.40 s, mean 0.42 s" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["POST", "until", "RUNNING", "0.91", "s", "1.62", "s"] in rows
    assert ["as", "the", "service", "reports", "it", "0.88", "s", "1.57", "s"] in rows


def test_what_is_not_known_is_a_dash(report: dict[str, Any]) -> None:
    report["start"] = {"seconds": [], "median_seconds": None}
    report["deployment"] = dict.fromkeys(report["deployment"]) | {"posts": 0, "batches": 0}
    text = render(report)
    assert "median - of" in text
    assert "0 posts; 0 batches without tuples in that time: median -, mean -" in text
    assert ["POST", "until", "RUNNING", "-", "-"] in [line.split() for line in text.splitlines()]


def test_a_failure_is_told_and_reports_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    def fail(_: int) -> Starts:
        raise ServiceFailedError("The service ended by itself", tmp_path / "service.log")

    monkeypatch.setattr(first_mark, "measure_starts", fail)
    assert main(["--quick", "--output", str(tmp_path / "marks.json")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "failed: The service ended by itself" in captured.err
    assert not (tmp_path / "marks.json").exists()
