"""Shared aggregation (thesis 4.3.1.5): partial aggregates per slice, key and cell, and how they merge.

A *partial table* is an Arrow table with the columns ``slice_start``, ``slice_end`` (int64, µs), ``cell`` (int32),
``key0``, ``key1``, … and one column per measure, named by ``Measure.name``; sums of decimals are decimal256 while they
are partial. The cells' query-sets travel beside it.
All partial tables of one operator, space and epoch have the same columns and merge by adding up equal groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.expressions import Column, Expression
from operators.live_queries import LiveQuery
from operators.queries import COUNT_ALL, Aggregation, Measure
from operators.tuples import Tuples
from sources.schema import TIMESTAMP, StreamSchema

SLICE_START = "slice_start"
SLICE_END = "slice_end"
CELL = "cell"

_MERGE = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}


def aggregation_of(live: LiveQuery) -> Aggregation:
    """Return the query of a live aggregation."""
    assert isinstance(live.query, Aggregation)
    return live.query


def latest_measure(schema: StreamSchema) -> Measure:
    """Return the measure that keeps the greatest event time of a group, for event-time latency."""
    return Measure("max", Column(schema.event_time, TIMESTAMP))


def measures_of(queries: Sequence[LiveQuery], schema: StreamSchema) -> tuple[Measure, ...]:
    """Return the distinct measures that the queries need, the count of tuples and the latest event time first."""
    distinct = {m.name: m for m in (COUNT_ALL, latest_measure(schema))}
    for live in queries:
        distinct.update((m.name, m) for m in aggregation_of(live).measures)
    return tuple(distinct.values())


def key_names(keys: Sequence[Expression]) -> list[str]:
    """Return the names of the key columns."""
    return [f"key{i}" for i in range(len(keys))]


def pre_aggregate(
    tuples: Tuples, groups: npt.NDArray[np.int64], keys: Sequence[Expression], measures: Sequence[Measure]
) -> pa.Table:
    """Aggregate tuples by ``groups`` and keys; the result has the columns ``group``, keys and measures."""
    data: dict[str, pa.Array] = {"group": pa.array(groups)}
    data.update((name, _one_zero(tuples.value(key))) for name, key in zip(key_names(keys), keys, strict=True))
    names = list(data)
    wanted: list[tuple[str | list[str], str]] = []
    for measure in measures:
        if measure.argument is None:
            wanted.append(([], "count_all"))
        else:
            argument = f"argument {measure.argument}"
            data[argument] = _widened(tuples.value(measure.argument), measure)
            wanted.append((argument, measure.function))
    table = pa.table(data).group_by(names, use_threads=False).aggregate(wanted)
    arrays = [table.column(name) for name in names]
    for measure, (argument_name, function) in zip(measures, wanted, strict=True):
        source = "count_all" if measure.argument is None else f"{argument_name}_{function}"
        arrays.append(_typed(table.column(source), measure))
    return pa.table(arrays, names=[*names, *(m.name for m in measures)])


def _one_zero(column: pa.Array) -> pa.Array:
    """Turn -0.0 into 0.0, which SQL groups together and Arrow does not."""
    return pc.add(column, 0.0) if pa.types.is_floating(column.type) else column


def _widened(column: pa.Array, measure: Measure) -> pa.Array:
    """Give sums of decimals 76 digits: Arrow wraps around silently at 38."""
    if measure.function == "sum" and pa.types.is_decimal(column.type):
        return column.cast(pa.decimal256(76, column.type.scale))
    return column


def _typed(column: pa.ChunkedArray, measure: Measure) -> pa.ChunkedArray:
    kind = measure.type.arrow
    if pa.types.is_decimal(kind) and measure.function == "sum":
        return column
    return column if column.type == kind else pc.cast(column, kind, safe=False)


def merge_partials(table: pa.Table, by: Sequence[str], measures: Mapping[str, str]) -> pa.Table:
    """Add up the rows that are equal in the columns ``by``; ``measures`` maps names to measure functions."""
    wanted = [(name, _MERGE[function]) for name, function in measures.items()]
    merged = table.group_by(list(by), use_threads=False).aggregate(wanted)
    arrays = [merged.column(name) for name in by]
    for name, function in measures.items():
        column = merged.column(f"{name}_{_MERGE[function]}")
        kind = table.schema.field(name).type
        arrays.append(column if column.type == kind else pc.cast(column, kind, safe=False))
    return pa.table(arrays, names=[*by, *measures])


def measure_functions(table: pa.Table) -> dict[str, str]:
    """Return the measures among the columns of a partial table, with their functions, from their names."""
    return {
        name: name.partition("(")[0] for name in table.column_names if "(" in name and name.partition("(")[0] in _MERGE
    }


def key_columns(table: pa.Table) -> list[str]:
    """Return the names of the key columns of a partial table, in order."""
    return [name for name in table.column_names if name.startswith("key")]


def renumber(table: pa.Table, number: npt.NDArray[np.int64]) -> pa.Table:
    """Give cell c of a partial table the number ``number[c]``."""
    cells = pa.array(number[np.asarray(table.column(CELL))].astype(np.int32))
    return table.set_column(table.column_names.index(CELL), CELL, cells)
