"""Fixtures of the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.kit.browser import chromium


# not for the whole session: while it runs, no other test can run an event loop of its own
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    with chromium() as running:
        yield running
