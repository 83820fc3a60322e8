"""Statements besides SELECT: what they become, and refusals of CREATE STREAM."""

from __future__ import annotations

import pytest

from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import (
    CreateQuery,
    CreateStream,
    CreateTable,
    Describe,
    DropQuery,
    DropStream,
    DropTable,
    Explain,
    Select,
    ShowQueries,
    ShowStreams,
    ShowTables,
    Statement,
)
from braid.sources.core.errors import ServiceError
from braid.sources.core.schema import BIGINT, DOUBLE, INT, TIMESTAMP, Field, StreamSchema
from braid.sources.core.watermark_options import WatermarkOptions

CONTRACT = (
    "CREATE STREAM purchases (user_id BIGINT, gem_pack INT, price DOUBLE, time TIMESTAMP LATENESS INTERVAL '2' SECOND)"
    "\n  WITH (connector = 'push', format = 'json');"
)


def test_a_statement_that_follows_another_is_asked_for_a_semicolon() -> None:
    with pytest.raises(ServiceError, match=r"got 'SELECT'. Is a semicolon missing before it\?"):
        parse_statement("SELECT price FROM purchases\nSELECT 1")


def test_an_id_without_quotes_is_advised_on() -> None:
    with pytest.raises(ServiceError, match="An id stands in single quotes: 'q-33'"):
        parse_statement("DROP QUERY q-33")


def test_create_stream_of_the_contract() -> None:
    fields = (
        Field("user_id", BIGINT),
        Field("gem_pack", INT),
        Field("price", DOUBLE),
        Field("time", TIMESTAMP),
    )
    schema = StreamSchema(fields, "time", 2_000_000)
    assert parse_statement(CONTRACT) == CreateStream("purchases", schema, "push", "json")


@pytest.mark.parametrize(
    ("interval", "lateness_us"),
    [
        ("INTERVAL '0' SECOND", 0),
        ("INTERVAL '1.5' SECONDS", 1_500_000),
        ("INTERVAL 250 MILLISECOND", 250_000),
        ("15 MIN", 900_000_000),
        ("250 ms", 250_000),
        ("30 secs", 30_000_000),
        ("2 h", 7_200_000_000),
        ("INTERVAL '3' MINUTE", 180_000_000),
        ("INTERVAL '2' HOURS", 7_200_000_000),
        ("INTERVAL '1' DAY", 86_400_000_000),
        ("INTERVAL '2 seconds'", 2_000_000),
    ],
)
def test_lateness_in_any_unit(interval: str, lateness_us: int) -> None:
    statement = parse_statement(f"CREATE STREAM s (t TIMESTAMP LATENESS {interval}) WITH (connector = 'push')")
    assert isinstance(statement, CreateStream)
    assert statement.schema.lateness_us == lateness_us


def test_columns_of_metadata() -> None:
    statement = parse_statement(
        "CREATE STREAM s (k BIGINT METADATA FROM 'key', v INT, \"offset\" BIGINT METADATA VIRTUAL, metadata INT,"
        " trace VARCHAR METADATA FROM 'headers.Trace' VIRTUAL,"
        " at TIMESTAMP METADATA FROM 'timestamp' LATENESS INTERVAL '1' SECOND)"
        " WITH (connector = 'kafka', topic = 't', 'properties.bootstrap.servers' = 'h:1')"
    )
    assert isinstance(statement, CreateStream)
    schema = statement.schema
    assert schema.metadata == (("k", "key"), ("offset", "offset"), ("trace", "headers.Trace"), ("at", "timestamp"))
    assert (schema.event_time, schema.lateness_us) == ("at", 1_000_000)
    assert schema.of_values.names == ("v", "metadata")


def test_options_of_connectors() -> None:
    statement = parse_statement(
        "create stream if not exists s (user_id bigint, time timestamp lateness interval '0' second)"
        " with ('connector' = 'generator', dataset = 'purchases', rate = 1000, seed = 7)"
    )
    assert isinstance(statement, CreateStream)
    assert statement.if_not_exists
    assert (statement.connector, statement.format) == ("generator", "")
    assert statement.options == {"dataset": "purchases", "rate": "1000", "seed": "7"}
    arrow = parse_statement(
        "CREATE STREAM s (t TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (connector = 'push', format = 'ARROW')"
    )
    assert isinstance(arrow, CreateStream)
    assert arrow.format == "arrow"


