"""Columns that CREATE STREAM reads from a path, computes, or has of the time of arrival; and what is refused."""

from __future__ import annotations

import pytest

from braid.operators.epoch_state import StreamDefinition
from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import CreateStream, CreateTable
from braid.sources.core.errors import ServiceError
from braid.sources.core.schema import TIMESTAMP, StreamSchema
from tests.session.sql.catalog import define

T = "t TIMESTAMP LATENESS INTERVAL '0' SECOND"
PUSH = "WITH (connector = 'push')"
KAFKA = "WITH (connector = 'kafka', topic = 't', 'properties.bootstrap.servers' = 'h:1'"


def schema_of(columns: str, options: str = PUSH) -> StreamSchema:
    statement = parse_statement(f"CREATE STREAM s ({columns}) {options}")
    assert isinstance(statement, CreateStream)
    assert StreamSchema.from_json(statement.schema.to_json()) == statement.schema
    return statement.schema


def described(schema: StreamSchema) -> list[dict[str, object]]:
    return [f.describe() for f in schema.fields]


def test_columns_are_computed_from_others_wherever_these_stand() -> None:
    schema = schema_of(
        "total AS price * quantity NOT NULL, price DECIMAL(6, 2), quantity INT, twice BIGINT NOT NULL AS (total * 2),"
        " ts AS TO_TIMESTAMP(ms / 1000.0) LATENESS INTERVAL '1' SECOND, ms BIGINT,"
        " label VARCHAR GENERATED ALWAYS AS ('n' || quantity) STORED"
    )
    assert described(schema) == [
        {"name": "total", "type": "DECIMAL(17,2)", "not_null": True, "computed": "price * quantity"},
        {"name": "price", "type": "DECIMAL(6,2)"},
        {"name": "quantity", "type": "INT"},
        {"name": "twice", "type": "BIGINT", "not_null": True, "computed": "(total * 2)"},
        {"name": "ts", "type": "TIMESTAMP", "computed": "TO_TIMESTAMP(ms / 1000.0)"},
        {"name": "ms", "type": "BIGINT"},
        {"name": "label", "type": "VARCHAR", "computed": "('n' || quantity)"},
    ]
    assert (schema.event_time, schema.lateness_us) == ("ts", 1_000_000)
    assert [f.name for f in schema.read] == ["price", "quantity", "ms"]
    assert schema.stored is schema


@pytest.mark.parametrize(
    ("column", "kind", "text"),
    [
        ("x AS a * b NOT NULL", "BIGINT", "a * b"),
        ("x DOUBLE AS (a) NOT NULL", "DOUBLE", "(a)"),
        ("x AS CASE WHEN a > 1 THEN a END NOT NULL", "INT", "CASE WHEN a > 1 THEN a END"),
        ("x AS a > 1 NOT NULL", "BOOLEAN", "a > 1"),
        ("x AS a IS NOT NULL", "BOOLEAN", "a IS NOT NULL"),
        ("x AS a IS NOT NULL NOT NULL", "BOOLEAN", "a IS NOT NULL"),
        ("x AS a NOT IN (1, 2)", "BOOLEAN", "a NOT IN (1, 2)"),
    ],
)
def test_not_null_after_an_expression_is_of_the_column(column: str, kind: str, text: str) -> None:
    field = schema_of(f"a INT, b INT, {column}, {T}").field("x")
    assert field.computed is not None
    assert (str(field.type), field.computed.text) == (kind, text)
    assert field.not_null == (not column.endswith(text))


def test_columns_are_read_from_paths() -> None:
    schema = schema_of(f"id BIGINT NOT NULL FROM '$.user.id', city VARCHAR FROM 'Home Town' NOT NULL, {T}")
    assert [f.path for f in schema.fields] == [("user", "id"), ("Home Town",), ("t",)]
    assert set(schema.required) == {"id", "city", "t"}
    table = parse_statement(
        "CREATE TABLE t (id BIGINT FROM '$.id.x') WITH (connector = 'file', path = 'a.json', format = 'json')"
    )
    assert isinstance(table, CreateTable)
    assert table.schema.fields[0].path == ("id", "x")


def test_the_time_of_arrival_is_a_column() -> None:
    schema = schema_of("k INT, time TIMESTAMP ARRIVAL LATENESS INTERVAL '0' SECOND, twice AS k * 2")
    assert described(schema)[1] == {"name": "time", "type": "TIMESTAMP", "arrival": True}
    assert schema.stored.names == ("k", "twice")
    assert set(schema.stored.required) == set()
    beside = schema_of(f"k INT, {T}, came TIMESTAMP ARRIVAL")
    assert isinstance(beside.stored, StreamSchema)
    assert beside.stored.names == ("k", "t")


def test_of_messages_values_come_first_and_what_is_computed_last() -> None:
    options = f"{KAFKA})"
    columns = "v BIGINT, at AS sent LATENESS INTERVAL '0' SECOND, sent TIMESTAMP METADATA FROM 'timestamp'"
    schema = schema_of(columns, options)
    assert schema.of_values.names == ("v",)
    plain = schema_of("v BIGINT, at AS TO_TIMESTAMP(v) LATENESS INTERVAL '0' SECOND", options)
    assert plain.of_values is plain


