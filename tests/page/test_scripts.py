"""Modules of the page that compute, called in a browser: layouts of columns, points of rows, points of pixels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.api.rest import open_rest
from tests.kit.browser import visit
from tests.page.rows import url


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page of a service with nothing in it."""
    with open_rest(tmp_path_factory.mktemp("data")) as rest, visit(browser, url(rest)) as person:
        yield person.open()


def script(page: Page, module: str, names: str, body: str, *arguments: Any) -> Any:
    """Return what JavaScript over the names of a module of the page gives."""
    given = ", ".join(json.dumps(argument) for argument in arguments)
    return page.evaluate(f"import('./page/{module}').then(({{ {names} }}) => ({body})({given}))")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([["window_end", "TIMESTAMP", "window_end"], ["n", "BIGINT", "sum"]], [[], ["n"], ["table", "lines"]]),
        ([["window_end", "TIMESTAMP", "window_end"], ["who", "VARCHAR", "group"]], [["who"], [], ["table", "table"]]),
        # rows of the windows of another query
        (
            [["window_end", "TIMESTAMP", "window_end"], ["pack", "INT", None], ["total", "DOUBLE", None]],
            [["pack"], ["total"], ["bars", "lines"]],
        ),
        ([["time", "TIMESTAMP", None], ["price", "DECIMAL(6,2)", None]], [[], ["price"], ["table", "table"]]),
    ],
)
def test_columns_decide_what_a_chart_can_be(page: Page, columns: list[list[str]], expected: list[Any]) -> None:
    plan = {"columns": [dict(zip(("name", "type", "role"), column, strict=True)) for column in columns], "window": None}
    layout = script(
        page,
        "columns.js",
        "layoutOf",
        "(plan) => { const { groups, measures, ...rest } = layoutOf(plan); return { ...rest, groups, measures } }",
        plan,
    )
    likely = script(
        page, "choice.js", "likelyForm", "(layout) => [1, 2].map((windows) => likelyForm(layout, 3, windows))", layout
    )
    assert [layout["groups"], layout["measures"], likely] == expected


@pytest.mark.parametrize(("role", "is_unique"), [("group", True), (None, False)])
def test_rows_of_a_window_that_have_one_name_have_no_chart(page: Page, role: str | None, is_unique: bool) -> None:
    columns = [("window_end", "TIMESTAMP", "window_end"), ("who", "VARCHAR", role), ("n", "BIGINT", role and "sum")]
    plan = {"columns": [dict(zip(("name", "type", "role"), c, strict=True)) for c in columns], "window": None}
    row = {"window_end": "2026-01-01T12:00:00Z", "who": "a"}
    body = """(plan, rows) => import('./page/series.js').then(({ Series }) => {
        const series = new Series();
        series.add(rows);
        return series.of(layoutOf(plan), "n", ["who"]).isUnique;
    })"""
    found = script(page, "columns.js", "layoutOf", body, plan, [{**row, "n": 1}, {**row, "n": 2}])
    assert found is is_unique, "a row of a group takes the place of an earlier one"


def test_thinned_points_keep_the_first_least_greatest_and_last_of_a_pixel(page: Page) -> None:
    body = "() => thinnedLine([5, 1, 9, 4, 7, 3].map((y, x) => ({ x, y })), (x) => Math.floor(x / 5)).map(({ y }) => y)"
    assert script(page, "thinning.js", "thinnedLine", body) == [5, 1, 9, 7, 3]
    dots = "() => thinnedDots([[0, 1], [1, 1], [2, 1]].map(([x, y]) => ({ x, y })), (x) => x >> 1, (y) => y).length"
    assert script(page, "thinning.js", "thinnedDots", dots) == 2


def test_a_line_ends_where_windows_have_no_row(page: Page) -> None:
    body = "(times) => runsOf(times.map((x) => ({ x })), 10).map((run) => run.map(({ x }) => x))"
    times = [0, 10, 20, 40, 60, 70]
    assert script(page, "lines.js", "runsOf", body, times) == [[0, 10, 20], [40], [60, 70]]


def test_the_newest_value_of_a_window_counts_and_a_retracted_one_is_gone(page: Page) -> None:
    rows = [
        {"end": "2026-01-01T00:00:02Z", "k": key, "n": n, "_op": op}
        for key, n, op in (
            ("a", 1, "insert"),
            ("b", 5, "insert"),
            ("a", 1, "retract"),
            ("a", 2, "insert"),
            ("b", 5, "retract"),
        )
    ]
    body = """(rows) => {
      const series = new Series();
      series.add(rows);
      return series.of({ end: "end", groups: ["k"] }, "n", ["k"]).groups.map(({ name, points }) => [name, points[0].y]);
    }"""
    assert script(page, "series.js", "Series", body, rows) == [["a", 2]]
