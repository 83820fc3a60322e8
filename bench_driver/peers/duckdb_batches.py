"""Mixed queries by DuckDB over micro-batches, each query by itself: what a user would write in a day.

Lifecycle: `DuckdbBatches` → `add` queries → for each batch `take`, then `fire`. Batches come in the order of event
time, and no tuple is late: everything that ends up to the greatest event time has ended. Times are microseconds since
1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Protocol

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from braid.bench_driver.dialects import duckdb as dialect
from braid.bench_driver.dialects.common import TIME
from braid.bench_driver.dialects.duckdb import BATCH
from braid.bench_driver.mixed_query import MixedQuery, SessionSpec
from braid.bench_driver.query_spec import WindowSpec

ARRIVED = "arrived"
SECOND_US = 1_000_000
# with so many queries a batch is copied into a table first: 100 took 0.84 s instead of 0.95, 20 took 0.19 instead of
# 0.17 s over half a million trips
WORTH_LOADING = 50

Rows = list[tuple[int, pa.Table]]
"""Rows of queries, by their numbers."""


class _Runner(Protocol):
    """One query."""

    def take(self, first_us: int) -> None:
        """Take in the batch, whose first tuple is of `first_us`."""

    def fire(self, watermark_us: int) -> list[pa.Table]:
        """Return the rows of what has ended."""


class DuckdbBatches:
    """Queries over one stream of tuples with `schema`; `tables` are the static tables that they join with, by name."""

    def __init__(self, schema: pa.Schema, tables: Iterable[tuple[str, pa.Table]], threads: int) -> None:
        self._connection = duckdb.connect(config={"threads": threads, "preserve_insertion_order": False})
        self._runners: dict[int, _Runner] = {}
        self._watermark_us: int | None = None
        self._seconds: set[int] = set()  # of event time in which tuples came
        for name, rows in tables:
            self._connection.register("rows_of_table", rows)
            self._connection.execute(f"CREATE TABLE {name} AS SELECT * FROM rows_of_table")
            self._connection.unregister("rows_of_table")
        self._arrive(schema.empty_table())

    def add(self, number: int, query: MixedQuery, probe: bool = False) -> None:
        """Run a query from the next batch on.

        Raises:
            duckdb.Error: DuckDB cannot run it.
        """
        if query.window is None:
            self._runners[number] = _Selection(self._connection, query, probe)
        elif isinstance(query.window, SessionSpec):
            self._runners[number] = _Sessions(self._connection, number, query, probe)
        else:
            self._runners[number] = _Windows(self._connection, number, query, query.window, probe, self._seconds)

    def take(self, batch: pa.Table) -> None:
        """Take in a batch: each query evaluates its predicate and adds up what it lets through."""
        times = batch[TIME].cast(pa.int64())
        self._watermark_us = max(pc.max(times).as_py(), self._watermark_us or 0)
        self._seconds.update(pc.unique(pc.divide(times, SECOND_US)).to_pylist())
        self._arrive(batch)
        first_us = pc.min(times).as_py()
        for runner in self._runners.values():
            runner.take(first_us)

    def fire(self) -> Rows:
        """Return the rows of what has ended."""
        if self._watermark_us is None:
            return []
        return [
            (number, rows)
            for number, runner in self._runners.items()
            for rows in runner.fire(self._watermark_us)
            if rows.num_rows
        ]

    def _arrive(self, batch: pa.Table) -> None:
        """Let queries find a batch; many of them read it quicker from a table of DuckDB's own."""
        self._connection.register(ARRIVED, batch)
        source = ARRIVED
        if len(self._runners) >= WORTH_LOADING:
            self._connection.execute(f"CREATE OR REPLACE TABLE loaded AS SELECT * FROM {ARRIVED}")
            source = "loaded"
        self._connection.execute(f"CREATE OR REPLACE TEMPORARY VIEW {BATCH} AS SELECT * FROM {source}")

    def close(self) -> None:
        """Close the database, which is in memory."""
        self._connection.close()


class _Selection:
    def __init__(self, connection: duckdb.DuckDBPyConnection, query: MixedQuery, probe: bool) -> None:
        self._connection = connection
        self._sql = dialect.selection_sql(query, probe)
        self._rows: list[pa.Table] = []
        connection.execute(self._sql)

    def take(self, _: int) -> None:
        self._rows.append(self._connection.sql(self._sql).to_arrow_table())

    def fire(self, _: int) -> list[pa.Table]:
        rows, self._rows = self._rows, []
        return rows


class _Windows:
    """Partial aggregates by slice, merged when a window ends, and deleted when no window needs them any more.

    A window without a second of those in `seconds` costs no statement: after a silence there are many.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        number: int,
        query: MixedQuery,
        window: WindowSpec,
        probe: bool,
        seconds: Set[int],
    ) -> None:
        self._connection, self._seconds = connection, seconds
        self._size, self._slide = window.size_ms * dialect.MILLISECOND, window.slide_ms * dialect.MILLISECOND
        self._partials = f"partials_{number}"
        self._take = f"INSERT INTO {self._partials} {dialect.slices_sql(query, probe)}"
        self._fire = dialect.window_sql(query, self._partials, probe)
        self._end: int | None = None  # of the next window
        connection.execute(f"CREATE TABLE {self._partials} AS {dialect.slices_sql(query, probe)}")

    def take(self, first_us: int) -> None:
        if self._end is None:
            self._end = (first_us - self._size) // self._slide * self._slide + self._slide + self._size
        self._connection.execute(self._take)

    def fire(self, watermark_us: int) -> list[pa.Table]:
        rows = []
        while self._end is not None and self._end <= watermark_us:
            begin = self._end - self._size
            if any(second in self._seconds for second in range(begin // SECOND_US, -(-self._end // SECOND_US))):
                rows.append(self._connection.sql(self._fire, params=[begin, self._end]).to_arrow_table())
            self._end += self._slide
        if rows and self._end is not None:
            self._connection.execute(f"DELETE FROM {self._partials} WHERE slice < {self._end - self._size}")
        return rows


class _Sessions:
    """Partial aggregates of the sessions that have not ended."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, number: int, query: MixedQuery, probe: bool) -> None:
        self._connection = connection
        self._kept, self._chained = f"sessions_{number}", f"chained_{number}"
        connection.execute(f"CREATE TABLE {self._kept} AS {dialect.sessions_sql(query, None, probe)}")
        self._take = f"CREATE OR REPLACE TABLE {self._chained} AS {dialect.sessions_sql(query, self._kept, probe)}"
        self._fire = dialect.ended_sessions_sql(query, self._chained, probe)
        assert isinstance(query.window, SessionSpec)
        self._gap = query.window.gap_ms * dialect.MILLISECOND

    def take(self, _: int) -> None:
        self._connection.execute(self._take)

    def fire(self, watermark_us: int) -> list[pa.Table]:
        rows = self._connection.sql(self._fire, params=[watermark_us]).to_arrow_table()
        keep = f"SELECT * FROM {self._chained} WHERE last + {self._gap} > {watermark_us}"
        self._connection.execute(f"CREATE OR REPLACE TABLE {self._kept} AS {keep}")
        return [rows]
