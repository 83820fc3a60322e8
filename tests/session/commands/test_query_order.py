"""Pages of queries sorted by a column: whole, in order, across memory and disk, and while values change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from braid.session.commands import query_lookup
from braid.session.commands.query_order import ORDERS, QueryOrder
from braid.sources.core.errors import MalformedRequest
from tests.session.driver import BEGINNING, SECOND, SELECTION, Driver

CHEAP = SELECTION.format("purchases", 5)
ROWS = {"q-1": 5, "q-2": 0, "q-3": 7, "q-4": 5}
NAMES = {"q-1": "beta", "q-2": None, "q-3": "Alpha", "q-4": "gamma"}


@pytest.fixture
def filled(driver: Driver) -> Driver:
    """A driver with q-1 to q-3 RUNNING and q-4 RETIRED, with ROWS and NAMES."""
    for name in NAMES.values():
        driver.run(CHEAP, name=name)
    slots = [(slot, rows, BEGINNING - (10 - slot) * SECOND) for slot, rows in enumerate(ROWS.values()) if rows]
    driver.batch({"s-1": 10}, slots)
    driver.session.queries.delete("q-4", drain=False)
    driver.flush()
    driver.batch()
    return driver


def ids(driver: Driver, limit: int = 100, **filters: Any) -> list[str]:
    """Return the ids of all pages."""
    found, cursor = [], None
    while True:
        page = driver.session.lookup.page(limit=limit, cursor=cursor, **filters)
        assert len(page["queries"]) <= limit
        found += [query["id"] for query in page["queries"]]
        cursor = page["cursor"]
        if cursor is None:
            return found


EXPECTED = {
    "name": ["q-3", "q-1", "q-4", "q-2"],
    "-name": ["q-4", "q-1", "q-3", "q-2"],
    "state": ["q-1", "q-2", "q-3", "q-4"],
    "-state": ["q-4", "q-1", "q-2", "q-3"],
    "rows": ["q-2", "q-1", "q-4", "q-3"],
    "-rows": ["q-3", "q-1", "q-4", "q-2"],
    "latency": ["q-4", "q-3", "q-1", "q-2"],
    "-latency": ["q-1", "q-3", "q-4", "q-2"],
}


def test_pages_are_sorted_with_what_has_no_value_last(filled: Driver) -> None:
    assert EXPECTED.keys() == set(ORDERS)
    for disturb in (lambda: None, filled.session.write_snapshot, filled.restart):
        disturb()
        for order, expected in EXPECTED.items():
            for limit in (1, 3, 100):
                assert ids(filled, limit, order=order) == expected, (order, limit)
    assert ids(filled, order="-rows", state="RUNNING") == ["q-3", "q-1", "q-2"]
    assert ids(filled, order="name", text="A") == ["q-3", "q-1", "q-4", "q-2"]
    assert ids(filled, order="rows", name="alpha") == ["q-3"]


def test_a_page_follows_the_value_that_the_one_before_ended_with(filled: Driver) -> None:
    first = filled.session.lookup.page(order="-rows", limit=2)
    assert [query["id"] for query in first["queries"]] == ["q-3", "q-1"]
    filled.batch({"s-1": 20}, [(0, 100, BEGINNING)])  # q-1 has the most rows now
    rest = filled.session.lookup.page(order="-rows", limit=2, cursor=first["cursor"])
    assert [query["id"] for query in rest["queries"]] == ["q-4", "q-2"]


def test_of_finished_queries_on_disk_the_newest_are_sorted(
    open_driver: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = open_driver()
    driver.stream()
    for number in range(5):
        driver.create(CHEAP, name=f"n{number}")
        driver.session.queries.delete(f"n{number}")
    driver.session.write_snapshot()
    monkeypatch.setattr(query_lookup, "MAX_LOOKED_AT", 3)
    assert ids(driver, order="name") == ["q-3", "q-4", "q-5"]


@pytest.mark.parametrize("order", ["", "rows,name", "--rows", "created"])
def test_other_orders_are_refused(driver: Driver, order: str) -> None:
    with pytest.raises(MalformedRequest, match="order must be one of oldest, newest, name, -name"):
        driver.session.lookup.page(order=order)


@pytest.mark.parametrize("order", ORDERS)
def test_cursors_of_other_orders_are_refused(filled: Driver, order: str) -> None:
    others = [filled.session.lookup.page(order=other, limit=1)["cursor"] for other in ORDERS if other != order]
    wrong_value = QueryOrder(order).cursor_of((order[0] == "-", 0 if order.endswith("name") else "x", 1))
    for cursor in (*others, "q-1", "", "WzFd", wrong_value):
        with pytest.raises(MalformedRequest, match=f"with order={order}"):
            filled.session.lookup.page(order=order, cursor=cursor)
