"""Where queries start: what may be written, and which streams they read for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from braid.session.commands.query_requests import Replacement
from braid.session.commands.starts import Start, read_start
from braid.sources.core.errors import NotAllowed
from tests.session.driver import AGGREGATION, BEGINNING, SECOND, Driver

COUNT = AGGREGATION.format("purchases", 5)
FILES = (
    "CREATE STREAM files (price DOUBLE, time TIMESTAMP LATENESS INTERVAL '2' SECOND)"
    " WITH (connector = 'file', format = 'csv', path = '{}')"
)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("now", Start("now")),
        (" Earliest ", Start("earliest")),
        ("-1 hour", Start("-1 hour", before=3600 * SECOND)),
        ("-90s", Start("-90s", before=90 * SECOND)),
        ("-INTERVAL '30' MINUTE", Start("-INTERVAL '30' MINUTE", before=1800 * SECOND)),
        ("1970-01-01T00:00:01Z", Start("1970-01-01T00:00:01Z", at=SECOND)),
        ("1970-01-01 00:00:01+00:00", Start("1970-01-01 00:00:01+00:00", at=SECOND)),
        ("1970-01-01 00:01", Start("1970-01-01 00:01", at=60 * SECOND)),
        ("1970-01-01 01:00+01:00", Start("1970-01-01 01:00+01:00", at=0)),
        ("1970-01-02", Start("1970-01-02", at=24 * 3600 * SECOND)),
    ],
)
def test_a_start_is_a_word_a_time_or_an_interval(text: str, start: Start) -> None:
    assert read_start(text) == start


@pytest.mark.parametrize(
    "text", ["", "later", "-", "-1", "1 hour", "-1 fortnight", "2026-13-01T00:00:00Z", 5, "-999999 days"]
)
def test_what_is_no_start_is_refused_with_what_may_be_written(text: object) -> None:
    with pytest.raises(NotAllowed, match="'earliest'"):
        read_start(text)


def test_a_query_that_starts_in_the_past_reads_a_replay_until_it_joins(driver: Driver) -> None:
    driver.batch({"s-1": 10})
    (query_id,) = driver.create(COUNT, start="earliest")
    driver.flush()
    changelog = driver.state.inactive[driver.state.epoch].change
    assert [stream.id for stream in changelog.streams_created] == ["s-1.q-1"]
    driver.batch()
    described = driver.session.lookup.describe(query_id)
    assert (described["state"], described["start"]) == ("CATCHING_UP", "earliest")
    assert described["operator"] == "aggregation:s-1.q-1:gem_pack"
    assert described["active_from"] == {"purchases": None}
    assert described["replays"] == {"purchases": query_id}
    assert [stream["id"] for stream in driver.session.streams.describe_all()] == ["s-1"], "replays are not listed"
    driver.batch(joined={"s-1.q-1": {"0": 7}})
    described = driver.session.lookup.describe(query_id)
    assert (described["state"], described["joined"]["purchases"]["offsets"]) == ("RUNNING", {"0": 7})
    for reopen in (driver.crash, driver.restart):
        reopen()
        assert driver.session.lookup.describe(query_id) == described


def test_a_replay_that_joins_in_the_first_batch_of_its_query_is_told(driver: Driver) -> None:
    driver.batch({"s-1": 10})
    (query_id,) = driver.create(COUNT, start="earliest")
    driver.flush()
    driver.batch(joined={"s-1.q-1": {"0": 0}})
    described = driver.session.lookup.describe(query_id)
    assert (described["state"], described["joined"]["purchases"]["offsets"]) == ("RUNNING", {"0": 0})
    assert driver.recovered() == driver.observed()


def test_queries_of_one_changelog_share_a_replay_and_later_ones_have_their_own(driver: Driver) -> None:
    driver.batch({"s-1": 10})
    first, second = driver.create(COUNT, COUNT, start="earliest")
    (third,) = driver.create(COUNT, start="-5 s")
    driver.flush()
    (fourth,) = driver.create(COUNT, start="earliest")
    driver.flush()
    read = [driver.state.queries[query].query.streams[0] for query in (first, second, third, fourth)]
    assert read == ["s-1.q-1", "s-1.q-1", "s-1.q-1", "s-1.q-4"]


def test_a_time_and_an_interval_bound_what_is_seen(driver: Driver) -> None:
    driver.batch({"s-1": 100})
    (timed,) = driver.create(COUNT, start="2023-11-14T22:13:40Z")
    (interval,) = driver.create(COUNT, start="-30 s")
    driver.flush()
    driver.batch()
    assert BEGINNING == 1_700_000_000 * SECOND
    assert driver.session.lookup.describe(timed)["active_from"] == {"purchases": "2023-11-14T22:13:39.999999Z"}
    assert driver.session.lookup.describe(interval)["active_from"] == {"purchases": "2023-11-14T22:14:30.000000Z"}


def test_a_replay_goes_with_its_last_query(driver: Driver) -> None:
    driver.batch({"s-1": 10})
    first, second = driver.run(COUNT, COUNT, start="earliest")
    driver.session.queries.delete(first, drain=False)
    driver.flush()
    assert driver.state.catalog.by_id("s-1.q-1") is not None
    driver.session.queries.delete(second, drain=False)
    driver.flush()
    assert driver.state.catalog.by_id("s-1.q-1") is None
    assert driver.state.inactive[driver.state.epoch].change.streams_dropped == ("s-1.q-1",)
    driver.session.streams.drop("purchases")


def test_the_first_queries_of_a_folder_read_the_stream_itself_and_later_ones_replay_it(
    driver: Driver, tmp_path: Path
) -> None:
    stream = str(driver.session.streams.create(FILES.format(tmp_path / "files"))["id"])
    counted = "SELECT COUNT(*) AS n FROM files [RANGE 8 SECONDS]"
    first, second, now = (*driver.create(counted, counted), *driver.create(counted, start="now"))
    driver.flush()
    (later,) = driver.create(counted)
    (live,) = driver.create(counted, start="now")
    read = [driver.state.queries[query].query.streams for query in (first, second, now, later, live)]
    assert read == [(stream,), (stream,), (stream,), (f"{stream}.{later}",), (stream,)]


def test_a_query_that_replaces_another_goes_on_where_that_one_ends(driver: Driver) -> None:
    driver.batch({"s-1": 10})
    (replaced, other) = driver.run(COUNT, COUNT, start="earliest")
    new = driver.session.queries.begin_replace(replaced, Replacement(COUNT)).wait()[0]["id"]
    afresh = driver.session.queries.begin_replace(other, Replacement(COUNT, {"start": "now"})).wait()[0]["id"]
    read = [driver.state.queries[query].query.streams for query in (new, afresh)]
    assert read == [("s-1.q-1",), ("s-1",)]


def test_a_start_is_said_once(driver: Driver) -> None:
    with pytest.raises(NotAllowed, match="must name one start"):
        driver.create(f"CREATE QUERY a WITH (start = 'now') AS {COUNT}", start="now")
    (query_id,) = driver.create(f"CREATE QUERY a WITH (start = 'earliest') AS {COUNT}")
    assert driver.session.lookup.describe(query_id)["start"] == "earliest"


def test_queries_finish_once_their_streams_have_ended(driver: Driver) -> None:
    (query_id,) = driver.run(COUNT)
    ended = 253_402_300_799_999_999
    driver.session.streams.raise_watermark("purchases", ended)
    driver.flush()
    assert driver.state.inactive[driver.state.epoch].change.raised == {"s-1": ended}
    driver.batch(watermarks={"s-1": ended}, fired={"s-1": ended})
    assert driver.session.lookup.describe(query_id)["state"] == "FINISHED"
    (late,) = driver.create(COUNT)
    driver.flush()
    driver.batch(watermarks={"s-1": ended}, fired={"s-1": ended})
    assert driver.session.lookup.describe(late)["state"] == "FINISHED", "nothing will come for it"
    driver.restart()
    assert [driver.session.lookup.describe(query)["state"] for query in (query_id, late)] == ["FINISHED", "FINISHED"]
    assert driver.session.lookup.count_by_state()["FINISHED"] == 2
