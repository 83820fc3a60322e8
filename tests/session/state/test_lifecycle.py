"""The life of a query: what each change of its state lets wait, drain and count."""

from __future__ import annotations

from typing import Any

import pytest

from braid.session.state.catalog import Catalog
from braid.session.state.catalog_entries import StreamState
from braid.session.state.drain import Draining
from braid.session.state.lifecycle import QueryLifecycle
from braid.session.state.pending_changes import PendingChanges
from braid.session.state.query_record import DRAINING, FAILED, PAUSED, PENDING, RETIRED, RUNNING, QueryRecord
from braid.session.state.query_table import QueryTable
from braid.sources.core.schema import BIGINT, TIMESTAMP, Field, StreamDefinition, StreamSchema
from tests.session.records import record

EPOCH = 4
SCHEMA = StreamSchema((Field("k", BIGINT), Field("t", TIMESTAMP)), "t", 0)


class Life:
    """One query, accepted at 10 µs, and all that its life changes."""

    def __init__(self, state: str, **fields: Any) -> None:
        self.catalog, self.queries, self.pending, self.draining = Catalog(), QueryTable(), PendingChanges(), Draining()
        self.catalog.add(StreamState(StreamDefinition("s-1", "purchases", SCHEMA, "push", "json")))
        self.record: QueryRecord = record(1, state, None, **fields)
        self.queries.add(self.record)
        self.catalog.count_users(self.record.query, 1)
        if self.record.epoch is None and state == PENDING:
            self.pending.created("q-1", 10)
        self.lifecycle = QueryLifecycle(self.catalog, self.queries, self.pending, self.draining)

    @property
    def waits(self) -> dict[str, int]:
        """What waits for the next changelog, and since when."""
        every = {"create": self.pending.create, "delete": self.pending.delete, "free": self.pending.free}
        return {role: times["q-1"] for role, times in every.items() if "q-1" in times}

    def check(self, state: str, **waits: int) -> None:
        """Check that the query is in a state, and what waits; whoever is not finished uses the stream."""
        assert self.record.state == state
        assert self.queries.states[state] == 1
        assert self.waits == waits
        stream = self.catalog.by_id("s-1")
        assert stream is not None
        assert stream.users == (state not in (RETIRED, FAILED))


def running(**fields: Any) -> Life:
    return Life(RUNNING, **{"slot": 0, "epoch": EPOCH, "first_seq": 2, "active_from": {"s-1": 5}} | fields)


def draining(**fields: Any) -> Life:
    """Return a query that drains: windows must fire up to 100."""
    life = running(deleted_epoch=EPOCH + 1, active_to={"s-1": 100}, is_ending=True, **fields)
    life.queries.moved(life.record.state, life.record)
    life.draining.add(life.record, lambda _: 50)
    return life


def test_a_query_that_was_never_created_is_retired_when_it_is_deleted() -> None:
    life = Life(PENDING)
    assert life.lifecycle.delete("q-1", True, 20)
    life.check(RETIRED)


@pytest.mark.parametrize(("drain", "state"), [(True, DRAINING), (False, RETIRED)])
def test_a_running_query_waits_for_its_deletion(drain: bool, state: str) -> None:
    life = running()
    assert life.lifecycle.delete("q-1", drain, 20)
    life.check(state, delete=20)


def test_a_query_is_deleted_once() -> None:
    life = running()
    assert life.lifecycle.delete("q-1", True, 20)
    assert not life.lifecycle.delete("q-1", True, 30)
    life.check(DRAINING, delete=20)
    assert not life.lifecycle.delete("q-2", True, 30), "it was never there"


def test_one_that_drains_may_be_told_not_to() -> None:
    life = draining(drain=True)
    assert life.lifecycle.delete("q-1", True, 20)
    assert not life.lifecycle.delete("q-1", False, 30)
    life.check(RETIRED, free=30)
    assert "q-1" not in life.draining


def test_a_query_that_is_replaced_goes_on_until_its_successor_is_there() -> None:
    life = running()
    assert life.lifecycle.replace("q-1", "q-2", False, 20)
    life.check(DRAINING, delete=20)
    assert life.record.replaced_by == "q-2"


def test_a_query_that_failed_meanwhile_is_not_replaced() -> None:
    life = running()
    life.lifecycle.fail("q-1", "division by zero", 20, 3)
    assert not life.lifecycle.replace("q-1", "q-2", True, 30)
    life.check(FAILED, free=20)
    assert life.record.replaced_by is None


def test_a_pause_before_the_creation_ends_nothing() -> None:
    life = Life(PENDING)
    life.lifecycle.pause("q-1", 20)
    life.check(PAUSED)
    life.lifecycle.resume("q-1", 30, EPOCH)
    life.check(PENDING, create=30)


@pytest.mark.parametrize(("active_epoch", "waits"), [(EPOCH + 1, {}), (EPOCH + 2, {"create": 30})])
def test_a_resumed_query_waits_for_its_creation_once_a_batch_has_freed_its_slot(
    active_epoch: int, waits: dict[str, int]
) -> None:
    life = running()
    life.lifecycle.pause("q-1", 20)
    life.check(PAUSED, delete=20)
    life.pending.clear()
    life.record.deleted_epoch, life.record.freed_epoch = EPOCH + 1, EPOCH + 2
    life.lifecycle.resume("q-1", 30, active_epoch)
    life.check(PENDING, **waits)


def test_a_query_is_deployed_by_the_first_batch_that_has_it() -> None:
    life = Life(PENDING, slot=0, epoch=EPOCH)
    life.lifecycle.deploy(life.record, {"s-1": 7}, 40, 3)
    life.check(RUNNING)
    assert (life.record.active_from, life.record.first_seq) == ({"s-1": 7}, 3)


def test_a_deletion_ends_with_the_deployment_and_the_slot_waits_to_be_freed() -> None:
    life = draining()
    life.lifecycle.delete("q-1", True, 20)
    assert not life.lifecycle.has_drained(life.record)
    life.lifecycle.end_deployment(life.record, 60, 9)
    assert life.lifecycle.has_drained(life.record)
    life.check(RETIRED, free=60)
    assert life.record.last_seq == 9


def test_a_pause_ends_with_the_deployment_too_but_the_query_stays() -> None:
    life = draining()
    life.lifecycle.pause("q-1", 20)
    life.lifecycle.end_deployment(life.record, 60, 9)
    life.check(PAUSED, free=60)


def test_a_failure_takes_the_place_of_a_deletion() -> None:
    life = running()
    life.lifecycle.delete("q-1", True, 20)
    life.lifecycle.fail("q-1", "division by zero", 30, 3)
    life.check(FAILED, free=30)
    assert (life.record.error, life.record.last_seq) == ("division by zero", 3)
    life.lifecycle.fail("q-1", "something else", 40, 4)
    assert life.record.error == "division by zero"


def test_a_query_without_a_slot_cannot_fail() -> None:
    life = Life(PENDING)
    life.lifecycle.fail("q-1", "division by zero", 30, 3)
    life.check(PENDING, create=10)