@pytest.mark.parametrize(
    ("connector", "options"),
    [
        ("connector = 'push'", {}),
        ("connector = 'generator', dataset = 'purchases'", {"dataset": "purchases"}),
        ("connector = 'flight', location = 'grpc://h:1'", {"location": "grpc://h:1"}),
        (
            "connector = 'kafka', topic = 'x', 'properties.bootstrap.servers' = 'h:1'",
            {"topic": "x", "properties.bootstrap.servers": "h:1"},
        ),
    ],
)
def test_options_of_the_watermark_beside_those_of_every_connector(connector: str, options: dict[str, str]) -> None:
    statement = parse_statement(
        f"CREATE STREAM s (time TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH (MAX_FUTURE = '10 min', {connector},"
        " idle_timeout = '5 s', watermark_percentile = 99.5)"
    )
    assert isinstance(statement, CreateStream)
    assert statement.options == options
    assert statement.watermark == WatermarkOptions(600_000_000, 5_000_000, 99.5)
    unlimited = parse_statement(
        f"CREATE STREAM s (time TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH ({connector}, max_future = 'none')"
    )
    assert isinstance(unlimited, CreateStream)
    assert unlimited.watermark == WatermarkOptions(None)


def test_names_and_types_have_other_spellings() -> None:
    statement = parse_statement(
        'CREATE STREAM s ("select" STRING, d NUMERIC(5, 1), b double precision, t TIMESTAMP LATENESS INTERVAL 0 SECOND)'
        " WITH (connector = 'push')"
    )
    assert isinstance(statement, CreateStream)
    assert [(f.name, str(f.type)) for f in statement.schema.fields] == [
        ("select", "VARCHAR"),
        ("d", "DECIMAL(5,1)"),
        ("b", "DOUBLE"),
        ("t", "TIMESTAMP"),
    ]


def test_columns_may_be_not_null() -> None:
    statement = parse_statement(
        "CREATE STREAM s (a INT NOT NULL, b INT NULL, k VARCHAR METADATA FROM 'key' NOT NULL,"
        " t TIMESTAMP(3) NOT NULL LATENESS INTERVAL '0' SECOND)"
        " WITH (connector = 'kafka', topic = 't', 'properties.bootstrap.servers' = 'h:1')"
    )
    assert isinstance(statement, CreateStream)
    assert [f.name for f in statement.schema.fields if f.not_null] == ["a", "k", "t"]
    assert set(statement.schema.required) == {"a", "k", "t"}
    assert StreamSchema.from_json(statement.schema.to_json()) == statement.schema
    table = parse_statement("CREATE TABLE t (a INT NOT NULL) WITH (connector = 'file', path = 'a.csv')")
    assert isinstance(table, CreateTable)
    assert set(table.schema.required) == {"a"}


def test_times_are_written_as_an_option_says() -> None:
    stream = parse_statement(
        "CREATE STREAM s (a TIMESTAMP, day DATE, t TIMESTAMP LATENESS INTERVAL '0' SECOND)"
        " WITH (connector = 'push', 'timestamp.format' = 'EPOCH-MILLIS')"
    )
    assert isinstance(stream, CreateStream)
    assert [f.time_format for f in stream.schema.fields] == ["epoch-millis", "", "epoch-millis"]
    assert stream.options == {}
    table = parse_statement(
        "CREATE TABLE s (a TIMESTAMP) WITH (connector = 'file', path = 'a.csv', timestamp.format = 'dd.MM.yyyy''T''HH')"
    )
    assert isinstance(table, CreateTable)
    assert table.schema.fields[0].time_format == "dd.MM.yyyy'T'HH"
    plain = parse_statement(f"CREATE STREAM s ({T}) WITH (connector = 'push', 'timestamp.format' = 'rfc3339')")
    assert plain == parse_statement(f"CREATE STREAM s ({T}) {PUSH}")


@pytest.mark.parametrize(
    ("watermark", "lateness_us"),
    [
        ("WATERMARK FOR ts AS ts - INTERVAL '5' SECOND", 5_000_000),
        ("WATERMARK FOR `ts` AS `TS` - INTERVAL '0.001' SECOND", 1_000),
        ("watermark for ts as ts", 0),
    ],
)
def test_a_watermark_of_flink_is_lateness(watermark: str, lateness_us: int) -> None:
    flink = f"CREATE STREAM s (id INT, ms BIGINT, ts AS TO_TIMESTAMP(ms / 1000.0), {watermark}, name STRING) {PUSH}"
    statement = parse_statement(flink)
    assert isinstance(statement, CreateStream)
    assert (statement.schema.event_time, statement.schema.lateness_us) == ("ts", lateness_us)
    assert statement.schema.names == ("id", "ms", "ts", "name")


