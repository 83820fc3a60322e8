"""The service against DuckDB: random runs, and the promises that an example shows best."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Sequence

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings

from tests.kit.client import Api, parse
from tests.kit.service import RunningService
from tests.oracle.compare import match_rows
from tests.oracle.driver import Driver, Registered
from tests.oracle.model import (
    SECOND,
    SEQUENCE,
    Aggregation,
    Column,
    Item,
    Kind,
    Push,
    Query,
    Row,
    Run,
    Selection,
    StreamSchema,
    Window,
    from_micros,
    micros,
)
from tests.oracle.strategies import runs
from tests.oracle.tuples import closing_tuple, make_tuples
from tests.oracle.verify import verify
from tests.oracle.wire import CONTENT_TYPES, decode_row

pytestmark = pytest.mark.service

EXAMPLES = int(os.environ.get("BRAID_ORACLE_EXAMPLES", "4"))
# shrinking replays a run against the service hundreds of times: only when asked
SHRINKS = os.environ.get("BRAID_ORACLE_SHRINK", "0") == "1"
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if SHRINKS else [])]

SCHEMA = StreamSchema(
    (
        Column(SEQUENCE, Kind.BIGINT, "many"),
        Column("user_id", Kind.BIGINT, "few"),
        Column("gem_pack", Kind.INT, "few", 0.1),
        Column("price", Kind.DOUBLE, "many", 0.1),
        Column("amount", Kind.DECIMAL, "many"),
        Column("country", Kind.VARCHAR, "few", 0.1),
        Column("time", Kind.TIMESTAMP),
    ),
    event_time="time",
    lateness=2 * SECOND,
    base=dt.datetime(2026, 3, 1, 12),
)
COUNT = Item("COUNT(*)", "tuples", Kind.BIGINT)
REVENUE = Item("SUM(price)", "revenue", Kind.DOUBLE)
AMOUNT = Item("SUM(amount)", "total", Kind.DECIMAL)
GEM_PACK = Item("gem_pack", "gem_pack", Kind.INT)
HOP = Window(8 * SECOND, 4 * SECOND)
TUMBLE = Window(3 * SECOND, 3 * SECOND, 0, "function")
ALL = Selection(())
BY_GEM_PACK = Aggregation((GEM_PACK, COUNT, REVENUE, AMOUNT), HOP, ("gem_pack",), "gem_pack > 1")


def others() -> list[Query]:
    """Return thirty different queries to share the stream with."""
    varied: list[Query] = [Aggregation((COUNT, REVENUE), HOP, (), f"user_id > {k}") for k in range(10)]
    varied += [Aggregation((COUNT, AMOUNT), TUMBLE, ("country",), f"gem_pack = {k}") for k in range(10)]
    return [*varied, *(Selection((), f"price BETWEEN {k} AND {k + 50}") for k in range(10))]


def matched(output_of: Query, expected: Sequence[Registered], actual: Sequence[Registered]) -> None:
    """Assert that queries answered the same rows, pair by pair."""
    output = output_of.output(SCHEMA)
    for expected_query, actual_query in zip(expected, actual, strict=True):
        rows = [[decode_row(output, row) for row in registered.rows] for registered in (expected_query, actual_query)]
        assert rows[0], "the example must answer some rows"
        assert match_rows(output, rows[0], rows[1]) is None


@settings(
    max_examples=EXAMPLES,
    deadline=None,  # a run takes as long as its streaming batches
    print_blob=True,
    derandomize=False,
    phases=PHASES,
    # a run is big by intent, and drawing one is quick beside carrying it out
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(run=runs())
def test_every_row_equals_its_recomputation(service: RunningService, run: Run) -> None:
    with Api(service.url) as api:
        driver = Driver(api, run.schema)
        note(f"stream {driver.stream}, {len(run.queries)} queries, push seeds {push_seeds(run)}")
        driver.carry_out(run)
        driver.finish()
        verify(driver)
        api.drop_created()


def push_seeds(run: Run) -> list[int]:
    """Return the seeds of a run's pushes, which with its schema make its tuples."""
    return [step.seed for step in run.steps if isinstance(step, Push)]


