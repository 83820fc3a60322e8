"""Queries that start in the past, beside live tuples, late ones, queries that come and go, and crashes, against DuckDB.

What a query sees is worked out from what the service tells: where it joined its streams, the event times between which
it sees tuples, and the dead letters of the stream and of the replay that it read.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from tests.kit.client import Api
from tests.kit.duck import connect
from tests.kit.fixtures import FreshService
from tests.kit.service import RunningService
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.service

BASE = datetime(2026, 1, 1, tzinfo=UTC)
LATENESS = 2.0
DEADLINE = 240.0
NAMES = count()
SHAPES = ("selection", "tumbling", "hopping", "sessions", "join")
TUMBLING = 10, 10
HOPPING = 12, 4
GAP = 1.5


@dataclass
class Event:
    """A tuple as it was pushed; ``t`` is in seconds after BASE."""

    id: int
    k: int
    t: float


@dataclass
class Feed:
    """A stream, and all that was pushed to it, in the order of its offsets."""

    name: str
    events: list[Event] = field(default_factory=list)

    def create(self, api: Api) -> None:
        api.create_stream(
            f"CREATE STREAM {self.name} (id BIGINT, k INT, t TIMESTAMP LATENESS INTERVAL '{LATENESS:g}' SECOND)"
            " WITH (connector = 'push', format = 'json')"
        )

    def push(self, api: Api, rng: random.Random, at: float, size: int) -> None:
        """Push tuples around a time, some of them too late."""
        times = [at + rng.uniform(-2 * LATENESS, 2) for _ in range(size)]
        new = [Event(len(self.events) + n, rng.randrange(3), round(t, 3)) for n, t in enumerate(times)]
        self.events += new
        body = [{"id": e.id, "k": e.k, "t": (BASE + timedelta(seconds=e.t)).isoformat()} for e in new]
        answer = api.push(self.name, "application/json", json.dumps(body).encode())
        assert answer["accepted"] == size


def sql_of(shape: str, feeds: list[Feed]) -> str:
    a, b = feeds[0].name, feeds[1].name
    return {
        "selection": f"SELECT id, k FROM {a} WHERE k > 0",
        "tumbling": f"SELECT k, COUNT(*) AS n, SUM(id) AS s FROM {a} [RANGE {TUMBLING[0]} SECONDS] GROUP BY k",
        "hopping": f"SELECT COUNT(*) AS n, MAX(id) AS s FROM {a}"
        f" [RANGE {HOPPING[0]} SECONDS SLIDE {HOPPING[1]} SECONDS]"
        " WHERE k <> 1",
        "sessions": f"SELECT k, COUNT(*) AS n, SUM(id) AS s FROM {a} [SESSION {GAP} SECONDS] GROUP BY k",
        "join": f"SELECT x.k AS k, COUNT(*) AS n, SUM(x.id + y.id) AS s FROM {a} [RANGE {TUMBLING[0]} SECONDS] AS x"
        f" JOIN {b} [RANGE {TUMBLING[0]} SECONDS] AS y ON x.k = y.k GROUP BY x.k",
    }[shape]


WINDOWS = """
    SELECT e.*, ws FROM {events} AS e, (SELECT unnest(range(-5000, 20000)) * {slide} AS ws) AS w
    WHERE e.t >= ws AND e.t < ws + {size}
