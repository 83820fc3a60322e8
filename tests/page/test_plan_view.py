"""Plans as pictures: of one query and of everything, in SQL, as large as somebody wants."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.rest import Rest, open_rest
from tests.kit.browser import NARROW, Visit, visit
from tests.kit.waiting import wait_until
from tests.optimizer.arbitrary_plans import arbitrary_plans
from tests.page.rows import url

CASES = (
    "SELECT CASE WHEN price > {n} THEN 'dear' ELSE 'cheap' END AS kind, COUNT(*) AS n FROM purchases [RANGE 5 SECONDS]"
    " GROUP BY CASE WHEN price > {n} THEN 'dear' ELSE 'cheap' END"
)
LOOKALIKES = "SELECT pack, SUM(price) AS s FROM purchases [RANGE {n} SECONDS] WHERE user_id > {n} GROUP BY pack"


def test_the_plan_of_everything_tells_what_the_optimizer_changed(browser: Browser, tmp_path: Path) -> None:
    with arbitrary_plans(), open_rest(tmp_path, reoptimize_seconds=600.0) as rest:
        rest.stream()
        for n in range(8):
            rest.query(
                "SELECT pack, COUNT(*) AS n FROM purchases [RANGE 1 SECOND]"
                f" WHERE price > {n} AND user_id > {n} GROUP BY pack"
            )
        rest.service.session.reoptimize()

        def has_groups() -> bool:
            return any(len(node.get("groups", ())) > 1 for node in rest.client.get("/plan").json()["nodes"])

        wait_until(has_groups, 10, "queries are in groups")
        with visit(browser, url(rest)) as visiting:
            page = visiting.open("#/plan")
            picture = page.get_by_role("img", name="Plan of everything that runs")
            expect(picture).to_contain_text(re.compile("[2-4] query groups"))
            change = page.get_by_role("listitem").filter(has_text="drawn by lot, as tests want it.")
            expect(change).to_be_visible()
            visiting.check_accessible()
            visiting.check_fits()
            visiting.picture("plan-changes")


def scale(page: Page) -> int:
    """Return the size of the picture in percent."""
    return int(page.get_by_role("group", name="Size of the plan").get_by_role("status").inner_text().split()[0])


@pytest.mark.long
def test_two_hundred_queries_are_read_in_sql_and_zoomed(rest: Rest, browser: Browser) -> None:
    bodies = [{"sql": LOOKALIKES.format(n=n + 1)} for n in range(160)] + [{"sql": CASES.format(n=n)} for n in range(40)]
    rest.run(rest.post("/queries", bodies)[-1]["id"])
    label = "Plan of everything that runs"
    for size, scheme in (((1440, 900), "light"), (NARROW, "dark")):
        with visit(browser, url(rest), size, color_scheme=scheme) as person:
            page = person.open("#/plan")
            picture = page.get_by_role("img", name=label)
            expect(picture).to_contain_text("by CASE WHEN price > 39.0")
            expect(page.get_by_text("200 queries in 41 operators.")).to_be_visible()
            assert "case(" not in (picture.text_content() or "")
            scroll = page.get_by_role("group", name=label)
            fits = "node => node.scrollWidth <= node.clientWidth"
            first = scale(page)
            assert first >= 75, "its texts can be read"
            page.get_by_role("button", name="Fit width").click()
            assert scroll.evaluate(fits)
            fitting = scale(page)
            assert fitting <= first
            page.get_by_role("button", name="Larger").click()
            assert scale(page) > fitting
            scroll.focus()
            page.keyboard.press("-")
            page.keyboard.press("-")
            assert scale(page) < fitting
            page.keyboard.press("0")
            assert scale(page) == fitting
            scroll.hover()
            page.keyboard.down("Control")
            page.mouse.wheel(0, -100)
            page.keyboard.up("Control")
            wait_until(lambda: scale(page) > fitting, 20, "the wheel has made it larger")  # noqa: B023
            person.check_accessible()
            person.check_fits()
            person.picture(f"plan-200-{'narrow' if size == NARROW else 'wide'}-{scheme}")


def test_a_query_says_in_sql_how_it_runs(rest: Rest, person: Visit) -> None:
    query = rest.query(CASES.format(n=3), name="kinds")
    page = person.open(f"#/queries/{query['id']}")
    page.get_by_role("tab", name="Plan").click()
    expect(page.get_by_role("img", name="Plan of query kinds")).to_contain_text("by CASE WHEN price >")
    expect(page.locator("#shown .why").first).to_contain_text("CASE WHEN price > 3.0 THEN 'dear' ELSE 'cheap' END")
    page.get_by_role("tab", name="About").click()
    expect(page.locator(".about")).to_contain_text(re.compile("aggregation of purchases by CASE WHEN"))
    page.get_by_role("tab", name="Plan").click()
    page.get_by_text("The same as a list").click()
    expect(page.get_by_role("listitem").filter(has_text="aggregation · purchases")).to_be_visible()
