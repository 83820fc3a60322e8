"""Braid's SQL: the thesis's own form, windows in brackets after the streams."""

from __future__ import annotations

from collections.abc import Sequence

from bench_driver.dialects import common
from bench_driver.query_spec import ColumnRef, QuerySpec


def query_sql(spec: QuerySpec, probe: bool) -> str:
    """Return the query; a probe also gives the event times of definition 3."""

    def name(column: ColumnRef) -> str:
        return f"{column.stream}.{column.column}" if spec.is_join else column.column

    window = f"[RANGE {_duration(spec.window.size_ms)} SLIDE {_duration(spec.window.slide_ms)}]"
    sources = ", ".join(f"{stream} {window}" for stream in spec.streams)
    conditions = [common.join_condition(step, name) for step in spec.joins]
    conditions += [common.condition(comparison, name) for comparison in spec.comparisons]
    keys = f" GROUP BY {', '.join(map(name, spec.keys))}" if spec.keys else ""
    return f"SELECT {common.select_list(spec, probe, name)} FROM {sources}{common.where(conditions)}{keys}"


def stream_sql(name: str, columns: Sequence[tuple[str, str]], location: str, path: str) -> str:
    """Return the statement that declares a stream, never late, which Braid pulls from a queue of the driver.

    `columns` are pairs of name and SQL type; the one called `time` is the event time.
    """
    declared = ", ".join(
        f"{column} {kind}" + (" LATENESS INTERVAL '0' SECOND" if column == common.TIME else "")
        for column, kind in columns
    )
    options = f"connector = 'flight', location = {common.text(location)}, path = {common.text(path)}"
    return f"CREATE STREAM {name} ({declared}) WITH ({options})"


def _duration(milliseconds: int) -> str:
    return f"{milliseconds} MILLISECONDS" if milliseconds % 1000 else f"{milliseconds // 1000} SECONDS"