TYPE_NAMES = {
    "BOOLEAN": ["BOOLEAN", "BOOL", "bool"],
    "INT": ["INT", "INTEGER", "INT4", "INT32", "SMALLINT", "INT2", "INT16", "TINYINT"],
    "BIGINT": ["BIGINT", "INT8", "INT64"],
    "DOUBLE": ["DOUBLE", "DOUBLE PRECISION", "FLOAT", "FLOAT(24)", "FLOAT4", "FLOAT8", "FLOAT64", "REAL"],
    "DECIMAL(10,0)": ["DECIMAL", "NUMERIC", "numeric(10)", "DECIMAL(10, 0)"],
    "DECIMAL(12,2)": ["NUMERIC(12, 2)"],
    "VARCHAR": ["VARCHAR", "VARCHAR(255)", "TEXT", "STRING", "CHAR", "CHAR(3)", "CHARACTER VARYING(2147483647)"],
    "DATE": ["DATE"],
    "TIMESTAMP": [
        "TIMESTAMP",
        "TIMESTAMP(3)",
        "TIMESTAMPTZ",
        "TIMESTAMPTZ(6)",
        "TIMESTAMP WITH TIME ZONE",
        "TIMESTAMP(3) WITHOUT TIME ZONE",
        "TIMESTAMP(9) WITH LOCAL TIME ZONE",
        "TIMESTAMP_LTZ(3)",
        "DATETIME",
    ],
}


@pytest.mark.parametrize(("known", "name"), [(known, name) for known, names in TYPE_NAMES.items() for name in names])
def test_types_have_the_names_that_other_databases_give_them(known: str, name: str) -> None:
    stream = parse_statement(f"CREATE STREAM s (a {name}, {T}) {PUSH}")
    table = parse_statement(f"CREATE TABLE s (a {name}) WITH (connector = 'file', path = 'a.csv')")
    cast = parse_statement(f"SELECT CAST(a AS {name}), a::{name} FROM s")
    assert isinstance(stream, CreateStream)
    assert isinstance(table, CreateTable)
    assert isinstance(cast, Select)
    assert str(stream.schema.field("a").type) == str(table.schema.field("a").type) == known
    assert [str(item.node.value) for item in cast.items] == [known, known]


T = "t TIMESTAMP LATENESS INTERVAL '0' SECOND"
PUSH = "WITH (connector = 'push')"


@pytest.mark.parametrize(
    ("sql", "statement"),
    [
        ("DROP STREAM purchases", DropStream("purchases")),
        ("drop table if exists packs;", DropTable("packs", if_exists=True)),
        ("DROP QUERY q", DropQuery("q")),
        ("DROP QUERY 'q-17'", DropQuery("q-17")),
        ('DROP QUERY "q-17"', DropQuery("q-17")),
        ("SHOW STREAMS", ShowStreams()),
        ("SHOW TABLES", ShowTables()),
        ("show queries ; ", ShowQueries()),
        ("DESCRIBE purchases", Describe("purchases")),
        ("desc 'q-17';", Describe("q-17")),
    ],
)
def test_plain_statements(sql: str, statement: Statement) -> None:
    assert parse_statement(sql) == statement


def test_statements_around_a_select_keep_its_text() -> None:
    create = parse_statement("CREATE QUERY cheap AS SELECT price FROM purchases;")
    assert isinstance(create, CreateQuery)
    assert (create.name, create.select.text, create.sink) == ("cheap", "SELECT price FROM purchases", None)
    sink = parse_statement(
        "CREATE QUERY q WITH (connector = 'kafka', 'key.fields' = 'a', flush_rows = 5) AS SELECT price FROM p"
    )
    assert isinstance(sink, CreateQuery)
    assert (sink.select.text, sink.sink) == (
        "SELECT price FROM p",
        {"connector": "kafka", "key.fields": "a", "flush_rows": "5"},
    )
    explain = parse_statement("EXPLAIN SELECT price FROM purchases")
    assert isinstance(explain, Explain)
    assert explain.select.text == "SELECT price FROM purchases"


