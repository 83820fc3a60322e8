"""Queries over a Kafka topic through the service, while the broker stops answering for a while."""

from __future__ import annotations

import json
import struct
import uuid
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest

from tests.kit.client import Api
from tests.kit.kafka import Broker, Topics
from tests.kit.servers import ApacheKafka
from tests.kit.waiting import wait_until
from tests.sources.formats.protobuf_records import READINGS, framed, reading
from tests.sources.formats.test_avro_messages import OLDER, encoded
from tests.sources.registry_server import RegistryServer

pytestmark = pytest.mark.service

START = datetime(2026, 1, 1, tzinfo=UTC)


def message(number: int) -> bytes:
    at = START + timedelta(milliseconds=20 * number)
    return json.dumps({"device": number % 7, "volts": number % 100, "time": f"{at:%FT%T.%f}"}).encode()


def test_a_stream_whose_brokers_are_not_there_says_so(api: Api) -> None:
    name = f"nowhere_{uuid.uuid4().hex[:8]}"
    api.create_stream(
        f"CREATE STREAM {name} (time TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH ("
        "connector = 'kafka', topic = 'readings', 'properties.bootstrap.servers' = '127.0.0.1:1')"
    )
    error = wait_until(lambda: api.stream(name)["error"], 60, "the stream says what is wrong")
    assert "topic 'readings' at 127.0.0.1:1" in str(error)
    api.request("DELETE", f"/streams/{name}")


