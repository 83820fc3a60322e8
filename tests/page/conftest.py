"""Fixtures of the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.api.rest import Rest, open_rest
from tests.kit.browser import Visit, chromium, visit
from tests.page.rows import url


# not for the whole session: while it runs, no other test can run an event loop of its own
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    with chromium() as running:
        yield running


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """A service without Spark, with a stream."""
    with open_rest(tmp_path) as running:
        running.stream()
        yield running


@pytest.fixture
def person(browser: Browser, rest: Rest) -> Iterator[Visit]:
    """Somebody who visits it."""
    with visit(browser, url(rest)) as visiting:
        yield visiting
