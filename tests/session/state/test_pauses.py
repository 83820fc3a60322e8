"""Queries that are paused, resumed and replaced: what each of them sees, and what readers get of it.

Batches are run as the data plane runs them, by the changelogs and the clocks alone, and written as the router does.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from braid.operators.live_queries import LiveQueries
from braid.router.batch_index import BatchIndex
from braid.router.result_reader import ResultReader
from braid.session.commands.queries import MAX_DEPLOYMENTS
from braid.session.commands.query_requests import Replacement
from braid.session.state.query_record import FAILED, PAUSED, PENDING, RETIRED, RUNNING, QueryRecord
from braid.sources.core.errors import Conflict, Gone, Overloaded, UnknownObject
from braid.sources.core.record_log import RecordLog
from tests.kit.examples import examples
from tests.router.batches import BatchWriter
from tests.session.driver import AGGREGATION, BEGINNING, LOOKUP, SECOND, TABLE, Driver
from tests.session.state.changed_queries import CHEAP, pause, replace, resume, state, step

EVERYTHING = "SELECT user_id FROM purchases"
REVENUE = AGGREGATION.format("purchases", 5)
FILE = {"connector": "file", "path": "rows"}
DRAIN_SECONDS = 20

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["batch"] * 9
            + ["pause"] * 4
            + ["resume"] * 4
            + ["create", "replace", "replace", "replace now", "delete", "delete now", "silence", "changelog", "read"]
            + ["crash", "restart", "snapshot"]
        ),
        st.integers(0, 7),
    ),
    min_size=20,
    max_size=60,
)


@dataclass(frozen=True)
class Tuple:
    """A tuple: its number, event time (seconds after the beginning), and the epoch of its batch."""

    number: int
    second: int
    epoch: int

    @property
    def time_us(self) -> int:
        """The event time."""
        return BEGINNING + self.second * SECOND


@dataclass
class World:
    """A session, its data plane, and readers that go on where they were."""

    driver: Driver
    live: LiveQueries = field(default_factory=LiveQueries)
    tuples: list[Tuple] = field(default_factory=list)
    cursors: dict[str, str | None] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=dict)
    second: int = 10

    def batch(self, number: int) -> None:
        """Let a changelog be cut and run a batch: some tuples, not all in order, none of them late."""
        driver = self.driver
        driver.flush()
        clocks = {"s-1": driver.newest.get("s-1")}
        for record in driver.changelogs():
            if record["epoch"] > self.live.epoch:
                self.live.apply(record, clocks)
        # the watermark is two seconds back
        seconds = [self.second + offset for offset in (0, 1, -1, 2)[: number % 5]]
        tuples = [Tuple(len(self.tuples) + i, second, self.live.epoch) for i, second in enumerate(seconds)]
        self.tuples += tuples
        self.second = max([self.second, *seconds])
        blocks = []
        if tuples:
            ids = pa.table({"user_id": pa.array([tuple_.number for tuple_ in tuples], pa.int64())})
            blocks = [BatchWriter(driver.storage).selection("s-1", ids, [self.members(tuple_) for tuple_ in tuples])]
        driver.batch({"s-1": self.second} if tuples else {}, blocks=blocks)

    def members(self, tuple_: Tuple) -> set[int]:
        """Return the slots of the queries that see a tuple, as the data plane has them."""
        return {
            slot
            for slot, query in self.live.by_slot.items()
            if query.after("s-1") < tuple_.time_us <= query.until("s-1")
        }

    def read(self, limit: int) -> None:
        """Read a page of each query, after the one before, as a reader does that was there all the time."""
        driver = self.driver
        index = BatchIndex(RecordLog(driver.storage, "batches"), driver.session.applied_seq)
        reader = ResultReader(driver.storage, index)
        for query_id in [f"q-{number}" for number in range(1, driver.state.next_query)]:
            page = reader.read(driver.session.lookup.deployed(query_id), self.cursors.get(query_id), limit)
            self.cursors[query_id] = page.cursor
            self.rows.setdefault(query_id, []).extend(page.table["user_id"].to_pylist())

    def records(self) -> Iterator[QueryRecord]:
        """Return all queries there ever were."""
        for number in range(1, self.driver.state.next_query):
            query = self.driver.state.queries.find(f"q-{number}") or self.driver.session._archive.find(number)
            assert query is not None
            yield query

    def visible(self, query: QueryRecord) -> list[int]:
        """Return the tuples that a query must have seen, by what is told of it."""
        numbers = []
        for tuple_ in self.tuples:
            for deployment in query.all_deployments:
                since, until = deployment.active_from["s-1"], (deployment.active_to or {}).get("s-1")
                ended = deployment.active_to is not None
                if not deployment.holds_slot_at(tuple_.epoch) or (since is not None and tuple_.time_us <= since):
                    continue
                if not ended or (until is not None and tuple_.time_us <= until):
                    numbers.append(tuple_.number)
        return numbers


def take(world: World, kind: str, number: int) -> None:
    """Take a step; what the session refuses is part of it."""
    driver, session = world.driver, world.driver.session
    alive = [query for query in driver.state.queries.values() if not query.has_ended]
    query = alive[number % len(alive)] if alive else None
    match kind:
        case "batch":
            world.batch(number)
        case "changelog":
            driver.flush()
        case "silence":
            driver.clock.advance(DRAIN_SECONDS + 1)
            session.step()
        case "read":
            world.read(number + 1)
        case "create":
            driver.create(EVERYTHING)
        case "crash" | "restart":
            getattr(driver, kind)()
        case "snapshot":
            session.write_snapshot()
        case _ if query is not None:
            with contextlib.nullcontext() if query.is_wanted or "delete" in kind else pytest.raises(Conflict):
                match kind:
                    case "pause":
                        session.queries.begin_pause(query.id).wait()
                    case "resume":
                        event("resumed while it drains" if driver.state.lifecycle.has_drained(query) else "resumed")
                        session.queries.begin_resume(query.id).wait()
                    case "replace" | "replace now":
                        session.queries.begin_replace(query.id, Replacement(EVERYTHING), drain=kind == "replace").wait()
                    case _:
                        session.queries.delete(query.id, drain=kind == "delete")


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_each_query_gets_each_tuple_of_its_deployments_once(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(Path(folder), drain_timeout=DRAIN_SECONDS)
        try:
            driver.stream()
            world = World(driver)
            driver.create(EVERYTHING, EVERYTHING)
            for kind, number in steps:
                take(world, kind, number)
            world.batch(4)
            driver.session.write_snapshot()
            world.read(10_000)
            check(world)
        finally:
            driver.end()


def check(world: World) -> None:
    """Compare what readers got with what is told of the queries, and those that replaced each other."""
    records = {query.id: query for query in world.records()}
    for query in records.values():
        event(f"{query.state} after {len(query.all_deployments)} deployments")
        rows = world.rows[query.id]
        assert rows == sorted(set(rows)), "in order, each once"
        assert rows == world.visible(query)
        replaced = records.get(query.replaces or "")
        if replaced is None or not replaced.all_deployments or not query.all_deployments:
            continue
        old, new = replaced.all_deployments[-1], query.all_deployments[0]
        assert old.active_to is not None
        if replaced.deleted_epoch == new.epoch:
            event("replaced while it ran")
            assert old.active_to == new.active_from
            new_rows, old_rows = {*rows}, {*world.rows[replaced.id]}
            assert not new_rows & old_rows, "no tuple is seen by both"
            since, until = old.active_from["s-1"], (new.active_to or {}).get("s-1")
            expected = {
                tuple_.number
                for tuple_ in world.tuples
                if old.holds_slot_at(tuple_.epoch) and new.holds_slot_at(tuple_.epoch)
                if since is None or tuple_.time_us > since
                if new.active_to is None or (until is not None and tuple_.time_us <= until)
            }
            assert expected <= new_rows | old_rows, "nor by neither"


def test_who_is_paused_and_resumed_before_it_ever_ran_runs_then(driver: Driver) -> None:
    (query,) = driver.create(CHEAP)
    assert pause(driver, query)["state"] == PAUSED
    step(driver)
    assert (state(driver, query), driver.changelogs()[-1]["created"]) == (PAUSED, [])
    assert resume(driver, query)["state"] == PENDING
    driver.clock.advance(100)
    step(driver)
    body = driver.session.lookup.describe(query)
    assert (body["state"], body["deployments"]) == (RUNNING, [])
    assert body["deployment_latency_seconds"] == pytest.approx(100.1, abs=0.1)


def test_a_query_paused_and_resumed_before_its_first_batch_waits_for_its_end(driver: Driver) -> None:
    (query,) = driver.create(CHEAP)
    driver.flush()
    pause(driver, query)
    resume(driver, query)
    driver.plan()
    assert state(driver, query) == PENDING, "what the batch deploys is over with the next changelog"
    driver.batch()
    assert state(driver, query) == PENDING
    for _ in range(3):
        step(driver, times={"s-1": 10})
    assert state(driver, query) == RUNNING
    assert len(driver.session.lookup.describe(query)["deployments"]) == 1


def test_windows_that_are_complete_still_come_while_a_query_pauses(driver: Driver) -> None:
    (query,) = driver.run(REVENUE)
    driver.batch({"s-1": 10})
    pause(driver, query)
    step(driver, times={"s-1": 11})
    assert state(driver, query) == PAUSED
    assert query in driver.state.draining
    assert driver.session.lookup.describe(query)["active_to"]["purchases"].endswith("30.000000Z")
    driver.batch({"s-1": 12}, [(0, 3, BEGINNING)])
    step(driver)
    driver.batch()
    body = driver.session.lookup.describe(query)
    assert (body["state"], body["slot"], body["rows_out"]) == (PAUSED, None, 3)


def test_a_drain_without_progress_ends_a_pause_too(open_driver: Callable[..., Driver]) -> None:
    driver = open_driver(drain_timeout=5)
    driver.stream()
    (query,) = driver.run(REVENUE)
    driver.batch({"s-1": 10})
    pause(driver, query)
    resume(driver, query)
    step(driver)
    assert state(driver, query) == PENDING
    driver.clock.advance(6)
    driver.session.step()
    driver.batch()
    step(driver)
    body = driver.session.lookup.describe(query)
    assert (body["state"], len(body["deployments"])) == (RUNNING, 1)
    assert body["deployment_latency_seconds"] < 1, "counted from when it could be deployed"


def test_a_restart_finds_a_resumption_as_late_as_it_was_though_the_slot_had_been_freed_before(driver: Driver) -> None:
    (query,) = driver.run(CHEAP)
    pause(driver, query)
    while driver.state.queries[query].freed_epoch is None:
        step(driver)
    driver.batch()
    driver.clock.advance(10)
    resume(driver, query)
    assert driver.recovered() == driver.observed(), "no changelog says which came first"
    step(driver)
    assert state(driver, query) == RUNNING
    assert driver.session.lookup.describe(query)["deployment_latency_seconds"] < 10


def test_a_slot_that_a_changelog_frees_goes_to_an_older_query_that_is_resumed(driver: Driver) -> None:
    older, newer = driver.run(CHEAP, CHEAP)
    pause(driver, older)
    step(driver)
    step(driver)
    driver.run(CHEAP)  # takes the slot that it had
    driver.session.queries.delete(newer, drain=False)
    resume(driver, older)
    driver.flush()
    changelog = driver.changelogs()[-1]
    assert (changelog["freed"][0]["id"], changelog["created"][0]["id"]) == (newer, older)
    driver.batch()
    assert [query.id for query in driver.state.active.queries] == ["q-3", older]
    assert (state(driver, older), state(driver, newer)) == (RUNNING, RETIRED)
    assert driver.recovered() == driver.observed()


def test_what_a_query_waited_for_in_an_earlier_pause_does_not_end_a_later_one(
    open_driver: Callable[..., Driver],
) -> None:
    driver = open_driver(drain_timeout=5)
    driver.stream()
    (query,) = driver.run(REVENUE)
    driver.batch({"s-1": 10})
    pause(driver, query)
    step(driver)
    assert query in driver.state.draining
    driver.clock.advance(6)  # it is given up before the watermark reaches 10
    driver.session.step()
    resume(driver, query)
    driver.batch()
    step(driver)
    driver.batch({"s-1": 11})
    pause(driver, query)
    step(driver, times={"s-1": 12})
    assert query in driver.state.draining, "it waits for 11 now"
    assert driver.recovered() == driver.observed()
    driver.batch({"s-1": 13})
    assert query not in driver.state.draining


def test_the_ttl_of_a_paused_query_goes_on(driver: Driver) -> None:
    (query,) = driver.run(CHEAP, ttl_seconds=60)
    pause(driver, query)
    step(driver)
    step(driver)
    driver.clock.advance(61)
    driver.session.step()
    assert state(driver, query) == RETIRED


def test_a_paused_query_fails_while_it_drains(driver: Driver) -> None:
    (query,) = driver.run(REVENUE)
    driver.batch({"s-1": 10})
    pause(driver, query)
    step(driver)
    driver.batch(failures={query: "evaluation raised"})
    assert state(driver, query) == FAILED
    step(driver)
    with pytest.raises(Conflict, match=r"is FAILED\. Create a new one"):
        resume(driver, query)


def test_a_paused_query_counts_and_keeps_its_stream_and_rows_of_tables(open_driver: Callable[..., Driver]) -> None:
    driver = open_driver(max_queries=1)
    driver.stream()
    driver.session.tables.create(TABLE.format(driver.write_table(1)))
    (query,) = driver.run(LOOKUP.format("purchases"))
    pause(driver, query)
    step(driver)
    step(driver)
    with pytest.raises(Overloaded):
        driver.create(CHEAP)
    for drop, name in ((driver.session.streams.drop, "purchases"), (driver.session.tables.drop, "packs")):
        with pytest.raises(Conflict, match=query):
            drop(name)
    driver.write_table(0).unlink()
    driver.session.write_snapshot()
    driver.crash()
    assert len(driver.storage.names("tables")) == 1
    resume(driver, query)
    step(driver)
    assert state(driver, query) == RUNNING, "it has the rows that it was accepted with"
    assert replace(driver, query)["replaces"] == query, "one for another fits"


def test_a_query_is_deployed_so_often_and_no_oftener(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_DEPLOYMENTS > 100
    monkeypatch.setattr("braid.session.commands.queries.MAX_DEPLOYMENTS", 2)
    (query,) = driver.run(CHEAP)
    for _ in range(2):
        pause(driver, query)
        step(driver)
        step(driver)
        with contextlib.nullcontext() if state(driver, query) != PAUSED or _ == 0 else pytest.raises(Conflict):
            resume(driver, query)
            step(driver)
    assert (state(driver, query), len(driver.session.lookup.describe(query)["deployments"])) == (PAUSED, 1)


def test_who_is_unknown_or_forgotten_is_said(open_driver: Callable[..., Driver]) -> None:
    driver = open_driver(retention_seconds=10)
    driver.stream()
    (query,) = driver.create(CHEAP)
    driver.session.queries.delete(query)
    driver.session.write_snapshot()
    for call in (pause, resume, replace):
        with pytest.raises(Conflict, match="is RETIRED"):
            call(driver, query)
    driver.clock.advance(100)
    driver.session.step()
    for call in (pause, resume, replace):
        with pytest.raises(Gone):
            call(driver, query)
        with pytest.raises(UnknownObject):
            call(driver, "nothing")


def test_a_restart_that_learns_late_that_a_paused_query_had_drained_equals_none(driver: Driver) -> None:
    (query,) = driver.run(CHEAP)
    driver.batch({"s-1": 10})
    driver.session.queries.begin_pause(query).wait()
    driver.flush()
    driver.batch()
    driver.batch({"s-1": 60})
    driver.session.queries.delete(query, drain=False)
    assert driver.recovered() == driver.observed()
    driver.flush()
    driver.batch()
    assert driver.recovered() == driver.observed()
    assert driver.state.queries[query].last_seq == driver.state.applied_seq


def test_a_restart_that_learns_late_of_a_drain_retires_a_query_at_its_deletion(driver: Driver) -> None:
    (query,) = driver.run(CHEAP)
    driver.batch({"s-1": 10})
    driver.session.queries.begin_pause(query).wait()
    driver.flush()
    driver.batch()
    driver.batch({"s-1": 60})
    driver.clock.advance(0.5)
    driver.session.queries.delete(query)
    assert driver.recovered() == driver.observed()