@pytest.mark.parametrize(
    ("marked", "status", "message"),
    [
        (f"CREATE STREAM ^s (a INT) {PUSH}", 422, "Exactly one column must have LATENESS"),
        (f"CREATE STREAM s (a INT METADATA FROM 'key', {T}) ^{PUSH}", 422, "'push' has no METADATA for column 'a'"),
        (f"CREATE STREAM s (a INT METADATA FROM ^key, {T}) {PUSH}", 400, "such as 'key'"),
        ("CREATE TABLE t (a INT ^METADATA) WITH (connector = 'file', path = 'a.csv')", 422, "have no METADATA"),
        (f"CREATE STREAM s ({T}, u TIMESTAMP ^LATENESS INTERVAL '0' SECOND) {PUSH}", 422, "'t' has it already"),
        (f"CREATE STREAM s (a INT ^LATENESS INTERVAL '0' SECOND) {PUSH}", 422, "must be a TIMESTAMP; a is INT"),
        (f"CREATE STREAM s (a INT ^LATENESS INTERVAL '0' SECOND) {PUSH}", 422, "'timestamp.format' = 'epoch-millis'"),
        (f"CREATE STREAM s ({T}, total ^price INT) {PUSH}", 422, "Put a name with a blank in double quotes."),
        (f"CREATE STREAM s ({T}, ^'total price' INT) {PUSH}", 400, "Put names in double quotes."),
        (f"CREATE STREAM s (t TIMESTAMP LATENESS ^INTERVAL '-1' SECOND) {PUSH}", 422, "must not be negative"),
        (f"CREATE STREAM s (t TIMESTAMP LATENESS ^INTERVAL '1' MONTH) {PUSH}", 422, "fixed length"),
        (f"CREATE STREAM s (t TIMESTAMP LATENESS INTERVAL ^'soon' SECOND) {PUSH}", 400, "must be a number"),
        (f"CREATE STREAM s ({T}, ^T INT) {PUSH}", 422, "declared twice"),
        (f"CREATE STREAM s ({T}, ^_a INT) {PUSH}", 422, "reserved"),
        (f"CREATE STREAM ^_s ({T}) {PUSH}", 422, "reserved"),
        (f'CREATE STREAM s ({T}, ^"_a b" INT) {PUSH}', 422, "reserved"),
        (f'CREATE STREAM s ({T}, ^"" INT) {PUSH}', 400, "must not be empty"),
        (f'CREATE STREAM s ({T}, ^"{"a" * 101}" INT) {PUSH}', 422, "at most 100 characters"),
        (f'CREATE STREAM s ({T}, "a b" INT, ^"A B" INT) {PUSH}', 422, "declared twice"),
        (f'CREATE STREAM ^"a/b" ({T}) {PUSH}', 422, "printable characters other than # / ? @"),
        (f'CREATE STREAM ^".." ({T}) {PUSH}', 422, "not dots alone"),
        ("CREATE TABLE ^\"a\nb\" (a INT) WITH (connector = 'file', path = 'a.csv')", 422, "printable characters"),
        (f"CREATE STREAM s ({T}, ^window_end INT) {PUSH}", 422, "The results of windows have a column"),
        (f"CREATE STREAM s ({T}, a ^UUID) {PUSH}", 422, "use one of BOOLEAN"),
        (f"CREATE STREAM s ({T}, a BYTEA^(16)) {PUSH}", 422, "BYTEA takes no length"),
        (f"CREATE STREAM s ({T}, a BIGINT^(20)) {PUSH}", 422, "BIGINT takes no length"),
        (f"CREATE STREAM s ({T}, a VARCHAR(^0)) {PUSH}", 422, "must be at least 1"),
        (f"CREATE STREAM s ({T}, a VARCHAR(^n)) {PUSH}", 400, "Expected the length, got 'n'"),
        (f"CREATE STREAM s ({T}, a TIMESTAMP(^12)) {PUSH}", 422, "takes 0 to 9 digits"),
        (f"CREATE STREAM s ({T}, a TIMESTAMP WITH TIME ^ZON) {PUSH}", 400, "Expected ZONE"),
        (f"CREATE STREAM s ({T}, a ^NUMERIC(50, 2)) {PUSH}", 422, "1 <= p <= 38"),
        (f"CREATE STREAM s ({T}, a INT NOT NULL ^UNIQUE) {PUSH}", 422, "take no constraint but NOT NULL"),
        (f"CREATE STREAM s ({T}, a INT NOT NULL ^NULL) {PUSH}", 400, "Expected )"),
        (f"CREATE STREAM s ({T}, a INT ^NOT DEFERRABLE) {PUSH}", 422, "take no constraint but NOT NULL"),
        (f"CREATE STREAM s ({T}, ^WATERMARK FOR t AS t) {PUSH}", 422, "'t' has a watermark already"),
        (f"CREATE STREAM s ({T}, u TIMESTAMP, ^WATERMARK FOR u AS u) {PUSH}", 422, "'t' has it already"),
        (f"CREATE STREAM s (t TIMESTAMP, WATERMARK FOR t AS ^u) {PUSH}", 422, "the event time less an interval"),
        (f"CREATE STREAM s (t TIMESTAMP, WATERMARK FOR t AS t ^+ INTERVAL '1' SECOND) {PUSH}", 422, "less an interval"),
        (f"CREATE STREAM s (t TIMESTAMP, WATERMARK FOR t AS t ^- INTERVAL '1' MONTH) {PUSH}", 422, "fixed length"),
        (f"CREATE STREAM s (time TIMESTAMP, WATERMARK FOR ^tme AS tme) {PUSH}", 422, "Did you mean 'time'?"),
        (f"CREATE STREAM s (t INT, ^WATERMARK FOR t AS t) {PUSH}", 422, "must be a TIMESTAMP; t is INT"),
        (f"CREATE STREAM s ^{PUSH}", 400, "Expected ( and the columns"),
        (f"CREATE STREAM s ({T})^", 400, "Expected WITH"),
        (f"CREATE STREAM s ({T}) ^WITH (conector = 'push')", 422, "Is 'conector' to be 'connector'?"),
        (f"CREATE STREAM s ({T}) ^WITH (format = 'json')", 422, "name a connector: 'push', 'generator', 'kafka',"),
        (f"CREATE STREAM s ({T}) WITH (^connector = 'pulsar')", 422, "'kafka', 'flight', 'file'; got 'pulsar'"),
        (f"CREATE STREAM s ({T}) WITH (connector = 'push', ^format = 'xml')", 422, "takes format 'json' or 'arrow'"),
        (f"CREATE STREAM s ({T}) WITH (connector = 'push', ^path = 'x')", 422, "has no option 'path'. Leave it out"),
        (
            f"CREATE STREAM s ({T}) WITH (connector = 'push', format = 'json', ^timestamp_format = 'epoch-millis')",
            422,
            "has no option 'timestamp_format'. Did you mean 'timestamp.format'?",
        ),
        (f"CREATE STREAM s ({T}) WITH (connector = 'file', ^replay_sped = 1)", 422, "mean 'replay_speed'?"),
        (f"CREATE STREAM s ({T}) WITH (connector = 'push', ^connector = 'push')", 422, "given twice"),
        (f"CREATE STREAM s ({T}) WITH (connector = 'generator', ^speed = 'x')", 422, "has no option 'speed'"),
        (f"CREATE STREAM s ({T}) WITH (connector = 'generator', ^dataset = 'x')", 422, "dataset must be one of"),
        (f"CREATE STREAM s ({T}) ^WITH (connector = 'generator', dataset = 'ads')", 422, "'ads' has the columns"),
        (f"CREATE STREAM s ({T}) WITH (connector = 'generator', dataset = 'ads', ^rate = -1)", 422, "rate"),
        (f"CREATE STREAM s ({T}) WITH (connector = 'generator', dataset = 'ads', ^seed = 'x')", 422, "seed"),
        (f"CREATE STREAM s ({T}) WITH (connector ^'push')", 400, "Expected ="),
        (f"CREATE STREAM s ({T}) WITH (connector = 'push', ^max_future = 'soon')", 422, "'none' or a duration"),
        (f"CREATE STREAM s ({T}) WITH (connector = 'push', ^idle_timeout = '0 s')", 422, "longer than 0"),
        (f"CREATE STREAM s ({T}) WITH (^watermark_percentile = 101, connector = 'push')", 422, "at most 100"),
        (f"CREATE STREAM s ({T}) WITH (connector = 'push', ^timestamp.format = 'HH:mm')", 422, "year, month and day"),
        (f"CREATE STREAM s ({T}) WITH (connector = 'push', ^timestamp.format = '%Y')", 422, "the letters of Java"),
        (
            "CREATE STREAM s (user_id BIGINT, gem_pack INT, price DOUBLE, time TIMESTAMP LATENESS INTERVAL '0' SECOND)"
            " WITH (^'timestamp.format' = 'epoch-millis', connector = 'generator', dataset = 'purchases')",
            422,
            "has no option 'timestamp.format'",
        ),
        ("CREATE ^STREEM s", 400, "Expected STREAM, TABLE or QUERY"),
    ],
)  # fmt: skip
def test_refused_declarations(marked: str, status: int, message: str) -> None:
    before, _, after = marked.partition("^")
    with pytest.raises(ServiceError) as caught:
        parse_statement(before + after)
    error = caught.value
    assert message in error.detail
    assert error.status == status
    assert error.position is not None
    assert (error.position.line, error.position.column) == (1, len(before) + 1)
