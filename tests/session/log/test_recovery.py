"""A restart at any point gives the state that no restart would have given."""

from __future__ import annotations

import contextlib
import errno
import tempfile
from itertools import pairwise
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from braid.engine.data_layout import PLANNED, UNAVAILABLE
from braid.engine.spark.executors import REGISTERED, read_registered
from braid.operators.live_queries import LiveQueries
from braid.operators.lookup.lookup_join import version_path
from braid.operators.queries import lookups_of
from braid.session.commands.query_requests import Replacement
from braid.session.log import plan_snapshot, snapshot
from braid.session.log.archive import Archive
from braid.session.log.idempotency import Idempotency
from braid.session.log.recovery import replay_logs
from braid.session.log.snapshot import Snapshots
from braid.session.state.changelog import Changelog
from braid.session.state.query_record import DRAINING, FAILED, PAUSED, PENDING, RUNNING, QueryRecord
from braid.session.state.session_state import SessionState
from braid.sources.core.errors import Conflict, CorruptData, NotAllowed, NotReady, UnknownObject
from braid.sources.core.storage import Storage
from tests.kit.examples import examples
from tests.optimizer.arbitrary_plans import arbitrary_plans
from tests.session.changelog_sets import changelog_set_between
from tests.session.driver import (
    AGGREGATION,
    BEGINNING,
    LOOKUP,
    SECOND,
    SELECTION,
    STREAM,
    TABLE,
    TESTED_JOIN,
    Driver,
)

NAMES = ("purchases", "ads")
WANTED = {"pause": {"PAUSED"}, "resume": {"PENDING", "RUNNING"}}
Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "create",
                "create",
                "delete",
                "delete",
                "delete now",
                "pause",
                "pause",
                "resume",
                "resume",
                "resume",
                "replace",
                "replace now",
                "batch",
                "batch",
                "old batch",
                "quiet batch",
                "fail",
                "wait",
                "long wait",
                "stream",
                "drop",
                "table",
                "look up",
                "look up",
                "refresh",
                "refresh",
                "drop table",
                "snapshot",
                "crash",
                "restart",
            ]
        ),
        st.integers(0, 30),
        st.integers(0, 3),
    ),
    min_size=10,
    max_size=60,
)


