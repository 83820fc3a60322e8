"""Random joins of streams and static tables over random tuples, and what DuckDB makes of them, window by window."""

from __future__ import annotations

import datetime as dt
import math
import random
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from braid.operators.joins.query import Join
from braid.operators.queries import Aggregation
from braid.operators.tuples import Tuples
from braid.sources.connectors.static_table import TableDefinition, TableVersion
from braid.sources.core.errors import SqlNotAllowed
from braid.sources.core.schema import (
    BIGINT,
    DOUBLE,
    INT,
    TIMESTAMP,
    VARCHAR,
    ColumnType,
    Field,
    Schema,
    StreamDefinition,
    StreamSchema,
)
from tests.kit.duck import connected
from tests.kit.plans import plan_select
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
TABLE_SCHEMA = Schema(FIELDS[:-1])
ITEMS = ("{0}.k", "{0}.m", "{0}.v", "{0}.x", "{0}.s", "{0}.d", "{0}.v + {1}.v", "upper({1}.s)", "coalesce({1}.k, -1)")
AGGREGATES = (
    "COUNT(*)", "COUNT({0}.v)", "SUM({0}.v)", "SUM({1}.x)", "AVG({1}.v)", "MIN({0}.s)", "MAX({1}.s)", "MIN({1}.v)",
    "MAX({0}.x)", "SUM({1}.d)", "MIN({0}.d)", "STDDEV_SAMP({1}.x)", "COUNT(DISTINCT {0}.v)", "COUNT(DISTINCT {1}.s)",
    "SUM({0}.v + {1}.v)", "MIN({0}.s || {1}.s)", "AVG({0}.x - {1}.x)", "COUNT(DISTINCT {0}.k + {1}.v)",
    "SUM({0}.d + {1}.d)",
)  # fmt: skip
REFUSALS = (
    "whose own ON has more than equal columns",
    "the one that it is compared with",
    "be compared by all of it",
    "is not compared with the others",
    "is not compared with any",
)


def _random_rows(rng: random.Random, keys: Sequence[int | None]) -> pa.Table:
    rows: list[Row] = [random_values(rng) | {"k": key} for key in keys]
    return table_of(rows, TABLE_SCHEMA)


def random_values(rng: random.Random) -> dict[str, Any]:
    """Return values of all columns but the time."""
    return {
        "k": rng.choice([None, 0, 1, 1, 2, 3]),
        "m": rng.choice([None, 0, 1, 2]),
        "v": rng.choice([None, *range(-2, 6)]),
        "x": rng.choice([None, -0.0, 0.5, 2.25, 1e3]),
        "s": rng.choice([None, "a", "b", "c", "é"]),
        "d": rng.choice([None, Decimal("1.25"), Decimal("-3.10"), Decimal("99999999.99")]),
    }


def table_of(rows: Sequence[Row], schema: Schema = STREAMS[0].schema) -> pa.Table:
    columns = {}
    for f in schema.fields:
        values = [row[f.name] for row in rows]
        columns[f.name] = (
            pa.array(values, pa.int64()).cast(f.type.arrow) if f.name == "t" else pa.array(values, f.type.arrow)
        )
    return pa.table(columns)


class RandomTables:
    """Two static tables: ``u`` has keys once, ``w`` some of them several times, and NULL."""

    names = ("u", "w")

    def __init__(self) -> None:
        rng = random.Random(7)
        keys: dict[str, Sequence[int | None]] = {"u": [0, 1, 3], "w": [0, 1, 1, 2, 2, 2, None, 7]}
        self.rows = {name: _random_rows(rng, keys[name]) for name in self.names}
        self.versions = {
            name: TableVersion(TableDefinition(f"t-{name}", name, TABLE_SCHEMA, "parquet"), rows)
            for name, rows in self.rows.items()
        }

    def find(self, name: str) -> TableVersion | None:
        """Return a table by its name."""
        return self.versions.get(name)

    def add(self, table: TableVersion) -> None:
        """Do nothing."""

    def version_of(self, table: TableVersion) -> str:
        """Return what lookups call its rows."""
        return table.id


