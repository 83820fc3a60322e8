"""Subqueries in FROM, WITH and UNION ALL: what queries they become, and which are none."""

from __future__ import annotations

import pytest

from braid.operators.derived import derived_stream, shown_name, window_behind
from braid.operators.expressions import Column
from braid.operators.queries import Aggregation, Selection, query_from_json
from braid.operators.windows import Window
from braid.session.sql.select import PlannedSelect, plan_statement
from braid.sources.core.errors import ServiceError
from braid.sources.core.schema import TIMESTAMP
from tests.kit.plans import plan_select
from tests.session.sql.catalog import CATALOG

SECOND = 10**6
INNER = "SELECT gem_pack, SUM(price) AS n FROM purchases [RANGE 10 SECONDS] GROUP BY gem_pack"


def plan(sql: str) -> PlannedSelect:
    return plan_statement(sql, CATALOG)


@pytest.mark.parametrize(
    ("nested", "flat"),
    [
        (
            "SELECT b + 1 AS c FROM (SELECT price * 2 AS b, gem_pack FROM purchases WHERE price > 3) AS x WHERE b < 9",
            "SELECT price * 2 + 1 AS c FROM purchases WHERE price > 3 AND price * 2 < 9",
        ),
        (
            "WITH x AS (SELECT gem_pack AS g, price + 1 AS p FROM purchases WHERE user_id > 3)"
            " SELECT g, SUM(p) AS s, COUNT(*) AS n FROM x [RANGE 8 SECONDS] WHERE p > 1 GROUP BY g HAVING SUM(p) > 5",
            "SELECT gem_pack AS g, SUM(price + 1) AS s, COUNT(*) AS n FROM purchases [RANGE 8 SECONDS]"
            " WHERE user_id > 3 AND price + 1 > 1 GROUP BY gem_pack HAVING SUM(price + 1) > 5",
        ),
        (
            "WITH a (p) AS (SELECT price FROM purchases) SELECT q FROM (SELECT p FROM a WHERE p > 1) AS b (q)",
            "SELECT price AS q FROM purchases WHERE price > 1",
        ),
        (
            "WITH a AS (SELECT price AS p FROM purchases), b AS (SELECT p AS q FROM a WHERE p > 1) SELECT q FROM b",
            "SELECT price AS q FROM purchases WHERE price > 1",
        ),
        (
            "SELECT COUNT(*) AS n FROM TUMBLE(TABLE purchases, DESCRIPTOR(time), INTERVAL '1' MINUTE)",
            "WITH t AS (SELECT price FROM purchases)"
            " SELECT COUNT(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(time), INTERVAL '1' MINUTE)",
        ),
    ],
)
def test_a_subquery_that_only_selects_is_part_of_the_outer_query(nested: str, flat: str) -> None:
    planned = plan(nested)
    assert planned.subqueries == ()
    assert planned.query == plan_select(flat, CATALOG)


def test_a_windowed_subquery_is_a_query_of_its_own_with_the_event_time_of_its_windows() -> None:
    query, (inner,) = plan(f"SELECT gem_pack, MAX(n) AS m FROM ({INNER}) [RANGE 1 MINUTE] GROUP BY gem_pack")
    assert isinstance(query, Aggregation)
    assert query.stream == inner.id
    assert inner.query == plan_select(INNER, CATALOG)


def test_equal_subqueries_are_one() -> None:
    sql = f"SELECT a.n FROM ({INNER}) [RANGE 10 SECONDS] a JOIN ({INNER.lower()}) [RANGE 10 SECONDS] b ON a.n = b.n"
    query, subqueries = plan(sql)
    assert len(subqueries) == 1
    assert query.streams == (subqueries[0].id,) * 2 or set(query.streams) == {subqueries[0].id}


def test_union_all_puts_the_rows_of_all_selects_together() -> None:
    query, subqueries = plan("SELECT price FROM purchases UNION ALL SELECT price FROM purchases WHERE price > 1")
    assert isinstance(query, Selection)
    assert query.stream == "+".join(subquery.id for subquery in subqueries)
    assert [output.name for output in query.outputs] == ["price"]
    assert [each.sql for each in subqueries] == [
        "SELECT price FROM purchases",
        "SELECT price FROM purchases WHERE price > 1",
    ]
    wider, (_, wide) = plan("SELECT price FROM purchases UNION ALL SELECT gem_pack FROM purchases")
    assert [str(output.expression.type) for output in wide.query.outputs] == ["DOUBLE"]
    assert [str(output.expression.type) for output in wider.outputs] == ["DOUBLE"]
    twice, (once,) = plan("SELECT price FROM purchases UNION ALL SELECT price FROM purchases")
    assert twice.streams == (f"{once.id}+{once.id}",)


@pytest.mark.parametrize("named", ["window_start, window_end", "x.window_end", "x.window_start"])
def test_grouping_by_the_bounds_of_an_inner_window_means_that_window(named: str) -> None:
    query, _ = plan(f"SELECT MAX(n) AS m FROM ({INNER}) AS x GROUP BY {named}")
    assert query.window == Window(10 * SECOND, 10 * SECOND)
    assert [output.name for output in query.outputs] == ["window_start", "window_end", "m"]


