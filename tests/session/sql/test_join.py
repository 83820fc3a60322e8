"""Joins in SQL: what ON and WHERE become, when a LEFT JOIN stays one, and what is refused."""

from __future__ import annotations

import pytest

from braid.operators.joins.query import Join
from braid.operators.kinds import operator_of
from braid.operators.queries import query_from_json
from braid.operators.windows import SessionWindow, Window
from braid.sources.core.errors import SqlNotAllowed, SqlSyntaxError
from braid.sources.core.schema import BIGINT, DOUBLE, INT, TIMESTAMP, VARCHAR, Field, StreamDefinition, StreamSchema
from tests.kit.plans import plan_select

W = "[RANGE 8 SECONDS SLIDE 4 SECONDS]"
_FIELDS = (Field("user_id", BIGINT), Field("pack", INT), Field("price", DOUBLE), Field("name", VARCHAR))
CATALOG = {
    name: StreamDefinition(
        f"s-{name}",
        name,
        StreamSchema((*_FIELDS, Field(name[0], INT), Field("time", TIMESTAMP)), "time", 0),
        "push",
        "json",
    )
    for name in ("purchases", "ads", "clicks")
}


def plan(sql: str) -> Join:
    query = plan_select(sql.replace("~", W), CATALOG)
    assert isinstance(query, Join)
    assert query_from_json(query.to_json()) == query
    return query


def inputs(sql: str) -> list[tuple[str, str | None, list[str | None], tuple[int, ...]]]:
    """Return the inputs of SELECT p.price FROM … as texts: alias, predicate, keys, outer_of."""
    return [
        (
            join_input.alias,
            None if join_input.where is None else str(join_input.where),
            [None if key is None else str(key) for key in join_input.keys],
            join_input.outer_of,
        )
        for join_input in plan(f"SELECT p.price FROM {sql}").inputs
    ]


def test_the_thesis_join() -> None:
    query = plan(
        "SELECT p.user_id, p.pack, p.price FROM purchases ~ AS p, ads ~ AS a"
        " WHERE p.user_id = a.user_id AND p.pack = a.pack AND a.pack > 3"
    )
    assert query.window == Window(8_000_000, 4_000_000)
    assert query.streams == ("s-purchases", "s-ads")
    assert [
        (join_input.alias, str(join_input.where), list(map(str, join_input.keys))) for join_input in query.inputs
    ] == [
        ("p", "None", ["pack", "user_id"]),
        ("a", ">(pack, 3)", ["pack", "user_id"]),
    ]
    names = ["window_start", "window_end", "user_id", "pack", "price"]
    assert [output.name for output in query.outputs] == names
    assert [str(output.expression) for output in query.outputs] == [*names[:2], "p.user_id", "p.pack", "p.price"]


@pytest.mark.parametrize(
    "sql",
    [
        "purchases ~ p, ads ~ a WHERE p.user_id = a.user_id AND a.price > 2.0",
        "purchases ~ p JOIN ads ~ a ON a.user_id = p.user_id WHERE a.price > 2",
        "purchases ~ p INNER JOIN ads ~ a ON p.user_id = a.user_id AND a.price > 2",
        "purchases ~ AS p JOIN ads ~ AS a USING (user_id) WHERE 2 < a.price",
        "purchases ~ p LEFT JOIN ads ~ a ON p.user_id = a.user_id WHERE a.price > 2",
        "purchases ~ p LEFT OUTER JOIN ads ~ a USING (user_id) WHERE a.price > 2",
        "HOP(TABLE purchases, DESCRIPTOR(time), INTERVAL '4' SECOND, INTERVAL '8' SECOND) p JOIN"
        " HOP(TABLE ads, DESCRIPTOR(time), INTERVAL '4' SECOND, INTERVAL '8' SECOND) a"
        " ON p.user_id = a.user_id AND p.window_start = a.window_start AND p.window_end = a.window_end"
        " WHERE a.price > 2",
    ],
)
def test_ways_to_write_one_join(sql: str) -> None:
    assert inputs(sql) == [("p", None, ["user_id"], ()), ("a", ">(price, 2.0)", ["user_id"], ())]


def test_equal_attributes_are_one_and_others_are_of_some_inputs() -> None:
    assert inputs("purchases ~ p, ads ~ a, clicks ~ c WHERE p.user_id = a.user_id AND a.user_id = c.user_id") == [
        ("p", None, ["user_id"], ()),
        ("a", None, ["user_id"], ()),
        ("c", None, ["user_id"], ()),
    ]
    assert inputs("purchases ~ p, ads ~ a, clicks ~ c WHERE p.user_id = a.user_id AND a.pack = c.pack") == [
        ("p", None, ["user_id", None], ()),
        ("a", None, ["user_id", "pack"], ()),
        ("c", None, [None, "pack"], ()),
    ]