def test_a_query_attached_late_sees_only_newer_tuples(api: Api) -> None:
    driver = Driver(api, SCHEMA)
    driver.create([ALL, BY_GEM_PACK])
    driver.push(Push(200, seed=1, span=10 * SECOND))
    driver.settle()
    before = driver.newest
    late_all, late_groups = driver.create([ALL, BY_GEM_PACK])
    assert before is not None
    driver.push(Push(200, seed=2, span=10 * SECOND))
    driver.finish()
    verify(driver)
    assert late_all.life(driver.stream).active_from == from_micros(before)
    assert 0 < len(late_all.rows) < len(driver.queries[0].rows)
    assert {row["_partial"] for row in late_groups.rows} == {True, False}
    assert {row["_partial"] for row in driver.queries[1].rows} == {False}


def test_a_query_on_a_stream_without_tuples_has_no_active_from_and_sees_all(api: Api) -> None:
    driver = Driver(api, SCHEMA)
    assert api.stream(driver.stream)["clock"] is None
    (registered,) = driver.create([ALL])
    assert registered.info["active_from"] == {driver.stream: None}
    driver.push(Push(50, seed=3))
    driver.finish()
    verify(driver)
    assert len(registered.rows) == len(driver.tuples) - len(driver.late) - 1  # the last one came after its end


def test_a_freed_slot_is_reused_and_the_new_query_gets_only_its_own_rows(api: Api) -> None:
    driver = Driver(api, SCHEMA)
    first = driver.create([BY_GEM_PACK, ALL, *others()[:8]])
    driver.push(Push(150, seed=4, span=6 * SECOND))
    driver.delete(first)
    driver.retire()
    slots_in_use = [query["slot"] for query in api.queries() if query["slot"] is not None]
    highest = max([*slots_in_use, *(registered.info["slot"] for registered in first)])
    second = driver.create([*others()[10:18], ALL, BY_GEM_PACK])
    slots = [registered.info["slot"] for registered in second]
    assert len(set(slots)) == len(slots), f"running queries must have slots of their own, got {slots}"
    assert max(slots) <= highest, f"freed slots must be reused: none above {highest} needed, got {slots}"
    driver.push(Push(150, seed=5, span=6 * SECOND))
    driver.finish()
    verify(driver)


def event_time(row: Row) -> int:
    """Return the event time of a tuple, in microseconds."""
    return micros(row[SCHEMA.event_time])  # type: ignore[arg-type]


def push_decided(driver: Driver, push: Push) -> None:
    """Push so that the contract alone decides which tuples are late, however they are cut into batches.

    They come in order of event time, so each is the newest of its push, and the watermark before is known.
    """
    watermark = driver.settle() if driver.pushes else None
    rows = make_tuples(SCHEMA, push, driver.newest, len(driver.tuples))
    driver.send(sorted(rows, key=event_time), watermark=watermark)


def test_a_query_answers_the_same_alone_twice_and_among_many(api: Api) -> None:
    queries: list[Query] = [BY_GEM_PACK, ALL]
    alone, among = Driver(api, SCHEMA, follow=0), Driver(api, SCHEMA, follow=0)
    alone.create(queries)
    registered_among = among.create([*queries, *others(), *queries])
    assert len({registered.info["epoch"] for registered in registered_among}) == 1, (
        "registered together, deployed together"
    )
    for seed in (6, 7, 8):
        for driver in (alone, among):
            push_decided(driver, Push(150, seed, span=8 * SECOND, late_rate=0.1))
    for driver in (alone, among):
        driver.finish()
        verify(driver)
    assert alone.late
    assert alone.late == among.late
    for position, query in enumerate(queries):
        same = [registered_among[position], registered_among[len(registered_among) - len(queries) + position]]
        assert same[0].id != same[1].id
        matched(query, same[:1], same[1:])
        matched(query, alone.queries[position : position + 1], same[:1])


