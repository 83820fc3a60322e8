"""Queries that take the place of one that others read."""

from __future__ import annotations

import pytest

from braid.operators.derived import queries_behind
from braid.session.commands.query_requests import Replacement
from braid.sources.core.errors import Conflict
from tests.session.driver import Driver
from tests.session.relations import INNER, OVER, states, streams


def behind_stream(driver: Driver, stream: str) -> list[tuple[str, int, str | None]]:
    definition = next(s.definition for s in driver.state.catalog.states() if s.definition.id == stream)
    return [(each.id, each.number, each.successor) for each in queries_behind(definition)]


def test_who_reads_a_query_reads_the_one_that_takes_its_place(driver: Driver) -> None:
    driver.run(INNER, name="revenue")
    (outer,) = driver.run(OVER.format("revenue"), name="most")
    cheap = INNER.replace("FROM purchases [RANGE 8 SECONDS]", "FROM purchases [RANGE 8 SECONDS] WHERE price < 3")
    (second,) = driver.session.queries.begin_replace("revenue", Replacement(cheap)).wait()
    assert behind_stream(driver, "q-1") == [(second["id"], 1, None), ("q-1", 0, second["id"])]
    assert driver.recovered() == driver.observed()
    driver.flush()
    changelog = driver.changelogs()[-1]
    assert [stream["id"] for stream in changelog["streams_created"]] == ["q-1"]
    assert [created["id"] for created in changelog["created"]] == [second["id"]]
    driver.batch()
    assert driver.state.queries[outer].state == "RUNNING"
    (later,) = driver.run(OVER.format("revenue"))
    assert driver.state.queries[later].query.streams == ("q-1",), "both read one stream"
    assert driver.session.lookup.describe(later)["active_from"].keys() == {"revenue"}
    edges = [(edge["source"], edge["target"]) for edge in driver.session.plans.graph()["edges"]]
    assert ("aggregation:s-1:gem_pack", "stream:q-1") in edges
    with pytest.raises(Conflict, match=r"most, q-4 read its rows\. Delete these first, or all: "):
        driver.session.queries.delete("revenue")
    driver.batch(failures={second["id"]: "evaluation raised"})
    assert driver.session.lookup.describe(outer)["error"] == "revenue, which it reads, failed: evaluation raised"
    assert driver.recovered() == driver.observed()


def test_a_query_is_replaced_again_and_again_and_what_is_needed_no_more_is_forgotten(driver: Driver) -> None:
    driver.run(INNER, name="revenue")
    driver.run(OVER.format("revenue"), name="most")
    ids = ["q-1"]
    for _ in range(4):
        ids.append(driver.session.queries.begin_replace("revenue", Replacement(INNER)).wait()[0]["id"])
        driver.flush()
        for second in range(1, 4):
            driver.batch({"s-1": 20 * (len(ids) * 3 + second)})
            driver.flush()
        assert driver.recovered() == driver.observed()
    assert next(query for query, _, _ in behind_stream(driver, "q-1")) == ids[-1]
    assert len(behind_stream(driver, "q-1")) < len(ids)
    driver.session.queries.begin_delete(["revenue"], False, cascade=True).wait()
    driver.flush()
    assert streams(driver) == {"s-1"}


def test_a_successor_has_the_columns_of_the_one_whose_readers_go_on_with_it(driver: Driver) -> None:
    driver.run(INNER, name="revenue")
    driver.run(OVER.format("revenue"), name="most")
    driver.run("SELECT window_start, n FROM revenue", name="same_windows")
    driver.run(INNER + " EMIT STREAM", name="changes")
    driver.run("SELECT n FROM changes", name="reader")
    for name, text, problem in (
        (
            "revenue",
            INNER.replace("SUM(price)", "COUNT(*)"),
            "n DOUBLE, with the event time window_time; it has",
        ),
        ("revenue", INNER.replace(" n ", " m "), "most, same_windows read its rows. The new one needs the columns"),
        ("revenue", INNER.replace("RANGE 8", "RANGE 4"), "needs the windows of the old one"),
        ("changes", INNER + " EMIT STREAM", "reader reads its rows. Rows that EMIT STREAM gave"),
    ):
        with pytest.raises(Conflict, match=problem):
            driver.session.queries.begin_replace(name, Replacement(text)).wait()
    assert set(states(driver).values()) == {"RUNNING"}
    driver.session.queries.begin_delete(["same_windows"], False).wait()
    driver.session.queries.begin_replace("revenue", Replacement(INNER.replace("RANGE 8", "RANGE 4"))).wait()
    assert driver.recovered() == driver.observed()