TABLES = RandomTables()


@dataclass(frozen=True)
class RandomJoin:
    """A SELECT with room for what stands after the name of each input: a window after streams here, nothing in DuckDB.

    ``~`` is the place after a stream, ``@`` that after a table. With a ``gap`` the windows are sessions. Inputs are
    joined in the order that costs least, or, not ``is_reordered``, as they are written. What is ``apart`` shares only
    with joins that are called so.
    """

    text: str
    size: int
    slide: int
    gap: int = 0
    is_reordered: bool = True
    apart: str = ""

    @property
    def sql(self) -> str:
        """What Braid is asked."""
        return self.over("")

    def over(self, suffix: str) -> str:
        """Return what Braid is asked over streams and tables whose names end so."""
        window = f"{suffix} [RANGE {self.size} SECONDS SLIDE {self.slide} SECONDS]"
        if self.gap:
            window = f"{suffix} [SESSION {self.gap} SECONDS]"
        return self.text.replace("@", suffix).replace("~", window)

    @property
    def duckdb(self) -> str:
        """The same over the tuples of one window."""
        return self.text.replace("@", "").replace("~", "")


PARTNERS = ("{0}.v < {1}.v", "{0}.v > 0", "({0}.s = {1}.s OR {1}.v IS NULL)", "{0}.v = {0}.k", "{0}.k <> {1}.m")
"""What ON says of partners besides that they are equal."""

ACROSS = (
    "{0}.v < {1}.v",
    "{0}.v + {1}.v > 3",
    "{0}.s = {1}.s OR {0}.v IS NULL",
    "{0}.v IS NULL",
    "{0}.v = COALESCE({1}.v, 2)",
    "{0}.k = CASE WHEN {1}.v IS NULL THEN 1 ELSE 2 END",
)
"""What WHERE says of two inputs together."""

APART = ("", "", "", "", "", "one", "other")


