"""Queries that read queries, in the session: subqueries of their own, and what ends with what."""

from __future__ import annotations

from pathlib import Path

import pytest

from braid.engine.past_rows import past_of
from braid.operators.event_times import ENDED
from braid.router.result_reader import ResultReader
from braid.session.access.meters import Meters
from braid.session.access.principal import READ, Principal, Quotas
from braid.session.access.tenant_session import TenantSession
from braid.session.commands import named_relations
from braid.session.commands.admission import Owner
from braid.session.commands.query_requests import QueryRequest, Replacement
from braid.session.commands.relations import MAX_LEVELS
from braid.session.state import query_table
from braid.sources.core.derived import FIRST_ROW
from braid.sources.core.errors import Conflict, LimitReached, NotAllowed, Overloaded, UnknownObject
from tests.session.driver import BEGINNING, SECOND, Driver
from tests.session.relations import INNER, OVER, states, streams

NESTED = OVER.format(f"({INNER})")


def test_rows_of_a_query_are_a_stream_as_long_as_somebody_reads_them(driver: Driver) -> None:
    driver.run(INNER, name="revenue")
    assert streams(driver) == {"s-1"}
    (outer,) = driver.run(OVER.format("revenue"))
    assert streams(driver) == {"s-1", "q-1"}
    assert [stream["id"] for stream in driver.changelogs()[-1]["streams_created"]] == ["q-1"]
    assert driver.session.lookup.describe(outer)["active_from"] == {"revenue": None}
    assert [stream["name"] for stream in driver.session.streams.describe_all()] == ["purchases"]
    assert driver.recovered() == driver.observed()
    driver.session.queries.delete(outer, drain=False)
    driver.flush()
    assert driver.changelogs()[-1]["streams_dropped"] == ["q-1"]
    assert streams(driver) == {"s-1"}


def test_a_subquery_is_a_query_that_goes_with_the_last_that_reads_it(driver: Driver) -> None:
    first, second = driver.run(NESTED, f"SELECT n FROM ({INNER}) WHERE n > 3")
    (third,) = driver.run(f"SELECT gem_pack FROM ({INNER}) AS x")
    subqueries = [query for query in driver.state.queries.values() if query.is_subquery]
    assert [query.sql for query in subqueries] == [INNER]
    assert driver.recovered() == driver.observed()
    for query in (first, second):
        driver.session.queries.delete(query, drain=False)
        driver.flush()
        driver.batch()
        assert states(driver)[subqueries[0].id] == "RUNNING"
    driver.session.queries.delete(third, drain=False)
    assert states(driver)[subqueries[0].id] == "RETIRED"
    driver.flush()
    assert streams(driver) == {"s-1"}
    (again,) = driver.run(NESTED)
    assert states(driver)[again] == "RUNNING"
    assert [q.state for q in driver.state.queries.values() if q.is_subquery] == ["RETIRED", "RUNNING"]


def test_a_query_that_others_read_is_not_deleted(driver: Driver) -> None:
    driver.run(INNER, name="revenue")
    (middle,) = driver.run(OVER.format("revenue"), name="most")
    driver.run("SELECT m FROM most", name="all_of")
    with pytest.raises(Conflict, match=r"most reads its rows\. Delete most first, or both: "):
        driver.session.queries.delete("revenue")
    itself = Replacement(OVER.format("all_of").replace("n", "m"))
    with pytest.raises(Conflict, match="which it replaces"):
        driver.session.queries.begin_replace("all_of", itself).wait()
    assert set(states(driver).values()) == {"RUNNING"}
    driver.session.queries.begin_delete(["revenue"], False, cascade=True).wait()
    assert set(states(driver).values()) == {"RETIRED"}
    assert middle in states(driver)


def test_the_stream_of_readers_that_go_as_others_come_stays(driver: Driver) -> None:
    driver.run(INNER, name="revenue")
    (outer,) = driver.run(OVER.format("revenue"))
    driver.session.queries.delete(outer, drain=False)
    (again,) = driver.create(OVER.format("revenue"))
    driver.flush()
    assert driver.changelogs()[-1]["streams_dropped"] == []
    driver.batch()
    assert streams(driver) == {"s-1", "q-1"}
    assert states(driver)[again] == "RUNNING"
    assert driver.recovered() == driver.observed()


