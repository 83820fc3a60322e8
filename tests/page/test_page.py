"""The page, looked at over a real session whose batches are written by hand: each part of it, and what goes wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Request, expect

from braid.operators.event_times import ENDED
from tests.api.rest import ALL, STREAM, SUMS, Rest, open_rest
from tests.kit.browser import NARROW, Visit, visit
from tests.kit.waiting import wait_until
from tests.page.rows import START, column, select, sums, url
from tests.router.batches import SECOND

KEY = "the admin key of the page"


def test_a_stream_that_cannot_be_read_says_why(rest: Rest, person: Visit) -> None:
    definition = rest.service.session.streams.definition("purchases")
    counts = {"tuples": 7, "late": 2, "malformed": 1, "bytes": 70, "offsets": {}, "unread": "the broker is away"}
    late = {
        "reason": "late",
        "detail": "too late",
        "received_us": SECOND,
        "tuple": '{"pack": 1}',
        "raw": None,
    }
    rest.commit(
        streams={definition.id: counts},
        clocks={definition.id: START * SECOND},
        watermarks={definition.id: (START - 2) * SECOND},
        dead_letters=[rest.batches.dead_letters(definition.id, [late])],
    )
    page = person.open()
    row = page.get_by_role("row").filter(has_text="purchases")
    expect(row).to_contain_text("the broker is away")
    expect(row.get_by_role("cell").nth(3)).to_have_text("2")
    page.get_by_role("link", name="purchases").click()
    shown = page.locator("#shown")
    expect(shown.get_by_role("heading", name="purchases")).to_be_visible()
    expect(shown).to_contain_text("the broker is away")
    expect(shown.get_by_role("row").filter(has_text="event time")).to_contain_text("TIMESTAMP")
    expect(shown.get_by_role("group", name="Dead letters")).to_contain_text("too late")


def test_streams_that_cannot_be_read_come_first_and_others_as_they_were(rest: Rest, person: Visit) -> None:
    for number in range(11):
        rest.stream(STREAM.replace("purchases", f"s{number:02}"))
    page = person.open()
    links = page.locator("table.streams tbody a")
    others = ["purchases", *(f"s{number:02}" for number in range(11))]
    expect(links).to_have_text(others)
    expect(page.locator("#streams-note")).to_have_text("12 streams")
    counts = {"tuples": 7, "late": 0, "malformed": 0, "bytes": 70, "offsets": {}, "unread": "the broker is away"}
    rest.commit(streams={rest.service.session.streams.definition("s09").id: counts})
    expect(links).to_have_text(["s09", *(name for name in others if name != "s09")])
    expect(page.get_by_text("the broker is away")).to_be_in_viewport()


def test_a_stream_in_use_goes_with_its_queries_if_the_person_agrees(rest: Rest, person: Visit) -> None:
    query = rest.query(ALL)
    page = person.open("#/streams/purchases")
    dialog = page.get_by_role("dialog")

    def drop() -> None:
        page.get_by_role("button", name="Drop", exact=True).click()
        dialog.get_by_role("button", name="Drop it").click()
        expect(dialog).to_contain_text(f"Cannot drop stream 'purchases': query {query['id']} uses it.")

    drop()
    dialog.get_by_role("button", name="Keep all").click()
    expect(dialog).to_have_count(0)
    assert [stream["name"] for stream in rest.get("/streams")["streams"]] == ["purchases"]
    drop()
    dialog.get_by_role("button", name="Drop it and retire them").click()
    expect(page.get_by_text("No stream is declared yet.")).to_be_visible()
    assert rest.get("/streams")["streams"] == []
    assert rest.get(f"/queries/{query['id']}")["state"] == "RETIRED"


def test_a_stream_of_pushes_is_ended_if_the_person_means_it(rest: Rest, person: Visit) -> None:
    page = person.open("#/streams/purchases")
    page.get_by_role("button", name="End", exact=True).click()
    with page.expect_response("**/streams/purchases/watermark") as answer:
        page.get_by_role("dialog").get_by_role("button", name="End it").click()
    assert (answer.value.status, answer.value.request.post_data_json) == (200, {"end": True})
    expect(page.get_by_text("Stream purchases has ended.")).to_be_attached()
    stream = rest.service.session.streams.definition("purchases").id
    rest.commit(clocks={stream: 5 * SECOND}, watermarks={stream: ENDED})
    expect(page.get_by_role("button", name="End", exact=True)).to_be_hidden()


def test_static_tables_are_listed_and_read_anew(
    rest: Rest, person: Visit, tmp_path_factory: pytest.TempPathFactory
) -> None:
    page = person.open()
    panel = page.get_by_role("region", name="Static tables")
    expect(page.locator("table.queries, #queries .empty").first).to_be_attached()
    expect(panel).to_be_hidden()
    file = tmp_path_factory.mktemp("tables") / "packs.csv"
    file.write_text("gem_pack,label\n1,ruby\n")
    options = f"WITH (connector = 'file', path = '{file}', format = 'csv')"
    rest.post("/tables", {"sql": f"CREATE TABLE packs (gem_pack INT, label VARCHAR) {options}"})
    expect(panel.get_by_role("row")).to_have_count(2)
    expect(panel).to_contain_text("gem_pack INT, label VARCHAR")
    panel.get_by_role("button", name="Refresh packs").click()
    expect(page.locator("#announcer")).to_have_text("Table packs is read anew.")
    file.write_text("gem_pack,label\nx,ruby\n")
    panel.get_by_role("button", name="Refresh packs").click()
    expect(panel.get_by_role("alert")).to_contain_text("must be")


def test_a_failed_query_says_why(rest: Rest, person: Visit) -> None:
    query = rest.query(ALL)
    rest.commit(failures={query["id"]: "division by a fish"})
    page = person.open(f"#/queries/{query['id']}")
    expect(page.locator("#shown .problem").first).to_have_text("division by a fish")
    expect(page.get_by_role("button", name="Drop")).to_have_count(0)


def test_recorded_data_is_not_behind(rest: Rest, person: Visit) -> None:
    stream = rest.service.session.streams.definition("purchases").id
    read = {stream: {"tuples": 1, "late": 0, "malformed": 0, "bytes": 1}}
    rest.commit(streams=read, clocks={stream: 5 * SECOND}, watermarks={stream: 3 * SECOND})
    page = person.open()
    watermark = page.locator("#streams tbody td").nth(2)
    expect(watermark).to_have_attribute("title", re.compile("watermark 1970-01-01"))
    expect(watermark).to_have_text("1970-01-01")
    expect(page.locator("#figure-behind")).to_have_text("\N{EN DASH}")


def test_a_stream_that_has_ended_shows_no_watermark(rest: Rest, person: Visit) -> None:
    stream = rest.service.session.streams.definition("purchases").id
    rest.commit(clocks={stream: 5 * SECOND}, watermarks={stream: ENDED})
    page = person.open("#/streams/purchases")
    expect(page.locator("#streams tbody td").nth(2)).to_have_text("ended")
    expect(page.locator("#shown .facts")).to_contain_text("Watermark\nended", use_inner_text=True)


def test_a_query_is_opened_by_its_name_too(rest: Rest, person: Visit) -> None:
    rest.query(ALL, name="over all")
    page = person.open("#/queries/over%20all")
    expect(page.get_by_role("heading", name="over all")).to_be_visible()
    expect(page.get_by_role("link", name="over all")).to_have_attribute("aria-current", "true")


def test_a_query_that_is_not_there_says_so(person: Visit) -> None:
    page = person.open("#/queries/q-99")
    expect(page.get_by_role("alert")).to_contain_text("q-99")
    expect(page.locator("#shown").get_by_text("GET /queries (braid queries) lists all.")).to_have_count(1)
    expect(page.get_by_role("tab", name="Rows")).to_have_count(0)
    expect(page.get_by_role("button", name="Edit a copy")).to_have_count(0)


def test_a_query_is_dropped_only_when_that_is_meant(rest: Rest, person: Visit) -> None:
    query = rest.query(ALL, name="everything")
    page = person.open(f"#/queries/{query['id']}")
    drop = page.get_by_role("button", name="Drop", exact=True)
    for answer in ("Escape", "Enter"):  # the first button of the dialog keeps it
        drop.click()
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press(answer)
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(drop).to_be_focused()
    drop.click()
    page.evaluate("location.hash = '#/streams/purchases'")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.go_back()
    assert rest.get(f"/queries/{query['id']}")["state"] == "RUNNING"
    drop.click()
    page.get_by_role("button", name="Drop it").click()
    expect(page.locator("#shown .state")).to_have_text("draining")
    expect(page.locator("#announcer")).to_have_text("Query everything is DRAINING.")


def test_a_query_is_paused_and_goes_on(rest: Rest, person: Visit) -> None:
    query = rest.query(ALL, name="everything")
    page = person.open(f"#/queries/{query['id']}")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#shown .state")).to_have_text("paused")
    page.get_by_role("button", name="Resume").click()

    def runs() -> bool:
        rest.commit()
        return bool(rest.get(f"/queries/{query['id']}")["state"] == "RUNNING")

    wait_until(runs, 30, "the query has a slot again")
    expect(page.locator("#shown .state")).to_have_text("running")
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)


def test_a_key_is_asked_for_kept_for_the_tab_and_sent_with_everything(tmp_path: Path, browser: Browser) -> None:
    with (
        open_rest(tmp_path, access="on", admin_key=KEY) as rest,
        visit(browser, url(rest)) as person,
    ):
        rest.client.headers["Authorization"] = f"Bearer {KEY}"
        rest.stream()
        query = rest.query(ALL)
        select(rest, query, range(2))
        asked: list[Request] = []
        person.page.on("request", lambda request: asked.append(request))
        page = person.open(f"#/queries/{query['id']}")
        dialog = page.get_by_role("dialog", name="This service asks for a key")
        field = dialog.get_by_label("API key")
        expect(field).to_be_focused()
        person.picture("key")
        page.keyboard.press("Escape")
        expect(dialog).to_be_visible()
        field.fill("wrong-key")
        page.keyboard.press("Enter")
        expect(dialog.get_by_text("That key was not accepted.")).to_be_visible()
        person.check_accessible()
        field.fill(KEY)
        page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)
        wait_until(lambda: column(page, "user_id") == ["1", "0"], 20, "rows come")
        keyed = [request for request in asked if request.headers.get("authorization") == f"Bearer {KEY}"]
        assert any("/results/stream" in request.url for request in keyed)
        assert page.evaluate("sessionStorage.getItem('braid.key')") == KEY
        assert page.evaluate("localStorage.length") == 0
        told = [address.replace("/page/key.js", "") for address in [*person.addresses, page.url]]
        assert not [address for address in told if "key" in address], "no address has the key"
        page.reload()
        wait_until(lambda: column(page, "user_id") == ["1", "0"], 20, "rows come without asking again")
        page.get_by_role("button", name="Forget key").click()
        expect(dialog).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0


def test_a_key_that_may_only_read_sees_its_own_and_is_told_what_it_may_not(tmp_path: Path, browser: Browser) -> None:
    with (
        open_rest(tmp_path, access="on", admin_key=KEY) as rest,
        visit(browser, url(rest)) as person,
    ):
        rest.client.headers["Authorization"] = f"Bearer {KEY}"
        rest.stream()
        rest.query(ALL, name="not-ours")
        rest.read(rest.client.put("/tenants/shop", json={"quotas": {}}), 200)
        key = rest.post("/keys", {"tenant": "shop", "rights": ["read"]})["key"]
        page = person.open()
        page.get_by_label("API key").fill(key)
        page.keyboard.press("Enter")
        expect(page.locator("#health")).to_have_text("ready")
        expect(page.get_by_text("No query is RUNNING.")).to_be_visible()
        page.get_by_role("textbox", name="SQL").fill("SELECT price FROM purchases")
        page.keyboard.press("Control+Enter")
        expect(page.locator("#verdict")).to_have_attribute("data-kind", "bad")
        expect(page.locator("#verdict")).to_contain_text("write")


def test_on_a_narrow_window_the_query_that_was_chosen_comes_into_view(rest: Rest, browser: Browser) -> None:
    query = rest.query(SUMS, name="sums")
    for number in range(12):
        rest.query(ALL, name=f"other {number}")
    in_view = "document.querySelector('#shown').getBoundingClientRect().top < innerHeight * 0.3"
    with visit(browser, url(rest), NARROW) as person:
        page = person.open(f"#/queries/{query['id']}")
        expect(page.locator("table.queries tbody tr")).to_have_count(13)
        wait_until(lambda: page.evaluate(in_view), 20, "it is in view")
        page.get_by_role("link", name="Plan", exact=True).click()
        wait_until(lambda: page.evaluate(in_view), 20, "it is in view")
        page.evaluate("scrollTo(0, 0)")
        page.get_by_role("link", name="other 7").click()
        expect(page.get_by_role("heading", name="other 7")).to_be_in_viewport()
        wait_until(lambda: page.evaluate(in_view), 20, "it is in view")


@pytest.mark.parametrize(
    ("size", "scheme"), [((1440, 900), "light"), (NARROW, "dark")], ids=["wide-light", "narrow-dark"]
)
def test_it_is_accessible_and_fits(rest: Rest, browser: Browser, scheme: str, size: tuple[int, int]) -> None:
    query = rest.query(SUMS, name="sums", labels={"team": "shop"})
    for window in range(8):
        sums(rest, query, window, {pack: 40 - pack * window for pack in range(10)})
    long = "SELECT pack, COUNT(*) AS n FROM purchases [RANGE 1 HOUR] WHERE note LIKE '%a long text%' GROUP BY pack"
    rest.query(long, name="a-name-that-is-a-good-deal-longer-than-what-one-would-like")
    with visit(browser, url(rest), size, color_scheme=scheme) as person:
        name = f"{scheme}-{'narrow' if size == NARROW else 'wide'}"

        def check(part: str) -> None:
            person.picture(f"{name}-{part}")
            person.check_accessible()
            person.check_fits()

        page = person.open()
        expect(page.get_by_text("Nothing chosen")).to_be_visible()
        expect(page.locator("table.queries tbody tr")).to_have_count(2)
        check("start")
        page.get_by_role("link", name="sums").click()
        expect(page.get_by_role("img", name=re.compile("and 2 more|10 groups"))).to_be_visible()
        page.get_by_role("textbox", name="SQL").fill(
            "SELECT pack, SUM(prise) AS s -- a comment\nFROM purchases [RANGE 5 SECONDS] GROUP BY pack"
        )
        expect(page.locator("#colours mark")).to_have_text("prise")
        check("rows")
        page.get_by_role("radio", name="Newest window").check()
        expect(page.get_by_role("list", name=re.compile("^total by pack, 10 groups"))).to_be_visible()
        check("bars")
        page.get_by_role("tab", name="Plan").click()
        expect(page.get_by_role("img", name="Plan of query sums")).to_be_visible()
        page.get_by_text("The same as a list").click()
        check("plan")
        page.get_by_role("tab", name="About").click()
        expect(page.get_by_text("team=shop")).to_be_visible()
        check("about")
        page.get_by_role("button", name="Drop").click()
        check("drop")
        page.get_by_role("button", name="Keep it").click()
        page.get_by_role("link", name="Plan").click()
        expect(page.get_by_role("img", name="Plan of everything that runs")).to_be_visible()
        check("everything")
        page.get_by_role("link", name="purchases").first.click()
        expect(page.get_by_text("None: no row came late")).to_be_visible()
        check("stream")
