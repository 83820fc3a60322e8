"""Messages of all formats, with keys, headers and the rest as columns, from Apache Kafka."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import CreateStream
from braid.sources.connectors.connector import Chunk
from braid.sources.connectors.kafka.connector import KafkaConnector, validate_options
from braid.sources.core.errors import NotAllowed, NotReady
from braid.sources.core.schema import BIGINT, INT, TIMESTAMP, VARCHAR, Field, StreamSchema
from braid.sources.core.storage import Storage
from tests.docs.pages import TOP, fences
from tests.kit.kafka import Topics
from tests.sources.formats.protobuf_records import READINGS, framed, reading
from tests.sources.formats.test_arrow_messages import stream_of
from tests.sources.formats.test_avro_messages import OLDER, TIME, encoded
from tests.sources.kafka_topics import EARLIEST, definition_of, ends
from tests.sources.registry_server import RegistryServer

MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
SCHEMA = StreamSchema((Field("k", INT), Field("t", TIMESTAMP)), "t", 0)
AVRO = {"type": "record", "name": "R", "fields": [OLDER["fields"][0], {"name": "k", "type": "int"}]}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    running = RegistryServer()
    yield running
    running.stop()


def chunk_of(source: KafkaConnector, count: int) -> Chunk:
    ends(source, {"0": count})
    (chunk,) = source.read("0", 0, count)
    return chunk


def said(chunk: Chunk) -> list[tuple[str, str]]:
    return [(fault.detail.partition(":")[0].partition(" must")[0], fault.raw) for fault in chunk.malformed]


@pytest.mark.parametrize(
    ("format", "good", "options"),
    [
        ("csv", [b'5|"2026-01-01T00:00:00Z"', b"6|2026-01-01T00:00:01Z\n"], {"csv.delimiter": "|"}),
        ("avro", [encoded(AVRO, {"t": TIME, "k": k}) for k in (5, 6)], {"avro.schema": json.dumps(AVRO)}),
        (
            "protobuf",
            [reading(5), reading(6)],
            {"protobuf.schema": READINGS, "protobuf.message": "shop.Reading"},
        ),
        ("arrow", [stream_of([{"k": 5, "t": 1}, {"k": 6, "t": 2}]), stream_of([])], {}),
    ],
)
def test_values_of_other_formats(
    topics: Topics, storage: Storage, format: str, good: list[bytes], options: dict[str, str]
) -> None:
    topic = topics.create()
    topics.produce(topic, [good[0], b"\xff", None, good[1]])
    validate_options(SCHEMA, format, {"topic": topic, "properties.bootstrap.servers": topics.servers, **options})
    definition = definition_of(topics.servers, topic, SCHEMA, format, **EARLIEST, **options)
    chunk = chunk_of(KafkaConnector(definition, storage), 4)
    assert chunk.tuples.column("k").to_pylist() == [5, 6]
    assert [place for place, _ in said(chunk)] == ["partition 0, offset 1", "partition 0, offset 2"]
    assert chunk.malformed[0].raw == ("\N{REPLACEMENT CHARACTER}" if format == "csv" else "/w==")


def test_a_registry_that_is_away_is_waited_for(topics: Topics, storage: Storage, registry: RegistryServer) -> None:
    topic = topics.create()
    registry.schemas[3] = {"schema": json.dumps(AVRO)}
    values = [struct.pack(">bI", 0, number) + encoded(AVRO, {"t": TIME, "k": number}) for number in (3, 4, 3)]
    topics.produce(topic, values)
    options = {**EARLIEST, "avro.schema-registry.url": registry.url}
    source = KafkaConnector(definition_of(topics.servers, topic, SCHEMA, "avro", **options), storage)
    ends(source, {"0": 3})
    registry.stop()
    with pytest.raises(NotReady, match="The schema registry at"):
        list(source.read("0", 0, 3))
    registry.start()
    chunk = chunk_of(source, 3)
    assert chunk.tuples.column("k").to_pylist() == [3, 3]
    assert "none with the id 4" in chunk.malformed[0].detail


IN_JSON = b'{"k": 5, "t": "2026-01-01T00:00:00Z"}'


@pytest.mark.parametrize(
    ("format", "values"),
    [
        ("protobuf", [framed(3, reading(5)), framed(5, reading(5)), reading(5)]),
        ("json", [framed(5, IN_JSON, b""), framed(3, IN_JSON, b""), IN_JSON]),
    ],
)
def test_messages_of_a_registry_in_other_languages(
    topics: Topics, storage: Storage, registry: RegistryServer, format: str, values: list[bytes]
) -> None:
    registry.schemas[3] = {"schema": READINGS, "schemaType": "PROTOBUF"}
    registry.schemas[5] = {"schema": "{}", "schemaType": "JSON"}
    topic = topics.create()
    topics.produce(topic, [*values, None, values[0]])
    options = {**EARLIEST, f"{format}.schema-registry.url": registry.url}
    validate_options(SCHEMA, format, {"topic": topic, "properties.bootstrap.servers": topics.servers, **options})
    chunk = chunk_of(KafkaConnector(definition_of(topics.servers, topic, SCHEMA, format, **options), storage), 5)
    assert chunk.tuples.column("k").to_pylist() == [5, 5]
    assert [place for place, _ in said(chunk)] == [f"partition 0, offset {offset}" for offset in (1, 2, 3)]
    assert "of the registry is in" in chunk.malformed[0].detail
    assert "must begin with byte 0" in chunk.malformed[1].detail


FIELDS = (
    Field("who", BIGINT),
    Field("k", INT),
    Field("at", TIMESTAMP),
    Field("part", INT),
    Field("place", BIGINT),
    Field("trace", VARCHAR),
    Field("headers", VARCHAR),
    Field("topic", VARCHAR),
)
METADATA = (
    ("who", "key"),
    ("at", "timestamp"),
    ("part", "partition"),
    ("place", "offset"),
    ("trace", "headers.trace"),
    ("headers", "headers"),
    ("topic", "topic"),
)


def produce(topics: Topics, values: list[tuple[bytes, Any, int, Any]]) -> str:
    topic = topics.create()
    for value, key, ms, headers in values:
        topics.produce(topic, [value], key=key, timestamp=ms, headers=headers)
    return topic


def test_what_a_message_has_beside_its_value(topics: Topics, storage: Storage) -> None:
    topic = produce(
        topics,
        [
            (b'{"k": 1, "who": 99}', b"42", MS, [("trace", b"a"), ("trace", b"b"), ("n", None)]),
            (b"{", b"43", MS, []),
            (b'{"k": 2}', b"no number", MS, []),
            (b'{"k": 3}', None, MS + 1, [("trace", b"")]),
            (b'{"k": 4}', b"\xff", MS, []),
            (b'{"k": 5}', b"-7", MS + 2, [("trace", b"\xff")]),
            (b'{"k": 6}', b"", MS + 3, [("other", b"\xff")]),
        ],
    )
    schema = StreamSchema(FIELDS, "at", 0, METADATA)
    assert StreamSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    chunk = chunk_of(KafkaConnector(definition_of(topics.servers, topic, schema, **EARLIEST), storage), 7)
    assert chunk.tuples.schema == schema.arrow
    at = datetime(2026, 1, 1)
    first, second, third = chunk.tuples.to_pylist()
    of_all = {"part": 0, "topic": topic}
    headers = '{"trace":"b","n":null}'
    assert first == {**of_all, "who": 42, "k": 1, "at": at, "place": 0, "trace": "b", "headers": headers}
    at = at.replace(microsecond=1000)
    headers = '{"trace":""}'
    assert second == {**of_all, "who": None, "k": 3, "at": at, "place": 3, "trace": None, "headers": headers}
    assert (third["k"], third["place"], third["headers"]) == (6, 6, '{"other":"\N{REPLACEMENT CHARACTER}"}')
    assert said(chunk) == [
        ("partition 0, offset 1", "{"),
        ("partition 0, offset 2", '{"k": 2}'),
        ("partition 0, offset 4", '{"k": 4}'),
        ("partition 0, offset 5", '{"k": 5}'),
    ]
    assert "column 'who' must be a BIGINT, got 'no number'" in chunk.malformed[1].detail
    assert "column 'trace' must be UTF-8" in chunk.malformed[3].detail


def test_every_tuple_of_a_message_has_its_metadata(topics: Topics, storage: Storage) -> None:
    rows = [{"k": 1, "t": 5}, {"k": 2, "t": None}, {"k": 3, "t": 7}]
    topic = produce(topics, [(stream_of(rows), b"1", MS, []), (stream_of(rows), b"x", MS, []), (b"", b"2", MS, [])])
    schema = StreamSchema((*SCHEMA.fields, Field("who", INT)), "t", 0, (("who", "key"),))
    chunk = chunk_of(KafkaConnector(definition_of(topics.servers, topic, schema, "arrow", **EARLIEST), storage), 3)
    assert [(row["k"], row["who"]) for row in chunk.tuples.to_pylist()] == [(1, 1), (3, 1)]
    assert [place for place, _ in said(chunk)] == [
        "partition 0, offset 0, row 2",
        "partition 0, offset 1, row 2",
        "partition 0, offset 1",
        "partition 0, offset 2",
    ]


def test_columns_are_computed_from_values_and_metadata(topics: Topics, storage: Storage) -> None:
    declared = parse_statement(
        "CREATE STREAM s (k INT FROM '$.a.k', who INT METADATA FROM 'key', both INT NOT NULL AS (k + who),"
        " sent TIMESTAMP METADATA FROM 'timestamp', at AS sent - INTERVAL '1' DAY LATENESS INTERVAL '0' SECOND)"
        " WITH (connector = 'kafka', topic = 't', 'properties.bootstrap.servers' = 'h:1')"
    )
    assert isinstance(declared, CreateStream)
    schema = declared.schema
    topic = produce(
        topics, [(b'{"a": {"k": %d}}' % n, key, MS, []) for n, key in enumerate([b"10", None, b"12", b"x"])]
    )
    chunk = chunk_of(KafkaConnector(definition_of(topics.servers, topic, schema, **EARLIEST), storage), 4)
    assert chunk.tuples.schema == schema.arrow
    assert [(row["k"], row["both"], row["at"]) for row in chunk.tuples.to_pylist()] == [
        (0, 10, datetime(2025, 12, 31)),
        (2, 14, datetime(2025, 12, 31)),
    ]
    assert said(chunk) == [("partition 0, offset 1", '{"a": {"k": 1}}'), ("partition 0, offset 3", '{"a": {"k": 3}}')]
    assert "column 'both' is NOT NULL" in chunk.malformed[0].detail


def test_tuples_of_one_message_that_cannot_be_computed_leave_the_others(topics: Topics, storage: Storage) -> None:
    declared = parse_statement(
        "CREATE STREAM s (k INT, t TIMESTAMP LATENESS INTERVAL '0' SECOND, who INT METADATA FROM 'key',"
        " ratio AS 1e0 / (k - who)) WITH (connector = 'kafka', topic = 't', 'properties.bootstrap.servers' = 'h:1')"
    )
    assert isinstance(declared, CreateStream)
    rows = [{"k": 1, "t": 5}, {"k": 2, "t": 6}, {"k": 3, "t": 7}]
    topic = produce(topics, [(stream_of(rows), b"2", MS, [])])
    chunk = chunk_of(
        KafkaConnector(definition_of(topics.servers, topic, declared.schema, "arrow", **EARLIEST), storage), 1
    )
    assert chunk.tuples.column("ratio").to_pylist() == [-1.0, 1.0]
    (fault,) = chunk.malformed
    assert "offset 0: column 'ratio', computed as 1e0 / (k - who), must be finite, got inf" in fault.detail


PAGE = (TOP / "docs" / "kafka-source.md").read_text(encoding="utf-8")
STATEMENTS = [text for language, text in fences(PAGE) if language == "sql" and text.startswith("CREATE STREAM")]


@pytest.mark.parametrize("text", STATEMENTS)
def test_the_statements_of_the_page_are_taken(text: str) -> None:
    assert isinstance(parse_statement(text.rstrip().removesuffix(";")), CreateStream)


@pytest.mark.parametrize(
    ("format", "options", "metadata", "says"),
    [
        ("json", {"csv.delimiter": ","}, (), "has no option 'csv.delimiter'. It has 'topic'"),
        ("csv", {"csv.delimiter": "ab"}, (), "one ASCII character"),
        ("avro", {}, (), "must have one of the options 'avro.schema' and 'avro.schema-registry.url'"),
        ("avro", {"avro.schema": "{"}, (), "well-formed"),
        ("avro", {"avro.schema": json.dumps(OLDER)}, (), "column 'k' must be a field"),
        ("avro", {"avro.schema-registry.url": "h:8081"}, (), "'http://HOST:PORT'"),
        (
            "avro",
            {"avro.schema-registry.url": "http://h", "avro.schema-registry.basic-auth.user-info": "u:hunter2"},
            (),
            "must be a reference",
        ),
        (
            "avro",
            {"avro.schema": json.dumps(AVRO), "avro.schema-registry.basic-auth.user-info": "secret:x"},
            (),
            "goes with 'avro.schema-registry.url' only",
        ),
        ("protobuf", {}, (), "must have one of the options 'protobuf.schema' and 'protobuf.schema-registry.url'"),
        ("protobuf", {"protobuf.schema": "message M {"}, (), "well-formed"),
        ("protobuf", {"protobuf.schema": READINGS}, (), "several messages one must be named"),
        ("protobuf", {"protobuf.schema": READINGS, "protobuf.message": "Other"}, (), "column 'k' must be castable"),
        ("protobuf", {"protobuf.schema": "message M {}"}, (), "column 'k' must be a field of the Protobuf message M"),
        ("protobuf", {"protobuf.schema-registry.url": "h:8081"}, (), "'http://HOST:PORT'"),
        (
            "protobuf",
            {"protobuf.schema-registry.url": "http://h", "protobuf.message": "M"},
            (),
            "goes with 'protobuf.schema' only",
        ),
        ("json", {"json.schema-registry.url": "h:8081"}, (), "'http://HOST:PORT'"),
        (
            "json",
            {"json.schema-registry.basic-auth.user-info": "secret:x"},
            (),
            "goes with 'json.schema-registry.url' only",
        ),
        (
            "json",
            {"json.schema-registry.url": "http://h", "json.schema-registry.basic-auth.user-info": "u:hunter2"},
            (),
            "must be a reference",
        ),
        ("json", {}, (("k", "colour"),), "can be METADATA FROM 'key', 'topic'"),
        ("json", {}, (("k", "headers."),), "can be METADATA FROM"),
        ("json", {}, (("k", "offset"),), "METADATA FROM 'offset', must be BIGINT; it is INT"),
        ("json", {}, (("k", "key"), ("t", "timestamp")), "all are METADATA"),
    ],
)
def test_wrong_statements_say_what_exists(
    format: str, options: dict[str, str], metadata: tuple[tuple[str, str], ...], says: str
) -> None:
    schema = StreamSchema(SCHEMA.fields, "t", 0, metadata)
    with pytest.raises(NotAllowed) as refused:
        validate_options(schema, format, {"topic": "t", "properties.bootstrap.servers": "h:1", **options})
    assert says.lower() in refused.value.detail.lower()
    assert "hunter2" not in refused.value.detail
