"""Names in double quotes: any characters, and each means its own column, whatever others and functions are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pyarrow as pa
import pytest

from braid.operators.evaluation import FUNCTIONS, evaluate
from braid.operators.expressions import Call, Column, Literal, text_of
from braid.operators.joins.query import Join
from braid.operators.queries import Selection, query_from_json
from braid.operators.query_parts import MEASURE_FUNCTIONS
from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import CreateStream
from braid.sources.connectors.static_table import TableDefinition, TableVersion
from braid.sources.core.errors import SqlNotAllowed
from braid.sources.core.schema import BIGINT, INT, TIMESTAMP, VARCHAR, Field, Schema, StreamDefinition, StreamSchema
from tests.kit.plans import plan_select
from tests.session.sql.tables import Tables

NAMES = (
    "total price",
    "a.b",
    "user-id",
    "SELECT",
    "count(*)",
    "1",
    "NULL",
    "True",
    'say "hi"',
    "packs.name",
    "größe",
    "x",
)
SCHEMA = StreamSchema((*(Field(name, BIGINT) for name in NAMES), Field("Event Time", TIMESTAMP)), "Event Time", 0)
CATALOG = {name: StreamDefinition(f"s-{name}", name, SCHEMA, "push", "json") for name in ("my stream", "v1.orders")}


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def selection(sql: str) -> Selection:
    query = plan_select(sql, CATALOG)
    assert isinstance(query, Selection)
    assert query_from_json(query.to_json()) == query
    return query


def test_names_of_any_characters_are_declared() -> None:
    columns = ", ".join(f"{quoted(name)} BIGINT" for name in NAMES)
    statement = parse_statement(
        f'CREATE STREAM "my stream" ({columns}, "Event Time" TIMESTAMP LATENESS INTERVAL \'0\' SECOND)'
        " WITH (connector = 'push')"
    )
    assert isinstance(statement, CreateStream)
    assert (statement.name, statement.schema) == ("my stream", SCHEMA)
    assert StreamSchema.from_json(statement.schema.to_json()) == SCHEMA


@pytest.mark.parametrize("name", NAMES)
def test_a_quoted_name_means_its_column(name: str) -> None:
    query = selection(f'SELECT {quoted(name)}, {quoted(name)} + 1 AS "one more" FROM "my stream" AS "s 1"')
    assert query.outputs[0].name == name
    assert query.outputs[0].expression == Column(name, BIGINT)
    columns = {column: pa.array([number], pa.int64()) for number, column in enumerate(NAMES)}
    values = [evaluate(output.expression, columns, 1)[0].as_py() for output in query.outputs]
    assert values == [NAMES.index(name), NAMES.index(name) + 1]
    qualified = selection(f'SELECT "s 1".{quoted(name)} FROM "my stream" AS "s 1"')
    assert qualified.outputs == query.outputs[:1]


def test_case_does_not_count_in_quotes_either() -> None:
    assert selection('SELECT "TOTAL Price" FROM "MY stream"').outputs[0].name == "total price"


def test_the_text_of_a_column_is_that_of_no_other_expression() -> None:
    one = Literal(1, INT)
    others = [
        (Column("abs(x)", BIGINT), Call("abs", (Column("x", BIGINT),), BIGINT)),
        (Column("+(x, 1)", BIGINT), Call("+", (Column("x", BIGINT), one), BIGINT)),
        (Column("1", INT), one),
        (Column("NULL", VARCHAR), Literal(None, VARCHAR)),
        (Column('"x"', BIGINT), Column("x", BIGINT)),
        (Column("'a'", VARCHAR), Literal("a", VARCHAR)),
    ]
    assert FUNCTIONS.keys().isdisjoint(MEASURE_FUNCTIONS), "columns are called as measures without quotes"
    for column, other in others:
        assert text_of(column) != text_of(other)
    assert str(Column("p.price", BIGINT)) == "p.price", "texts name what partitions keep"
    assert str(Column("packs#2.name", BIGINT)) == "packs#2.name"


def test_columns_with_dots_are_told_apart_in_joins() -> None:
    query = plan_select(
        'SELECT a."a.b", b."packs.name", "b"."a.b" AS other FROM "my stream" [RANGE 2 SECONDS] a'
        ' JOIN "v1.orders" [RANGE 2 SECONDS] b ON a."a.b" = b."total price" AND a."user-id" = b."user-id"',
        CATALOG,
    )
    assert isinstance(query, Join)
    assert [output.name for output in query.outputs][2:] == ["a.b", "packs.name", "other"]
    assert [str(output.expression) for output in query.outputs][2:] == ["a.a.b", "b.packs.name", "b.a.b"]
    assert [[key.name for key in i.keys if isinstance(key, Column)] for i in query.inputs] == [
        ["user-id", "a.b"],
        ["user-id", "total price"],
    ]
    with pytest.raises(SqlNotAllowed, match=r"must have no dot; got 'v1\.orders'\. Write AS and an alias"):
        plan_select('SELECT 1 AS x FROM "my stream" [RANGE 2 SECONDS] a, "v1.orders" [RANGE 2 SECONDS]', CATALOG)


class QuotedTables(Tables):
    """A table whose columns could be taken for those of the stream."""

    versions: ClassVar = {
        "packs": TableVersion(
            TableDefinition("t-1", "packs", Schema((Field("user-id", BIGINT), Field("name", VARCHAR))), "csv"),
            pa.table({"user-id": pa.array([1], pa.int64()), "name": ["a"]}),
        )
    }
    names: Sequence[str] = list(versions)


def test_a_table_is_joined_whose_columns_are_called_as_those_of_the_stream() -> None:
    query = plan_select(
        'SELECT s."packs.name" AS own, packs.name, k.name AS again FROM "my stream" s'
        ' JOIN packs USING ("user-id") JOIN packs k ON k."user-id" = s.x',
        CATALOG,
        tables=QuotedTables(),
    )
    assert isinstance(query, Selection)
    assert [output.name for output in query.outputs] == ["own", "name", "again"]
    own, *of_tables = [output.expression for output in query.outputs]
    assert own == Column("packs.name", BIGINT)
    names = [lookup.name for lookup in query.lookups]
    assert of_tables == [Column(f"{name}.name", VARCHAR) for name in names]
    assert "packs" not in names, "the stream has a column called packs.name"
    assert len(set(names)) == 2
