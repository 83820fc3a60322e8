"""Columns with parts in SQL: what names with dots mean, types in declarations, and UNNEST in FROM."""

from __future__ import annotations

import pytest

from braid.operators.expressions import Column
from braid.operators.lookup.unnest import Unnest
from braid.operators.queries import Selection
from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import CreateStream
from braid.sources.core.errors import SqlNotAllowed, SqlSyntaxError
from braid.sources.core.schema import ColumnType, Field, StreamSchema
from tests.kit.plans import plan_select
from tests.session.sql.catalog import define

ORDERS = (
    "CREATE STREAM orders (id BIGINT, customer STRUCT<id INT, address STRUCT<city VARCHAR>>,"
    " items ARRAY<STRUCT<sku VARCHAR, qty INT>>, tags VARCHAR[], labels MAP<VARCHAR, INT>, extra JSON,"
    " odd STRUCT<a INT, A2 INT>, time TIMESTAMP LATENESS INTERVAL '2' SECOND) WITH (connector = 'push')"
)
CATALOG = {"orders": define(ORDERS, "s-1"), "customer": define(ORDERS.replace("orders", "customer"), "s-2")}


def outputs(sql: str) -> dict[str, str]:
    """Return what the outputs of a query are called, and the expressions behind them."""
    return {output.name: str(output.expression) for output in plan_select(sql, CATALOG).outputs}


def type_of(text: str) -> ColumnType:
    statement = parse_statement(
        f"CREATE STREAM s (v {text}, t TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push')"
    )
    assert isinstance(statement, CreateStream)
    return statement.schema.fields[0].type


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (("ARRAY<INT>", "INT[]", "array(integer)"), "ARRAY<INT>"),
        (("ARRAY<ARRAY<VARCHAR>>", "TEXT[][]", "ARRAY<VARCHAR[]>"), "ARRAY<ARRAY<VARCHAR>>"),
        (
            ('STRUCT<a INT, "b c" DECIMAL(5,2)>', 'ROW(a INT, "b c" NUMERIC(5,2))'),
            'STRUCT<a INT, "b c" DECIMAL(5,2)>',
        ),
        (
            ("MAP<VARCHAR, STRUCT<end TIMESTAMP>>", "MAP(TEXT, ROW(end TIMESTAMP))"),
            "MAP<VARCHAR, STRUCT<end TIMESTAMP>>",
        ),
        (("STRUCT<a INT>[]", "ARRAY<STRUCT(a INT)>"), "ARRAY<STRUCT<a INT>>"),
        (("JSON", "jsonb"), "JSON"),
    ],
)
def test_types_may_be_spelt_as_others_do(texts: tuple[str, ...], shown: str) -> None:
    for text in (*texts, shown):
        kind = type_of(text)
        assert str(kind) == shown
        assert ColumnType.from_json(kind.to_json()) == kind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ARRAY", "Expected < and what is in ARRAY"),
        ("STRUCT<>", "Expected < and what is in STRUCT"),
        ("STRUCT<a>", "Expected a type"),
        ("STRUCT<a INT, A INT>", "must have different names"),
        ("MAP<INT, INT>", "The keys of a MAP must be VARCHAR; got INT"),
        ("ARRAY<JSON>", "must not have JSON in it. Declare the whole column as JSON"),
        ("JSON[]", "must not have JSON in it"),
        ("INT" + "[]" * 11, "must not be nested more than 10 deep"),
        ("ARRAY<" * 12 + "INT" + ">" * 12, "must not be nested more than 10 deep"),
        ("STRUCT<a INT)", "Expected >"),
        ("LIST<INT>", "STRUCT<name type, …>, ARRAY<type>, MAP<VARCHAR, type>, JSON"),
        (f"STRUCT<{', '.join(f'm{n} INT' for n in range(1001))}>", "at most 1000 members"),
    ],
)
def test_types_that_cannot_be_are_refused(text: str, message: str) -> None:
    with pytest.raises((SqlNotAllowed, SqlSyntaxError), match=message.replace("(", r"\(")):
        type_of(text)


def test_a_stream_with_parts_is_kept_in_json() -> None:
    schema = CATALOG["orders"].schema
    assert StreamSchema.from_json(schema.to_json()) == schema
    field = Field("x", schema.field("items").type)
    assert field.describe() == {"name": "x", "type": "ARRAY<STRUCT<sku VARCHAR, qty INT>>"}