def test_keys_are_compared_in_one_type_and_twice_in_one_attribute_is_a_condition() -> None:
    assert inputs("purchases ~ p, ads ~ a WHERE p.user_id = a.pack") == [
        ("p", None, ["user_id"], ()),
        ("a", None, ["cast(pack as BIGINT)"], ()),
    ]
    assert inputs("purchases ~ p, ads ~ a WHERE p.user_id = a.user_id AND p.user_id = a.pack + 1") == [
        ("p", None, ["user_id"], ()),
        ("a", "=(user_id, +(pack, 1))", ["user_id"], ()),
    ]


@pytest.mark.parametrize("on", ["p.user_id = a.user_id", "p.user_id = a.pack AND a.price > 2"])
def test_a_left_join_with_no_partner_wanted_is_an_anti_join(on: str) -> None:
    key = "a.user_id" if "a.user_id" in on else "a.pack"
    first, second = plan(f"SELECT p.price FROM purchases ~ p LEFT JOIN ads ~ a ON {on} WHERE {key} IS NULL").inputs
    assert (first.anti, second.anti) == (False, True)
    assert second.outer_of == (0,)
    assert str(second.where) == ("None" if "AND" not in on else ">(price, 2.0)")


def test_left_joins() -> None:
    assert inputs("purchases ~ p LEFT JOIN ads ~ a ON p.user_id = a.user_id AND a.pack > 3 WHERE p.price > 1") == [
        ("p", ">(price, 1.0)", ["user_id"], ()),
        ("a", ">(pack, 3)", ["user_id"], (0,)),
    ]
    chain = "purchases ~ p LEFT JOIN ads ~ a ON p.user_id = a.user_id LEFT JOIN clicks ~ c ON c.pack = a.pack"
    assert [join_input[3] for join_input in inputs(chain)] == [(), (0,), (1,)]
    # rows without a partner in clicks go, and with them those without one in ads
    assert [join_input[3] for join_input in inputs(f"{chain} WHERE c.price = 1")] == [(), (), ()]
    assert [join_input[3] for join_input in inputs(f"{chain} WHERE a.price = 1")] == [(), (), (1,)]


def test_a_stream_joined_with_itself() -> None:
    assert inputs("purchases ~ p, purchases ~ q WHERE p.user_id = q.user_id AND q.price > 1") == [
        ("p", None, ["user_id"], ()),
        ("q", ">(price, 1.0)", ["user_id"], ()),
    ]


def test_groups() -> None:
    query = plan(
        "SELECT p.pack, COUNT(*) AS n, AVG(a.price) AS mean FROM purchases ~ p JOIN ads ~ a USING (user_id)"
        " GROUP BY p.pack HAVING COUNT(*) > 2"
    )
    assert query.grouping is not None
    assert list(map(str, query.grouping.keys)) == ["p.pack"]
    assert [m.name for m in query.grouping.measures] == ["count(*)", "sum(a.price)", "count(a.price)"]
    assert str(query.grouping.having) == ">(count(*), 2)"
    assert [output.name for output in query.outputs] == ["window_start", "window_end", "pack", "n", "mean"]


def test_having_takes_aliases() -> None:
    select = "SELECT p.pack AS k, COUNT(*) AS n FROM purchases ~ p JOIN ads ~ a USING (user_id) GROUP BY k HAVING"
    assert plan(f"{select} n > 2 AND k > 1") == plan(f"{select} COUNT(*) > 2 AND p.pack > 1")


def test_stars_and_names_that_one_input_has() -> None:
    query = plan("SELECT p.*, a FROM purchases ~ p JOIN ads ~ a USING (user_id)")
    assert [str(output.expression) for output in query.outputs[2:]] == [
        "p.user_id", "p.pack", "p.price", "p.name", "p.p", "p.time", "a.a",
    ]  # fmt: skip


def test_a_column_of_using_is_called_like_that_of_the_left() -> None:
    select = (
        "SELECT {0}pack, COUNT(*) AS n FROM purchases ~ p JOIN ads ~ a USING (pack) WHERE {0}pack > 1 GROUP BY {0}pack"
    )
    assert plan(select.format("")) == plan(select.format("p."))
    three = "purchases ~ p JOIN ads ~ a USING (user_id) LEFT JOIN ads ~ b USING (user_id)"
    assert str(plan(f"SELECT user_id FROM {three}").outputs[-1].expression) == "p.user_id"


