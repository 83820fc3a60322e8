"""Braid's SQL: the thesis's own form, windows in brackets after the streams."""

from __future__ import annotations

from collections.abc import Sequence

from braid.bench_driver.dialects import common
from braid.bench_driver.mixed_query import MixedQuery, Query, SessionSpec
from braid.bench_driver.nexmark_query import BRAID, NexmarkQuery
from braid.bench_driver.query_spec import ColumnRef, WindowSpec


def query_sql(spec: Query, probe: bool) -> str:
    """Return the query; a probe also gives the event times of definition 3."""
    if isinstance(spec, MixedQuery):
        return _mixed_sql(spec, probe)
    if isinstance(spec, NexmarkQuery):
        return spec.sql(BRAID, probe)

    def name(column: ColumnRef) -> str:
        return f"{column.stream}.{column.column}" if spec.is_join else column.column

    sources = ", ".join(f"{stream} {_range(spec.window)}" for stream in spec.streams)
    conditions = [common.join_condition(step, name) for step in spec.joins]
    conditions += [common.condition(comparison, name) for comparison in spec.comparisons]
    keys = f" GROUP BY {', '.join(map(name, spec.keys))}" if spec.keys else ""
    return f"SELECT {common.select_list(spec, probe, name)} FROM {sources}{common.where(conditions)}{keys}"


def _mixed_sql(query: MixedQuery, probe: bool) -> str:
    items = [f"{key} AS k{place}" for place, key in enumerate(query.keys)]
    items += [f"{aggregate.sql} AS m{place}" for place, aggregate in enumerate(query.aggregates)]
    items += [f"{column} AS c{place}" for place, column in enumerate(query.columns)]
    if probe:
        items.append(f"{common.TIME} AS time_0" if query.window is None else f"MAX({common.TIME}) AS {common.LATEST}")
    window = ""
    if isinstance(query.window, SessionSpec):
        window = f" [SESSION {_duration(query.window.gap_ms)}]"
    elif query.window is not None:
        window = f" {_range(query.window)}"
    join = "" if query.join is None else f" JOIN {query.join.table} ON {query.join.column} = {query.join.key}"
    text = f"SELECT {', '.join(items)} FROM {query.stream}{window}{join}"
    text += f" WHERE {query.where}" if query.where else ""
    text += f" GROUP BY {', '.join(query.keys)}" if query.keys else ""
    if query.having is None:
        return text
    return f"{text} HAVING {query.aggregates[query.having.place].sql} > {query.having.more_than}"


def table_sql(name: str, columns: Sequence[tuple[str, str]], path: str) -> str:
    """Return the statement that declares a static table whose rows are in a Parquet file."""
    declared = ", ".join(f"{column} {kind}" for column, kind in columns)
    return f"CREATE TABLE {name} ({declared}) WITH (connector = 'file', path = {common.text(path)}, format = 'parquet')"


def stream_sql(name: str, columns: Sequence[tuple[str, str]], location: str, path: str) -> str:
    """Return the statement that declares a stream, never late, which Braid pulls from a queue of the driver.

    `columns` are pairs of name and SQL type; the last is the event time.
    """
    (time, time_type) = columns[-1]
    declared = ", ".join(f"{column} {kind}" for column, kind in columns[:-1])
    options = f"connector = 'flight', location = {common.text(location)}, path = {common.text(path)}"
    return f"CREATE STREAM {name} ({declared}, {time} {time_type} LATENESS INTERVAL '0' SECOND) WITH ({options})"


def _range(window: WindowSpec) -> str:
    return f"[RANGE {_duration(window.size_ms)} SLIDE {_duration(window.slide_ms)}]"


def _duration(milliseconds: int) -> str:
    return f"{milliseconds} MILLISECONDS" if milliseconds % 1000 else f"{milliseconds // 1000} SECONDS"