def take(driver: Driver, step: Step, at: int) -> None:
    """Take one step of a random history; what the session refuses is part of it."""
    kind, number, kind_number = step
    name = NAMES[number % 2]
    alive = [q for q in driver.state.queries.values() if not q.has_ended]
    placed = [q for q in driver.state.active.queries if not q.has_ended]
    match kind:
        case "create" if name in driver.state.catalog:
            sql = [(SELECTION, AGGREGATION, TESTED_JOIN)[(number + i) % 3] for i in range(kind_number + 1)]
            fields = {"ttl_seconds": 5 + number} if number % 5 == 0 else {}
            driver.create(*(text.format(name, number) for text in sql), **fields)
        case "delete" | "delete now" if alive:
            driver.session.queries.delete(alive[number % len(alive)].id, drain=kind == "delete")
        case "pause" | "resume" if alive:
            query = alive[number % len(alive)]
            begin = driver.session.queries.begin_pause if kind == "pause" else driver.session.queries.begin_resume
            with contextlib.nullcontext() if query.is_wanted else pytest.raises(Conflict, match=f"{query.id}: it is"):
                assert begin(query.id).wait()[0]["state"] in WANTED[kind]
        case "replace" | "replace now" if alive:
            query = alive[number % len(alive)]
            replacement = Replacement(SELECTION.format(next(iter(query.stream_names.values())), number))
            with contextlib.nullcontext() if query.is_wanted else pytest.raises(Conflict, match=f"{query.id}: it is"):
                driver.session.queries.begin_replace(query.id, replacement, drain=kind == "replace").wait()
        case "batch" | "old batch" | "quiet batch":
            streams = [s.definition.id for s in driver.state.catalog.states()]
            times = {stream: at + number for stream in streams if kind != "quiet batch"}
            results = [(q.slot, 2, BEGINNING + at * SECOND) for q in placed if q.slot is not None]
            old_epoch = driver.state.active_epoch if kind == "old batch" else None
            driver.batch(times, sorted({slot: r for r in results for slot in [r[0]]}.values()), epoch=old_epoch)
        case "fail" if placed:
            driver.batch(failures={placed[number % len(placed)].id: "evaluation raised"})
        case "wait":
            driver.clock.advance(number / 10)
            driver.session.step()
        case "long wait":
            driver.clock.advance(number * 5)
            driver.session.step()
        case "stream":
            exists = name in driver.state.catalog
            with pytest.raises(Conflict) if exists else contextlib.nullcontext():
                driver.stream(name)
        case "drop":
            with contextlib.suppress(Conflict, UnknownObject):
                driver.session.streams.drop(name)
        case "table":
            path = driver.write_table(kind_number)
            exists = driver.state.catalog.find_table("packs") is not None
            with pytest.raises(Conflict) if exists else contextlib.nullcontext():
                driver.session.tables.create(TABLE.format(path))
        case "look up" if driver.state.catalog.find_table("packs") is not None and name in driver.state.catalog:
            driver.write_table(number)
            driver.table_rows[driver.create(LOOKUP.format(name))[0]] = number
        case "refresh":
            driver.write_table(number)
            exists = driver.state.catalog.find_table("packs") is not None
            with contextlib.nullcontext() if exists else pytest.raises(UnknownObject):
                driver.session.tables.refresh("packs")
                looking = (q for q in alive if lookups_of(q.query))
                driver.table_rows |= dict.fromkeys((q.id for q in looking), number)
        case "drop table":
            with contextlib.suppress(Conflict, UnknownObject):
                driver.session.tables.drop("packs")
        case "snapshot":
            driver.session.write_snapshot()
        case "crash":
            driver.crash()
        case "restart":
            driver.restart()


def check_invariants(driver: Driver) -> None:
    """Check what must hold between any two steps."""
    state = driver.state
    slot_holders = [q for q in state.queries.values() if q.slot is not None and q.freed_epoch is None]
    assert len({q.slot for q in slot_holders}) == len(slot_holders), "a slot has one holder"
    assert {q.slot for q in slot_holders} == {s for s in range(state.slots.capacity) if state.slots.holder(s)}
    for query in state.queries.values():
        if query.state == RUNNING:
            assert not query.is_ending
            assert query.active_from is not None
            assert query.deployed_us is not None
        assert (query.finished_us is not None) == query.has_ended
        if query.state == DRAINING and query.active_to is not None and query.freed_epoch is None:
            assert query.id in state.draining
        check_deployments(state, query)
    for stream in state.catalog.states():
        using = [q for q in state.queries.values() if stream.definition.id in q.stream_names]
        assert stream.users == sum(not q.has_ended for q in using)
    for table in state.catalog.tables():
        looking = [
            q for q in state.queries.values() if any(k.table == table.definition.id for k in lookups_of(q.query))
        ]
        assert table.users == sum(not q.has_ended for q in looking)
    check_tables(driver)
    assert [query.id for query in state.active.queries] == [
        q.id
        for q in sorted((q for q in state.queries.values() if q.slot is not None), key=lambda q: q.slot or 0)
        if q.epoch is not None and q.epoch <= state.active_epoch and not q.is_freed(state.active_epoch)
    ], "a slot's holder is the query that the data plane has there"
    moved_us = {s.definition.id: s.fired_moved_us for s in state.catalog.states()}
    draining = [state.queries[query_id] for query_id in state.draining.ids]
    for limit in (driver.clock.us - 5 * SECOND, driver.clock.us):
        silent = [
            q.id for q in draining if max(q.active_to_us or 0, *(moved_us.get(s, 0) for s in q.query.streams)) <= limit
        ]
        assert sorted(state.draining.silent(limit, lambda stream: moved_us.get(stream, 0))) == sorted(silent)
    for number in range(1, state.next_query):
        with contextlib.suppress(UnknownObject):  # an id that was given to a request that was refused
            driver.session.lookup.describe(f"q-{number}")


