"""What setting up does beforehand for all starts; that it does so is seen by a service that maps the archive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from braid.engine.spark import prepare
from braid.operators import kernels


def test_without_an_archive_starts_only_take_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_settings: object, _home: Path) -> None:
        raise OSError("no Java here")

    compiled = [tmp_path / "these", tmp_path / "those"]
    monkeypatch.setattr(kernels, "WARM_UPS", tuple(partial(Path.touch, each) for each in compiled))
    monkeypatch.setattr(prepare, "start_spark", refuse)
    monkeypatch.setattr("tempfile.tempdir", None)
    prepare.prepare(tmp_path / "share" / "classes.jsa")
    assert all(each.exists() for each in compiled)
    assert "no Java here" in capsys.readouterr().out
    assert list((tmp_path / "share").iterdir()) == [], "nothing half-done stays"


def test_kernels_that_cannot_be_compiled_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def only_wait(_archive: Path, before_job: Callable[[], object]) -> None:
        before_job()

    monkeypatch.setattr(kernels, "WARM_UPS", (partial(Path.rmdir, tmp_path / "no compiler"),))
    monkeypatch.setattr(prepare, "archive_classes", only_wait)
    with pytest.raises(FileNotFoundError, match="no compiler"):
        prepare.prepare(tmp_path / "classes.jsa")
