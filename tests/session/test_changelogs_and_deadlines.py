"""When changelogs are cut, what they say of slots, and what time brings to queries."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from braid.sources.core.errors import (
    Gone,
    UnknownObject,
)
from tests.session.driver import AGGREGATION, SELECTION, Driver

CHEAP = SELECTION.format("purchases", 5)
REVENUE = AGGREGATION.format("purchases", 5)


def test_a_changelog_is_cut_when_the_batch_is_full_or_the_first_has_waited(
    open_driver: Callable[..., Driver],
) -> None:
    driver = open_driver(changelog_batch_size=3, changelog_timeout_seconds=1)
    driver.stream()
    driver.create(CHEAP)
    driver.clock.advance(0.5)
    driver.create(CHEAP)
    driver.session.step()
    assert driver.session.epoch == 1
    driver.clock.advance(0.5)
    driver.session.step()
    assert driver.session.epoch == 2
    driver.clock.advance(10)
    driver.session.step()
    assert driver.session.epoch == 2, "no request, no changelog"
    driver.create(CHEAP, CHEAP, CHEAP, CHEAP)
    driver.session.step()
    assert driver.changelogs()[-1]["why"] == "4 requests"


def test_changelogs_say_which_slots_kept_their_query(driver: Driver) -> None:
    driver.run(CHEAP, CHEAP, REVENUE)
    driver.session.queries.delete("q-2", drain=False)
    driver.create(REVENUE, REVENUE)
    driver.flush()
    (changelog,) = map(orjson.loads, driver.session.changelogs_json(after=2))
    assert changelog["changelog_set"] == "1010"
    assert [(c["id"], c["slot"]) for c in changelog["created"]] == [("q-4", 1), ("q-5", 3)]
    assert changelog["capacity"] == 4
    assert changelog["why"] == "3 requests"


def test_slots_at_the_end_are_dropped_after_a_while(open_driver: Callable[..., Driver]) -> None:
    driver = open_driver(slot_compaction_seconds=60)
    driver.stream()
    driver.run(CHEAP, CHEAP, CHEAP)
    for query in ("q-1", "q-3"):
        driver.session.queries.delete(query, drain=False)
    driver.flush()
    driver.batch()
    driver.clock.advance(59)
    driver.session.step()
    assert driver.changelogs()[-1]["capacity"] == 3
    driver.clock.advance(1)
    driver.session.step()
    last = driver.changelogs()[-1]
    assert (last["capacity"], last["changelog_set"], last["why"]) == (2, "01", "compacted to 2 slots")
    assert driver.recovered() == driver.observed()


# time


def state_after(driver: Driver, seconds: float) -> str:
    """Return the state of query q-1 once the clock has gone on."""
    driver.clock.advance(seconds)
    driver.session.step()
    return str(driver.session.lookup.describe("q-1")["state"])


def test_a_ttl_deletes_with_drain_also_after_a_restart(driver: Driver) -> None:
    driver.run(CHEAP, ttl_seconds=60)
    driver.clock.advance(30)
    driver.crash()
    assert state_after(driver, 28) == "RUNNING"
    assert state_after(driver, 2) == "DRAINING"
    driver.flush()
    assert driver.changelogs()[-1]["deleted"] == [{"id": "q-1", "slot": 0, "drain": True}]


def test_a_request_does_not_wait_for_the_time_when_the_clock_was_set_back(driver: Driver) -> None:
    driver.create(CHEAP)
    driver.clock.jump(-3600)
    driver.session.step()
    assert driver.changelogs()[-1]["why"] == "1 request"


def test_deadlines_of_queries_that_are_gone_take_no_room_for_ever(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braid.session.upkeep.deadlines.FEW_TTLS", 5)
    (kept,) = driver.create(CHEAP, ttl_seconds=3600)
    for _ in range(30):
        (query,) = driver.create(CHEAP, ttl_seconds=7200)
        driver.session.queries.delete(query)
        driver.session.write_snapshot()
        driver.clock.advance(1)
        driver.session.step()
        assert len(driver.session._deadlines._ttls) <= 8
    driver.clock.advance(3600)
    driver.session.step()
    assert driver.session.lookup.describe(kept)["state"] == "DRAINING"


def test_a_retired_query_is_gone_after_its_retention(open_driver: Callable[..., Driver]) -> None:
    driver = open_driver(retention_seconds=100)
    driver.stream()
    driver.run(CHEAP, name="cheap")
    driver.session.queries.delete("q-1", drain=False)
    driver.flush()
    driver.batch()
    assert state_after(driver, 99) == "RETIRED"
    driver.clock.advance(1)
    driver.session.step()
    for _ in range(2):
        with pytest.raises(Gone, match="q-1"):
            driver.session.lookup.describe("q-1")
        with pytest.raises(UnknownObject):
            driver.session.queries.delete("cheap")
        driver.restart()
        driver.session.step()
    assert driver.run(CHEAP) == ["q-2"]
