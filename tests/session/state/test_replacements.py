"""A query in the place of another: when it may be, what it inherits, and what fails or ends meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from braid.session.state.query_record import DRAINING, FAILED, RETIRED, RUNNING
from braid.sources.core.errors import Conflict, NotAllowed
from tests.session.driver import AGGREGATION, Driver
from tests.session.state.changed_queries import CHEAP, pause, replace, state, step

REVENUE = AGGREGATION.format("purchases", 5)


def test_who_replaces_a_paused_query_runs(driver: Driver) -> None:
    (query,) = driver.run(CHEAP, name="x")
    pause(driver, query)
    step(driver)
    step(driver)
    new = replace(driver, "x")
    assert (state(driver, query), new["name"]) == (RETIRED, "x")
    step(driver)
    assert state(driver, new["id"]) == RUNNING
    assert driver.session.queries.delete("x")["id"] == new["id"]


@contextlib.contextmanager
def meanwhile(driver: Driver, act: Callable[[], object]) -> Iterator[None]:
    """Have something done while the next query is planned, before the writer looks at it."""
    hold = driver.session._rows.hold

    def act_first(versions: Any) -> Callable[[], None]:
        patch.undo()
        act()
        return hold(versions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.session._rows, "hold", act_first)
        yield


@pytest.mark.parametrize("end", ["replace", "delete", "delete now", "ttl", "fail"])
def test_a_query_that_ends_while_its_replacement_is_planned_is_not_replaced(driver: Driver, end: str) -> None:
    session = driver.session
    query, other = driver.create(CHEAP, CHEAP, ttl_seconds=60)
    step(driver)
    step(driver)

    def act() -> None:
        if end == "replace":
            replace(driver, query)
        elif end == "ttl":
            driver.clock.advance(61)
            session.step()
        elif end == "fail":
            driver.batch(failures={query: "evaluation raised"})
        else:
            session.queries.begin_delete([other, query], end == "delete").wait()

    expected = {"delete now": RETIRED, "fail": FAILED}.get(end, DRAINING)
    with meanwhile(driver, act), pytest.raises(Conflict, match=f"Cannot replace query {query}: it is {expected}"):
        replace(driver, query)
    assert state(driver, query) == expected
    replaced_by = "q-3" if end == "replace" else None
    assert session.lookup.describe(query)["replaced_by"] == replaced_by
    assert list(driver.state.queries) == [query, other, *([replaced_by] if replaced_by else [])]
    assert driver.recovered() == driver.observed()


def test_a_query_that_pauses_while_its_replacement_is_planned_is_replaced(driver: Driver) -> None:
    (query,) = driver.run(CHEAP)
    with meanwhile(driver, lambda: pause(driver, query)):
        assert replace(driver, query)["replaces"] == query
    assert state(driver, query) == DRAINING


def test_a_replacement_that_fails_holds_nothing(driver: Driver) -> None:
    (query,) = driver.run(CHEAP, ttl_seconds=60)

    def full() -> None:
        raise OSError("the disk is full")

    with meanwhile(driver, full), pytest.raises(OSError, match="full"):
        replace(driver, query)
    driver.clock.advance(61)
    driver.session.step()
    assert state(driver, query) == DRAINING


def test_a_query_that_is_replaced_ends_with_the_changelog_of_its_successor(driver: Driver) -> None:
    (query,) = driver.run(CHEAP)
    new = replace(driver, query)
    assert driver.session.queries.delete(query)["state"] == DRAINING, "deleting it is harmless"
    step(driver)
    assert (
        driver.session.lookup.describe(new["id"])["active_from"] == (driver.session.lookup.describe(query)["active_to"])
    )


def test_what_a_query_inherits_must_fit_the_new_one(driver: Driver) -> None:
    sink = {"connector": "file", "path": "rows", "partition_by": "gem_pack"}
    (query,) = driver.run(REVENUE, sink=sink, name="x", labels={"a": "b"}, ttl_seconds=60)
    with pytest.raises(NotAllowed, match=f"The sink is that of {query}"):
        replace(driver, query)
    sql = f"CREATE QUERY y WITH (connector = 'file', path = 'others') AS {CHEAP}"
    new = replace(driver, query, sql)
    assert (new["name"], new["sink"], new["labels"], new["ttl_seconds"]) == (
        "y",
        {"connector": "file", "path": "others"},
        {"a": "b"},
        60,
    )
    with pytest.raises(NotAllowed, match="must name one sink"):
        replace(driver, new["id"], sql, sink=sink)
    assert replace(driver, new["id"], name=None, sink=None)["sink"] is None


def test_a_request_to_replace_a_query_that_failed_meanwhile_is_applied(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions checked a request some time before they logged it."""
    (query,) = driver.run(CHEAP)
    monkeypatch.setattr("braid.session.commands.queries.check_replaced", lambda _: None)
    with meanwhile(driver, lambda: driver.batch(failures={query: "evaluation raised"})):
        assert replace(driver, query)["replaces"] == query
    body = driver.session.lookup.describe(query)
    assert (body["state"], body["replaced_by"]) == (FAILED, None)
    step(driver)
    assert state(driver, "q-2") == RUNNING
