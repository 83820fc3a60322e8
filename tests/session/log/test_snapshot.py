"""Snapshots: what is over goes to disk and stays known, what runs is written once, a crash in between is harmless."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from braid.operators.live_queries import LiveQueries
from braid.session.log import plan_snapshot, snapshot
from braid.session.state.query_record import FAILED, RETIRED
from braid.sources.core.errors import CorruptData, Gone, UnknownObject
from tests.session.driver import AGGREGATION, BEGINNING, SELECTION, Driver

CHEAP = SELECTION.format("purchases", 5)
REVENUE = AGGREGATION.format("purchases", 5)


@pytest.fixture
def mixed(driver: Driver) -> Driver:
    """A driver with q-1 RETIRED, q-2 RUNNING, q-3 FAILED and q-4 RETIRED before it ran; q-1 and q-4 are called x."""
    driver.run(CHEAP, name="x", labels={"team": "a"})
    driver.run(CHEAP, REVENUE)
    driver.batch({"s-1": 10}, [(0, 5, BEGINNING)], failures={"q-3": "evaluation raised"})
    driver.session.queries.delete("q-1", drain=False)
    driver.flush()
    driver.batch()
    driver.create(CHEAP, name="x")
    driver.session.queries.delete("x")
    return driver


def ids_in_memory(driver: Driver) -> set[str]:
    """Return the ids of the queries in memory."""
    return set(driver.state.queries)


def test_queries_that_are_over_go_to_disk_and_are_answered_alike(mixed: Driver) -> None:
    def answers() -> list[object]:
        session, ids = mixed.session, [f"q-{n}" for n in range(1, 5)]
        pages = [session.lookup.page(**filters)["queries"] for filters in FILTERS]  # type: ignore[arg-type]
        page = session.lookup.page(limit=2)
        page = session.lookup.page(limit=2, cursor=page["cursor"])
        assert [q["id"] for q in page["queries"]] == ["q-3", "q-4"]
        assert session.lookup.page(limit=2, cursor=page["queries"][-1]["id"]) == {"queries": [], "cursor": None}
        newest = session.lookup.page(limit=3, order="newest")
        assert [q["id"] for q in newest["queries"]] == ["q-4", "q-3", "q-2"]
        oldest = session.lookup.page(cursor=newest["cursor"], order="newest")
        assert ([q["id"] for q in oldest["queries"]], oldest["cursor"]) == (["q-1"], None)
        return [
            [session.lookup.describe(query_id) for query_id in ids],
            [session.lookup.deployed(query_id) for query_id in ids],
            [
                {k: v for k, v in session.plans.of_query(query_id).items() if k not in ("plan_version", "statistics")}
                for query_id in ids
            ],
            [session.queries.delete(name) for name in (*ids[:1], *ids[2:], "x")],
            pages,
            session.lookup.count_by_state(),
        ]

    before = answers()
    assert ids_in_memory(mixed) == {"q-1", "q-2", "q-3", "q-4"}
    for disturb in (mixed.session.write_snapshot, mixed.crash, mixed.restart):
        disturb()
        assert ids_in_memory(mixed) == {"q-2"}
        assert answers() == before
        assert mixed.recovered() == mixed.observed()
    assert mixed.session.queries.delete("x")["id"] == "q-4", "the newest of that name"
    assert mixed.create(CHEAP, name="x") == ["q-5"]
    with pytest.raises(UnknownObject):
        mixed.session.queries.delete("y")


FILTERS: list[dict[str, Any]] = [
    {},
    {"state": "RETIRED"},
    {"state": "FAILED"},
    {"state": "RUNNING"},
    {"label": "team"},
    {"label": "team=b"},
    {"label": "team=a", "state": "RETIRED"},
    {"text": "PRICE >"},
    {"text": "x", "order": "newest"},
]


def test_what_is_over_is_gone_after_its_retention_from_disk_too(open_driver: Callable[..., Driver]) -> None:
    driver = open_driver(retention_seconds=100)
    driver.stream()
    for number in range(1, 4):
        driver.create(CHEAP, name="x")
        driver.session.queries.delete(f"q-{number}")
        driver.session.write_snapshot()
        driver.clock.advance(40)
    driver.session.step()
    driver.restart()
    driver.session.step()
    assert [q["id"] for q in driver.session.lookup.page()["queries"]] == ["q-2", "q-3"]
    assert driver.session.lookup.count_by_state()[RETIRED] == 2
    with pytest.raises(Gone, match="q-1"):
        driver.session.lookup.describe("q-1")
    assert len(driver.storage.names("finished")) == 2, "the files go with the next snapshot"
    driver.clock.advance(200)
    driver.session.step()
    with pytest.raises(UnknownObject):
        driver.session.queries.delete("x")
    driver.session.write_snapshot()
    assert driver.storage.names("finished") == []
    assert driver.recovered() == driver.observed()


POINTS = ("put finished", "put queries", "put session.json", "delete queries", "delete finished", "trim")


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("is_done", [False, True])
def test_a_crash_at_any_point_of_a_snapshot_loses_and_doubles_nothing(
    mixed: Driver, monkeypatch: pytest.MonkeyPatch, point: str, is_done: bool
) -> None:
    mixed.session.write_snapshot()  # so that the next one has old files to remove
    mixed.clock.advance(mixed.settings.retention_seconds + 1)
    mixed.create(CHEAP, CHEAP, CHEAP)
    for query_id in ("q-2", "q-5"):
        mixed.session.queries.delete(query_id, drain=False)
    mixed.flush()
    mixed.batch({"s-1": 12})
    mixed.clock.advance(1)
    mixed.session.step()
    assert mixed.storage.names("finished"), "what has expired is still there"
    before = mixed.observed()
    action, _, path = point.partition(" ")
    died = False

    def dying(real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object, **options: object) -> None:
            nonlocal died
            hit = action == "trim" or (not died and str(arguments[0]).startswith(path))
            if hit and not is_done:
                died = True
                raise KeyboardInterrupt
            real(*arguments, **options)
            if hit:
                died = True
                raise KeyboardInterrupt

        return call

    target: object = mixed.session._writer if action == "trim" else mixed.session._storage
    with monkeypatch.context() as patched:
        patched.setattr(target, action, dying(getattr(target, action)))
        with contextlib.suppress(KeyboardInterrupt):
            mixed.session.write_snapshot()
    assert died
    mixed.crash()
    mixed.session.step()
    recovered = mixed.observed()
    assert everything(recovered) == everything(before)
    mixed.session.write_snapshot()
    assert everything(mixed.observed()) == everything(before)
    assert mixed.recovered() == mixed.observed()
    for folder, field in (("finished", "archive"), ("queries", "segments")):
        document = orjson.loads(mixed.storage.get(snapshot.PATH))
        assert [int(name[:12]) for name in mixed.storage.names(folder)] == sorted(document[field])
    assert mixed.storage.names("requests") == []


def everything(observed: dict[str, object]) -> dict[str, object]:
    """Return a state without the difference between memory and archive."""
    in_memory, archived = observed["queries"], observed["archived"]
    assert isinstance(in_memory, list)
    assert isinstance(archived, list)
    differing = {"queries", "archived", "states", "finished", "names"}
    rest = {name: value for name, value in observed.items() if name not in differing}
    return rest | {"all": sorted([*in_memory, *archived], key=lambda query: int(query["id"][2:]))}


def test_a_head_is_written_a_few_times_however_many_snapshots_come(driver: Driver) -> None:
    heads_written = 0
    ids: list[str] = []
    heads_before: dict[str, int] = {}
    for number in range(40):
        ids += driver.run(*[CHEAP] * 5)
        for query_id in ids[: 5 * (number % 2)]:
            driver.session.queries.delete(query_id, drain=False)
        ids = ids[5 * (number % 2) :]
        driver.flush()
        driver.batch()
        driver.session.write_snapshot()
        heads_now = {
            name: driver.storage.get(f"queries/{name}").count(b"\n") for name in driver.storage.names("queries")
        }
        heads_written += sum(count for name, count in heads_now.items() if name not in heads_before)
        heads_before = heads_now
        assert sum(heads_now.values()) <= 2 * len(ids) + 5, "half of what is kept is needed, at least"
    assert len(ids) == 100
    assert heads_written <= 2 * 200
    assert driver.recovered() == driver.observed()


def test_a_missing_head_is_said(driver: Driver) -> None:
    driver.run(CHEAP)
    driver.session.write_snapshot()
    (name,) = driver.storage.names("queries")
    whole = driver.storage.get(f"queries/{name}")
    flipped = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole) - 1, 20)]
    for damaged in (whole[:-9], *flipped):
        driver.storage.put(f"queries/{name}", damaged)
        with pytest.raises(CorruptData, match=f"queries/{name} must hold what was written"):
            driver.recovered()
    driver.storage.put(f"queries/{name}", b"")
    with pytest.raises(CorruptData, match="head of query 'q-1'"):
        driver.recovered()
    driver.storage.delete(f"queries/{name}")
    with pytest.raises(CorruptData, match="must be in queries/000000000001"):
        driver.recovered()
    driver.storage.put(f"queries/{name}", whole)
    snapshot = driver.storage.get("session.json")
    for at in range(0, len(snapshot), 40):
        driver.storage.put("session.json", snapshot[:at] + bytes([snapshot[at] ^ 1]) + snapshot[at + 1 :])
        with pytest.raises(CorruptData, match=r"session\.json must hold JSON"):
            driver.recovered()
    driver.storage.put("session.json", snapshot[:-9])
    with pytest.raises(CorruptData, match=r"session\.json must hold JSON"):
        driver.recovered()


def test_plan_snapshots_come_while_changelogs_wait_for_their_batch(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_snapshot, "EVERY_EPOCHS", 3)
    live, compared = LiveQueries(), 0
    for number in range(20):
        driver.create(CHEAP, REVENUE)
        for query_id in (f"q-{2 * number - 3}", f"q-{2 * number - 2}")[: max(0, number - 1)]:
            driver.session.queries.delete(query_id, drain=number % 3 == 0)
        if number in (4, 5):
            driver.stream(f"stream{number}")
        if number == 8:
            driver.session.streams.drop("stream4")
        driver.flush()
        record = driver.batch({"s-1": number}, epoch=driver.state.epoch - min(number % 3, 1))
        if number == 10:
            driver.crash()
        for epoch in range(live.epoch + 1, record["epoch"] + 1):
            live.apply(driver.changelogs()[epoch - 1], record["clocks_at_start"])
        for name in driver.storage.names("plans"):
            if int(name[:12]) == live.epoch:
                compared += 1
                snapshot_queries = LiveQueries(orjson.loads(driver.storage.get(f"plans/{name}")))
                assert snapshot_queries.by_slot == live.by_slot
                assert (snapshot_queries.streams, snapshot_queries.capacity) == (live.streams, live.capacity)
    assert compared >= 4


def test_listeners_hear_which_slots_changed_hands(driver: Driver) -> None:
    holders: dict[int, str] = {}

    def listen(changes: list[tuple[int, object]]) -> None:
        for slot, holder in changes:
            if holder is None:
                del holders[slot]
            else:
                holders[slot] = holder.id  # type: ignore[attr-defined]

    driver.session.on_slots(listen)
    driver.run(CHEAP, CHEAP)
    assert holders == {0: "q-1", 1: "q-2"}
    driver.create(CHEAP)
    driver.session.queries.delete("q-1", drain=False)
    driver.flush()
    assert holders == {0: "q-1", 1: "q-2"}, "no batch has it yet"
    driver.batch()
    assert holders == {0: "q-3", 1: "q-2"}
    driver.batch(failures={"q-2": "evaluation raised"})
    driver.flush()
    driver.batch()
    assert holders == {0: "q-3"}
    assert [(slot, holder.id) for slot, holder in driver.session.lookup.slots() if holder] == [(0, "q-3")]
    assert driver.session.lookup.count_by_state()[FAILED] == 1
