"""The list of queries: pages, filters, and sorting by its columns."""

from __future__ import annotations

from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.api.rest import ALL, Rest
from tests.kit.browser import NARROW, Visit, visit
from tests.page.rows import select, url


def test_many_queries_are_paged_and_filtered(rest: Rest, person: Visit) -> None:
    bodies = [{"sql": f"SELECT price FROM purchases WHERE price > {n}", "name": f"above {n}"} for n in range(120)]
    made = rest.post("/queries", bodies)
    rest.run(made[-1]["id"])
    rest.retire(made[7]["id"])
    page = person.open()
    names = page.locator("table.queries tbody a")
    expect(names).to_have_count(50)
    expect(page.locator("#query-states")).to_contain_text("Running119")
    expect(names.first).to_have_text("above 119")
    page.get_by_role("button", name="Older").click()
    expect(page.locator("#page-place")).to_have_text("Page 2: q-70 to q-21")
    page.get_by_role("button", name="Older").click()
    expect(names).to_have_count(19)
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    page.get_by_role("button", name="Newer").click()
    expect(page.locator("#page-place")).to_contain_text("Page 2")
    page.get_by_label("Filter queries by name and SQL").fill("ABOVE 11")
    expect(names).to_have_text([*(f"above {n}" for n in reversed(range(110, 120))), "above 11"])
    page.get_by_label("Filter queries by name and SQL").fill("where PRICE > 11")
    expect(names).to_have_text([*(f"above {n}" for n in reversed(range(110, 120))), "above 11"])
    page.get_by_label("Filter queries by name and SQL").fill("")
    page.get_by_label("Retired").check()
    expect(names).to_have_text(["above 7"])
    page.get_by_label("Failed").check()
    expect(page.get_by_text("No query is FAILED. “All” looks at the others.")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="q-1 ")
    page.get_by_label("All", exact=True).check()
    expect(row.locator("td").last).to_have_text("118", use_inner_text=True)


def test_a_query_that_was_just_started_is_listed_whatever_the_filters_were(rest: Rest, person: Visit) -> None:
    rest.query(ALL, name="first")
    page = person.open()
    names = page.locator("table.queries tbody a")
    page.get_by_label("Retired").check()
    page.get_by_label("Filter queries by name and SQL").fill("gone")
    expect(names).to_have_count(0)
    page.get_by_role("textbox", name="SQL").fill(f"CREATE QUERY second AS {ALL}")
    page.keyboard.press("Control+Enter")
    expect(names).to_have_text(["second", "first"])
    expect(page.get_by_label("All", exact=True)).to_be_checked()
    expect(page.get_by_label("Filter queries by name and SQL")).to_have_value("")


def test_a_query_that_is_opened_by_its_address_is_listed_until_another_filter_is_chosen(
    rest: Rest, person: Visit
) -> None:
    first = rest.query(ALL, name="first")
    rest.query(ALL, name="second")
    rest.retire(first["id"])
    page = person.open(f"#/queries/{first['id']}")
    links = page.locator("table.queries tbody a")
    expect(links).to_have_text(["second", "first"])
    expect(page.get_by_role("radio", name="All")).to_be_checked()
    expect(page.locator("table.queries tr[data-selected] a")).to_have_text("first")
    page.get_by_role("radio", name="Running").check()
    for _ in range(2):  # it stays so when the list is loaded again
        with page.expect_response("**/queries?*state=RUNNING*"):
            expect(links).to_have_text(["second"])
    links.click()
    expect(page.locator("#shown").get_by_role("heading", name="second")).to_be_visible()
    expect(page.get_by_role("radio", name="Running")).to_be_checked()


def test_how_far_a_query_has_caught_up_fits_its_column(rest: Rest, browser: Browser) -> None:
    query = rest.query(ALL, name="all purchases")

    def catching_up(route: Route) -> None:
        changes = {
            "state": "CATCHING_UP",
            "rows_out": 123_456,
            "progress": {"purchases": {"read": 9, "left": 0, "fraction": 1.0}},
        }
        route.fulfill(json={"queries": [{**query, **changes}], "cursor": None})

    for size in ((1280, 900), (1010, 800), NARROW):
        with visit(browser, url(rest), size) as person:
            person.page.route("**/queries?*", catching_up)
            page = person.open()
            state = page.locator("table.queries .state")
            expect(state).to_have_text("catching up, 100 %")
            assert edges(page.locator("table.queries .under"))[1] <= edges(state)[0]
            assert edges(state)[1] <= edges(page.locator("table.queries td.number").first)[0]
            person.check_fits()


def edges(part: Locator) -> tuple[float, float]:
    """Return where a part of the page begins and ends, from the left."""
    box = part.bounding_box()
    assert box is not None
    return box["x"], box["x"] + box["width"]


def names(page: Page) -> list[str]:
    """Return the names of the queries that are listed."""
    return page.locator("table.queries tbody a").all_inner_texts()


def test_a_press_on_a_heading_sorts_by_it(rest: Rest, person: Visit) -> None:
    for name, rows in (("b", 3), ("c", 7), ("a", 5)):
        select(rest, rest.query(ALL, name=name), range(rows))
    page = person.open()
    links = page.locator("table.queries tbody a")
    expect(links).to_have_text(["a", "c", "b"])
    rows = page.get_by_role("button", name="Rows", exact=True)
    heading = page.get_by_role("columnheader", name="Rows", exact=True)
    for expected, way in ((["c", "a", "b"], "descending"), (["b", "a", "c"], "ascending"), (["a", "c", "b"], None)):
        rows.press("Enter")
        expect(links).to_have_text(expected)
        assert heading.get_attribute("aria-sort") == way
    page.get_by_role("button", name="Query", exact=True).click()
    expect(links).to_have_text(["a", "b", "c"])
    person.check_accessible()
    person.check_fits()


def test_sorted_lists_are_paged(rest: Rest, person: Visit) -> None:
    bodies = [{"sql": ALL, "name": f"n{number:02}"} for number in range(60)]
    rest.run(rest.post("/queries", bodies)[-1]["id"])
    page = person.open()
    page.get_by_role("button", name="Query", exact=True).click()
    links = page.locator("table.queries tbody a")
    expect(links).to_have_text([f"n{number:02}" for number in range(50)])
    page.get_by_role("button", name="After", exact=True).click()
    expect(links).to_have_text([f"n{number:02}" for number in range(50, 60)])
    expect(page.locator("#page-place")).to_have_text("Page 2")
    page.get_by_role("button", name="Before", exact=True).click()
    expect(links.first).to_have_text("n00")
