"""What mixed queries give for a table of tuples: each by one statement of DuckDB, which knows no batches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from braid.bench_driver.mixed_query import MixedQuery, SessionSpec
from braid.bench_driver.queues.datasets import TIME
from tests.kit.duck import connected

Row = tuple[Any, ...]


def rows_of_duckdb(query: MixedQuery, tuples: pa.Table, tables: Mapping[str, pa.Table]) -> list[Row]:
    """Return the rows of all that has ended when all tuples have come: times, keys and aggregates, or columns."""
    with connected() as connection:
        connection.register("tuples", tuples)
        for name, rows in tables.items():
            connection.register(name, rows)
        return connection.execute(_statement(query)).fetchall()


def _statement(query: MixedQuery) -> str:
    join = "" if query.join is None else f" JOIN {query.join.table} ON {query.join.column} = {query.join.key}"
    where = f" WHERE {query.where}" if query.where else ""
    if query.window is None:
        return f"SELECT {', '.join(query.columns)} FROM tuples{join}{where}"
    keys, groups = ["window_start", "window_end", *query.keys], ["window_start", "window_end", *query.keys]
    if isinstance(query.window, SessionSpec):
        source, groups = _sessions(query, f"SELECT * FROM tuples{join}{where}"), [*query.keys, "session"]
        gap = f"INTERVAL {query.window.gap_ms} MILLISECONDS"
        keys[:2] = [f"MIN({TIME}) AS window_start", f"MAX({TIME}) + {gap} AS window_end"]
    else:
        source = _windows(query.window.size_ms, query.window.slide_ms, f"SELECT * FROM tuples{join}{where}")
    rows = f"SELECT {', '.join([*keys, *(aggregate.sql for aggregate in query.aggregates)])} FROM ({source})"
    rows += f" GROUP BY {', '.join(groups)}"
    if query.having is not None:
        rows += f" HAVING {query.aggregates[query.having.place].sql} > {query.having.more_than}"
    return f"SELECT * FROM ({rows}) WHERE window_end <= (SELECT MAX({TIME}) FROM tuples)"


def _windows(size_ms: int, slide_ms: int, tuples: str) -> str:
    """Return each tuple once for each window that it lies in."""
    size, slide = 1000 * size_ms, 1000 * slide_ms
    newest = f"epoch_us({TIME}) // {slide} * {slide}"
    starts = f"UNNEST(range({newest}, epoch_us({TIME}) - {size}, -{slide}))"
    windows = f"SELECT *, {starts} AS start_us FROM ({tuples})"
    times = f"make_timestamp(start_us) AS window_start, make_timestamp(start_us + {size}) AS window_end"
    return f"SELECT *, {times} FROM ({windows})"


def _sessions(query: MixedQuery, tuples: str) -> str:
    """Return each tuple with the number of its session among those of its key."""
    assert isinstance(query.window, SessionSpec)
    over = f"OVER (PARTITION BY {', '.join(query.keys)} ORDER BY {TIME})"
    gap = f"INTERVAL {query.window.gap_ms} MILLISECONDS"
    begins = f"SELECT *, CASE WHEN {TIME} - LAG({TIME}) {over} < {gap} THEN 0 ELSE 1 END AS begins FROM ({tuples})"
    return f"SELECT *, SUM(begins) {over} AS session FROM ({begins})"


def differences(got: Iterable[Row], expected: Iterable[Row]) -> list[tuple[Row | None, Row | None]]:
    """Return what differs between two bags of rows; numbers with a fraction are added up in different orders."""
    pairs = itertools.zip_longest(sorted(got, key=_order), sorted(expected, key=_order))
    return [(a, b) for a, b in pairs if a is None or b is None or not all(map(_same, a, b))]


def _order(row: Row) -> Any:
    exact = [repr(value) for value in row if not isinstance(value, float | Decimal)]
    return exact, [float(value) for value in row if isinstance(value, float | Decimal)]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float | Decimal) and isinstance(b, float | Decimal):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)