def test_names_with_dots_are_members() -> None:
    assert outputs(
        "SELECT customer.address.city, o.customer.id AS c, ODD.a, items[1].sku AS s, (items[2]).qty AS q,"
        " customer.address.city || 'x' AS y FROM orders o"
    ) == {
        "city": "member(member(customer, 'address'), 'city')",
        "c": "member(customer, 'id')",
        "a": "member(odd, 'a')",
        "s": "member(element(items, 1), 'sku')",
        "q": "member(element(items, 2), 'qty')",
        "y": "concat(member(member(customer, 'address'), 'city'), 'x')",
    }


def test_a_name_before_the_dot_is_an_input_where_that_has_the_column() -> None:
    assert outputs("SELECT customer.id AS a, customer.customer.id AS b, customer.address.city AS c FROM customer") == {
        "a": "id",
        "b": "member(customer, 'id')",
        "c": "member(member(customer, 'address'), 'city')",
    }


def test_members_of_joined_rows_are_those_of_their_input() -> None:
    join = plan_select(
        "SELECT a.customer.id AS x, b.items[1].sku AS y FROM orders [RANGE 4 SECONDS] a JOIN orders [RANGE 4 SECONDS] b"
        " ON a.customer.id = b.customer.id",
        CATALOG,
    )
    assert [str(output.expression) for output in join.outputs[-2:]] == [
        "member(a.customer, 'id')",
        "member(element(b.items, 1), 'sku')",
    ]


def test_groups_are_of_members() -> None:
    query = plan_select(
        "SELECT customer.address.city, COUNT(*) AS n FROM orders [RANGE 4 SECONDS] GROUP BY customer.address.city",
        CATALOG,
    )
    assert [str(key) for key in query.keys] == ["member(member(customer, 'address'), 'city')"]
    assert query.outputs[-2].name == "city"


def test_json_operators_bind_like_dots() -> None:
    assert outputs(
        "SELECT extra -> 'a' -> 0 AS x, extra ->> '$.b' || 'c' AS y, CAST(extra ->> 'n' AS INT) + 1 AS z FROM orders"
    ) == {
        "x": "json_extract(json_extract(extra, 'a'), 0)",
        "y": "concat(json_extract_string(extra, '$.b'), 'c')",
        "z": "+(cast(json_extract_string(extra, 'n') as INT), 1)",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        ("SELECT ^customer.nothing FROM orders", "has no member 'nothing'; it has id, address"),
        ("SELECT ^id.x FROM orders", "Only a STRUCT has members"),
        ("SELECT ^nothing.x FROM orders", "'nothing' is not in FROM"),
        ("SELECT ^items.sku FROM orders", "Write the number of an element first"),
        ("SELECT COUNT(*) AS n FROM orders [RANGE 4 SECONDS] GROUP BY ^customer", "cannot be grouped by: it has parts"),
        ("SELECT COUNT(DISTINCT ^tags) AS n FROM orders [RANGE 4 SECONDS]", "cannot be counted by its values"),
        ("SELECT MAX(^tags) AS n FROM orders [RANGE 4 SECONDS]", "MAX needs a number, text, date or timestamp"),
        ("SELECT id FROM orders WHERE customer ^= customer", "cannot be compared"),
        ("SELECT tags[1 ^FROM orders", "Expected ]"),
        ("SELECT tags[^] FROM orders", "Expected an expression"),
        ("SELECT extra -> ^FROM orders", "Expected an expression"),
        ("SELECT id FROM ^UNNEST(items) AS i", "UNNEST must follow the stream"),
        ("SELECT id FROM orders, UNNEST(^id) AS i", "UNNEST takes an ARRAY or a MAP; got"),
        ("SELECT id FROM orders, UNNEST(^extra) AS i", "declare the column as ARRAY"),
        ("SELECT id FROM orders, UNNEST(items^, tags) AS i", "write UNNEST(a), UNNEST(b)"),
        ("SELECT id FROM orders, ^UNNEST(items) AS i (a)", "gives 2 column(s), sku, qty; 1 name(s) follow it"),
        ("SELECT id FROM orders, UNNEST(items) ^[RANGE 4 SECONDS] AS i", "UNNEST has no time of its own"),
        ("SELECT id FROM orders LEFT JOIN UNNEST(items) AS i ON i.qty ^> 1", "is followed by ON TRUE"),
        ("SELECT id FROM orders, UNNEST(items), ^UNNEST(tags)", "Two inputs of the join are called 'unnest'"),
        ("SELECT id FROM orders, ^UNNEST(items) AS i (_a, b)", "Write other names"),
        ("SELECT id FROM orders ^CROSS JOIN orders o", "CROSS JOIN is not supported"),
    ],
)
def test_refusals_say_what_and_where(marked: str, message: str) -> None:
    before, _, after = marked.partition("^")
    with pytest.raises((SqlNotAllowed, SqlSyntaxError)) as caught:
        plan_select(before + after, CATALOG)
    assert message in caught.value.detail
    assert caught.value.position is not None
    assert caught.value.position.column == len(before) + 1