def random_join(rng: random.Random) -> RandomJoin:
    inputs = rng.choice([2, 2, 2, 3, 3, 4])
    names = [f"{rng.choice('abc')}~"]
    names += [f"{rng.choice('uw')}@" if rng.random() < 0.2 else f"{rng.choice('abc')}~" for _ in range(inputs - 1)]
    aliases = [f"i{n}" for n in range(inputs)]
    conditions, sources, same = [], [f"{names[0]} AS i0"], rng.random() < 0.6
    for n in range(1, inputs):
        earlier = 0 if same else rng.randrange(n)
        columns = ["k"] if same else [rng.choice(["k", "m"]) for _ in range(rng.choice([1, 1, 2]))]
        own_columns = [column if same else rng.choice(["k", "m", column]) for column in columns]
        compared = [
            f"COALESCE(i{earlier}.{left}, 1) = i{n}.{right}"
            if rng.random() < 0.1
            else f"i{earlier}.{left} = i{n}.{right}"
            for left, right in zip(columns, own_columns, strict=True)
        ]
        own_condition = [f"i{n}.{condition(rng)}"] * (rng.random() < 0.3)
        kind = rng.choice([",", "JOIN", "LEFT JOIN"])
        if kind == ",":
            sources.append(f", {names[n]} AS i{n}")
            conditions += [*compared, *own_condition]
        else:
            pair_condition = [rng.choice(PARTNERS).format(f"i{rng.randrange(n)}", f"i{n}")] * (rng.random() < 0.3)
            sources.append(f"{kind} {names[n]} AS i{n} ON {' AND '.join([*compared, *own_condition, *pair_condition])}")
        if rng.random() < (0.3 if kind == "LEFT JOIN" else 0.03):
            conditions.append(f"i{n}.{own_columns[0]} IS NULL")
    conditions += [f"{rng.choice(aliases)}.{condition(rng)}" for _ in range(rng.choice([0, 1, 1, 2]))]
    if rng.random() < 0.3:
        across = rng.choice(ACROSS)
        conditions.append(f"({across.format(rng.choice(aliases), rng.choice(aliases))})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    size = rng.randint(1, 8)

    def chosen(texts: Sequence[str]) -> list[str]:
        sample = rng.sample(texts, rng.randint(1, 4))
        return [text.format(rng.choice(aliases), rng.choice(aliases)) for text in sample]

    if rng.random() < 0.5:
        select, group = chosen(ITEMS), ""
    else:
        keys = list(
            dict.fromkeys(
                f"{rng.choice(aliases)}.k + {rng.choice(aliases)}.v"
                if rng.random() < 0.1
                else f"{rng.choice(aliases)}.{rng.choice('kms')}"
                for _ in range(rng.choice([0, 1, 1, 2]))
            )
        )
        measures = chosen(AGGREGATES)
        # without GROUP BY other engines have a row for a window without tuples
        having = rng.choice(["", "", " HAVING COUNT(*) > 1"] if keys else [" HAVING COUNT(*) > 0"])
        group = (f" GROUP BY {', '.join(keys)}" if keys else "") + having
        select = keys + measures
    select_list = ", ".join(f"{text} AS c{n}" for n, text in enumerate(select))
    text, is_reordered = f"SELECT {select_list} FROM {' '.join(sources)}{where}{group}", rng.random() < 0.7
    query = RandomJoin(text, size, rng.randint(1, size), is_reordered=is_reordered, apart=rng.choice(APART))
    return query if rng.random() < 0.8 else with_sessions(query, rng.choice([1, 2, 4])) or query


def with_sessions(query: RandomJoin, gap: int) -> RandomJoin | None:
    """Return a join over sessions instead; None where that needs tables, or a group."""
    return None if "@" in query.text or query.text.count("~") == 1 else replace(query, gap=gap)


def plan(query: RandomJoin) -> Join | Aggregation | None:
    """Return the plan of a query; None for what is not supported, such as a LEFT JOIN that WHERE tests for NULL."""
    try:
        planned = plan_select(query.sql, CATALOG, tables=TABLES)
    except SqlNotAllowed as error:
        if any(reason in error.detail for reason in REFUSALS):
            return None
        raise
    if isinstance(planned, Join):
        planned = replace(planned, is_reordered=query.is_reordered)
    planned = planned.set_apart(query.apart)
    assert isinstance(planned, (Join, Aggregation))
    return planned


def condition(rng: random.Random) -> str:
    column = rng.choice(["v", "v", "k", "s"])
    if column == "s":
        return rng.choice(["s > 'b'", "s IN ('a', 'c')"])
    return f"{column} {rng.choice(['<', '<=', '>', '>=', '<>', '='])} {rng.randint(-1, 4)}"


def random_tuples(rng: random.Random, time: int) -> tuple[list[Row], int]:
    rows = []
    for _ in range(rng.choice([0, 1, 6, 15])):
        time += rng.choice([0, 0, 200_000, 500_000, SECOND])
        rows.append(random_values(rng) | {"t": time - rng.choice([0, 0, rng.randint(0, 2 * SECOND)])})
    return rows, time


def expected(
    query: RandomJoin,
    tuples: dict[str, list[Row]],
    active_from: dict[str, int | None],
    active_to: int | None,
    reached: int,
) -> list[tuple[Any, ...]]:
    """Return the rows of all windows that end at or before the watermark, by DuckDB."""
    visible = {}
    for stream in STREAMS:
        active_after = active_from.get(stream.id)
        visible[stream.id] = [row for row in tuples[stream.id] if active_after is None or row["t"] > active_after]
    text, windows = _sessions(query, visible) if query.gap else _slides(query, visible)
    expected_rows: list[tuple[Any, ...]] = []
    for (start, end), rows_of in windows:
        if end <= reached and (active_to is None or end <= active_to):
            tables = {name: table_of(rows) for name, rows in rows_of.items()}
            expected_rows += [(start, end, *row) for row in rows_of_duckdb(text, TABLES.rows | tables)]
    return expected_rows


# the bounds of a window, and the rows of each table in it
_WindowRows = tuple[tuple[int, int], dict[str, list[Row]]]


def _slides(query: RandomJoin, visible: Mapping[str, list[Row]]) -> tuple[str, list[_WindowRows]]:
    """Return the text for DuckDB, and the windows that may have tuples, their tables called as the streams are."""
    size, slide = query.size * SECOND, query.slide * SECOND
    times = [row["t"] for rows in visible.values() for row in rows]
    begins = range((min(times) - size) // slide * slide, max(times) + 1, slide) if times else ()
    return query.duckdb, [
        (
            (begin, begin + size),
            {s.name: [row for row in visible[s.id] if begin <= row["t"] < begin + size] for s in STREAMS},
        )
        for begin in begins
    ]


def _sessions(query: RandomJoin, visible: Mapping[str, list[Row]]) -> tuple[str, list[_WindowRows]]:
    """Return the text for DuckDB over a table for each input, and the sessions; those with equal bounds together."""
    planned = plan(query)
    assert isinstance(planned, Join)
    by_key: dict[tuple[Any, ...], list[tuple[int, int, Row]]] = {}
    for number, join_input in enumerate(planned.inputs):
        rows = visible[join_input.stream]
        table = table_of(rows)
        tuples = Tuples({name: table.column(name).combine_chunks() for name in table.column_names}, len(rows))
        passes = [True] * len(rows) if join_input.where is None else tuples.value(join_input.where).to_pylist()
        keys = zip(*(tuples.value(key).to_pylist() for key in join_input.keys if key is not None), strict=True)
        for row, key, passed in zip(rows, keys, passes, strict=True):
            if passed:
                by_key.setdefault(key, []).append((row["t"], number, row))
    names = [f"t{number}" for number in range(len(planned.inputs))]
    sessions: dict[tuple[int, int], dict[str, list[Row]]] = {}
    for members in by_key.values():
        members.sort(key=lambda member: member[0])
        first = 0
        for position, (time, _, _) in enumerate(members, start=1):
            if position == len(members) or members[position][0] - time >= query.gap * SECOND:
                session = sessions.setdefault(
                    (members[first][0], time + query.gap * SECOND), {name: [] for name in names}
                )
                for _, number, row in members[first:position]:
                    session[names[number]].append(row)
                first = position
    return re.sub(r"\b[abc]~ AS i(\d)", r"t\1 AS i\1", query.text), list(sessions.items())


def rows_of_duckdb(text: str, tables: Mapping[str, pa.Table]) -> list[tuple[Any, ...]]:
    """Return the rows of a query over some tables; without DuckDB's optimizer where that fails at an assertion."""
    for optimizer in ("enable_optimizer", "disable_optimizer"):
        with suppress(duckdb.InternalException), connected() as connection:
            connection.execute(f"PRAGMA {optimizer}")
            for name, table in tables.items():
                connection.register(name, table)
            return connection.execute(text).fetchall()
    raise AssertionError(f"DuckDB cannot answer {text}.")


def comparable(row: Sequence[Any]) -> tuple[str, ...]:
    """Return a row as texts that are equal where engines may differ in the last digit."""
    texts = []
    for value in row:
        if isinstance(value, dt.datetime):
            value = round(value.replace(tzinfo=dt.UTC).timestamp() * SECOND)
        if isinstance(value, float):
            value = "nan" if math.isnan(value) else f"{value + 0.0:.9g}"
        texts.append(str(value))
    return tuple(texts)
