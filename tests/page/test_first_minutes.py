"""The first minutes of somebody new, on a real service with nothing in it: by mouse, and by keyboard alone."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.browser import visit
from tests.kit.client import Api
from tests.kit.fixtures import FreshService
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.service
SECONDS = 60.0
STEPS = 400  # of the key Tab, at most


def windows(page: Page) -> list[tuple[str, str]]:
    """Return window and pack of the rows shown, the newest first."""
    rows = page.locator("table.rows tbody tr")
    cells = rows.evaluate_all("rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))")
    return [(start, pack) for start, _, pack, *_ in cells]


@pytest.mark.long
def test_from_nothing_to_rows_a_chart_a_plan_and_back(browser: Browser, fresh_service: FreshService) -> None:
    service = fresh_service()
    with visit(browser, service.url) as person:
        page = person.open()
        expect(page.get_by_text("No stream is declared yet.")).to_be_visible()
        expect(page.locator("#health")).to_have_text("ready")
        person.picture("minutes-1-nothing")

        # declare a stream
        page.get_by_role("button", name="Declare a generated stream").click()
        expect(page.get_by_role("textbox", name="SQL")).to_have_value(re.compile("CREATE STREAM purchases"))
        page.get_by_role("button", name="Run").click()
        expect(page.locator("#verdict")).to_have_text("Stream purchases is declared.")
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="purchases"))
        expect(row.locator("td").nth(0)).to_have_text(re.compile(r"^[1-9][\d,]*$"))
        expect(row.locator("td").nth(2)).to_have_text(re.compile("ago$"))
        person.picture("minutes-2-stream")

        # a query with a mistake, mended in place
        page.get_by_role("button", name="Per window").click()
        editor = page.get_by_role("textbox", name="SQL")
        right = editor.input_value()
        editor.fill(right.replace("SUM(price)", "SUM(prise)"))
        expect(page.locator("#colours mark")).to_have_text("prise")
        expect(page.locator("#verdict")).to_contain_text("Did you mean 'price'?")
        person.picture("minutes-3-mistake")
        page.get_by_role("button", name="Run").click()
        expect(editor).to_be_focused()
        page.keyboard.press("Shift+Control+ArrowRight")
        page.keyboard.type("price")
        assert editor.input_value() == right
        expect(page.locator("#verdict")).to_contain_text("Columns: window_start, window_end, gem_pack, total, n.")
        refused = len(person.refused)
        assert refused, "a browser tells of what was refused"

        # run it, and watch
        page.get_by_label("Name", exact=True).fill("revenue")
        page.get_by_label("Name", exact=True).press("Enter")
        expect(page.get_by_role("heading", name="revenue")).to_be_visible()
        expect(page.locator("#shown .state")).to_have_text("running")
        wait_until(lambda: len(set(windows(page))) >= 20, SECONDS, lambda: f"rows come; there are {windows(page)}")
        chart = page.get_by_role("img", name=re.compile("^Chart of total by gem_pack, [0-9]+ groups; latest:"))
        expect(chart).to_be_visible()
        listed = page.locator("table.queries tbody tr")
        expect(listed).to_have_count(1)
        expect(listed.locator("td").nth(2)).to_have_text(re.compile(r"^\d+(\.\d+)? s$"))
        person.picture("minutes-4-rows")

        # the plan, and with whom it shares
        editor.fill("SELECT gem_pack, COUNT(*) AS n FROM purchases [RANGE 5 SECONDS] GROUP BY gem_pack")
        expect(page.locator("#verdict")).to_contain_text("Shared with 1 other query")
        page.get_by_role("tab", name="Plan").click()
        plan = page.get_by_role("img", name="Plan of query revenue")
        for part in ("purchases", "aggregation", "by gem_pack", "result log"):
            expect(plan).to_contain_text(part)
        expect(plan.locator(".node.query")).to_have_count(1)
        person.picture("minutes-5-plan")
        page.get_by_role("tab", name="Rows").click()

        # the service goes away, and comes back
        before = windows(page)
        service.kill()
        expect(page.locator("#health")).to_have_attribute("data-state", "away")
        expect(page.get_by_text("The connection is lost; trying again.")).to_be_visible()
        person.picture("minutes-6-away")
        service.start()
        expect(page.locator("#health")).to_have_text("ready")
        expect(page.get_by_text("Live, times in UTC.")).to_be_visible()
        wait_until(lambda: windows(page)[0][0] > before[0][0], SECONDS, "more rows come")
        shown = windows(page)
        assert len(set(shown)) == len(shown), "no row came twice"
        with Api(service.url) as api:
            query = next(api.queries())
            kept = [(row["window_start"][11:19], str(row["gem_pack"])) for row in rows_of(api, query["id"])]
        upto = kept.index(shown[0])
        assert shown == kept[upto - len(shown) + 1 : upto + 1][::-1], "no row is missing"

        # stop
        page.get_by_role("button", name="Drop", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Drop it").click()
        expect(page.locator("#shown .state")).to_have_text("retired", timeout=SECONDS * 1000)
        expect(page.get_by_text("The query has ended: no more rows will come.")).to_be_visible()
        expect(page.get_by_text("No query is RUNNING.")).to_be_visible()
        person.picture("minutes-7-dropped")


def test_by_keyboard_alone(browser: Browser, service: Any, api: Api) -> None:
    name = "keyboard_taps"
    with visit(browser, service.url) as person:
        page = person.open()
        expect(page.locator("#health")).to_have_text("ready")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the SQL editor")).to_be_focused()
        page.keyboard.press("Enter")
        editor = page.get_by_role("textbox", name="SQL")
        expect(editor).to_be_focused()
        page.keyboard.type(f"CREATE STREAM {name} (volts DOUBLE, time TIMESTAMP LATENESS INTERVAL '0' SECOND) ")
        page.keyboard.type("WITH (connector = 'push', format = 'json')")
        page.keyboard.press("Control+Enter")
        expect(page.locator("#verdict")).to_have_text(f"Stream {name} is declared.")
        page.keyboard.press("Control+a")
        page.keyboard.type(f"SELECT volts, time FROM {name} WHERE volts > 1")
        page.keyboard.press("Control+Enter")
        expect(page.locator("#shown .state")).to_have_text("running")
        expect(page.locator("#announcer")).to_have_text(re.compile("Shown beside|RUNNING"))
        query = page.url.rpartition("/")[2]
        for second in range(2):
            tuples = [f'{{"volts": {v}, "time": "2026-01-01T00:00:0{second}Z"}}' for v in (0.5, 2.5)]
            api.push(name, "application/x-ndjson", "\n".join(tuples).encode())
            shown = page.locator("table.rows tbody tr")
            expect(shown).to_have_count(second + 1)
            expect(shown.first).to_contain_text("2.5")
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Run")).to_be_focused()
        tab_to(page, "Rows", "tab")
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name="Plan")).to_be_focused()
        expect(page.get_by_role("img", name=f"Plan of query {query}")).to_be_visible()
        tab_to(page, "Drop", "button", "Shift+Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Keep it")).to_be_focused()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#shown .state")).to_have_text(re.compile("draining|retired"))
        assert not person.refused
    api.delete_query(query, drain=False)
    api.wait_state(query, "RETIRED")
    api.call("DELETE", f"/streams/{name}", 204)


def tab_to(page: Page, name: str, role: Any, key: str = "Tab") -> None:
    """Press Tab until what is wanted has the focus; every stop must be seen."""
    wanted = page.get_by_role(role, name=name, exact=True)
    for _ in range(STEPS):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.getClientRects().length > 0"), "what has the focus is shown"
        if wanted.evaluate("node => node === document.activeElement"):
            return
    raise AssertionError(f"{key} must come to the {role} {name!r}")


def rows_of(api: Api, query_id: str) -> list[dict[str, Any]]:
    """Return all rows of a query."""
    page = api.page(query_id, limit=100_000)
    rows: list[dict[str, Any]] = page["rows"]
    return rows