def selection(sql: str) -> Selection:
    query = plan_select(sql, CATALOG)
    assert isinstance(query, Selection)
    return query


def test_unnest_is_the_same_input_whatever_its_columns_are_called() -> None:
    texts = (
        "SELECT sku FROM orders, UNNEST(items) AS i",
        "SELECT x.a AS sku FROM orders o CROSS JOIN UNNEST(o.items) AS x (a, b) WHERE b > 1",
        "SELECT i.sku FROM orders JOIN UNNEST(orders.items) i ON TRUE",
    )
    queries = list(map(selection, texts))
    assert len({query.input for query in queries}) == 1
    (unnest,) = queries[0].lookups
    assert unnest == Unnest("unnest", Column("items", CATALOG["orders"].schema.field("items").type), ("sku", "qty"))
    assert [str(query.outputs[0].expression) for query in queries] == ["unnest.sku"] * 3
    assert str(queries[1].where) == ">(unnest.qty, 1)"


def test_elements_without_members_are_called_as_the_alias() -> None:
    assert outputs("SELECT tag, n FROM orders LEFT JOIN UNNEST(tags) WITH ORDINALITY AS t (tag, n) ON TRUE") == {
        "tag": "unnest.element",
        "n": "unnest.ordinality",
    }
    assert outputs("SELECT tag FROM orders, UNNEST(tags) AS tag") == {"tag": "unnest.element"}
    assert outputs("SELECT key, value FROM orders, UNNEST(labels) AS l") == {
        "key": "unnest.key",
        "value": "unnest.value",
    }
    assert list(outputs("SELECT * FROM orders, UNNEST(tags) AS tag"))[-1] == "tag"


def test_one_unnest_may_take_what_another_gives() -> None:
    catalog = {
        "s": define(
            "CREATE STREAM s (v ARRAY<STRUCT<k INT, w INT[]>>, t TIMESTAMP LATENESS INTERVAL '0' SECOND)"
            " WITH (connector = 'push')",
            "s-3",
        )
    }
    query = plan_select("SELECT x.k, y FROM s, UNNEST(v) AS x, UNNEST(x.w) AS y", catalog)
    assert isinstance(query, Selection)
    assert [str(join) for join in query.lookups] == [
        "unnest v as unnest(k, w)",
        "unnest unnest.w as unnest(element)",
    ]


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("SELECT id FROM orders JOIN UNNEST(lines) AS l USING (id)", {"id": "id"}),
        (
            "SELECT * FROM orders JOIN UNNEST(lines) AS l USING (id)",
            {"id": "id", "lines": "lines", "time": "time", "n": "unnest.n"},
        ),
        ("SELECT l.id FROM orders JOIN UNNEST(lines) AS l USING (id)", {"id": "unnest.id"}),
    ],
)
def test_using_makes_a_column_of_unnest_one_with_that_of_the_stream(sql: str, shown: dict[str, str]) -> None:
    stream = define(
        "CREATE STREAM orders (id BIGINT, lines ARRAY<STRUCT<id BIGINT, n INT>>, time TIMESTAMP LATENESS INTERVAL '0'"
        " SECOND) WITH (connector = 'push')",
        "s-1",
    )
    query = plan_select(sql, {"orders": stream})
    assert {output.name: str(output.expression) for output in query.outputs} == shown
    assert str(query.where) == "=(id, unnest.id)"


def test_using_takes_the_column_of_a_stream_rather_than_that_of_unnest() -> None:
    skus = define(ORDERS.replace("orders", "skus").replace("id BIGINT", "sku VARCHAR"), "s-3")
    query = plan_select(
        "SELECT a.id AS a, sku FROM orders [RANGE 4 SECONDS] a, UNNEST(a.items) AS i JOIN skus [RANGE 4 SECONDS]"
        " USING (sku)",
        CATALOG | {"skus": skus},
    )
    assert str(query.outputs[-1].expression) == "skus.sku"
