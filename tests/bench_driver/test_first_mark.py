"""The first marks: a failure of the service is told."""

from __future__ import annotations

from typing import Any

import pytest

from braid.bench_driver.programs import first_mark
from braid.bench_driver.programs.first_mark import Figures, main
from braid.bench_driver.service_process import ServiceFailedError


def test_a_failure_is_told_and_reports_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    def fail(_: int) -> Figures:
        raise ServiceFailedError("The service ended by itself", tmp_path / "service.log")

    monkeypatch.setattr(first_mark, "measure_starts", fail)
    assert main(["--quick", "--output", str(tmp_path / "marks.json")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "failed: The service ended by itself" in captured.err
    assert not (tmp_path / "marks.json").exists()