def test_who_reads_through_a_subquery_is_named(driver: Driver) -> None:
    driver.run(INNER, name="revenue")
    driver.run(f"SELECT COUNT(*) AS c FROM ({OVER.format('revenue')}) [RANGE 1 HOUR]", name="top")
    with pytest.raises(Conflict, match="top reads its rows"):
        driver.session.queries.delete("revenue")


def test_what_reads_a_query_that_fails_fails_and_says_so(driver: Driver) -> None:
    (failing,) = driver.run(INNER, name="revenue")
    (outer,) = driver.run(OVER.format("revenue"), name="most")
    (last,) = driver.create("SELECT m FROM most")
    driver.batch(failures={failing: "evaluation raised"})
    errors = {query: driver.session.lookup.describe(query)["error"] for query in (outer, last)}
    assert errors[outer] == "revenue, which it reads, failed: evaluation raised"
    assert "evaluation raised" in str(errors[last])
    assert driver.recovered() == driver.observed()


def test_a_ttl_waits_until_nobody_reads_the_query(driver: Driver) -> None:
    driver.run(INNER, name="revenue", ttl_seconds=60)
    (outer,) = driver.run(OVER.format("revenue"))
    driver.clock.advance(120)
    driver.session.step()
    assert states(driver)["q-1"] == "RUNNING"
    driver.session.queries.delete(outer, drain=False)
    driver.clock.advance(2)
    driver.session.step()
    assert states(driver)["q-1"] == "DRAINING"


def test_what_cannot_be_read_is_refused(driver: Driver) -> None:
    driver.run(f"{INNER} EMIT AFTER DELAY INTERVAL '1' SECOND", name="early")
    with pytest.raises(NotAllowed, match="Query early cannot be read"):
        driver.create("SELECT n FROM early")
    driver.run(INNER, name="gone")
    driver.session.queries.delete("gone", drain=False)
    with pytest.raises(NotAllowed, match="RETIRED"):
        driver.create("SELECT n FROM gone")
    with pytest.raises(NotAllowed, match="does not exist"):
        driver.create("SELECT n FROM nothing")
    with pytest.raises(UnknownObject):
        driver.session.queries.delete("nothing")


def test_a_chain_may_not_be_endless(driver: Driver) -> None:
    driver.run(INNER, name="c0")
    for level in range(1, MAX_LEVELS):
        driver.create(f"SELECT n FROM c{level - 1}", name=f"c{level}")
    with pytest.raises(NotAllowed, match="in a chain"):
        driver.create(f"SELECT n FROM c{MAX_LEVELS - 1}")


def test_validating_registers_nothing(driver: Driver) -> None:
    (explained,) = driver.session.queries.validate([QueryRequest(NESTED)])
    assert [column["name"] for column in explained["columns"]] == ["window_start", "window_end", "m", "_partial"]
    assert states(driver) == {}


def test_dropping_with_cascade_retires_what_depends_on_it(driver: Driver) -> None:
    driver.run(INNER, name="revenue")
    driver.run(OVER.format("revenue"), NESTED)
    driver.execute("DROP QUERY revenue CASCADE")
    assert [query.state for query in driver.state.queries.values() if query.name == "revenue"] == ["DRAINING"]
    with pytest.raises(Conflict):
        driver.execute("DROP STREAM purchases")
    driver.execute("DROP STREAM purchases CASCADE")
    assert set(states(driver).values()) == {"RETIRED"}
    assert streams(driver) == set()
    assert driver.recovered() == driver.observed()


def test_batches_are_kept_until_their_rows_are_read(driver: Driver) -> None:
    driver.run(INNER, name="revenue")
    driver.run(OVER.format("revenue"))
    before = driver.state.rows_needed_from

    def batch(first: int, read: int) -> None:
        counts = {"tuples": 0, "late": 0, "malformed": 0, "bytes": 0, "unread": None}
        driver.batch(
            derived={"q-1": {"slot": 0, "first": first, "active_from": {}}},
            streams={"q-1": {**counts, "offsets": {"0": read}}},
        )

    batch(5, 3)
    assert driver.state.rows_needed_from == before
    batch(9, 9)
    assert driver.state.rows_needed_from == driver.state.applied_seq
    batch(12, 9)
    assert driver.state.rows_needed_from == driver.state.applied_seq - 1
    assert driver.session.needed_seq == min(driver.session.snapshot_seq, driver.state.applied_seq - 1)


