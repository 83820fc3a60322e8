"""Refusals of what other systems have: who writes what they advise has a statement that works."""

from __future__ import annotations

import pytest

from braid.session.sql.parser import parse_statement
from braid.session.sql.select import plan_statement
from braid.session.sql.statements import CreateQuery, Select
from braid.sources.core.errors import ServiceError
from tests.session.sql.tables import CATALOG, Tables

WINDOW = "FROM purchases [RANGE 8 SECONDS]"
HIGHEST = f"SELECT price {WINDOW} WHERE price = (SELECT MAX(price) FROM purchases)"


def planned(sql: str) -> None:
    """Have a statement parsed, and a query planned."""
    statement = parse_statement(sql)
    if isinstance(statement, (Select, CreateQuery)):
        plan_statement(statement, CATALOG, Tables())


@pytest.mark.parametrize(
    ("refused", "advice", "followed"),
    [
        (
            "CREATE SOURCE s (a INT) WITH (connector = 'kafka')",
            "CREATE STREAM name",
            "CREATE STREAM s (a INT, t TIMESTAMP LATENESS INTERVAL '1' SECOND) WITH (connector = 'push')",
        ),
        (
            "CREATE VIEW v AS SELECT price FROM purchases",
            "CREATE QUERY name",
            "CREATE QUERY v AS SELECT price FROM purchases",
        ),
        ("CREATE INDEX i ON purchases (price)", "leave it out", "SELECT price FROM purchases"),
        (
            "CREATE ALERT a ON q WHEN n > 3 TO x",
            "in HAVING",
            "CREATE QUERY a WITH (connector = 'webhook', url = 'http://localhost:1')"
            f" AS SELECT COUNT(*) AS n {WINDOW} HAVING COUNT(*) > 3",
        ),
        ("INSERT INTO packs VALUES (1)", "REFRESH TABLE name", "REFRESH TABLE packs"),
        ("DELETE FROM packs WHERE pack = 1", "REFRESH TABLE name", "REFRESH TABLE packs"),
        (
            "CREATE TABLE t (a INT, t TIMESTAMP LATENESS INTERVAL '1' SECOND) WITH (connector = 'push')",
            "CREATE STREAM",
            "CREATE STREAM t (a INT, t TIMESTAMP LATENESS INTERVAL '1' SECOND) WITH (connector = 'push')",
        ),
        ("CREATE TABLE t (a INT) WITH (connector = 'kafka')", "CREATE STREAM", "SELECT price FROM purchases"),
        ("SELECT STREAM price FROM purchases", "SELECT alone", "SELECT price FROM purchases"),
        (f"SELECT wend, COUNT(*) AS n {WINDOW}", "window_end", f"SELECT window_end, COUNT(*) AS n {WINDOW}"),
        ("SELECT MAX(price) OVER () FROM purchases", "(SELECT MAX(x) FROM s)", HIGHEST),
        ("SELECT RANK() OVER () FROM purchases", "(SELECT MAX(x) FROM s)", HIGHEST),
        ("SELECT price FROM purchases QUALIFY price > 1", "(SELECT MAX(x) FROM s)", HIGHEST),
        (f"SELECT price {WINDOW} ORDER BY price DESC", "(SELECT MAX(x) FROM s)", HIGHEST),
        (
            f"SELECT pack, SUM(price) AS x {WINDOW} GROUP BY pack ORDER BY x DESC",
            "WITH s AS (SELECT k, SUM(v) AS x",
            f"WITH s AS (SELECT pack, SUM(price) AS x {WINDOW} GROUP BY pack)"
            " SELECT pack, x FROM s [RANGE 8 SECONDS] WHERE x = (SELECT MAX(x) FROM s)",
        ),
        (
            "SELECT COUNT(*) AS n FROM purchases [RANGE 8 SECONDS TRIGGER 1 SECOND]",
            "EMIT STREAM",
            f"SELECT COUNT(*) AS n {WINDOW} EMIT STREAM",
        ),
        (
            f"SELECT COUNT(*) AS n {WINDOW} TRIGGER ON WATERMARK",
            "EMIT STREAM",
            f"SELECT COUNT(*) AS n {WINDOW} EMIT STREAM",
        ),
        (
            "SELECT price FROM purchases ASOF JOIN packs ON purchases.pack = packs.pack",
            "static table",
            "SELECT price FROM purchases JOIN packs ON purchases.pack = packs.pack",
        ),
        (
            "SELECT price FROM purchases MATCH_RECOGNIZE (PARTITION BY user_id)",
            "[SESSION 5 SECONDS]",
            "SELECT user_id, COUNT(*) AS n FROM purchases [SESSION 5 SECONDS] GROUP BY user_id",
        ),
        (
            "SELECT price FROM purchases TABLESAMPLE (10)",
            "MOD(id, 10)",
            "SELECT price FROM purchases WHERE MOD(user_id, 10) = 0",
        ),
        (
            "SELECT price FROM purchases PIVOT (SUM(price) FOR pack IN (1))",
            "FILTER (WHERE x = 1)",
            f"SELECT COUNT_IF(pack = 1) AS n, SUM(price) FILTER (WHERE pack = 1) AS s {WINDOW}",
        ),
        (
            "SELECT price FROM purchases AS OF SYSTEM TIME '2026-01-01'",
            "start = '-1 hour'",
            "CREATE QUERY q WITH (start = '-1 hour') AS SELECT price FROM purchases",
        ),
        ("SELECT price FROM purchases FOR SYSTEM_TIME AS OF time", "static table", "SELECT price FROM purchases"),
        (
            "SELECT pack FROM purchases EXCEPT SELECT pack FROM packs",
            "NOT IN (SELECT …)",
            "SELECT pack FROM purchases WHERE pack NOT IN (SELECT pack FROM packs)",
        ),
        ("SELECT * EXCEPT (price) FROM purchases", "list the columns", "SELECT user_id FROM purchases"),
        ("EXPLAIN FORMAT PLAIN SELECT price FROM purchases", "a SELECT alone", "EXPLAIN SELECT price FROM purchases"),
        (
            "SELECT price FROM purchases WHERE price > ?",
            "write the value",
            "SELECT price FROM purchases WHERE price > 1",
        ),
        (
            "SELECT price FROM purchases WHERE pack = ANY (SELECT pack FROM packs)",
            "x IN (SELECT …)",
            "SELECT price FROM purchases WHERE pack IN (SELECT pack FROM packs)",
        ),
        (
            "SELECT COUNT(*) AS n FROM purchases [RANGE UNBOUNDED]",
            "[RANGE 36500 DAYS]",
            "SELECT COUNT(*) AS n FROM purchases [RANGE 36500 DAYS]",
        ),
        (
            f"SELECT a.price {WINDOW} AS a WHERE a.price > (SELECT AVG(price) FROM purchases b WHERE b.pack = a.pack)",
            "Group it, and join",
            f"SELECT a.price {WINDOW} AS a JOIN (SELECT pack AS k, AVG(price) AS mean {WINDOW} GROUP BY pack)"
            " [RANGE 8 SECONDS] AS b ON a.pack = b.k WHERE a.price > b.mean",
        ),
    ],
)
def test_who_follows_the_advice_has_a_statement_that_works(refused: str, advice: str, followed: str) -> None:
    with pytest.raises(ServiceError) as caught:
        planned(refused)
    assert advice in caught.value.detail, caught.value.detail
    planned(followed)
