"""What the texts of all dialects have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from braid.bench_driver.query_spec import ColumnRef, Comparison, JoinSpec, QuerySpec

TIME = "time"
TOTAL = "total"
LATEST = "latest"

Name = Callable[[ColumnRef], str]


def event_time_columns(spec: QuerySpec) -> tuple[str, ...]:
    """Return the columns that a probe query has for definition 3; the event time of a row is the greatest of them."""
    return (LATEST,) if spec.measure else tuple(f"time_{i}" for i in range(len(spec.streams)))


def select_list(spec: QuerySpec, probe: bool, name: Name) -> str:
    """Return what the query selects; `name` writes a column. Columns of one name are told apart by their stream."""
    if spec.measure:
        return ", ".join([f"SUM({name(spec.measure)}) AS {TOTAL}", *([latest(spec, name)] if probe else [])])
    occurrences = Counter(column.column for column in spec.columns)
    items = [
        name(column) + (f" AS {column.stream}_{column.column}" if occurrences[column.column] > 1 else "")
        for column in spec.columns
    ]
    if probe:
        items += [
            f"{time} AS {column_name}"
            for time, column_name in zip(_times(spec, name), event_time_columns(spec), strict=True)
        ]
    return ", ".join(items)


def latest(spec: QuerySpec, name: Name) -> str:
    """Return the item that gives the greatest event time of a group's tuples, of all streams."""
    times = [f"MAX({time})" for time in _times(spec, name)]
    greatest = times[0] if len(times) == 1 else f"GREATEST({', '.join(times)})"
    return f"{greatest} AS {LATEST}"


def condition(comparison: Comparison, name: Name) -> str:
    """Return a selection predicate."""
    return f"{name(ColumnRef(comparison.stream, comparison.column))} {comparison.operator} {comparison.constant!r}"


def join_condition(step: JoinSpec, name: Name) -> str:
    """Return a join predicate."""
    return f"{name(step.left)} {step.operator} {name(step.right)}"


def steps_to(spec: QuerySpec, number: int) -> list[JoinSpec]:
    """Return the join steps between the stream at `number` and those before it."""
    stream, earlier = spec.streams[number], spec.streams[:number]
    pairs = [(other, stream) for other in earlier] + [(stream, other) for other in earlier]
    return [step for step in spec.joins if (step.left.stream, step.right.stream) in pairs]


def where(conditions: list[str]) -> str:
    """Return the WHERE clause with a space before it, empty without conditions."""
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def text(value: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + value.replace("'", "''") + "'"


def _times(spec: QuerySpec, name: Name) -> list[str]:
    return [name(ColumnRef(stream, TIME)) for stream in spec.streams]