def test_tenants_read_and_share_their_own_queries_only(driver: Driver) -> None:
    for tenant in ("a", "b"):
        driver.session.queries.create([QueryRequest(NESTED, name="best")], Owner(tenant))
    assert sum(query.is_subquery for query in driver.state.queries.values()) == 2
    driver.session.queries.create([QueryRequest("SELECT m FROM best")], Owner("a"))
    with pytest.raises(NotAllowed, match="does not exist"):
        driver.session.queries.create([QueryRequest("SELECT m FROM best")], Owner("c"))
    of_a = next(query.id for query in driver.state.queries.values() if query.full_name == "a/best")
    with pytest.raises(NotAllowed, match="does not exist"):
        driver.session.queries.create([QueryRequest(f'SELECT m FROM "{of_a}"')], Owner("b"))
    driver.flush()
    driver.batch()
    shown = TenantSession(driver.session, Principal.of("b", (READ,)), Meters(Quotas())).plan()
    names = [node["name"] for node in shown["nodes"] if node["kind"] == "stream"]
    assert len(names) == 2, "the stream, and the subquery of the tenant"
    assert "best" not in names


def test_quotas_bound_chains_and_readers(driver: Driver) -> None:
    owner = Owner("a", max_levels=3, max_readers=2)

    def create(*statements: str) -> None:
        driver.session.queries.create([QueryRequest(sql) for sql in statements], owner)

    driver.session.queries.create([QueryRequest(NESTED, name="best")], owner)
    create("SELECT m FROM best")
    with pytest.raises(LimitReached, match=r"quota query_levels\); these are 3. Write some of them as one"):
        driver.session.queries.create([QueryRequest("SELECT m FROM best")], Owner("a", max_levels=2))
    with pytest.raises(LimitReached, match=r"quota query_readers\); 1 read q-\d+, and 2 more would"):
        create("SELECT m FROM best WHERE m > 1", "SELECT m FROM best WHERE m > 2")
    create("SELECT m FROM best WHERE m > 3")
    with pytest.raises(LimitReached, match="2 read"):
        create("SELECT m FROM best WHERE m > 4")


def test_the_plan_of_a_query_shows_the_way_from_the_stream(driver: Driver) -> None:
    driver.run(INNER, name="revenue")
    driver.run(OVER.format("revenue"), name="most")
    (last,) = driver.run("SELECT m FROM most WHERE m > 3")
    plan = driver.session.plans.of_query(last)
    names = [node.get("name", node["kind"]) for node in plan["nodes"]]
    assert names == ["purchases", "aggregation", "revenue", "aggregation", "most", "selection", "router", "query"]
    sources = {edge["target"]: edge["source"] for edge in plan["edges"]}
    way = ["selection:q-2"]
    while way[-1] in sources:
        way.append(sources[way[-1]])
    assert way == [
        "selection:q-2",
        "stream:q-2",
        "aggregation:q-1:",
        "stream:q-1",
        "aggregation:s-1:gem_pack",
        "stream:s-1",
    ]
    edges = [(edge["source"], edge["target"]) for edge in driver.session.plans.graph()["edges"]]
    assert ("aggregation:q-1:", "stream:q-2") in edges


def test_a_query_catches_up_with_the_subquery_that_reads_the_past(driver: Driver) -> None:
    driver.batch({"s-1": 10})
    (outer,) = driver.run(NESTED, start="earliest")
    (last,) = driver.create(f'SELECT m FROM "{outer}"')
    driver.flush()
    driver.batch()
    for query in (outer, last):
        described = driver.session.lookup.describe(query)
        assert described["state"] == "CATCHING_UP"
        assert list(described["progress"]) == ["purchases"]
    replays = [stream for stream in streams(driver) if stream.startswith("s-1.")]
    driver.batch(joined={replays[0]: {"0": 7}})
    assert {driver.session.lookup.describe(query)["state"] for query in (outer, last)} == {"RUNNING"}
    assert driver.recovered() == driver.observed()


def test_subqueries_count_as_queries(tmp_path: Path) -> None:
    driver = Driver(tmp_path / "data", max_queries=2)
    driver.stream()
    driver.create(NESTED)
    with pytest.raises(Overloaded, match="Cannot create 1 queries: 2 run"):
        driver.create(INNER)
    driver.end()