@pytest.mark.parametrize(
    ("condition", "on"),
    [
        ("p.price > a.price", ">(p.price, a.price)"),
        ("p.price > 1 AND a.pack > 3", ">(p.price, 1.0)"),
        ("p.user_id = p.pack AND a.pack IS NULL", "=(p.user_id, p.pack)"),
        ("a.pack > 3", "None"),
    ],
)
def test_more_than_equality_in_the_on_of_a_left_join_is_asked_of_partners(condition: str, on: str) -> None:
    source = "FROM purchases ~ p LEFT JOIN ads ~ a ON p.user_id = a.user_id AND"
    join = plan(f"SELECT p.price {source} {condition}")
    assert str(join.inputs[1].on) == on
    assert join.where is None
    assert join.is_factorised == (on == "None")
    inner = plan(f"SELECT p.price {source} {condition} WHERE a.price > 1")
    assert (inner.inputs[1].outer_of, inner.inputs[1].on) == ((), None), "no row without a partner gets through"
    no_partner = plan(f"SELECT p.price {source} {condition} WHERE a.user_id IS NULL")
    assert no_partner.inputs[1].anti == (on == "None")


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        ("^purchases p, ads ~ a WHERE p.user_id = a.user_id", "the same window; purchases has none"),
        ("purchases ~ p, ads ^[RANGE 2 SECONDS] a WHERE p.user_id = a.user_id", "must have the same window"),
        ("purchases [SESSION 2 SECONDS] p, ads ^[SESSION 3 SECONDS] a WHERE p.user_id = a.user_id", "the same window"),
        (
            "purchases [SESSION 2 SECONDS] p, ads ^[SESSION 2 SECONDS] a, clicks [SESSION 2 SECONDS] c"
            " WHERE p.user_id = a.user_id AND p.pack = c.pack",
            "each input must be compared by all of it; 'a'",
        ),
        ("purchases ~ p, ^ads ~ a", "'a' is not compared with the others"),
        ("purchases ~ p, ^ads ~ a WHERE p.user_id > a.user_id", "'a' is not compared with the others"),
        (
            "purchases ~ p LEFT JOIN ads ~ a ON p.user_id = a.user_id AND p.price > a.price"
            " LEFT JOIN ^clicks ~ c ON c.pack = a.pack",
            "must not name 'a', whose own ON has more",
        ),
        ("purchases ~ p LEFT JOIN ^ads ~ a ON p.price > a.price", "'a' is not compared with the others"),
        (
            "purchases ~ p LEFT JOIN ^ads ~ a ON a.price > 0"
            " LEFT JOIN clicks ~ c ON c.user_id = p.user_id AND c.pack = a.pack",
            "'a' is not compared with the others",
        ),
        ("purchases ~ p, ads ~ p WHERE p.user_id = 1", "Two inputs of the join are called 'p'"),
        ("purchases ~ p, ads ~ a WHERE p.user_id = a.user_id AND ^name = 'x'", "write which: p.name and a.name"),
        ("purchases ~ p, ads ~ a WHERE p.user_id = ^b.user_id", "its inputs are called 'p', 'a'"),
        ("purchases ~ p, ads ~ a WHERE p.user_id = ^nobody", "'nobody' does not exist; p has"),
        ("purchases ~ p JOIN ads ~ a ON p.user_id ^= c.user_id JOIN clicks ~ c ON c.pack = p.pack", "comes after it"),
        ("purchases ~ p JOIN ads ~ a USING (^nothing)", "'nothing'"),
        ("purchases ~ p ^RIGHT JOIN ads ~ a USING (user_id)", "swap the streams"),
        ("purchases ~ p ^FULL JOIN ads ~ a USING (user_id)", "FULL JOIN"),
        ("purchases ~ p ^CROSS JOIN ads ~ a", "CROSS JOIN"),
        ("purchases ~ p ^NATURAL JOIN ads ~ a", "USING"),
        ("purchases ~ p, ads ~ a WHERE p.user_id = a.user_id ^EMIT STREAM", "The rows of a join come once"),
        ("purchases ~ p JOIN ^nobody ~ a USING (user_id)", "Stream, table or query 'nobody' does not exist"),
    ],
)
def test_refusals_say_what_and_where(marked: str, message: str) -> None:
    before, _, after = f"SELECT p.price FROM {marked}".replace("~", W).partition("^")
    with pytest.raises(SqlNotAllowed) as refused:
        plan_select(before + after, CATALOG)
    assert message in refused.value.detail
    if after:
        assert refused.value.position is not None
        assert refused.value.position.column == len(before) + 1


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("p.price, COUNT(*)", "Column 'p.price' must stand in GROUP BY"),
        ("price", "write which: p.price and a.price"),
        ("p.price, a.price", "two columns have it; write AS and another alias"),
        ("p.price, a.*", "list the columns instead of *, and write AS and another alias"),
        ("*", "list the columns instead of *, and write AS and another alias"),
    ],
)
def test_outputs_that_are_refused(items: str, message: str) -> None:
    with pytest.raises(SqlNotAllowed) as refused:
        plan(f"SELECT {items} FROM purchases ~ p JOIN ads ~ a USING (user_id)")
    assert message in refused.value.detail


