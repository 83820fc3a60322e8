"""Spark SQL over views called like the streams, whose column `time` has a watermark.

A join is one of the inputs' windows, too: each input gets a column `window`, and a tuple is a row of each it lies in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from braid.bench_driver.dialects import common
from braid.bench_driver.query_spec import ColumnRef, QuerySpec, WindowSpec

WINDOW = "window"


def query_sql(spec: QuerySpec, probe: bool) -> str:
    """Return the query; a probe also gives the event times of definition 3."""
    return f"SELECT {common.select_list(spec, probe, _name)} FROM {_sources(spec, filtered=True)}{_group_by(spec)}"


def fused_sql(specs: Sequence[QuerySpec], probe: bool) -> str:
    """Return one query for many aggregations: the sums are its columns `q0`, `q1` and so on.

    What a user may write by hand who has all queries beforehand. A sum is NULL where none of its tuples is in a group
    that another query has.

    Raises:
        ValueError: the queries differ in more than predicates and measures, or have no measure.
    """
    shapes = {(spec.streams, spec.window, spec.joins, spec.keys) for spec in specs}
    if len(shapes) != 1 or any(spec.measure is None for spec in specs):
        raise ValueError(
            "fused queries must be aggregations with the same streams, window, joins and keys,"
            f" got {len(specs)} queries of {len(shapes)} kinds; fuse those of each kind"
        )
    items = [f"{_conditional_sum(spec)} AS q{i}" for i, spec in enumerate(specs)]
    items += [common.latest(specs[0], _name)] if probe else []
    return f"SELECT {', '.join(items)} FROM {_sources(specs[0], filtered=False)}{_group_by(specs[0])}"


def _conditional_sum(spec: QuerySpec) -> str:
    assert spec.measure
    if not spec.comparisons:
        return f"SUM({_name(spec.measure)})"
    return f"SUM(CASE WHEN {' AND '.join(_conditions(spec, spec.streams))} THEN {_name(spec.measure)} END)"


def _name(column: ColumnRef) -> str:
    return f"`{column.stream}`.`{column.column}`"


def _conditions(spec: QuerySpec, streams: Iterable[str]) -> list[str]:
    return [common.condition(comparison, _name) for comparison in spec.comparisons if comparison.stream in streams]


def _window(window: WindowSpec, column: str) -> str:
    slide = f", '{window.slide_ms} milliseconds'" if window.slide_ms != window.size_ms else ""
    return f"window({column}, '{window.size_ms} milliseconds'{slide})"


def _sources(spec: QuerySpec, filtered: bool) -> str:
    """Return what follows FROM: the stream and its selection, or the windowed inputs, joined one after the other."""
    if not spec.is_join:
        stream = spec.streams[0]
        return f"`{stream}`{common.where(_conditions(spec, [stream]) if filtered else [])}"
    text = _input(spec, spec.streams[0], filtered)
    for number, stream in enumerate(spec.streams[1:], start=1):
        conditions = [f"`{spec.streams[0]}`.`{WINDOW}` = `{stream}`.`{WINDOW}`"]
        conditions += [common.join_condition(step, _name) for step in common.steps_to(spec, number)]
        text += f" JOIN {_input(spec, stream, filtered)} ON {' AND '.join(conditions)}"
    return text


def _input(spec: QuerySpec, stream: str, filtered: bool) -> str:
    where_clause = common.where(_conditions(spec, [stream]) if filtered else [])
    time = _name(ColumnRef(stream, common.TIME))
    # a stateful operator takes one column with a watermark, which has to be the window: this time has none
    plain_time = f"TIMESTAMP_MICROS(UNIX_MICROS({time})) AS `{common.TIME}`"
    columns = f"* EXCEPT (`{common.TIME}`), {plain_time}, {_window(spec.window, time)} AS `{WINDOW}`"
    return f"(SELECT {columns} FROM `{stream}`{where_clause}) AS `{stream}`"


def _group_by(spec: QuerySpec) -> str:
    if spec.measure is None:
        return ""
    first = spec.streams[0]
    window = f"`{first}`.`{WINDOW}`" if spec.is_join else _window(spec.window, _name(ColumnRef(first, common.TIME)))
    return f" GROUP BY {', '.join([window, *map(_name, spec.keys)])}"
