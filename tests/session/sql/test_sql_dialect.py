"""What sqlglot's grammar would let pass or rewrite, read as Braid means it; and its safety in threads."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlglot
from sqlglot import exp

from braid.operators.queries import Query
from braid.session.sql.parser import parse_statement
from braid.session.sql.parsing.select_parser import Braid
from braid.sources.core.errors import ServiceError
from tests.kit.plans import plan_select
from tests.session.sql.catalog import CATALOG, plan, selection
from tests.session.sql.test_plan_select import AGGREGATIONS, CONDITIONS
from tests.session.sql.test_sql_fuzz import check


def test_the_dialect_is_one_of_sqlglot() -> None:
    tree = sqlglot.parse_one("SELECT price AS p FROM purchases [RANGE 8 SECONDS] WHERE price > 5", dialect=Braid)
    assert isinstance(tree, exp.Select)
    assert [type(e) for e in tree.expressions] == [exp.Alias]
    assert isinstance(tree.find(exp.Where), exp.Where)


# an expression, and what it becomes; sqlglot's other dialects rewrite most of them
EXPRESSIONS = [
    ("SUBSTR(name, 2)", "substring(name, 2)"),
    ("LENGTH(name)", "length(name)"),
    ("CONCAT(name, 'a', name)", "concat(name, 'a', name)"),
    ("name || 'a' || name", "concat(name, 'a', name)"),
    ("DATE_TRUNC('hour', time)", "date_trunc(time, 'hour')"),
    ("NULLIF(gem_pack, 1)", "nullif(gem_pack, 1)"),
    ("IFNULL(gem_pack, 1)", "coalesce(gem_pack, 1)"),
    ("GREATEST(gem_pack, 1, 2)", "greatest(gem_pack, 1, 2)"),
    ("CEIL(price)", "ceil(price)"),
    ("POWER(price, 2)", "power(price, 2.0)"),
    ("MOD(gem_pack, 2)", "%(gem_pack, 2)"),
    ("DATE_PART('hour', time)", "hour(time)"),
    ("DATE '2026-2-9'", "DATE '2026-02-09'"),
    ("TIMESTAMP '2026-2-9 1:02:03'", "TIMESTAMP '2026-02-09T01:02:03'"),
    ("EXTRACT('hour' FROM time)", "hour(time)"),
    ("TIMESTAMPDIFF(DAY, time, time)", "timestampdiff(time, time, 'day')"),
    ("DATE_DIFF('days', time, time)", "datediff(time, time, 'day')"),
    ("INTERVAL '1' HOUR + time", "add_interval(time, 3600000000)"),
    ("TRIM(BOTH FROM name)", "trim(name)"),
    ("TRIM('x' FROM name)", "trim(name, 'x')"),
    ("TRIM(name, 'x')", "trim(name, 'x')"),
    ("SUBSTRING(name FROM 2)", "substring(name, 2)"),
    ("'it''s'", "'it''s'"),
    ("'a\\nb'", "'a\\nb'"),
    ("'{{ x }} {# y #}'", "'{{ x }} {# y #}'"),
    ("1e3", "1000.0"),
    (".5", "0.5"),
    ("5.", "5.0"),
    ("-2147483648::INT", "-2147483648"),
    ("- -5", "5"),
    ("+price", "price"),
    ("price-1", "-(price, 1.0)"),
    ("`price`", "price"),
    ("purchases.`price`::INT", "cast(price as INT)"),
    ("(price)::INT::VARCHAR", "cast(cast(price as INT) as VARCHAR)"),
    ("NOT ok IS NULL", "not(is_null(ok))"),
    ("ok IS NOT UNKNOWN", "not(is_null(ok))"),
    ("ok IS NOT TRUE", "not(coalesce(ok, False))"),
    ("ok IS FALSE", "not(coalesce(ok, True))"),
    ("NOT (ok IS FALSE)", "not(not(coalesce(ok, True)))"),
    ("name NOT ILIKE 'a' AND NOT name LIKE 'b'", "and(not(ilike(name, 'a')), not(like(name, 'b')))"),
    ("price = gem_pack IS DISTINCT FROM ok", "is_distinct_from(=(price, cast(gem_pack as DOUBLE)), ok)"),
    ("TRUE = gem_pack IN (1, 2)", "=(in(gem_pack, 1, 2), True)"),
    ("price > 1 IS NULL", "is_null(>(price, 1.0))"),
    ("gem_pack + 1 IN (1, 2) IS NOT NULL", "not(is_null(in(+(gem_pack, 1), 1, 2)))"),
    ("gem_pack IS NOT DISTINCT FROM 1 + 1", "is_not_distinct_from(gem_pack, 2)"),
    ("gem_pack BETWEEN 1 AND 2 AND ok", "and(>=(gem_pack, 1), <=(gem_pack, 2), ok)"),
    ("gem_pack BETWEEN SYMMETRIC 5 AND 1.5", "and(>(gem_pack, 1), <=(gem_pack, 5))"),
    ("gem_pack NOT BETWEEN symmetric -1 AND 2", "not(and(>=(gem_pack, -1), <=(gem_pack, 2)))"),
    ("gem_pack BETWEEN ASYMMETRIC 5 AND 1", "and(>=(gem_pack, 5), <=(gem_pack, 1))"),
    (
        "price NOT BETWEEN SYMMETRIC (gem_pack) AND 1",
        "not(or(and(>=(price, cast(gem_pack as DOUBLE)), <=(price, 1.0)),"
        " and(>=(price, 1.0), <=(price, cast(gem_pack as DOUBLE)))))",
    ),
    ("ok OR ok AND ok", "or(ok, and(ok, ok))"),
]


@pytest.mark.parametrize(("text", "expected"), EXPRESSIONS)
def test_expressions_keep_their_meaning(text: str, expected: str) -> None:
    assert str(selection(f"SELECT {text} AS e FROM purchases").outputs[0].expression) == expected


@pytest.mark.parametrize(
    ("marked", "status", "message"),
    [
        ("SELECT CASE WHEN ok ^1 END FROM purchases", 400, "Expected THEN, got '1'"),
        ("SELECT CAST(price AS INT ^FROM purchases", 400, "Expected ), got 'FROM'"),
        ("SELECT EXTRACT(HOUR FROM time ^FROM purchases", 400, "Expected ), got 'FROM'"),
        ("SELECT TRIM(name ^FROM", 400, ""),
        ("SELECT price, ^FROM purchases", 400, "Expected an expression, got 'FROM'. Leave out the comma before it."),
        (
            "SELECT pack, COUNT(*) FROM purchases [RANGE 8 SECONDS] GROUP BY pack ^WHERE price > 3",
            400,
            "WHERE stands after FROM, before GROUP BY and HAVING.",
        ),
        ("SELECT ^order time FROM purchases", 400, 'A name such as "order time" stands in double quotes.'),
        ("SELECT SUM(total ^price) FROM purchases", 400, 'A name such as "total price" stands in double quotes.'),
        ("SELECT price FROM purchases WHERE ^ORDER > 3", 400, 'A name such as "ORDER" stands in double quotes.'),
        ("SELECT total % ^FROM purchases", 400, 'A name such as "total %" stands in double quotes.'),
        ("SELECT ^AS price FROM purchases", 400, "Expected an expression"),
        ("SELECT COUNT(*) FROM TUMBLE(purchases, ^time, INTERVAL '1' HOUR)", 400, "Write DESCRIPTOR(time)."),
        ("SELECT COUNT(*) FROM TUMBLE(purchases, ^'time', INTERVAL '1' HOUR)", 400, "Expected DESCRIPTOR"),
        ("SELECT price FROM purchases WHERE gem_pack BETWEEN 1 ^2", 400, "Expected AND"),
        ("SELECT price FROM purchases WHERE gem_pack BETWEEN SYMMETRIC 1 ^2", 400, "Expected AND, got '2'"),
        ("SELECT price FROM purchases WHERE gem_pack BETWEEN ^symmetric AND 2", 422, "Column 'symmetric' does not"),
        ("SELECT price FROM purchases WHERE gem_pack IN ^[1]", 400, "Expected ("),
        ("SELECT price FROM purchases WHERE ok IS ^5", 400, "Expected NULL, TRUE, FALSE"),
        ("SELECT price FROM purchases WHERE name LIKE 'a' ESCAPE ^)", 400, "Expected an expression"),
        ("SELECT price^[1] FROM purchases", 422, "An ARRAY takes a whole number"),
        ("SELECT (price ^AS p) FROM purchases", 400, "Expected )"),
        ("SELECT ^price AT TIME ZONE 'UTC' FROM purchases", 422, "AT TIME ZONE is not supported"),
        ("SELECT ^'a' 'b' FROM purchases", 422, "write || between them"),
        ("SELECT N^'a' 5 FROM purchases", 400, ""),
        ("SELECT price ^{# a #} FROM purchases", 400, "'{' has no meaning"),
        ("SELECT price ^! FROM purchases", 400, "'!' has no meaning"),
        ("SELECT ^? FROM purchases", 400, "'?' has no meaning"),
        ("SELECT ^1_000 FROM purchases", 400, "A number must be followed"),
        ("SELECT ^0x1F FROM purchases", 400, "A number must be followed"),
        ("SELECT ^1.2.3 FROM purchases", 400, "A number must be followed"),
        ("SELECT price > ^. 5 FROM purchases", 400, "Expected an expression, got '.'"),
        ("SELECT price > ^. .5 FROM purchases", 400, "Expected an expression, got '.'"),
        ("SELECT price. ^.5 FROM purchases", 400, "Expected a column, got '.5'"),
        ("SELECT ^1..5 FROM purchases", 400, "A number must be followed"),
        ("SELECT purchases.UPPER^(name) FROM purchases", 400, "Expected FROM"),
        ("SELECT purchases.^WHERE FROM purchases", 400, "reserved word"),
        ("SELECT ^CAST FROM purchases", 400, "Expected an expression, got 'CAST'"),
        ("SELECT ^'a'.price FROM purchases", 422, "Only a STRUCT has members"),
        ("SELECT ^p.a.b.c.d.e FROM purchases p", 422, ""),
        ("SELECT price FROM purchases AS ^WHERE ok", 400, "reserved word"),
        ("SELECT price, (^FROM purchases) FROM purchases", 400, "Expected an expression"),
        ("EXPLAIN ^SHOW STREAMS", 400, "Expected SELECT"),
        ("EXPLAIN WITH a AS (SELECT 1^) SELECT 1", 400, "Expected FROM"),
    ],
)  # fmt: skip
def test_what_sqlglot_lets_pass_is_refused(marked: str, status: int, message: str) -> None:
    before, _, after = marked.partition("^")
    with pytest.raises(ServiceError) as caught:
        plan(before + after)
    error = caught.value
    assert error.status == status, error.detail
    assert message in error.detail
    assert error.position is not None
    if message:
        assert (error.position.line, error.position.column) == (1, len(before) + 1), error.detail


LONG = [
    "SELECT " + "price IS NULL " + "IS NULL " * 10_000 + "FROM purchases",
    "SELECT price" + "::INT" * 15_000 + " FROM purchases",
    "SELECT " + "name || " * 10_000 + "name FROM purchases",
    "SELECT " + "1 - " * 20_000 + "1 FROM purchases",
    "SELECT " + "purchases." * 9_000 + "price FROM purchases",
    "SELECT " + "'' " * 30_000 + "FROM purchases",
    "SELECT '" + "''" * 45_000 + "' FROM purchases",
    "SELECT price FROM purchases " + "-- \n" * 20_000,
    "SELECT price FROM purchases " + "/**/" * 20_000,
    "SELECT " + "((1))," * 15_000 + "1 FROM purchases",
    "SELECT " + "a = NOT " * 10_000 + "a FROM purchases",
    "SELECT " + "CASE 1 WHEN 1 THEN 1 END + " * 3_000 + "1 FROM purchases",
    ";" * 90_000,
    "." * 90_000,
    "0." * 45_000,
    "\"" * 90_001,
    "x" * 99_999,
    "EXPLAIN " * 10_000,
]  # fmt: skip


@pytest.mark.parametrize("text", LONG)
def test_long_texts_are_planned_or_refused(text: str) -> None:
    check(text)


def test_threads_do_not_mix_their_statements() -> None:
    texts = [
        *(f"SELECT price FROM purchases WHERE {condition}" for condition, _ in CONDITIONS),
        *(sql for sql, _ in AGGREGATIONS),
    ]
    expected: list[Query] = [plan_select(parse_statement(text), CATALOG) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        planned = list(pool.map(plan, texts * 8))
    assert planned == expected * 8


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for text in ("SHOW STREAMS", "CREATE FUNCTION f", "ALTER x", "SELECT 1 ^ 2", "SELECT a FROM b c d e"):
            try:
                parse_statement(text)
            except ServiceError:
                continue
    assert not caplog.records
