"""The chart of a query's rows: the form that suits them, what somebody chooses instead, the address that keeps it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.api.rest import ALL, STREAM, SUMS, Rest
from tests.kit.browser import Visit, visit
from tests.kit.waiting import wait_until
from tests.page.rows import block, history, select, served_with, sums, url

# texts and points of the last picture that was painted on a canvas
RECORD_PAINTING = """
window.painted = { texts: [], points: 0 };
const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
Object.assign(CanvasRenderingContext2D.prototype, {
  clearRect(...place) { painted.texts = []; clearRect.apply(this, place); },
  fillText(text, ...place) { painted.texts.push(text); fillText.call(this, text, ...place); },
});
const { lineTo } = Path2D.prototype;
Path2D.prototype.lineTo = function (...place) { painted.points += 1; lineTo.apply(this, place); };
"""


@pytest.fixture
def person(browser: Browser, rest: Rest) -> Iterator[Visit]:
    """Somebody whose canvases tell what was painted."""
    with visit(browser, url(rest)) as visiting:
        visiting.page.add_init_script(RECORD_PAINTING)
        yield visiting


def lines(page: Page, label: str | re.Pattern[str]) -> Locator:
    """Return the chart over time of a label."""
    return page.get_by_role("img", name=label, exact=isinstance(label, str))


def bars(page: Page) -> dict[str, str]:
    """Return what the bars say, from the first to the last."""
    texts = page.locator(".bars li").evaluate_all(
        "lines => lines.map((line) => [line.children[0].textContent, line.children[2].textContent])"
    )
    return dict(texts)


def form(page: Page, name: str) -> Locator:
    """Return the choice of a form."""
    return page.get_by_role("radio", name=name)


# the form that suits


def test_few_groups_over_several_windows_are_lines(rest: Rest, person: Visit) -> None:
    query = rest.query(SUMS)
    for window in range(5):
        sums(rest, query, window, {1: 10 + window, 2: 20 + window})
    page = person.open(f"#/queries/{query['id']}")
    expect(lines(page, "Chart of total by pack, 2 groups; latest: 1 14, 2 24")).to_be_visible()
    expect(form(page, "Over time")).to_be_checked()
    sums(rest, query, 5, {1: 7, 2: 9, 3: 11})
    expect(lines(page, "Chart of total by pack, 3 groups; latest: 1 7, 2 9, 3 11")).to_be_visible()
    expect(page.get_by_text("Windows that end from 2026-09-21 14:13:28 to 2026-09-21 14:13:48.")).to_be_visible()


def test_a_chart_says_of_which_rows_it_is_where_it_is_not_of_all(rest: Rest, person: Visit) -> None:
    period, which = "Windows that end from 2026-09-21 14:13:28 to 2026-09-21 14:13:3", "Out of the last 4 rows"
    query = rest.query(SUMS)
    for window in range(2):
        sums(rest, query, window, {1: 10 + window, 2: 20 + window})
    person.page.route("**/watch.js", served_with("TAIL = 10_000", "TAIL = 4"))
    page = person.open(f"#/queries/{query['id']}")
    caption = page.locator(".chart .newest")
    expect(caption).to_have_text(f"{period}2.")
    sums(rest, query, 2, {1: 12, 2: 22})
    expect(caption).to_have_text(f"{period}6. {which} and all that came since.")
    rest.retire(query["id"])
    expect(caption).to_contain_text(which)
    rows = rest.query(ALL)
    select(rest, rows, range(3))
    page = person.open(f"#/queries/{rows['id']}?form=lines")
    expect(lines(page, re.compile("^Chart of"))).to_be_visible()
    expect(caption).to_be_hidden()
    rest.retire(rows["id"])
    expect(caption).to_be_hidden()


def test_a_single_window_is_bars_until_there_are_two(rest: Rest, person: Visit) -> None:
    query = rest.query(SUMS)
    sums(rest, query, 0, {1: 10, 2: 30, 3: -20})
    page = person.open(f"#/queries/{query['id']}")
    expect(page.get_by_role("list", name="total by pack, 3 groups, window until 2026-09-21 14:13:28")).to_be_visible()
    assert list(bars(page).items()) == [("2", "30"), ("1", "10"), ("3", "-20")]
    sums(rest, query, 1, {1: 11, 2: 31})
    expect(lines(page, re.compile("latest: 1 11, 2 31, 3 -20$"))).to_be_visible()


def test_many_groups_are_bars_the_greatest_first_and_the_rest_in_words(rest: Rest, person: Visit) -> None:
    query = rest.query(SUMS)
    history(rest, query, windows=3, packs=30)
    page = person.open(f"#/queries/{query['id']}")
    expect(page.get_by_text("and 5 more, from 2 to 402.")).to_be_visible()
    shown = bars(page)
    assert len(shown) == 25
    assert next(iter(shown.items())) == ("29", "2,902")
    form(page, "Over time").check()
    expect(
        lines(
            page, re.compile("^Chart of total by pack, 30 groups; latest: 20 2,002, .*; and 20 more, from 2 to 1,902$")
        )
    ).to_be_visible()


def test_single_rows_are_a_table_and_dots_where_somebody_wants_them(rest: Rest, person: Visit) -> None:
    query = rest.query(ALL)
    select(rest, query, range(5))
    page = person.open(f"#/queries/{query['id']}")
    expect(form(page, "Table")).to_be_checked()
    expect(page.locator(".chart")).to_be_hidden()
    expect(form(page, "Newest window")).to_be_hidden()
    form(page, "Over time").check()
    expect(lines(page, "Chart of price; latest: price 1")).to_be_visible()
    page.get_by_label("by", exact=True).select_option("pack")
    expect(lines(page, "Chart of price by pack, 3 groups; latest: 0 0.75, 1 1, 2 0.5")).to_be_visible()


def test_rows_without_a_number_are_a_table_only(rest: Rest, person: Visit) -> None:
    query = rest.query("SELECT note, time FROM purchases")
    select(rest, query, range(2))
    page = person.open(f"#/queries/{query['id']}")
    expect(page.locator("table.rows tbody tr")).to_have_count(2)
    expect(page.get_by_role("group", name="Form of the chart")).to_be_hidden()


# what somebody chooses


def test_the_address_keeps_form_measure_and_groups(rest: Rest, browser: Browser, person: Visit) -> None:
    query = rest.query(SUMS.replace("AS total", "AS total, COUNT(*) AS n, MAX(user_id) AS most"), name="sums")
    history(rest, query, windows=3, packs=30)
    page = person.open(f"#/queries/{query['id']}")
    expect(form(page, "Newest window")).to_be_checked()
    form(page, "Newest window").focus()
    page.keyboard.press("ArrowLeft")
    expect(form(page, "Over time")).to_be_checked()
    page.get_by_label("Measure").select_option("n")
    expect(lines(page, re.compile("^Chart of n by pack, 30 groups"))).to_be_visible()
    page.get_by_role("button", name="0", exact=True).press("Enter")
    page.get_by_label("Pick a group").select_option("17")
    label = "Chart of n by pack, 30 groups; latest: 0 1, 17 1; and 28 more, from 1 to 1"
    expect(lines(page, label)).to_be_visible()
    assert page.url.endswith(f"#/queries/{query['id']}?form=lines&measure=n&group=0&group=17")
    with visit(browser, url(rest)) as other:
        opened = other.open(page.url.removeprefix(f"{url(rest)}/"))
        expect(lines(opened, label)).to_be_visible()
        expect(opened.get_by_label("Measure")).to_have_value("n")
        opened.get_by_role("button", name="17", exact=True).click()
        expect(lines(opened, re.compile("latest: 0 1; and 29 more"))).to_be_visible()
        opened.get_by_role("button", name="The greatest again").click()
        expect(lines(opened, re.compile("and 20 more, from 1 to 1$"))).to_be_visible()
        opened.go_back()
        assert "queries" not in opened.url, "a choice is no step of the history"


def test_a_measure_that_adds_up_can_be_looked_at_by_fewer_columns(rest: Rest, person: Visit) -> None:
    for name in ("note", '"Is a note?"'):
        if name != "note":
            rest.client.delete("/streams/purchases")
            rest.stream(STREAM.replace("note VARCHAR", f"{name} VARCHAR"))
        select_list = f"SELECT pack, {name}, MAX(user_id) AS most,"
        query = rest.query(SUMS.replace("SELECT pack,", select_list).replace("BY pack", f"BY pack, {name}"))
        for window in range(2):
            groups = {"key0": pa.array([1, 1, 2], pa.int32()), "key1": pa.array(["a", None, "a"])}
            rest.commit(results=[block(rest, query, window, groups, [10 + window, 20, 30])])
        page = person.open(f"#/queries/{query['id']}?measure=total")
        other = name.strip('"')
        expect(
            lines(page, f"Chart of total by pack, {other}, 3 groups; latest: 1, a 11, 1, NULL 20, 2, a 30")
        ).to_be_visible()
        page.get_by_label("by", exact=True).select_option(other)
        expect(lines(page, f"Chart of total by {other}, 2 groups; latest: a 41, NULL 20")).to_be_visible()
        page.get_by_label("by", exact=True).select_option("nothing")
        expect(lines(page, "Chart of total; latest: total 61")).to_be_visible()
        page.get_by_label("Measure").select_option("most")
        expect(lines(page, re.compile(f"^Chart of most by pack, {re.escape(other)}, 3 groups"))).to_be_visible()
        expect(page.get_by_label("by", exact=True)).to_be_hidden()
        rest.retire(query["id"])


def test_groups_of_other_names_are_told_apart(rest: Rest, person: Visit) -> None:
    query = rest.query(
        SUMS.replace("SELECT pack,", "SELECT note AS a, note || day AS b,").replace("BY pack", "BY a, b")
    )
    groups = {"key0": pa.array(["x", "x", "y"]), "key1": pa.array(["1", "2", "1"])}
    rest.commit(results=[block(rest, query, 0, groups, [10, 20, 30])])
    page = person.open(f"#/queries/{query['id']}?form=lines")
    expect(lines(page, "Chart of total by a, b, 3 groups; latest: x, 1 10, x, 2 20, y, 1 30")).to_be_visible()


# what is painted


@pytest.mark.long
def test_ten_thousand_points_are_thinned_to_what_pixels_show(rest: Rest, person: Visit) -> None:
    query = rest.query(SUMS)
    history(rest, query, windows=5000, packs=2)
    page = person.open(f"#/queries/{query['id']}")
    expect(lines(page, "Chart of total by pack, 2 groups; latest: 0 99, 1 199")).to_be_visible()
    expect(page.get_by_text("Windows that end from 2026-09-21 14:13:28 to 2026-09-21 19:46:44.")).to_be_visible()
    wait_until(lambda: page.evaluate("painted.points > 0"), 20, "the chart is painted")
    width = page.locator(".chart canvas").bounding_box()
    assert width is not None
    page.evaluate("painted.points = 0")
    sums(rest, query, 5000, {0: 1, 1: 2})
    expect(lines(page, re.compile("latest: 0 1, 1 2$"))).to_be_visible()
    wait_until(lambda: page.evaluate("painted.points > 0"), 20, "the chart is painted")
    assert page.evaluate("painted.points") <= 2 * 4 * width["width"]


def test_an_axis_of_days_has_dates(rest: Rest, person: Visit) -> None:
    query = rest.query(SUMS)
    for day in range(4):
        sums(rest, query, day * 21_600, {1: 10 + day})
    page = person.open(f"#/queries/{query['id']}")
    dates = {"2026-09-22", "2026-09-23"}
    wait_until(lambda: dates <= set(page.evaluate("painted.texts")), 20, "the axis has dates")


def test_values_are_shown_at_the_pointer_and_said_at_the_keyboard(rest: Rest, person: Visit) -> None:
    query = rest.query(SUMS)
    for window in range(3):
        sums(rest, query, window, {1: 10 + window, 2: 20 + window})
    page = person.open(f"#/queries/{query['id']}")
    chart = lines(page, re.compile("^Chart of total"))
    legend = page.locator(".legend")
    chart.hover(position={"x": 60, "y": 80})
    expect(legend).to_contain_text("at 2026-09-21 14:13:28")
    expect(legend.get_by_role("listitem").filter(has_text="1").last).to_contain_text("10")
    page.get_by_role("heading", name="Queries").hover()
    expect(legend).not_to_contain_text("at ")
    chart.focus()
    page.keyboard.press("ArrowLeft")
    said = page.locator(".chart [role=status]")
    expect(said).to_have_text("2026-09-21 14:13:36: 1 12, 2 22")
    page.keyboard.press("Home")
    expect(said).to_have_text("2026-09-21 14:13:28: 1 10, 2 20")
    page.keyboard.press("Escape")
    expect(legend).not_to_contain_text("at ")