def check_tables(driver: Driver) -> None:
    """Check that the rows of tables are kept, and which queries are to have."""
    state = driver.state
    if state.pending.tables_refreshed:
        assert all(table.describe()["refreshing"] for table in state.catalog.tables())
    for query in state.queries.values():
        for lookup in lookups_of(query.query):
            active = state.active.refreshed.current(lookup)
            table = state.catalog.table_by_id(lookup.table)
            planned = active if table is None else state.catalog.refreshed().current(lookup)
            for version in (active.version, planned.version):
                assert driver.storage.exists(version_path(version)), "the rows of a query's table are kept"
            if not query.has_ended:
                assert driver.rows_in(planned.version) == driver.table_rows[query.id]
                is_created = query.epoch is not None and query.epoch <= state.active_epoch
                is_placed = is_created and not query.is_freed(state.active_epoch)
                if is_placed and not state.pending.tables_refreshed and not state.inactive:
                    assert active == planned


def check_deployments(state: SessionState, query: QueryRecord) -> None:
    """Check where a query runs: what waits for a changelog, what has a slot, and when it saw tuples."""
    waits = query.id in state.pending.create
    assert waits == (query.state == PENDING and query.epoch is None), "who is to run waits for it once"
    if query.state == PENDING and query.epoch is not None and query.is_ending:
        assert not query.is_freed(state.active_epoch), "it is resumed as soon as it is freed"
    if query.state == PAUSED and query.is_freed(state.active_epoch):
        assert query.id not in state.draining
        assert query.describe()["slot"] is None
    every = query.all_deployments
    for earlier, later in pairwise(every):
        assert earlier.freed_epoch is not None
        assert earlier.freed_epoch < later.epoch, "no changelog knows two deployments of one query"
        assert earlier.first_seq < later.first_seq
        assert earlier.active_to is not None
        for stream, until in earlier.active_to.items():
            since = later.active_from[stream]
            assert until is None or (since is not None and until <= since), "no tuple is seen twice"


def check_no_gaps(driver: Driver) -> None:
    """Check that queries which were replaced while they ran end where those that replaced them begin."""
    for new in driver.state.queries.values():
        old = driver.state.queries.get(new.replaces or "")
        if old is None or not new.all_deployments or not old.all_deployments:
            continue
        began, ended = new.all_deployments[0], old.all_deployments[-1]
        assert old.replaced_by == new.id
        if ended.active_to is None:
            assert old.state == FAILED, "before a changelog ended it"
            continue
        same_changelog = old.deleted_epoch == began.epoch
        for stream, until in ended.active_to.items():
            since = began.active_from[stream]
            if same_changelog:
                assert until == since, "what the one does not see any more the other does"
            else:  # it was paused, or resumed and not yet running
                assert until is None or (since is not None and until <= since)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
