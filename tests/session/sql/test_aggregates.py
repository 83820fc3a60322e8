"""Aggregates that are made of measures, against DuckDB's over the same tuples."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.evaluation import evaluate
from braid.operators.query_parts import Measure
from tests.kit.duck import connected
from tests.kit.examples import examples
from tests.session.sql.catalog import CATALOG, aggregation
from tests.session.sql.test_sql_against_duckdb import ROWS, same

SCHEMA = CATALOG["purchases"].schema.arrow
AGGREGATES = [
    "AVG(price)",
    "VAR_POP(price)",
    "VAR_POP(gem_pack) * 2",
    "STDDEV_POP(price)",
    "STDDEV_POP(user_id) FILTER (WHERE gem_pack > 0)",
    "BOOL_AND(ok)",
    "BOOL_OR(price > 0)",
    "BOOL_OR(ok) FILTER (WHERE gem_pack > 0)",
    "COUNT(*) FILTER (WHERE price > 0)",
    "COUNT(name) FILTER (WHERE gem_pack IS NOT NULL)",
    "COUNT(DISTINCT gem_pack) FILTER (WHERE ok)",
    "SUM(user_id) FILTER (WHERE gem_pack > 0 OR ok)",
    "MIN(price) FILTER (WHERE NOT ok) + 1",
    "MAX(name) FILTER (WHERE gem_pack IS NULL)",
    "MAX(day) FILTER (WHERE NULL)",
]


def value_of(duck: duckdb.DuckDBPyConnection, measure: Measure, columns: dict[str, pa.Array], length: int) -> pa.Array:
    """Return what slices make of a measure, as a column of one row."""
    if measure.argument is None:
        return pa.array([length], measure.type.arrow)
    function = {"count_distinct": "count(DISTINCT v)"}.get(measure.function, f"{measure.function}(v)")
    duck.register("arguments", pa.table({"v": evaluate(measure.argument, columns, length)}))
    (row,) = duck.execute(f"SELECT {function} FROM arguments").fetchall()
    return pa.array(row, measure.type.arrow)


@pytest.mark.parametrize("aggregate", AGGREGATES)
@given(rows=st.lists(ROWS, min_size=1, max_size=6))
@settings(max_examples=examples(20), deadline=None)
def test_what_is_made_of_measures_means_what_it_means_in_duckdb(aggregate: str, rows: list[dict[str, Any]]) -> None:
    query = aggregation(f"SELECT {aggregate} AS a FROM purchases [RANGE 8 SECONDS]")
    tuples = pa.Table.from_pylist(rows, SCHEMA)
    columns = dict(zip(tuples.column_names, tuples.combine_chunks().to_batches()[0].columns, strict=True))
    with connected() as duck:
        measured = {measure.name: value_of(duck, measure, columns, len(rows)) for measure in query.measures}
        duck.register("purchases", tuples)
        ((expected,),) = duck.execute(f"SELECT {aggregate} FROM purchases").fetchall()
    (value,) = evaluate(query.outputs[-1].expression, measured, 1).to_pylist()
    assert same(value, expected), (value, expected)


@pytest.mark.parametrize(("value", "expected"), [(2.5, 0.0), (float("inf"), None), (float("nan"), None)])
def test_a_lone_value_deviates_by_nothing_if_it_is_finite(value: float, expected: float | None) -> None:
    query = aggregation("SELECT VAR_POP(price) AS v FROM purchases [RANGE 8 SECONDS]")
    values = {"sum(price)": value, "count(price)": 1, "var_samp(price)": None}
    columns = {measure.name: pa.array([values[measure.name]], measure.type.arrow) for measure in query.measures}
    (variance,) = evaluate(query.outputs[-1].expression, columns, 1).to_pylist()
    assert variance == expected or (expected is None and variance != variance)
