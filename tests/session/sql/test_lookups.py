"""Static tables in a SELECT: which stream each goes to, what stays a condition, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from braid.operators.joins.query import Join
from braid.operators.lookup.lookups import Lookup
from braid.operators.queries import Aggregation, Query, Selection, query_from_json
from braid.sources.connectors.one_row import is_one_row
from braid.sources.connectors.static_table import TableVersion
from braid.sources.core.errors import SqlNotAllowed
from tests.kit.plans import plan_select
from tests.session.sql.tables import CATALOG, Tables


def planned(sql: str) -> Query:
    query = plan_select(sql, CATALOG, tables=Tables())
    assert query_from_json(query.to_json()) == query
    return query


def described(lookups: Sequence[Lookup]) -> list[str]:
    return [str(lookup).replace("lookup ", "").replace(f"@{lookup.version} on", ":") for lookup in lookups]


def test_a_selection_gets_the_columns_of_a_table() -> None:
    query = planned(
        "SELECT p.user_id, k.name, price FROM purchases p JOIN packs k ON p.pack = k.pack AND k.name <> 'z'"
        " WHERE price > 1"
    )
    assert isinstance(query, Selection)
    assert described(query.lookups) == ["packs: cast(pack as BIGINT) = pack"]
    assert str(query.where) == "and(>(price, 1.0), <>(packs.name, 'z'))"
    assert [(o.name, str(o.expression)) for o in query.outputs] == [
        ("user_id", "user_id"), ("name", "packs.name"), ("price", "price"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("where", "lookups"),
    [
        ("pack IN (SELECT pack FROM packs)", ["semi packs: cast(pack as BIGINT) = pack"]),
        (
            "p.pack IN (SELECT k.pack FROM packs AS k WHERE brand > 1)",
            ["semi packs: cast(pack as BIGINT) = case(>(brand, 1), pack, NULL)"],
        ),
        ("EXISTS (SELECT 1 FROM packs k WHERE k.pack = p.pack)", ["semi packs: cast(pack as BIGINT) = pack"]),
        ("NOT EXISTS (SELECT * FROM packs WHERE pack = user_id)", ["anti packs: user_id = pack"]),
    ],
)
@pytest.mark.parametrize(
    ("items", "window"),
    [("price", ""), ("COUNT(*) AS n", "[SESSION 5 SECONDS]"), ("user_id", "[RANGE 9 SECONDS SLIDE 1 SECOND]")],
)
def test_a_subquery_over_a_table_looks_each_row_up(items: str, window: str, where: str, lookups: list[str]) -> None:
    query = planned(f"SELECT {items} FROM purchases {window} AS p WHERE {where}")
    (source,) = query.inputs
    assert described([lookup for lookup in source.lookups if isinstance(lookup, Lookup)]) == lookups


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM packs",
        "SELECT k.name, b.label FROM packs AS k LEFT JOIN brands AS b USING (brand)",
        "SELECT a FROM (VALUES (1), (2)) AS v (a)",
        "SELECT pack FROM many",
    ],
)
def test_tables_alone_are_joined_with_a_stream_of_one_row(sql: str) -> None:
    query = planned(sql)
    assert isinstance(query, Selection)
    assert is_one_row(query.stream)
    assert not any("row_time" in str(output.expression) for output in query.outputs)


def test_not_in_of_a_table_is_three_anti_joins() -> None:
    query = planned("SELECT price FROM purchases WHERE pack NOT IN (SELECT pack FROM packs)")
    assert isinstance(query, Selection)
    assert [lookup.keeps for lookup in query.lookups if isinstance(lookup, Lookup)] == ["anti"] * 3


def test_a_subquery_over_a_table_makes_its_stream_inner() -> None:
    joined = "FROM clicks [RANGE 4 SECONDS] c LEFT JOIN purchases [RANGE 4 SECONDS] p ON p.user_id = c.user_id"
    query = planned(f"SELECT c.ad {joined} WHERE p.pack IN (SELECT pack FROM packs)")
    assert isinstance(query, Join)
    assert [join_input.outer_of for join_input in query.inputs] == [(), ()]
    with pytest.raises(SqlNotAllowed, match="right of a LEFT JOIN"):
        planned(f"SELECT c.ad {joined} WHERE p.pack NOT IN (SELECT pack FROM packs)")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT price FROM purchases p, packs k WHERE p.pack = k.pack",
        "SELECT price FROM packs k, purchases p WHERE k.pack = p.pack",
        "SELECT price FROM packs k JOIN purchases p ON k.pack = p.pack",
        "SELECT price FROM purchases JOIN packs USING (pack)",
        "SELECT price FROM packs JOIN purchases USING (pack)",
    ],
)
def test_a_table_may_be_named_anywhere(text: str) -> None:
    query = planned(text)
    assert isinstance(query, Selection)
    assert query.where is None
    assert described(query.lookups) == ["packs: cast(pack as BIGINT) = pack"]


def test_columns_of_using_are_one() -> None:
    query = planned("SELECT * FROM packs JOIN purchases USING (pack) WHERE pack > 1")
    assert isinstance(query, Selection)
    assert [o.name for o in query.outputs] == ["user_id", "pack", "price", "time", "name", "brand"]
    assert str(query.where) == ">(pack, 1)"
    query = planned("SELECT packs.* FROM purchases JOIN packs USING (pack)")
    assert isinstance(query, Selection)
    assert [str(o.expression) for o in query.outputs] == ["packs.pack", "packs.name", "packs.brand"]


def test_the_on_of_a_left_join_stays_with_the_lookup() -> None:
    query = planned(
        "SELECT price FROM purchases p LEFT JOIN packs k ON p.pack = k.pack AND k.name = 'a' AND p.price > k.brand"
        " AND p.price > 2 WHERE k.name IS NULL"
    )
    assert isinstance(query, Selection)
    assert described(query.lookups) == [
        "left packs: cast(pack as BIGINT) = pack and"
        " and(=(packs.name, 'a'), >(price, cast(packs.brand as DOUBLE)), >(price, 2.0))"
    ]
    assert str(query.where) == "is_null(packs.name)"


def test_tables_follow_tables() -> None:
    query = planned(
        "SELECT b.label, SUM(p.price * k.brand) AS n FROM brands b, packs k, purchases [RANGE 4 SECONDS] p"
        " WHERE b.brand = k.brand AND k.pack = p.pack GROUP BY b.label"
    )
    assert isinstance(query, Aggregation)
    assert described(query.lookups) == [
        "packs: cast(pack as BIGINT) = pack", "brands: packs.brand = brand",
    ]  # fmt: skip
    assert [str(key) for key in query.keys] == ["brands.label"]
    assert [measure.name for measure in query.measures] == ["sum(*(price, cast(packs.brand as DOUBLE)))"]


def test_a_table_may_be_joined_twice() -> None:
    query = planned(
        "SELECT x.name AS one, y.name AS two FROM purchases p JOIN packs x ON p.pack = x.pack"
        " LEFT JOIN packs y ON y.pack = x.brand"
    )
    assert isinstance(query, Selection)
    assert [lookup.name for lookup in query.lookups] == ["packs", "packs#2"]
    assert [str(o.expression) for o in query.outputs] == ["packs.name", "packs#2.name"]


def test_each_stream_of_a_join_has_its_own_tables() -> None:
    query = planned(
        "SELECT k.name, c.ad FROM purchases [RANGE 4 SECONDS] p JOIN clicks [RANGE 4 SECONDS] c"
        " ON p.user_id = c.user_id JOIN packs k ON k.pack = p.pack LEFT JOIN brands b ON b.brand = c.ad"
        " WHERE k.brand = c.ad"
    )
    assert isinstance(query, Join)
    purchases, clicks = query.inputs
    assert described(purchases.lookups) == ["packs: cast(pack as BIGINT) = pack"]
    assert described(clicks.lookups) == ["left brands: ad = cast(brand as BIGINT)"]
    # the other equality with the table is one between the streams
    assert [str(key) for key in purchases.keys] == ["cast(packs.brand as BIGINT)", "user_id"]
    assert [str(key) for key in clicks.keys] == ["ad", "user_id"]


def test_an_inner_join_with_a_table_makes_its_stream_inner() -> None:
    query = planned(
        "SELECT k.name FROM clicks [RANGE 4 SECONDS] c LEFT JOIN purchases [RANGE 4 SECONDS] p ON p.user_id = c.user_id"
        " JOIN packs k ON k.pack = p.pack"
    )
    assert isinstance(query, Join)
    assert [join_input.outer_of for join_input in query.inputs] == [(), ()]


def test_queries_with_other_rows_of_a_table_have_another_input() -> None:
    text = "SELECT k.name FROM purchases p JOIN packs k ON p.pack = k.pack"
    before = planned(text)
    packs = Tables.versions["packs"]
    Tables.versions["packs"] = TableVersion(packs.definition, packs.rows.slice(1))
    try:
        after = planned(text)
    finally:
        Tables.versions["packs"] = packs
    assert isinstance(before, Selection)
    assert isinstance(after, Selection)
    assert before.input != after.input
    assert planned(text).input == before.input  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        ("SELECT name FROM packs, ^brands", "'brands' is not compared with any"),
        ("SELECT name FROM packs ^[RANGE 1 DAY]", "remove its window"),
        ("SELECT price FROM purchases p, ^packs k", "'k' is not compared with any"),
        ("SELECT price FROM purchases p JOIN ^packs k ON p.pack < k.pack", "'k' is not compared with any"),
        ("SELECT price FROM ^packs k LEFT JOIN purchases p ON p.pack = k.pack", "cannot be on the left of a LEFT JOIN"),
        ("SELECT price FROM purchases p JOIN ^many m ON p.pack = m.pack", "1001 rows of many have one key"),
        (
            "SELECT ^pack FROM purchases p JOIN packs k ON p.pack = k.pack",
            "is in several inputs; write which: p has user_id",
        ),
        ("SELECT ^z.pack FROM purchases p JOIN packs k ON p.pack = k.pack", "its inputs are called 'p', 'k'"),
        (
            "SELECT ^k.x FROM purchases p JOIN packs k ON p.pack = k.pack",
            "k has pack, name, brand",
        ),
        (
            "SELECT price FROM purchases p JOIN ^packs p ON p.pack = p.pack",
            "are called 'p'",
        ),
        ("SELECT 1 AS one FROM purchases p JOIN packs k USING (^price)", "both sides have"),
        ("SELECT price FROM purchases WHERE pack > (^SELECT MAX(pack) FROM packs)", "join with the table in FROM"),
        ("SELECT price FROM purchases WHERE pack > (^SELECT pack FROM packs)", "stands alone between ANDs"),
        ("SELECT price FROM purchases WHERE pack IN (^SELECT pack, brand FROM packs)", "gives one column"),
        (
            "SELECT price FROM purchases p WHERE EXISTS (^SELECT 1 FROM many m WHERE m.pack > price)",
            "1001 rows of many",
        ),
        ("SELECT price FROM purchases p WHERE 1 IN (^SELECT pack FROM packs)", "name a column of one"),
        ("SELECT price FROM purchases WHERE pack IN (SELECT pack FROM packs ^[RANGE 5 SECONDS])", "remove its window"),
        (
            "SELECT k.name FROM purchases [RANGE 4 SECONDS] p JOIN clicks [RANGE 4 SECONDS] c ON p.user_id = c.user_id"
            " LEFT JOIN packs k ON k.pack = p.pack AND k.brand ^= c.ad",
            "names others",
        ),
    ],
)
def test_refusals_say_what_and_where(marked: str, message: str) -> None:
    before, _, after = marked.partition("^")
    with pytest.raises(SqlNotAllowed) as caught:
        planned(before + after)
    assert message in caught.value.detail
    position = caught.value.position
    assert position is not None
    assert position.column == len(before) + 1
