"""OctoSQL Streaming through the service: the thesis's example (section 4.2), its opening tasks, and its other examples.

Triggers are forms of EMIT: ON WATERMARK is EMIT AFTER WATERMARK, COUNTING 1 is EMIT STREAM where no two rows of a group
are in one batch, and AFTER DELAY is in test_emit.py. A watermark generator belongs to the stream (LATENESS,
``watermark_percentile``). Not there are COUNTING with other numbers, FIRST and LAST, and ORDER BY: rows come window by
window, in no order within one. Restarts are those of test_crash.py, and of test_relations.py for queries over queries.
"""

from __future__ import annotations

import csv
import datetime as dt
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from tests.kit.client import Api, Json
from tests.kit.duck import connected
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until
from tests.oracle.answers import SECONDS, end, finished_rows, match_duckdb, push, push_batch, unique

pytestmark = pytest.mark.service

# figure 1.1, with the description of the tenth cat that figures 2.4 and 2.5 count
CATS = [
    ("Buster", 5, "fluffy"),
    ("Tiger", 13, "work of art"),
    ("Lucy", 2, "fat"),
    ("Pepper", 3, "work of art"),
    ("Tiger", 4, "amazing"),
    ("Molly", 1, "the best"),
    ("Precious", 7, "lovely"),
    ("Nala", 2, "cute"),
    ("Misty", 3, "amazing"),
    ("Tiger", 9, "cute"),
]
ALL_TIME = "[RANGE 36500 DAYS]"
PUSHED = "WITH (connector = 'push')"
BEGIN = dt.datetime(2026, 3, 1, 11)


@pytest.fixture(scope="module")
def api(service: RunningService) -> Iterator[Api]:
    """One client for all tests here: what they create goes after the last."""
    with Api(service.url) as client:
        yield client
        client.drop_created()


def create(api: Api, *texts: str) -> list[str]:
    """Create queries at once, and return their ids."""
    return [query["id"] for query in api.create_queries([{"sql": text} for text in texts])]


def at(seconds: float) -> dt.datetime:
    return BEGIN + dt.timedelta(seconds=seconds)


def watermark_is(api: Api, stream: str, expected: str) -> bool:
    return bool(api.stream(stream)["watermark"] == expected)


def clock(text: str) -> str:
    """Return hours and minutes of a time."""
    return dt.datetime.fromisoformat(text).strftime("%H:%M")


def test_goals_are_counted_by_team_and_minute(api: Api) -> None:
    """Section 4.2, whose events chapter 6 describes: a maximal difference of five seconds, then a tumble of a minute.

    The thesis orders the rows of a window by goals. Here a subquery has the best teams of each.
    """
    draw, events = random.Random(42), unique("events")
    api.create_stream(
        f"CREATE STREAM {events} (id INT, team VARCHAR, time TIMESTAMP LATENESS INTERVAL 5 SECONDS) {PUSHED}"
    )
    counts = f"""
        WITH with_watermark AS (SELECT * FROM {events} e),
        with_tumble AS (SELECT * FROM tumble(data => TABLE(with_watermark), timecol => DESCRIPTOR(time),
            dur => INTERVAL 1 MINUTE, offset => INTERVAL 0 SECONDS) e),
        counts_per_team AS (SELECT e.window_end, e.team, COUNT(*) AS goals
            FROM with_tumble e GROUP BY e.window_end, e.team EMIT AFTER WATERMARK)
    """
    best = "[RANGE 1 MINUTE] WHERE goals = (SELECT MAX(goals) FROM counts_per_team)"
    all_counts, best_counts = create(
        api, f"{counts} SELECT * FROM counts_per_team cpt", f"{counts} SELECT team, goals FROM counts_per_team {best}"
    )
    delays = [draw.random() * draw.choice([5, 5, 5, 5, 20]) for _ in range(2000)]
    goals = [
        {"id": number, "team": f"team {draw.randrange(20)}", "time": at(number / 8 - delay)}
        for number, delay in enumerate(delays)
    ]
    for first in range(0, len(goals), 500):
        push_batch(api, events, goals[first : first + 500])
    end(api, events)
    rows = finished_rows(api, all_counts)
    late = {letter["tuple"]["id"] for page in api.dead_letters(events) for letter in page}
    assert late, "goals that come more than five seconds late are dropped"
    assert [row["window_end"] for row in rows] == sorted(row["window_end"] for row in rows)
    with connected() as duck:
        duck.register("events", pa.Table.from_pylist([goal for goal in goals if goal["id"] not in late]))
        duck.execute("""
            CREATE TEMP VIEW counts_per_team AS
            SELECT time_bucket(INTERVAL 1 MINUTE, time) + INTERVAL 1 MINUTE AS window_end, team, COUNT(*) AS goals
            FROM events GROUP BY ALL
        """)
        assert (difference := match_duckdb(duck.sql("FROM counts_per_team"), rows)) is None, difference
        best_rows = duck.sql("FROM counts_per_team QUALIFY goals = MAX(goals) OVER (PARTITION BY window_end)")
        assert (difference := match_duckdb(best_rows, finished_rows(api, best_counts))) is None, difference


