"""DuckDB's SQL for one mixed query over micro-batches: partial aggregates of a batch, and rows of what has ended.

The batch is the table `BATCH`, whose event time is `time`. A query over windows adds partial aggregates of each slice
of time (the greatest length that divides size and slide) to a table of its own, a query over sessions keeps those of
the sessions that have not ended. Partial aggregates of aggregate ``m0`` are the columns ``m0``, or ``m0_n``, ``m0_sum``
and ``m0_squares``, or ``m0_value`` for what COUNT(DISTINCT) counts. Times are microseconds since 1970.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from braid.bench_driver.dialects.common import LATEST, TIME
from braid.bench_driver.mixed_query import Aggregate, MixedQuery, SessionSpec
from braid.bench_driver.query_spec import WindowSpec

BATCH = "batch"
MILLISECOND = 1000


def selection_sql(query: MixedQuery, probe: bool) -> str:
    """Return what a selection gives of a batch."""
    items = [f"{column} AS c{place}" for place, column in enumerate(query.columns)]
    items += [f"{TIME} AS time_0"] if probe else []
    return f"SELECT {', '.join(items)} FROM {_source(query)}"


def slice_us(window: WindowSpec) -> int:
    """Return how long a slice is, in microseconds."""
    return math.gcd(window.size_ms, window.slide_ms) * MILLISECOND


def slices_sql(query: MixedQuery, probe: bool) -> str:
    """Return the partial aggregates of a batch by slice and key; ``slice`` is when a slice begins."""
    assert isinstance(query.window, WindowSpec)
    length = slice_us(query.window)
    items = [f"epoch_us({TIME}) // {length} * {length} AS slice", *_keys(query), *_partials(query, probe)]
    return f"SELECT {', '.join(items)} FROM {_source(query)} GROUP BY ALL"


def window_sql(query: MixedQuery, partials: str, probe: bool) -> str:
    """Return the rows of the window from ``$1`` to ``$2``, out of the table `partials`."""
    bounds = ["make_timestamp($1) AS window_start", "make_timestamp($2) AS window_end"]
    items = [*bounds, *_key_names(query), *_finals(query, probe)]
    keys = f" GROUP BY {', '.join(_key_names(query))}" if query.keys else ""
    rows = f"SELECT {', '.join(items)} FROM {partials} WHERE slice >= $1 AND slice < $2{keys} HAVING COUNT(*) > 0"
    return _having(query, rows)


def sessions_sql(query: MixedQuery, kept: str | None, probe: bool) -> str:
    """Return the partial aggregates of the sessions of a batch and of those in the table `kept`.

    ``first`` and ``last`` are when their first and last tuples come. Without `kept` they are those of the batch.
    """
    assert isinstance(query.window, SessionSpec)
    times = [f"epoch_us({TIME}) AS first", f"epoch_us({TIME}) AS last"]
    tuples = f"SELECT {', '.join([*times, *_keys(query), *_arguments(query, probe)])} FROM {_source(query)}"
    of_batch = [*_key_names(query), "MIN(first) AS first", "MAX(last) AS last"]
    partials = _chained(query, tuples, [*of_batch, *_partials(query, probe, of_arguments=True)])
    if kept is None:
        return partials
    return _chained(query, f"SELECT * FROM {kept} UNION ALL ({partials})", [*of_batch, *_merged(query, probe)])


def _chained(query: MixedQuery, intervals: str, items: Sequence[str]) -> str:
    """Return items of each chain of intervals of a key that are less than the gap apart."""
    assert isinstance(query.window, SessionSpec)
    keys = _key_names(query)
    over = f"OVER (PARTITION BY {', '.join(keys)} ORDER BY first, last)" if keys else "OVER (ORDER BY first, last)"
    gap = query.window.gap_ms * MILLISECOND
    begins = f"SELECT *, CASE WHEN first - LAG(last) {over} < {gap} THEN 0 ELSE 1 END AS begins FROM ({intervals})"
    numbered = f"SELECT *, SUM(begins) {over} AS session FROM ({begins})"
    return f"SELECT {', '.join(items)} FROM ({numbered}) GROUP BY {', '.join([*keys, 'session'])}"


def ended_sessions_sql(query: MixedQuery, sessions: str, probe: bool) -> str:
    """Return the rows of the sessions in the table `sessions` that end up to ``$1``."""
    assert isinstance(query.window, SessionSpec)
    gap = query.window.gap_ms * MILLISECOND
    times = ["make_timestamp(first) AS window_start", f"make_timestamp(last + {gap}) AS window_end"]
    items = [*times, *_key_names(query), *_finals(query, probe, merge=False)]
    return _having(query, f"SELECT {', '.join(items)} FROM {sessions} WHERE last + {gap} <= $1")


def _having(query: MixedQuery, rows: str) -> str:
    if query.having is None:
        return rows
    return f"SELECT * FROM ({rows}) WHERE m{query.having.place} > {query.having.more_than}"


def _source(query: MixedQuery) -> str:
    join = "" if query.join is None else f" JOIN {query.join.table} ON {query.join.column} = {query.join.key}"
    return f"{BATCH}{join}" + (f" WHERE {query.where}" if query.where else "")


def _keys(query: MixedQuery) -> list[str]:
    return [f"{key} AS k{place}" for place, key in enumerate(query.keys)]


def _key_names(query: MixedQuery) -> list[str]:
    return [f"k{place}" for place in range(len(query.keys))]


def _aggregates(query: MixedQuery, probe: bool) -> list[tuple[str, Aggregate]]:
    """Return the aggregates with their names; a probe has the event time of definition 3, too."""
    named = [(f"m{place}", aggregate) for place, aggregate in enumerate(query.aggregates)]
    return [*named, *([(LATEST, Aggregate("max", TIME))] if probe else [])]


def _arguments(query: MixedQuery, probe: bool) -> list[str]:
    """Return what each aggregate is of, named as the aggregate; TRUE for COUNT(*)."""
    return [
        f"{'TRUE' if aggregate.argument == '*' else aggregate.argument} AS {name}"
        for name, aggregate in _aggregates(query, probe)
    ]


def _partials(query: MixedQuery, probe: bool, of_arguments: bool = False) -> list[str]:
    """Return partial aggregates of tuples, or `of_arguments`, columns named as the aggregates."""
    items = []
    for name, aggregate in _aggregates(query, probe):
        argument = name if of_arguments else aggregate.argument
        match aggregate.function:
            case "avg":
                items += [f"SUM({argument}) AS {name}_sum", f"COUNT({argument}) AS {name}_n"]
            case "stddev_samp":
                squares = f"SUM({argument} * {argument}) AS {name}_squares"
                items += [f"SUM({argument}) AS {name}_sum", squares, f"COUNT({argument}) AS {name}_n"]
            case "count_distinct":  # one more key
                items.append(f"{argument} AS {name}_value")
            case function:
                items.append(f"{_whole(aggregate, f'{function.upper()}({argument})')} AS {name}")
    return items


def _merged(query: MixedQuery, probe: bool) -> list[str]:
    """Return partial aggregates of partial aggregates."""
    items = []
    for name, aggregate in _aggregates(query, probe):
        match aggregate.function:
            case "avg" | "stddev_samp" as function:
                parts = ("sum", "n") if function == "avg" else ("sum", "squares", "n")
                items += [f"SUM({name}_{part}) AS {name}_{part}" for part in parts]
            case "min" | "max" as function:
                items.append(f"{function.upper()}({name}) AS {name}")
            case _:
                items.append(f"{_whole(aggregate, f'SUM({name})')} AS {name}")
    return items


def _whole(aggregate: Aggregate, value: str) -> str:
    """Return a sum of whole numbers in 64 bits; DuckDB's has 128."""
    return f"CAST({value} AS BIGINT)" if aggregate.is_whole or aggregate.function == "count" else value


def _finals(query: MixedQuery, probe: bool, merge: bool = True) -> list[str]:
    """Return aggregates out of partial ones, which have to be merged unless they are one for each row."""

    def total(column: str) -> str:
        return f"SUM({column})" if merge else column

    items = []
    for name, aggregate in _aggregates(query, probe):
        n, sums, squares = total(f"{name}_n"), total(f"{name}_sum"), total(f"{name}_squares")
        match aggregate.function:
            case "avg":
                value = f"{sums} / {n}"
            case "stddev_samp":
                deviations = f"GREATEST(0, {squares} - {sums} * {sums} / {n})"
                value = f"CASE WHEN {n} > 1 THEN SQRT({deviations} / ({n} - 1)) END"
            case "count_distinct":
                value = f"COUNT(DISTINCT {name}_value)"
            case "min" | "max" as function:
                value = f"{function.upper()}({name})" if merge else name
            case _:
                value = _whole(aggregate, total(name))
        items.append(f"{value} AS {name}")
    return items
