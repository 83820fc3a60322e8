"""The rows of a query on the page: whole, live, held, loading, gone."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
from playwright.sync_api import Browser, Route, expect

from tests.api.rest import ALL, SUMS, Rest, tuple_at
from tests.kit.browser import NARROW, Visit, visit
from tests.kit.waiting import wait_until
from tests.page.rows import START, block, column, select, served_with, url
from tests.router.batches import SECOND

COLUMNS = ["user_id", "pack", "price", "amount", "note", "day", "gift", "time"]


def test_rows_are_whole_and_never_markup(rest: Rest, person: Visit) -> None:
    query = rest.query(ALL)
    markup = "<img src=x onerror=\"document.title='broken'\">"
    rest.select(
        [tuple_at(START, user_id=2**62 + 1, price=0.1, amount=Decimal("2034.40"), note=markup, gift=False)],
        [query["slot"]],
    )
    page = person.open(f"#/queries/{query['id']}")
    row = page.locator("table.rows tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("2034.40")  # once the types are known
    shown = dict(zip(COLUMNS, row.locator("td").all_inner_texts(), strict=True))
    assert shown["user_id"] == str(2**62 + 1), "no digit is lost"
    assert (shown["note"], shown["price"], shown["gift"], shown["day"]) == (markup, "0.1", "false", "NULL")
    assert shown["time"] == "2026-09-21 14:13:20"
    assert page.title() == "Braid"


def test_the_newest_rows_are_on_top_and_come_by_themselves(rest: Rest, person: Visit) -> None:
    query = rest.query(ALL, name="everything")
    select(rest, query, range(1000))
    page = person.open(f"#/queries/{query['id']}")
    expect(page.get_by_role("heading", name="everything")).to_be_visible()
    wait_until(lambda: column(page, "user_id")[:2] == ["999", "998"], 20, "the newest are on top")
    assert len(column(page, "user_id")) == 200, "not a thousand"
    expect(page.get_by_text("The newest 200 rows; “braid results” has all that are kept.")).to_be_visible()
    select(rest, query, range(1000, 1003))
    wait_until(lambda: column(page, "user_id")[:4] == ["1002", "1001", "1000", "999"], 20, "more rows came")
    assert len(set(column(page, "user_id"))) == 200, "each row once"


def test_more_rows_than_one_can_watch_are_not_all_read(rest: Rest, person: Visit) -> None:
    query = rest.query(ALL)
    select(rest, query, range(1))
    watched = served_with("MAX_ROWS_PER_SECOND = 3000", "MAX_ROWS_PER_SECOND = 100")
    person.page.route("**/watch.js", watched)
    page = person.open(f"#/queries/{query['id']}")
    wait_until(lambda: column(page, "user_id") == ["0"], 20, "the first row is there")
    expect(page.get_by_text("The newest 200 rows")).to_be_hidden()
    select(rest, query, range(1, 30_000))
    expect(page.get_by_text("More rows than one can watch")).to_be_visible()
    wait_until(lambda: column(page, "user_id")[:1] == ["29999"], 20, "the newest are shown")


def test_what_is_held_stands_still(rest: Rest, person: Visit) -> None:
    query = rest.query(ALL)
    select(rest, query, range(3))
    page = person.open(f"#/queries/{query['id']}")
    wait_until(lambda: column(page, "user_id") == ["2", "1", "0"], 20, "rows are there")
    page.get_by_role("button", name="Hold").click()
    select(rest, query, range(3, 5))
    expect(page.locator("#shown .facts")).to_contain_text("Rows\n5", use_inner_text=True)
    assert column(page, "user_id") == ["2", "1", "0"]
    page.get_by_role("button", name="Go on").click()
    wait_until(lambda: column(page, "user_id") == ["4", "3", "2", "1", "0"], 20, "it has caught up")


def test_rows_that_are_wider_than_their_table_say_that_it_can_be_scrolled(browser: Browser, rest: Rest) -> None:
    narrow = rest.query("SELECT user_id FROM purchases")
    wide = rest.query(ALL)
    rest.select([tuple_at(START, user_id=1, note="a text of some length")], [narrow["slot"], wide["slot"]])
    with visit(browser, url(rest), NARROW) as person:
        page = person.open(f"#/queries/{narrow['id']}")
        expect(page.locator("table.rows tbody tr")).to_have_count(1)
        hint = page.get_by_text("More columns on the right: scroll the table sideways.")
        expect(hint).to_be_hidden()
        page = person.open(f"#/queries/{wide['id']}")
        expect(hint).to_be_visible()


def test_a_query_without_a_row_says_why(rest: Rest, person: Visit) -> None:
    query = rest.query(ALL)
    page = person.open(f"#/queries/{query['id']}")
    waiting = page.locator(".rows-scroll .empty")
    expect(waiting).to_have_text("No row yet. No row of stream purchases has been read yet.")
    select(rest, query, range(1))
    expect(waiting).to_be_hidden()


def test_a_query_without_a_new_row_says_for_what_the_next_window_waits(rest: Rest, person: Visit) -> None:
    query = rest.query(SUMS)
    stream = rest.service.session.streams.definition("purchases").id
    times = {"clocks": {stream: (START + 9) * SECOND}, "watermarks": {stream: (START + 8) * SECOND}}
    person.page.clock.install()
    page = person.open(f"#/queries/{query['id']}")
    groups = {"key0": pa.array([1], pa.int32())}
    rest.commit(results=[block(rest, query, 0, groups, [5])], **times)
    expect(page.locator("table.rows tbody tr")).to_have_count(1)
    hint = page.get_by_text("before 2026-09-21T14:13:32.000000Z, where the next window ends.")
    expect(hint).to_be_hidden()
    page.clock.fast_forward(20_000)
    expect(hint).to_be_visible()


def test_rows_that_are_on_their_way_are_loading_and_rows_that_are_gone_are_told(rest: Rest, person: Visit) -> None:
    query = rest.query(ALL)
    select(rest, query, range(3))
    held: list[Route] = []
    person.page.route("**/results/stream*", lambda route: held.append(route))
    page = person.open(f"#/queries/{query['id']}")
    waiting = page.locator(".rows-scroll .empty")
    expect(page.locator("#shown .facts")).to_contain_text("Rows\n3", use_inner_text=True)
    expect(waiting).to_have_text("Loading…")
    page.route("**/results?limit=1", lambda route: route.fulfill(json={"rows": [], "cursor": "", "end": False}))
    expect(waiting).to_have_text("None of its 3 rows is kept any more.")
    held[0].continue_()
    expect(waiting).to_be_hidden()
