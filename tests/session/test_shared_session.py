"""Streams and queries of a shared session: how they come, run and go, also by many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from braid.operators.kinds import source_operators
from braid.session.commands.query_requests import QueryRequest
from braid.session.settings import Settings
from braid.session.shared_session import SharedSession
from braid.sources.core.errors import (
    Conflict,
    NotAllowed,
    NotReady,
)
from braid.sources.core.storage import Storage
from tests.session.driver import AGGREGATION, BEGINNING, SECOND, SELECTION, STREAM, Driver

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
        "open_window": None,
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
    (query_id,) = driver.run(f"SELECT k FROM {other}", name=2 * other)
    assert driver.session.lookup.id_of(2 * other) == driver.session.lookup.id_of(2 * one) == query_id
    for taken in (other, 2 * one):
        with pytest.raises(Conflict, match="has this name"):
            driver.run(f"SELECT k FROM {one}", name=taken)
    with pytest.raises(Conflict, match="a query has this name"):
        driver.session.streams.create(create.format(2 * one))
