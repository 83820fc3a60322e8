"""Fixtures of the session's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.session.driver import Driver


@pytest.fixture
def open_driver(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Open drivers with settings of one's own; all are ended after the test."""
    opened: list[Driver] = []

    def make(**settings: Any) -> Driver:
        opened.append(Driver(tmp_path / f"data-{len(opened)}", **settings))
        return opened[-1]

    yield make
    for driver in opened:
        driver.end()


@pytest.fixture
def driver(open_driver: Callable[..., Driver]) -> Driver:
    """A driver with default settings and the stream ``purchases``, id ``s-1``."""
    driver = open_driver()
    driver.stream()
    return driver
