"""Random queries over queries, each in Braid's SQL and as a relation of DuckDB with columns ``k, v, t`` (µs)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import duckdb

SECOND = 10**6
MEASURES = ("COUNT(*)", "SUM(v)", "MAX(v)", "MIN(v)", "COUNT(DISTINCT v)")
EMITS = (
    "EMIT STREAM",
    "EMIT STREAM AFTER WATERMARK",
    "EMIT STREAM AFTER DELAY INTERVAL '200' MILLISECOND AND AFTER WATERMARK",
)


@dataclass(frozen=True)
class Relation:
    """What stands in FROM: ``sql`` without a name is a subquery.

    ``duck`` is a table of DuckDB, ``period`` how far the ends of its windows are apart (seconds), None where its
    rows do not say of which window they are;
    ``query`` is the name of the query, None for what is a subquery of others, or the stream. Where its rows are
    ``changes``, their sum is what DuckDB's table has.
    """

    sql: str
    duck: str
    level: int
    period: int | None = None
    query: str | None = None
    changes: bool = False

    def named(self, alias: str, window: str = "") -> str:
        """Return it as FROM has it."""
        return f"{self.query or self.sql} {window} {alias}" if self.query else f"({self.sql}) {window} AS {alias}"


@dataclass
class Trees:
    """Grows relations over a stream, whose tuples are in DuckDB's table ``s``, up to so many ``levels``.

    ``created`` are the queries to make.
    """

    duck: duckdb.DuckDBPyConnection
    stream: str
    draw: random.Random
    levels: int
    relations: list[Relation] = field(default_factory=list)
    created: list[Relation] = field(default_factory=list)
    _tables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.relations.append(Relation("", "s", 0, query=self.stream))

    def grow(self, count: int) -> None:
        """Add relations; some of them are queries with a name."""
        while len(self.relations) <= count:
            makers = (self._selection, self._aggregation, self._aggregation, self._join, self._union, self._same_window)
            grown = self.draw.choice(makers)()
            if grown is None:
                continue
            if self.draw.random() < 0.6 or len(self.relations) == count:
                name = f"{self.stream}_q{len(self.created)}"
                grown = replace(grown, query=name)
                self.created.append(grown)
            self.relations.append(grown)

    def _pick(self, *, final: bool = False) -> Relation:
        known = [each for each in self.relations if each.level < self.levels and not (final and each.changes)]
        return self.draw.choice(known[-6:])

    def _emit(self, aggregation: Relation) -> Relation:
        """Return an aggregation, some of whose rows are to come before they are final."""
        emit = self.draw.choice(["", "", *EMITS])
        return replace(aggregation, sql=f"{aggregation.sql} {emit}", changes=bool(emit))

    def _table(self, text: str) -> str:
        name = f"r{len(self._tables)}"
        self._tables[name] = text
        self.duck.execute(f"CREATE TEMP TABLE {name} AS {text}")
        return name

    def without(self, late: Sequence[int]) -> None:
        """Compute all relations without some tuples, by their ids."""
        self.duck.execute("DELETE FROM s WHERE id IN (SELECT unnest($1))", [list(late)])
        for name, text in self._tables.items():
            self.duck.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {text}")

    def _selection(self) -> Relation:
        inner, modulus, shift = self._pick(), self.draw.randrange(2, 6), self.draw.randrange(100)
        select = f"SELECT k, v + {shift} AS v"
        where = f"WHERE MOD(v, {modulus}) <> 0"
        table = self._table(f"{select}, t FROM {inner.duck} {where}")
        period = inner.period if self.draw.random() < 0.5 else None
        if period is not None:
            select = select.replace("SELECT", "SELECT window_start, window_end,")
        sql = f"{select} FROM {inner.named('a')} {where}"
        return Relation(sql, table, inner.level + 1, period, changes=inner.changes)

    def _aggregation(self) -> Relation:
        inner, slide = self._pick(), self.draw.choice([1, 2, 5, 10])
        size = slide * self.draw.choice([1, 1, 2, 3])
        measure = self.draw.choice(MEASURES)
        key = self.draw.choice(["k", "MOD(k, 2)"])
        window = f"[RANGE {size} SECONDS SLIDE {slide} SECONDS]"
        sql = f"SELECT {key} AS k, {measure} AS v FROM {inner.named('a', window)} GROUP BY {key}"
        table = self._table(
            f"SELECT {key} AS k, CAST({measure} AS BIGINT) AS v, e - 1 AS t FROM ({windowed(inner.duck, size, slide)})"
            f" GROUP BY {key}, e"
        )
        return self._emit(Relation(sql, table, inner.level + 1, slide))

    def _join(self) -> Relation:
        one, other, size = self._pick(final=True), self._pick(final=True), self.draw.choice([2, 5, 10])
        window = f"[RANGE {size} SECONDS]"
        inputs = f"{one.named('a', window)} JOIN {other.named('b', window)}"
        sql = f"SELECT a.k AS k, a.v + b.v AS v FROM {inputs} ON a.k = b.k"
        table = self._table(
            f"SELECT a.k AS k, a.v + b.v AS v, a.e - 1 AS t FROM ({windowed(one.duck, size, size)}) a"
            f" JOIN ({windowed(other.duck, size, size)}) b ON a.k = b.k AND a.e = b.e"
        )
        (rows,) = self.duck.execute(f"SELECT COUNT(*) FROM {table}").fetchall()[0]
        return Relation(sql, table, max(one.level, other.level) + 1, size) if rows < 20_000 else self._selection()

    def _union(self) -> Relation | None:
        one, other = self._pick(), self._pick()
        if one.changes != other.changes:
            return None
        sql = f"SELECT k, v FROM {one.named('a')} UNION ALL SELECT k, v FROM {other.named('a')}"
        table = self._table(f"SELECT k, v, t FROM {one.duck} UNION ALL SELECT k, v, t FROM {other.duck}")
        return Relation(sql, table, max(one.level, other.level) + 1, changes=one.changes)

    def _same_window(self) -> Relation | None:
        """Return what GROUP BY over the bounds of a windowed query gives, without a window of its own."""
        inner = self._pick()
        if inner.period is None:
            return None
        bounds = "window_start, window_end"
        sql = f"SELECT {bounds}, 1 AS k, SUM(v) AS v FROM {inner.named('a')} GROUP BY {bounds}"
        table = self._table(f"SELECT 1 AS k, CAST(SUM(v) AS BIGINT) AS v, t FROM {inner.duck} GROUP BY t")
        return self._emit(Relation(sql, table, inner.level + 1, inner.period))

    def rows(self, relation: Relation) -> list[tuple[int, int, int | None]]:
        """Return the rows that a query must have: key, value, and where it has windows their end (µs)."""
        end = "NULL" if relation.period is None else "t + 1"
        return sorted_rows(self.duck.execute(f"SELECT k, v, {end} FROM {relation.duck}").fetchall())


def windowed(table: str, size: int, slide: int) -> str:
    """Return the rows of a table once for each window that they are in, with its end ``e`` (µs)."""
    step = slide * SECOND
    ends = f"range((t // {step} + 1) * {step}, t + {size * SECOND} + 1, {step})"
    return f"SELECT k, v, t, unnest({ends}) AS e FROM {table}"


def sorted_rows(rows: Iterable[tuple[int, int, int | None]]) -> list[tuple[int, int, int | None]]:
    """Return rows in an order of their own."""
    return sorted(rows, key=lambda row: (row[2] or 0, row[0], row[1]))


def tuples_of(draw: random.Random, count: int) -> Iterator[tuple[int, int, int]]:
    """Yield tuples ``k, v, t`` (µs), some 20 a second, up to two seconds out of order, and some that come late."""
    now = 1_767_225_600 * SECOND
    for _ in range(count):
        now += draw.randrange(100_000)
        delay = 2 * SECOND if draw.random() < 0.95 else 20 * SECOND
        yield draw.randrange(5), draw.randrange(50), now - draw.randrange(delay)


def timestamp(us: int) -> str:
    """Return microseconds since 1970 as RFC 3339 in UTC."""
    return f"{(datetime(1970, 1, 1) + timedelta(microseconds=us)).isoformat(timespec='microseconds')}Z"