def test_formats_of_times_hold_for_what_is_written_only() -> None:
    schema = schema_of(
        "a TIMESTAMP, b AS a + INTERVAL '1' HOUR LATENESS INTERVAL '0' SECOND, c TIMESTAMP ARRIVAL",
        "WITH (connector = 'push', 'timestamp.format' = 'epoch-millis')",
    )
    assert [f.time_format for f in schema.fields] == ["epoch-millis", "", ""]
    assert schema.field("b").type == TIMESTAMP


def test_definitions_of_computed_columns_are_read_where_batches_are() -> None:
    definition = define(f"CREATE STREAM s (a INT, b AS a + 1, {T}) {PUSH}", "s-1")
    assert StreamDefinition.from_json(definition.to_json()) == definition


@pytest.mark.parametrize(
    ("marked", "status", "message"),
    [
        (f"CREATE STREAM s (a INT, b AS ^c + 1, {T}) {PUSH}", 422, "'c' does not exist, or is computed after this one"),
        (f"CREATE STREAM s (a INT, b AS ^d + 1, d AS a, {T}) {PUSH}", 422, "computed after this one; there are a, t"),
        (f"CREATE STREAM s (a INT, b AS ^b + 1, {T}) {PUSH}", 422, "does not exist"),
        (f"CREATE STREAM s (price INT, b AS ^prise + 1, {T}) {PUSH}", 422, "Did you mean 'price'?"),
        (f"CREATE STREAM s (a INT, b AS a || t ^< 3, {T}) {PUSH}", 422, "Cannot compare"),
        (f"CREATE STREAM s (a INT, b AS ^SUM(a), {T}) {PUSH}", 422, "is an aggregate"),
        (f"CREATE STREAM s (a INT, b AS ^NOW(), {T}) {PUSH}", 422, "NOW is not supported"),
        (f"CREATE STREAM s (a INT, b AS ^, {T}) {PUSH}", 400, "an expression"),
        (f"CREATE STREAM s (a INT, b DATE AS (^a), {T}) {PUSH}", 422, "DATE"),
        (f"CREATE STREAM s (a INT, b AS a ^LATENESS INTERVAL '0' SECOND) {PUSH}", 422, "must be a TIMESTAMP; b is INT"),
        (f"CREATE STREAM s (a INT FROM ^'$..a', {T}) {PUSH}", 422, "as '$.user.id'"),
        (f"CREATE STREAM s (a INT FROM ^b, {T}) {PUSH}", 400, "such as '$.user.id'"),
        (f"CREATE STREAM s (a INT FROM 'b' ^FROM 'c', {T}) {PUSH}", 400, "Expected )"),
        (f"CREATE STREAM s (a INT FROM 'b' ^ARRIVAL, {T}) {PUSH}", 400, "Expected )"),
        (f"CREATE STREAM s (a INT ^ARRIVAL, {T}) {PUSH}", 422, "The time of ARRIVAL is a TIMESTAMP; a is INT"),
        ("CREATE STREAM ^s (t TIMESTAMP ARRIVAL LATENESS INTERVAL '0' SECOND) " + PUSH, 422, "column that is read"),
        ("CREATE STREAM ^s (t AS TO_TIMESTAMP(1) LATENESS INTERVAL '0' SECOND) " + PUSH, 422, "a column that is read"),
        (f"CREATE STREAM s (a INT, b AS ^YEAR(c), c TIMESTAMP ARRIVAL, {T}) {PUSH}", 422, "is the time of arrival"),
        (f"CREATE STREAM s (a INT, p AS ^PROCTIME(), {T}) {PUSH}", 422, "Write p TIMESTAMP ARRIVAL"),
        (f"CREATE STREAM s (a INT, c TIMESTAMP ARRIVAL, {T}) ^{KAFKA})", 422, "c TIMESTAMP METADATA FROM 'timestamp'"),
        (
            f"CREATE STREAM s (a INT, c TIMESTAMP ARRIVAL, {T}) ^WITH (connector = 'flight', location = 'grpc://h:1')",
            422,
            "does not keep when a row came",
        ),
        (f"CREATE STREAM s (a INT FROM '$.b.c', {T}) {KAFKA}, ^format = 'csv')", 422, "'csv' is read without objects"),
        (
            "CREATE STREAM s (a INT, c TIMESTAMP ARRIVAL LATENESS INTERVAL '0' SECOND)"
            " WITH (connector = 'file', path = 'x', ^replay_speed = 1)",
            422,
            "needs event times of the data",
        ),
        (
            "CREATE STREAM purchases (user_id BIGINT, gem_pack INT, price AS gem_pack * 1e0,"
            " time TIMESTAMP LATENESS INTERVAL '0' SECOND) ^WITH (connector = 'generator')",
            422,
            "makes all columns; write price DOUBLE alone",
        ),
        ("CREATE TABLE t (a INT, b ^AS a + 1) WITH (connector = 'file', path = 'a.csv')", 422, "have no expression"),
        ("CREATE TABLE ^t (a TIMESTAMP ARRIVAL) WITH (connector = 'file', path = 'a.csv')", 422, "column that is read"),
        ("CREATE TABLE t (a INT FROM '$.b.c') WITH (connector = 'file', path = 'a', ^format = 'csv')", 422, "objects"),
    ],
)  # fmt: skip
def test_refused_columns(marked: str, status: int, message: str) -> None:
    before, _, after = marked.partition("^")
    with pytest.raises(ServiceError) as caught:
        parse_statement(before + after)
    error = caught.value
    assert message in error.detail
    assert error.status == status
    assert error.position is not None
    assert (error.position.line, error.position.column) == (1, len(before) + 1)
