"""Subqueries in WHERE: which joins they become, and what is refused."""

from __future__ import annotations

import pytest

from braid.operators.joins.query import Join
from braid.session.sql.select import plan_statement
from braid.sources.core.errors import ServiceError
from tests.session.sql.catalog import CATALOG

OUTER = "SELECT price FROM purchases [RANGE 10 SECONDS] AS p WHERE "


@pytest.mark.parametrize(
    ("condition", "inputs", "anti"),
    [
        ("price IN (SELECT price FROM purchases WHERE gem_pack = 3)", 2, 0),
        ("price NOT IN (SELECT price FROM purchases WHERE gem_pack = 3)", 3, 1),
        ("price = (SELECT MAX(price) FROM purchases) AND gem_pack > 2", 2, 0),
        ("(SELECT AVG(price) FROM purchases) < price", 2, 0),
        ("EXISTS (SELECT 1 FROM purchases q WHERE q.user_id = p.user_id AND q.price > 3)", 2, 0),
        ("NOT EXISTS (SELECT * FROM purchases q WHERE p.user_id = q.user_id)", 2, 1),
        ("EXISTS (SELECT 1 FROM purchases WHERE price > 100)", 2, 0),
        ("price IN (SELECT price FROM purchases) AND gem_pack IN (SELECT gem_pack FROM purchases)", 3, 0),
    ],
)
def test_subqueries_become_inputs_of_a_join(condition: str, inputs: int, anti: int) -> None:
    query, subqueries = plan_statement(OUTER + condition, CATALOG)
    assert isinstance(query, Join)
    assert len(query.inputs) == inputs
    assert sum(source.anti for source in query.inputs) == anti
    assert [output.name for output in query.outputs] == ["window_start", "window_end", "price"]
    assert {stream for source in query.inputs for stream in [source.stream]} - {"s-1"} <= {
        s.id for s in subqueries
    } | set(query.streams)


def test_star_means_the_columns_of_what_is_written_in_from() -> None:
    sql = "SELECT * FROM purchases [RANGE 10 SECONDS] WHERE price IN (SELECT price FROM purchases)"
    query, _ = plan_statement(sql, CATALOG)
    names = [output.name for output in query.outputs]
    assert names == ["window_start", "window_end", *CATALOG["purchases"].schema.names]


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("SELECT price FROM purchases WHERE price IN (SELECT price FROM purchases)", "tumbling window"),
        (
            "SELECT price FROM purchases [RANGE 9 SECONDS SLIDE 3 SECONDS] WHERE price IN (SELECT 1 FROM purchases)",
            "tumbling window",
        ),
        (OUTER + "price > 3 OR price IN (SELECT price FROM purchases)", "between ANDs"),
        (OUTER + "price IN (SELECT price, gem_pack FROM purchases)", "one column"),
        (OUTER + "price > (SELECT price FROM purchases)", "one aggregate without GROUP BY"),
        (OUTER + "price IN (SELECT price FROM purchases [RANGE 1 MINUTE])", "the same"),
        (OUTER + "EXISTS (SELECT 1 FROM purchases q WHERE q.price > p.price)", "equal columns"),
        ("SELECT (SELECT MAX(price) FROM purchases) AS m FROM purchases", "between the ANDs of WHERE"),
        ("SELECT COUNT(*) AS n FROM purchases [RANGE 1 MINUTE] HAVING COUNT(*) > (SELECT 3 FROM purchases)", "WHERE"),
    ],
)
def test_what_is_refused_says_what_to_write(sql: str, part: str) -> None:
    with pytest.raises(ServiceError) as refused:
        plan_statement(sql, CATALOG)
    assert part in refused.value.detail, refused.value.detail