def test_a_join_needs_on_or_using() -> None:
    with pytest.raises(SqlSyntaxError, match="Expected ON and a condition, or USING and columns"):
        plan("SELECT p.price FROM purchases ~ p JOIN ads ~ a WHERE p.user_id = a.user_id")


def test_the_tuples_of_each_window_are_a_join_of_one_input() -> None:
    query = plan("SELECT user_id, price * 2 AS twice FROM purchases [RANGE 8 SECONDS] WHERE price > 5")
    assert isinstance(query, Join)
    (only,) = query.inputs
    assert (str(only.where), only.keys) == (">(price, 5.0)", ())
    assert [output.name for output in query.outputs] == ["window_start", "window_end", "user_id", "twice"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("JOIN ads ~ a USING (user_id) WHERE p.price > a.price AND p.price > 1", ">(p.price, a.price)"),
        ("JOIN ads ~ a ON p.user_id = a.user_id AND p.price > a.price", ">(p.price, a.price)"),
        # what does not fit an INT is NULL, too, so this is no anti-join
        (
            "LEFT JOIN ads ~ a USING (user_id) WHERE CAST(a.user_id AS INT) IS NULL",
            "is_null(cast(a.user_id as INT))",
        ),
        ("LEFT JOIN ads ~ a USING (user_id) WHERE a.price IS NULL", "is_null(a.price)"),
        ("JOIN ads ~ a USING (user_id) WHERE p.price > 1", None),
    ],
)
def test_conditions_across_inputs_are_tested_on_rows(text: str, where: str | None) -> None:
    query = plan(f"SELECT p.price FROM purchases ~ p {text}")
    assert (None if query.where is None else str(query.where)) == where
    assert query.is_formed_late == (where is None)
    assert query_from_json(query.to_json()) == query


@pytest.mark.parametrize(
    ("items", "factorised"),
    [
        ("p.pack, SUM(p.price) AS n, COUNT(*) AS c", True),
        ("p.pack, SUM(p.price * a.price) AS n", False),
        ("p.pack + a.pack AS pack, COUNT(*) AS n", False),
    ],
)
def test_groups_across_inputs_are_formed_of_rows(items: str, factorised: bool) -> None:
    query = plan(f"SELECT {items} FROM purchases ~ p JOIN ads ~ a USING (user_id) GROUP BY 1")
    assert query.is_factorised == factorised


def test_joins_over_sessions_have_the_same_keys_everywhere() -> None:
    sessions = "SESSION(TABLE {} PARTITION BY {}, DESCRIPTOR(time), INTERVAL '2' SECOND)"
    text = (
        f"SELECT p.price FROM {sessions.format('purchases', 'pack, user_id')} AS p"
        f" JOIN {sessions.format('ads', '{}')} AS a ON p.user_id = a.user_id AND p.pack = a.pack"
    )
    query = plan_select(text.format("user_id, pack"), CATALOG)
    assert isinstance(query, Join)
    assert query.window == SessionWindow(2_000_000)
    assert query_from_json(query.to_json()) == query
    assert not query.is_formed_late
    with pytest.raises(SqlNotAllowed, match="the columns that its input is joined by"):
        plan_select(text.format("user_id"), CATALOG)
    plain = plan_select(
        "SELECT p.price FROM purchases [SESSION 2 SECONDS] p JOIN ads [SESSION 2 SECONDS] a USING (user_id)", CATALOG
    )
    sliding = plan("SELECT p.price FROM purchases ~ p JOIN ads ~ a USING (user_id)")
    assert operator_of(plain) != operator_of(sliding), "their tuples are kept in other ways"
