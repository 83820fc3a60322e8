"""Expressions in messages: as SQL that means the same when it is read again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from braid.operators.expressions import Call, Column, Expression, Literal
from braid.operators.functions.sql_text import sql_text
from braid.operators.functions.time import FIELDS
from braid.operators.queries import Selection
from braid.sources.core.schema import BIGINT, TIMESTAMP
from tests.kit.examples import examples
from tests.kit.plans import plan_select
from tests.session.sql.catalog import define, selection
from tests.session.sql.test_plan_select import CONDITIONS
from tests.session.sql.test_refused_sql import refused
from tests.session.sql.test_sql_against_duckdb import ANY, Pair

W = "FROM purchases [RANGE 8 SECONDS]"


def read(text: str) -> Expression:
    return selection(f"SELECT {text}\nAS e FROM purchases").outputs[0].expression


@pytest.mark.parametrize(
    "text",
    [
        "gem_pack > 0",
        "(gem_pack > 0) = ok",
        "name IS NULL",
        "name IS NOT NULL AND NOT ok",
        "NOT (ok OR price > 1.0)",
        "ok AND (ok OR name LIKE 'a%')",
        "name NOT LIKE '10!%' ESCAPE '!'",
        "gem_pack NOT IN (1, 2, NULL)",
        "gem_pack + 1 BETWEEN 1 AND user_id",
        "gem_pack + 1 NOT BETWEEN 1 AND user_id",
        "name IS DISTINCT FROM 'it''s'",
        "(ok AND ok) IS NULL",
        "gem_pack - (user_id - 1) * 2 / (3 % user_id)",
        "gem_pack - user_id - 1",
        "-(gem_pack + 1) * -5",
        "-(-price)",
        "name || 'a' || UPPER(name)",
        "CASE WHEN ok THEN 1 WHEN price > 1.0 THEN 2 END",
        "CASE WHEN ok THEN TRUE ELSE FALSE END",
        "CAST(amount AS DECIMAL(4,1))",
        "DATE_TRUNC('hour', time + INTERVAL '90' MINUTE)",
        "time - INTERVAL '1' MONTH + INTERVAL '1500' MILLISECOND - INTERVAL '1' MICROSECOND",
        "EXTRACT(HOUR FROM time)",
        "TIMESTAMPDIFF('day', time, time + INTERVAL '1' DAY)",
        "day = DATE '2026-01-31'",
        "COALESCE(gem_pack, 1)",
    ],
)
def test_the_text_is_what_was_written(text: str) -> None:
    assert sql_text(read(text)) == text


@pytest.mark.parametrize(
    "text", ["a.b", 'a."B c"', "a.list[1]", "list[1] || 'x'", "m['key']", "j -> '$.a'", "j -> 'a' ->> 'b' || 'x'"]
)
def test_parts_of_values_are_what_was_written(text: str) -> None:
    columns = (
        'a STRUCT<b INT, "B c" INT, list ARRAY<VARCHAR>>, list ARRAY<VARCHAR>, m MAP<VARCHAR, INT>, j JSON,'
        " t TIMESTAMP LATENESS INTERVAL '1' SECOND"
    )
    stream = define(f"CREATE STREAM s ({columns}) WITH (connector = 'push')", "s-2")
    query = plan_select(f"SELECT {text} AS e FROM s", {"s": stream})
    assert isinstance(query, Selection)
    assert sql_text(query.outputs[0].expression) == text


@pytest.mark.parametrize("condition", [condition for condition, _ in CONDITIONS])
def test_conditions_are_read_again_as_they_were(condition: str) -> None:
    expression = read(condition)
    assert str(read(sql_text(expression))) == str(expression)


@given(ANY)
@settings(max_examples=examples(200), deadline=None)
def test_random_expressions_are_read_again_as_they_were(pair: Pair) -> None:
    expression = read(pair[0])
    assert str(read(sql_text(expression))) == str(expression)


def test_a_case_whose_values_are_all_null_is_null() -> None:
    """Its text would have no type, so that it would be NULL when read again."""
    expression = read("CASE WHEN ok THEN NULLIF(1, 1) ELSE CAST(NULL AS BIGINT) END")
    assert expression == Literal(None, BIGINT)


def test_each_field_is_an_extract() -> None:
    for name in FIELDS:
        text = sql_text(Call(name, (Column("time", TIMESTAMP),), BIGINT))
        assert text == f"EXTRACT({name.upper()} FROM time)"
        assert sql_text(read(text)) == text


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT CASE WHEN ok THEN name END BETWEEN -LENGTH(name) AND 10 FROM purchases",
            "Cannot compare CASE WHEN ok THEN name END (VARCHAR) with -LENGTH(name) (BIGINT): they",
        ),
        ("SELECT (gem_pack > 0) > 5 FROM purchases", "Cannot compare gem_pack > 0 (BOOLEAN) with 5 (INT)"),
        (
            "SELECT gem_pack FROM purchases WHERE gem_pack IN (1, 'a')",
            "compare gem_pack (INT) with 'a' (VARCHAR): they",
        ),
        ("SELECT gem_pack FROM purchases WHERE name IN ('a', 5)", "compare name (VARCHAR) with 5 (INT): they"),
        ("SELECT gem_pack FROM purchases WHERE day IN ('2026-01-01', 5)", "compare day (DATE) with 5 (INT): they"),
        ("SELECT gem_pack FROM purchases WHERE NULL IN (1, 2, 'b')", "compare 1 (INT) with 'b' (VARCHAR): they"),
        (f"SELECT MAX(time) - MIN(time) {W}", "does not fit MAX(time) (TIMESTAMP), MIN(time) (TIMESTAMP)"),
        (f"SELECT AVG(price + 1) > 'a' {W}", "Cannot compare AVG(price + 1.0) (DOUBLE)"),
        (f"SELECT gem_pack % 2 > 'a' {W} GROUP BY gem_pack % 2", "Cannot compare gem_pack % 2 (BIGINT)"),
        (f"SELECT MAX(ok AND ok) {W}", "got ok AND ok (BOOLEAN)"),
        (f"SELECT 1 AS x {W} HAVING COUNT(*) + COUNT(DISTINCT name)", "got COUNT(*) + COUNT(DISTINCT name) (BIGINT)"),
        ("SELECT ROUND(price, gem_pack + 1) FROM purchases", "got gem_pack + 1."),
        ("SELECT DATE_TRUNC(UPPER(name), time) FROM purchases", "got UPPER(name)."),
    ],
)
def test_messages_show_sql(sql: str, message: str) -> None:
    assert message in refused(sql).detail
