"""When a deleted query is RETIRED: the drain rules, one row each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.session.driver import AGGREGATION, SELECTION, Driver

# lateness is 2 s: a tuple at t moves the watermark to t - 2 s


@pytest.mark.parametrize(
    ("sql", "before", "between", "after", "state"),
    [
        # no tuple at all, or none between creation and deletion: nothing can come
        (SELECTION, None, None, None, "RETIRED"),
        (AGGREGATION, 10, None, None, "RETIRED"),
        # a selection sees t <= active_to (20): those are late once the watermark is above 20
        (SELECTION, 10, 20, 21, "DRAINING"),
        (SELECTION, 10, 20, 22, "DRAINING"),
        (SELECTION, 10, 20, 23, "RETIRED"),
        # an aggregation emits windows that end by active_to: all final once the watermark reaches it
        (AGGREGATION, 10, 20, 21, "DRAINING"),
        (AGGREGATION, 10, 20, 22, "RETIRED"),
        (AGGREGATION, None, 20, 21, "DRAINING"),
        (AGGREGATION, None, 20, 22, "RETIRED"),
    ],
)
def test_drain_rules(
    driver: Driver, sql: str, before: int | None, between: int | None, after: int | None, state: str
) -> None:
    if before is not None:
        driver.batch({"s-1": before})
    (query,) = driver.run(sql.format("purchases", 5))
    if between is not None:
        driver.batch({"s-1": between})
    assert driver.session.queries.delete(query)["state"] == "DRAINING"
    driver.flush()
    driver.batch()
    if after is not None:
        driver.batch({"s-1": after})
    body = driver.session.lookup.describe(query)
    assert body["state"] == state
    assert driver.recovered() == driver.observed()
    driver.flush()
    freed = [freed["id"] for changelog in driver.changelogs() for freed in changelog["freed"]]
    assert freed == ([query] if state == "RETIRED" else []), "a drained query's slot is freed by an own changelog"


def test_active_to_is_the_clock_at_the_start_of_the_batch_of_the_deletion(driver: Driver) -> None:
    (query,) = driver.run(AGGREGATION.format("purchases", 5))
    driver.batch({"s-1": 20})
    driver.session.queries.delete(query)
    driver.batch({"s-1": 30})  # the deletion waits for its changelog: this batch is still seen
    driver.flush()
    assert driver.session.lookup.describe(query)["active_to"] == {"purchases": None}
    driver.batch({"s-1": 31})
    assert driver.session.lookup.describe(query)["active_to"] == {"purchases": "2023-11-14T22:13:50.000000Z"}


def test_without_drain_a_query_is_retired_at_once_and_its_slot_is_freed_by_the_next_batch(driver: Driver) -> None:
    (query,) = driver.run(SELECTION.format("purchases", 5))
    driver.batch({"s-1": 10})
    assert driver.session.queries.delete(query, drain=False)["state"] == "RETIRED"
    assert driver.session.lookup.count_by_state()["RETIRED"] == 1
    driver.flush()
    last = driver.changelogs()[-1]
    assert last["deleted"] == [{"id": query, "slot": 0, "drain": False}]
    assert last["freed"] == [{"id": query, "slot": 0}]
    # readers wait for the batch that frees it: until then there may be rows
    assert driver.session.lookup.deployed(query).state == "DRAINING"
    assert len(driver.session.lookup.slots()) == 1
    assert driver.recovered() == driver.observed()
    driver.batch()
    assert driver.session.lookup.deployed(query).state == "RETIRED"
    assert driver.session.lookup.deployed(query).last_seq == driver.session.applied_seq
    assert driver.session.lookup.slots() == []
    assert driver.session.lookup.deployed(query).deployments[-1].freed_epoch == last["epoch"]
    assert driver.recovered() == driver.observed()


def test_a_slot_of_a_query_that_is_retired_at_once_goes_to_the_next_one(driver: Driver) -> None:
    first, second = driver.run(SELECTION.format("purchases", 5), SELECTION.format("purchases", 6))
    driver.session.queries.delete(first, drain=False)
    (third,) = driver.create(SELECTION.format("purchases", 7))
    driver.flush()
    assert driver.session.lookup.describe(third)["slot"] == 0
    driver.batch()
    assert {query: driver.session.lookup.describe(query)["state"] for query in (first, second, third)} == {
        first: "RETIRED",
        second: "RUNNING",
        third: "RUNNING",
    }
    assert driver.recovered() == driver.observed()


def test_a_stream_can_be_dropped_as_soon_as_its_last_query_is_retired(driver: Driver) -> None:
    (query,) = driver.run(SELECTION.format("purchases", 5))
    driver.session.queries.delete(query, drain=False)
    driver.session.streams.drop("purchases")
    driver.flush()
    driver.batch()
    assert driver.session.streams.describe_all() == []
    assert driver.recovered() == driver.observed()


def test_a_drain_may_be_cut_short_by_a_second_deletion(driver: Driver) -> None:
    (query,) = driver.run(SELECTION.format("purchases", 5))
    driver.batch({"s-1": 10})
    driver.session.queries.delete(query)
    driver.flush()
    driver.batch()
    assert driver.session.lookup.describe(query)["state"] == "DRAINING"
    driver.session.queries.delete(query, drain=False)
    driver.flush()
    assert driver.changelogs()[-1]["deleted"] == []
    assert driver.changelogs()[-1]["freed"] == [{"id": query, "slot": 0}]
    assert driver.recovered() == driver.observed()
    driver.batch()
    assert driver.session.lookup.describe(query)["state"] == "RETIRED"


def test_a_silent_drain_times_out_and_a_rising_watermark_restarts_the_timer(
    open_driver: Callable[..., Driver],
) -> None:
    driver = open_driver(drain_timeout=60)
    driver.stream()
    (query,) = driver.run(SELECTION.format("purchases", 5))
    driver.batch({"s-1": 10})
    driver.session.queries.delete(query)
    driver.flush()
    driver.batch()
    driver.clock.advance(59)
    driver.batch({"s-1": 11})
    driver.clock.advance(59)
    driver.session.step()
    assert driver.changelogs()[-1]["freed"] == []
    driver.clock.advance(1)
    driver.session.step()
    last = driver.changelogs()[-1]
    assert (last["freed"], last["why"]) == ([{"id": query, "slot": 0}], "1 drain timed out")
    driver.session.queries.delete(query, drain=False)  # it is freed already: nothing more to tell
    driver.flush()
    assert driver.changelogs()[-1] == last
    assert driver.session.lookup.describe(query)["state"] == "RETIRED"
    assert driver.session.lookup.deployed(query).state == "DRAINING"
    driver.batch()
    assert driver.session.lookup.deployed(query).state == "RETIRED"
    assert driver.recovered() == driver.observed()


@pytest.mark.parametrize("jump_seconds", [3600, -3600])
def test_a_drain_has_its_time_also_after_the_clock_is_set(
    open_driver: Callable[..., Driver], jump_seconds: int
) -> None:
    driver = open_driver(drain_timeout=60)
    driver.stream()
    (query,) = driver.run(SELECTION.format("purchases", 5))
    driver.batch({"s-1": 10})
    driver.session.queries.delete(query)
    driver.flush()
    driver.batch()
    driver.clock.advance(50)
    driver.session.step()
    driver.clock.jump(jump_seconds)
    driver.session.step()
    driver.clock.advance(59)
    driver.session.step()
    assert driver.changelogs()[-1]["freed"] == []
    driver.clock.advance(1 if jump_seconds > 0 else 3600)
    driver.session.step()
    assert driver.changelogs()[-1]["freed"] == [{"id": query, "slot": 0}]


def test_a_drain_does_not_time_out_while_the_service_was_down(open_driver: Callable[..., Driver]) -> None:
    driver = open_driver(drain_timeout=60)
    driver.stream()
    (query,) = driver.run(SELECTION.format("purchases", 5))
    driver.batch({"s-1": 10})
    driver.session.queries.delete(query)
    driver.flush()
    driver.batch()
    driver.clock.advance(3600)
    driver.crash()
    driver.session.step()
    assert driver.changelogs()[-1]["freed"] == []
    driver.clock.advance(60)
    driver.session.step()
    assert driver.changelogs()[-1]["freed"] == [{"id": query, "slot": 0}]