def test_a_topic_is_queried_and_read_on_when_its_broker_is_back(api: Api, broker: Broker) -> None:
    topic, name = broker.create_topic(3), f"readings_{uuid.uuid4().hex[:8]}"
    broker.produce(topic, [b'{"device": 1, "volts": 1, "time": "2025-01-01T00:00:00Z"}'])
    api.create_stream(
        f"CREATE STREAM {name} (device INT, volts INT, time TIMESTAMP LATENESS INTERVAL '15' MINUTE) WITH ("
        f"connector = 'kafka', topic = '{topic}', 'properties.bootstrap.servers' = '{broker.servers}',"
        " 'scan.startup.mode' = 'earliest-offset')"
    )
    assert api.stream(name)["tuples"] == 0, "it is read from its first query on"
    api.create_queries([{"sql": f"SELECT volts FROM {name} WHERE volts < 0"}])
    wait_until(lambda: bool(api.stream(name)["tuples"] == 1), 60, "what is there already is read")
    selection, sums = (
        answer["id"]
        for answer in api.create_queries(
            [
                {"sql": text, "start": "now"}
                for text in (
                    f"SELECT volts, time FROM {name} WHERE volts > 95",
                    f"SELECT device, SUM(volts) AS total FROM {name} [RANGE 2 SECONDS] GROUP BY device",
                )
            ]
        )
    )
    for query in (selection, sums):
        api.wait_state(query, "RUNNING")
    numbers = range(1500)

    def produce(numbers_produced: range) -> None:
        """Produce partition by partition; none is late however long that takes."""
        for partition in range(3):
            broker.produce(topic, [message(n) for n in numbers_produced if n % 3 == partition], partition)

    produce(numbers[:500])
    broker.produce(topic, [b"no JSON", None], 1)
    if broker.process is not None:
        with broker.paused():
            wait_until(lambda: bool(api.get("/healthz")), 10, "the service does not mind")
    produce(numbers[500:])
    broker.produce(topic, [message(100_000)])  # half an hour later: all windows end
    wait_until(lambda: bool(api.stream(name)["tuples"] == 1 + len(numbers) + 1), 90, lambda: str(api.stream(name)))
    expected = sorted(n % 100 for n in numbers if n % 100 > 95)

    def rows(query: str) -> list[dict[str, object]]:
        page_rows: list[dict[str, object]] = api.page(query)["rows"]
        return page_rows

    wait_until(lambda: len(rows(selection)) >= len(expected), 60, "all selected tuples come")
    assert sorted(row["volts"] for row in rows(selection)) == expected  # type: ignore[type-var]
    totals: dict[tuple[datetime, int], int] = defaultdict(int)
    for n in numbers:
        window = START + timedelta(seconds=20 * n // 1000 // 2 * 2)
        totals[window, n % 7] += n % 100
    wait_until(lambda: len(rows(sums)) >= len(totals), 60, "all windows come")
    totals_found = {(datetime.fromisoformat(str(r["window_start"])), r["device"]): r["total"] for r in rows(sums)}
    assert totals_found == totals
    stream = api.stream(name)
    assert (stream["malformed"], stream["late"]) == (2, 0)
    reasons = [letter["detail"] for page in api.dead_letters(name) for letter in page]
    assert all(reason.startswith("partition 1, offset ") for reason in reasons)


@pytest.mark.parametrize("format", ["protobuf", "json"])
def test_messages_of_a_registry_are_queried(api: Api, broker: Broker, format: str) -> None:
    registry, name, topic = RegistryServer(), f"{format}_{uuid.uuid4().hex[:8]}", broker.create_topic()
    registry.schemas[1] = {"schema": READINGS, "schemaType": "PROTOBUF"}
    registry.schemas[2] = {"schema": READINGS.replace("optional int32 k", "int32 k"), "schemaType": "PROTOBUF"}
    registry.schemas[3] = {"schema": "{}", "schemaType": "JSON"}
    times = [START + timedelta(seconds=n) for n in range(60)]
    if format == "protobuf":
        values = [framed(1 + n % 2, reading(n, int(at.timestamp()))) for n, at in enumerate(times)]
    else:
        values = [framed(3, json.dumps({"k": n, "t": f"{at:%FT%TZ}"}).encode(), b"") for n, at in enumerate(times)]
    broker.produce(topic, [*values, framed(9, reading(0)), b"\xff"])
    try:
        api.create_stream(
            f"CREATE STREAM {name} (k INT, t TIMESTAMP LATENESS INTERVAL '1' MINUTE) WITH (connector = 'kafka',"
            f" topic = '{topic}', 'properties.bootstrap.servers' = '{broker.servers}',"
            " 'scan.startup.mode' = 'earliest-offset',"
            f" format = '{format}', '{format}.schema-registry.url' = '{registry.url}')"
        )
        (created,) = api.create_queries([{"sql": f"SELECT k, t FROM {name} WHERE k >= 50"}])

        def rows() -> list[dict[str, object]]:
            page_rows: list[dict[str, object]] = api.page(created["id"])["rows"]
            return page_rows

        wait_until(lambda: len(rows()) >= 10, 90, lambda: f"all selected tuples come: {api.stream(name)}")
        wait_until(lambda: bool(api.stream(name)["malformed"] == 2), 60, lambda: str(api.stream(name)))
    finally:
        registry.stop()
    assert [(row["k"], datetime.fromisoformat(str(row["t"]))) for row in rows()] == list(enumerate(times))[50:]
    details = [letter["detail"] for page in api.dead_letters(name) for letter in page]
    assert "none with the id 9" in details[0]
    assert "must begin with byte 0" in details[1]


@pytest.mark.long
def test_what_retention_dropped_stops_a_stream_or_is_skipped_and_counted(api: Api, apache_kafka: ApacheKafka) -> None:
    topics = Topics(apache_kafka.servers)
    topic, unique = topics.create(2), uuid.uuid4().hex[:8]
    topics.produce(topic, map(message, range(100)), 0)
    topics.produce(topic, map(message, range(100)), 1)
    topics.delete_before(topic, 60)
    for name, on_gap in ((f"failing_{unique}", "fail"), (f"skipping_{unique}", "skip")):
        api.create_stream(
            f"CREATE STREAM {name} (volts INT, time TIMESTAMP LATENESS INTERVAL '1' MINUTE) WITH ("
            f"connector = 'kafka', topic = '{topic}', 'properties.bootstrap.servers' = '{topics.servers}',"
            " 'scan.startup.mode' = 'specific-offsets',"
            f" 'scan.startup.specific-offsets' = 'partition:0,offset:50;partition:1,offset:0', on_gap = '{on_gap}')"
        )
    skipping, failing = f"skipping_{unique}", f"failing_{unique}"
    queries = [{"sql": f"SELECT volts FROM {name} WHERE volts < 0"} for name in (skipping, failing)]
    read_by = [query["id"] for query in api.create_queries(queries, wait=0)]
    wait_until(lambda: bool(api.stream(skipping)["tuples"] == 140), 60, lambda: str(api.stream(skipping)))
    stream = api.stream(skipping)
    assert (stream["skipped"], stream["offsets"], stream["error"]) == (10, {"0": 100, "1": 100}, None)
    metrics = api.request("GET", "/metrics").text
    assert f'braid_stream_skipped_total{{stream="{skipping}"}} 10.0' in metrics
    error = wait_until(lambda: api.stream(failing)["error"], 60, "the stream says what is wrong")
    assert "goes on at offset 50 of partition 0" in str(error)
    assert "on_gap = 'skip'" in str(error)
    assert (api.stream(failing)["tuples"], api.stream(failing)["skipped"]) == (0, 0)
    for query in read_by:
        api.delete_query(query, drain=False)


@pytest.mark.long
def test_keys_and_times_of_messages_are_columns(api: Api, apache_kafka: ApacheKafka) -> None:
    topics, name = Topics(apache_kafka.servers), f"metered_{uuid.uuid4().hex[:8]}"
    topic, start_ms = topics.create(2), int(START.timestamp() * 1000)
    for number in range(40):
        topics.produce(topic, [b"%d" % number], number % 2, key=b"%d" % (number % 3), timestamp=start_ms + 100 * number)
    topics.produce(topic, [b"0"], 0, key=b"no number", timestamp=start_ms)
    topics.produce(topic, [b"0"], 0, key=b"9", timestamp=start_ms + 60_000)
    stream = api.create_stream(
        f"CREATE STREAM {name} (device INT METADATA FROM 'key', volts INT,"
        " at TIMESTAMP METADATA FROM 'timestamp' LATENESS INTERVAL '30' SECOND) WITH ("
        f"connector = 'kafka', topic = '{topic}', 'properties.bootstrap.servers' = '{topics.servers}',"
        " 'scan.startup.mode' = 'earliest-offset', format = 'csv')"
    )
    assert [column.get("metadata") for column in stream["columns"]] == ["key", None, "timestamp"]
    (query,) = (answer["id"] for answer in api.create_queries([{"sql": f"SELECT device, volts, at FROM {name}"}]))
    wait_until(lambda: bool(api.stream(name)["tuples"] == 41), 60, lambda: str(api.stream(name)))
    (letter,) = next(api.dead_letters(name))
    assert "column 'device' must be an INT, got 'no number'" in letter["detail"]
    shown = api.stream(name)
    assert (shown["malformed"], shown["clock"]) == (1, "2026-01-01T00:01:00.000000Z")
    api.delete_query(query, drain=False)


@pytest.mark.long
def test_a_stream_waits_for_its_schema_registry(api: Api, apache_kafka: ApacheKafka) -> None:
    topics, name, registry = Topics(apache_kafka.servers), f"avro_{uuid.uuid4().hex[:8]}", RegistryServer()
    topic = topics.create(2)
    writer_schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "volts", "type": ["null", "int"]}, OLDER["fields"][0]],
    }
    registry.schemas[8] = {"schema": json.dumps(writer_schema)}
    for number in range(20):
        value = struct.pack(">bI", 0, 8) + encoded(writer_schema, {"volts": number, "t": START})
        topics.produce(topic, [value], number % 2)
    registry.stop()
    api.create_stream(
        f"CREATE STREAM {name} (volts INT, t TIMESTAMP LATENESS INTERVAL '0' SECOND) WITH ("
        f"connector = 'kafka', topic = '{topic}', 'properties.bootstrap.servers' = '{topics.servers}',"
        f" 'scan.startup.mode' = 'earliest-offset', format = 'avro', 'avro.schema-registry.url' = '{registry.url}')"
    )
    api.create_queries([{"sql": f"SELECT volts FROM {name} WHERE volts < 0"}], wait=0)
    error = wait_until(lambda: api.stream(name)["error"], 60, "the stream says what is wrong")
    assert f"The schema registry at {registry.url} must say" in str(error)
    registry.start()
    try:
        wait_until(lambda: bool(api.stream(name)["tuples"] == 20), 60, lambda: str(api.stream(name)))
    finally:
        registry.stop()
    stream = api.stream(name)
    assert (stream["malformed"], stream["error"]) == (0, None)
