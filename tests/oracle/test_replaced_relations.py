"""Queries that are replaced and paused while others read them: these have exactly the rows that all of them gave.

What the replaced queries gave is taken by REST, as their readers would; DuckDB computes the readers' rows of that.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime

import duckdb
import pytest

from tests.kit.client import Api, Json
from tests.kit.duck import connected
from tests.kit.fixtures import FreshService
from tests.oracle.answers import SECONDS, all_rows, end, push, unique
from tests.oracle.crashes import run_with_crashes
from tests.oracle.relation_trees import timestamp, tuples_of

pytestmark = pytest.mark.service

READERS = {
    "some": ("SELECT k, n FROM {w} WHERE n > 1", "SELECT k, n FROM w WHERE n > 1"),
    "long": (
        "SELECT k, SUM(s) AS s FROM {w} [RANGE 10 SECONDS] GROUP BY k",
        "SELECT k, SUM(s) FROM w GROUP BY k, time_bucket(INTERVAL 10 SECONDS, window_end - INTERVAL 1 MICROSECOND)",
    ),
    "same": (
        "SELECT window_start, window_end, SUM(n) AS n FROM {w} GROUP BY window_start, window_end",
        "SELECT window_start, window_end, SUM(n) FROM w GROUP BY window_start, window_end",
    ),
    "counts": (
        "SELECT k, COUNT(*) AS n FROM {p} [RANGE 4 SECONDS] GROUP BY k",
        "SELECT k, COUNT(*) FROM p GROUP BY k, time_bucket(INTERVAL 4 SECONDS, ts)",
    ),
    "both": (
        "SELECT k, n AS v FROM {w} UNION ALL SELECT k, v FROM {p}",
        "SELECT k, n FROM w UNION ALL SELECT k, v FROM p",
    ),
    "joined": (
        "SELECT w.k AS k, w.n AS n, p.v AS v FROM {w} [RANGE 6 SECONDS] AS w JOIN {p} [RANGE 6 SECONDS] AS p"
        " ON w.k = p.k",
        "SELECT w.k, w.n, p.v FROM w JOIN p ON w.k = p.k AND time_bucket(INTERVAL 6 SECONDS,"
        " w.window_end - INTERVAL 1 MICROSECOND) = time_bucket(INTERVAL 6 SECONDS, p.ts)",
    ),
    "chain": (
        "SELECT MAX(n) AS n FROM (SELECT k, SUM(n) AS n FROM {w} [RANGE 4 SECONDS] GROUP BY k) [RANGE 20 SECONDS]",
        "SELECT MAX(n) FROM (SELECT SUM(n) AS n,"
        " time_bucket(INTERVAL 4 SECONDS, window_end - INTERVAL 1 MICROSECOND) AS b FROM w GROUP BY k, b)"
        " GROUP BY time_bucket(INTERVAL 20 SECONDS, b)",
    ),
}


class Replaced:
    """Two queries, ``windows`` and ``picked``, over a stream, and the ids of all that have had their names."""

    def __init__(self, api: Api, stream: str, draw: random.Random) -> None:
        self._api = api
        self._stream = stream
        self._draw = draw
        self.names = {"w": f"{stream}_windows", "p": f"{stream}_picked"}
        created = (api.create_queries([{"sql": self._sql(key), "name": name}])[0] for key, name in self.names.items())
        self.ids = {key: [query["id"]] for key, query in zip(self.names, created, strict=True)}

    def _sql(self, key: str) -> str:
        if key == "p":
            return f"SELECT k, v, ts FROM {self._stream} WHERE MOD(v, {self._draw.randrange(2, 5)}) <> 0"
        where = f"WHERE v < {self._draw.randrange(20, 60)}"
        return f"SELECT k, COUNT(*) AS n, SUM(v) AS s FROM {self._stream} [RANGE 2 SECONDS] {where} GROUP BY k"

    def replace(self, key: str) -> None:
        """Put another query in the place of one."""
        body = {"sql": self._sql(key)}
        self.ids[key].append(self._api.change("PUT", f"/queries/{self.names[key]}", 201, body)["id"])

    def rest(self, key: str) -> None:
        """Pause a query that runs, or resume one that is paused."""
        state = self._api.query(self.names[key])["state"]
        self._api.change("POST", f"/queries/{self.names[key]}/{'resume' if state == 'PAUSED' else 'pause'}", 202)

    def rows(self, key: str, number: int = 0) -> list[dict[str, Json]]:
        """Return the rows of all queries that had a name, or of those from one of them on."""
        return [row for query in self.ids[key][number:] for row in all_rows(self._api, query)]


def run(api: Api, seed: int, between: Callable[[], None] = lambda: None) -> None:
    """Replace queries between pushes, and compare the rows of all that read them."""
    draw = random.Random(seed)
    stream = unique("rep")
    columns = "k BIGINT, v BIGINT, ts TIMESTAMP LATENESS INTERVAL '2' SECOND"
    api.create_stream(f"CREATE STREAM {stream} ({columns}) WITH (connector = 'push', max_future = 'none')")
    replaced = Replaced(api, stream, draw)
    readers = {name: [create(api, stream, name, replaced.names)] for name in READERS}
    tuples = list(tuples_of(draw, 900))
    for first in range(0, len(tuples), 100):
        push(api, stream, ({"k": k, "v": v, "ts": timestamp(t)} for k, v, t in tuples[first : first + 100]))
        between()
        for key in draw.choices(["w", "p"], k=draw.randrange(4)):
            draw.choice([replaced.replace, replaced.replace, replaced.rest])(key)
        if first == 400:
            again = {"sql": READERS["some"][0].format_map(replaced.names)}
            readers["some"].append(api.change("PUT", f"/queries/{stream}_some", 201, again)["id"])
            later, number = create_later(api, replaced), len(replaced.ids["w"]) - 1
    for key, name in replaced.names.items():
        if api.query(name)["state"] == "PAUSED":
            replaced.rest(key)
    end(api, stream)
    for query in (*(query for ids in readers.values() for query in ids[-1:]), later):
        api.wait_state(query, "FINISHED", deadline_seconds=SECONDS)
    with connected() as duck:
        table(
            duck, "w (k BIGINT, n BIGINT, s BIGINT, window_start TIMESTAMP, window_end TIMESTAMP)", replaced.rows("w")
        )
        table(duck, "p (k BIGINT, v BIGINT, ts TIMESTAMP)", replaced.rows("p"))
        for name, (_, text) in READERS.items():
            expected = duck.sql(text)
            came = [row for query in readers[name] for row in all_rows(api, query)]
            columns_there = [column for column in came[0] if column != "_partial"]
            own = [column for column in columns_there if name == "same" or not column.startswith("window_")]
            assert counted(came, own) == Counter(map(as_text, expected.fetchall())), (name, replaced.ids, readers)
    own = ["window_end", "k", "n"]
    came_later = counted(all_rows(api, later), own)
    assert counted(replaced.rows("w", number), own) <= came_later <= counted(replaced.rows("w"), own)


def create(api: Api, stream: str, name: str, names: dict[str, str]) -> str:
    body: dict[str, Json] = {"sql": READERS[name][0].format_map(names), "name": f"{stream}_{name}"}
    return str(api.create_queries([body])[0]["id"])


def create_later(api: Api, replaced: Replaced) -> str:
    """Create a query of all rows of the newest query: none of those that it has replaced."""
    sql = f"SELECT window_end, k, n FROM {replaced.names['w']}"
    return str(api.create_queries([{"sql": sql, "start": "earliest"}])[0]["id"])


def table(duck: duckdb.DuckDBPyConnection, declared: str, rows: Iterable[dict[str, Json]]) -> None:
    columns = [part.split()[0] for part in declared.partition("(")[2].split(",")]
    duck.execute(f"CREATE TEMP TABLE {declared}")
    marks = ", ".join("?" * len(columns))
    values = [[row[column] for column in columns] for row in rows]
    duck.executemany(f"INSERT INTO {declared.split()[0]} VALUES ({marks})", values)


def counted(rows: Iterable[dict[str, Json]], columns: list[str]) -> Counter[tuple[str, ...]]:
    return Counter(as_text(row[column] for column in columns) for row in rows)


def as_text(values: Iterable[object]) -> tuple[str, ...]:
    """Return values of DuckDB as JSON has them."""
    times = (f"{each.isoformat(timespec='microseconds')}Z" if isinstance(each, datetime) else each for each in values)
    return tuple(map(str, times))


@pytest.mark.parametrize("seed", range(2))
def test_readers_go_on_with_the_query_that_takes_the_place_of_the_one_they_read(api: Api, seed: int) -> None:
    run(api, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 13))
def test_readers_of_replaced_queries_outlive_crashes(fresh_service: FreshService, seed: int) -> None:
    run_with_crashes(fresh_service, seed, lambda api, crash: run(api, seed, crash))
