"""What the shared session accepts, refuses, batches and reports."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from braid.operators.joins.query import Join
from braid.operators.kinds import source_operators
from braid.router.deployment import Deployment
from braid.session.commands.query_requests import QueryRequest
from braid.session.commands.writer import Started
from braid.session.log.journal import Journal
from braid.session.settings import Settings
from braid.session.shared_session import SharedSession
from braid.sources.core.errors import (
    BraidError,
    Conflict,
    CorruptData,
    Gone,
    MalformedRequest,
    NotAllowed,
    NotReady,
    Overloaded,
    UnknownObject,
)
from braid.sources.core.storage import Storage
from tests.session.driver import AGGREGATION, BEGINNING, LOOKUP, SECOND, SELECTION, STREAM, TABLE, Driver

CHEAP = SELECTION.format("purchases", 5)
REVENUE = AGGREGATION.format("purchases", 5)


# streams


def test_a_stream_is_in_a_changelog_when_its_creation_is_answered(driver: Driver) -> None:
    (changelog,) = driver.changelogs()
    assert [stream["name"] for stream in changelog["streams_created"]] == ["purchases"]
    assert changelog["why"] == "stream purchases created"
    body = driver.session.streams.describe("PURCHASES")
    assert body["columns"][3] == {"name": "time", "type": "TIMESTAMP", "event_time": True}
    assert body["source"]["connector"] == "push"
    assert (body["clock"], body["watermark"], body["tuples"]) == (None, None, 0)


def test_a_stream_reports_what_batches_took_in(driver: Driver) -> None:
    driver.batch({"s-1": 10})
    driver.batch({"s-1": 5})
    body = driver.session.streams.describe("purchases")
    assert (body["clock"], body["watermark"]) == (
        "2023-11-14T22:13:30.000000Z",
        "2023-11-14T22:13:28.000000Z",
    )
    assert (body["tuples"], body["bytes"]) == (2, 140)


def test_a_stream_reports_the_options_of_its_watermark_and_whether_it_is_idle(driver: Driver) -> None:
    options = "max_future = 'none', idle_timeout = '90 s', watermark_percentile = '99.5'"
    driver.session.streams.create(STREAM.format("ads").replace("format = 'json'", f"format = 'json', {options}"))
    fields = ("max_future_seconds", "idle_timeout_seconds", "watermark_percentile", "idle")
    assert [driver.session.streams.describe("purchases")[name] for name in fields] == [3600.0, None, None, False]
    assert [driver.session.streams.describe("ads")[name] for name in fields] == [None, 90.0, 99.5, False]
    assert driver.session.streams.describe("ads")["source"]["options"] == {}
    driver.flush()
    driver.batch({"s-1": 10}, idle=["s-2"])
    assert [driver.session.streams.describe(name)["idle"] for name in ("purchases", "ads")] == [False, True]
    driver.restart()
    assert [driver.session.streams.describe(name)["idle"] for name in ("purchases", "ads")] == [False, True]
    assert [driver.session.streams.describe("ads")[name] for name in fields] == [None, 90.0, 99.5, True]
    driver.batch({"s-2": 10})
    assert not driver.session.streams.describe("ads")["idle"]


def test_a_stream_in_use_cannot_be_dropped_and_its_name_is_free_afterwards(driver: Driver) -> None:
    (query,) = driver.run(CHEAP)
    with pytest.raises(Conflict, match="q-1"):
        driver.session.streams.drop("purchases")
    driver.session.queries.delete(query, drain=False)
    driver.flush()
    driver.batch()
    driver.session.streams.drop("purchases")
    assert driver.session.streams.describe_all() == []
    assert driver.changelogs()[-1]["streams_dropped"] == ["s-1"]
    assert driver.session.lookup.describe(query)["active_from"] == {"purchases": None}
    assert driver.session.plans.of_query(query)["streams"] == ["purchases"]
    assert driver.stream() == "s-2", "another stream, though of the same name"
    assert driver.recovered() == driver.observed()


# queries


def test_a_query_runs_from_when_its_batch_is_planned(driver: Driver) -> None:
    driver.batch({"s-1": 10})
    calls: list[str] = []
    driver.session.on_deployment(lambda: calls.append("deployed"))
    (query,) = driver.create(CHEAP)
    driver.flush()
    assert driver.session.lookup.describe(query)["state"] == "PENDING"
    planned = driver.plan()
    early = driver.session.lookup.describe(query)
    assert early.pop("waiting_for")["reason"] == "no_tuple"
    assert early["state"] == "RUNNING"
    assert early["active_from"] == {"purchases": "2023-11-14T22:13:30.000000Z"}
    assert calls == ["deployed"]
    (later,) = driver.create(CHEAP)
    driver.flush()
    assert driver.session.lookup.describe(later)["state"] == "PENDING", "the next batch takes it in"
    driver.crash()
    recovered = driver.session.lookup.describe(query)
    assert recovered.pop("waiting_for")["reason"] == "no_tuple"
    assert recovered == early
    driver.batch({"s-1": 11}, epoch=planned.epoch, planned=planned)
    applied = driver.session.lookup.describe(query)
    assert applied.pop("waiting_for")["reason"] == "filtered", "a tuple came, and the query has no row"
    assert applied == early
    assert driver.session.lookup.describe(later)["state"] == "PENDING"
    driver.batch({"s-1": 12})
    assert driver.session.lookup.describe(later)["state"] == "RUNNING"
    assert driver.session.lookup.describe(later)["active_from"] == {"purchases": "2023-11-14T22:13:31.000000Z"}


def test_a_query_that_is_deleted_while_its_batch_runs_drains(driver: Driver) -> None:
    driver.batch({"s-1": 10})
    (query,) = driver.create(CHEAP)
    driver.flush()
    planned = driver.plan()
    driver.session.queries.delete(query)
    driver.batch({"s-1": 11}, epoch=planned.epoch, planned=planned)
    assert driver.session.lookup.describe(query)["state"] == "DRAINING"
    driver.flush()
    driver.batch({"s-1": 12})
    assert driver.session.lookup.describe(query)["active_to"] == {"purchases": "2023-11-14T22:13:31.000000Z"}


def test_a_query_is_pending_then_running_with_a_slot_and_its_active_from(driver: Driver) -> None:
    driver.batch({"s-1": 10})
    (accepted,) = driver.session.queries.create(
        [QueryRequest(CHEAP, name="cheap", sink="log", ttl_seconds=60, labels={"team": "a"})]
    )
    assert (accepted["state"], accepted["slot"], accepted["epoch"]) == ("PENDING", None, None)
    driver.flush()
    assert driver.session.lookup.describe("q-1")["state"] == "PENDING"
    driver.batch({"s-1": 11})
    body = driver.session.lookup.describe("q-1")
    created, deployed = body.pop("created_at"), body.pop("deployed_at")
    assert created < deployed
    assert body.pop("waiting_for")["reason"] == "filtered", "a tuple came, and the query has no row"
    assert body == {
        "id": "q-1",
        "name": "cheap",
        "sql": CHEAP,
        "state": "RUNNING",
        "start": None,
        "replays": None,
        "progress": None,
        "joined": None,
        "slot": 0,
        "epoch": 2,
        "active_from": {"purchases": "2023-11-14T22:13:30.000000Z"},
        "active_to": {"purchases": None},
        "deployment_latency_seconds": 0.11,
        "rows_out": 0,
        "last_result_at": None,
        "event_time_latency_seconds": None,
        "group": None,
        "operator": "selection:s-1",
        "sink": "log",
        "subquery": False,
        "error": None,
        "labels": {"team": "a"},
        "ttl_seconds": 60,
        "delivery": None,
        "tenant": None,
        "deployments": [],
        "replaces": None,
        "replaced_by": None,
    }


def test_a_batch_of_an_earlier_epoch_does_not_make_a_query_run(driver: Driver) -> None:
    driver.batch()
    driver.create(CHEAP)
    driver.flush()
    driver.batch({"s-1": 10}, epoch=1)
    assert driver.session.lookup.describe("q-1")["state"] == "PENDING"
    driver.batch()
    assert driver.session.lookup.describe("q-1")["active_from"] == {"purchases": "2023-11-14T22:13:30.000000Z"}


def test_results_count_for_the_query_that_held_the_slot_at_the_batchs_epoch(driver: Driver) -> None:
    (first,) = driver.run(CHEAP)
    driver.session.queries.delete(first, drain=False)
    (second,) = driver.create(CHEAP)
    driver.flush()
    assert [c["slot"] for c in driver.changelogs()[-1]["created"]] == [0], "the freed slot is refilled"
    latest = BEGINNING + SECOND
    driver.batch(results=[(0, 3, latest)], epoch=driver.state.active_epoch)
    assert [driver.session.lookup.describe(q)["rows_out"] for q in (first, second)] == [3, 0]
    record = driver.batch(results=[(0, 4, latest)])
    assert [driver.session.lookup.describe(q)["rows_out"] for q in (first, second)] == [3, 4]
    latency = driver.session.lookup.describe(second)["event_time_latency_seconds"]
    assert latency == (record["committed_us"] - latest) / 1e6


def test_a_failed_query_says_why_and_gives_its_slot_back(driver: Driver) -> None:
    failing, running = driver.run(CHEAP, REVENUE)
    driver.batch(failures={failing: "evaluation raised"})
    body = driver.session.lookup.describe(failing)
    assert (body["state"], body["error"]) == ("FAILED", "evaluation raised")
    assert driver.session.lookup.describe(running)["state"] == "RUNNING"
    driver.flush()
    assert driver.changelogs()[-1]["freed"] == [{"id": failing, "slot": 0}]
    driver.session.queries.delete(failing)
    assert driver.session.lookup.describe(failing)["state"] == "FAILED"


def test_a_query_deleted_before_its_changelog_never_runs(driver: Driver) -> None:
    (query,) = driver.create(CHEAP)
    epoch = driver.session.epoch
    assert driver.session.queries.delete(query)["state"] == "RETIRED"
    driver.flush()
    assert driver.session.epoch == epoch, "there is nothing to tell"
    assert driver.recovered() == driver.observed()


def test_deleting_again_changes_nothing(driver: Driver) -> None:
    (query,) = driver.run(CHEAP, name="cheap")
    driver.session.queries.delete("cheap")
    before = driver.observed()
    driver.session.queries.delete(query)
    driver.session.queries.delete("cheap")
    assert driver.observed() == before


def test_a_name_is_free_again_once_its_query_is_deleted(driver: Driver) -> None:
    (first,) = driver.run(CHEAP, name="cheap")
    driver.session.queries.delete("cheap")
    (second,) = driver.run(CHEAP, name="cheap")
    assert first != second
    driver.session.queries.delete("cheap")
    assert driver.session.lookup.describe(second)["state"] == "DRAINING"


Refused = list[tuple[Callable[[SharedSession], Any], type[BraidError], str]]
REFUSED: Refused = [
    (lambda s: s.queries.create([]), MalformedRequest, "At least one query"),
    (
        lambda s: s.queries.create([QueryRequest(CHEAP), QueryRequest("SELECT nothing FROM purchases")]),
        NotAllowed,
        "Query 2 of 2: .*nothing",
    ),
    (lambda s: s.queries.create([QueryRequest("SELEC")]), MalformedRequest, "SELEC"),
    (lambda s: s.queries.create([QueryRequest("DROP STREAM purchases")]), NotAllowed, "must be SELECT"),
    (lambda s: s.queries.create([QueryRequest(CHEAP, name="taken")]), Conflict, "'taken'"),
    (
        lambda s: s.queries.create([QueryRequest(CHEAP, name="a"), QueryRequest(CHEAP, name="a")]),
        Conflict,
        "'a'",
    ),
    (
        lambda s: s.queries.create([QueryRequest(CHEAP, name="fresh"), QueryRequest(f"CREATE QUERY taken AS {CHEAP}")]),
        Conflict,
        "'taken'",
    ),
    (lambda s: s.queries.create([QueryRequest(CHEAP, name="q-7")]), NotAllowed, "look like an id"),
    (lambda s: s.queries.create([QueryRequest(CHEAP, name="_x")]), NotAllowed, "rename the query '_x'"),
    (lambda s: s.queries.create([QueryRequest(CHEAP, name="a/b")]), NotAllowed, "no '/'"),
    (lambda s: s.queries.create([QueryRequest(CHEAP, sink="kafka")]), NotAllowed, '"log".*kafka'),
    (lambda s: s.queries.create([QueryRequest(CHEAP, ttl_seconds=0)]), NotAllowed, "ttl_seconds"),
    (lambda s: s.queries.create([QueryRequest(CHEAP, ttl_seconds=float("nan"))]), NotAllowed, "ttl_seconds"),
    (lambda s: s.queries.create([QueryRequest(CHEAP, labels={"a": 1})]), NotAllowed, "labels"),  # type: ignore[dict-item]
    (lambda s: s.queries.create([QueryRequest(CHEAP)] * 4), Overloaded, "max_queries"),
    (lambda s: s.streams.create(STREAM.format("Purchases")), Conflict, "Cannot create stream 'Purchases'"),
    (lambda s: s.streams.create(CHEAP), NotAllowed, "CREATE STREAM"),
    (
        lambda s: s.streams.create(
            "CREATE STREAM made (time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
            " WITH (connector = 'generator', dataset = 'many', rate = '1')"
        ),
        NotAllowed,
        "'many'",
    ),
    (lambda s: s.streams.drop("purchases"), Conflict, "q-1"),
    (lambda s: s.streams.drop("nowhere"), UnknownObject, "Streams: purchases"),
    (lambda s: s.tables.create("SHOW STREAMS"), NotAllowed, "declared with CREATE TABLE"),
    (lambda s: s.queries.delete("nobody"), UnknownObject, "'nobody'"),
    (lambda s: s.lookup.describe("q-99"), UnknownObject, "'q-99'"),
    (lambda s: s.streams.describe("nowhere"), UnknownObject, "nowhere"),
    (lambda s: s.lookup.page(state="ASLEEP"), MalformedRequest, "PENDING, CATCHING_UP, RUNNING"),
    (lambda s: s.lookup.page(limit=0), MalformedRequest, "limit"),
    (lambda s: s.lookup.page(cursor="x"), MalformedRequest, "cursor"),
    (lambda s: s.changelogs_json(-1), MalformedRequest, "after"),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED)
def test_a_refused_request_changes_nothing(
    open_driver: Callable[..., Driver],
    call: Callable[[SharedSession], Any],
    kind: type[BraidError],
    message: str,
) -> None:
    driver = open_driver(max_queries=4)
    driver.stream()
    driver.run(CHEAP, name="taken")
    before, on_disk = driver.observed(), driver.storage.size("")
    with pytest.raises(kind, match=message):
        call(driver.session)
    assert driver.observed() == before
    assert driver.storage.size("") == on_disk
    driver.create(CHEAP, name="a")  # nothing stayed reserved
    driver.stream("nowhere")


def test_a_request_that_cannot_reach_the_disk_changes_nothing(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    before = driver.observed()
    with monkeypatch.context() as patched:
        patched.setattr("braid.session.log.journal._sync", full)
        with pytest.raises(NotReady, match="No space left"):
            driver.create(CHEAP, name="cheap")
        with pytest.raises(NotReady, match="No space left"):
            driver.session.streams.drop("purchases")
    assert driver.observed() == {**before, "next_query": before["next_query"] + 1}
    assert driver.create(CHEAP, name="cheap") == ["q-2"], "an id is never given twice"


def test_commands_that_cannot_reach_the_disk_together_change_nothing(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    queries = driver.session.queries
    running, paused = driver.run(CHEAP, CHEAP)
    queries.begin_pause(paused).wait()
    before = driver.observed()
    begun: list[Started] = []

    def begin_all() -> None:
        """All wait while the writer does this, so they make one group."""
        begun.append(queries.begin_create([QueryRequest(CHEAP, name="cheap"), QueryRequest(REVENUE)]))
        begun.append(queries.begin_delete([running], drain=False))
        begun.append(queries.begin_resume(paused))

    with monkeypatch.context() as patched:
        patched.setattr("braid.session.log.journal._sync", full)
        driver.session._writer.call(begin_all)
        for started in begun:
            with pytest.raises(NotReady, match="No space left"):
                started.wait()
    assert driver.observed() == {**before, "next_query": before["next_query"] + 2}
    assert driver.recovered() == before
    driver.session._writer.call(begin_all)
    for started in begun[3:]:
        started.wait()
    assert driver.observed()["requests"] == before["requests"] + 1, "one record of the log"
    assert driver.recovered() == driver.observed()


def test_no_file_is_written_while_readers_are_kept_out(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, written = driver.session._lock, set[str]()

    def watched(kind: type, name: str) -> None:
        write = getattr(kind, name)

        def checked(self: Any, *arguments: Any, **options: Any) -> Any:
            assert not lock._is_owned(), f"{name} of {arguments[0]}"  # type: ignore[attr-defined]
            written.add(f"{kind.__name__}.{name} {str(arguments[0]).partition('/')[0]}")
            return write(self, *arguments, **options)

        monkeypatch.setattr(kind, name, checked)

    watched(Storage, "_put")
    watched(Journal, "append")
    driver.session.tables.create(TABLE.format(driver.write_table(1)))
    looking, other = driver.run(LOOKUP.format("purchases"), CHEAP, sink={"connector": "file", "path": "rows"})
    driver.write_table(2)
    driver.session.tables.refresh("packs")
    driver.session.queries.delete(other, drain=False)
    driver.session.queries.begin_pause(looking).wait()
    driver.flush()
    driver.batch()
    driver.session.write_snapshot()
    assert {name.split()[1] for name in written} >= {"changelogs", "tables", "deliveries", "queries", "session.json"}
    assert any(name.startswith("Journal") for name in written)


def test_a_changelog_that_cannot_be_written_is_written_later_before_the_next(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    driver.create(CHEAP)
    with monkeypatch.context() as patched:
        patched.setattr(driver.storage, "put", full)
        with pytest.raises(OSError, match="No space left"):
            driver.flush()
    driver.create(REVENUE)
    driver.flush()
    assert [[c["id"] for c in changelog["created"]] for changelog in driver.changelogs()] == [
        [],
        ["q-1"],
        ["q-2"],
    ]
    assert driver.recovered() == driver.observed()


# changelogs


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


def test_a_ttl_deletes_with_drain_also_after_a_restart(driver: Driver) -> None:
    driver.run(CHEAP, ttl_seconds=60)
    driver.clock.advance(30)
    driver.crash()
    driver.clock.advance(28)
    driver.session.step()
    assert driver.session.lookup.describe("q-1")["state"] == "RUNNING"
    driver.clock.advance(2)
    driver.session.step()
    assert driver.session.lookup.describe("q-1")["state"] == "DRAINING"
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
    driver.clock.advance(99)
    driver.session.step()
    assert driver.session.lookup.describe("q-1")["state"] == "RETIRED"
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


# reading


def test_queries_are_listed_in_pages_by_state_label_and_name(driver: Driver) -> None:
    driver.run(CHEAP, CHEAP, labels={"team": "a"})
    driver.create(REVENUE, labels={"team": "b"}, name="Whales")
    driver.create(REVENUE)
    page = driver.session.lookup.page(limit=3)
    assert [q["id"] for q in page["queries"]] == ["q-1", "q-2", "q-3"]
    page = driver.session.lookup.page(limit=3, cursor=page["cursor"])
    assert ([q["id"] for q in page["queries"]], page["cursor"]) == (["q-4"], None)

    def ids(**filters: str) -> list[str]:
        return [q["id"] for q in driver.session.lookup.page(**filters)["queries"]]  # type: ignore[arg-type]

    assert ids(state="PENDING") == ["q-3", "q-4"]
    assert ids(label="team") == ["q-1", "q-2", "q-3"]
    assert ids(label="team=b") == ["q-3"]
    assert ids(label="team=b", state="RUNNING") == []
    assert ids(name="HALE") == ["q-3"]
    assert ids(name="HALE", label="team=a") == ids(name="HALE", state="RUNNING") == ids(name="hall") == []
    assert ids(name="") == ["q-1", "q-2", "q-3", "q-4"]
    assert driver.session.lookup.count_by_state()["RUNNING"] == 2


def test_joins_are_as_they_are_written_where_their_orders_are_off(open_driver: Callable[..., Driver]) -> None:
    window = "[RANGE 4 SECONDS]"
    chain = (
        f"SELECT z.user_id FROM a {window} x, c {window} z, b {window} y"
        " WHERE x.user_id = y.user_id AND y.gem_pack = z.gem_pack"
    )
    for orders, reason in (("auto", "Each input is compared"), ("off", "Inputs are joined as they are written")):
        driver = open_driver(join_orders=orders)
        for name in "abc":
            driver.stream(name)
        assert reason in driver.session.queries.validate([QueryRequest(chain)])[0]["join_order"]["why"]
        (query_id,) = driver.run(chain)
        driver.restart()
        query = driver.session.lookup.deployed(query_id).query
        assert isinstance(query, Join)
        assert query.is_reordered == (orders == "auto")


def test_queries_have_operators_of_their_own_where_sharing_is_off(open_driver: Callable[..., Driver]) -> None:
    driver = open_driver(query_sharing="off")
    driver.stream("purchases")
    first, second = driver.run(REVENUE, REVENUE)
    driver.restart()
    plans = [driver.session.plans.of_query(query_id) for query_id in (first, second)]
    assert plans[0]["operator"] != plans[1]["operator"]
    assert [plan["shares_with"]["count"] for plan in plans] == [0, 0]
    assert driver.session.queries.validate([QueryRequest(REVENUE)])[0]["shares_with"]["count"] == 0


def test_validate_says_how_a_query_would_run_and_registers_nothing(driver: Driver) -> None:
    driver.run(REVENUE, REVENUE)
    before = driver.observed()
    answer = driver.session.queries.validate([QueryRequest(REVENUE, name="revenue")])[0]
    assert answer["kind"] == "aggregation"
    assert answer["operator"] == "aggregation:s-1:gem_pack"
    assert answer["shares_with"] == {"count": 2, "ids": ["q-1", "q-2"]}
    assert answer["window"]["size_seconds"] == 8
    assert answer["predicate_columns"] == ["price"]
    assert answer["columns"] == [
        {"name": "window_start", "type": "TIMESTAMP", "role": "window_start"},
        {"name": "window_end", "type": "TIMESTAMP", "role": "window_end"},
        {"name": "gem_pack", "type": "INT", "role": "group"},
        {"name": "revenue", "type": "DOUBLE", "role": "sum"},
        {"name": "_partial", "type": "BOOLEAN", "role": None},
    ]
    changes = driver.session.queries.validate([QueryRequest(f"{REVENUE} EMIT STREAM")])[0]
    assert changes["columns"] == [
        *answer["columns"],
        {"name": "_op", "type": "VARCHAR", "role": None},
        {"name": "_ptime", "type": "TIMESTAMP", "role": None},
        {"name": "_ver", "type": "BIGINT", "role": None},
    ]
    assert driver.observed() == before


def test_listeners_hear_each_batch_once_after_it_was_applied(driver: Driver) -> None:
    heard: list[tuple[int, int]] = []
    driver.session.on_batch(lambda record: heard.append((record["seq"], driver.session.applied_seq)))
    record = driver.batch()
    driver.session.apply_batch(record)
    driver.batch()
    assert heard == [(1, 1), (2, 2)]


def test_a_batch_out_of_order_is_refused(driver: Driver) -> None:
    record = driver.batch()
    for changes in ({"seq": 3}, {"seq": 2, "epoch": 5}):
        with pytest.raises(CorruptData, match="must be next"):
            driver.session.apply_batch({**record, **changes})


def test_a_reader_learns_where_a_querys_rows_are(driver: Driver) -> None:
    driver.run(CHEAP)
    deployed = driver.session.lookup.deployed("q-1")
    assert deployed.deployments == (Deployment(slot=0, epoch=2, first_seq=1, active_from={"s-1": None}),)
    assert (deployed.state, deployed.last_seq) == ("RUNNING", None)


# speed and threads


def test_a_thousand_queries_in_one_request_are_one_record_and_one_changelog(driver: Driver) -> None:
    requests = [QueryRequest(AGGREGATION.format("purchases", price)) for price in range(1000)]
    before = driver.state.requests, driver.state.epoch
    driver.session.queries.create(requests)
    driver.session.step()
    assert (driver.state.requests, driver.state.epoch) == (before[0] + 1, before[1] + 1)
    assert driver.changelogs()[-1]["capacity"] == len(driver.changelogs()[-1]["created"]) == 1000


def test_many_clients_at_once_get_different_ids_and_one_of_each_name(driver: Driver) -> None:
    outcomes: list[str] = []
    start = threading.Barrier(8)

    def client() -> None:
        start.wait(30)
        for number in range(10):
            try:
                outcomes.extend(driver.create(CHEAP, name=f"name{number}"))
            except Conflict:
                outcomes.append("conflict")

    clients = [threading.Thread(target=client) for _ in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(60)
    created = [outcome for outcome in outcomes if outcome != "conflict"]
    assert len(outcomes) == 80
    assert len(created) == len(set(created)) == 10
    assert list(driver.state.queries) == sorted(driver.state.queries, key=lambda q: int(q[2:]))
    assert driver.recovered() == driver.observed()


def test_a_started_session_follows_batches_by_itself(open_driver: Callable[..., Driver]) -> None:
    driver = open_driver(changelog_timeout_seconds=0)
    driver.stream()
    driver.end()
    session = SharedSession(driver.storage, driver.settings)
    with pytest.raises(NotReady, match="starting"):
        session.streams.create(STREAM.format("ads"))
    session.start()
    try:
        heard = threading.Event()
        session.on_batch(lambda _: heard.set())
        driver.session = session
        driver.batches.append(1, {**EMPTY_BATCH, "seq": 1})
        assert heard.wait(30)
        assert session.applied_seq == 1
    finally:
        session.close()
    assert session.snapshot_seq == 1


EMPTY_BATCH = {
    "epoch": 1,
    "clocks_at_start": {},
    "clocks": {},
    "watermarks": {},
    "fired": {},
    "committed_us": BEGINNING,
    "streams": {},
    "results": [],
}


def test_a_push_stream_is_not_declared_where_it_could_not_be_pushed_to() -> None:
    session = SharedSession(Storage("mock://bucket"), Settings())
    session.recover()
    with pytest.raises(NotAllowed, match="a data-dir that is a local folder, got 'mock://bucket'"):
        session.streams.create(STREAM.format("purchases"))
    assert session.streams.describe_all() == []
    session.close()


def test_the_statistics_of_what_is_dropped_go(driver: Driver) -> None:
    (kept,), (dropped,) = driver.run(REVENUE), driver.run(REVENUE.replace("gem_pack", "user_id"))
    sources = [source_operators(driver.state.queries[query].query) for query in (kept, dropped)]
    report = {"samples": {}, "sources": {"busy_us": {name: 1000 for names in sources for name in names}}}
    report["partitions"] = {"busy_us": dict.fromkeys(driver.state.plan.operators, 1000)}
    for second in range(2):
        record = {"committed_us": second * SECOND, "streams": {"s-1": {"tuples": 9}}, "report": report}
        driver.session._statistics.observe(record)
    driver.session.queries.delete(dropped, drain=False)
    driver.flush()
    driver.session.reoptimize()
    totals = driver.session._statistics._totals
    assert (set(totals.sources), set(totals.partitions)) == ({*sources[0]}, {*driver.state.plan.operators})
    assert set(totals.tuples) == {"s-1"}


def test_an_operator_whose_queries_are_all_alone_is_left_as_it_is(driver: Driver) -> None:
    both = REVENUE.replace("price >", "user_id > 1 AND price >")
    driver.run(both, both.replace("user_id > 1", "user_id = gem_pack"))
    (operator,) = driver.state.plan.operators.values()
    assert operator.alone == set(operator.queries), "few queries test what they test"
    before = driver.observed()
    driver.session.reoptimize()
    assert driver.observed() == before


def test_two_spellings_of_one_name_are_one_name(driver: Driver) -> None:
    one, other = "\uac00", "\u1100\u1161"  # a syllable of Hangul, and its letters
    columns = "(k BIGINT, t TIMESTAMP LATENESS INTERVAL '1' SECOND)"
    create = f"CREATE STREAM {{}} {columns} WITH (connector = 'push', format = 'json')"
    driver.session.streams.create(create.format(one))
    with pytest.raises(Conflict):
        driver.session.streams.create(create.format(other))
    assert driver.session.streams.describe(other)["name"] == one
    (query_id,) = driver.run(f"SELECT k FROM {other}", name=other)
    assert driver.session.lookup.id_of(other) == driver.session.lookup.id_of(one) == query_id
    with pytest.raises(Conflict):
        driver.run(f"SELECT k FROM {one}", name=one)