@pytest.mark.parametrize(
    "between",
    [
        f"SELECT * FROM ({INNER}) AS y WHERE n > 1",
        f"SELECT window_end AS e, n FROM ({INNER}) AS y UNION ALL SELECT window_end, n FROM ({INNER}) AS z WHERE n < 5",
        f"SELECT e, n FROM (SELECT n, window_end AS e FROM ({INNER}) AS y) AS z",
    ],
)
def test_the_windows_of_rows_are_known_behind_selections_and_unions(between: str) -> None:
    end = "e" if " e" in between else "window_end"
    query, _ = plan(f"SELECT MAX(n) AS m FROM ({between}) AS x GROUP BY {end}")
    assert query.window == Window(10 * SECOND, 10 * SECOND)
    assert query_from_json(query.to_json()) == query


def test_rows_of_different_windows_have_none_in_common() -> None:
    other = INNER.replace("10 SECONDS", "5 SECONDS")
    between = f"SELECT window_end AS e, n FROM ({INNER}) AS y UNION ALL SELECT window_end, n FROM ({other}) AS z"
    with pytest.raises(ServiceError, match="needs a window"):
        plan(f"SELECT MAX(n) AS m FROM ({between}) AS x GROUP BY e")


def test_bounds_of_hopping_windows_keep_their_starts() -> None:
    inner = "SELECT COUNT(*) AS n FROM purchases [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY gem_pack"
    query, _ = plan(
        f"SELECT window_start, window_end AS e, MAX(n) AS m FROM ({inner}) GROUP BY window_start, window_end"
    )
    assert query.window == Window(2 * SECOND, 2 * SECOND)
    outputs = {output.name: output.expression for output in query.outputs}
    assert outputs["e"] == outputs["window_end"] == Column("window_end", TIMESTAMP)
    assert outputs["window_start"] == Column("key0", TIMESTAMP)
    assert [shown_name(key.name) for key in query.keys if isinstance(key, Column)] == ["window_start"]


def test_the_outer_window_is_meant_by_its_bounds_and_the_inner_one_by_its_name() -> None:
    query, _ = plan(
        f"SELECT window_start, x.window_start AS inner_start, MAX(n) AS m FROM ({INNER}) [RANGE 1 MINUTE] AS x"
        " GROUP BY x.window_start"
    )
    outputs = {output.name: output.expression for output in query.outputs}
    assert outputs["window_start"] == Column("window_start", TIMESTAMP)
    assert outputs["inner_start"] == Column("key0", TIMESTAMP)


def test_star_leaves_the_event_time_out() -> None:
    query, _ = plan(f"SELECT * FROM ({INNER}) AS x")
    assert [output.name for output in query.outputs] == ["window_start", "window_end", "gem_pack", "n"]
    windowed, _ = plan(f"SELECT x.* FROM ({INNER}) [RANGE 1 MINUTE] AS x")
    assert [output.name for output in windowed.outputs] == ["window_start", "window_end", "gem_pack", "n"]
    assert [str(output.expression) for output in windowed.outputs[:2]] == ["window_start", "window_end"]
    timed, _ = plan(f"SELECT window_time FROM ({INNER}) AS x")
    assert [output.name for output in timed.outputs] == ["window_time"]


def test_a_derived_stream_knows_the_windows_of_its_rows() -> None:
    from braid.operators.derived import QueryBehind

    stream = derived_stream("q-1", "q", [QueryBehind("q-1", plan_select(INNER, CATALOG))])
    found = window_behind(stream)
    assert found is not None
    assert (found.window.size_us, found.starts, found.ends) == (10 * SECOND, {"window_start#"}, {"window_end#"})
    assert stream.schema.event_time == "window_time"
    assert type(stream).from_json(stream.to_json()) == stream


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("SELECT price FROM purchases UNION SELECT price FROM purchases", "UNION ALL"),
        ("SELECT price FROM purchases UNION ALL SELECT name FROM purchases", "CAST(… AS DOUBLE)"),
        ("SELECT name FROM purchases UNION ALL SELECT price FROM purchases", "VARCHAR and DOUBLE"),
        ("SELECT price FROM purchases UNION ALL SELECT price, gem_pack FROM purchases", "as many columns"),
        ("WITH RECURSIVE a AS (SELECT price FROM purchases) SELECT price FROM a", "WITH RECURSIVE"),
        ("WITH a AS (SELECT price FROM b), b AS (SELECT price FROM purchases) SELECT price FROM a", "'b'"),
        ("SELECT price FROM " + "(SELECT price FROM " * 17 + "purchases" + ")" * 17, "nested 16 deep"),
        ("SELECT a FROM (SELECT price, gem_pack FROM purchases) AS x (a)", "one each"),
        (f"SELECT x.price FROM ({INNER}) AS x", "x has window_start, window_end, gem_pack, n"),
    ],
)
def test_what_is_refused_says_what_to_write(sql: str, part: str) -> None:
    with pytest.raises(ServiceError) as refused:
        plan(sql)
    assert part in refused.value.detail, refused.value.detail
