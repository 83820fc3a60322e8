"""Joins against DuckDB: random queries over random tuples, window by window, through the kernels and the reader."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators import join_block, lane
from operators.queries import Join
from session.sql.select import plan_select
from sources.schema import BIGINT, DOUBLE, INT, TIMESTAMP, VARCHAR, ColumnType, Field, StreamDefinition, StreamSchema
from sources.storage import Storage
from tests.kit.examples import examples
from tests.operators.join_pipeline import JoinPipeline, changelog
from tests.operators.pipeline import Row

SECOND = 1_000_000
FIELDS = (
    Field("k", BIGINT),
    Field("m", INT),
    Field("v", BIGINT),
    Field("x", DOUBLE),
    Field("s", VARCHAR),
    Field("d", ColumnType("DECIMAL", 10, 2)),
    Field("t", TIMESTAMP),
)
STREAMS = [
    StreamDefinition(f"s-{name}", name, StreamSchema(FIELDS, "t", lateness * SECOND), "push", "json")
    for name, lateness in (("a", 0), ("b", 2), ("c", 1))
]
CATALOG = {stream.name: stream for stream in STREAMS}
ITEMS = ("{0}.k", "{0}.m", "{0}.v", "{0}.x", "{0}.s", "{0}.d", "{0}.v + {1}.v", "upper({1}.s)", "coalesce({1}.k, -1)")
AGGREGATES = (
    "COUNT(*)", "COUNT({0}.v)", "SUM({0}.v)", "SUM({1}.x)", "AVG({1}.v)", "MIN({0}.s)", "MAX({1}.s)", "MIN({1}.v)",
    "MAX({0}.x)", "SUM({1}.d)", "MIN({0}.d)", "STDDEV_SAMP({1}.x)",
)  # fmt: skip


@dataclass(frozen=True)
class RandomJoin:
    """A SELECT with room for what stands after each stream: a window here, nothing in DuckDB."""

    text: str
    size: int
    slide: int

    @property
    def sql(self) -> str:
        """What Braid is asked."""
        return self.text.replace("~", f" [RANGE {self.size} SECONDS SLIDE {self.slide} SECONDS]")

    @property
    def duckdb(self) -> str:
        """The same over the tuples of one window."""
        return self.text.replace("~", "")


def random_join(rng: random.Random) -> RandomJoin:
    inputs = rng.choice([2, 2, 2, 3, 3, 4])
    names = [rng.choice("abc") for _ in range(inputs)]
    aliases = [f"i{n}" for n in range(inputs)]
    conditions, sources, same = [], [f"{names[0]}~ AS i0"], rng.random() < 0.6
    for n in range(1, inputs):
        other = 0 if same else rng.randrange(n)
        columns = ["k"] if same else [rng.choice(["k", "m"]) for _ in range(rng.choice([1, 1, 2]))]
        compared = [
            f"i{other}.{column} = i{n}.{column if same else rng.choice(['k', 'm', column])}" for column in columns
        ]
        own = [f"i{n}.{condition(rng)}"] * (rng.random() < 0.3)
        kind = rng.choice([",", "JOIN", "LEFT JOIN"])
        if kind == ",":
            sources.append(f", {names[n]}~ AS i{n}")
            conditions += [*compared, *own]
        else:
            sources.append(f"{kind} {names[n]}~ AS i{n} ON {' AND '.join([*compared, *own])}")
    conditions += [f"{rng.choice(aliases)}.{condition(rng)}" for _ in range(rng.choice([0, 1, 1, 2]))]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    size = rng.randint(1, 8)

    def chosen(texts: Sequence[str]) -> list[str]:
        some = rng.sample(texts, rng.randint(1, 4))
        return [f"{text.format(rng.choice(aliases), rng.choice(aliases))}" for text in some]

    if rng.random() < 0.5:
        picked = [text if "+" not in text else text for text in chosen(ITEMS)]
        select, group = picked, ""
    else:
        keys = list(
            dict.fromkeys(f"{rng.choice(aliases)}.{rng.choice('kms')}" for _ in range(rng.choice([0, 1, 1, 2])))
        )
        measures = chosen(AGGREGATES)
        # without GROUP BY other engines have a row for a window without tuples
        having = rng.choice(["", "", " HAVING COUNT(*) > 1"] if keys else [" HAVING COUNT(*) > 0"])
        group = (f" GROUP BY {', '.join(keys)}" if keys else "") + having
        select = keys + measures
    listed = ", ".join(f"{text} AS c{n}" for n, text in enumerate(select))
    return RandomJoin(f"SELECT {listed} FROM {' '.join(sources)}{where}{group}", size, rng.randint(1, size))


def condition(rng: random.Random) -> str:
    column = rng.choice(["v", "v", "k", "s"])
    if column == "s":
        return rng.choice(["s > 'b'", "s IN ('a', 'c')"])
    return f"{column} {rng.choice(['<', '<=', '>', '>=', '<>', '='])} {rng.randint(-1, 4)}"


def random_tuples(rng: random.Random, time: int) -> tuple[list[Row], int]:
    found = []
    for _ in range(rng.choice([0, 1, 6, 15])):
        time += rng.choice([0, 0, 200_000, 500_000, SECOND])
        found.append(
            {
                "k": rng.choice([None, 0, 1, 1, 2, 3]),
                "m": rng.choice([None, 0, 1, 2]),
                "v": rng.choice([None, *range(-2, 6)]),
                "x": rng.choice([None, -0.0, 0.5, 2.25, 1e3]),
                "s": rng.choice([None, "a", "b", "c", "é"]),
                "d": rng.choice([None, Decimal("1.25"), Decimal("-3.10"), Decimal("99999999.99")]),
                "t": time - rng.choice([0, 0, rng.randint(0, 2 * SECOND)]),
            }
        )
    return found, time


def expected(
    query: RandomJoin,
    seen: dict[str, list[Row]],
    active_from: dict[str, int | None],
    active_to: int | None,
    reached: int,
) -> list[tuple[Any, ...]]:
    """Return the rows of all windows that end at or before the waterline, by DuckDB."""
    size, slide = query.size * SECOND, query.slide * SECOND
    visible = {}
    for stream in STREAMS:
        after = active_from.get(stream.id)
        visible[stream.name] = [row for row in seen[stream.id] if after is None or row["t"] > after]
    times = [row["t"] for rows in visible.values() for row in rows]
    found: list[tuple[Any, ...]] = []
    if not times:
        return found
    start = (min(times) - size) // slide * slide
    with duckdb.connect() as connection:
        while start <= max(times):
            end = start + size
            if end <= reached and (active_to is None or end <= active_to):
                for name, rows in visible.items():
                    connection.register(name, table_of([row for row in rows if start <= row["t"] < end]))
                found += [(start, end, *row) for row in connection.execute(query.duckdb).fetchall()]
            start += slide
    return found


def table_of(rows: Sequence[Row]) -> pa.Table:
    columns = {}
    for f in FIELDS:
        values = [row[f.name] for row in rows]
        columns[f.name] = (
            pa.array(values, pa.int64()).cast(f.type.arrow) if f.name == "t" else pa.array(values, f.type.arrow)
        )
    return pa.table(columns)


def comparable(row: Sequence[Any]) -> tuple[str, ...]:
    """Return a row as texts that are equal where engines may differ in the last digit."""
    shown = []
    for value in row:
        if isinstance(value, dt.datetime):
            value = round(value.replace(tzinfo=dt.UTC).timestamp() * SECOND)
        if isinstance(value, float):
            value = "nan" if math.isnan(value) else f"{value + 0.0:.9g}"
        shown.append(str(value))
    return tuple(shown)


@settings(max_examples=examples(30), deadline=None, print_blob=True)
@given(seed=st.integers(0, 2**32))
def test_joins_give_the_rows_that_duckdb_gives(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    rng = random.Random(seed)
    pipeline = JoinPipeline(Storage(str(tmp_path_factory.mktemp("data"))), STREAMS, rng)
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(lane, "MOST_ENTRIES", rng.choice([0, 2, 64]))
    queries: dict[str, RandomJoin] = {}
    while len(queries) < 4:
        query = random_join(rng)
        try:
            plan_select(query.sql, CATALOG)
        except Exception as error:  # such as a LEFT JOIN that WHERE tests for NULL
            assert "must not" in str(error) or "is over several" in str(error) or "of one input" in str(error), (
                query.sql
            )
            continue
        queries[f"q{len(queries)}"] = query
    waiting = list(queries)
    slots = {name: number for number, name in enumerate(queries)}
    active_from: dict[str, dict[str, int | None]] = {}
    active_to: dict[str, int] = {}
    seen: dict[str, list[Row]] = {stream.id: [] for stream in STREAMS}
    time, epoch = 5 * SECOND, 0
    for _ in range(rng.randint(3, 9)):
        changelogs = []
        if waiting and rng.random() < 0.7:
            name = waiting.pop()
            plan = plan_select(queries[name].sql, CATALOG)
            assert isinstance(plan, Join)
            epoch += 1
            changelogs.append(changelog(epoch, [(name, slots[name], plan)]))
            active_from[name] = dict(pipeline.clocks)
        running = [name for name in active_from if name not in active_to]
        if running and rng.random() < 0.1 and all(clock is not None for clock in pipeline.clocks.values()):
            name = rng.choice(running)
            if active_from[name] != pipeline.clocks:
                plan = plan_select(queries[name].sql, CATALOG)
                epoch += 1
                changelogs.append(changelog(epoch, [], [(name, slots[name])]))
                active_to[name] = min(clock for s in plan.streams if (clock := pipeline.clocks[s]) is not None)
        batch = {}
        for stream in STREAMS:
            batch[stream.id], reached_time = random_tuples(rng, time)
            time = max(time, reached_time - SECOND)
        for stream, rows in pipeline.run(batch, changelogs).items():
            seen[stream] += rows
    last = {"k": 77, "m": 77, "v": 77, "x": 0.0, "s": "end", "d": None, "t": time + 100 * SECOND}
    for stream, rows in pipeline.run({stream.id: [last] for stream in STREAMS}).items():
        seen[stream] += rows
    for name in active_from:
        plan = plan_select(queries[name].sql, CATALOG)
        reached = min(w for s in plan.streams if (w := pipeline.waterlines[s]) is not None)
        rows = expected(queries[name], seen, active_from[name], active_to.get(name), reached)
        got = [
            tuple(value for column, value in row.items() if column != "_partial") for row in pipeline.rows.get(name, [])
        ]
        assert sorted(map(comparable, got)) == sorted(map(comparable, rows)), (seed, name, queries[name].sql)
    assert not pipeline.failures
    monkeypatch.undo()


def test_a_window_has_no_more_rows_than_the_limit(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "MOST_JOINED_ROWS", 100)
    pipeline = JoinPipeline(Storage(str(tmp_path)), STREAMS, random.Random(1))
    window = "[RANGE 4 SECONDS]"
    many = plan_select(f"SELECT x.v FROM a {window} AS x JOIN b {window} AS y ON x.k = y.k", CATALOG)
    few = plan_select(f"SELECT x.v FROM a {window} AS x JOIN b {window} AS y ON x.k = y.k WHERE y.v = 3", CATALOG)
    nothing = {"m": 0, "x": 0.0, "s": "", "d": None}
    rows = [nothing | {"k": 1, "v": i, "t": 5 * SECOND + i} for i in range(30)]
    pipeline.run({"s-a": rows, "s-b": rows}, [changelog(1, [("many", 0, many), ("few", 1, few)])])
    end = [nothing | {"k": 2, "v": 0, "t": 50 * SECOND}]
    pipeline.run({"s-a": end, "s-b": end})
    assert len(pipeline.rows["many"]) == 100
    assert len(pipeline.rows["few"]) == 30
    assert "900 rows" in pipeline.failures["many"]
    assert "few" not in pipeline.failures
    assert join_block.COUNT == "rows"