def test_the_tasks_of_the_introduction_are_queries_over_files(api: Api, tmp_path: Path) -> None:
    """The sum of a column of CSV, the largest city of a file of JSON, and of each owner of a third file the cats."""
    cities = [("Warsaw", 1_860), ("Gdansk", 487), ("Lodz", 652)]
    owners = [(number, f"owner {number}") for number in range(1, 12)]
    for name, header, lines in (
        ("numbers", ("name", "amount"), [("a", 3), ("b", 39), ("c", -7)]),
        ("owners", ("id", "name"), owners),
    ):
        (tmp_path / name).mkdir()
        with (tmp_path / name / "all.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *lines])
    for name, objects in (
        ("cities", [{"name": city, "population": count} for city, count in cities]),
        ("cats", [{"name": cat, "owner": owner} for cat, owner, _ in CATS]),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "all.json").write_bytes(b"\n".join(map(orjson.dumps, objects)))
    streams = {}
    for name, columns, file_format in (
        ("numbers", "name VARCHAR, amount INT", "csv"),
        ("owners", "id INT, name VARCHAR", "csv"),
        ("cities", "name VARCHAR, population INT", "json"),
        ("cats", "name VARCHAR, owner INT", "json"),
    ):
        streams[name] = unique(name)
        api.create_stream(
            f"CREATE STREAM {streams[name]} ({columns}, time TIMESTAMP ARRIVAL LATENESS INTERVAL '0' SECOND)"
            f" WITH (connector = 'file', path = '{tmp_path / name}', format = '{file_format}', bounded = 'true')"
        )
    texts = (
        "SELECT SUM(amount) AS total FROM {numbers} {all_time}",
        "SELECT name FROM {cities} {all_time} WHERE population = (SELECT MAX(population) FROM {cities})",
        "SELECT o.name, COUNT(c.name) AS cats FROM {owners} {all_time} o LEFT JOIN {cats} {all_time} c"
        " ON o.id = c.owner GROUP BY o.name",
    )
    sums, largest, owned = create(api, *(text.format(all_time=ALL_TIME, **streams) for text in texts))
    assert [row["total"] for row in finished_rows(api, sums)] == [35]
    assert [row["name"] for row in finished_rows(api, largest)] == ["Warsaw"]
    assert {row["name"]: row["cats"] for row in finished_rows(api, owned)} == {
        name: sum(owner == number for _, owner, _ in CATS) for number, name in owners
    }


def test_counts_of_cats_are_retracted_when_they_change(api: Api) -> None:
    """Figures 2.3 to 2.5: each cat triggers its description. No two cats of a batch here have the same."""
    cats = unique("cats")
    api.create_stream(
        f"CREATE STREAM {cats} (description VARCHAR, time TIMESTAMP ARRIVAL LATENESS INTERVAL '0' SECOND) {PUSHED}"
    )
    (query,) = create(
        api, f"SELECT c.description, COUNT(*) AS n FROM {cats} {ALL_TIME} c GROUP BY c.description EMIT STREAM"
    )
    descriptions = [description for _, _, description in CATS]
    for batch in (descriptions[:3], descriptions[3:8], descriptions[8:]):
        push_batch(api, cats, [{"description": each} for each in batch])
    end(api, cats)
    changes = [(row["description"], row["n"], row["_op"]) for row in finished_rows(api, query)]
    twice = ("amazing", "work of art", "cute")
    figure_2_5 = [(each, 1, "insert") for each in ("fat", "fluffy", "lovely", "the best", *twice)]
    figure_2_5 += [(each, *change) for each in twice for change in ((1, "retract"), (2, "insert"))]
    by_description = sorted(changes, key=lambda change: change[0])  # each keeps the order of its changes
    assert by_description == sorted(figure_2_5, key=lambda change: change[0])


@pytest.mark.parametrize(
    ("lateness", "percentile", "steps"),
    [
        (2, None, [([3, 4, 1, 5, 2], 3), ([7], 5)]),
        # the thesis has the five newest events count, Braid the last thousand: here both are after these steps the same
        (0, 80, [([4, 7, 2, 3, 8], 7), ([10, 9], 9)]),
    ],
    ids=["maximal difference", "percentile"],
)
def test_watermarks_are_those_of_the_generators(
    lateness: int, percentile: int | None, steps: list[tuple[list[int], int]], api: Api
) -> None:
    """Section 2.5: of five events 20 percent, that is one, may exceed the watermark."""
    stream = unique("times")
    options = "" if percentile is None else f", watermark_percentile = '{percentile}'"
    columns = f"(time TIMESTAMP LATENESS INTERVAL '{lateness}' SECOND)"
    api.create_stream(f"CREATE STREAM {stream} {columns} WITH (connector = 'push'{options})")
    create(api, f"SELECT COUNT(*) AS n FROM {stream} [RANGE 1 MINUTE]")
    for times, watermark in steps:
        push_batch(api, stream, [{"time": at(time)} for time in times])
        expected = at(watermark).isoformat(timespec="microseconds") + "Z"
        came = partial(watermark_is, api, stream, expected)
        wait_until(came, SECONDS, f"the watermark is {expected}")


@pytest.mark.parametrize(
    ("offset", "windows"),
    [
        (3, ["10:53 11:03", "11:13 11:23", "11:23 11:33", "11:33 11:43"]),
        (1, ["11:01 11:11", "11:11 11:21", "11:21 11:31", "11:41 11:51"]),
    ],
)
def test_windows_begin_at_their_offset(offset: int, windows: list[str], api: Api) -> None:
    """Section 2.9.8: windows of ten minutes."""
    stream = unique("times")
    api.create_stream(f"CREATE STREAM {stream} (time TIMESTAMP LATENESS INTERVAL '1' HOUR) {PUSHED}")
    function = f"tumble(TABLE {stream}, DESCRIPTOR(time), INTERVAL '10' MINUTES, INTERVAL '{offset}' MINUTES)"
    (query,) = create(api, f"SELECT * FROM {function}")
    push(api, stream, [{"time": at(60 * minute)} for minute in (2, 13, 27, 41)])
    end(api, stream)
    rows = [f"{clock(row['window_start'])} {clock(row['window_end'])}" for row in finished_rows(api, query)]
    assert rows == windows


PEOPLE_SQL = {
    # section 2.9.2, "Back to Group By"
    "group by": (
        "SELECT p.city, COUNT(*) AS n, AVG(p.height) AS height, MAX(p.cats_owned) AS cats"
        " FROM {people} p GROUP BY p.city",
    ),
    # section 2.9.2, of each value one copy counts: subqueries are in the place of SUM and AVG with DISTINCT
    "distinct aggregates": (
        "SELECT city, COUNT(*) AS n, SUM(age) AS total, AVG(age) AS mean"
        " FROM (SELECT city, age FROM {people} GROUP BY city, age) {window} GROUP BY city",
        "SELECT city, COUNT(DISTINCT age) AS n, SUM(DISTINCT age) AS total, AVG(DISTINCT age) AS mean"
        " FROM people GROUP BY city",
    ),
    # section 2.9.3
    "distinct": (
        "SELECT city, age FROM {people} GROUP BY city, age",
        "SELECT DISTINCT city, age FROM people",
    ),
    # section 2.9.4
    "stream join": (
        "SELECT p1.id AS older, p2.id AS younger FROM {people} p1 INNER JOIN {people} p2"
        " ON p1.age = p2.age + 5 AND p1.city = p2.city AND p1.first_name = p2.second_name",
    ),
    # section 2.9.5: a predicate without equality takes a column that is equal for all
    "lookup join": (
        "WITH everyone AS (SELECT *, 1 AS one FROM {stream}) SELECT p1.id AS older, p2.id AS younger"
        " FROM everyone {window} p1 JOIN everyone {window} p2 ON p1.one = p2.one AND p1.age > p2.age + 20",
        "SELECT p1.id AS older, p2.id AS younger FROM people p1 JOIN people p2 ON p1.age > p2.age + 20",
    ),
}


def test_people_are_grouped_and_joined_as_by_duckdb(api: Api) -> None:
    draw, stream = random.Random(7), unique("people")
    api.create_stream(
        f"CREATE STREAM {stream} (id INT, first_name VARCHAR, second_name VARCHAR, city VARCHAR, age INT,"
        f" height DOUBLE, cats_owned INT, time TIMESTAMP LATENESS INTERVAL '1' DAY) {PUSHED}"
    )
    names, cities = ("John", "James", "Jan"), ("Warsaw", "Krakow")
    people: list[dict[str, Any]] = [
        {
            "id": number,
            "first_name": draw.choice(names),
            "second_name": draw.choice(names),
            "city": draw.choice(cities),
            "age": draw.randrange(18, 60),
            "height": draw.randrange(150, 200) / 100,
            "cats_owned": draw.randrange(5),
            "time": at(draw.randrange(3600)),
        }
        for number in range(300)
    ]
    window = "[RANGE 1 DAY]"
    own = {"people": f"{stream} {window}", "stream": stream, "window": window}
    queries = create(api, *(texts[0].format(**own) for texts in PEOPLE_SQL.values()))
    push(api, stream, people)
    end(api, stream)
    with connected() as duck:
        duck.register("people", pa.Table.from_pylist(people))
        for (name, texts), query in zip(PEOPLE_SQL.items(), queries, strict=True):
            rows: list[dict[str, Json]] = finished_rows(api, query)
            difference = match_duckdb(duck.sql(texts[-1].format(people="people")), rows)
            assert difference is None, f"{name}: {difference}"