def test_results_page_by_page_equal_the_results_at_once(api: Api) -> None:
    driver = finished(api, [ALL, BY_GEM_PACK])
    for registered in driver.queries:
        assert len(registered.rows) > 20
        for limit in (1, 7):
            assert driver.read(registered, limit=limit) == registered.rows
        page = api.page(registered.id, limit=10)
        assert page["rows"] == registered.rows[:10]
        assert not page["end"]
        next_pages = [api.page(registered.id, after=page["cursor"], limit=10) for _ in range(2)]
        assert next_pages[0] == next_pages[1], "reading must not use up a cursor"
        assert next_pages[0]["rows"] == registered.rows[10:20]


def test_json_ndjson_and_arrow_answer_the_same_rows(api: Api, service: RunningService) -> None:
    driver = finished(api, [ALL, BY_GEM_PACK, Aggregation((COUNT,), TUMBLE)])
    for registered in driver.queries:
        output = registered.query.output(SCHEMA)
        rows = [decode_row(output, row) for row in registered.rows]
        url = f"{service.url}/queries/{registered.id}/results"
        for form in ("ndjson", "arrow"):
            answer = httpx.get(url, params={"limit": 1000}, headers={"Accept": CONTENT_TYPES[form]})
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(CONTENT_TYPES[form])
            if form == "ndjson":
                decoded = [parse(line) for line in answer.text.splitlines()]
            else:
                with pa.ipc.open_stream(answer.content) as reader:
                    decoded = reader.read_all().to_pylist()
            assert [decode_row(output, row) for row in decoded] == rows, f"{form} must answer the rows of JSON"


def finished(api: Api, queries: Sequence[Query]) -> Driver:
    """Carry out a small run to its end and verify it."""
    driver = Driver(api, SCHEMA)
    driver.create(queries)
    driver.push(Push(60, seed=9, span=10 * SECOND))
    driver.push(Push(60, seed=10, span=10 * SECOND))
    driver.finish()
    verify(driver)
    return driver


def test_late_and_malformed_tuples_are_dead_letters_page_by_page(api: Api) -> None:
    driver = Driver(api, SCHEMA)
    (everything,) = driver.create([ALL])
    push_decided(driver, Push(20, seed=11, span=10 * SECOND))
    watermark = micros(driver.settle())
    late = [closing_tuple(SCHEMA, watermark - 1 - number, 100 + number) for number in range(25)]
    on_time = closing_tuple(SCHEMA, watermark, 200)
    driver.send([*late, on_time], "json", from_micros(watermark))
    driver.close(watermark + 60 * SECOND)
    driver.settle()

    bad_type = {"seq": 300, "gem_pack": "many", "time": "2026-03-01T12:05:00Z"}
    no_time = {"seq": 301, "gem_pack": 1, "time": None}
    body = "".join(f"{line}\n" for line in (json.dumps(bad_type), "{not json", json.dumps(no_time)))
    answer = api.push(driver.stream, CONTENT_TYPES["ndjson"], body.encode())
    assert (answer["accepted"], answer["rejected"]) == (0, 3), answer
    assert [error["line"] for error in answer["errors"]] == [1, 2, 3]
    assert all(error["detail"] for error in answer["errors"])

    driver.delete([everything])
    api.wait_deleted(everything.id)
    driver.close(watermark + 70 * SECOND)
    driver.settle()
    at_once = [letter for page in api.dead_letters(driver.stream) for letter in page]
    pages = list(api.dead_letters(driver.stream, limit=4))
    assert [letter for page in pages for letter in page] == at_once
    assert len(pages) >= 7
    tuples = [letter["tuple"] for letter in at_once if letter["reason"] == "late"]
    assert sorted(row[SEQUENCE] for row in tuples) == list(range(100, 125))
    malformed = [letter for letter in at_once if letter["reason"] == "malformed"]
    assert len(malformed) == 3
    assert all(letter["detail"] for letter in malformed)
    info = api.stream(driver.stream)
    assert (info["late"], info["malformed"]) == (25, 3)
    everything.info = api.wait_state(everything.id, "RETIRED")
    sequences = {row[SEQUENCE] for row in driver.read(everything)}
    assert 200 in sequences, "a tuple exactly on the watermark is not late"
    assert not sequences & {*range(100, 125), 300, 301}
