"""Take the picture of the page that the documents show, of a service that runs: ``make picture``."""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import expect

from braid.client import Client
from tests.kit.browser import chromium, visit
from tests.kit.service import REPOSITORY, RunningService
from tests.kit.waiting import wait_until

STREAM = (
    "CREATE STREAM purchases (user_id BIGINT, gem_pack INT, price DOUBLE,"
    " time TIMESTAMP LATENESS INTERVAL '1' SECOND) WITH (connector = 'generator', rate = '2000')"
)
REVENUE = (
    "SELECT gem_pack, SUM(price) AS revenue, COUNT(*) AS n FROM purchases [RANGE 2 SECONDS]"
    " WHERE gem_pack > 6 GROUP BY gem_pack"
)
WHALES = "SELECT user_id, price FROM purchases WHERE price > 99.98"
MISTAKE = """SELECT gem_pack, SUM(prise) AS revenue -- what?
FROM purchases [RANGE 5 SECONDS]
WHERE gem_pack > 6 GROUP BY gem_pack"""
WINDOWS, PACKS = 40, 3
PICTURE = REPOSITORY / "docs" / "page.png"


def main() -> None:
    """Run a service with a stream and two queries, write a third one with a mistake, and take the picture."""
    with tempfile.TemporaryDirectory() as folder:
        service = RunningService(Path(folder) / "data", Path(folder) / "service.log")
        try:
            service.start()
            with Client(service.url) as braid, chromium() as browser, visit(browser, service.url) as person:
                braid.create_stream(STREAM)
                revenue = braid.create_query(REVENUE, name="revenue", wait=60)
                braid.create_query(WHALES, name="whales", wait=60)
                page = person.open()
                page.get_by_role("link", name="revenue").click()
                page.get_by_role("textbox", name="SQL").fill(MISTAKE)
                expect(page.locator("#verdict")).to_contain_text("Did you mean 'price'?")
                rows = WINDOWS * PACKS
                wait_until(lambda: braid.get_query(revenue["id"])["rows_out"] >= rows, 180, "a chart is worth it")
                page.screenshot(path=PICTURE)
            service.stop()
        finally:
            service.end_everything()


if __name__ == "__main__":
    main()
