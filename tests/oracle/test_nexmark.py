"""NEXMark's queries as docs/nexmark.md prints them, through the service: all rows equal DuckDB's on the same tuples."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

from tests.docs.pages import TOP, fences
from tests.kit.client import Api, Json
from tests.kit.duck import connected
from tests.kit.service import RunningService
from tests.oracle.answers import end, finished_rows, match_duckdb, push
from tests.oracle.nexmark_rows import Burst, Event, events

pytestmark = pytest.mark.service

PAGE = (TOP / "docs" / "nexmark.md").read_text(encoding="utf-8")
STREAMS = ("person", "auction", "bid")
SEED, EVENTS_PER_SECOND, EVENTS_PER_PUSH = 23, 250, 1500
# before and after eight o'clock, and before and after midnight
BURSTS = (Burst(datetime(2026, 1, 1, 7, 59, 45), 30), Burst(datetime(2026, 1, 1, 23, 59, 45), 30))
DISORDER_MS = 3000  # less than the streams' lateness
MINUTE = "[RANGE 1 MINUTE]"

_MINUTE = "time_bucket(INTERVAL 1 MINUTE, {}.dateTime)"
_SAME_MINUTE = f"{_MINUTE.format('A')} = {_MINUTE.format('B')}"
_OFFERS = (
    f"FROM auction A JOIN bid B ON A.id = B.auction AND {_SAME_MINUTE} AND B.dateTime BETWEEN A.dateTime AND A.expires"
)
_TEN = "time_bucket(INTERVAL 10 SECOND, dateTime)"
_HIGHEST = f"""
    SELECT auction, bidder, price, dateTime, extra, {_TEN} AS window_start FROM bid
    QUALIFY price = MAX(price) OVER (PARTITION BY {_TEN})
"""
# DuckDB's SQL where it is not that of the page
REFERENCES = {
    "q3": f"""
        SELECT P.name, P.city, P.state, A.id, {_MINUTE.format("A")} AS window_start
        FROM auction A JOIN person P ON A.seller = P.id AND {_MINUTE.format("A")} = {_MINUTE.format("P")}
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')
    """,
    "q4": f"""
        WITH final AS (
            SELECT A.category, MAX(B.price) AS price, {_MINUTE.format("A")} AS window_start
            {_OFFERS} GROUP BY A.id, A.category, {_MINUTE.format("A")}
        )
        SELECT window_start, category, AVG(price) AS final FROM final GROUP BY window_start, category
    """,
    "q5": """
        WITH counts AS (
            SELECT auction, COUNT(*) AS num, starttime
            FROM (SELECT auction, UNNEST(RANGE(
                time_bucket(INTERVAL 2 SECOND, dateTime) - INTERVAL 8 SECOND, dateTime + INTERVAL 1 MILLISECOND,
                INTERVAL 2 SECOND)) AS starttime FROM bid)
            GROUP BY auction, starttime
        )
        SELECT auction, num, starttime + INTERVAL 10 SECOND AS window_end FROM counts
        QUALIFY num = MAX(num) OVER (PARTITION BY starttime)
    """,
    "q7": _HIGHEST,
    "q7, second": _HIGHEST,
    "q8": f"""
        SELECT DISTINCT P.id, P.name, P.starttime FROM (SELECT *, {_TEN} AS starttime FROM person) P
        JOIN (SELECT *, {_TEN} AS starttime FROM auction) A ON P.id = A.seller AND P.starttime = A.starttime
    """,
    "q9": f"""
        SELECT A.*, B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
            {_MINUTE.format("A")} AS window_start
        {_OFFERS} QUALIFY B.price = MAX(B.price) OVER (PARTITION BY A.id, {_MINUTE.format("A")})
    """,
    "q11": """
        WITH numbered AS (
            SELECT *, SUM(begins::INT) OVER (PARTITION BY bidder ORDER BY dateTime) AS number FROM (
                SELECT bidder, dateTime, COALESCE(
                    dateTime - LAG(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime) >= INTERVAL 10 SECOND, TRUE
                ) AS begins FROM bid
            )
        )
        SELECT bidder, COUNT(*) AS bid_count, MIN(dateTime) AS starttime, MAX(dateTime) + INTERVAL 10 SECOND AS endtime
        FROM numbered GROUP BY bidder, number
    """,
    "q12": f"""
        SELECT bidder, COUNT(*) AS bid_count, {_TEN} AS starttime, {_TEN} + INTERVAL 10 SECOND AS endtime
        FROM bid GROUP BY bidder, {_TEN}
    """,
    "q18": f"""
        SELECT *, {_MINUTE.format("bid")} AS window_start FROM bid
        QUALIFY dateTime = MAX(dateTime) OVER (PARTITION BY bidder, auction, {_MINUTE.format("bid")})
    """,
    "q20": f"""
        SELECT auction, bidder, price, channel, url, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
            itemName, description, initialBid, reserve, A.dateTime AS auction_dateTime, expires, seller, category,
            A.extra AS auction_extra, {_MINUTE.format("B")} AS window_start
        FROM bid B JOIN auction A ON B.auction = A.id AND {_SAME_MINUTE} WHERE A.category = 10
    """,
    "q21": """
        SELECT auction, bidder, price, channel, COALESCE(
            MAP {'apple': '0', 'google': '1', 'facebook': '2', 'baidu': '3'}[LOWER(channel)],
            regexp_extract(url, 'channel_id=([0-9]+)$', 1)
        ) AS channel_id
        FROM bid WHERE url LIKE '%channel_id=%' OR NOT starts_with(channel, 'channel-')
    """,
}


def printed() -> dict[str, list[str]]:
    """Return the statements of each section of the page, by its heading."""
    sections = re.findall(r"^##+ ([^\n]*)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return {heading: [text.strip() for _, text in fences(section)] for heading, section in sections}


SECTIONS = printed()
PRINTED = {
    heading if number == 0 else f"{heading}, second": text
    for heading, texts in SECTIONS.items()
    for number, text in enumerate(texts)
    if re.fullmatch(r"q\d+", heading)
}
QUERIES = PRINTED | {
    f"{name}, of all time": text.replace(MINUTE, "[RANGE 36500 DAYS]")
    for name, text in PRINTED.items()
    if MINUTE in text
}


def duck_sql(name: str) -> str:
    """Return DuckDB's SQL: the page's without windows of a day or of all time, where there is no other."""
    return REFERENCES.get(name) or re.sub(r" \[RANGE \d+ DAYS?\]", "", QUERIES[name]).rstrip(";")


SIDE_INPUT = [{"key": key, "value": f"value {key % 17}"} for key in range(0, 10_000, 3)]


@pytest.fixture(scope="module")
def made() -> list[Event]:
    """Return the events in the order in which they come: up to three seconds out of order."""
    draw = random.Random(SEED)
    ordered = [
        (row["dateTime"] + timedelta(milliseconds=draw.randrange(DISORDER_MS)), stream, row)
        for stream, row in events(SEED, EVENTS_PER_SECOND, BURSTS)
    ]
    return [(stream, row) for _, stream, row in sorted(ordered, key=lambda each: each[0])]


@pytest.fixture(scope="module")
def duck(made: list[Event]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Return DuckDB with the streams as tables, and a function that it calls otherwise."""
    with connected() as connection:
        for stream in STREAMS:
            connection.register(stream, pa.Table.from_pylist([row for of, row in made if of == stream]))
        connection.register("side_input", pa.Table.from_pylist(SIDE_INPUT))
        connection.execute(
            "CREATE TEMP MACRO date_format(t, f) AS"
            " CASE f WHEN 'yyyy-MM-dd' THEN strftime(t, '%Y-%m-%d') WHEN 'HH:mm' THEN strftime(t, '%H:%M') END"
        )
        yield connection


