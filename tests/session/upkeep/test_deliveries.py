"""What deliverers are told of queries with sinks, whatever happens in between; and what they tell back."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braid.router.delivery.delivery_log import FOLDER, RECORDS_A_WHOLE, DeliveryFollower, DeliveryWriter
from braid.router.delivery.progress import DONE, PARTS, DeliveryProgress, part_of, write_alive, write_progress
from braid.session.commands.query_requests import Replacement
from braid.session.log.archive import Archive
from braid.session.upkeep.deliveries import SinkDeliveries
from braid.sources.core.errors import NotAllowed
from braid.sources.core.record_log import RecordLog
from tests.session.driver import SELECTION, Driver

FILE = {"connector": "file", "path": "rows"}
STEPS = st.lists(
    st.sampled_from(
        [
            "create",
            "create",
            "plain",
            "delete",
            "delete now",
            "pause",
            "pause",
            "resume",
            "resume",
            "replace",
            "batch",
            "batch",
            "crash",
            "restart",
            "cut off",
            "disk full",
        ]
    ),
    max_size=40,
)


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def new_follower(driver: Driver) -> DeliveryFollower:
    """Return what a deliverer that starts now is told."""
    follower = DeliveryFollower(driver.storage)
    follower.follow()
    return follower


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_at_each_batch_deliverers_know_whose_its_slots_are(steps: list[str]) -> None:
    """Steps may be cut off between a batch that is applied and what would be told of it."""
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(Path(folder), drain_timeout=1.0)
        driver.stream()
        sinks: set[str] = set()
        holders: dict[int, dict[int, str]] = {}

        def batch() -> None:
            driver.batch()
            slots = driver.state.active.slots
            holders[driver.state.active_epoch] = {
                slot: query.id for slot, query in slots if query is not None and query.id in sinks
            }

        for number, step in enumerate(steps):
            if step in ("create", "plain"):
                fields = {"sink": FILE} if step == "create" else {}
                ids = driver.create(SELECTION.format("purchases", number), **fields)
                sinks |= set(ids) if step == "create" else set()
                driver.flush()
            elif step.startswith("delete"):
                running = [query for query in driver.state.queries.values() if query.state == "RUNNING"]
                if running:
                    driver.session.queries.delete(running[number % len(running)].id, drain=step == "delete")
                    driver.flush()
            elif step in ("pause", "resume", "replace"):
                state = "PAUSED" if step == "resume" else "RUNNING"
                chosen = [query for query in driver.state.queries.values() if query.state == state]
                if chosen:
                    query = chosen[number % len(chosen)]
                    if step == "replace":
                        bodies = driver.session.queries.begin_replace(query.id, Replacement(query.sql)).wait()
                        sinks |= {bodies[0]["id"]} if query.id in sinks else set()
                    else:
                        getattr(driver.session.queries, f"begin_{step}")(query.id).wait()
                    driver.flush()
            elif step == "batch":
                batch()
            elif step == "cut off":
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(SinkDeliveries, "follow", lambda *_: None)
                    batch()
                driver.crash()
            elif step == "disk full":
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(DeliveryWriter, "_append", full)
                    batch()
            else:
                getattr(driver, step)()
        batch()
        driver.clock.advance(1)
        driver.session.step()
        deliveries = new_follower(driver).deliveries
        for query_id, delivered in deliveries.queries.items():
            record = driver.state.queries.find(query_id)
            is_over = record is None or (record.has_ended and delivered.open_slot is None)
            assert delivered.is_over == is_over, query_id
        for epoch, expected in holders.items():
            slots = {delivered.id: delivered.slot_at(epoch) for delivered in deliveries.queries.values()}
            assert {slot: query_id for query_id, slot in slots.items() if slot is not None} == expected, (
                f"epoch {epoch}"
            )
        driver.end()


def test_a_delivery_is_over_when_a_paused_query_is_deleted_though_no_batch_comes(driver: Driver) -> None:
    (query,) = driver.run(SELECTION.format("purchases", 5), sink=FILE)
    driver.session.queries.begin_pause(query).wait()
    for _ in range(2):
        driver.flush()
        driver.batch()
    assert not new_follower(driver).deliveries.queries[query].is_over
    driver.session.queries.delete(query)
    driver.clock.advance(1)
    driver.session.step()
    assert new_follower(driver).deliveries.queries[query].is_over


def test_what_was_told_before_queries_paused_reads_back(driver: Driver) -> None:
    first, second = driver.run(*[SELECTION.format("purchases", 5)] * 2, sink=FILE)
    driver.session.queries.delete(first, drain=False)
    driver.flush()
    driver.batch()
    before = new_follower(driver).deliveries
    assert [before.queries[query].is_over for query in (first, second)] == [True, False]
    for number in RecordLog(driver.storage, FOLDER).numbers():
        path = f"{FOLDER}/{number:012d}.json"
        record = driver.storage.get_json(path)
        del record["over"]
        for query in record["queries"]:
            (only,) = query.pop("deployments")
            del query["is_over"], only["active_to"]
            query |= only
        driver.storage.put(path, orjson.dumps(record))
    assert new_follower(driver).deliveries.queries == before.queries


def test_who_has_no_sink_costs_no_file(driver: Driver) -> None:
    driver.run(SELECTION.format("purchases", 5))
    assert driver.storage.names("deliveries/log") == []


def test_a_delivery_that_is_over_is_forgotten_with_its_query(driver: Driver) -> None:
    (query,) = driver.run(SELECTION.format("purchases", 5), sink=FILE)
    write_progress(driver.storage, part_of(query), {query: DeliveryProgress(state=DONE, rows=7)})
    driver.session.queries.delete(query, drain=False)
    for _ in range(RECORDS_A_WHOLE):
        driver.run(SELECTION.format("purchases", 6))
    assert query in new_follower(driver).deliveries.queries, "a restart would tell of it again while the query is known"
    driver.session.write_snapshot()
    for _ in range(RECORDS_A_WHOLE):
        driver.run(SELECTION.format("purchases", 6))
    assert query not in new_follower(driver).deliveries.queries
    assert driver.session.lookup.describe(query)["delivery"]["rows"] == 7


def test_what_deliverers_tell_is_shown(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braid.session.upkeep.deliveries.FRESH_SECONDS", -1.0)
    (query,) = driver.run(SELECTION.format("purchases", 5), sink={**FILE, "flush_rows": 5, "flush_seconds": 0.5})
    body = driver.session.lookup.describe(query)
    assert body["sink"] == {**FILE, "flush_rows": "5", "flush_seconds": "0.5"}
    assert (body["delivery"]["state"], body["delivery"]["rows"]) == ("STALLED", 0), "no deliverer runs"
    write_alive(driver.storage, "1-1", range(PARTS), time.time_ns() // 1000)
    progress = DeliveryProgress(
        rows=3, errors=1, error="down", state="RETRYING", waiting_since_us=1, delivered_us=1_000_000
    )
    write_progress(driver.storage, part_of(query), {query: progress})
    delivery = driver.session.lookup.describe(query)["delivery"]
    for order in ("oldest", "newest", "rows"):
        (listed,) = driver.session.lookup.page(order=order)["queries"]
        assert (listed["delivery"]["state"], listed["delivery"]["error"]) == ("RETRYING", "down"), order
    assert delivery.pop("lag_seconds") > 1e9
    assert delivery == {
        "state": "RETRYING",
        "rows": 3,
        "delivered_at": "1970-01-01T00:00:01.000000Z",
        "errors": 1,
        "error": "down",
        "gaps": 0,
        "refused": 0,
        "refusal": None,
        "gap": None,
    }


def test_the_first_sink_starts_the_deliverers(driver: Driver) -> None:
    calls = []
    driver.session.deliveries.on_wanted = lambda: calls.append(True)
    driver.run(SELECTION.format("purchases", 5))
    assert not calls
    driver.run(SELECTION.format("purchases", 6), sink=FILE)
    driver.run(SELECTION.format("purchases", 7), sink=FILE)
    assert calls == [True]
    restarted = SinkDeliveries(driver.storage, Archive(driver.storage))
    restarted.on_wanted = lambda: calls.append(True)
    restarted.bring_up(driver.state)
    assert calls == [True, True], "so does a restart while there is one"


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ("kafka", '"log" or an object'),
        ({"path": "x"}, "connector of a sink must be one of.*'file'"),
        ({"connector": "file"}, "needs the option 'path'"),
        ({"connector": "file", "path": ["x"]}, "must be a text, a number or a truth value"),
        ({"connector": "file", "path": "x", "flush_rows": "many"}, "flush_rows"),
        ({"connector": "file", "path": "x", "flush_seconds": -1}, "flush_seconds"),
        ({"connector": "postgres", "url": "postgresql://h/d", "table": "t", "mode": "upsert"}, "what tells rows apart"),
    ],
)
def test_a_sink_that_does_not_fit_is_refused(driver: Driver, sink: object, message: str) -> None:
    with pytest.raises(NotAllowed, match=message):
        driver.create(SELECTION.format("purchases", 5), sink=sink)
    assert driver.session.lookup.page()["queries"] == []


def test_sql_says_sinks_too(driver: Driver) -> None:
    sql = f"CREATE QUERY q WITH (connector = 'file', path = 'rows', flush_rows = 7) AS {SELECTION}"
    for price in (5, 6):
        (query,) = driver.run(sql.format("purchases", price).replace("QUERY q", f"QUERY q{price}"))
        assert driver.session.lookup.describe(query)["sink"] == {"connector": "file", "path": "rows", "flush_rows": "7"}
        assert query in new_follower(driver).deliveries.queries
    with pytest.raises(NotAllowed, match="must name one sink"):
        driver.create(sql.format("purchases", 7), sink=FILE)
    with pytest.raises(NotAllowed, match="needs the option 'path'"):
        driver.create(sql.replace(", path = 'rows'", "").format("purchases", 7))


def test_files_of_sinks_may_have_to_lie_in_a_folder(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "data", sink_folder=str(tmp_path / "rows"))
    driver.stream()
    with pytest.raises(NotAllowed, match="sink_folder"):
        driver.create(SELECTION.format("purchases", 5), sink={"connector": "file", "path": "/etc"})
    driver.create(SELECTION.format("purchases", 5), sink=FILE)
    driver.end()