@example([("create", 0, 0), ("wait", 1, 0), ("pause", 0, 0), ("wait", 1, 0), ("batch", 0, 0), ("replace now", 0, 0)])
def test_a_restart_at_any_point_equals_no_restart(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder, arbitrary_plans():
        times = {"drain_timeout": 20, "slot_compaction_seconds": 10, "reoptimize_seconds": 1.0}
        driver = Driver(Path(folder) / "data", **times)
        try:
            driver.stream()
            for at, step in enumerate(steps):
                take(driver, step, at)
                check_invariants(driver)
                check_no_gaps(driver)
                assert driver.recovered() == driver.observed(), f"after step {at}, {step}"
            check_changelogs(driver)
            driver.flush()
            driver.batch()
            assert not any(table.describe()["refreshing"] for table in driver.state.catalog.tables())
        finally:
            driver.end()


def check_changelogs(driver: Driver) -> None:
    """Check all changelogs of a history by brute force, and the data plane's view of them."""
    records = driver.changelogs()
    changelogs = {record["epoch"]: Changelog.from_json(record) for record in records}
    holders: list[dict[int, str]] = [{}]
    live = LiveQueries()
    for record in records:
        slots = dict(holders[-1])
        for freed in record["freed"]:
            assert slots.pop(freed["slot"]) == freed["id"]
        for created in record["created"]:
            assert created["slot"] == min(set(range(len(slots) + 1)) - slots.keys()), "lowest free slot first"
            slots[created["slot"]] = created["id"]
        holders.append(slots)
        live.apply(record, {})
        assert {slot: query.id for slot, query in live.by_slot.items()} == slots
    for j in range(1, len(holders)):
        for i in range(max(0, j - 6), j):
            bits = changelog_set_between(changelogs, i, j)
            unchanged = {slot for slot, query in holders[j].items() if holders[i].get(slot) == query}
            assert {slot for slot, bit in enumerate(bits) if bit} == unchanged


def test_a_crash_between_request_and_changelog_leaves_the_query_pending(driver: Driver) -> None:
    driver.create(SELECTION.format("purchases", 5))
    driver.crash()
    assert driver.session.lookup.describe("q-1")["state"] == "PENDING"
    driver.flush()
    assert [created["id"] for created in driver.changelogs()[-1]["created"]] == ["q-1"]


def test_a_crash_between_stream_and_changelog_announces_the_stream_later(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(driver.session._changelogs._log, "append", _die)
        with pytest.raises(KeyboardInterrupt):
            driver.session.streams.create(STREAM.format("ads"))
    driver.crash()
    driver.session.step()
    assert [s["name"] for s in driver.changelogs()[-1]["streams_created"]] == ["ads"]


def _die(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_crash_between_snapshot_and_trimming_replays_nothing_twice(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.run(SELECTION.format("purchases", 5))
    driver.batch({"s-1": 10}, [(0, 5, BEGINNING)])
    with monkeypatch.context() as patched:
        patched.setattr(driver.session._writer, "trim", _die)
        with pytest.raises(KeyboardInterrupt):
            driver.session.write_snapshot()
    before = driver.observed()
    driver.crash()
    assert driver.observed() == before
    assert driver.session.lookup.describe("q-1")["rows_out"] == 5


def test_a_snapshot_bounds_the_request_log_and_the_sums_do_not_need_old_batches(driver: Driver) -> None:
    driver.run(SELECTION.format("purchases", 5))
    driver.batch({"s-1": 10}, [(0, 5, BEGINNING)])
    driver.session.write_snapshot()
    assert driver.session.snapshot_seq == driver.session.applied_seq == 2
    assert driver.storage.names("requests") == []
    driver.batches.trim(2)
    driver.crash()
    assert driver.session.snapshot_seq == 2
    driver.batch({"s-1": 11}, [(0, 1, BEGINNING)])
    assert driver.session.lookup.describe("q-1")["rows_out"] == 6
    assert driver.session.streams.describe("purchases")["tuples"] == 2
    assert driver.create(SELECTION.format("purchases", 6)) == ["q-2"]
    assert driver.recovered() == driver.observed()


def test_snapshots_come_by_themselves(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid.session.upkeep.deadlines.SNAPSHOT_BATCHES", 3)
    for _ in range(3):
        driver.clock.advance(1)
        driver.batch()
    assert driver.session.snapshot_seq == 3
    assert driver.storage.exists(snapshot.PATH)
    monkeypatch.setattr("braid.session.upkeep.deadlines.SNAPSHOT_CHANGES", 2)
    driver.create(SELECTION.format("purchases", 5), SELECTION.format("purchases", 6))
    driver.clock.advance(1)
    driver.session.step()
    assert driver.session.snapshot_epoch == driver.session.epoch == 2


def test_ids_are_never_given_again_after_everything_was_trimmed(driver: Driver) -> None:
    (query,) = driver.run(SELECTION.format("purchases", 5))
    driver.session.queries.delete(query, drain=False)
    driver.flush()
    driver.batch()
    driver.session.streams.drop("purchases")
    driver.clock.advance(2 * 86400)
    driver.session.step()
    driver.restart()
    driver.session.step()
    assert driver.stream() == "s-2"
    assert driver.run(SELECTION.format("purchases", 5)) == ["q-2"]


def test_a_missing_record_is_said_not_skipped(driver: Driver) -> None:
    for _ in range(3):
        driver.batch()
    driver.storage.delete("batches/000000000002.json")
    with pytest.raises(CorruptData, match="it is missing"):
        driver.recovered()


def test_the_newest_changelog_that_is_missing_is_named(driver: Driver) -> None:
    driver.run(SELECTION.format("purchases", 5))
    newest = driver.storage.names("changelogs")[-1]
    driver.storage.delete(f"changelogs/{newest}")
    with pytest.raises(CorruptData, match=f"changelogs/{newest}.*it is missing"):
        driver.recovered()


@pytest.mark.parametrize("torn", [b"", b"\0\0\0", b'{"seq":3,"previous_ep'])
def test_what_is_told_without_a_flush_may_be_torn(driver: Driver, torn: bytes) -> None:
    driver.run(SELECTION.format("purchases", 1))
    (query,) = driver.create(SELECTION.format("purchases", 2))
    driver.flush()
    driver.plan()
    for path in (PLANNED, UNAVAILABLE, REGISTERED):
        driver.storage.put(path, torn)
    driver.crash()
    driver.clock.advance(10)
    driver.session.step()
    assert driver.session.problem is None
    assert read_registered(driver.storage) is None
    assert driver.session.lookup.describe(query)["state"] == PENDING
    driver.batch()
    assert driver.session.lookup.describe(query)["state"] == RUNNING


def test_requests_read_back_as_they_were_written(driver: Driver) -> None:
    driver.create(AGGREGATION.format("purchases", 5), name="revenue", ttl_seconds=7, labels={"a": "b"})
    record = driver.state.queries["q-1"]
    read_back = type(record).from_json(orjson.loads(orjson.dumps(record.to_json())))
    assert read_back == record
    described = driver.session.lookup.describe("q-1")
    assert {**read_back.describe(), "waiting_for": described["waiting_for"]} == described


def test_rows_of_tables_go_when_no_query_needs_them(driver: Driver) -> None:
    driver.session.tables.create(TABLE.format(driver.write_table(1)))
    driver.run(LOOKUP.format("purchases"))
    driver.write_table(2)
    first, second = "q-1", *driver.run(LOOKUP.format("purchases"))
    versions = [lookups_of(driver.state.queries[q].query)[0].version for q in (first, second)]
    assert versions[0] != versions[1]
    driver.session.write_snapshot()
    assert len(driver.storage.names("tables")) == 2
    with pytest.raises(Conflict, match=f"Cannot drop table 'packs': queries {first}, {second} use it"):
        driver.session.tables.drop("packs")
    driver.session.queries.delete(first, drain=False)
    driver.flush()
    driver.batch()
    driver.session.write_snapshot()
    driver.session.write_snapshot()
    assert driver.storage.names("tables") == [version_path(versions[1]).partition("/")[2]]


def test_rows_that_the_next_query_may_be_named_by_stay_while_a_refresh_is_pending(driver: Driver) -> None:
    driver.session.tables.create(TABLE.format(driver.write_table(0)))
    (query,) = driver.create(LOOKUP.format("purchases"))
    driver.session.queries.delete(query)
    driver.write_table(2)
    driver.session.tables.refresh("packs")
    driver.session.write_snapshot()
    driver.table_rows[driver.create(LOOKUP.format("purchases"))[0]] = 2
    driver.crash()
    check_tables(driver)


def test_a_query_whose_table_cannot_be_kept_is_refused(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.session.tables.create(TABLE.format(driver.write_table(1)))
    before = driver.observed()
    with monkeypatch.context() as full:

        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(Storage, "_put", fail)
        with pytest.raises(NotReady, match=r"rows of a table must be on disk.*No space left.*make room"):
            driver.create(LOOKUP.format("purchases"))
    assert driver.observed() == before
    assert driver.create(LOOKUP.format("purchases"))


def test_a_table_and_a_stream_have_different_names(driver: Driver) -> None:
    driver.session.tables.create(TABLE.format(driver.write_table(1)))
    with pytest.raises(Conflict, match="Cannot create stream 'PACKS': a table has this name"):
        driver.stream("PACKS")
    with pytest.raises(Conflict, match="Cannot create table 'purchases': a stream has this name"):
        driver.session.tables.create(TABLE.format(driver.write_table(1)).replace("packs", "purchases", 1))
    assert driver.session.tables.create(TABLE.format("x").replace("TABLE", "TABLE IF NOT EXISTS", 1))["id"] == "t-1"


def test_a_table_whose_file_does_not_fit_is_not_there(driver: Driver) -> None:
    path = driver.write_table(1)
    path.write_text("gem_pack,name\nx,y\n")
    with pytest.raises(NotAllowed, match="must be a BIGINT, got 'x'"):
        driver.session.tables.create(TABLE.format(path))
    assert driver.session.tables.describe_all() == []
    driver.session.tables.create(TABLE.format(driver.write_table(1)))
    path.unlink()
    with pytest.raises(NotAllowed, match="must exist where the service runs"):
        driver.create(LOOKUP.format("purchases"))


def test_plan_snapshots_equal_what_the_changelogs_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_snapshot, "EVERY_EPOCHS", 4)
    with arbitrary_plans():
        driver = Driver(tmp_path / "data")
    driver.stream()
    live = LiveQueries()
    mixed = AGGREGATION.replace("WHERE", "WHERE user_id = gem_pack AND")
    for number in range(12):
        sql = (SELECTION, AGGREGATION, TESTED_JOIN, mixed)[number % 4]
        driver.create(sql.format("purchases", number))
        if number % 4 == 2:
            driver.session.queries.delete(f"q-{number}")
        driver.flush()
        driver.session.reoptimize()
        record = driver.batch({"s-1": 10 * number})
        for epoch in range(live.epoch + 1, record["epoch"] + 1):
            live.apply(driver.changelogs()[epoch - 1], record["clocks_at_start"])
        names = driver.storage.names("plans")
        if names and int(names[-1][:12]) == live.epoch:
            document = driver.storage.get_json(f"plans/{names[-1]}")
            assert sorted(document["queries"], key=lambda q: q["slot"]) == sorted(
                live.to_json()["queries"], key=lambda q: q["slot"]
            )
            assert {k: v for k, v in document.items() if k != "queries"} == {
                k: v for k, v in live.to_json().items() if k != "queries"
            }
    assert len(driver.storage.names("plans")) >= 2
    assert {query.is_alone for query in live.by_slot.values()} == {False, True}
    assert any(record["regrouped"] for record in driver.changelogs())
    numbers = [split["number"] for record in driver.changelogs() for split in record["split"]]
    assert len(set(numbers)) > 2
    assert any(former == later for former, later in pairwise(numbers)), "windows from before a split are over"
    assert driver.state.active.splits == live.splits
    assert driver.state.plan.groups == {q.id: q.group for q in driver.state.active.queries if q.group}
    assert driver.recovered() == driver.observed()
    driver.end()


def test_recovery_of_an_empty_folder_is_an_empty_state(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    state = SessionState()
    Snapshots(storage, Archive(storage)).load(state)
    replay_logs(storage, state, Idempotency(storage))
    assert (state.epoch, state.applied_seq, len(state.queries)) == (0, 0, 0)
