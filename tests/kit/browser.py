"""A person at the page: Chromium without a window, driven by Playwright, and the checks every look at a page passes.

Chromium is Debian's; `tests/kit/install.sh` installs it where it may. Where it cannot be had, the tests are skipped and
say so. Pictures of what was seen go to the folder `BRAID_TEST_SCREENSHOTS`, if that is set.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

SCREENSHOTS = "BRAID_TEST_SCREENSHOTS"
WIDE = (1440, 900)
NARROW = (390, 844)
PATIENCE_MS = 30_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run Chromium; skip where there is none."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip(
            "Chromium must be there to look at the page; `bash tests/kit/install.sh` installs it where it may, as"
            " `apt-get install chromium` does"
        )
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable)
        yield browser
        browser.close()


class Visit:
    """One person's visit to the page. `trouble` are the errors of its scripts, `addresses` what it asked for."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.trouble: list[str] = []
        self.refused: list[str] = []
        self.addresses: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("request", lambda request: self.addresses.append(request.url))

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        # a browser tells every answer that is no success; the test says which it expects
        (self.refused if message.text.startswith("Failed to load resource") else self.trouble).append(message.text)

    def open(self, place: str = "") -> Page:
        """Open the page, at a place such as `#/plan`."""
        self.page.goto(f"{self.url}/{place}")
        return self.page

    def picture(self, name: str) -> None:
        """Keep a picture of what is seen, where pictures are wanted."""
        folder = os.environ.get(SCREENSHOTS)
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)

    def check_accessible(self) -> None:
        """Check what axe can check: names, roles, contrast, order of headings, and the like."""
        results = Axe().run(self.page)
        assert not results.violations_count, results.generate_report()

    def check_fits(self) -> None:
        """Check that nothing is wider than the window, and no heading of a list than its column.

        Only parts that say so can be moved sideways.
        """
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.page.evaluate(wider) == 0
        cut = "[...document.querySelectorAll('.live thead th')].filter(th => th.scrollWidth > th.clientWidth)"
        assert self.page.evaluate(f"{cut}.map(th => th.innerText)") == []


@contextmanager
def visit(browser: Browser, url: str, size: tuple[int, int] = WIDE, **context: Any) -> Iterator[Visit]:
    """Visit the page at `url`; whatever its scripts complained of fails the test."""
    width, height = size
    browser_context = browser.new_context(viewport={"width": width, "height": height}, **context)
    try:
        page_visit = Visit(browser_context.new_page(), url)
        yield page_visit
        assert not page_visit.trouble
        hosts = {address.split("/")[2] for address in page_visit.addresses}
        assert hosts <= {url.split("/")[2]}, "everything comes from the service"
    finally:
        browser_context.close()