@pytest.fixture(scope="module", params=["A stream for each kind", "One stream of all events"])
def answers(
    request: pytest.FixtureRequest, service: RunningService, made: list[Event], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, list[dict[str, Json]]]]:
    """Return the rows that the service gives for each query, all of them at once over the same streams."""
    path = tmp_path_factory.mktemp("nexmark") / "side_input.csv"
    path.write_text("key,value\n" + "".join(f"{row['key']},{row['value']}\n" for row in SIDE_INPUT))
    with Api(service.url) as api:
        api.create_table(SECTIONS["The streams"][0].replace("side_input.csv", str(path)))
        streams = []
        for text in SECTIONS[request.param]:
            if text.startswith("CREATE STREAM"):
                streams.append(api.create_stream(text)["name"])
            else:
                api.create_queries([{"sql": text}])
        created = api.create_queries([{"sql": text} for text in QUERIES.values()])
        for first in range(0, len(made), EVENTS_PER_PUSH):
            lines: dict[str, list[Json]] = {stream: [] for stream in streams}
            for kind, row in made[first : first + EVENTS_PER_PUSH]:
                if kind in lines:
                    lines[kind].append(row)
                else:
                    lines["datagen"].append({"event_type": STREAMS.index(kind), kind: row})
            for stream in streams:
                push(api, stream, lines[stream])
        end(api, *streams)
        yield {name: finished_rows(api, query["id"]) for name, query in zip(QUERIES, created, strict=True)}
        api.drop_created()


@pytest.mark.parametrize("name", QUERIES)
def test_rows_are_those_of_duckdb(
    name: str, answers: Mapping[str, list[dict[str, Json]]], duck: duckdb.DuckDBPyConnection
) -> None:
    assert (difference := match_duckdb(duck.sql(duck_sql(name)), answers[name])) is None, difference


def test_the_page_counts_the_queries_that_it_has() -> None:
    left_out = re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)
    numbers = {name.partition(",")[0].removeprefix("q") for name in PRINTED}
    assert left_out == ["6", "19"]
    assert numbers | set(left_out) == set(map(str, range(23)))
    assert f"Braid answers {len(numbers)} of them" in PAGE