"""
EXPECTED = {
    "selection": "SELECT NULL, k, id, id FROM a WHERE k > 0",
    "tumbling": "SELECT ws, k, COUNT(*), SUM(id) FROM w10 WHERE ws + 10 <= $until GROUP BY ws, k",
    "hopping": "SELECT ws, NULL, COUNT(*), MAX(id) FROM w12 WHERE k <> 1 AND ws + 12 <= $until GROUP BY ws",
    "sessions": """
        WITH marked AS (SELECT *, CASE WHEN t - lag(t) OVER (PARTITION BY k ORDER BY t, id) < 1.5 THEN 0 ELSE 1 END AS m
                        FROM a),
             numbered AS (SELECT *, SUM(m) OVER (PARTITION BY k ORDER BY t, id) AS number FROM marked)
        SELECT min(t), k, COUNT(*), SUM(id) FROM numbered GROUP BY k, number HAVING max(t) + 1.5 <= $until
    """,
    "join": """
        SELECT x.ws, x.k, COUNT(*), SUM(x.id + y.id) FROM w10 AS x JOIN y10 AS y ON x.ws = y.ws AND x.k = y.k
        WHERE x.ws + 10 <= $until GROUP BY x.ws, x.k
    """,
}


def seconds(text: str | None) -> float | None:
    return None if text is None else (datetime.fromisoformat(text) - BASE).total_seconds()


def seen(query: dict[str, Any], feed: Feed, late: dict[str | None, set[int]]) -> pa.Table:
    """Return the tuples of a stream that a query sees, by what the service says of it."""
    joined, replay = (query["joined"] or {}).get(feed.name), (query["replays"] or {}).get(feed.name)
    # one that was deleted while it caught up never joined: its replay decided about all of its tuples
    meets = 0 if replay is None else math.inf if joined is None else joined["offsets"]["0"]
    after, until = seconds(query["active_from"][feed.name]), seconds(query["active_to"][feed.name])
    if until is None and query["state"] != "RUNNING":
        until = -math.inf  # it was deleted before the stream had a tuple for it
    chosen = [
        event
        for offset, event in enumerate(feed.events)
        if (after is None or event.t > after)
        and (until is None or event.t <= until)
        and (offset < meets or event.id not in late[None])
        and (replay is None or event.id not in late[replay])
    ]
    return pa.table(
        {
            "id": pa.array([e.id for e in chosen], pa.int64()),
            "k": pa.array([e.k for e in chosen], pa.int64()),
            "t": pa.array([e.t for e in chosen], pa.float64()),
        }
    )


def expected_rows(
    shape: str, query: dict[str, Any], feeds: list[Feed], late: dict[str, Any], final: float
) -> list[Any]:
    ends = [seconds(query["active_to"][feed.name]) for feed in feeds if feed.name in query["active_to"]]
    until = min([final, *(end for end in ends if end is not None)])
    with connect() as duck:
        for table, feed in zip("ab", feeds, strict=True):
            if feed.name in query["active_from"]:
                duck.register(table, seen(query, feed, late[feed.name]))
        duck.execute(f"CREATE TEMP VIEW w10 AS {WINDOWS.format(events='a', size=10, slide=10)}")
        duck.execute(f"CREATE TEMP VIEW w12 AS {WINDOWS.format(events='a', size=12, slide=4)}")
        if shape == "join":
            duck.execute(f"CREATE TEMP VIEW y10 AS {WINDOWS.format(events='b', size=10, slide=10)}")
        text = EXPECTED[shape]
        rows = duck.execute(text, {"until": until} if "$until" in text else {}).fetchall()
    return sorted(rows, key=str)


def read_rows(api: Api, shape: str, query: dict[str, Any]) -> list[Any]:
    rows, cursor = [], None
    while True:
        page = api.page(query["id"], after=cursor)
        for row in page["rows"]:
            start = seconds(row.get("window_start"))
            n, s = (row["id"], row["id"]) if shape == "selection" else (row["n"], row["s"])
            rows.append((start, row.get("k"), n, s))
        cursor = page["cursor"]
        if not page["rows"]:
            return sorted(rows, key=str)


def run(api: Api, seed: int, between: Callable[[int], None]) -> None:
    """Push and ask at random; ``between`` is called after each round with its number."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    number = next(NAMES)
    feeds = [Feed(f"starts_{seed}_{number}_{letter}") for letter in "ab"]
    for feed in feeds:
        feed.create(api)
    asked: list[tuple[str, str]] = []
    at = 0.0
    for step in range(14):
        at += rng.uniform(2, 9)
        for feed in feeds:
            feed.push(api, rng, at, rng.randrange(1, 400))
        bodies = []
        for _ in range(rng.randrange(0, 4)):
            moment = (BASE + timedelta(seconds=rng.uniform(-5, at))).isoformat()
            start = rng.choice(["earliest", "now", moment, f"-{rng.randrange(1, 60)} s", None])
            bodies.append((rng.choice(SHAPES), start))
        if bodies:
            answers = api.create_queries(
                [{"sql": sql_of(shape, feeds), "start": start} for shape, start in bodies], wait=0
            )
            asked += [(shape, answer["id"]) for (shape, _), answer in zip(bodies, answers, strict=True)]
        if asked and rng.random() < 0.2:
            shape, query_id = rng.choice(asked)
            if shape != "sessions":  # what is cut off a session is not told
                api.request("DELETE", f"/queries/{query_id}")
        between(step)
    for _, query_id in asked:
        api.wait_state(query_id, "RUNNING", "DRAINING", "RETIRED")
    for feed in feeds:
        feed.push(api, random.Random(0), at + 3600, 1)
    check(api, feeds, asked)


def check(api: Api, feeds: list[Feed], asked: list[tuple[str, str]]) -> None:
    """Compare all rows once the last tuples have ended all windows."""
    for feed in feeds:
        wait_until(
            lambda feed=feed: seconds(api.stream(feed.name)["clock"]) == feed.events[-1].t, DEADLINE, "all is read"
        )
    final = min(feed.events[-1].t for feed in feeds) - LATENESS
    late: dict[str, dict[str | None, set[int]]] = {}
    for feed in feeds:
        late[feed.name] = defaultdict(set)
        for page in api.dead_letters(feed.name):
            for letter in page:
                assert letter["reason"] == "late"
                late[feed.name][letter["query"]].add(letter["tuple"]["id"])
    for shape, query_id in asked:
        query = api.query(query_id)
        expected = expected_rows(shape, query, feeds, late, final)
        wait_until(
            lambda shape=shape, query=query, expected=expected: len(read_rows(api, shape, query)) >= len(expected),
            DEADLINE,
            lambda shape=shape, query=query: f"{shape} {query['id']} has all its rows: {query}",
        )
        rows = read_rows(api, shape, query)
        assert rows == expected, (shape, query)


@pytest.mark.parametrize("seed", [int(os.environ.get("BRAID_STARTS_SEED", "1"))])
def test_queries_that_start_in_the_past_see_each_tuple_once(service: RunningService, seed: int) -> None:
    with Api(service.url) as api:
        run(api, seed, lambda _: None)
        api.drop_created()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_queries_that_start_in_the_past_see_each_tuple_once_whatever_is_killed(
    fresh_service: FreshService, seed: int
) -> None:
    service = fresh_service()

    def kill(step: int) -> None:
        if step % 4 == 3:
            service.kill()
            service.revive()

    with Api(service.url, service.revive) as api:
        run(api, seed, kill)