def test_a_query_that_starts_in_the_past_of_rows_replays_them(driver: Driver) -> None:
    driver.run(INNER, name="revenue")
    results = ResultReader(driver.storage)
    for rows in (3, 4):
        results.absorb(driver.batch({"s-1": 10 * rows}, results=[(0, rows, 0)]))
    (outer, same) = driver.create(*[OVER.format("revenue")] * 2, start="earliest")
    (bounded,) = driver.create("SELECT n FROM revenue", start="-30 s")
    driver.flush()
    assert {driver.state.queries[query].query.streams for query in (outer, same, bounded)} == {(f"q-1.{outer}",)}
    assert streams(driver) == {"s-1", "q-1", f"q-1.{outer}"}
    record = driver.batch(results=[(0, 5, 0)])
    past_rows = driver.session.past_rows(results)
    results.absorb(record)
    past_rows.absorb(record)
    assert past_of(driver.storage, f"q-1.{outer}", {}) == {"0": FIRST_ROW - 7}
    described = driver.session.lookup.describe(outer)
    assert (described["state"], described["active_from"]) == ("CATCHING_UP", {"revenue": None})
    since = driver.state.queries[bounded].sees_after
    assert since == {f"q-1.{outer}": BEGINNING + (40 - 2 - 30) * SECOND - 1}
    driver.batch(joined={f"q-1.{outer}": {"0": FIRST_ROW}})
    assert driver.session.lookup.describe(outer)["state"] == "RUNNING"
    assert driver.recovered() == driver.observed()
    with pytest.raises(Conflict, match="read its rows"):
        driver.session.queries.delete("revenue")
    driver.session.queries.begin_delete([outer, same, bounded], False).wait()
    driver.flush()
    assert streams(driver) == {"s-1"}


def test_the_rows_of_a_finished_query_are_read_from_the_earliest(driver: Driver) -> None:
    driver.run(INNER, name="revenue")
    driver.batch(clocks={"s-1": BEGINNING}, watermarks={"s-1": ENDED}, fired={"s-1": ENDED})
    driver.flush()
    driver.batch()
    assert driver.session.lookup.describe("q-1")["state"] == "FINISHED"
    (outer, now) = driver.create(OVER.format("revenue"), OVER.format("revenue"))
    (later,) = driver.create("SELECT n FROM revenue", start="now")
    driver.flush()
    assert driver.state.queries[outer].query.streams == driver.state.queries[now].query.streams == (f"q-1.{outer}",)
    assert driver.state.queries[later].query.streams == ("q-1",)
    assert [change["raised"] for change in driver.changelogs() if change.get("raised")] == [{"q-1": ENDED}]
    assert driver.recovered() == driver.observed()


def test_the_last_queries_that_finished_can_be_read_whatever_snapshots_and_restarts_come(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (query_table, named_relations):
        monkeypatch.setattr(module, "READABLE", 2)
    for name in ("first", "second", "third"):
        driver.run(INNER, name=name)
    driver.batch(clocks={"s-1": BEGINNING}, watermarks={"s-1": ENDED}, fired={"s-1": ENDED})
    driver.flush()
    driver.batch()
    assert set(states(driver).values()) == {"FINISHED"}
    driver.session.write_snapshot()
    driver.restart()
    with pytest.raises(NotAllowed, match=r"first is FINISHED, and 2 others have finished since, so no query can read"):
        driver.create(OVER.format("first"))
    with pytest.raises(NotAllowed, match=r"there are purchases, second, third\. Did you mean 'second'"):
        driver.create(OVER.format("secon"))
    outer = driver.create(OVER.format("second"), OVER.format("third"))
    assert [driver.state.queries[each].query.streams for each in outer] == [(f"q-2.{outer[0]}",), (f"q-3.{outer[1]}",)]


def test_what_a_query_over_a_query_waits_for_names_that_one(driver: Driver) -> None:
    driver.run(INNER, name="revenue")
    (outer,) = driver.run(OVER.format("revenue"))
    waiting = driver.session.lookup.describe(outer)["waiting_for"]
    assert waiting["detail"] == (
        "Query revenue, which it reads, has given no row since. GET /queries/q-1 (braid results q-1) says what that"
        " waits for."
    )
    minute = BEGINNING // (60 * SECOND) * 60 * SECOND
    driver.newest["q-1"] = minute
    driver.batch({"s-1": 10})
    detail = driver.session.lookup.describe(outer)["waiting_for"]["detail"]
    assert "It moves as that query goes on: GET /queries/" in detail
    assert "POST /streams" not in detail
