"""What setting up does beforehand for all starts; that it does so is seen by a service that maps the archive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from operators import kernels
from session import prepare


def test_without_an_archive_starts_only_take_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_settings: object, _home: Path) -> None:
        raise OSError("no Java here")

    compiled = []
    monkeypatch.setattr(kernels, "warm_up", lambda: compiled.append(True))
    monkeypatch.setattr(prepare, "start_spark", refuse)
    monkeypatch.setattr("tempfile.tempdir", None)
    prepare.prepare(tmp_path / "share" / "classes.jsa")
    assert compiled
    assert "no Java here" in capsys.readouterr().out
    assert list((tmp_path / "share").iterdir()) == [], "nothing half-done stays"


def test_kernels_that_cannot_be_compiled_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("no compiler")

    def only_wait(_archive: Path, before_job: Callable[[], object]) -> None:
        before_job()

    monkeypatch.setattr(kernels, "warm_up", fail)
    monkeypatch.setattr(prepare, "archive_classes", only_wait)
    with pytest.raises(RuntimeError, match="no compiler"):
        prepare.prepare(tmp_path / "classes.jsa")
