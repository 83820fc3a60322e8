"""Fixtures of the tests of sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from sources.storage import Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A local data-dir."""
    return Storage(str(tmp_path / "data"))
