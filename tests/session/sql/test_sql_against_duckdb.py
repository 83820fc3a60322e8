"""Random typed expressions: Braid's SQL and evaluation against DuckDB's, where both mean the same.

Spelled otherwise are ``/`` of integers, which DuckDB writes ``//``, and BETWEEN SYMMETRIC, which it lacks.
Left out: what differs by intent (see ``operators/functions/``), such as casts of fractions to integers and
GREATEST of NULL.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braid.operators.evaluation import evaluate
from tests.kit.examples import examples
from tests.session.sql.catalog import CATALOG, selection

Pair = tuple[str, str]
"""An expression in Braid's SQL and in DuckDB's."""

SCHEMA = CATALOG["purchases"].schema.arrow


def same_text(*texts: str) -> st.SearchStrategy[Pair]:
    """Return one of these texts, the same for both engines."""
    return st.sampled_from([(t, t) for t in texts])


def join(template: str, *parts: st.SearchStrategy[Pair], duck: str | None = None) -> st.SearchStrategy[Pair]:
    """Fill a template with parts, and DuckDB's template with DuckDB's parts."""
    return st.tuples(*parts).map(
        lambda pairs: (
            template.format(*(text for text, _ in pairs)),
            (duck or template).format(*(text for _, text in pairs)),
        )
    )


def literal(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Pair]:
    return values.map(lambda v: (f"({v})", f"({v})"))


TEXT_0 = same_text("name", "'a'", "'Ab%'", "'é_b'", "''")
DAYS_0 = same_text("day", "DATE '2024-02-29'", "DATE '1969-12-31'")
TIMES_0 = same_text("time", "TIMESTAMP '2024-02-29 23:59:58.5'", "CAST(day AS TIMESTAMP)")
DAYS = st.one_of(
    DAYS_0,
    join("last_day({})", DAYS_0),
    join("last_day({})", TIMES_0),
    join(
        "CAST('2024-' || abs({}) || '-9 1:30' AS DATE)",
        same_text("gem_pack", "user_id"),
        duck="TRY_CAST('2024-' || abs({}) || '-9 1:30' AS DATE)",
    ),
)
TIMES = st.one_of(
    TIMES_0,
    join("({} + INTERVAL '90' MINUTE)", TIMES_0),
    join("({} - INTERVAL '1' MONTH)", TIMES_0),
    join("(INTERVAL '1' YEAR + {})", TIMES_0),
    join("({} + INTERVAL '13' MONTH)", DAYS),
    join("({} - INTERVAL '3' DAY)", DAYS),
    join("date_trunc('week', {})", TIMES_0),
    join("date_trunc('quarter', {})", TIMES_0),
    join("date_trunc('hour', {})", TIMES_0),
)
FIELDS = [
    "year",
    "quarter",
    "month",
    "week",
    "day",
    "doy",
    "dow",
    "isodow",
    "hour",
    "minute",
    "second",
    "millisecond",
]
UNITS = same_text("millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
SMALL = st.one_of(same_text("gem_pack"), literal(st.integers(-7, 7)))
WHOLE_0 = st.one_of(same_text("user_id"), SMALL)
WHOLE_1 = st.one_of(
    WHOLE_0,
    join("({} + {})", WHOLE_0, WHOLE_0),
    join("({} - {})", WHOLE_0, WHOLE_0),
    join("({} * {})", WHOLE_0, WHOLE_0),
    join("({} / {})", WHOLE_0, WHOLE_0, duck="({} // {})"),
    join("({} % {})", WHOLE_0, WHOLE_0),
    join("(- {})", WHOLE_0),
    join("abs({})", WHOLE_0),
    join("sign({})", WHOLE_0),
    join("length({})", TEXT_0),
    join("strpos({}, {})", TEXT_0, TEXT_0),
    join("ascii({})", TEXT_0),
    join("trunc({}, -1)", WHOLE_0),
    join("timestampdiff({}, {}, {})", UNITS, TIMES, TIMES, duck="date_sub('{}', {}, {})"),
    join("datediff('{}', {}, {})", UNITS, TIMES, TIMES),
    *(join(f"extract({field} FROM {{}})", TIMES) for field in FIELDS),
    join("extract(epoch FROM {})", TIMES, duck="CAST(floor(extract(epoch FROM {})) AS BIGINT)"),
)
REAL_0 = st.one_of(same_text("price"), literal(st.sampled_from([0.5, -2.25, 100.0])))
REAL_1 = st.one_of(
    REAL_0,
    join("({} + {})", REAL_0, REAL_0),
    join("({} * {})", REAL_0, WHOLE_0, duck="({} * CAST({} AS DOUBLE))"),
    join("({} / 3e0)", REAL_0),
    join("({} % 3e0)", REAL_0),
    join("round({})", REAL_0),
    join("floor({})", REAL_0),
    join("ceil({})", REAL_0),
    join("trunc({})", REAL_0),
    join("trunc({}, -2)", REAL_0),
    join("cbrt({})", REAL_0),
    join("({} * pi())", REAL_0),
    join("sqrt(abs({}))", REAL_0),
    join("ln(abs({}) + 1)", REAL_0),
    join("power({}, 2)", REAL_0),
    join("log10(abs({}) + 1)", REAL_0),
    join("sin({})", REAL_0),
    join("atan2({}, {})", REAL_0, REAL_0),
    join("radians({})", REAL_0),
    join("CAST({} AS DOUBLE)", WHOLE_0),
)
TEXT_1 = st.one_of(
    TEXT_0,
    join("upper({})", TEXT_0),
    join("lower({})", TEXT_0),
    join("({} || {})", TEXT_0, TEXT_0),
    join("trim({}, 'ab')", TEXT_0),
    join("ltrim({})", TEXT_0),
    join("replace({}, 'a', 'xy')", TEXT_0),
    join("replace({}, {}, '')", TEXT_0, TEXT_0),
    join("substring({}, {}, 2)", TEXT_0, same_text("1", "2", "-2", "abs(gem_pack)")),
    join("left({}, {})", TEXT_0, WHOLE_0),
    join("right({}, {})", TEXT_0, WHOLE_0),
    join("lpad({}, 4, 'xy')", TEXT_0),
    join("rpad({}, 1, 'xy')", TEXT_0),
    join("repeat({}, {})", TEXT_0, SMALL),
    join("translate({}, {}, {})", TEXT_0, TEXT_0, TEXT_0),
    join("translate({}, 'aéb', 'é-')", TEXT_0),
    join("chr(abs({}) + 64)", WHOLE_0, duck="chr(CAST(abs({}) + 64 AS INT))"),
    join("md5({})", TEXT_0),
    join("sha256({})", TEXT_0),
    join("dayname({})", TIMES_0),
    join("monthname({})", TIMES_0),
    join("strftime({}, '%Y-%j %I:%M %p, %a')", TIMES),
    join("date_format({}, 'dd MMM yyyy HH:mm:ss.SSSSSS')", TIMES, duck="strftime({}, '%d %b %Y %H:%M:%S.%f')"),
    join("concat_ws({}, {}, {})", TEXT_0, TEXT_0, WHOLE_0),
    join("split_part({}, 'b', {})", TEXT_0, same_text("1", "2", "-1", "-2")),
    join(
        "regexp_extract({0}, '(a|b)+(.)', 2)",
        TEXT_0,
        duck="CASE WHEN regexp_matches({0}, '(a|b)+(.)') THEN regexp_extract({0}, '(a|b)+(.)', 2) END",
    ),
    join(
        "regexp_replace({}, {}, {})",
        TEXT_0,
        same_text("'a|b'", "'(.)(.)'", "'[^a-z]+'", "'^'", "'b*'", "'(?i)A()'"),
        same_text("''", "'-'", r"'<\0>'", "'é%'"),
        duck="regexp_replace({}, {}, {}, 'g')",
    ),
    join("CAST({} AS VARCHAR)", WHOLE_0),
    join("CAST({} AS VARCHAR)", TIMES_0),
    join("CAST({} AS VARCHAR)", DAYS),
)
COMPARED = same_text("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
TRUTH_0 = st.one_of(
    same_text("ok", "NULL", "TRUE"),
    join("({} {} {})", WHOLE_1, COMPARED, WHOLE_1),
    join("({} {} {})", REAL_1, COMPARED, WHOLE_0),
    join("({} {} {})", WHOLE_1, COMPARED, same_text("2.5", "-0.5", "3.0")),
    join("({} {} {})", TEXT_1, COMPARED, TEXT_0),
    join("({} {} {})", TIMES, COMPARED, TIMES),
    join("({} {} {})", DAYS, COMPARED, DAYS),
    join("(day {} '2024-02-29')", COMPARED),
    join("({} BETWEEN {} AND {})", WHOLE_1, WHOLE_0, WHOLE_0),
    join(
        "({0} NOT BETWEEN SYMMETRIC {1} AND {2})",
        *(WHOLE_1, WHOLE_0, WHOLE_0),
        duck="(NOT ({0} BETWEEN {1} AND {2} OR {0} BETWEEN {2} AND {1}))",
    ),
    join("({} NOT IN ({}, {}))", WHOLE_1, WHOLE_0, same_text("NULL", "1", "user_id")),
    join("(name IN ({}, {}, NULL))", TEXT_0, TEXT_0),
    join("({} LIKE {})", TEXT_1, same_text("'a%'", "'%b%'", "'_'", "'%'", "''", "'é_%'", "'a\nb'", "name")),
    join("({} NOT LIKE 'a!%%' ESCAPE '!')", TEXT_1),
    join("({} ILIKE {})", TEXT_1, same_text("'A%'", "'%B'", "'É%'")),
    join("starts_with({}, {})", TEXT_1, TEXT_0),
    join("ends_with({}, {})", TEXT_1, TEXT_0),
    join("contains({}, 'a')", TEXT_1),
    join("regexp_like({}, '(?i)^a.b')", TEXT_1, duck="regexp_matches({}, '(?i)^a.b')"),
    join("({} IS NULL)", WHOLE_1),
    join("({} IS NOT NULL)", TEXT_1),
)
TRUTH = st.one_of(
    TRUTH_0,
    join("({} AND {})", TRUTH_0, TRUTH_0),
    join("({} OR {})", TRUTH_0, TRUTH_0),
    join("(NOT {})", TRUTH_0),
    join("({} IS TRUE)", TRUTH_0),
    join("({} IS NOT FALSE)", TRUTH_0),
)
ANY = st.one_of(
    TRUTH,
    WHOLE_1,
    REAL_1,
    TEXT_1,
    TIMES,
    join("CASE WHEN {} THEN {} ELSE {} END", TRUTH, WHOLE_1, WHOLE_1),
    join("CASE {} WHEN {} THEN {} END", WHOLE_0, WHOLE_0, TEXT_1),
    join("if({}, {}, {})", TRUTH, TEXT_1, TEXT_0),
    join("coalesce({}, {})", TEXT_1, TEXT_0),
    join("coalesce({}, {})", REAL_1, REAL_0),
    join("nullif({}, {})", WHOLE_1, WHOLE_0),
)

ROWS = st.fixed_dictionaries(
    {
        "user_id": st.none() | st.integers(-1000, 1000),
        "gem_pack": st.none() | st.integers(-5, 5),
        "price": st.none() | st.floats(-1e6, 1e6).map(lambda v: round(v, 3) + 0.0),
        "time": st.none() | st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2100, 1, 1)),
        "name": st.none() | st.text("abABé%_\n ", max_size=5),
        "day": st.none() | st.dates(dt.date(1950, 1, 1), dt.date(2100, 1, 1)),
        "amount": st.none(),
        "ok": st.none() | st.booleans(),
    }
)


def same(value: Any, expected: Any) -> bool:
    if isinstance(value, float) and expected is not None:
        expected_float = float(expected)
        return math.isclose(value, expected_float, rel_tol=1e-12, abs_tol=1e-12) or (
            math.isnan(value) and math.isnan(expected_float)
        )
    return bool(value == expected)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB in which division by zero is NULL, as in Flink SQL; by default it raises."""
    with duckdb.connect(config={"error_on_division_by_zero": "false"}) as connection:
        yield connection


@given(pairs=st.lists(ANY, min_size=1, max_size=4), rows=st.lists(ROWS, min_size=1, max_size=6))
@settings(max_examples=examples(200), deadline=None)
def test_expressions_mean_what_they_mean_in_duckdb(
    duck: duckdb.DuckDBPyConnection, pairs: list[Pair], rows: list[dict[str, Any]]
) -> None:
    tuples = pa.Table.from_pylist(rows, SCHEMA)
    braid_items = ", ".join(f"{text} AS c{i}" for i, (text, _) in enumerate(pairs))
    duck_items = ", ".join(f"{text} AS c{i}" for i, (_, text) in enumerate(pairs))
    query = selection(f"SELECT {braid_items} FROM purchases")
    columns = dict(zip(tuples.column_names, tuples.combine_chunks().to_batches()[0].columns, strict=True))
    duck.register("purchases", tuples)
    duck_rows = duck.execute(f"SELECT {duck_items} FROM purchases").fetchall()
    for at, output in enumerate(query.outputs):
        values = evaluate(output.expression, columns, len(rows)).to_pylist()
        expected = [row[at] for row in duck_rows]
        assert all(map(same, values, expected)), (pairs[at], values, expected)
