"""The editor of the page: mistakes that are marked, answers, examples."""

from __future__ import annotations

import re

from playwright.sync_api import Request, Route, expect

from tests.api.rest import ALL, STREAM, Rest
from tests.kit.browser import Visit
from tests.kit.waiting import wait_until

FACE = "\N{GRINNING FACE}"  # one code point, two units of a browser's texts


def test_an_error_is_marked_where_it_is_until_it_is_mended(person: Visit) -> None:
    page = person.open()
    editor = page.get_by_role("textbox", name="SQL")
    editor.fill(f"SELECT '{4 * FACE}' AS a,\n  prise\nFROM purchases")
    marked = page.locator("#colours mark")
    expect(marked).to_have_text("prise")
    expect(page.get_by_role("status").filter(has_text="Did you mean 'price'?")).to_be_visible()
    expect(editor).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Line 2, column 3").click()
    expect(editor).to_be_focused()
    page.keyboard.press("Delete")
    assert editor.input_value().split("\n")[1] == "  rise", "the caret was before the word"
    editor.fill("SELECT user_id, price FROM purchases WHERE")
    expect(page.locator("#verdict")).to_contain_text("Expected an expression")
    expect(page.locator("#colours mark")).to_have_count(1)
    editor.fill("SELECT user_id, price FROM purchases WHERE price > 3")
    expect(page.locator("#verdict")).to_contain_text("Columns: user_id, price.")
    expect(editor).not_to_have_attribute("aria-invalid", "true")
    expect(marked).to_have_count(0)
    assert person.refused, "the service refused what was wrong"


def test_what_was_judged_late_does_not_count(person: Visit) -> None:
    page = person.open()
    held: list[Route] = []
    over: list[Request] = []
    for event in ("requestfinished", "requestfailed"):
        page.on(event, lambda request: over.append(request) if "validate" in request.url else None)
    page.route("**/queries/validate", lambda route: held.append(route) if not held else route.continue_())
    editor = page.get_by_role("textbox", name="SQL")
    editor.fill("SELECT nothing FROM purchases")
    wait_until(lambda: page.evaluate("1") and held, 10, "the first text is being judged")
    editor.fill("SELECT price FROM purchases")
    expect(page.locator("#verdict")).to_contain_text("Columns: price.")
    held[0].continue_()
    wait_until(lambda: page.evaluate("1") and len(over) == 2, 20, "both texts are judged, or nobody waits for it")
    page.evaluate("new Promise((shown) => requestAnimationFrame(() => requestAnimationFrame(shown)))")
    expect(page.locator("#verdict")).to_contain_text("Columns: price.")


def test_statements_answer_below_the_editor(rest: Rest, person: Visit) -> None:
    rest.query(ALL, name="everything")
    page = person.open()
    editor = page.get_by_role("textbox", name="SQL")

    def run(sql: str) -> None:
        editor.fill(sql)
        page.keyboard.press("Control+Enter")

    run("DESCRIBE purchases")
    expect(page.locator("#verdict")).to_have_text("Stream purchases:")
    run("SHOW QUERIES")
    expect(page.locator("#answer table")).to_contain_text("everything")
    run("EXPLAIN SELECT pack, COUNT(*) AS n FROM purchases [RANGE 1 MINUTE] GROUP BY pack")
    expect(page.get_by_role("img", name="Plan of the statement")).to_contain_text("aggregation")
    run("DROP STREAM purchases")
    expect(page.locator("#verdict")).to_contain_text("Cannot drop stream 'purchases': query")
    expect(page.locator("#verdict")).to_have_attribute("data-kind", "bad")
    run("CREATE STREAM taps (volts DOUBLE, time TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push')")
    expect(page.locator("#verdict")).to_contain_text("Stream taps is declared.")
    expect(page.get_by_role("heading", name="taps")).to_be_visible()
    assert page.url.endswith("#/streams/taps")


def test_a_query_starts_where_the_page_says(rest: Rest, person: Visit) -> None:
    page = person.open()
    for start, name in (("earliest", "all_there_is"), ("", "what_comes")):
        page.get_by_role("textbox", name="SQL").fill("SELECT price FROM purchases")
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_label("Start").select_option(start)
        page.get_by_role("button", name="Run").click()
        wait_until(lambda name=name: rest.client.get(f"/queries/{name}").status_code == 200, 10, "the query is there")
        assert rest.get(f"/queries/{name}")["start"] == (start or None)
        rest.run(name)
        expect(page.locator("#verdict")).to_contain_text(f"Query {name} is")
        expect(page.get_by_label("Start")).to_have_value(start)


def test_examples_are_made_of_the_streams_that_are_there(rest: Rest, person: Visit) -> None:
    rest.client.delete("/streams/purchases")
    rest.stream(
        "CREATE STREAM taps (device VARCHAR, volts DECIMAL(6,2), at TIMESTAMP LATENESS INTERVAL '0' SECOND)"
        " WITH (connector = 'push')"
    )
    page = person.open()
    examples = page.get_by_role("group", name="Examples").get_by_role("button")
    expect(examples.first).to_have_text("Single rows")
    for title in examples.all_inner_texts()[:-1]:
        page.get_by_role("button", name=title).click()
        expect(page.locator("#verdict")).to_contain_text("Columns:")
        page.get_by_role("textbox", name="SQL").fill("")
    assert not person.refused


def test_the_example_of_a_declaration_is_accepted_beside_a_stream_of_its_name(rest: Rest, person: Visit) -> None:
    page = person.open()
    page.get_by_role("button", name="Declare a generated stream").click()
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("link", name="purchases_2", exact=True)).to_be_visible()
    assert not person.refused
    assert {stream["name"] for stream in rest.get("/streams")["streams"]} == {"purchases", "purchases_2"}


def test_examples_use_a_stream_that_has_rows(rest: Rest, person: Visit) -> None:
    for name in ("taps", "clicks"):
        rest.stream(STREAM.replace("purchases", name))
    page = person.open()
    example = page.get_by_role("button", name="Per window")
    expect(example).to_have_attribute("title", re.compile("FROM purchases"))

    def came(name: str, tuples: int) -> None:
        definition = rest.service.session.streams.definition(name)
        rest.commit(streams={definition.id: {"tuples": tuples, "late": 0, "malformed": 0, "bytes": 1, "offsets": {}}})

    came("taps", 5)
    expect(example).to_have_attribute("title", re.compile("FROM taps"))
    came("clicks", 1)
    expect(example).to_have_attribute("title", re.compile("FROM clicks"))
